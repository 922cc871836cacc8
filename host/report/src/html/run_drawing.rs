//! The drawing of one run: outcomes per second above, TTFT below, marks and bands across both.

use std::collections::BTreeMap;

use blackstart_analyze::{RecoveryStatus, RunAnalysis};

use super::markup::put;
use super::num::{fixed, ms, seconds};
use super::run_marks::{Mark, marks};
use super::svg::{Anchor, Scale, Svg, at, nice_top, tick_label, ticks};

/// From this ratio on the TTFT axis is logarithmic.
const LOG_RATIO: f64 = 20.0;

/// Geometry of a chart.
struct Layout {
    class: &'static str,
    width: f64,
    left: f64,
    right: f64,
    marks: f64,
    counts: f64,
    ttft: f64,
    x_ticks: usize,
    hits: bool,
}

const WIDE: Layout = Layout {
    class: "chart wide",
    width: 960.0,
    left: 66.0,
    right: 14.0,
    marks: 50.0,
    counts: 180.0,
    ttft: 96.0,
    x_ticks: 12,
    hits: true,
};

const NARROW: Layout = Layout {
    class: "chart narrow",
    width: 360.0,
    left: 50.0,
    right: 8.0,
    marks: 50.0,
    counts: 140.0,
    ttft: 80.0,
    x_ticks: 5,
    hits: false,
};

/// One column: one or more seconds.
pub(super) struct Column {
    pub(super) from_s: f64,
    pub(super) to_s: f64,
    pub(super) seconds: u64,
    pub(super) scheduled: u64,
    pub(super) good: u64,
    pub(super) late: u64,
    pub(super) errored: u64,
    pub(super) censored: u64,
    pub(super) ttft_ms: Option<f64>,
}

impl Column {
    /// All outcomes together.
    fn stacked(&self) -> u64 {
        LAYERS
            .iter()
            .fold(0, |sum, (_, count)| sum.saturating_add(count(self)))
    }
}

/// Name for the style, and count.
type Layer = (&'static str, fn(&Column) -> u64);

/// Layers of a column from the bottom up.
const LAYERS: [Layer; 4] = [
    ("good", |c| c.good),
    ("late", |c| c.late),
    ("errored", |c| c.errored),
    ("censored", |c| c.censored),
];

/// Columns above which the line of scheduled requests would cover the areas below it.
const DENSE_COLUMNS: usize = 300;

/// The wide and the narrow drawing of the same columns; the style shows one of them.
pub(super) fn drawings(
    run: &RunAnalysis,
    columns: &[Column],
    phases_s: &BTreeMap<String, f64>,
    slo_ms: Option<f64>,
    which: &str,
) -> String {
    [&WIDE, &NARROW]
        .map(|layout| Drawing::new(layout, run, columns, phases_s, slo_ms, which).draw())
        .concat()
}

/// Height of one row of marks' labels.
const MARK_ROW: f64 = 16.0;

/// Room for the labels of marks, each in a row of its own: three fit into the layout's.
fn marks_height(layout: &Layout, marks: &[Mark]) -> f64 {
    layout.marks + MARK_ROW * marks.len().saturating_sub(3) as f64
}

struct Drawing<'a> {
    layout: &'a Layout,
    run: &'a RunAnalysis,
    columns: &'a [Column],
    phases_s: &'a BTreeMap<String, f64>,
    slo_ms: Option<f64>,
    marks: Vec<Mark>,
    svg: Svg,
    x: Scale,
    /// Run time that the axis calls 0.
    zero_s: f64,
    from_s: f64,
    to_s: f64,
}

impl<'a> Drawing<'a> {
    fn new(
        layout: &'a Layout,
        run: &'a RunAnalysis,
        columns: &'a [Column],
        phases_s: &'a BTreeMap<String, f64>,
        slo_ms: Option<f64>,
        which: &str,
    ) -> Self {
        let from_s = columns.first().map_or(0.0, |c| c.from_s);
        let to_s = columns.last().map_or(1.0, |c| c.to_s);
        let marks: Vec<Mark> = marks(run, phases_s)
            .into_iter()
            .filter(|m| (from_s..=to_s).contains(&m.at_s))
            .collect();
        let height = marks_height(layout, &marks) + layout.counts + 26.0 + layout.ttft + 54.0;
        let label = format!(
            "Run {}: requests per second by outcome and median time to first token, second by second{which}",
            run.run
        );
        Self {
            layout,
            run,
            columns,
            phases_s,
            slo_ms,
            marks,
            svg: Svg::new(layout.width, height, layout.class, &label),
            x: Scale::linear(from_s, to_s, layout.left, layout.width - layout.right),
            zero_s: run.fire.actual_ns.map_or(0.0, seconds),
            from_s,
            to_s,
        }
    }

    fn counts_top(&self) -> f64 {
        marks_height(self.layout, &self.marks)
    }

    fn counts_bottom(&self) -> f64 {
        self.counts_top() + self.layout.counts
    }

    fn ttft_top(&self) -> f64 {
        self.counts_bottom() + 26.0
    }

