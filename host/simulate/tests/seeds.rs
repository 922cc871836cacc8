//! Some hundred seeds of every scenario: the analysis finds what was planted.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

use blackstart_analyze::analyze_run;
use blackstart_record::Outcome;
use blackstart_simulate::*;

/// Seeds of each scenario. With their number the time grows, and what they find.
const SEEDS: u64 = 24;

/// Runs `work` for each item on all cores, in order.
fn each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let size = items.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = &work;
        let parts: Vec<_> = items
            .chunks(size)
            .map(|part| scope.spawn(move || part.iter().map(work).collect::<Vec<R>>()))
            .collect();
        parts.into_iter().flat_map(|p| p.join().unwrap()).collect()
    })
}

fn checks(first_seed: u64, seeds: u64) -> Vec<RunCheck> {
    let items: Vec<(&'static Scenario, u64)> = SCENARIOS
        .iter()
        .flat_map(|s| (first_seed..first_seed + seeds).map(move |seed| (s, seed)))
        .collect();
    each(&items, |(scenario, seed)| {
        check_run(scenario, Settings::TABLE, *seed).unwrap()
    })
}

#[test]
fn the_truth_is_found_in_every_scenario_and_seed() {
    let checks = checks(1_000_000, SEEDS);
    let wrong: Vec<String> = checks
        .iter()
        .filter(|c| !c.mismatches.is_empty())
        .map(|c| {
            format!(
                "blackstart simulate --check --scenario {} --seed {} --seeds 1  # {}",
                c.scenario, c.seed, c.mismatches[0]
            )
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let all = table::Sum::of(&checks);
    assert_eq!((all.false_recoveries, all.false_alarms), (0, 0));
    // Not a suite that defines its own questions away.
    assert!(all.certain * 10 >= all.runs * 9, "{all:?}");
}

#[test]
fn a_seed_is_a_run_byte_for_byte() {
    let scenario = scenario("flapping").unwrap();
    let plan = plan(scenario, Settings::TABLE, &[7, 8]).unwrap();
    let run = |i: usize| simulate(scenario, Settings::TABLE, &plan, &plan.runs[i]).unwrap();
    let (a, b, other) = (run(0), run(0), run(1));
    assert_eq!(a.records.requests, b.records.requests);
    assert_eq!(a.records.events, b.records.events);
    assert_eq!(a.records.boundaries, b.records.boundaries);
    assert_eq!(a.logs, b.logs);
    assert_eq!(a.truth, b.truth);
    assert_ne!(a.truth.first_answer_ns, other.truth.first_answer_ns);
}

/// Changes one thing of the truth.
type Lie = fn(&mut Truth);

#[test]
fn a_wrong_truth_is_caught() {
    let lies: [(&str, &str, Lie); 15] = [
        ("crash", "detector", |t| {
            if let RecoveryTruth::Recovered { entry_ns } = &mut t.counted.recovery {
                *entry_ns += 1_000_000_000;
            }
        }),
        ("crash", "planted course", |t| {
            if let RecoveryTruth::Recovered { entry_ns } = &mut t.expected.recovery {
                *entry_ns += 3_000_000_000;
            }
        }),
        ("crash", "deficit", |t| t.counted.deficit_s += 0.001),
        ("crash", "fault_degraded", |t| {
            t.windows.get_mut("fault_degraded").unwrap().errored += 1;
        }),
        ("crash", "baseline.good", |t| {
            t.windows.get_mut("baseline").unwrap().good -= 1;
        }),
        ("crash", "in flight", |t| {
            t.in_flight.as_mut().unwrap().determinate.scheduled += 1;
        }),
        ("crash", "losses", |t| {
            t.split.as_mut().unwrap().waiting_at_fire.0 += 1
        }),
        ("crash", "true fire", |t| {
            *t.fire_ns.as_mut().unwrap() += 1_000_000
        }),
        ("crash", "true outage", |t| {
            *t.first_answer_ns.as_mut().unwrap() -= 1_000_000_000;
        }),
        ("crash", "weights_loaded", |t| {
            let b = t.boundaries.iter_mut().find(|b| b.key == "weights_loaded");
            b.unwrap().written_ns += 10_000_000;
        }),
        ("remote-clock", "weights_loaded", |t| {
            let b = t.boundaries.iter_mut().find(|b| b.key == "weights_loaded");
            b.unwrap().written_ns += 1_200_000_000;
        }),
        ("hang", "censored", |t| t.all.censored -= 1),
        ("relapse", "redegradations", |t| {
            t.counted.redegradations = 0
        }),
        ("flapping", "dips", |t| t.counted.dips += 1),
        ("never-returns", "valid", |t| t.valid = false),
    ];
    for (name, what, lie) in lies {
        let scenario = scenario(name).unwrap();
        let plan = plan(scenario, Settings::TABLE, &[3]).unwrap();
        let mut run = simulate(scenario, Settings::TABLE, &plan, &plan.runs[0]).unwrap();
        let analysis = analyze_run(&plan, &plan.runs[0], &run.records).unwrap();
        assert!(check(&plan, &run.truth, &analysis).is_empty(), "{name}");
        lie(&mut run.truth);
        let found = check(&plan, &run.truth, &analysis);
        assert!(
            found.iter().any(|m| m.what.contains(what)),
            "{name}, {what}: {found:?}"
        );
    }
}

#[test]
fn a_damaged_record_is_caught() {
    let scenario = scenario("crash").unwrap();
    let plan = plan(scenario, Settings::TABLE, &[5]).unwrap();
    let run = simulate(scenario, Settings::TABLE, &plan, &plan.runs[0]).unwrap();
    let completed = run
        .records
        .requests
        .iter()
        .rposition(|r| r.outcome == Outcome::Completed)
        .unwrap();
    let mut records = run.records.clone();
    records.requests[completed].outcome = Outcome::Censored;
    let analysis = analyze_run(&plan, &plan.runs[0], &records).unwrap();
    assert!(!check(&plan, &run.truth, &analysis).is_empty());
    let mut records = run.records;
    records.requests.remove(completed);
    let analysis = analyze_run(&plan, &plan.runs[0], &records).unwrap();
    assert!(!check(&plan, &run.truth, &analysis).is_empty());
}

#[test]
fn only_the_comparison_knows_the_analysis() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut know = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if std::fs::read_to_string(&path)
            .unwrap()
            .contains("blackstart_analyze")
        {
            know.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    assert_eq!(know, ["check.rs"]);
}

/// The page holds tables of many seeds too; those are made by the command.
const MOST_SEEDS_OF_A_TEST: u64 = 5;

#[test]
fn the_page_holds_what_the_command_prints() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/truth.md");
    let text = std::fs::read_to_string(page).unwrap();
    let blocks = table::blocks(&text);
    let mut held = 0;
    for block in &blocks {
        let shown = &text[block.place.clone()];
        let heads = |t: &str| -> Vec<String> {
            t.lines()
                .map(|l| l.split('|').nth(1).unwrap_or_default().trim().to_owned())
                .collect()
        };
        let of = |name: &str, settings| -> Vec<RunCheck> {
            let seeds: Vec<u64> = (1..=block.seeds).collect();
            each(&seeds, |seed| {
                check_run(scenario(name).unwrap(), settings, *seed).unwrap()
            })
        };
        if block.seeds > MOST_SEEDS_OF_A_TEST {
            // At least it is a table of these scenarios and cells.
            let kind = blocks
                .iter()
                .find(|b| b.kind == block.kind && b.seeds <= MOST_SEEDS_OF_A_TEST)
                .unwrap();
            assert_eq!(heads(shown), heads(&text[kind.place.clone()]));
            continue;
        }
        held += 1;
        let made = match block.kind {
            table::Kind::Scenarios => table::scenarios(&checks(1, block.seeds)),
            table::Kind::Noise => {
                let cells: Vec<_> = table::noise_cells()
                    .into_iter()
                    .map(|s| (s, of("crash", s), of("control", s)))
                    .collect();
                table::noise(&cells)
            }
        };
        assert!(
            shown == made,
            "docs/truth.md is not what this version prints; run\n\
             blackstart simulate --write-docs docs/truth.md\n{made}"
        );
    }
    assert_eq!(held, 2);
}
