//! Figures of a plain load: no fault, no windows. Built one record at a time, in constant memory.

use std::collections::BTreeMap;

use blackstart_plan::SloThresholds;
use blackstart_record::{
    CensorKind, ErrorClass, Event, EventKind, Outcome, RequestRecord, pinned_histogram,
};
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::buckets::{LatencyBucket, latency_buckets};
use crate::distribution::Collector;
use crate::receive_path::{CanaryFigures, canary};
use crate::time::NS_PER_S;
use crate::{Span, slo};

/// Shortest time over which an offered rate is given: the equal timestamps of a trace have none.
const SHORTEST_OFFERED_S: f64 = 1e-3;

/// Version of a load's `summary.json`.
pub const LOAD_SUMMARY_SCHEMA_VERSION: u32 = 1;

/// What a load was asked for, as far as its figures depend on it.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadAsked {
    /// Mean rate of the schedule in requests per second; `None` in a closed loop.
    pub rate_per_s: Option<f64>,
    /// When the last request could be started, in run time.
    pub length_ns: i64,
    /// When a request is good.
    pub slo: SloThresholds,
    /// Whether the load is known to have ended before its schedule. Requests that its end censored
    /// say so too.
    pub partial: bool,
}

/// A latency distribution of completed requests, in milliseconds, from the intended send time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyFigures {
    /// Samples. Every other figure is absent when it is 0.
    pub count: u64,
    /// Mean; exact, except for pooled gaps.
    pub mean: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile; absent where the sample does not carry it (see `refused`).
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    #[serde(rename = "p99.9")]
    pub p99_9: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Which percentiles the sample does not carry: those of which the rank ⌈q·n⌉ is that of the
    /// largest sample, so that they would only repeat the maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// All samples in a few buckets that grow evenly on a logarithmic scale; none without samples.
    pub buckets: Vec<LatencyBucket>,
}

impl LatencyFigures {
    fn of_collected(latencies: &Collector) -> Self {
        Self::of(latencies.histogram(), latencies.mean_ms())
    }

    fn of(histogram_us: &Histogram<u64>, exact_mean_ms: Option<f64>) -> Self {
        if histogram_us.is_empty() {
            return Self::default();
        }
        let n = histogram_us.len();
        let carried = |q: f64| (q * n as f64).ceil() < n as f64;
        let at = |q: f64| carried(q).then(|| histogram_us.value_at_quantile(q) as f64 / 1e3);
        let refused: Vec<&str> = [("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999)]
            .into_iter()
            .filter(|(_, q)| !carried(*q))
            .map(|(name, _)| name)
            .collect();
        Self {
            count: n,
            mean: exact_mean_ms.or(Some(histogram_us.mean() / 1e3)),
            p50: Some(histogram_us.value_at_quantile(0.5) as f64 / 1e3),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p99_9: at(0.999),
            max: Some(histogram_us.max() as f64 / 1e3),
            refused: (!refused.is_empty()).then(|| {
                format!(
                    "{}: {n} samples carry no more than the maximum",
                    refused.join(", ")
                )
            }),
            buckets: latency_buckets(histogram_us),
        }
    }
}

/// Send skew, microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SkewFigures {
    /// Median; absent where no request was handed to a connection.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
}

/// How long bytes that had arrived waited to be read: from the kernel's stamp to the client's,
/// microseconds. The figures are over each request's largest.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReadLagFigures {
    /// Requests of which it is known. Every figure is absent when it is 0.
    pub requests: u64,
    /// Median.
    pub p50: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Why it is known of none.
    pub not_measured: Option<String>,
}

impl ReadLagFigures {
    fn of(lags_ns: &Histogram<u64>, answered: bool, events: &[Event]) -> Self {
        if lags_ns.is_empty() {
            let refused = events.iter().find_map(|e| match &e.kind {
                EventKind::ReceiveStampsRefused { reason } => {
                    Some(format!("the kernel refused its receive stamps: {reason}"))
                }
                _ => None,
            });
            let why = match refused {
                _ if !answered => "no request was answered".to_owned(),
                Some(refused) => refused,
                None => "the kernel stamped nothing that was received".to_owned(),
            };
            return Self {
                not_measured: Some(why),
                ..Self::default()
            };
        }
        let at = |q: f64| Some(lags_ns.value_at_quantile(q) as f64 / 1e3);
        Self {
            requests: lags_ns.len(),
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            not_measured: None,
        }
    }
}

