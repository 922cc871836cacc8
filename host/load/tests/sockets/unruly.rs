//! Servers that keep the letter of HTTP and make trouble by it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::support::*;
use blackstart_load::{ClosedLoop, Pacing, Secret, start};
use blackstart_record::{ErrorClass, Outcome, read_run};

/// The head of the next request, if the connection brings one; what comes first must be its beginning.
fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

#[test]
fn a_connection_with_half_a_request_on_it_serves_no_other() {
    // Bodies of about six megabytes, which no socket buffer takes at once.
    const WORDS: u32 = 1_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 8 << 10).unwrap();
    let address = listener.local_addr().unwrap();
    let (beginnings, seen) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let beginnings = beginnings.clone();
            std::thread::spawn(move || {
                while let Some(head) = read_head(&mut stream) {
                    let _ =
                        beginnings.send(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
                    let answer = "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 4\r\n\r\nbusy";
                    if stream.write_all(answer.as_bytes()).is_err() {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(30));
                    let length: u64 = head
                        .lines()
                        .find_map(|l| l.strip_prefix("content-length: ")?.parse().ok())
                        .unwrap();
                    let mut body = Vec::new();
                    if (&mut stream).take(length).read_to_end(&mut body).is_err() {
                        return;
                    }
                    let second = body.windows(5).any(|w| w == b"POST ");
                    let _ = beginnings.send(!second);
                }
            });
        }
    });
    let mut plan = plan(format!("http://{address}"));
    plan.prompt_words = WORDS;
    plan.threads = 1;
    let (_, run) = drive(plan, 12);
    for r in &run.requests {
        assert_eq!(
            (r.outcome, r.http_status),
            (Outcome::Errored, Some(429)),
            "{r:?}"
        );
    }
    assert!(seen.try_iter().all(|whole| whole));
}

#[test]
fn bytes_of_a_head_are_bytes() {
    let server = Server::start(|x| {
        for part in STREAM_HEAD.as_bytes().chunks(8) {
            x.send(std::str::from_utf8(part).unwrap());
            std::thread::sleep(Duration::from_millis(60));
        }
        x.send(&good_answer(3)[STREAM_HEAD.len()..]);
        Then::KeepAlive
    });
    let mut plan = plan(server.url());
    plan.idle_timeout_ns = Some(600 * MS);
    let (_, run) = drive(plan, 3);
    for r in &run.requests {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
    }
}

#[test]
fn an_explanation_that_never_comes_holds_up_no_slot() {
    let server = Server::start(|x| {
        x.send("HTTP/1.1 500 Oh\r\ncontent-length: 1000\r\n\r\nthe beginning of it");
        x.hang();
        Then::Close
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 1, dir.path());
    run.plan.timeout_ns = 60_000 * MS;
    run.pacing = Pacing::Closed(ClosedLoop {
        concurrency: 1,
        requests: 4,
        end_ns: 30_000 * MS,
        turns: None,
    });
    start(run).unwrap().join().unwrap();
    let records = read_run(dir.path()).unwrap().requests;
    assert_eq!(records.len(), 4);
    for r in &records {
        assert_eq!(r.error_class, Some(ErrorClass::HttpStatus));
        let text = r.error_text.as_deref().unwrap();
        assert!(text.contains("the beginning of it"), "{text}");
    }
}

#[test]
fn a_key_that_the_server_echoes_is_kept_in_no_form() {
    const KEY: &str = "sk-very\\secret\"key";
    let server = Server::start(|x| {
        let json = serde_json::to_string(KEY).unwrap();
        let finish = format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}},\"finish_reason\":{json}}}]}}\n\n"
        );
        match x.number % 4 {
            0 => {
                x.send(
                    &(STREAM_HEAD.to_owned()
                        + &chunk(&finish)
                        + &chunk("data: [DONE]\n\n")
                        + "0\r\n\r\n"),
                );
            }
            1 => x.send(
                &(STREAM_HEAD.to_owned()
                    + &chunk(&format!("data: {{\"error\":{{\"seen\":{json}}}}}\n\n"))),
            ),
            2 => {
                // Cut in the middle of the key.
                let body = " ".repeat((8 << 10) - 9) + KEY;
                x.send(&format!(
                    "HTTP/1.1 500 Oh\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                ));
            }
            _ => {
                let body = format!("<p>{KEY} or {json}</p>");
                x.send(&format!(
                    "HTTP/1.1 401 No\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                ));
            }
        }
        Then::Close
    });
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 8, dir.path());
    run.api_key = Some(Secret::new(KEY));
    let (_, run) = finish(start(run).unwrap(), dir.path(), 8);
    for r in &run.requests {
        let kept = format!("{r:?}");
        assert!(!kept.contains("sk-v"), "{kept}");
        assert!(
            r.error_text.is_some() || r.finish_reason.is_some(),
            "{kept}"
        );
    }
}
