//! What a campaign says against what the mock server knows: phases, outage, losses, outcomes.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use blackstart_record::Outcome;
use blackstart_testkit::{CampaignText, Life, free_port, lives, read_truth};

/// A boundary of the log may be this far from the instant at which the server wrote it.
const BOUNDARY_BOUND_NS: i64 = 50_000_000;
/// The outage may be this far from the server's own: a probe's interval and its first token.
const OUTAGE_BOUND_NS: i64 = 200_000_000;

/// Every boundary of a start of the mock, in order.
const BOUNDARIES: [&str; 11] = [
    "banner",
    "engine_init",
    "model_load_start",
    "weights_loaded",
    "model_loaded",
    "torch_compile",
    "kv_cache",
    "graph_capture",
    "engine_ready",
    "server_start",
    "startup_complete",
];

/// Segments of the start, with the boundaries that they span.
const SEGMENTS: [(&str, &str, &str); 3] = [
    ("weight_load", "model_load_start", "weights_loaded"),
    ("torch_compile", "model_loaded", "torch_compile"),
    ("profile_kv_capture", "torch_compile", "graph_capture"),
];

#[test]
fn a_campaign_agrees_with_the_servers_own_account() {
    let _turn = common::turn();
    let instrument = common::instrument();
    let truth_file = instrument.path("truth.jsonl");
    let mut campaign = CampaignText::new("truth", free_port())
        .process_fault("process-kill", "signal = \"KILL\"\nprocess = \"api\"");
    campaign.runs = 2;
    campaign.phases = ["1s", "4s", "9s", "1s"];
    // The demo's phases, at their whole length.
    campaign.mock = vec![
        "--release".to_owned(),
        "0.32.0".to_owned(),
        "--truth".to_owned(),
        truth_file.to_str().unwrap().to_owned(),
    ];
    let finished = common::run(&instrument, &campaign);
    finished.expect_code(0);
    let results = finished.results();

    let lives = lives(&read_truth(&truth_file));
    assert_eq!(lives.len(), 4, "two runs of two lives each");
    for run in 1..=2 {
        let before = &lives[(run as usize - 1) * 2];
        let after = &lives[(run as usize - 1) * 2 + 1];
        let check = Check {
            results: &results,
            run,
            epoch_ns: common::epoch_monotonic_ns(&results, run),
            analysis: common::analysis(&results, run),
            before,
            after,
        };
        check.phases();
        check.outage();
        check.losses();
        check.outcomes();
    }
}

struct Check<'a> {
    results: &'a std::path::Path,
    run: u32,
    epoch_ns: i64,
    analysis: serde_json::Value,
    before: &'a Life,
    after: &'a Life,
}

