//! Gate verdicts: applicability, observation, the numbers in their sentences, and the conclusion.

use std::sync::LazyLock;

use regex::Regex;

use super::checker::{Checker, shorten};

/// Gates in their order, and whether each decides a label only.
const GATES: [(&str, bool); 7] = [
    ("G1", false),
    ("G2", false),
    ("G3", true),
    ("G4", true),
    ("G5", false),
    ("G6", false),
    ("G7", false),
];

/// The variant for which G3 and G4 apply.
const BLACK_HOLE: &str = "black_hole";

/// A number in a gate's sentence and the limit it is held to.
struct Limit {
    id: &'static str,
    name: &'static str,
    expression: Regex,
    lo: f64,
    hi: f64,
}

static LIMITS: LazyLock<Vec<Limit>> = LazyLock::new(|| {
    let limit = |id, name, expression: &str, lo, hi| Limit {
        id,
        name,
        expression: Regex::new(expression).expect("a constant expression that a test compiles"),
        lo,
        hi,
    };
    vec![
        limit("G2", "skew-p99-us", r"skew p99=([0-9.]+)us", 0.0, 5_000.0),
        limit("G2", "skew-max-us", r"/max=([0-9.]+)us", 0.0, 50_000.0),
        limit("G2", "undispatched", r"undispatched=([0-9]+)", 0.0, 0.0),
        limit("G2", "cpu-percent", r"worst=([0-9.]+)%", 0.0, 70.0),
        limit("G2", "stall-ms", r", ([0-9.]+)\) ms", 0.0, 1.0),
        limit(
            "G6",
            "baseline-goodput",
            r"baseline goodput ([0-9.]+)",
            0.99,
            1.0,
        ),
        limit("G7", "waiting-mean", r"=([0-9.]+)/n[0-9]+", 0.0, 1.0),
    ]
});

/// Checks every group of gates against the runs.
pub(crate) fn check(check: &mut Checker<'_>, runs: usize) {
    for g in 0..check.doc.len("validity_gates").min(runs.max(1)) {
        let group = format!("validity_gates[{g}]");
        let conclusion = one_group(check, &group);
        let all_pass = format!("{group}.all_pass");
        check.eq_flag(&all_pass, "every-applicable-gate", conclusion.all_pass, &[]);
        check.eq_flag(
            &format!("{group}.node_loss_representative"),
            "label-gates",
            conclusion.label,
            &[],
        );
        if let Some(variant) = check.doc.text("campaign.variant") {
            let variant = variant.to_owned();
            check.eq_text(
                &format!("{group}.variant"),
                "campaign",
                &variant,
                &["campaign.variant"],
            );
        }
        // One group for each published run, in the same order.
        let valid = format!("campaign.per_run[{g}].valid");
        if check.doc.get(&valid).is_some() {
            check.eq_flag(&valid, "gates", conclusion.all_pass, &[&all_pass]);
        }
    }
    config_name(check);
}

struct Conclusion {
    all_pass: bool,
    label: bool,
}

fn one_group(check: &mut Checker<'_>, group: &str) -> Conclusion {
    let black_hole = check.doc.text("campaign.variant") == Some(BLACK_HOLE);
    let mut conclusion = Conclusion {
        all_pass: true,
        label: black_hole,
    };
    for (i, (id, label_only)) in GATES.iter().enumerate() {
        let gate = format!("{group}.gates[{i}]");
        check.eq_text(&format!("{gate}.id"), "order", id, &[]);
        let p = |name: &str| format!("{gate}.{name}");
        check.eq_flag(&p("label_determining"), "by-id", *label_only, &[]);
        let detail = check.doc.text(&p("detail")).unwrap_or("").to_owned();
        let (Some(_), Some(observed), Some(_)) = (
            check.flag(&p("applicable")),
            check.flag(&p("observed")),
            check.flag(&p("pass")),
        ) else {
            conclusion.all_pass = false;
            check.require(
                &gate,
                "complete",
                false,
                "applicable, observed and pass".to_owned(),
                "not all of them".to_owned(),
                &[],
            );
            continue;
        };
        let says_not = detail.contains("not applicable");
        check.eq_flag(&p("applicable"), "as-its-sentence", !says_not, &[]);
        check.require(
            &p("detail"),
            "present",
            !detail.is_empty(),
            "a sentence".to_owned(),
            shorten(&detail),
            &[],
        );
        // Each flag is judged against what the sentence gives, not against the other flags, so that
        // one altered flag does not make the conclusion wrong as well.
        let mut passed = true;
        if says_not {
            // The predecessor wrote `pass` beside a gate that does not apply: never more than
            // "nothing was missing". It is no pass, and does not count as one here.
            check.eq_flag(&p("pass"), "not-applicable", observed, &[&p("observed")]);
        } else {
            let in_limits = limits(check, id, &p("detail"), &detail);
            passed = in_limits == Some(true);
            check.equal(
                &p("observed"),
                "numbers-in-sentence",
                observed == in_limits.is_some(),
                in_limits.is_some().to_string(),
                observed.to_string(),
                &[],
            );
            check.eq_flag(&p("pass"), "by-its-numbers", passed, &[]);
        }
        if !passed {
            if *label_only {
                conclusion.label = false;
            } else {
                conclusion.all_pass = false;
            }
        }
    }
    let n = check.doc.len(&format!("{group}.gates"));
    check.require(
        &format!("{group}.gates"),
        "seven",
        n == GATES.len(),
        GATES.len().to_string(),
        n.to_string(),
        &[],
    );
    conclusion
}

/// Whether every number of the sentence holds its limit; `None` if it has none of them.
fn limits(check: &mut Checker<'_>, id: &str, path: &str, detail: &str) -> Option<bool> {
    let mut all: Option<bool> = None;
    for limit in LIMITS.iter().filter(|l| l.id == id) {
        let value = limit
            .expression
            .captures(detail)
            .and_then(|c| c[1].parse::<f64>().ok());
        let Some(value) = value else {
            continue;
        };
        let holds = (limit.lo..=limit.hi).contains(&value);
        all = Some(all.unwrap_or(true) && holds);
        check.within(path, limit.name, value, (limit.lo, limit.hi), &[]);
    }
    // Gates whose sentences carry no number that is known here are taken at their word.
    if LIMITS.iter().any(|l| l.id == id) {
        all
    } else {
        Some(true)
    }
}

/// The configuration's name carries the variant.
fn config_name(check: &mut Checker<'_>) {
    if let (Some(variant), Some(name)) = (
        check.doc.text("campaign.variant"),
        check.doc.text("campaign.config_name"),
    ) {
        let expected = variant.replace('_', "-");
        check.require(
            "campaign.config_name",
            "names-variant",
            name.contains(&expected),
            expected.clone(),
            name.to_owned(),
            &["campaign.variant"],
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_the_published_sentences() {
        let sentence = "skew p99=17us/max=790us; undispatched=0; cpu_measured=true worst=8.2%; gc pause p99 in [0.655, 0.786) ms";
        let values: Vec<f64> = LIMITS
            .iter()
            .filter(|l| l.id == "G2")
            .map(|l| l.expression.captures(sentence).unwrap()[1].parse().unwrap())
            .collect();
        assert_eq!(values, [17.0, 790.0, 0.0, 8.2, 0.786]);
    }
}
