//! The page's structure: every part is there, nothing leaves the page, nothing from outside is markup.

// A test may fail by panicking.
#![allow(clippy::unwrap_used)]

mod common;

use blackstart_analyze::RecoveryStatus;
use blackstart_report::{CampaignReport, HtmlError, render_html};
use common::{PINNED, SMALL, Story, campaign};

/// Largest page of five runs of pinned length.
const MAX_PAGE_BYTES: usize = 3_000_000;

fn page(report: &CampaignReport) -> String {
    let page = render_html(report).unwrap();
    check_structure(&page);
    page
}

/// Elements that could run or fetch something.
const FORBIDDEN: [&str; 8] = [
    "script",
    "iframe",
    "object",
    "embed",
    "img",
    "form",
    "base",
    "a href=\"javascript",
];

/// Elements that have no end tag.
const VOID: [&str; 3] = ["meta", "link", "!doctype"];

/// What holds for every page: tags nest, ids are unique, links have targets, nothing is fetched.
fn check_structure(page: &str) {
    let mut open = Vec::new();
    let mut ids = Vec::new();
    let mut targets = Vec::new();
    let body = page.replace(style(page), "");
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        for forbidden in FORBIDDEN {
            assert!(!tag.starts_with(forbidden), "the page has <{forbidden}>");
        }
        let quoted = tag.split('"').step_by(2).collect::<String>();
        assert!(
            !quoted.contains(" on") && !quoted.contains(" src"),
            "<{tag}>"
        );
        let name: String = tag
            .chars()
            .take_while(|c| !" />".contains(*c) || *c == '/')
            .collect();
        if let Some(closed) = name.strip_prefix('/') {
            assert_eq!(
                open.pop().as_deref(),
                Some(closed),
                "tags nest at </{closed}>"
            );
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            open.push(name);
        }
        for (attribute, list) in [(" id=\"", &mut ids), (" href=\"#", &mut targets)] {
            if let Some((_, rest)) = tag.split_once(attribute) {
                list.push(rest.split('"').next().unwrap().to_owned());
            }
        }
    }
    assert!(open.is_empty(), "left open: {open:?}");
    for target in &targets {
        assert!(ids.contains(target), "no element has the id {target}");
    }
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(all, ids.len(), "ids are unique");
    assert!(page.contains("default-src 'none'"));
    for scheme in ["href=\"http", "url(http", "href=\"//"] {
        assert!(!page.contains(scheme), "the page refers to {scheme}");
    }
    for nonsense in ["NaN", ">inf", "-inf", "None<", "Some("] {
        assert!(!body.contains(nonsense), "the page shows {nonsense}");
    }
}

fn style(page: &str) -> &str {
    page.split_once("<style>")
        .unwrap()
        .1
        .split_once("</style>")
        .unwrap()
        .0
}

fn section<'a>(page: &'a str, id: &str) -> &'a str {
    let from = page.split_once(&format!("<section id=\"{id}\"")).unwrap().1;
    from.split_once("</section>").unwrap().0
}