impl Check<'_> {
    fn fire_ns(&self) -> i64 {
        self.analysis["fire"]["actual_ns"].as_i64().unwrap()
    }

    /// Run time of a boundary of the second life, by the truth.
    fn true_boundary(&self, key: &str) -> i64 {
        let at = self.after.boundary(key);
        at.unwrap_or_else(|| panic!("the truth has no {key}")) - self.epoch_ns
    }

    fn phases(&self) {
        let run = self.run;
        let decomposition = &self.analysis["decomposition"];
        for key in BOUNDARIES {
            let found = decomposition["boundaries"][key]["at_ns"]
                .as_i64()
                .unwrap_or_else(|| panic!("run {run}: {key} is not among the boundaries"));
            let off = found - self.true_boundary(key);
            assert!(
                off.abs() <= BOUNDARY_BOUND_NS,
                "run {run}: {key} is {} ms from the truth",
                off as f64 / 1e6
            );
        }
        let segments = decomposition["segments"].as_array().unwrap();
        for (name, from, to) in SEGMENTS {
            let segment = segments.iter().find(|s| s["name"] == name).unwrap();
            let found = segment["duration_s"]
                .as_f64()
                .unwrap_or_else(|| panic!("run {run}: {name} is not measured: {segment}"));
            let truth = (self.true_boundary(to) - self.true_boundary(from)) as f64 / 1e9;
            assert!(
                (found - truth).abs() <= BOUNDARY_BOUND_NS as f64 / 1e9,
                "run {run}: {name} took {found} s, in truth {truth} s"
            );
        }
    }

    fn outage(&self) {
        let run = self.run;
        // The server cannot write down its own SIGKILL, but it was alive at its last line and its
        // successor was not yet there.
        let last_words = self
            .before
            .lines
            .iter()
            .filter(|l| l["role"] == "api")
            .filter_map(|l| l["ns"].as_i64())
            .max()
            .unwrap()
            - self.epoch_ns;
        let next = self.after.at("process_start").unwrap() - self.epoch_ns;
        let fire = self.fire_ns();
        assert!(
            last_words <= fire && fire < next,
            "run {run}: killed at {fire}, spoke until {last_words}, succeeded at {next}"
        );
        let ready = self.after.at("ready").unwrap() - self.epoch_ns;
        let truth_ns = ready - fire;
        let outage_ns = (self.analysis["outage_s"].as_f64().unwrap() * 1e9) as i64;
        assert!(
            (outage_ns - truth_ns).abs() <= OUTAGE_BOUND_NS,
            "run {run}: outage {outage_ns} ns, in truth {truth_ns} ns"
        );
        assert!(
            outage_ns >= truth_ns,
            "run {run}: served before it was ready"
        );
    }

    /// Client's id of each request of the load.
    fn id(&self, index: u64) -> String {
        format!("truth-{}-{index}", self.run)
    }

    fn losses(&self) {
        let run = self.run;
        let prefix = format!("truth-{run}-");
        // Probes and the readiness check have ids of their own, or none.
        let open: BTreeSet<String> = self
            .before
            .unended()
            .into_iter()
            .filter(|id| id.starts_with(&prefix))
            .collect();
        assert!(!open.is_empty(), "run {run}: nothing was in flight");
        let determinate = &self.analysis["in_flight_determinate"];
        assert_eq!(
            self.analysis["in_flight_indeterminate"], 0,
            "run {run}: {determinate}"
        );
        assert_eq!(determinate["total"], open.len(), "run {run}: {open:?}");
        assert_eq!(determinate["completed"], 0, "run {run}");
        let lost =
            determinate["errored"].as_u64().unwrap() + determinate["censored"].as_u64().unwrap();
        assert_eq!(lost, open.len() as u64, "run {run}");
        assert_eq!(self.analysis["in_flight_loss_fraction"], 1.0, "run {run}");

        let fire = self.fire_ns();
        let recorded: BTreeSet<String> = common::requests(self.results, run)
            .iter()
            .filter(|r| r.dispatched_ns.is_some_and(|t| t < fire) && r.ended_ns > fire)
            .map(|r| self.id(r.index))
            .collect();
        assert_eq!(recorded, open, "run {run}");
    }

    fn outcomes(&self) {
        let run = self.run;
        let prefix = format!("truth-{run}-");
        let mut received: BTreeMap<String, u32> = BTreeMap::new();
        let mut done = BTreeSet::new();
        for life in [self.before, self.after] {
            let ids = |event| {
                life.events(event)
                    .filter_map(|l| Some((l["id"].as_str()?.to_owned(), l)))
                    .filter(|(id, _)| id.starts_with(&prefix))
            };
            for (id, _) in ids("request") {
                *received.entry(id).or_default() += 1;
            }
            for (id, line) in ids("request_end") {
                if line["end"] == "done" {
                    done.insert(id);
                }
            }
        }
        for (id, times) in &received {
            assert_eq!(
                *times, 1,
                "{id} was received {times} times: something retried"
            );
        }
        let records = common::requests(self.results, run);
        let scheduled = self.analysis["counts"]["scheduled"].as_u64().unwrap();
        assert_eq!(records.len() as u64, scheduled, "run {run}");
        let mut completed = BTreeSet::new();
        for record in &records {
            let id = self.id(record.index);
            if record.outcome == Outcome::Completed {
                assert!(
                    done.contains(&id),
                    "{id} is completed, the server did not end it so"
                );
                assert_eq!(record.completion_tokens, Some(30), "{id}");
                completed.insert(id);
            }
        }
        // Nothing that the server ended well was lost on the way: client and server share a host.
        assert_eq!(completed, done, "run {run}");
        assert_eq!(
            completed.len() as u64,
            self.analysis["counts"]["completed"].as_u64().unwrap()
        );
    }
}
