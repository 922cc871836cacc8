//! How a load goes, while it goes: a line that moves on a terminal, plain lines elsewhere.

use std::time::Duration;

use blackstart_load::Progress;

/// How often a plain line is written.
pub const PLAIN_INTERVAL: Duration = Duration::from_secs(5);

/// The line that moves: rates are those of the last second, the rest counts from the start.
pub fn moving(p: &Progress) -> String {
    format!(
        "offered {}/s · ended {}/s, good {} · TTFT p50 {} · ok {} err {} cens {} · in flight {}",
        p.offered_last_second,
        p.ended_last_second,
        p.good_last_second,
        ttft(p),
        p.completed,
        p.errored,
        p.censored,
        in_flight(p)
    )
}

/// A line of a log: most of what happened since the one before is in no last second, so that the
/// totals come first, and what is of the last second says so.
pub fn plain(p: &Progress) -> String {
    format!(
        "{} offered: ok {} err {} cens {}, in flight {} · in the last second: offered {}, ended {}, \
         good {}, TTFT p50 {}",
        p.offered,
        p.completed,
        p.errored,
        p.censored,
        in_flight(p),
        p.offered_last_second,
        p.ended_last_second,
        p.good_last_second,
        ttft(p)
    )
}

fn ttft(p: &Progress) -> String {
    p.ttft_ms_p50
        .map_or_else(|| "–".to_owned(), |ms| format!("{ms:.0} ms"))
}

fn in_flight(p: &Progress) -> String {
    let waiting = match p.waiting {
        0 => String::new(),
        n => format!(", {n} waiting"),
    };
    format!("{}{waiting}", p.in_flight.saturating_sub(p.waiting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_lines_have_the_totals_and_say_what_is_of_the_last_second() {
        let progress = Progress {
            offered: 100,
            completed: 90,
            errored: 3,
            in_flight: 7,
            waiting: 2,
            offered_last_second: 20,
            ended_last_second: 19,
            good_last_second: 18,
            ttft_ms_p50: Some(12.4),
            ..Progress::default()
        };
        assert_eq!(
            plain(&progress),
            "100 offered: ok 90 err 3 cens 0, in flight 5, 2 waiting · in the last second: \
             offered 20, ended 19, good 18, TTFT p50 12 ms"
        );
        assert_eq!(
            moving(&progress),
            "offered 20/s · ended 19/s, good 18 · TTFT p50 12 ms · ok 90 err 3 cens 0 · in flight 5, 2 waiting"
        );
    }
}