#[test]
fn a_campaign_that_recovers_shows_every_part_with_marks() {
    let report = campaign(SMALL, &[Story::Recovers, Story::Recovers, Story::Recovers]);
    let page = page(&report);
    let outage = report
        .campaign
        .endpoints
        .iter()
        .find(|e| e.name == "outage_s")
        .unwrap();
    let median = format!("{:.2}\u{a0}s", outage.summary.median.unwrap());
    assert!(page.contains(&format!(
        "After SIGKILL to the api process of vllm-0, service was away for a median of <strong>{median}</strong>"
    )));
    assert!(page.contains("Weight loading cost the largest part"));
    assert!(page.contains("All 3 runs count"));
    assert!(page.contains("Free profile."));
    assert!(page.contains("phases.baseline: 20 s (pinned 300 s)"));
    let runs = section(&page, "runs");
    assert_eq!(runs.matches("<figure class=\"run\"").count(), 3);
    for mark in [
        "class=\"area good\" d=\"M",
        "class=\"area errored\" d=\"M",
        "class=\"area censored\" d=\"M",
        "class=\"area late\" d=\"M",
        "class=\"scheduled\" d=\"M",
        "class=\"ttft\" d=\"M",
        "class=\"band\"",
        "class=\"mark fire\"",
        "class=\"mark ready\"",
        "class=\"mark recovered\"",
    ] {
        // A wide and a narrow drawing for each run.
        assert_eq!(runs.matches(mark).count(), 6, "{mark}");
    }
    let seconds = report.campaign.per_run[0].analysis.timeline.len();
    assert_eq!(runs.matches("</title></path>").count(), 3 * seconds);
    let phases = section(&page, "phases");
    let drawn: usize = report
        .campaign
        .per_run
        .iter()
        .map(|r| {
            r.analysis
                .decomposition
                .partition
                .as_ref()
                .unwrap()
                .phases
                .len()
        })
        .sum();
    assert!(drawn > 20);
    assert_eq!(phases.matches("<svg class=\"bar\"").count(), drawn);
    assert!(phases.contains("Loading weights took 2.61 seconds"));
    let windows = section(&page, "windows");
    assert!(windows.contains("class=\"curve-completed\" d=\"M"));
    assert!(windows.contains("conditional on completion"));
    assert!(section(&page, "losses").contains("indeterminate zone"));
    assert!(section(&page, "replicas").contains("by SIGKILL (9)"));
    assert!(section(&page, "replicas").contains("4117 VLLM::EngineCore"));
    assert!(section(&page, "client").contains("granted to 1 of 2 threads"));
    assert!(section(&page, "client").contains("operation not permitted"));
    assert!(section(&page, "figures").matches("class=\"dot\"").count() > 20);
    let gates = section(&page, "gates");
    assert!(gates.contains("<b>✓</b> passed"));
    assert!(gates.contains("<b>–</b> not applicable"));
    assert!(gates.contains("<b>✗</b> not observed"));
    assert!(section(&page, "provenance").contains(&"c4".repeat(32)));
}

#[test]
fn a_run_that_never_recovers_says_so_and_draws_no_recovery() {
    let page = page(&campaign(
        SMALL,
        &[Story::Recovers, Story::NeverBack, Story::NeverBack],
    ));
    assert!(page.contains("Not back in 2 of 3 runs"));
    assert!(page.contains("service did not answer again in 2 of 3 runs"));
    let runs = section(&page, "runs");
    assert_eq!(runs.matches("class=\"mark unrecovered\"").count(), 4);
    assert_eq!(runs.matches("class=\"mark recovered\"").count(), 2);
    assert!(section(&page, "replicas").contains("not started again: restart policy `no`"));
    assert!(section(&page, "figures").contains("censored: at least"));
    assert!(section(&page, "phases").contains("class=\"unexplained\""));
    assert!(section(&page, "phases").contains("no matcher knows this log"));
    assert!(section(&page, "windows").contains("never</span>"));
}

fn headline(report: &CampaignReport) -> String {
    let page = render_html(report).unwrap();
    let top = page.split("<header class=\"top\">").nth(1).unwrap();
    top.split("</header>").next().unwrap().to_owned()
}

#[test]
fn controls_alone_pass_or_do_not() {
    let mut report = campaign(SMALL, &[Story::Control, Story::Control]);
    for run in &mut report.campaign.per_run {
        run.valid = true;
        run.analysis.control_outage = None;
    }
    let top = headline(&report);
    assert!(
        top.contains("<h1>Control passed: no outage in both runs</h1>"),
        "{top}"
    );
    assert!(top.contains("none was in 2 of 2 runs"), "{top}");
    report.campaign.per_run[1].analysis.control_outage = Some("3 probes failed".into());
    let top = headline(&report);
    assert!(
        top.contains("<h1>Control not passed in 1 of 2 runs</h1>"),
        "{top}"
    );
    assert!(top.contains("Run 2: 3 probes failed."), "{top}");
}

