//! The page of a comparison: two campaigns side by side, and no winner that their samples do not carry.
//!
//! It shows what `compare --json` holds and computes nothing beyond the scales of its drawings.

use blackstart_analyze::{
    COMPARISON_SCHEMA_VERSION, CampaignComparison, ComparedEndpoint, ComparedSide, EndpointKind,
    EndpointSide, Interval, Verdict, precision,
};

use super::markup::{MAX_LIST_ITEMS, dense, esc, fold, list, put, section};
use super::num::{count, fixed, in_unit, percent};
use super::svg::Scale;
use super::table::{Table, number, text};
use super::{HtmlError, start, words};

/// Most endpoints, most values of one side, and most keys of the plans that the page shows.
const MAX_ROWS: usize = 120;

/// Width of a strip of values, and its ends.
const STRIP: (f64, f64, f64) = (200.0, 8.0, 192.0);

/// The page of a comparison: one self-contained HTML file.
///
/// # Errors
/// [`HtmlError::ComparisonVersion`] for a comparison of another version.
pub fn render_comparison(comparison: &CampaignComparison) -> Result<String, HtmlError> {
    if comparison.schema_version != COMPARISON_SCHEMA_VERSION {
        return Err(HtmlError::ComparisonVersion {
            found: comparison.schema_version,
            expected: COMPARISON_SCHEMA_VERSION,
        });
    }
    let c = comparison;
    let name = format!("{} and {}", c.a.campaign, c.b.campaign);
    let mut page = start("comparison", &name);
    page.push_str("<a class=\"skip\" href=\"#verdict\">Skip to the verdict</a><main>");
    page.push_str(&head(c));
    if !c.endpoints.is_empty() {
        page.push_str(&section(
            "differences",
            "What differs",
            "Medians lead for heavy-tailed figures, means for others, Kaplan–Meier medians (KM) where runs never got there. Every difference is B − A. Whether lower is better is not said.",
            &differences(c),
        ));
        page.push_str(&section(
            "evidence",
            "What the samples carry",
            "The noise floor is the smallest mean difference that could be told from none; the carried margin is the smallest within which these samples show equivalence.",
            &evidence(c),
        ));
        page.push_str(&section("runs", "Every run", "", &runs(c)));
    }
    page.push_str(&section(
        "plans",
        "What the plans have in common",
        "Campaigns are compared that asked the same question of different targets; every other key at which the plans differ stands here.",
        &plans(c),
    ));
    page.push_str(&section("words", "Words", "", WORDS));
    page.push_str("<footer><p>Made by blackstart compare. The same figures as one JSON object: <code>--json</code>. Unmeasured is never zero.</p></footer></main></body></html>\n");
    Ok(page)
}

/// What the columns mean; as in `docs/compare.md`.
const WORDS: &str = "<dl class=\"terms\">\
<div><dt>95 % interval</dt><dd>of the shift for medians where the sample carries it, else of the mean difference</dd></div>\
<div><dt>p</dt><dd>exact, two-sided, of a permutation test; after Holm’s adjustment over the secondary figures</dd></div>\
<div><dt>uncertainty</dt><dd>by how much the figures’ own uncertainty can move the difference</dd></div>\
<div><dt>noise floor</dt><dd>the smallest mean difference that could be told from none: half the interval, and the uncertainty</dd></div>\
<div><dt>carries</dt><dd>the smallest margin within which these samples show equivalence</dd></div>\
<div><dt>lower</dt><dd>that side’s figure is lower, by more than chance and the figures’ uncertainty explain</dd></div>\
<div><dt>equivalent</dt><dd>the difference lies within the margin that was asked for beforehand</dd></div>\
<div><dt>cannot tell</dt><dd>neither is shown. It does not say that the campaigns are equal</dd></div></dl>";

/// The endpoint that the comparison is about.
fn primary(c: &CampaignComparison) -> Option<&ComparedEndpoint> {
    c.endpoints
        .iter()
        .find(|e| e.endpoint == EndpointKind::Primary)
}

