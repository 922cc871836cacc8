//! What the client adds to the latencies it reports.

use blackstart_plan::Plan;
use blackstart_record::{Event, EventKind, RunRecords};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::stats::nearest_rank;
use crate::time::micros;

/// Canary streams of one window. Deviations are absolute values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryFigures {
    /// Known TTFT of the endpoint.
    pub ttft_ms: u32,
    /// Known gap of the endpoint.
    pub itl_ms: u32,
    /// Known length of a stream.
    pub tokens: u32,
    /// Streams sent in the window.
    pub streams: u64,
    /// Of these, completed with all tokens.
    pub completed: u64,
    /// |observed − known TTFT|, p50.
    pub ttft_dev_p50_us: Option<f64>,
    /// |observed − known TTFT|, largest.
    pub ttft_dev_max_us: Option<f64>,
    /// |observed − known gap|, p50.
    pub itl_dev_p50_us: Option<f64>,
    /// |observed − known gap|, p99.
    pub itl_dev_p99_us: Option<f64>,
    /// |observed − known gap|, largest.
    pub itl_dev_max_us: Option<f64>,
    /// Lag of an event behind its due time, p99.
    pub event_lag_p99_us: Option<f64>,
    /// Lag of an event behind its due time, largest.
    pub event_lag_max_us: Option<f64>,
}

/// Both checks of one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivePath {
    /// Mean client TTFT of completed requests, from intended time.
    pub client_ttft_mean_ms: Option<f64>,
    /// How many.
    pub client_ttft_count: u64,
    /// Mean of the servers' own TTFT histogram over the window.
    pub server_ttft_mean_ms: Option<f64>,
    /// How many observations that histogram gained. Probes are among them.
    pub server_ttft_count: Option<u64>,
    /// Why server figures are absent, or a remark.
    pub server_ttft_note: Option<String>,
    /// The canary.
    pub canary: Option<CanaryFigures>,
    /// Why there is none.
    pub canary_note: Option<String>,
}

/// The canary endpoint's known timing (§2).
const CANARY_TTFT_MS: u32 = 20;
const CANARY_ITL_MS: u32 = 10;
const CANARY_TOKENS: u32 = 32;

/// The server's own TTFT histogram, as vLLM exports it.
const SERVER_TTFT_METRIC: &str = "vllm:time_to_first_token_seconds";

/// Both checks of one window. `ttft_ns` are the TTFTs of its completed requests.
pub(crate) fn analyze(
    plan: &Plan,
    records: &RunRecords,
    span: Span,
    ttft_ns: &[i64],
) -> ReceivePath {
    let sum: i128 = ttft_ns.iter().map(|t| i128::from(*t)).sum();
    let server = server_ttft(plan, records, span);
    let canary = canary(&records.events, span);
    ReceivePath {
        client_ttft_mean_ms: (!ttft_ns.is_empty()).then(|| sum as f64 / ttft_ns.len() as f64 / 1e6),
        client_ttft_count: ttft_ns.len() as u64,
        server_ttft_mean_ms: server.mean_ms,
        server_ttft_count: server.count,
        server_ttft_note: Some(server.note),
        canary_note: canary.is_none().then(|| {
            if plan.observe.canary {
                "no canary stream was sent in the window".to_owned()
            } else {
                "the plan runs no canary".to_owned()
            }
        }),
        canary,
    }
}

struct ServerTtft {
    mean_ms: Option<f64>,
    count: Option<u64>,
    note: String,
}

/// What the servers' histograms gained between the first and the last scrape of the window. A
/// counter that falls was reset by a restart and starts again from 0; what it gained between its
/// last scrape and its end is not known.
fn server_ttft(plan: &Plan, records: &RunRecords, span: Span) -> ServerTtft {
    let (mut sum_s, mut count) = (0.0, 0.0);
    let (mut scrapes, mut resets) = (0_usize, 0_usize);
    for replica in &plan.target.replicas {
        for (suffix, total) in [("_sum", &mut sum_s), ("_count", &mut count)] {
            let name = format!("{SERVER_TTFT_METRIC}{suffix}");
            let series: Vec<f64> = records
                .metrics
                .summed(&replica.id, &name)
                .into_iter()
                .filter(|(at, value)| span.holds_at(*at) && value.is_finite())
                .map(|(_, value)| value)
                .collect();
            for pair in series.windows(2) {
                let gained = pair[1] - pair[0];
                resets += usize::from(gained < 0.0);
                *total += if gained < 0.0 { pair[1] } else { gained };
            }
            scrapes = scrapes.max(series.len());
        }
    }
    if scrapes < 2 {
        return ServerTtft {
            mean_ms: None,
            count: None,
            note: format!("{SERVER_TTFT_METRIC} was not scraped twice in the window"),
        };
    }
    let mut note =
        "between the first and the last scrape of the window, probes included; from the server's own arrival, not from intended time".to_owned();
    if resets > 0 {
        note.push_str("; a restart reset the counter");
    }
    ServerTtft {
        mean_ms: (count > 0.0).then(|| sum_s / count * 1e3),
        count: Some(count.max(0.0).round() as u64),
        note,
    }
}

pub(crate) fn canary(events: &[Event], span: Span) -> Option<CanaryFigures> {
    let (mut streams, mut completed) = (0, 0);
    let (mut ttft, mut itl, mut lag) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        if let EventKind::Canary(stream) = &event.kind
            && span.holds_at(stream.sent_ns)
        {
            streams += 1;
            completed += u64::from(stream.completed);
            ttft.extend(stream.ttft_dev_ns.map(i64::abs));
            itl.extend(stream.itl_dev_ns.iter().map(|d| d.abs()));
            lag.extend(&stream.event_lag_ns);
        }
    }
    if streams == 0 {
        return None;
    }
    let at = |samples: &mut Vec<i64>, q: f64| {
        samples.sort_unstable();
        nearest_rank(samples, q).map(micros)
    };
    Some(CanaryFigures {
        ttft_ms: CANARY_TTFT_MS,
        itl_ms: CANARY_ITL_MS,
        tokens: CANARY_TOKENS,
        streams,
        completed,
        ttft_dev_p50_us: at(&mut ttft, 0.5),
        ttft_dev_max_us: at(&mut ttft, 1.0),
        itl_dev_p50_us: at(&mut itl, 0.5),
        itl_dev_p99_us: at(&mut itl, 0.99),
        itl_dev_max_us: at(&mut itl, 1.0),
        event_lag_p99_us: at(&mut lag, 0.99),
        event_lag_max_us: at(&mut lag, 1.0),
    })
}
