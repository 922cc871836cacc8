//! What people read of a load.

use blackstart_analyze::{KilledFigures, LatencyFigures, LoadFigures};
use blackstart_plan::{Conversations, LoadSpec, Pace, ThinkTime};

use super::bars;
use crate::reporter::Canvas;
use crate::when::seconds;

/// Said before and after a load that verified nothing.
pub(super) const INSECURE: &str = "INSECURE   the server's certificate is not verified (--insecure): prompts and key go to whoever \
     answers, and the figures may be anyone's";

/// Said of a load whose instrument was killed and whose schedule does not follow from `load.json`.
pub(super) const UNKNOWN: &str = "UNKNOWN    what was under way when the instrument was killed is not known, so that there is no goodput: \
     the figures are of the requests that had ended";

/// What is about to happen.
pub(super) fn plan(spec: &LoadSpec) -> String {
    let pace = match &spec.pace {
        Pace::Open {
            profile,
            concurrency,
            ..
        } => {
            let cap = concurrency.map_or_else(String::new, |n| format!(", at most {n} under way"));
            let unit = match spec.conversations {
                Some(_) => "conversations/s",
                None => "req/s",
            };
            let rate = match profile.segments.as_slice() {
                [one] if one.from_per_s == one.to_per_s => format!("{} {unit}", one.from_per_s),
                [one] => format!("{} to {} {unit}", one.from_per_s, one.to_per_s),
                steps => {
                    let rates: Vec<String> =
                        steps.iter().map(|s| s.from_per_s.to_string()).collect();
                    format!("{} {unit} in steps", rates.join(", "))
                }
            };
            format!("open loop, {rate} {}{cap}", spec.load.arrivals)
        }
        Pace::Trace {
            requests,
            concurrency,
            ..
        } => {
            let cap = concurrency.map_or_else(String::new, |n| format!(", at most {n} under way"));
            format!("open loop, a trace of {requests} requests{cap}")
        }
        Pace::Closed { concurrency, .. } => format!("closed loop of {concurrency}"),
    };
    let turns = spec.conversations.map_or_else(String::new, turns);
    format!(
        "load       {pace}{turns} for {} to {}{}, model {}, seed {}",
        seconds(spec.pace.length_ns()),
        spec.load.base_url,
        spec.load.endpoint.path(),
        spec.load.model,
        spec.seed
    )
}

fn turns(conversations: Conversations) -> String {
    let think = match conversations.think_time {
        None => String::new(),
        Some(ThinkTime::Constant { ns }) => format!(", think time {}", seconds(ns)),
        Some(ThinkTime::Exponential { mean_ns }) => {
            format!(", think time exponential of mean {}", seconds(mean_ns))
        }
    };
    format!(
        ", conversations of up to {} turns{think},",
        conversations.turns
    )
}