/// Title, sentence, cards and verdict.
fn head(c: &CampaignComparison) -> String {
    let mut out = format!(
        "<header class=\"top\"><p class=\"kicker\">Blackstart comparison <span aria-hidden=\"true\">·</span> A: {} <span aria-hidden=\"true\">·</span> B: {}</p><h1>{}</h1>",
        esc(&c.a.campaign),
        esc(&c.b.campaign),
        title(c)
    );
    put!(out, "<p class=\"headline\">{}</p></header>", sentence(c));
    out.push_str("<dl class=\"cards\">");
    for (name, side) in [("A", &c.a), ("B", &c.b)] {
        card(
            &mut out,
            &format!("Campaign {name}"),
            &esc(&side.campaign).to_string(),
            &format!(
                "{} · {} of {} runs count, {} invalid",
                esc(side.variant.as_deref().unwrap_or("no fault")),
                side.valid_runs,
                side.planned_runs,
                side.invalid_runs
            ),
        );
    }
    if let Some(pairing) = &c.pairing {
        let how = if pairing.paired { "paired" } else { "unpaired" };
        card(&mut out, "Compared", how, &esc(&pairing.reason).to_string());
    }
    let margin = c.margin_percent.map_or_else(
        || "none".to_owned(),
        |margin| format!("±{}", percent(margin)),
    );
    card(
        &mut out,
        "Margin that does not matter",
        &margin,
        if c.margin_percent.is_some() {
            "of the lower side’s mean, chosen by whoever asked"
        } else {
            "without one no equivalence is claimed (--margin)"
        },
    );
    out.push_str("</dl>");
    out.push_str(&verdict(c));
    out
}

fn card(out: &mut String, name: &str, value: &str, remark: &str) {
    put!(
        out,
        "<div class=\"card\"><dt>{name}</dt><dd><span class=\"value\">{value}</span><small>{remark}</small></dd></div>"
    );
}

fn title(c: &CampaignComparison) -> String {
    if c.refusal.is_some() {
        return "Not compared".to_owned();
    }
    let Some(e) = primary(c) else {
        return "No winner named".to_owned();
    };
    let words = words::sentence_case(&plain_name(e));
    match &e.verdict {
        Verdict::ALower => format!("{words}: A lower"),
        Verdict::BLower => format!("{words}: B lower"),
        Verdict::Equivalent { .. } => format!("{words}: equivalent"),
        Verdict::CannotTell { .. } => "No winner named".to_owned(),
    }
}

fn sentence(c: &CampaignComparison) -> String {
    if let Some(why) = &c.refusal {
        return format!("The campaigns were not compared: {}.", esc(why));
    }
    let Some(e) = primary(c) else {
        return "The campaigns have no primary figure.".to_owned();
    };
    let lead = e.leading();
    let d = e.decimals();
    let mut out = match (lead.a, lead.b) {
        (Some(a), Some(b)) => format!(
            "{} ({}): {} with A, {} with B",
            words::sentence_case(&plain_name(e)),
            lead.word,
            value(a, d, &e.unit),
            value(b, d, &e.unit)
        ),
        _ => format!(
            "{}: not measured on both sides",
            words::sentence_case(&plain_name(e))
        ),
    };
    if let Some(difference) = lead.difference {
        put!(out, "; B − A is {}", value_signed(difference, d, &e.unit));
        if let Some(interval) = lead.interval {
            put!(out, ", {}", span(interval, d));
        }
    }
    match &e.verdict {
        Verdict::CannotTell { why } => put!(out, ". No winner is named: {}.", esc(why)),
        Verdict::Equivalent { within } => put!(
            out,
            ". The samples show equivalence within ±{}.",
            value(*within, d, &e.unit)
        ),
        _ => out.push_str(", more than chance and the figures’ uncertainty explain."),
    }
    out
}

