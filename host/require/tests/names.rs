//! The names of figures: those that are known before a run are those that its documents have, and
//! `docs/require.md` lists them.

#![allow(clippy::unwrap_used)]

#[path = "../../report/tests/common/mod.rs"]
mod common;

use std::collections::BTreeSet;
use std::path::Path;

use blackstart_require::{
    Figure, Requirement, campaign_figures, campaign_names, comparison_names, load_names,
};
use common::{SMALL, Story, campaign};

#[test]
fn a_report_has_the_names_that_were_known_before() {
    use Story::*;
    for stories in [
        &[Recovers, Recovers, Recovers][..],
        &[Recovers, NeverBack, GateFails, Control, Interrupted],
        &[NoFault],
    ] {
        let report = campaign(SMALL, stories);
        let found: BTreeSet<String> = campaign_figures(&report).into_keys().collect();
        let known = campaign_names();
        let unknown: Vec<&String> = found.difference(&known).collect();
        assert_eq!(unknown, [""; 0], "not known before the run");
        assert_eq!(found, known);
    }
}

#[test]
fn figures_are_those_of_the_report() {
    let report = campaign(SMALL, &[Story::Recovers; 3]);
    let figures = campaign_figures(&report);
    let outage = report
        .campaign
        .endpoints
        .iter()
        .find(|e| e.name == "outage_s");
    let outage = outage.unwrap();
    let Figure::Number { value, uncertainty } = figures["outage_s.median"] else {
        panic!("{}", figures["outage_s.median"]);
    };
    assert_eq!(Some(value), outage.summary.median);
    assert_eq!(Some(uncertainty), outage.uncertainty);
    assert_eq!(figures["valid_runs"], Figure::exact(3.0));
    // A bound inside the uncertainty is not met from either side.
    for sign in ["<=", ">="] {
        let text = format!("outage_s.median {sign} {value}");
        assert!(
            !Requirement::parse(&text).unwrap().answer(&figures).met(),
            "{text}"
        );
    }
    let text = format!("outage_s.median <= {}", value + uncertainty);
    assert!(
        Requirement::parse(&text).unwrap().answer(&figures).met(),
        "{text}"
    );
}

#[test]
fn what_was_not_reached_or_cannot_be_meets_nothing() {
    let report = campaign(SMALL, &[Story::Recovers, Story::NeverBack, Story::Recovers]);
    let figures = campaign_figures(&report);
    for (text, says) in [
        (
            "ttr_pre_fault_s.median >= 0",
            "not met, not reached (run 2: at least ",
        ),
        (
            "survivor_p95_ms.median >= 0",
            "not met, not measured (one replica",
        ),
        ("phase.weight_fetch_s.mean >= 0", "not met, not measured ("),
    ] {
        let answer = Requirement::parse(text).unwrap().answer(&figures);
        assert!(answer.to_string().contains(says), "{answer}");
    }
    let censored = Requirement::parse("ttr_pre_fault_s.censored_runs == 0").unwrap();
    let answer = censored.answer(&figures).to_string();
    assert_eq!(
        answer,
        "require ttr_pre_fault_s.censored_runs == 0: not met, 1"
    );
}

/// The lists of `docs/require.md` between their marks; `BLESS=1` writes them anew.
#[test]
fn the_documentation_lists_every_name() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/require.md");
    let was = std::fs::read_to_string(&path).unwrap();
    let mut text = was.clone();
    for (mark, list) in [
        ("campaign", listed(&campaign_names(), str::rfind)),
        ("load", listed(&load_names(), str::rfind)),
        ("comparison", listed(&comparison_names(), str::find)),
    ] {
        let (begin, end) = (format!("<!-- {mark} -->\n"), format!("<!-- end {mark} -->"));
        let from = text.find(&begin).unwrap() + begin.len();
        let to = text.find(&end).unwrap();
        text.replace_range(from..to, &list);
    }
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    } else {
        assert!(
            text == was,
            "docs/require.md does not list the names of the code: BLESS=1 cargo test --release -p blackstart-require"
        );
    }
}

/// Names by what stands before a dot, those that share the same ends together.
fn listed(names: &BTreeSet<String>, dot: fn(&str, char) -> Option<usize>) -> String {
    use std::collections::BTreeMap;
    let mut ends: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in names {
        // `p99.9` is one part.
        let cut = dot(name.strip_suffix(".9").unwrap_or(name), '.');
        let (figure, end) = cut.map_or((name.as_str(), ""), |at| (&name[..at], &name[at + 1..]));
        ends.entry(figure).or_default().push(end);
    }
    let mut groups: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for (figure, ends) in ends {
        groups.entry(ends).or_default().push(figure);
    }
    let code = |all: &[&str]| {
        let all: Vec<String> = all.iter().map(|one| format!("`{one}`")).collect();
        all.join(" ")
    };
    let mut rows: Vec<String> = groups
        .iter()
        .map(|(ends, figures)| match ends[..] {
            [""] => format!("| {} | |\n", code(figures)),
            _ => format!("| {} | {} |\n", code(figures), code(ends)),
        })
        .collect();
    rows.sort();
    format!(
        "| figure | followed by a dot and |\n| --- | --- |\n{}",
        rows.concat()
    )
}
