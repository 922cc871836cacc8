//! Curves of completion over all scheduled requests, for windows in which too many did not complete.

use blackstart_analyze::{CurvePoint, Incidence, RunAnalysis, WindowAnalysis};

use super::markup::put;
use super::num::{count, percent_of};
use super::svg::{Anchor, Scale, Svg, at, tick_label, ticks};
use super::words;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 190.0;
const LEFT: f64 = 40.0;
const RIGHT: f64 = 10.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 150.0;

/// Most curves of one run.
const MAX_CURVES: usize = 8;

/// The curves that the method wants beside percentiles: errors and censored above 5 %.
pub(super) fn charts(a: &RunAnalysis) -> String {
    let mut out = String::new();
    for w in a
        .windows
        .iter()
        .filter(|w| w.incidence.curve_required)
        .take(MAX_CURVES)
    {
        out.push_str(&chart(w));
    }
    if out.is_empty() {
        return out;
    }
    format!(
        "<div class=\"curves\" role=\"group\" aria-label=\"incidence curves\"><p><strong>Completion incidence</strong>: the share of all scheduled requests that had <span class=\"key k-good\"></span> completed or <span class=\"key k-errored\"></span> errored by a time after their intended send. Drawn for windows in which more than 5 % did not complete.</p><div class=\"small-multiples\">{out}</div></div>"
    )
}

fn chart(w: &WindowAnalysis) -> String {
    let i = &w.incidence;
    let (name, _) = words::window(w.name);
    let label = format!(
        "Incidence of the window {name}: {} completed, {} errored at the horizon",
        percent_of(i.final_incidence),
        percent_of(i.final_error_incidence)
    );
    let mut svg = Svg::new(WIDTH, HEIGHT, "chart curve", &label);
    let horizon_s = i.horizon_ms / 1e3;
    let x = Scale::linear(0.0, horizon_s, LEFT, WIDTH - RIGHT);
    let y = Scale::linear(0.0, 1.0, BOTTOM, TOP);
    for share in [0.0, 0.25, 0.5, 0.75, 1.0] {
        let level = y.map(share);
        svg.line("grid", (LEFT, level), (WIDTH - RIGHT, level));
        svg.text(
            "tick",
            LEFT - 5.0,
            level + 4.0,
            Anchor::End,
            &format!("{:.0} %", share * 100.0),
        );
    }
    let (all, step) = ticks(0.0, horizon_s, 5);
    for tick in all {
        svg.text(
            "tick",
            x.map(tick),
            BOTTOM + 15.0,
            Anchor::Middle,
            &tick_label(tick, step),
        );
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg.text(
        "axis-title",
        middle,
        BOTTOM + 32.0,
        Anchor::Middle,
        "seconds from intended send",
    );
    svg.path("curve-errored", &steps(i, &x, &y, |p| p.errored));
    svg.path("curve-completed", &steps(i, &x, &y, |p| p.completed));
    let mut out = String::new();
    put!(
        out,
        "<figure><figcaption>{name}, n = {}</figcaption>{}</figure>",
        count(i.n),
        svg.finish()
    );
    out
}

/// A right-continuous step line; steps closer than a tenth of a unit are drawn as one.
fn steps(i: &Incidence, x: &Scale, y: &Scale, pick: fn(&CurvePoint) -> f64) -> String {
    let mut path = format!("M{} {}", at(x.map(0.0)), at(y.map(0.0)));
    let mut level = at(y.map(0.0));
    for point in &i.curve {
        let next = at(y.map(pick(point)));
        if next != level {
            put!(path, "H{}V{next}", at(x.map(point.at_ms / 1e3)));
            level = next;
        }
    }
    put!(path, "H{}", at(x.map(i.horizon_ms / 1e3)));
    path
}