/// What each tested figure says, and why where it names none.
fn verdict(c: &CampaignComparison) -> String {
    if let Some(why) = &c.refusal {
        return format!(
            "<section class=\"verdict bad\" id=\"verdict\"><h2><span class=\"mark\" aria-hidden=\"true\">✗</span>Not compared</h2><ul><li>{}</li></ul></section>",
            esc(why)
        );
    }
    let named = c
        .endpoints
        .iter()
        .filter(|e| !matches!(e.verdict, Verdict::CannotTell { .. }))
        .count();
    let (class, mark, title) = match named {
        0 => ("warn", "?", "No winner named".to_owned()),
        n => (
            "ok",
            "✓",
            format!(
                "{n} of {} figures name a difference or an equivalence",
                c.endpoints.len()
            ),
        ),
    };
    let mut out = format!(
        "<section class=\"verdict {class}\" id=\"verdict\"><h2><span class=\"mark\" aria-hidden=\"true\">{mark}</span>{title}</h2><ul>"
    );
    for e in c.endpoints.iter().take(MAX_LIST_ITEMS) {
        if e.endpoint != EndpointKind::Primary && e.endpoint != EndpointKind::Secondary {
            continue;
        }
        put!(
            out,
            "<li><strong>{}</strong>: {}</li>",
            plain_name(e),
            verdict_words(e)
        );
    }
    out.push_str("</ul>");
    if !c.caveats.is_empty() {
        put!(
            out,
            "<h3>To know beside every figure</h3>{}",
            list(&c.caveats)
        );
    }
    out.push_str("</section>");
    out
}

fn verdict_words(e: &ComparedEndpoint) -> String {
    match &e.verdict {
        Verdict::ALower => "<span class=\"badge ok\">A lower</span>".to_owned(),
        Verdict::BLower => "<span class=\"badge ok\">B lower</span>".to_owned(),
        Verdict::Equivalent { within } => format!(
            "<span class=\"badge ok\">equivalent</span> within ±{}",
            value(*within, e.decimals(), &e.unit)
        ),
        Verdict::CannotTell { why } => {
            format!(
                "<span class=\"badge\">cannot tell</span> <small>{}</small>",
                esc(why)
            )
        }
    }
}

/// A figure's words, without its unit.
fn plain_name(e: &ComparedEndpoint) -> String {
    words::endpoint(&e.name).map_or_else(
        || esc(&e.name.replace('_', " ")).to_string(),
        |(words, _)| words.to_owned(),
    )
}

/// A figure's words, its kind and its stable name.
fn name(e: &ComparedEndpoint) -> String {
    let unit = match e.unit.as_str() {
        // Counts and fractions alike.
        "1" => String::new(),
        unit => format!(" ({})", esc(unit)),
    };
    let kind = match e.endpoint {
        EndpointKind::Primary => "primary",
        EndpointKind::Secondary => "secondary",
        EndpointKind::Exploratory => "exploratory",
        EndpointKind::NotApplicable => "not applicable",
    };
    format!(
        "{}{unit}<small class=\"span\">{kind} · <code>{}</code></small>",
        plain_name(e),
        esc(&e.name)
    )
}

fn value(value: f64, decimals: usize, unit: &str) -> String {
    match unit {
        "1" => fixed(value, decimals),
        unit => format!("{}\u{a0}{}", fixed(value, decimals), esc(unit)),
    }
}

fn signed(value: f64, decimals: usize) -> String {
    let text = fixed(value, decimals);
    // What rounds to 0 has no sign.
    if value > 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b)) {
        format!("+{text}")
    } else {
        text
    }
}

fn value_signed(value: f64, decimals: usize, unit: &str) -> String {
    match unit {
        "1" => signed(value, decimals),
        unit => format!("{}\u{a0}{}", signed(value, decimals), esc(unit)),
    }
}

fn span(interval: Interval, decimals: usize) -> String {
    format!(
        "{} to {}",
        signed(interval.lo, decimals),
        signed(interval.hi, decimals)
    )
}

/// An interval, or a dash that says why there is none.
fn interval(e: &ComparedEndpoint, interval: Option<Interval>) -> String {
    let why = e
        .interval_note
        .as_deref()
        .unwrap_or("this sample carries none");
    interval.map_or_else(
        || format!("<span class=\"absent\" title=\"{}\">–</span>", esc(why)),
        |i| span(i, e.decimals()),
    )
}

fn p(value: Option<f64>, e: &ComparedEndpoint) -> String {
    let why = e.p_note.as_deref().unwrap_or("not tested");
    value.map_or_else(
        || format!("<span class=\"absent\" title=\"{}\">–</span>", esc(why)),
        |p| fixed(p, 4),
    )
}

