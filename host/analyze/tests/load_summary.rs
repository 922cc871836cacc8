//! Figures of a load without a fault.

// Helpers of tests may fail by panic as tests do.
#![allow(clippy::unwrap_used)]

mod common;

use blackstart_analyze::{LoadAsked, LoadFigures, LoadFiguresBuilder};
use blackstart_plan::SloThresholds;
use blackstart_record::{CensorKind, ErrorClass, Outcome, RequestRecord, pinned_histogram};
use common::request;

const MS: i64 = 1_000_000;

fn figures(records: &[RequestRecord]) -> LoadFigures {
    let mut builder = LoadFiguresBuilder::new(LoadAsked {
        rate_per_s: Some(1.0),
        length_ns: 1_000 * MS,
        slo: SloThresholds::PINNED,
        partial: false,
    });
    records.iter().for_each(|r| builder.push(r));
    builder.finish(&pinned_histogram(), &[])
}

/// A turn whose first token comes after so many milliseconds.
fn turn(index: u64, turn: u32, ttft_ms: i64) -> RequestRecord {
    let intended_ns = index as i64 * 10 * MS;
    RequestRecord {
        conversation: Some(0),
        turn: Some(turn),
        first_token_ns: Some(intended_ns + ttft_ms * MS),
        ended_ns: intended_ns + 900 * MS,
        ..request(index, intended_ns)
    }
}

#[test]
fn a_refused_connection_was_due_although_nothing_was_observed() {
    let mut refused = turn(0, 0, 20);
    refused.outcome = Outcome::Errored;
    refused.error_class = Some(ErrorClass::Connect);
    refused.dispatched_ns = None;
    refused.first_token_ns = None;
    refused.ended_ns = refused.intended_ns;
    let found = figures(&[refused, turn(1, 0, 20)]);
    assert_eq!((found.scheduled, found.never_due, found.good), (2, 0, 1));
    assert_eq!(found.goodput, Some(0.5));
}

#[test]
fn first_and_later_turns_are_told_apart() {
    let mut waited = turn(2, 2, 300);
    waited.admitted_ns = Some(waited.intended_ns + 200 * MS);
    let failed = RequestRecord {
        outcome: Outcome::Errored,
        ..turn(3, 1, 1)
    };
    let mut never_due = turn(4, 3, 1);
    never_due.outcome = Outcome::Censored;
    never_due.censor_kind = Some(CensorKind::RunEnd);
    never_due.dispatched_ns = None;
    never_due.ended_ns = never_due.intended_ns;
    let found = figures(&[turn(0, 0, 20), turn(1, 1, 100), waited, failed, never_due]);
    let turns = found.turns.unwrap();
    assert_eq!(turns.conversations, 1);
    assert_eq!((turns.later, turns.later_waited), (3, 1));
    assert_eq!(turns.first_ttft_ms.mean, Some(20.0));
    assert_eq!(turns.later_ttft_ms.mean, Some(200.0));
    assert_eq!(found.ttft_ms.count, 3);
    assert_eq!(found.ttft_ms.mean, Some(140.0));
    let counted: u64 = found.ttft_ms.buckets.iter().map(|b| b.count).sum();
    assert_eq!(counted, 3);
    assert_eq!(figures(&[request(0, 0)]).turns, None);
}