/// Tokens, counted in two ways.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenFigures {
    /// SSE events with content, of all requests.
    pub events: u64,
    /// Sum of the servers' own `usage.completion_tokens`; absent where no server said any.
    pub server_completion_tokens: Option<u64>,
}

/// What the turns of conversations differ in. A prefix cache serves the later ones faster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TurnFigures {
    /// Conversations whose first turn was due.
    pub conversations: u64,
    /// Time to first token of first turns, conditional on completion.
    pub first_ttft_ms: LatencyFigures,
    /// The same of all later turns, from their intended times.
    pub later_ttft_ms: LatencyFigures,
    /// Later turns that were due.
    pub later: u64,
    /// Of these, turns that could not be sent at their time: an earlier one had not ended, or a
    /// concurrency cap was reached. The wait is in their latencies.
    pub later_waited: u64,
}

/// What is missing of a load whose instrument was killed. Of a load in parts the sums, and the earliest
/// of the last stamps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KilledFigures {
    /// Last stamp of the records, seconds of run time: nothing is known of the time after it.
    pub last_stamp_s: f64,
    /// Requests that had no record and got one from the schedule; null where the schedule does not
    /// follow from `load.json`, so that what was under way is not known.
    pub filled_in: Option<u64>,
    /// Of these, requests that were due by the last stamp, where they count as censored.
    pub due: u64,
    /// Records that the journal held.
    pub records: u64,
    /// Bytes of the journal that could not be read.
    pub unread_bytes: u64,
    /// Whether these are more than a last record that was cut short: the journal was damaged, and what
    /// they held counts as not recorded.
    pub damaged: bool,
}

impl KilledFigures {
    fn of(events: &[Event]) -> Option<Self> {
        let parts = events.iter().filter_map(|e| match e.kind {
            EventKind::Killed {
                filled_in,
                due,
                records,
                unread_bytes,
                damaged,
            } => Some(Self {
                last_stamp_s: e.at_ns as f64 / NS_PER_S as f64,
                filled_in,
                due,
                records,
                unread_bytes,
                damaged,
            }),
            _ => None,
        });
        parts.reduce(|a, b| Self {
            last_stamp_s: a.last_stamp_s.min(b.last_stamp_s),
            filled_in: a.filled_in.zip(b.filled_in).map(|(a, b)| a + b),
            due: a.due + b.due,
            records: a.records + b.records,
            unread_bytes: a.unread_bytes + b.unread_bytes,
            damaged: a.damaged || b.damaged,
        })
    }
}

/// The figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFigures {
    /// Asked mean rate, requests per second; absent in a closed loop.
    pub asked_rate: Option<f64>,
    /// Requests that were due, per second of the load's length (of what passed of it, when partial).
    pub offered_rate: Option<f64>,
    /// Requests with a record.
    pub scheduled: u64,
    /// Of these, requests that were not due yet when the load was ended early. They count as censored
    /// (`run_end`), and in nothing else.
    pub never_due: u64,
    /// Completed requests.
    pub completed: u64,
    /// Errored requests.
    pub errored: u64,
    /// Censored requests.
    pub censored: u64,
    /// Errored requests by class.
    pub errored_by_class: BTreeMap<String, u64>,
    /// What the first errored request of each class was told.
    pub error_examples: BTreeMap<String, String>,
    /// Censored requests by kind.
    pub censored_by_kind: BTreeMap<String, u64>,
    /// Time to first token, conditional on completion.
    pub ttft_ms: LatencyFigures,
    /// Gaps between content events, of all streams.
    pub inter_chunk_ms: LatencyFigures,
    /// End to end, conditional on completion.
    pub e2e_ms: LatencyFigures,
    /// The same by turn; absent where no request was a turn of a conversation.
    pub turns: Option<TurnFigures>,
    /// Send skew.
    pub send_skew_us: SkewFigures,
    /// How late the client read what had arrived.
    pub read_lag_us: ReadLagFigures,
    /// Tokens.
    pub tokens: TokenFigures,
    /// Completed requests within both thresholds.
    pub good: u64,
    /// `good` over the requests that were due; absent where none was.
    pub goodput: Option<f64>,
    /// Good requests per second of the duration.
    pub good_per_s: Option<f64>,
    /// Completed requests per second of the duration.
    pub completed_per_s: Option<f64>,
    /// Content events per second of the duration.
    pub events_per_s: Option<f64>,
    /// From the epoch to the last outcome, seconds.
    pub duration_s: f64,
    /// Requests whose reads delivered more than one content event at once.
    pub coalesced_requests: u64,
    /// What the client adds, by streams of known timing.
    pub canary: Option<CanaryFigures>,
    /// Whether the load ended before its schedule.
    pub partial: bool,
    /// What is missing because the instrument was killed; null where it was not.
    pub killed: Option<KilledFigures>,
}