fn differences(c: &CampaignComparison) -> String {
    let mut table = Table::new(
        "Every figure of both campaigns, over the runs that count",
        &[
            text("figure"),
            text("values: A above, B below"),
            text("lead"),
            number("A"),
            number("B"),
            number("B − A"),
            number("95 % interval"),
            number("p"),
            text("verdict"),
        ],
    );
    for e in c.endpoints.iter().take(MAX_ROWS) {
        let d = e.decimals();
        let lead = e.leading();
        table.row(&[
            name(e),
            strip(e),
            lead.word.to_owned(),
            dense(lead.a, |v| fixed(v, d)),
            dense(lead.b, |v| fixed(v, d)),
            dense(lead.difference, |v| signed(v, d)),
            interval(e, lead.interval),
            p(e.p_adjusted, e),
            verdict_words(e),
        ]);
    }
    table.finish()
}

fn evidence(c: &CampaignComparison) -> String {
    let mut table = Table::new(
        "Noise, tests and margins",
        &[
            text("figure"),
            number("spread"),
            number("uncertainty"),
            number("noise floor"),
            number("carries"),
            number("mean B − A"),
            number("its 95 % interval"),
            number("p before Holm"),
            number("smallest p"),
            text("remarks"),
        ],
    );
    for e in c.endpoints.iter().take(MAX_ROWS) {
        let d = e.decimals();
        let mut remarks = String::new();
        for note in e.p_note.iter().chain(&e.interval_note) {
            put!(remarks, "<small class=\"span\">{}</small>", esc(note));
        }
        if let Some(pairs) = e.pairs {
            put!(
                remarks,
                "<small class=\"span\">{} pairs</small>",
                count(pairs)
            );
        }
        table.row(&[
            name(e),
            dense(e.noise.spread, |v| fixed(v, d)),
            uncertainty(e.noise.uncertainty),
            dense(e.noise.floor, |v| fixed(v, d)),
            dense(e.carried_margin, |v| format!("±{}", fixed(v, d))),
            dense(e.mean_difference, |v| signed(v, d)),
            interval(e, e.mean_interval),
            p(e.p, e),
            p(e.smallest_p, e),
            remarks,
        ]);
    }
    table.finish()
}

/// An uncertainty, rounded up; one below every digit that is shown says so.
fn uncertainty(value: f64) -> String {
    match precision::rounded_up(value) {
        Some(text) => format!("±{text}"),
        None if value > 0.0 && value.is_finite() => "below 0.001".to_owned(),
        None => dense(None::<f64>, |v| fixed(v, 0)),
    }
}

/// The values of both sides on one scale: A above the line, B below it, censored runs as open marks.
fn strip(e: &ComparedEndpoint) -> String {
    let of = |side: &EndpointSide| -> Vec<f64> {
        let values = side.values.iter().map(|v| v.value);
        values
            .chain(side.censored.iter().map(|c| c.at_least))
            .filter(|v| v.is_finite())
            .collect()
    };
    let both = [of(&e.a), of(&e.b)].concat();
    let ends = both
        .iter()
        .copied()
        .reduce(f64::min)
        .zip(both.iter().copied().reduce(f64::max));
    let Some((lo, hi)) = ends else {
        return "<span class=\"absent\">no values</span>".to_owned();
    };
    let (width, left, right) = STRIP;
    let x = Scale::linear(lo, hi, left, right);
    let at = |v: f64| if hi > lo { x.map(v) } else { width / 2.0 };
    let mut out = format!(
        "<svg class=\"strip\" width=\"{width}\" height=\"40\" viewBox=\"0 0 {width} 40\" role=\"img\" aria-label=\"{} values of A and {} of B from {} to {}\"><line class=\"axis\" x1=\"4\" x2=\"196\" y1=\"20\" y2=\"20\"/>",
        e.a.values.len() + e.a.censored.len(),
        e.b.values.len() + e.b.censored.len(),
        esc(&in_unit(lo, &e.unit)),
        esc(&in_unit(hi, &e.unit))
    );
    for (side, name, y) in [(&e.a, "A", 10.0), (&e.b, "B", 30.0)] {
        if let Some(centre) = side
            .centre()
            .filter(|c| c.is_finite() && *c >= lo && *c <= hi)
        {
            let x = at(centre);
            put!(
                out,
                "<line class=\"median\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                y - 8.0,
                y + 8.0
            );
        }
        for v in side
            .values
            .iter()
            .filter(|v| v.value.is_finite())
            .take(MAX_ROWS)
        {
            put!(
                out,
                "<circle class=\"dot\" cx=\"{:.1}\" cy=\"{y}\" r=\"3.5\"><title>{name}, run {}: {}</title></circle>",
                at(v.value),
                v.run,
                esc(&in_unit(v.value, &e.unit))
            );
        }
        for c in side
            .censored
            .iter()
            .filter(|c| c.at_least.is_finite())
            .take(MAX_ROWS)
        {
            put!(
                out,
                "<path class=\"open\" d=\"M{:.1} {:.1}l6 5l-6 5z\"><title>{name}, run {}: at least {}</title></path>",
                at(c.at_least) - 3.0,
                y - 5.0,
                c.run,
                esc(&in_unit(c.at_least, &e.unit))
            );
        }
    }
    out.push_str("</svg>");
    out
}

