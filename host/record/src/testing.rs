//! Records for this crate's tests.

use crate::{CensorKind, ErrorClass, FinishReason, Gap, Outcome, RequestRecord};

/// A gap whose fields all depend on its number.
pub(crate) fn gap(number: u64) -> Gap {
    let i = i64::try_from(number).unwrap();
    Gap {
        index: number / 7,
        chunk: (number % 7) as u32 + 1,
        choice: (number % 2) as u32,
        at_ns: i * 1_000_003 - 5,
        gap_ns: i * 1_007,
    }
}

/// A record whose fields all depend on the index, with every kind of absence and every enumeration.
pub(crate) fn record(index: u64) -> RequestRecord {
    let i = i64::try_from(index).unwrap();
    let some = |k: u64, v: i64| (!index.is_multiple_of(k)).then_some(v);
    let outcome = Outcome::ALL[(index % 3) as usize];
    RequestRecord {
        index,
        intended_ns: i * 1_000_003,
        admitted_ns: some(11, i * 1_000_003 + 3),
        connect_started_ns: some(9, i * 1_000_003 + 5),
        dispatched_ns: some(7, i * 1_000_003 + 17),
        headers_ns: some(5, i + 1),
        first_event_ns: some(3, i + 2),
        first_token_ns: some(2, i + 3),
        last_token_ns: some(2, i + 4),
        ended_ns: i * 1_000_003 + 5,
        outcome,
        error_class: (outcome == Outcome::Errored).then(|| ErrorClass::ALL[(index % 12) as usize]),
        censor_kind: (outcome == Outcome::Censored).then(|| CensorKind::ALL[(index % 4) as usize]),
        http_status: some(5, 0).map(|_| 200 + (index % 300) as u16),
        error_code: some(4, -i),
        error_text: some(6, 0).map(|_| format!("text {index} ä\\n")),
        finish_reason: match index % 6 {
            0 => None,
            1 => Some(FinishReason::Stop),
            2 => Some(FinishReason::Length),
            3 => Some(FinishReason::ToolCalls),
            4 => Some(FinishReason::Abort),
            _ => Some(FinishReason::Other("content_filter".to_owned())),
        },
        done_marker: index.is_multiple_of(2),
        content_events: (index % 40) as u32,
        completion_tokens: some(3, 0).map(|_| u32::MAX - index as u32),
        prompt_tokens: some(4, 0).map(|_| index as u32),
        body_bytes: index * 1000,
        coalesced_reads: (index % 9) as u32,
        gap_max_ns: some(8, i * 10),
        connection_reused: index % 2 == 1,
        replica: some(3, 0).map(|_| format!("r{}", index % 2)),
        first_token_kernel_ns: some(4, i + 2),
        ended_kernel_ns: some(5, i * 1_000_003 + 4),
        read_lag_max_ns: some(3, i * 7),
        conversation: some(4, 0).map(|_| (index / 3) as u32),
        turn: some(4, 0).map(|_| (index % 3) as u32),
    }
}
