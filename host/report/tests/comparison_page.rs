//! The page of a comparison: its golden file, what it says of winners, and that nothing from outside is
//! markup.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;

use blackstart_analyze::{
    CampaignComparison, CompareInput, Pairing, RunAnalysis, analyze_campaign, analyze_run, compare,
};
use blackstart_plan::Plan;
use blackstart_report::{HtmlError, render_comparison};
use common::{SMALL, Story, plan, records};

const COMMAND: &str = "BLESS=1 cargo test --release -p blackstart-report --test comparison_page";

/// Five analysed runs and their plan; their outages are longer by so many seconds.
fn side(longer_s: f64) -> (Plan, Vec<RunAnalysis>) {
    let mut plan = plan(SMALL, &[Story::Recovers; 5]);
    plan.gates.clear();
    let mut runs = Vec::new();
    for i in 0..plan.runs.len() {
        let records = records::records(&plan, Story::Recovers, plan.runs[i].seed);
        plan.runs[i].requests = records.requests.len() as u64;
        let planned = plan.runs[i].clone();
        let mut run = analyze_run(&plan, &planned, &records).unwrap();
        run.outage_s = run.outage_s.map(|s| s + longer_s);
        runs.push(run);
    }
    (plan, runs)
}

fn compared(
    a: &(Plan, Vec<RunAnalysis>),
    b: &(Plan, Vec<RunAnalysis>),
    margin: Option<f64>,
) -> CampaignComparison {
    let of =
        |(plan, runs): &(Plan, Vec<RunAnalysis>)| analyze_campaign(plan, runs, &BTreeMap::new());
    let (of_a, of_b) = (of(a), of(b));
    let input = |side: &'static str| match side {
        "a" => CompareInput {
            plan: &a.0,
            campaign: &of_a,
            runs: &a.1,
        },
        _ => CompareInput {
            plan: &b.0,
            campaign: &of_b,
            runs: &b.1,
        },
    };
    compare(input("a"), input("b"), Pairing::Auto, margin).unwrap()
}

/// Tags nest, and nothing runs or is fetched.
fn check(page: &str) {
    let from = page.find("<style>").unwrap();
    let to = page.find("</style>").unwrap();
    let body = format!("{}{}", &page[..from], &page[to + "</style>".len()..]);
    let mut open = Vec::new();
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("every tag ends");
        for forbidden in ["script", "iframe", "object", "embed", "img", "form", "base"] {
            assert!(!tag.starts_with(forbidden), "<{tag}>");
        }
        let quoted = tag.split('"').step_by(2).collect::<String>();
        assert!(
            !quoted.contains(" on") && !quoted.contains(" src"),
            "<{tag}>"
        );
        let name = tag.split([' ', '/']).next().unwrap();
        if let Some(closed) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(closed), "tags nest");
        } else if !tag.ends_with('/') && !["meta", "link", "!doctype"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(page.contains("default-src 'none'") && page.ends_with("</html>\n"));
}

#[test]
fn the_page_is_as_it_was_looked_at() {
    let (a, mut b) = (side(0.0), side(5.0));
    b.0.target.replicas[0].base_url = "http://127.0.0.1:9000".into();
    b.1[3].partial = true;
    b.1[4].ttr_pre_fault_s = None;
    b.1[4].ttr_censored_at_s = Some(40.0);
    let page = render_comparison(&compared(&a, &b, None)).unwrap();
    check(&page);
    for says in [
        "A lower",
        "≥\u{a0}40",
        "invalid run: partial",
        "target.replicas[0].base_url",
        "noise floor",
    ] {
        assert!(page.contains(says), "{says}");
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/comparison.html");
    // The style is the report's own, and changes with it.
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, body) = rest.split_once("</style>").unwrap();
    let kept = format!("{head}<style></style>{}", body.replace("><", ">\n<"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::create_dir_all(golden.parent().unwrap()).unwrap();
        std::fs::write(&golden, &kept).unwrap();
    }
    let was = std::fs::read_to_string(&golden).unwrap_or_default();
    assert!(
        was == kept,
        "the page is another than {}: look at it, and {COMMAND}",
        golden.display()
    );
    // For a look at it in a browser.
    let whole = Path::new(env!("CARGO_TARGET_TMPDIR")).join("comparison.html");
    std::fs::write(whole, &page).unwrap();
}

#[test]
fn a_campaign_against_itself_has_no_winner_and_says_why() {
    let a = side(0.0);
    for margin in [None, Some(0.001)] {
        let page = render_comparison(&compared(&a, &a, margin)).unwrap();
        check(&page);
        assert!(page.contains("No winner named"));
        assert!(page.contains("No winner is named: "));
        assert!(!page.contains("A lower") && !page.contains("B lower"));
    }
    // A margin that the samples carry.
    let page = render_comparison(&compared(&a, &a, Some(1_000.0))).unwrap();
    assert!(page.contains("equivalent</span> within ±"), "{page}");
}

#[test]
fn what_was_not_compared_says_so() {
    let (a, mut b) = (side(0.0), side(0.0));
    b.0.load.rate_per_s = 99.0;
    let page = render_comparison(&compared(&a, &b, None)).unwrap();
    check(&page);
    assert!(page.contains("<h1>Not compared</h1>"));
    assert!(page.contains("refuses the comparison"));
    assert!(!page.contains("id=\"differences\""));
    let mut other = compared(&a, &a, None);
    other.schema_version = 99;
    let error = render_comparison(&other).unwrap_err();
    assert!(matches!(
        error,
        HtmlError::ComparisonVersion { found: 99, .. }
    ));
}

#[test]
fn names_from_outside_are_no_markup() {
    const EVIL: &str = "</title></style><script>alert(1)</script><img src=x onerror=\"y\">'&";
    let mut c = compared(&side(0.0), &side(1.0), None);
    for side in [&mut c.a, &mut c.b] {
        side.campaign = EVIL.repeat(40);
        side.variant = Some(EVIL.to_owned());
        side.instrument_version = EVIL.to_owned();
    }
    c.caveats = vec![EVIL.to_owned(); 500];
    for e in &mut c.endpoints {
        e.unit = EVIL.to_owned();
        e.name = EVIL.to_owned();
        e.interval_note = Some(EVIL.to_owned());
        e.p_note = Some(EVIL.to_owned());
        e.a.values.iter_mut().for_each(|v| v.value = f64::NAN);
        e.noise.floor = Some(f64::INFINITY);
    }
    let page = render_comparison(&c).unwrap();
    check(&page);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    c.refusal = Some(EVIL.to_owned());
    check(&render_comparison(&c).unwrap());
}