#[test]
fn one_of_several_replicas_is_not_the_service() {
    let mut report = campaign(SMALL, &[Story::Recovers]);
    let one = headline(&report);
    assert!(one.contains(", service was away for"), "{one}");
    for run in &mut report.campaign.per_run {
        let mut second = run.analysis.replicas[0].clone();
        second.replica = "vllm-1".into();
        run.analysis.replicas.truncate(1);
        run.analysis.replicas.push(second);
    }
    let two = headline(&report);
    assert!(two.contains("<h1>One of 2 replicas away for"), "{two}");
    assert!(
        two.contains("replica vllm-0 (one of 2) was away for"),
        "{two}"
    );
}

#[test]
fn what_a_single_time_would_hide_is_said_first() {
    let mut report = campaign(SMALL, &[Story::Recovers]);
    report.campaign.per_run[0]
        .analysis
        .recovery
        .pre_fault
        .redegradations = 2;
    let top = headline(&report);
    assert!(top.contains("<h1>Away more than once, first for"), "{top}");
    let mut report = campaign(SMALL, &[Story::Recovers]);
    report.campaign.per_run[0].analysis.recovery.pre_fault.ttr_s = Some(0.0);
    let top = headline(&report);
    assert!(top.contains("degraded only later"), "{top}");
    let mut report = campaign(SMALL, &[Story::NeverBack]);
    let never = headline(&report);
    assert!(
        never.contains("goodput did not come back in 1 of 1 run"),
        "{never}"
    );
    report.campaign.per_run[0]
        .analysis
        .recovery
        .pre_fault
        .status = RecoveryStatus::Unconfirmed;
    let open = headline(&report);
    assert!(
        open.contains("goodput was not confirmed to be back"),
        "{open}"
    );
    let page = render_html(&report).unwrap();
    assert!(
        page.contains("1 of 1 run seemed back, but the load ended"),
        "the card says it, too"
    );
}

#[test]
fn an_invalid_run_is_shown_and_feeds_nothing() {
    let mixed = page(&campaign(SMALL, &[Story::Recovers, Story::GateFails]));
    assert!(mixed.contains("1 of 2 runs count"));
    assert!(mixed.contains("does not count"));
    assert!(mixed.contains("send skew p99 8140 µs, at most 5000 allowed"));
    assert!(section(&mixed, "gates").contains("<b>✗</b> failed"));
    assert!(section(&mixed, "figures").contains("run 2 dropped: invalid run: G2"));
    let none = page(&campaign(SMALL, &[Story::GateFails]));
    assert!(none.contains("No run counts."));
    assert!(none.contains("no run counts: see the reasons below"));
}

#[test]
fn a_campaign_without_a_fault_invents_none() {
    let page = page(&campaign(SMALL, &[Story::NoFault, Story::NoFault]));
    assert!(
        page.contains("No fault was planned. Goodput of the baseline window was run 1: 100\u{a0}%")
    );
    let runs = section(&page, "runs");
    assert!(runs.contains("seconds from the start of the run"));
    assert!(!runs.contains("class=\"band\""));
    assert!(!runs.contains("class=\"mark fire\""));
    assert!(section(&page, "phases").contains("the run has no fault"));
    let losses = section(&page, "losses");
    assert!(losses.contains("Every request of a run"));
    assert!(!losses.contains("in flight at the fire</td>"));
}

#[test]
fn a_control_and_an_interrupted_run_carry_their_badges() {
    let page = page(&campaign(
        SMALL,
        &[Story::Recovers, Story::Control, Story::Interrupted],
    ));
    assert!(page.contains("negative control</span>"));
    assert!(page.contains("partial</span>"));
    assert!(page.contains("Run 3 is partial: interrupted by SIGINT"));
    assert!(page.contains("Partial: the campaign ended early"));
    assert!(section(&page, "runs").contains("planned fire, withheld"));
    assert!(section(&page, "runs").contains("Negative control: the fault was withheld."));
    assert!(page.contains("Run 2: negative control, the fault was withheld"));
    assert!(!page.contains("the fault did not happen"));
}