/// Collects the figures of a load.
pub struct LoadFiguresBuilder {
    asked: LoadAsked,
    outcomes: [u64; 3],
    by_class: BTreeMap<String, u64>,
    examples: BTreeMap<String, String>,
    by_kind: BTreeMap<String, u64>,
    ttft: Collector,
    e2e: Collector,
    skew_ns: Histogram<u64>,
    read_lag_ns: Histogram<u64>,
    answered: bool,
    events: u64,
    server_tokens: Option<u64>,
    good: u64,
    coalesced: u64,
    due: u64,
    end_ns: i64,
    turns: Option<Turns>,
}

/// Collects the figures by turn.
struct Turns {
    conversations: u64,
    first_ttft: Collector,
    later_ttft: Collector,
    later: u64,
    later_waited: u64,
}

impl Turns {
    fn new() -> Self {
        Self {
            conversations: 0,
            first_ttft: Collector::new(),
            later_ttft: Collector::new(),
            later: 0,
            later_waited: 0,
        }
    }

    fn push(&mut self, r: &RequestRecord, turn: u32, due: bool) {
        let ttft = match turn {
            0 => {
                self.conversations += u64::from(due);
                &mut self.first_ttft
            }
            _ => {
                self.later += u64::from(due);
                // One that was censored while it waited was never admitted, and never sent.
                let waited = r.admitted_ns.is_some()
                    || (r.outcome == Outcome::Censored && r.send_skew_ns().is_none());
                self.later_waited += u64::from(due && waited);
                &mut self.later_ttft
            }
        };
        if r.outcome == Outcome::Completed
            && let Some(ns) = r.ttft_ns()
        {
            ttft.record_ns(ns);
        }
    }

    fn figures(&self) -> TurnFigures {
        TurnFigures {
            conversations: self.conversations,
            first_ttft_ms: LatencyFigures::of_collected(&self.first_ttft),
            later_ttft_ms: LatencyFigures::of_collected(&self.later_ttft),
            later: self.later,
            later_waited: self.later_waited,
        }
    }
}

impl LoadFiguresBuilder {
    /// Nothing yet.
    pub fn new(asked: LoadAsked) -> Self {
        Self {
            asked,
            outcomes: [0; 3],
            by_class: BTreeMap::new(),
            examples: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            ttft: Collector::new(),
            e2e: Collector::new(),
            skew_ns: pinned_histogram(),
            read_lag_ns: pinned_histogram(),
            answered: false,
            events: 0,
            server_tokens: None,
            good: 0,
            coalesced: 0,
            due: 0,
            end_ns: 0,
            turns: None,
        }
    }

    /// Adds a request.
    pub fn push(&mut self, r: &RequestRecord) {
        self.outcomes[r.outcome as usize] += 1;
        if let Some(class) = r.error_class {
            let name = ErrorClass::name(class);
            *self.by_class.entry(name.to_owned()).or_default() += 1;
            if !self.examples.contains_key(name) {
                let status = r
                    .http_status
                    .filter(|s| *s != 200)
                    .map(|s| format!("{s}: "));
                let text = r.error_text.as_deref().unwrap_or("no reason was given");
                let example = status.unwrap_or_default() + text;
                self.examples.insert(name.to_owned(), example);
            }
        }
        if let Some(kind) = r.censor_kind {
            *self.by_kind.entry(kind.name().to_owned()).or_default() += 1;
        }
        // A request that was never due (the load ended before) was observed for no time. One that
        // failed for no time was due: its connection was refused ahead of it.
        let due =
            r.outcome != Outcome::Censored || r.observed_ns() > 0 || r.dispatched_ns.is_some();
        if let Some(turn) = r.turn {
            self.turns.get_or_insert_with(Turns::new).push(r, turn, due);
        }
        if due {
            self.due += 1;
            self.end_ns = self.end_ns.max(r.ended_ns);
        }
        if r.outcome == Outcome::Completed {
            if let Some(ttft) = r.ttft_ns() {
                self.ttft.record_ns(ttft);
            }
            self.e2e.record_ns(r.observed_ns());
        }
        if let Some(skew) = r.send_skew_ns() {
            let _ = self.skew_ns.record(u64::try_from(skew).unwrap_or(0).max(1));
        }
        if let Some(lag) = r.read_lag_max_ns {
            let _ = self
                .read_lag_ns
                .record(u64::try_from(lag).unwrap_or(0).max(1));
        }
        self.answered |= r.headers_ns.is_some();
        self.events += u64::from(r.content_events);
        if let Some(tokens) = r.completion_tokens {
            *self.server_tokens.get_or_insert(0) += u64::from(tokens);
        }
        self.good += u64::from(slo::is_good(
            r,
            self.asked.slo.ttft_ms,
            self.asked.slo.e2e_ms,
        ));
        self.coalesced += u64::from(r.coalesced_reads > 0);
    }