    fn ttft_bottom(&self) -> f64 {
        self.ttft_top() + self.layout.ttft
    }

    fn draw(mut self) -> String {
        self.band();
        self.counts();
        self.ttft();
        self.axis();
        if self.layout.hits {
            self.hits();
        }
        self.marks();
        self.svg.finish()
    }

    fn width(&self) -> f64 {
        self.layout.width - self.layout.right - self.layout.left
    }

    /// The time from the fire to recovery, or to the end of the fault window where there was none.
    fn band(&mut self) {
        let Some(fire_ns) = self.run.fire.actual_ns else {
            return;
        };
        let pre = &self.run.recovery.pre_fault;
        let end_s = match (pre.entry_ns, pre.status) {
            (Some(entry), _) => seconds(entry),
            (None, RecoveryStatus::NotRecovered | RecoveryStatus::Unconfirmed) => {
                seconds(self.run.recovery.watched_until_ns)
            }
            _ => return,
        };
        let end_s = end_s.min(self.to_s);
        let (from, to) = (self.x.map(seconds(fire_ns)), self.x.map(end_s));
        let (top, bottom) = (self.counts_top(), self.ttft_bottom());
        self.svg.rect("band", from, top, to - from, bottom - top);
    }

    fn counts(&mut self) {
        let per_s = |c: &Column, n: u64| n as f64 / c.seconds.max(1) as f64;
        let top = self
            .columns
            .iter()
            .map(|c| per_s(c, c.scheduled.max(c.stacked())))
            .fold(0.0, f64::max);
        let top = nice_top(top, 4);
        let y = Scale::linear(0.0, top, self.counts_bottom(), self.counts_top());
        self.grid(&y, top, 4);
        let mut paths = vec![String::new(); LAYERS.len()];
        let mut outline = String::new();
        for c in self.columns {
            let (x1, x2) = (self.x.map(c.from_s), self.x.map(c.to_s));
            let mut below = 0.0;
            for ((_, count), path) in LAYERS.iter().zip(&mut paths) {
                let n = per_s(c, count(c));
                if n > 0.0 {
                    let (low, high) = (y.map(below), y.map(below + n));
                    put!(
                        path,
                        "M{} {}V{}H{}V{}z",
                        at(x1),
                        at(low),
                        at(high),
                        at(x2),
                        at(low)
                    );
                    below += n;
                }
            }
            let level = at(y.map(per_s(c, c.scheduled)));
            if outline.is_empty() {
                put!(outline, "M{} {level}", at(x1));
            } else {
                put!(outline, "V{level}");
            }
            put!(outline, "H{}", at(x2));
        }
        for ((name, _), path) in LAYERS.iter().zip(&paths) {
            self.svg.path(&format!("area {name}"), path);
        }
        let dense = self.columns.len() > DENSE_COLUMNS;
        let class = if dense {
            "scheduled dense"
        } else {
            "scheduled"
        };
        self.svg.path(class, &outline);
        let middle = (self.counts_top() + self.counts_bottom()) / 2.0;
        self.svg
            .upright("axis-title", 11.0, middle, "requests per second");
    }

    fn ttft(&mut self) {
        let (top, bottom) = (self.ttft_top(), self.ttft_bottom());
        let values = || {
            self.columns
                .iter()
                .filter_map(|c| c.ttft_ms)
                .filter(|v| *v > 0.0)
        };
        let (Some(lo), Some(hi)) = (values().reduce(f64::min), values().reduce(f64::max)) else {
            self.svg.line(
                "axis",
                (self.layout.left, bottom),
                (self.layout.left + self.width(), bottom),
            );
            self.svg.text(
                "mark-label",
                self.layout.left + 8.0,
                (top + bottom) / 2.0,
                Anchor::Start,
                "TTFT not measured: no request completed",
            );
            return;
        };
        let log = hi / lo > LOG_RATIO;
        let (y, title) = if log {
            let (from, to) = (
                10_f64.powf(lo.log10().floor()),
                10_f64.powf(hi.log10().ceil()),
            );
            let y = Scale::log(from, to.max(from * 10.0), bottom, top);
            // A decade step is a factor; at most 18 decades fit into what is positive and finite here.
            let mut decade = from;
            for _ in 0..18 {
                if decade > to * 1.001 {
                    break;
                }
                self.grid_line(y.map(decade), &tick_label(decade / 1e3, decade / 1e3));
                decade *= 10.0;
            }
            (y, "TTFT p50 (s, log)")
        } else {
            let to = nice_top(hi, 3);
            let y = Scale::linear(0.0, to, bottom, top);
            self.grid(&y, to, 3);
            (y, "TTFT p50 (ms)")
        };
        if let Some(slo) = self.slo_ms.filter(|s| *s <= hi * 1.5) {
            let at_y = y.map(slo);
            let end = self.layout.left + self.width();
            self.svg.line("slo", (self.layout.left, at_y), (end, at_y));
            let label = format!("threshold {} ms", fixed(slo, 0));
            self.svg
                .text("mark-label", end - 4.0, at_y - 4.0, Anchor::End, &label);
        }
        let mut path = String::new();
        let mut drawing = false;
        for c in self.columns {
            let Some(value) = c.ttft_ms.filter(|v| *v > 0.0) else {
                drawing = false;
                continue;
            };
            let (x1, x2, level) = (self.x.map(c.from_s), self.x.map(c.to_s), at(y.map(value)));
            if drawing {
                put!(path, "V{level}H{}", at(x2));
            } else {
                put!(path, "M{} {level}H{}", at(x1), at(x2));
            }
            drawing = true;
        }
        self.svg.path("ttft", &path);
        self.svg
            .upright("axis-title", 11.0, (top + bottom) / 2.0, title);
    }