/// The summary: pictures first, so that the figures are what a small terminal still shows.
pub(super) fn figures(f: &LoadFigures, canvas: Canvas) -> Vec<String> {
    let per_s = |rate: Option<f64>| rate.map_or_else(|| "–".to_owned(), |r| format!("{r:.2}/s"));
    let mut lines = vec![String::new()];
    for (title, latencies) in [("TTFT", &f.ttft_ms), ("End to end", &f.e2e_ms)] {
        let picture = bars::draw(title, latencies, canvas);
        if !picture.is_empty() {
            lines.extend(picture);
            lines.push(String::new());
        }
    }
    if f.partial {
        lines.push(
            "PARTIAL    the load was ended before its time; figures are of what was sent"
                .to_owned(),
        );
    }
    if let Some(left) = &f.killed {
        lines.extend(killed(left));
    }
    lines.push(format!(
        "requests   {} in {:.1} s (offered {}): {} completed, {} errored, {} censored",
        f.scheduled - f.never_due,
        f.duration_s,
        per_s(f.offered_rate),
        f.completed,
        f.errored,
        f.censored.saturating_sub(f.never_due)
    ));
    if f.never_due > 0 {
        lines.push(format!(
            "           {} more were not due yet when it was ended",
            f.never_due
        ));
    }
    for (class, n) in &f.errored_by_class {
        let example = f.error_examples.get(class).map_or("", String::as_str);
        lines.push(format!("           errored    {n} {class}: {example}"));
    }
    for (kind, n) in &f.censored_by_kind {
        lines.push(format!("           censored   {n} {kind}"));
    }
    lines.push(format!(
        "goodput    {} good ({}); completed {}, events {}",
        f.good,
        f.goodput
            .map_or_else(|| "–".to_owned(), |g| format!("{:.1} %", g * 100.0)),
        per_s(f.completed_per_s),
        per_s(f.events_per_s)
    ));
    let titles = ["mean", "p50", "p90", "p95", "p99", "p99.9", "max"];
    lines.push(row("ms", &titles.map(str::to_owned)));
    lines.push(latency("TTFT", &f.ttft_ms));
    if let Some(turns) = &f.turns {
        lines.push(latency("· 1st turn", &turns.first_ttft_ms));
        lines.push(latency("· later", &turns.later_ttft_ms));
    }
    lines.push(latency("inter-chunk", &f.inter_chunk_ms));
    lines.push(latency("end to end", &f.e2e_ms));
    for (name, d) in [
        ("TTFT", &f.ttft_ms),
        ("inter-chunk", &f.inter_chunk_ms),
        ("end to end", &f.e2e_ms),
    ] {
        if let Some(refused) = &d.refused {
            lines.push(format!("           {name}: no {refused}"));
        }
    }
    if f.completed < f.scheduled && f.completed > 0 {
        lines.push("           (of completed requests, from the intended send time)".to_owned());
    }
    if let Some(turns) = &f.turns {
        lines.push(format!(
            "turns      {} conversations; {} of {} later turns waited for the one before, or for \
             admission, and that counts",
            turns.conversations, turns.later_waited, turns.later
        ));
    }
    let us = |v: Option<f64>| v.map_or_else(|| "–".to_owned(), |v| format!("{v:.0}"));
    lines.push(format!(
        "send skew  p50 {} µs, p99 {} µs, max {} µs",
        us(f.send_skew_us.p50),
        us(f.send_skew_us.p99),
        us(f.send_skew_us.max)
    ));
    let lag = &f.read_lag_us;
    lines.push(match &lag.not_measured {
        None => format!(
            "read lag   p50 {} µs, p99 {} µs, max {} µs (each request's largest, from the kernel to the client; {} of {} requests)",
            us(lag.p50),
            us(lag.p99),
            us(lag.max),
            lag.requests,
            f.scheduled - f.never_due
        ),
        Some(why) => format!("read lag   not measured: {why}"),
    });
    lines.push(match &f.canary {
        Some(c) => format!(
            "canary     {} of {} streams complete; the client adds to TTFT at most {} µs (p50 {}), to gaps p99 {} µs",
            c.completed,
            c.streams,
            us(c.ttft_dev_max_us),
            us(c.ttft_dev_p50_us),
            us(c.itl_dev_p99_us)
        ),
        None => "canary     none ran: what the client adds is not measured".to_owned(),
    });
    lines
}

/// What is missing of a load whose instrument was killed.
pub(super) fn killed(k: &KilledFigures) -> Vec<String> {
    let mut lines = Vec::new();
    if k.damaged {
        lines.push(format!(
            "DAMAGED    the journal is damaged behind {} records: {} bytes of it were not read, and what they \
             held counts as not recorded",
            k.records, k.unread_bytes
        ));
    }
    if let Some(filled_in) = k.filled_in {
        lines.push(format!(
            "KILLED     the instrument died: {filled_in} requests had no record; {} of them were due by {:.3} s, \
             the last stamp, and count as censored there",
            k.due, k.last_stamp_s
        ));
    }
    lines
}

fn latency(name: &str, d: &LatencyFigures) -> String {
    let ms = |v: Option<f64>| v.map_or_else(|| "–".to_owned(), |v| format!("{v:.2}"));
    row(
        name,
        &[d.mean, d.p50, d.p90, d.p95, d.p99, d.p99_9, d.max].map(ms),
    )
}