#[test]
fn absent_figures_show_reasons_and_no_zero() {
    let mut report = campaign(SMALL, &[Story::Recovers]);
    let a = &mut report.campaign.per_run[0].analysis;
    a.outage_s = None;
    a.outage_note = Some("the direct probe was never sent".into());
    a.in_flight = None;
    a.in_flight_note = Some("the fire instant is not known".into());
    a.client.cpu_percent_max_5s = None;
    a.client.cpu_note = Some("/proc/stat was not readable".into());
    for second in &mut a.timeline {
        second.ttft_ms_p50 = None;
    }
    let page = page(&report);
    assert!(page.contains("Outage not measured (the direct probe was never sent)"));
    assert!(page.contains("in-flight accounting <span class=\"absent\">not measured <small>the fire instant is not known"));
    assert!(page.contains("/proc/stat was not readable"));
    assert!(page.contains("TTFT not measured: no request completed"));
}

#[test]
fn nothing_from_outside_becomes_markup() {
    const EVIL: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>";
    let report = campaign(SMALL, &[Story::Recovers, Story::NeverBack]);
    // Every string of the report, keys of maps too, but for those that name things of ours.
    let mut json = serde_json::to_value(&report).unwrap();
    poison(&mut json, EVIL);
    let report: CampaignReport = serde_json::from_value(json).unwrap();
    let page = page(&report);
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains("<img"));
}

/// Puts a hostile text behind every string that is not one of a closed set, and into map keys of
/// the open maps.
fn poison(value: &mut serde_json::Value, evil: &str) {
    use serde_json::Value;
    const CLOSED: [&str; 10] = [
        "status",
        "proof",
        "clock",
        "refusal",
        "endpoint",
        "source",
        "profile",
        "variant",
        "slo_ttft_ms",
        "unit",
    ];
    const OPEN_MAPS: [&str; 8] = [
        "errored_by_class",
        "by_replica",
        "waiting",
        "host",
        "load",
        "plugins",
        "measures",
        "logs",
    ];
    match value {
        Value::String(s) => s.push_str(evil),
        Value::Array(all) => all.iter_mut().for_each(|v| poison(v, evil)),
        Value::Object(map) => {
            for (key, v) in map.iter_mut() {
                let closed = CLOSED.contains(&key.as_str()) && key != "variant" && key != "unit";
                let window_name = key == "name" && is_window(v);
                if !closed && !window_name {
                    poison(v, evil);
                }
                if OPEN_MAPS.contains(&key.as_str())
                    && let Value::Object(inner) = v
                {
                    let renamed = std::mem::take(inner)
                        .into_iter()
                        .map(|(k, v)| (k + evil, v));
                    *inner = renamed.collect();
                }
            }
        }
        _ => {}
    }
}

fn is_window(v: &serde_json::Value) -> bool {
    let names = [
        "baseline",
        "guard",
        "fault",
        "fault_degraded",
        "fault_recovered",
        "outage",
    ];
    v.as_str().is_some_and(|s| names.contains(&s))
}

