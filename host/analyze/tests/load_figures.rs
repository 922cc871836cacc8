//! Figures of a plain load.

#![allow(clippy::unwrap_used)]

mod common;

use blackstart_analyze::{LoadAsked, LoadFigures, LoadFiguresBuilder};
use blackstart_plan::SloThresholds;
use blackstart_record::{Event, EventKind, RequestRecord, pinned_histogram};
use common::{MS, S, request};

fn figures(requests: &[RequestRecord], events: &[Event]) -> LoadFigures {
    let mut builder = LoadFiguresBuilder::new(LoadAsked {
        rate_per_s: Some(1.0),
        length_ns: 10 * S,
        slo: SloThresholds::PINNED,
        partial: false,
    });
    requests.iter().for_each(|r| builder.push(r));
    builder.finish(&pinned_histogram(), events)
}

#[test]
fn the_read_lag_is_of_the_requests_that_have_one() {
    let mut requests: Vec<_> = (0..10).map(|k| request(k, k as i64 * S)).collect();
    for (k, r) in (1..).zip(&mut requests[1..]) {
        r.read_lag_max_ns = Some(k * MS);
    }
    let lag = figures(&requests, &[]).read_lag_us;
    assert_eq!((lag.requests, lag.not_measured), (9, None));
    // To three significant figures, as all histograms.
    let near = |value: Option<f64>, us: f64| (value.unwrap() - us).abs() <= us / 1e3;
    assert!(near(lag.p50, 5_000.0) && near(lag.p99, 9_000.0) && near(lag.max, 9_000.0));
}

#[test]
fn a_killed_load_says_what_is_missing_and_parts_add_up() {
    let killed = |at_ns: i64, filled_in: Option<u64>, damaged: bool| Event {
        at_ns,
        kind: EventKind::Killed {
            filled_in,
            due: 2,
            records: 10,
            unread_bytes: 3,
            damaged,
        },
    };
    assert_eq!(figures(&[], &[]).killed, None);
    let parts = [killed(5 * S, Some(4), false), killed(3 * S, Some(6), true)];
    let found = figures(&[], &parts).killed.unwrap();
    assert_eq!((found.last_stamp_s, found.filled_in), (3.0, Some(10)));
    assert_eq!((found.due, found.records), (4, 20));
    assert_eq!((found.unread_bytes, found.damaged), (6, true));
    let unknown = [killed(0, None, false), killed(0, Some(1), false)];
    assert_eq!(figures(&[], &unknown).killed.unwrap().filled_in, None);
}

#[test]
fn a_read_lag_that_is_not_measured_says_why() {
    let why = |requests: &[RequestRecord], events: &[Event]| {
        let lag = figures(requests, events).read_lag_us;
        assert_eq!((lag.requests, lag.p50, lag.max), (0, None, None));
        lag.not_measured.unwrap()
    };
    let refused = [Event {
        at_ns: 0,
        kind: EventKind::ReceiveStampsRefused {
            reason: "Operation not permitted".to_owned(),
        },
    }];
    let answered = [request(0, 0)];
    assert!(why(&answered, &refused).contains("Operation not permitted"));
    assert!(why(&answered, &[]).contains("stamped nothing"));
    let unanswered = [RequestRecord {
        headers_ns: None,
        ..request(0, 0)
    }];
    assert!(why(&unanswered, &refused).contains("no request was answered"));
}