    fn grid(&mut self, y: &Scale, top: f64, wanted: usize) {
        let (all, step) = ticks(0.0, top, wanted);
        for tick in all {
            self.grid_line(y.map(tick), &tick_label(tick, step));
        }
    }

    fn grid_line(&mut self, y: f64, label: &str) {
        let left = self.layout.left;
        self.svg.line("grid", (left, y), (left + self.width(), y));
        self.svg
            .text("tick", left - 6.0, y + 4.0, Anchor::End, label);
    }

    fn axis(&mut self) {
        let bottom = self.ttft_bottom();
        let (from, to) = (self.from_s - self.zero_s, self.to_s - self.zero_s);
        let (all, step) = ticks(from, to, self.layout.x_ticks);
        for tick in all {
            let x = self.x.map(tick + self.zero_s);
            self.svg.line("tickmark", (x, bottom), (x, bottom + 4.0));
            self.svg.text(
                "tick",
                x,
                bottom + 16.0,
                Anchor::Middle,
                &tick_label(tick, step),
            );
        }
        let title = if self.run.fire.actual_ns.is_some() {
            "seconds from the fire (intended send time)"
        } else {
            "seconds from the start of the run (intended send time)"
        };
        let middle = self.layout.left + self.width() / 2.0;
        self.svg
            .text("axis-title", middle, bottom + 32.0, Anchor::Middle, title);
        self.phases(bottom + 38.0);
    }

    /// The plan's phases as a strip under the axis.
    fn phases(&mut self, top: f64) {
        let mut from_s = 0.0;
        for (key, name) in [
            ("warmup", "warm-up"),
            ("baseline", "baseline"),
            ("fault_window", "fault window"),
            ("cooldown", "cooldown"),
        ] {
            let Some(length) = self.phases_s.get(key) else {
                return;
            };
            // A close-up, and a run that was cut off, show a part of them.
            let inside = |v: f64| self.x.map(v.clamp(self.from_s, self.to_s));
            let (x1, x2) = (inside(from_s), inside(from_s + length));
            self.svg.rect("phase", x1 + 0.5, top, x2 - x1 - 1.0, 14.0);
            // About 6 units for each letter at this size.
            if x2 - x1 > name.len() as f64 * 6.0 + 6.0 {
                self.svg.text(
                    "phase-label",
                    (x1 + x2) / 2.0,
                    top + 10.5,
                    Anchor::Middle,
                    name,
                );
            }
            from_s += length;
        }
    }

    fn marks(&mut self) {
        let (first_label_y, bottom) = (12.0, self.ttft_bottom());
        let marks = std::mem::take(&mut self.marks);
        for (row, mark) in marks.iter().enumerate() {
            let x = self.x.map(mark.at_s);
            // A row for each label, so that close marks never overlap.
            let label_y = first_label_y + MARK_ROW * row as f64;
            self.svg.line(
                &format!("mark {}", mark.class),
                (x, label_y - 9.0),
                (x, bottom),
            );
            let width = mark.label.chars().count() as f64 * 6.4 + 10.0;
            let (anchor, text_x) = if x + width > self.layout.width {
                (Anchor::End, x - 5.0)
            } else {
                (Anchor::Start, x + 5.0)
            };
            self.svg.text(
                &format!("mark-label {}", mark.class),
                text_x,
                label_y,
                anchor,
                &mark.label,
            );
        }
    }

    /// Figures of each column, shown by the browser when it is pointed at.
    fn hits(&mut self) {
        let (top, bottom) = (self.counts_top(), self.ttft_bottom());
        self.svg.open("hits");
        for c in self.columns {
            let (x1, x2) = (self.x.map(c.from_s), self.x.map(c.to_s));
            let mut title = if c.seconds == 1 {
                format!("{} s", fixed(c.from_s - self.zero_s, 1))
            } else {
                let (from, to) = (c.from_s - self.zero_s, c.to_s - self.zero_s);
                format!("{} to {} s", fixed(from, 1), fixed(to, 1))
            };
            put!(title, ": {} scheduled, {} good", c.scheduled, c.good);
            for (name, n) in [
                ("late", c.late),
                ("errored", c.errored),
                ("censored", c.censored),
            ] {
                if n > 0 {
                    put!(title, ", {n} {name}");
                }
            }
            if let Some(ttft) = c.ttft_ms {
                put!(title, "; TTFT {} ms", ms(ttft));
            }
            self.svg.hit(x1, top, x2 - x1, bottom - top, &title);
        }
        self.svg.close();
    }
}
