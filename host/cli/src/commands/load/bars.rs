//! Latency distributions as bars.

use blackstart_analyze::{LatencyBucket, LatencyFigures};

use crate::reporter::Canvas;

/// Widest picture: longer bars tell nothing more.
const MAX_WIDTH: usize = 96;
/// Shortest bar of the fullest bucket; a narrower terminal wraps.
const MIN_BAR: usize = 10;

/// A title and one line a bucket; nothing without samples.
pub(super) fn draw(title: &str, figures: &LatencyFigures, canvas: Canvas) -> Vec<String> {
    let buckets = &figures.buckets;
    if buckets.is_empty() {
        return Vec::new();
    }
    let total: u64 = buckets.iter().map(|b| b.count).sum();
    let fullest = buckets.iter().map(|b| b.count).max().unwrap_or(0);
    let widest = |of: fn(&LatencyBucket) -> f64| {
        let widths = buckets.iter().map(|b| edge(of(b)).len());
        widths.max().unwrap_or(0)
    };
    let from_width = widest(|b| b.from_ms);
    let to_width = widest(|b| b.to_ms);
    let count_width = fullest.to_string().len();
    let marks = marks(buckets, total);
    let mark_width = marks.iter().map(String::len).max().unwrap_or(0);
    let dash = if canvas.unicode { '–' } else { '-' };
    let fixed = 2 + from_width + 3 + to_width + 2 + 1 + count_width + 9 + 2 + mark_width;
    let room = canvas.width.min(MAX_WIDTH).saturating_sub(fixed);
    let room = room.max(MIN_BAR);
    let plural = if total == 1 { "" } else { "s" };
    let mut lines = vec![format!(
        "{title} of {total} completed request{plural} (ms, log scale)"
    )];
    for (bucket, mark) in buckets.iter().zip(&marks) {
        let share = bucket.count as f64 / total.max(1) as f64 * 100.0;
        let bar = bar(bucket.count, fullest, room, canvas.unicode);
        let padding = " ".repeat(room - bar.chars().count().min(room));
        let line = format!(
            "  {:>from_width$} {dash} {:>to_width$}  {bar}{padding} {:>count_width$}  {share:>5.1} %  {mark}",
            edge(bucket.from_ms),
            edge(bucket.to_ms),
            bucket.count,
        );
        lines.push(line.trim_end().to_owned());
    }
    lines
}

/// Edges are short numbers by themselves: three figures at most.
fn edge(ms: f64) -> String {
    ms.to_string()
}

/// In which bucket the percentiles lie, by rank.
fn marks(buckets: &[LatencyBucket], total: u64) -> Vec<String> {
    let mut marks: Vec<Vec<&str>> = vec![Vec::new(); buckets.len()];
    for (name, per_thousand) in [("p50", 500), ("p90", 900), ("p99", 990), ("max", 1000)] {
        let rank = u128::from(total) * per_thousand;
        let mut below = 0_u128;
        let place = buckets.iter().position(|b| {
            below += u128::from(b.count) * 1000;
            below >= rank
        });
        if let Some(place) = place {
            marks[place].push(name);
        }
    }
    marks.iter().map(|names| names.join(" ")).collect()
}

/// A bar whose length is proportional to the count. A bucket that holds anything shows something.
fn bar(count: u64, fullest: u64, room: usize, unicode: bool) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if count == 0 {
        return String::new();
    }
    let length = count as f64 / fullest as f64 * room as f64;
    if unicode {
        let eighths = ((length * 8.0).round() as usize).max(1);
        return "█".repeat(eighths / 8) + EIGHTHS[eighths % 8];
    }
    match length.round() as usize {
        0 => ".".to_owned(),
        n => "#".repeat(n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_proportional_and_never_empty_where_something_is() {
        assert_eq!(bar(0, 10, 20, true), "");
        assert_eq!(bar(10, 10, 4, true), "████");
        assert_eq!(bar(5, 10, 5, true), "██▌");
        assert_eq!(bar(1, 1_000_000, 20, true), "▏");
        assert_eq!(bar(10, 10, 4, false), "####");
        assert_eq!(bar(1, 1_000_000, 20, false), ".");
    }

    #[test]
    fn percentiles_are_marked_where_their_rank_lies() {
        let bucket = |count| LatencyBucket {
            from_ms: 1.0,
            to_ms: 2.0,
            count,
        };
        let found = marks(
            &[bucket(50), bucket(39), bucket(1), bucket(0), bucket(10)],
            100,
        );
        assert_eq!(found, ["p50", "", "p90", "", "p99 max"]);
        assert_eq!(marks(&[bucket(1)], 1), ["p50 p90 p99 max"]);
    }
}
