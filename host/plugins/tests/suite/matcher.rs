//! The matcher world: sessions, batches, line numbers.

use blackstart_plugins::{
    Call, GuestError, LineBatch, MAX_BATCH_LINES, MAX_SESSIONS, MatcherPlugin, PluginError, Stopped,
};

use crate::support::{Guest, engine, impatient, words};

fn matcher() -> MatcherPlugin {
    MatcherPlugin::instantiate(&engine(), &Guest::matcher("m").artifact()).unwrap()
}

#[test]
fn a_matcher_describes_itself_and_probes() {
    let mut matcher = matcher();
    assert_eq!(matcher.describe().product, "vllm");
    let probe = matcher.probe("INFO vLLM\nsecond").unwrap();
    assert_eq!(
        (probe.version.as_deref(), probe.confidence),
        (Some("vllm"), 100)
    );
    let huge = "µ".repeat(1 << 20);
    assert_eq!(matcher.probe(&huge).unwrap().confidence, 100);
}

#[test]
fn boundaries_carry_the_index_of_their_line_over_all_batches() {
    let mut matcher = matcher();
    let session = matcher.session("vllm-0", "{}").unwrap();
    assert_eq!(matcher.feed(&session, "a\nb").unwrap(), []);
    let found = matcher.feed(&session, "c\nR").unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].key.as_str()), (3, "ready"));
    assert_eq!(matcher.feed(&session, "").unwrap(), [], "one empty line");
    assert_eq!(matcher.feed(&session, "R").unwrap()[0].line, 5);
    assert_eq!(matcher.finish(session).unwrap(), []);
}

#[test]
fn sessions_are_kept_apart() {
    let mut matcher = matcher();
    let one = matcher.session("vllm-0", "{}").unwrap();
    let two = matcher.session("vllm-1", "{}").unwrap();
    matcher.feed(&one, "a\nb\nc").unwrap();
    assert_eq!(matcher.feed(&two, "R").unwrap()[0].line, 0);
    assert_eq!(matcher.feed(&one, "R").unwrap()[0].line, 3);
    matcher.abandon(one).unwrap();
    assert_eq!(matcher.feed(&two, "R").unwrap()[0].line, 1);
    matcher.finish(two).unwrap();
}

#[test]
fn a_long_log_is_fed_in_batches() {
    let mut matcher = matcher();
    let ready = 3 * MAX_BATCH_LINES as u64 + 17;
    let total = 5 * MAX_BATCH_LINES as u64;
    let mut found = Vec::new();
    let lines = (0..=ready).map(|i| if i == ready { "R" } else { "x" });
    let fed = matcher
        .scan("vllm-0", "{}", lines, |b| found.push((b.line, b.key)))
        .unwrap();
    assert_eq!(fed, ready + 1);
    assert_eq!(found, [(ready, "ready".to_owned())]);

    // The same as one text, through `feed`.
    let session = matcher.session("vllm-0", "{}").unwrap();
    let mut text = "x\n".repeat(ready as usize);
    text.push('R');
    let found = matcher.feed(&session, &text).unwrap();
    assert_eq!(found.iter().map(|b| b.line).collect::<Vec<_>>(), [ready]);
    matcher.finish(session).unwrap();
    assert_eq!(
        matcher
            .scan("r", "{}", (0..total).map(|_| "x"), |_| {})
            .unwrap(),
        total
    );
}

#[test]
fn an_empty_log_has_no_lines() {
    let mut matcher = matcher();
    let lines: [&str; 0] = [];
    assert_eq!(
        matcher
            .scan("vllm-0", "{}", lines, |_| panic!("found"))
            .unwrap(),
        0
    );
    let session = matcher.session("vllm-0", "{}").unwrap();
    assert_eq!(
        matcher.feed_batch(&session, &mut LineBatch::new()).unwrap(),
        []
    );
}

#[test]
fn the_guests_destructor_runs_for_every_session() {
    // `finish` traps unless it is the only session alive.
    let body = "(if (i32.ne (global.get $live) (i32.const 1)) (then unreachable)) ";
    let guest = Guest::matcher("m");
    let body = format!("{body}{}", guest.body("[method]session.finish"));
    let artifact = guest.with("[method]session.finish", &body).artifact();
    let mut matcher = MatcherPlugin::instantiate(&engine(), &artifact).unwrap();
    for i in 0..1000 {
        let session = matcher.session("vllm-0", "{}").unwrap();
        if i % 2 == 0 {
            matcher.finish(session).unwrap();
        } else {
            matcher.abandon(session).unwrap();
        }
    }
}

#[test]
fn the_number_of_sessions_is_bounded() {
    let mut matcher = matcher();
    for _ in 0..MAX_SESSIONS {
        matcher.session("vllm-0", "{}").unwrap();
    }
    let error = matcher.session("vllm-0", "{}").unwrap_err();
    assert!(error.to_string().contains("sessions"), "{error}");
}

#[test]
fn a_boundary_past_the_end_of_the_log_is_no_answer() {
    let mut guest = Guest::matcher("m");
    let key = guest.text("ready");
    let boundary = guest.put(&words(&[7, 0, key.0, key.1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
    let answer = guest.put(&words(&[0, boundary, 1, 0]));
    let body = format!("(i32.const {answer})");
    let artifact = guest.with("[method]session.feed", &body).artifact();
    let mut matcher = MatcherPlugin::instantiate(&engine(), &artifact).unwrap();
    let session = matcher.session("vllm-0", "{}").unwrap();
    let error = matcher.feed(&session, "a\nb").unwrap_err();
    let PluginError::Quarantined(quarantine) = &error else {
        panic!("{error}");
    };
    assert_eq!(quarantine.call, Call::SessionFeed);
    assert!(
        matches!(quarantine.stopped, Stopped::BadAnswer(_)),
        "{error}"
    );
}

#[test]
fn a_matcher_that_declines_a_batch_can_go_on() {
    let mut guest = Guest::matcher("m");
    let why = guest.text("cannot read this");
    let answer = guest.put(&words(&[1, 3, why.0, why.1]));
    let artifact = guest
        .with("[method]session.feed", &format!("(i32.const {answer})"))
        .artifact();
    let mut matcher = MatcherPlugin::instantiate(&engine(), &artifact).unwrap();
    let session = matcher.session("vllm-0", "{}").unwrap();
    for _ in 0..2 {
        match matcher.feed(&session, "a").unwrap_err() {
            PluginError::Guest {
                error: GuestError::Other(text),
                ..
            } => {
                assert_eq!(text, "cannot read this");
            }
            other => panic!("{other}"),
        }
    }
    assert!(matcher.scan("vllm-0", "{}", ["a"], |_| {}).is_err());
    matcher.finish(session).unwrap();
}

#[test]
fn a_destructor_that_never_returns_is_stopped() {
    let artifact = Guest::matcher("m")
        .with("[dtor]session", "(loop (br 0))")
        .artifact();
    let mut matcher = MatcherPlugin::instantiate(&impatient(), &artifact).unwrap();
    let session = matcher.session("vllm-0", "{}").unwrap();
    let error = matcher.finish(session).unwrap_err();
    assert!(error.to_string().contains("session drop"), "{error}");
}

#[test]
fn a_session_of_another_instance_is_not_taken() {
    let (mut one, mut two) = (matcher(), matcher());
    let session = one.session("vllm-0", "{}").unwrap();
    assert!(two.feed(&session, "a").is_err());
    assert!(one.feed(&session, "a").is_ok());
}