#[test]
fn damaged_numbers_make_no_panic() {
    let mut report = campaign(SMALL, &[Story::Recovers]);
    let a = &mut report.campaign.per_run[0].analysis;
    a.timeline[0].at_s = i64::MIN;
    a.timeline[1].at_s = i64::MAX;
    a.timeline[2].good = u64::MAX;
    a.timeline[2].errored = u64::MAX;
    a.timeline[3].ttft_ms_p50 = Some(1e308);
    a.timeline[4].ttft_ms_p50 = Some(-5.0);
    a.fire.actual_ns = Some(i64::MIN);
    a.recovery.pre_fault.entry_ns = Some(i64::MAX);
    a.windows[0].start_ns = i64::MAX;
    a.windows[0].incidence.horizon_ms = 0.0;
    if let Some(p) = &mut a.decomposition.partition {
        p.start_ns = i64::MAX;
        p.end_ns = i64::MIN;
        p.phases[0].duration_s = 1e300;
    }
    a.replicas[0].starts.push((i64::MIN, 1));
    a.in_flight.as_mut().unwrap().all.errored = u64::MAX;
    page(&report);
    let a = &mut report.campaign.per_run[0].analysis;
    a.timeline.clear();
    a.windows.clear();
    a.decomposition.segments.clear();
    a.recovery.sensitivity.clear();
    report.validity_gates.clear();
    report.campaign.endpoints.clear();
    report.campaign.segments.clear();
    assert!(page(&report).contains("No chart: the run has no timeline."));
    report.campaign.per_run.clear();
    page(&report);
}

#[test]
fn another_version_is_refused() {
    let mut report = campaign(SMALL, &[Story::NoFault]);
    report.schema_version = 1;
    assert_eq!(
        render_html(&report),
        Err(HtmlError::Version {
            found: 1,
            expected: 2
        })
    );
}

#[test]
fn five_runs_of_pinned_length_stay_small_and_a_long_run_is_gathered() {
    let report = campaign(PINNED, &[Story::Recovers; 5]);
    let page_of_five = page(&report);
    println!("page of five pinned runs: {} bytes", page_of_five.len());
    assert!(
        page_of_five.len() < MAX_PAGE_BYTES,
        "{} bytes",
        page_of_five.len()
    );
    assert_eq!(
        page_of_five
            .matches("Close-up around the fault</p>")
            .count(),
        5
    );
    let mut long = campaign(SMALL, &[Story::Recovers]);
    let timeline = &mut long.campaign.per_run[0].analysis.timeline;
    let day: Vec<_> = (0..86_400)
        .map(|s| {
            let mut second = timeline[(s % 50) as usize].clone();
            second.at_s = s;
            second
        })
        .collect();
    *timeline = day;
    let page = page(&long);
    assert!(page.contains("Each column holds 72 seconds"));
    assert!(page.len() < MAX_PAGE_BYTES);
    let mut many = campaign(SMALL, &[Story::Recovers]);
    let run = many.campaign.per_run[0].clone();
    many.campaign.per_run = (1..=300)
        .map(|n| {
            let mut run = run.clone();
            run.analysis.run = n;
            run
        })
        .collect();
    let page = render_html(&many).unwrap();
    assert!(page.contains("The first 20 of 300 runs are shown"));
    assert!(page.len() < 2 * MAX_PAGE_BYTES);
}

#[test]
fn figures_have_no_more_digits_than_they_are_known_to() {
    let page = page(&campaign(SMALL, &[Story::Recovers]));
    // Probes come every 50 ms while the replica is away, and are answered within 28 ms.
    assert!(page.contains("<h1>Away for 6."));
    assert!(page.contains("\u{a0}±\u{a0}0.08\u{a0}s</h1>"));
    let runs = section(&page, "runs");
    assert!(runs.contains("±\u{a0}1\u{a0}s"), "the detector's bucket");
    assert!(section(&page, "figures").contains("<small>±1</small>"));
    assert!(section(&page, "recovery").contains("<small>±1</small>"));
}

#[test]
fn each_gate_figure_stands_beside_its_limit() {
    let page = page(&campaign(SMALL, &[Story::Recovers]));
    let gates = section(&page, "gates");
    assert!(
        gates.contains("client.skew_us_p99 61\u{a0}µs <span class=\"limit\">≤ 5000\u{a0}µs</span>")
    );
    assert!(gates.contains("goodput.baseline 1 <span class=\"limit\">≥ 0.990</span>"));
    assert!(gates.contains(
        "<span class=\"limit loosened\">≤ 4 (loosened: the method&#39;s limit is 1)</span>"
    ));
}

