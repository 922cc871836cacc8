use std::io::Write;

use blackstart_clock::NS_PER_MS;
use blackstart_record::EventKind;

use crate::support::*;

const RECORDED: &str = include_str!("../fixtures/vllm-0.32.0-metrics-load.txt");

/// Observers that scrape one server at short intervals.
fn scraping(url: &str) -> Watch {
    let mut plan = plan(vec![replica("r0", url)], None);
    plan.observe.metrics_path = Some("/metrics".to_owned());
    plan.observe.metrics_interval_ns = 20 * NS_PER_MS;
    // The prober must not disturb what the server sees.
    Watch::start(&plan)
}

/// A server that serves `metrics` and refuses everything else.
fn metrics_server(metrics: impl Into<Vec<u8>>) -> Server {
    let metrics = metrics.into();
    Server::start(move |request, stream| {
        let _ = match request.path() {
            "/metrics" => stream.write_all(&metrics),
            _ => stream.write_all(response("404 Not Found", "text/plain", "").as_bytes()),
        };
    })
}

fn wait_for_scrapes(server: &Server, count: usize) {
    let deadline = std::time::Instant::now() + PATIENCE;
    let scrapes = || {
        let seen = server.seen.lock().unwrap();
        seen.iter().filter(|r| r.path() == "/metrics").count()
    };
    while scrapes() < count {
        assert!(std::time::Instant::now() < deadline, "no scrape came");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_recorded_body_becomes_rows() {
    let server = metrics_server(response("200 OK", "text/plain; version=0.0.4", RECORDED));
    let watch = scraping(&server.url());
    wait_for_scrapes(&server, 6);
    let summary = watch.stop();
    let scrapes = &summary.scrapes[0];
    assert!(scrapes.scrapes >= 1, "{scrapes:?}");
    assert_eq!(scrapes.malformed_lines, 0);
    assert_eq!(scrapes.dropped_samples, 0);
    let table = &summary.metrics;
    let lines = RECORDED.lines().filter(|l| !l.starts_with('#')).count();
    assert_eq!(table.series.len(), lines);
    assert_eq!(table.samples.len() as u64, lines as u64 * scrapes.scrapes);
    let running = table.summed("r0", "vllm:num_requests_running");
    assert_eq!(running.len() as u64, scrapes.scrapes);
    assert!(running.iter().all(|(_, v)| *v == 8.0));
    assert!(running.windows(2).all(|w| w[0].0 < w[1].0));
    assert!(running[0].0 >= 0);
}

#[test]
fn errors_name_their_reason() {
    let short = RECORDED.len() + 100;
    let cases: [(Vec<u8>, &str); 7] = [
        (
            response("503 Service Unavailable", "text/plain", "").into(),
            "http_status 503",
        ),
        (
            response("200 OK", "text/html", "<!doctype html>\n").into(),
            "not Prometheus text: line 1",
        ),
        (
            response("200 OK", "text/plain", "").into(),
            "the body holds no sample",
        ),
        (
            response("200 OK", "text/plain", "# HELP a b\n").into(),
            "the body holds no sample",
        ),
        // A body that ends early is no shorter set of samples.
        (
            format!("HTTP/1.1 200 OK\r\ncontent-length: {short}\r\n\r\n{RECORDED}").into(),
            "truncated: ",
        ),
        (
            format!(
                "HTTP/1.1 200 OK\r\n\r\n{}",
                "a_metric 1\n".repeat(9 * 1024 * 1024 / 11)
            )
            .into(),
            "the body is larger than",
        ),
        (b"garbage\r\n\r\n".to_vec(), "request: "),
    ];
    for (bytes, expected) in cases {
        let server = metrics_server(bytes);
        let watch = scraping(&server.url());
        // On a busy machine the timeout may come first.
        let reason = loop {
            let reason = watch.scrape_error();
            if !reason.starts_with("timeout: ") && !reason.starts_with("late: ") {
                break reason;
            }
        };
        assert!(reason.starts_with(expected), "{expected}: {reason}");
        let summary = watch.stop();
        assert!(summary.scrapes[0].errors >= 1);
        assert!(summary.metrics.samples.is_empty());
    }
}

#[test]
fn refusal_and_silence_are_errors() {
    let refusing = Reserved::new();
    let watch = scraping(&refusing.url());
    let reason = watch.scrape_error();
    assert!(reason.starts_with("connect: "), "{reason}");
    watch.stop();
    let silent = Server::start(|_, stream| hold(stream));
    let watch = scraping(&silent.url());
    assert_eq!(
        watch.scrape_error(),
        "timeout: no whole answer within 1000 ms"
    );
    // The ticks that it cost are said as well.
    assert!(watch.scrape_error().starts_with("late: "));
    watch.stop();
}

#[test]
fn bad_lines_cost_only_themselves_and_are_said_once() {
    let body = "good 1\nbad{ 2\ngood 3\nother{a=\"b\"} 4\n";
    let server = metrics_server(response("200 OK", "text/plain", body));
    let watch = scraping(&server.url());
    let note = watch.next(|kind| match kind {
        EventKind::Note { text } => Some(text),
        _ => None,
    });
    assert!(
        note.contains("2 line(s)") && note.contains("first line 2"),
        "{note}"
    );
    wait_for_scrapes(&server, 6);
    let summary = watch.stop();
    assert_eq!(
        summary.scrapes[0].malformed_lines,
        2 * summary.scrapes[0].scrapes
    );
    assert_eq!(summary.metrics.series.len(), 2);
    assert!(
        summary
            .metrics
            .summed("r0", "good")
            .iter()
            .all(|(_, v)| *v == 1.0)
    );
}

#[test]
fn too_many_series_are_said_and_not_kept() {
    let mut body = String::new();
    for i in 0..20_010 {
        body.push_str(&format!("m{{i=\"{i}\"}} 1\n"));
    }
    body.push_str("vllm:num_requests_waiting 7\n");
    let server = metrics_server(response("200 OK", "text/plain", &body));
    let watch = scraping(&server.url());
    let note = watch.next(|kind| match kind {
        EventKind::Note { text } => Some(text),
        _ => None,
    });
    assert!(note.contains("more than 20000 series"), "{note}");
    let summary = watch.stop();
    // The gauge that a gate needs is kept all the same.
    assert_eq!(summary.metrics.series.len(), 20_001);
    assert_eq!(
        summary.scrapes[0].dropped_samples,
        10 * summary.scrapes[0].scrapes
    );
    let waiting = summary.metrics.summed("r0", "vllm:num_requests_waiting");
    assert!(!waiting.is_empty() && waiting.iter().all(|(_, v)| *v == 7.0));
}
