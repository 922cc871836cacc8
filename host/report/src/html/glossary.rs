//! The words of the page, explained.

use super::markup::{fold, put};

const TERMS: [(&str, &str); 27] = [
    (
        "Aalen–Johansen incidence",
        "The share of all scheduled requests that had completed by a time, with errors as a competing end. Unlike a percentile of completed requests it does not get better when slow requests fail.",
    ),
    (
        "anchor",
        "The earlier of the planned and the actual fire; recovery counts from it.",
    ),
    (
        "baseline",
        "The window before the fault that shows what service is like without it.",
    ),
    (
        "canary",
        "A stream with known timing that is read beside the load. What is measured of it beyond its known timing, the client added.",
    ),
    (
        "censored",
        "No end was seen by the client timeout or the end of the run. Such a request is neither a success nor an error, and never in a latency distribution.",
    ),
    (
        "conditional on completion",
        "Of the completed requests only. Beside many failures such a figure flatters.",
    ),
    (
        "cross-check",
        "A second search for the return of goodput, by change-points of its level. It gives no figure; where it disagrees with the detector by more than the leading window, that is said.",
    ),
    (
        "deficit",
        "Goodput lost until recovery, in seconds of full service.",
    ),
    (
        "determinate, indeterminate",
        "The fire instant is known to within an uncertainty. A request that ended that close to it (the indeterminate zone) can neither be called lost to the fault nor spared by it, and is counted apart.",
    ),
    (
        "equilibrium",
        "The degraded level of service while a replica is away, where others carry on. Recovery against it is a question about survivors.",
    ),
    (
        "errored",
        "An explicit failure: refused, reset, an HTTP error, an error object, a broken or cut stream.",
    ),
    (
        "fire",
        "The instant at which the fault was executed: the middle of two clock reads around it.",
    ),
    (
        "gate",
        "A check by a plugin that a run must pass to count (or to keep a label).",
    ),
    (
        "good",
        "Completed, and within the thresholds for time to first token and end to end.",
    ),
    ("goodput", "Good requests over scheduled requests."),
    (
        "guard",
        "The last client timeout before the fire. Its requests could have met the fault, so that it feeds no baseline figure.",
    ),
    (
        "intended time",
        "When a request was planned to be sent. Latencies count from it, so that a late client or a blocked server cannot hide waiting.",
    ),
    (
        "inter-chunk gap",
        "Time between two events of a stream with content. It is an inter-token time only where one event is one token.",
    ),
    (
        "negative control",
        "A run in which everything was as planned but the fault was not executed.",
    ),
    (
        "open loop",
        "Requests are sent at their planned times, whatever the server does.",
    ),
    (
        "outage",
        "From the fire to the first inference that the replica itself answered.",
    ),
    ("outcome", "Exactly one of completed, errored, censored."),
    (
        "phase",
        "A stretch between two consecutive measured boundaries. Phases touch each other and add up to the whole.",
    ),
    (
        "recovery",
        "The first second from which goodput over a leading window is at 90 % of its earlier level (unless the method’s parameters say otherwise) and stays there for the hold.",
    ),
    (
        "send skew",
        "How late the client was ready to write a request: the start of its connection, where it had to open one, or its first byte, minus the intended time.",
    ),
    (
        "TTFT",
        "Time to first token: from the intended send time to the first event with content.",
    ),
    (
        "unexplained",
        "Time between boundaries of which nothing that was measured says what happened in it.",
    ),
];

/// All terms in one fold-out.
pub(super) fn glossary() -> String {
    let mut body = String::from("<dl class=\"terms\">");
    for (term, meaning) in TERMS {
        put!(body, "<div><dt>{term}</dt><dd>{meaning}</dd></div>");
    }
    body.push_str("</dl>");
    fold("Words of this page", false, &body)
}