fn row(name: &str, cells: &[String; 7]) -> String {
    let cells: Vec<String> = cells.iter().map(|c| format!("{c:>9}")).collect();
    format!("  {name:<11}{}", cells.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_analyze::{LoadAsked, LoadFiguresBuilder};
    use blackstart_load::outcome::{Expectation, Response};
    use blackstart_plan::SloThresholds;
    use blackstart_record::{Outcome, RequestRecord, pinned_histogram};

    /// Renews the golden files.
    const COMMAND: &str = "BLESS=1 cargo test --release --workspace --bin blackstart show";

    /// A load of 1 200 requests: most are answered in 20 to 60 ms, every fiftieth meets a stall.
    fn sample() -> LoadFigures {
        let mut builder = LoadFiguresBuilder::new(LoadAsked {
            rate_per_s: Some(20.0),
            length_ns: 60_000_000_000,
            slo: SloThresholds::PINNED,
            partial: false,
        });
        let mut gaps = pinned_histogram();
        for k in 0..1_200_i64 {
            let intended_ns = k * 50_000_000;
            let ttft_us = if k % 50 == 49 {
                400_000 + k * 1_500
            } else {
                20_000 + (k * 7_919) % 40_000
            };
            let first_ns = intended_ns + ttft_us * 1_000;
            builder.push(&RequestRecord {
                outcome: Outcome::Completed,
                censor_kind: None,
                dispatched_ns: Some(intended_ns + 40_000),
                first_token_ns: Some(first_ns),
                ended_ns: first_ns + 900_000_000 + (k % 100) * 1_000_000,
                content_events: 91,
                completion_tokens: Some(91),
                ..Response::new(k.unsigned_abs(), intended_ns, Expectation::until(i64::MAX))
                    .into_record()
            });
            gaps.record(10_000).unwrap();
        }
        builder.finish(&gaps, &[])
    }

    fn golden(name: &str, lines: &[String]) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        let text = lines.join("\n") + "\n";
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == expected,
            "{} shows something else; renew it with `{COMMAND}` and read the difference\n{text}",
            path.display()
        );
    }

    #[test]
    fn a_summary_as_it_is_shown() {
        let figures = sample();
        for (name, canvas) in [
            (
                "load-summary-80-utf8.txt",
                Canvas {
                    width: 80,
                    unicode: true,
                },
            ),
            (
                "load-summary-60-ascii.txt",
                Canvas {
                    width: 60,
                    unicode: false,
                },
            ),
        ] {
            let lines = super::figures(&figures, canvas);
            golden(name, &lines);
            let pictures = lines
                .iter()
                .filter(|l| l.ends_with('%') || l.contains(" %  "));
            for line in pictures {
                assert!(line.chars().count() <= canvas.width, "{line}");
            }
        }
    }

    #[test]
    fn requests_at_one_instant_have_no_rate() {
        let mut builder = LoadFiguresBuilder::new(LoadAsked {
            rate_per_s: Some(1.0),
            length_ns: 1,
            slo: SloThresholds::PINNED,
            partial: false,
        });
        let response = Response::new(0, 0, Expectation::until(i64::MAX));
        builder.push(&RequestRecord {
            outcome: Outcome::Completed,
            censor_kind: None,
            ended_ns: 1_000_000,
            ..response.into_record()
        });
        let figures = builder.finish(&pinned_histogram(), &[]);
        assert_eq!((figures.completed, figures.offered_rate), (1, None));
    }

    #[test]
    fn nothing_completed_draws_nothing() {
        let builder = LoadFiguresBuilder::new(LoadAsked {
            rate_per_s: None,
            length_ns: 1,
            slo: SloThresholds::PINNED,
            partial: false,
        });
        let canvas = Canvas {
            width: 80,
            unicode: true,
        };
        let lines = figures(&builder.finish(&pinned_histogram(), &[]), canvas);
        assert!(lines.iter().all(|l| !l.contains("log scale")), "{lines:?}");
    }
}