#[test]
fn the_accounting_of_losses_adds_up_on_the_page() {
    let report = campaign(SMALL, &[Story::Recovers, Story::Interrupted]);
    let page = page(&report);
    for run in &report.campaign.per_run {
        let l = &run.analysis.losses;
        let groups = l.split.as_ref().unwrap().groups();
        let lost: u64 = groups.iter().map(|(_, c)| c.lost()).sum();
        assert_eq!(lost, l.lost);
        assert!(
            section(&page, "runs")
                .contains(&format!("Lost: {} of {} requests", l.lost, l.all.total))
        );
    }
    assert!(section(&page, "losses").contains("during the outage"));
    assert!(section(&page, "losses").contains("100 more of"));
}

#[test]
fn a_late_fire_is_drawn_beside_its_plan() {
    let late = campaign(SMALL, &[Story::FiredLate]);
    assert!(!late.campaign.per_run[0].valid);
    let page = page(&late);
    let runs = section(&page, "runs");
    assert!(runs.contains(">planned fire</text>"));
    assert!(runs.contains("fire, 2.60\u{a0}s late"));
    assert!(runs.contains("from the planned fire"));
    // Four marks have four rows: no label lies over the columns.
    for chart in runs.split("<svg class=\"chart").skip(1) {
        let top = chart.split("<line class=\"grid\"").nth(1).unwrap();
        assert!(top.contains("y1=\""));
        let labels = chart.matches("class=\"mark-label ").count();
        assert_eq!(labels, 4, "{labels}");
    }
}

#[test]
fn a_record_that_ends_early_claims_no_unfired_fault() {
    let page = page(&campaign(SMALL, &[Story::RecordEnds]));
    assert!(section(&page, "runs").contains("planned fire, not observed"));
    assert!(section(&page, "runs").contains("Fire not observed: the record of events ends at"));
    assert!(!page.contains("no effect of the fault was started"));
    assert!(!page.contains("never_fired"));
}

#[test]
fn a_cross_check_that_disagrees_stands_beside_the_figure() {
    let mut report = campaign(SMALL, &[Story::Recovers, Story::NeverBack]);
    let quiet = page(&report);
    assert!(quiet.contains("Cross-check by change-points: <span class=\"ok\">agrees</span>"));
    assert!(!quiet.contains("Cross-check disagrees"));
    // What never came back has no length, and is not left blank.
    assert!(section(&quiet, "phases").contains("≥ "));

    let a = &mut report.campaign.per_run[0].analysis;
    let said = "service fell again 30.000 s after the anchor & more";
    a.recovery_cross_check = Some(said.to_owned());
    a.recovery.cross_check.agrees = Some(false);
    a.recovery.cross_check.note = Some(said.to_owned());
    let flagged = page(&report);
    let shown = "fell again 30.000 s after the anchor &amp; more";
    assert_eq!(
        flagged.matches(shown).count(),
        2,
        "under the chart and in the recovery"
    );
    assert!(flagged.contains("<code>recovery_cross_check</code>"));

    a_reason_stands_where_there_is_no_check(&mut report);
}

fn a_reason_stands_where_there_is_no_check(report: &mut CampaignReport) {
    let a = &mut report.campaign.per_run[0].analysis;
    a.recovery_cross_check = None;
    a.recovery.cross_check.agrees = None;
    a.recovery.cross_check.note = Some("too few buckets".to_owned());
    let page = page(report);
    assert!(page.contains("too few buckets"));
}

#[test]
fn a_run_that_was_cut_off_is_drawn_up_to_the_cut() {
    let report = campaign(SMALL, &[Story::Interrupted]);
    let run = &report.campaign.per_run[0].analysis;
    let cut_s = run.cut_ns.unwrap() as f64 / 1e9;
    assert!(run.timeline.last().unwrap().at_s as f64 <= cut_s);
    let page = page(&report);
    assert!(!section(&page, "runs").contains(": 0 scheduled"));
}
