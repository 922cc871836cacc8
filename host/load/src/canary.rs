//! The canary: one stream at a time against an endpoint whose timing is known, through the same
//! connection and decoder as the load, on a load thread. What it sees beyond the known times is what
//! the client adds.

use std::cell::RefCell;
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S};
use blackstart_plan::Endpoint;
use blackstart_record::{CanaryStream, CensorKind, Event, EventKind, Outcome};

use crate::LoadError;
use crate::address::Address;
use crate::exchange::{Trace, exchange, recycle};
use crate::gaps::GapSink;
use crate::outcome::{Expectation, Response};
use crate::pool::Pool;
use crate::request::{RequestHead, base_headers};
use crate::shared::Shared;

/// Shortest time between the starts of two streams.
const PERIOD_NS: i64 = 500 * NS_PER_MS;
/// How long one stream may take.
const TIMEOUT_NS: i64 = 5 * NS_PER_S;
/// Most tokens of a canary stream.
pub const MAX_CANARY_TOKENS: u32 = 4096;

/// An endpoint whose timing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CanaryTarget {
    /// Its address, `http://host:port`.
    pub base_url: String,
    /// Model name to send.
    pub model: String,
    /// Time to first token.
    pub ttft_ns: i64,
    /// Time between tokens.
    pub itl_ns: i64,
    /// Tokens of a stream, one event each.
    pub tokens: u32,
}

impl CanaryTarget {
    /// The method's canary: TTFT 20 ms, 10 ms between tokens, 32 tokens.
    pub fn known(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            model: "mock-8b".to_owned(),
            ttft_ns: 20 * NS_PER_MS,
            itl_ns: 10 * NS_PER_MS,
            tokens: 32,
        }
    }
}

/// A canary that is ready to run.
pub(crate) struct Canary {
    target: CanaryTarget,
    address: Address,
    request: Vec<u8>,
}

impl Canary {
    /// Resolves the target and builds its request.
    ///
    /// # Errors
    /// When the address or the number of tokens is impossible.
    pub(crate) fn new(target: CanaryTarget) -> Result<Self, LoadError> {
        if !(1..=MAX_CANARY_TOKENS).contains(&target.tokens) {
            return Err(LoadError::Plan {
                what: format!(
                    "a canary of {} tokens; choose 1 to {MAX_CANARY_TOKENS}",
                    target.tokens
                ),
            });
        }
        let address = Address::resolve(&target.base_url, None)?;
        let body = serde_json::json!({
            "model": target.model,
            "messages": [{"role": "user", "content": "canary"}],
            "max_tokens": target.tokens,
            "ignore_eos": true,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        Ok(Self {
            request: RequestHead::new(&address, Endpoint::Chat, &base_headers(&address))?
                .with(None, body.to_string().as_bytes()),
            address,
            target,
        })
    }
}

/// Runs streams from the epoch on, until it is dropped with the load.
pub(crate) async fn run(canary: &Canary, shared: &Shared) {
    let clock = shared.clock;
    let pool = Pool::new(canary.address.clone(), clock);
    let mut next_ns = 0;
    for number in 0_u64.. {
        let wait_ns = (next_ns - clock.now()).max(0).cast_unsigned();
        tokio::time::sleep(Duration::from_nanos(wait_ns)).await;
        let start_ns = clock.now();
        let stream = one(canary, &pool, number, start_ns).await;
        shared.push_event(Event {
            at_ns: clock.now(),
            kind: EventKind::Canary(stream),
        });
        next_ns = start_ns + PERIOD_NS;
    }
}

async fn one(canary: &Canary, pool: &Pool, number: u64, start_ns: i64) -> CanaryStream {
    let deadline_ns = start_ns + TIMEOUT_NS;
    let tokens = canary.target.tokens as usize;
    let expect = Expectation {
        exact_tokens: Some(canary.target.tokens),
        ..Expectation::until(deadline_ns)
    };
    let mut response = Response::new(number, start_ns, expect);
    response.keep_token_stamps(tokens + 1);
    let gaps = RefCell::new(GapSink::default());
    let trace = Trace::new();
    let mut leftover = None;
    tokio::select! {
        biased;
        rest = exchange(
            pool,
            &canary.request,
            start_ns,
            None,
            &mut response,
            &gaps,
            &trace,
        ) => leftover = rest,
        () = tokio::time::sleep(Duration::from_nanos(TIMEOUT_NS.cast_unsigned())) => {
            response.censor(deadline_ns, CensorKind::Timeout);
        }
    }
    let sent_ns = trace.tell(&mut response);
    let stamps = response.token_stamps_ns().to_vec();
    let completed = response.into_record().outcome == Outcome::Completed;
    if let Some(leftover) = leftover {
        recycle(pool, leftover).await;
    }
    judge(&canary.target, sent_ns, start_ns, completed, &stamps)
}

/// Deviations of a stream from its known times. Those of single events are known only if each token
/// came as an event of its own.
fn judge(
    target: &CanaryTarget,
    sent_ns: Option<i64>,
    start_ns: i64,
    completed: bool,
    stamps: &[i64],
) -> CanaryStream {
    let each = stamps.len() == target.tokens as usize;
    let due = |k: i64, sent: i64| sent + target.ttft_ns + k * target.itl_ns;
    CanaryStream {
        sent_ns: sent_ns.unwrap_or(start_ns),
        completed: completed && each,
        ttft_dev_ns: sent_ns
            .zip(stamps.first())
            .map(|(sent, first)| first - due(0, sent)),
        itl_dev_ns: if each {
            stamps
                .windows(2)
                .map(|w| w[1] - w[0] - target.itl_ns)
                .collect()
        } else {
            Vec::new()
        },
        event_lag_ns: match sent_ns {
            Some(sent) if each => (0..).zip(stamps).map(|(k, t)| t - due(k, sent)).collect(),
            _ => Vec::new(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_count_from_the_first_write() {
        let target = CanaryTarget {
            tokens: 3,
            ..CanaryTarget::known("http://127.0.0.1:1")
        };
        let stamps = [21 * NS_PER_MS, 30 * NS_PER_MS, 41 * NS_PER_MS];
        let stream = judge(&target, Some(NS_PER_MS), 0, true, &stamps);
        assert_eq!(stream.ttft_dev_ns, Some(0));
        assert_eq!(stream.itl_dev_ns, [-NS_PER_MS, NS_PER_MS]);
        assert_eq!(stream.event_lag_ns, [0, -NS_PER_MS, 0]);
        assert!(stream.completed);
        // Two tokens in one event: no time of a single token is known.
        let merged = judge(&target, Some(0), 0, true, &stamps[..2]);
        assert!(!merged.completed && merged.itl_dev_ns.is_empty());
        let refused = judge(&target, None, 5, false, &[]);
        assert_eq!((refused.sent_ns, refused.ttft_dev_ns), (5, None));
    }
}