/// Every run's value, and the runs that are left out.
fn runs(c: &CampaignComparison) -> String {
    let mut table = Table::new(
        "Values in run order; ≥ marks a run that never got there and counts as “at least”",
        &[
            text("figure"),
            text("A"),
            text("B"),
            text("without a value"),
        ],
    );
    for e in c.endpoints.iter().take(MAX_ROWS) {
        let mut dropped = Vec::new();
        for (name, side) in [("A", &e.a), ("B", &e.b)] {
            for run in side.dropped.iter().take(MAX_LIST_ITEMS) {
                dropped.push(format!("{name}, run {}: {}", run.run, run.reason));
            }
        }
        let dropped = if dropped.is_empty() {
            String::new()
        } else {
            format!("<small>{}</small>", list(&dropped))
        };
        table.row(&[name(e), values(e, &e.a), values(e, &e.b), dropped]);
    }
    let mut out = table.finish();
    for (name, side) in [("A", &c.a), ("B", &c.b)] {
        out.push_str(&excluded(name, side));
    }
    out
}

fn values(e: &ComparedEndpoint, side: &EndpointSide) -> String {
    let d = e.decimals();
    let all = side.values.iter().map(|v| fixed(v.value, d)).chain(
        side.censored
            .iter()
            .map(|c| format!("≥\u{a0}{}", fixed(c.at_least, d))),
    );
    let shown: Vec<String> = all.take(MAX_LIST_ITEMS).collect();
    let more = (side.values.len() + side.censored.len()).saturating_sub(shown.len());
    let mut out = shown.join(" · ");
    if more > 0 {
        put!(out, " … and {more} more");
    }
    if out.is_empty() {
        out.push_str("<span class=\"absent\">–</span>");
    }
    out
}

fn excluded(name: &str, side: &ComparedSide) -> String {
    if side.excluded.is_empty() {
        return String::new();
    }
    let all: Vec<String> = side
        .excluded
        .iter()
        .map(|run| format!("run {}: {}", run.run, run.reason))
        .collect();
    let title = format!("Runs of {name} that are left out ({})", all.len());
    fold(&title, true, &list(&all))
}

fn plans(c: &CampaignComparison) -> String {
    if c.differences.is_empty() {
        return "<p>The plans differ in nothing but their names.</p>".to_owned();
    }
    let mut table = Table::new(
        "Keys at which the plans differ, those that refuse a comparison first",
        &[text("key"), text("A"), text("B"), text("")],
    )
    .class("pairs");
    let shown = |v: &Option<String>| {
        v.as_ref().map_or_else(
            || "<span class=\"absent\">–</span>".to_owned(),
            |v| format!("<code>{}</code>", esc(v)),
        )
    };
    for d in c.differences.iter().take(MAX_ROWS) {
        table.row(&[
            format!("<code>{}</code>", esc(&d.key)),
            shown(&d.a),
            shown(&d.b),
            if d.refused {
                "<span class=\"bad\">✗ refuses the comparison</span>".to_owned()
            } else {
                "differs".to_owned()
            },
        ]);
    }
    let mut out = table.finish();
    if c.differences.len() > MAX_ROWS {
        put!(
            out,
            "<p class=\"note\">… and {} more keys.</p>",
            c.differences.len() - MAX_ROWS
        );
    }
    let made_by = [("A", &c.a), ("B", &c.b)].map(|(name, side)| {
        format!(
            "{name} was planned by blackstart {}",
            esc(&side.instrument_version)
        )
    });
    put!(out, "<p class=\"note\">{}.</p>", made_by.join("; "));
    out
}