    /// The figures, with the pooled gaps (microseconds) and the events of the load.
    pub fn finish(self, gaps_us: &Histogram<u64>, events: &[Event]) -> LoadFigures {
        let scheduled = self.outcomes.iter().sum();
        let cut_off = CensorKind::RunEnd.name();
        let partial = self.asked.partial || self.by_kind.contains_key(cut_off);
        let duration_s = self.end_ns.max(0) as f64 / NS_PER_S as f64;
        // What of the load's length came to pass.
        // A closed loop may have come to its last request before.
        let offered_s = if partial || self.asked.rate_per_s.is_none() {
            duration_s.min(self.asked.length_ns as f64 / NS_PER_S as f64)
        } else {
            self.asked.length_ns as f64 / NS_PER_S as f64
        };
        let per = |n: u64, seconds: f64| (seconds > 0.0).then(|| n as f64 / seconds);
        let skew = |q: f64| {
            (!self.skew_ns.is_empty()).then(|| self.skew_ns.value_at_quantile(q) as f64 / 1e3)
        };
        let whole = Span {
            start_ns: i64::MIN,
            end_ns: i64::MAX,
        };
        let completed = self.outcomes[Outcome::Completed as usize];
        LoadFigures {
            asked_rate: self.asked.rate_per_s,
            offered_rate: (offered_s >= SHORTEST_OFFERED_S).then(|| self.due as f64 / offered_s),
            scheduled,
            completed,
            errored: self.outcomes[Outcome::Errored as usize],
            censored: self.outcomes[Outcome::Censored as usize],
            ttft_ms: LatencyFigures::of_collected(&self.ttft),
            inter_chunk_ms: LatencyFigures::of(gaps_us, None),
            e2e_ms: LatencyFigures::of_collected(&self.e2e),
            turns: self.turns.as_ref().map(Turns::figures),
            send_skew_us: SkewFigures {
                p50: skew(0.5),
                p99: skew(0.99),
                max: skew(1.0),
            },
            read_lag_us: ReadLagFigures::of(&self.read_lag_ns, self.answered, events),
            tokens: TokenFigures {
                events: self.events,
                server_completion_tokens: self.server_tokens,
            },
            good: self.good,
            goodput: (self.due > 0).then(|| self.good as f64 / self.due as f64),
            good_per_s: per(self.good, duration_s),
            completed_per_s: per(completed, duration_s),
            events_per_s: per(self.events, duration_s),
            duration_s,
            coalesced_requests: self.coalesced,
            canary: canary(events, whole),
            partial,
            killed: KilledFigures::of(events),
            never_due: scheduled - self.due,
            errored_by_class: self.by_class,
            error_examples: self.examples,
            censored_by_kind: self.by_kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_that_only_repeats_the_maximum_is_refused() {
        let figures = |n: u64| {
            let mut histogram = Histogram::<u64>::new(3).expect("made");
            (1..=n).for_each(|i| histogram.record(i * 1000).expect("recorded"));
            LatencyFigures::of(&histogram, None)
        };
        let few = figures(9);
        assert_eq!((few.p90, few.p99, few.p99_9), (None, None, None));
        assert!(few.p50.is_some() && few.max.is_some());
        let said = few.refused.expect("said");
        assert!(
            said.starts_with("p90, p95, p99, p99.9: 9 samples"),
            "{said}"
        );
        let more = figures(100);
        assert!(more.p99.is_some());
        assert_eq!(more.p99_9, None);
        assert_eq!(figures(1001).refused, None);
    }
}
