//! Drawings: shapes, scales and ticks. Coordinates are bounded to one decimal, which is finer than
//! a screen's pixel and keeps the page small.

use super::markup::{esc, put};

/// A drawing in its own coordinates, scaled to the width of the page.
pub(super) struct Svg {
    width: f64,
    height: f64,
    class: &'static str,
    label: String,
    body: String,
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    /// Its start.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

impl Svg {
    /// An empty drawing; `label` says to a screen reader what it shows.
    pub(super) fn new(width: f64, height: f64, class: &'static str, label: &str) -> Self {
        Self {
            width,
            height,
            class,
            label: label.to_owned(),
            body: String::new(),
        }
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        put!(
            self.body,
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>",
            at(x1),
            at(y1),
            at(x2),
            at(y2)
        );
    }

    /// A rectangle; one of no size is left out.
    pub(super) fn rect(&mut self, class: &str, x: f64, y: f64, width: f64, height: f64) {
        if width > 0.0 && height > 0.0 {
            put!(
                self.body,
                "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
                at(x),
                at(y),
                at(width),
                at(height)
            );
        }
    }

    /// A path; an empty one is left out.
    pub(super) fn path(&mut self, class: &str, d: &str) {
        if !d.is_empty() {
            put!(self.body, "<path class=\"{class}\" d=\"{d}\"/>");
        }
    }

    /// A column that shows its figures when pointed at.
    pub(super) fn hit(&mut self, x: f64, y: f64, width: f64, height: f64, title: &str) {
        put!(
            self.body,
            "<path d=\"M{} {}h{}v{}h-{}z\"><title>{}</title></path>",
            at(x),
            at(y),
            at(width),
            at(height),
            at(width),
            esc(title)
        );
    }

    /// Opens a group.
    pub(super) fn open(&mut self, class: &str) {
        put!(self.body, "<g class=\"{class}\">");
    }

    /// Closes it.
    pub(super) fn close(&mut self) {
        self.body.push_str("</g>");
    }

    /// A text.
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        put!(
            self.body,
            "<text class=\"{class}\" x=\"{}\" y=\"{}\"{anchor}>{}</text>",
            at(x),
            at(y),
            esc(text)
        );
    }

    /// A text that reads upwards.
    pub(super) fn upright(&mut self, class: &str, x: f64, y: f64, text: &str) {
        put!(
            self.body,
            "<text class=\"{class}\" text-anchor=\"middle\" transform=\"translate({} {}) rotate(-90)\">{}</text>",
            at(x),
            at(y),
            esc(text)
        );
    }

    /// The markup.
    pub(super) fn finish(self) -> String {
        format!(
            "<svg class=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">{}</svg>",
            self.class,
            at(self.width),
            at(self.height),
            esc(&self.label),
            self.body
        )
    }
}

/// A coordinate: one decimal, and finite.
pub(super) fn at(value: f64) -> String {
    let value = if value.is_finite() {
        value.clamp(-100_000.0, 100_000.0)
    } else {
        0.0
    };
    let mut text = format!("{value:.1}");
    if text.ends_with(".0") {
        text.truncate(text.len() - 2);
    }
    if text == "-0" {
        text.remove(0);
    }
    text
}

/// A linear scale from a domain to coordinates.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    log: bool,
}

impl Scale {
    /// `from..to` onto `start..end`. An empty or damaged domain maps onto the start.
    pub(super) fn linear(from: f64, to: f64, start: f64, end: f64) -> Self {
        Self {
            from,
            to,
            start,
            end,
            log: false,
        }
    }

    /// A logarithmic scale; values below `from` map onto the start.
    pub(super) fn log(from: f64, to: f64, start: f64, end: f64) -> Self {
        Self {
            from: from.ln(),
            to: to.ln(),
            start,
            end,
            log: true,
        }
    }

    /// The coordinate, kept inside the scale.
    pub(super) fn map(&self, value: f64) -> f64 {
        let value = if self.log { value.ln() } else { value };
        let width = self.to - self.from;
        let part = (value - self.from) / width;
        if width > 0.0 && part.is_finite() {
            self.start + part.clamp(0.0, 1.0) * (self.end - self.start)
        } else {
            self.start
        }
    }
}

/// Most ticks of an axis, whatever the domain.
const MAX_TICKS: usize = 24;

/// Ticks at 1, 2 or 5 times a power of ten, at most `wanted` of them inside the domain, and the step.
pub(super) fn ticks(from: f64, to: f64, wanted: usize) -> (Vec<f64>, f64) {
    let width = to - from;
    if !width.is_finite() || width <= 0.0 {
        return (Vec::new(), 1.0);
    }
    let raw = width / wanted.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= raw * 0.999_999)
        .unwrap_or(10.0 * power);
    let first = (from / step - 1e-9).ceil();
    let all = (0..MAX_TICKS)
        .map(|i| (first + i as f64) * step)
        .take_while(|t| *t <= to + step * 1e-9)
        .collect();
    (all, step)
}

/// The least 1-2-5 number that is not below `value`, so that an axis ends on a tick.
pub(super) fn nice_top(value: f64, wanted: usize) -> f64 {
    if !value.is_finite() || value <= 0.0 {
        return 1.0;
    }
    let (_, step) = ticks(0.0, value, wanted);
    (value / step - 1e-9).ceil() * step
}

/// Label of a tick, with the decimals that its step needs.
pub(super) fn tick_label(value: f64, step: f64) -> String {
    let decimals = if step >= 1.0 || step <= 0.0 {
        0
    } else {
        (-step.log10()).ceil().clamp(0.0, 9.0) as usize
    };
    super::num::fixed(value, decimals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_bounded() {
        assert_eq!(ticks(-12.0, 33.0, 5).0, [-10.0, 0.0, 10.0, 20.0, 30.0]);
        assert_eq!(ticks(0.0, 0.42, 5).1, 0.1);
        assert!(ticks(1.0, 1.0, 5).0.is_empty());
        assert!(ticks(0.0, f64::INFINITY, 5).0.is_empty());
        assert!(ticks(-1e300, 1e300, 3).0.len() <= MAX_TICKS);
        assert_eq!(nice_top(23.0, 4), 30.0);
        assert_eq!(nice_top(f64::NAN, 4), 1.0);
        assert_eq!(tick_label(0.4, 0.2), "0.4");
        assert_eq!(tick_label(-10.0, 10.0), "−10");
    }

    #[test]
    fn a_scale_keeps_to_its_range() {
        let scale = Scale::linear(0.0, 10.0, 100.0, 200.0);
        assert_eq!(scale.map(5.0), 150.0);
        assert_eq!(scale.map(-5.0), 100.0);
        assert_eq!(scale.map(f64::NAN), 100.0);
        assert_eq!(Scale::linear(3.0, 3.0, 7.0, 9.0).map(3.0), 7.0);
        let log = Scale::log(10.0, 1000.0, 0.0, 100.0);
        assert!((log.map(100.0) - 50.0).abs() < 1e-9);
        assert_eq!(log.map(0.0), 0.0);
        assert_eq!(at(f64::INFINITY), "0");
        assert_eq!(at(-0.01), "0");
        assert_eq!(at(1.25), "1.2");
    }
}
