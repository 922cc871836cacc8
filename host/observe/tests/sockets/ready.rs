use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use blackstart_observe::{ReadyAt, ReadyError, ReadyRequest, wait_ready};

use crate::support::*;

fn wait(url: &str, timeout: Duration) -> Result<ReadyAt, ReadyError> {
    wait_ready(
        ReadyRequest {
            replica: &replica("r0", url),
            load: &load(),
            api_key: None,
            timeout,
        },
        &AtomicBool::new(false),
    )
}

#[test]
fn ready_is_the_first_token_and_not_the_first_answer() {
    let count = AtomicUsize::new(0);
    let before = blackstart_clock::monotonic_ns();
    let server = Server::start(move |_, stream| {
        let text = match count.fetch_add(1, Ordering::SeqCst) {
            0 => response("503 Service Unavailable", "text/plain", "loading"),
            1 => events(""),
            _ => one_token(),
        };
        let _ = stream.write_all(text.as_bytes());
    });
    let ready = wait(&server.url(), PATIENCE).unwrap();
    assert_eq!(ready.attempts, 3);
    assert!(ready.monotonic_ns > before);
    assert!(ready.monotonic_ns <= blackstart_clock::monotonic_ns());
}

#[test]
fn an_unknown_model_ends_the_wait_with_the_names_that_are_served() {
    let server = Server::start(|request, stream| {
        let text = match request.path() {
            "/v1/models" => response(
                "200 OK",
                "application/json",
                r#"{"object":"list","data":[{"id":"llama"},{"id":"qwen"}]}"#,
            ),
            _ => include_str!("../fixtures/vllm-0.32.0-unknown-model.raw").to_owned(),
        };
        let _ = stream.write_all(text.as_bytes());
    });
    // The wait would be an hour.
    let error = wait(&server.url(), Duration::from_secs(3600)).unwrap_err();
    // The place that mends it is the model's, and no time is named that nobody waited.
    assert!(
        matches!(
            &error,
            ReadyError::NotReady {
                key: Some("load.model"),
                ..
            }
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("refused 5 requests in a row"), "{text}");
    assert!(text.contains("replica r0"), "{text}");
    assert!(text.contains("last seen: http_status 404"), "{text}");
    assert!(
        text.contains("does not serve model `tiny` but `llama`, `qwen`"),
        "{text}"
    );
}

#[test]
fn a_wanted_key_ends_the_wait() {
    let server = Server::saying(response("401 Unauthorized", "text/plain", "no"));
    let text = wait(&server.url(), Duration::from_secs(3600))
        .unwrap_err()
        .to_string();
    assert!(text.contains("TEST_KEY"), "{text}");
}

#[test]
fn what_was_last_seen_and_how_to_mend_it() {
    let soon = Duration::from_secs(2);
    let refusing = Reserved::new();
    let text = wait(&refusing.url(), soon).unwrap_err().to_string();
    assert!(
        text.contains("within 2 s (")
            && text.contains("connect: refused")
            && text.contains("nothing listens"),
        "{text}"
    );
    let cases = [
        (
            response("200 OK", "text/html", "<html>"),
            "not_sse",
            "something else",
        ),
        (
            response("503 x", "text/plain", ""),
            "http_status 503",
            "still loading",
        ),
        (
            response("500 x", "text/plain", ""),
            "http_status 500",
            "look at its log",
        ),
        (
            response("404 x", "text/html", "<html>"),
            "http_status 404",
            "check base_url",
        ),
        (
            response("400 x", "text/plain", "bad"),
            "http_status 400: bad",
            "load.model",
        ),
        (events("data: [DONE]\n\n"), "empty: ", "without a token"),
    ];
    std::thread::scope(|scope| {
        for (bytes, seen, mend) in cases {
            scope.spawn(move || {
                let server = Server::saying(bytes);
                // Long enough for one whole attempt on a busy machine; the last one matters.
                let text = wait(&server.url(), soon).unwrap_err().to_string();
                assert!(
                    text.contains(seen) && text.contains(mend),
                    "{seen}/{mend}: {text}"
                );
            });
        }
    });
    let silent = Server::start(|_, stream| hold(stream));
    let text = wait(&silent.url(), soon).unwrap_err().to_string();
    assert!(
        text.contains("timeout: ") && text.contains("generates nothing"),
        "{text}"
    );
}

#[test]
fn a_url_that_cannot_be_asked_is_a_configuration_error() {
    let error = wait("https://127.0.0.1:1", PATIENCE).unwrap_err();
    assert!(matches!(error, ReadyError::Configuration { .. }), "{error}");
}

#[test]
fn the_stop_flag_ends_the_wait() {
    let silent = Server::start(|_, stream| hold(stream));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = std::time::Instant::now() + PATIENCE;
            while silent.seen.lock().unwrap().is_empty() && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::SeqCst);
        });
        let error = wait_ready(
            ReadyRequest {
                replica: &replica("r0", &silent.url()),
                load: &load(),
                api_key: None,
                timeout: Duration::from_secs(3600),
            },
            &stop,
        )
        .unwrap_err();
        assert_eq!(
            error,
            ReadyError::Stopped {
                replica: "r0".into()
            }
        );
    });
}
