//! Conversations against a scripted server: what is said, when, and what becomes of failed turns.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::*;
use blackstart_load::outcome::MAX_REPLY_BYTES;
use blackstart_load::{ClosedLoop, DataSet, LoadRun, OpenLoop, Pacing, Prompts, start};
use blackstart_plan::{Conversations, Schedule, Share, ThinkTime};
use blackstart_record::{CensorKind, Outcome, RequestRecord, RunRecords, read_run};
use serde_json::{Value, json};

/// What the server says to its n-th request, in pieces.
fn reply(number: u64) -> [String; 3] {
    [
        format!("reply {number} "),
        "\"quoted\"\n".to_owned(),
        "ä 😀 <b>".to_owned(),
    ]
}

fn answer(pieces: &[String]) -> String {
    let mut answer = STREAM_HEAD.to_owned();
    for piece in pieces {
        let event = json!({"choices": [{"index": 0, "delta": {"content": piece}}]});
        answer += &chunk(&format!("data: {event}\n\n"));
    }
    answer + &tail(3)
}

fn replying() -> Server {
    Server::start(|exchange| {
        exchange.send(&answer(&reply(exchange.number)));
        Then::KeepAlive
    })
}

/// An open loop of conversations that begin at these times, in ms.
fn talks(starts_ms: &[i64], turns: u32, think_ms: i64) -> OpenLoop {
    let conversations = Conversations {
        turns,
        think_time: Some(ThinkTime::Constant { ns: think_ms * MS }),
    };
    let starts = Schedule {
        intended_ns: starts_ms.iter().map(|ms| ms * MS).collect(),
    };
    let made = conversations
        .schedule(&starts, |_| turns, i64::MAX, None, 5)
        .unwrap();
    OpenLoop {
        schedule: made.schedule,
        share: Share::WHOLE,
        concurrency: None,
        turns: made.turns,
    }
}

fn drive_paced(mut run: LoadRun, pacing: Pacing) -> RunRecords {
    run.pacing = pacing;
    let dir = run.dir.clone();
    start(run).unwrap().join().unwrap();
    read_run(&dir).unwrap()
}

/// Each request that arrived: its place among all, and its messages.
fn arrived(server: &Server) -> BTreeMap<u64, (u64, Vec<Value>)> {
    let requests = server.requests.lock().unwrap();
    (0..)
        .zip(requests.iter())
        .map(|(number, text)| {
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let id = head
                .lines()
                .find_map(|l| l.strip_prefix("x-request-id: test-1-"))
                .unwrap();
            let body: Value = serde_json::from_str(body).unwrap();
            let messages = body["messages"].as_array().unwrap().clone();
            (id.parse().unwrap(), (number, messages))
        })
        .collect()
}

fn by_turn(records: &[RequestRecord]) -> BTreeMap<(u32, u32), &RequestRecord> {
    records
        .iter()
        .map(|r| ((r.conversation.unwrap(), r.turn.unwrap()), r))
        .collect()
}

fn user(text: &Value) -> Value {
    json!({"role": "user", "content": text})
}

/// Every turn carries what its user said before and what the server answered, and nothing else.
fn expect_histories(server: &Server, records: &[RequestRecord]) {
    let arrived = arrived(server);
    let turns = by_turn(records);
    for ((conversation, turn), record) in &turns {
        let mut expected = Vec::new();
        for before in 0..*turn {
            let before = turns[&(*conversation, before)];
            if before.outcome == Outcome::Completed {
                let (number, messages) = &arrived[&before.index];
                expected.push(messages.last().unwrap().clone());
                let said = reply(*number).concat();
                expected.push(json!({"role": "assistant", "content": said}));
            }
        }
        let Some((_, messages)) = arrived.get(&record.index) else {
            continue;
        };
        let now = messages.last().unwrap();
        assert_eq!(now, &user(&now["content"]));
        assert_eq!(messages[..messages.len() - 1], expected, "{record:?}");
    }
}

#[test]
fn every_turn_carries_the_whole_history_on_any_number_of_threads() {
    for threads in [1, 4] {
        let server = replying();
        let dir = tempfile::tempdir().unwrap();
        let mut plan = plan(server.url());
        plan.threads = threads;
        let starts: Vec<i64> = (1..=12).map(|k| k * 7).collect();
        let records = drive_paced(
            load_run(plan, 1, dir.path()),
            Pacing::Open(talks(&starts, 4, 25)),
        );
        assert_eq!(records.requests.len(), 48);
        assert!(
            records
                .requests
                .iter()
                .all(|r| r.outcome == Outcome::Completed)
        );
        expect_histories(&server, &records.requests);
        // Every turn says something of its own.
        let said: std::collections::HashSet<String> = arrived(&server)
            .values()
            .map(|(_, messages)| messages.last().unwrap().to_string())
            .collect();
        assert_eq!(said.len(), 48);
    }
}

#[test]
fn a_turn_waits_for_the_one_before_and_its_wait_counts() {
    let server = Server::start(|exchange| {
        std::thread::sleep(Duration::from_millis(150));
        exchange.send(&answer(&reply(exchange.number)));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Open(talks(&[10, 20], 3, 30)),
    );
    expect_histories(&server, &records.requests);
    let turns = by_turn(&records.requests);
    for ((conversation, turn), r) in &turns {
        assert_eq!(r.outcome, Outcome::Completed, "{r:?}");
        // The schedule is what it was.
        assert_eq!(
            r.intended_ns,
            (10 + 10 * i64::from(*conversation) + 30 * i64::from(*turn)) * MS
        );
        if *turn == 0 {
            assert_eq!(r.admitted_ns, None);
            continue;
        }
        let before = turns[&(*conversation, turn - 1)];
        let admitted = r.admitted_ns.expect("it waited");
        assert!(admitted >= before.ended_ns, "{r:?}");
        assert!(r.dispatched_ns.unwrap() >= admitted);
        // 150 ms for each turn so far, although each was due after 30.
        let least = (150 * (i64::from(*turn) + 1) - 30 * i64::from(*turn)) * MS;
        assert!(r.ttft_ns().unwrap() >= least, "{r:?}");
        assert!(r.send_skew_ns().unwrap() <= r.dispatched_ns.unwrap() - admitted);
    }
}

#[test]
fn a_failed_turn_is_left_out_and_the_later_ones_are_sent() {
    let server = Server::start(|exchange| {
        // The second turns: two conversations, one after the other.
        if matches!(exchange.number, 2 | 3) {
            exchange.send("HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n");
        } else {
            exchange.send(&answer(&reply(exchange.number)));
        }
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Open(talks(&[10, 20], 3, 100)),
    );
    let turns = by_turn(&records.requests);
    for conversation in 0..2 {
        let outcomes = [0, 1, 2].map(|turn| turns[&(conversation, turn)].outcome);
        assert_eq!(
            outcomes,
            [Outcome::Completed, Outcome::Errored, Outcome::Completed]
        );
        let last = &arrived(&server)[&turns[&(conversation, 2)].index];
        assert_eq!(last.1.len(), 3);
    }
    expect_histories(&server, &records.requests);
}

#[test]
fn a_censored_turn_is_left_out_and_one_that_waits_for_it_has_its_own_timeout() {
    let server = Server::start(|exchange| {
        if exchange.number == 0 {
            exchange.hang();
            return Then::Close;
        }
        exchange.send(&answer(&reply(exchange.number)));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let mut plan = plan(server.url());
    plan.timeout_ns = 300 * MS;
    plan.first_token_timeout_ns = Some(250 * MS);
    let records = drive_paced(
        load_run(plan, 1, dir.path()),
        Pacing::Open(talks(&[10], 3, 100)),
    );
    let [first, second, third] = [0, 1, 2].map(|n| &records.requests[n]);
    assert_eq!(first.censor_kind, Some(CensorKind::FirstToken));
    assert_eq!(second.outcome, Outcome::Completed, "{second:?}");
    assert!(second.admitted_ns.unwrap() >= first.ended_ns);
    assert_eq!(third.outcome, Outcome::Completed);
    expect_histories(&server, &records.requests);
}

#[test]
fn a_cap_admits_only_turns_whose_time_has_come() {
    // One at a time: a waiting turn that held the only place would wait for ever.
    let server = Server::start(|exchange| {
        std::thread::sleep(Duration::from_millis(20));
        exchange.send(&answer(&reply(exchange.number)));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let mut open = talks(&[10, 11, 12], 3, 1);
    open.concurrency = Some(1);
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Open(open),
    );
    assert_eq!(records.requests.len(), 9);
    assert!(
        records
            .requests
            .iter()
            .all(|r| r.outcome == Outcome::Completed)
    );
    expect_histories(&server, &records.requests);
}

#[test]
fn slots_of_a_closed_loop_walk_through_their_conversations() {
    let server = replying();
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Closed(ClosedLoop {
            concurrency: 3,
            requests: 20,
            end_ns: 60_000 * MS,
            turns: Some(3),
        }),
    );
    assert_eq!(records.requests.len(), 20);
    expect_histories(&server, &records.requests);
    let turns = by_turn(&records.requests);
    // Twenty requests are six whole conversations and parts of others.
    assert!(turns.keys().filter(|(_, turn)| *turn == 2).count() >= 4);
    for (conversation, turn) in turns.keys() {
        assert!(*turn == 0 || turns.contains_key(&(*conversation, turn - 1)));
    }
}

#[test]
fn parts_take_whole_conversations_and_end_early_in_good_order() {
    let server = replying();
    let mut seen = vec![None; 30];
    for number in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let starts: Vec<i64> = (1..=10).map(|k| k * 5).collect();
        let mut open = talks(&starts, 3, 12);
        open.share = Share { number, of: 3 };
        let records = drive_paced(
            load_run(plan(server.url()), 1, dir.path()),
            Pacing::Open(open.clone()),
        );
        for r in &records.requests {
            assert_eq!(r.conversation.unwrap() % 3, number);
            assert_eq!(seen[r.index as usize].replace(r.intended_ns), None);
            let turn = open.turns[r.index as usize];
            assert_eq!(
                (r.conversation, r.turn),
                (Some(turn.conversation), Some(turn.turn))
            );
        }
    }
    assert!(seen.iter().all(Option::is_some));
    // Ended early, every turn has its outcome and says which one it is.
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 1, dir.path());
    run.pacing = Pacing::Open(talks(&[10, 20], 3, 60_000));
    let handle = start(run).unwrap();
    std::thread::sleep(Duration::from_millis(200));
    handle.cancel();
    handle.join().unwrap();
    let records = read_run(dir.path()).unwrap().requests;
    assert_eq!(by_turn(&records).len(), 6);
    assert!(
        records[2..]
            .iter()
            .all(|r| r.censor_kind == Some(CensorKind::RunEnd))
    );
}

#[test]
fn a_long_reply_is_cut_at_its_bound() {
    let piece = "x".repeat(10_000);
    let server = Server::start(move |exchange| {
        let pieces = vec![piece.clone(); 8];
        exchange.send(&answer(&pieces));
        Then::KeepAlive
    });
    let dir = tempfile::tempdir().unwrap();
    let records = drive_paced(
        load_run(plan(server.url()), 1, dir.path()),
        Pacing::Open(talks(&[10], 2, 200)),
    );
    assert_eq!(records.requests[1].outcome, Outcome::Completed);
    let arrived = arrived(&server);
    let kept = arrived[&1].1[1]["content"].as_str().unwrap();
    assert_eq!(kept.len(), MAX_REPLY_BYTES / 10_000 * 10_000);
}

#[test]
fn a_data_set_says_what_the_user_says() {
    let server = replying();
    let dir = tempfile::tempdir().unwrap();
    let mut run = load_run(plan(server.url()), 1, dir.path());
    let set =
        DataSet::parse(b"{\"turns\":[\"a\",\"b\",\"c\"]}\n{\"turns\":[\"d\"]}\n{\"prompt\":\"e\"}")
            .unwrap();
    let conversations = Conversations {
        turns: set.most_turns().unwrap(),
        think_time: Some(ThinkTime::Constant { ns: 20 * MS }),
    };
    let starts = Schedule {
        intended_ns: (1..=4).map(|k| k * 10 * MS).collect(),
    };
    let made = conversations
        .schedule(&starts, |c| set.turns(c), i64::MAX, None, 1)
        .unwrap();
    run.prompts = Prompts::DataSet(set);
    let records = drive_paced(
        run,
        Pacing::Open(OpenLoop {
            turns: made.turns,
            ..OpenLoop::whole(made.schedule)
        }),
    );
    expect_histories(&server, &records.requests);
    let arrived = arrived(&server);
    let said: Vec<(u32, String)> = by_turn(&records.requests)
        .into_iter()
        .map(|((conversation, _), r)| {
            let (_, messages) = &arrived[&r.index];
            let text = messages.last().unwrap()["content"].as_str().unwrap();
            (conversation, text.to_owned())
        })
        .collect();
    let expected = [
        (0, "a"),
        (0, "b"),
        (0, "c"),
        (1, "d"),
        (2, "e"),
        (3, "a"),
        (3, "b"),
        (3, "c"),
    ];
    assert_eq!(said, expected.map(|(c, text)| (c, text.to_owned())));
}

#[test]
fn conversations_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |change: &dyn Fn(&mut LoadRun)| {
        let mut run = load_run(plan("http://127.0.0.1:1".to_owned()), 1, dir.path());
        run.pacing = Pacing::Open(talks(&[10], 2, 5));
        change(&mut run);
        start(run).unwrap_err().to_string()
    };
    let single = DataSet::parse(b"{\"prompt\":\"a\"}").unwrap();
    let error = refused(&|r| r.prompts = Prompts::DataSet(single.clone()));
    assert!(error.contains("prompts that have turns"), "{error}");
    let error = refused(&|r| r.plan.endpoint = blackstart_plan::Endpoint::Completions);
    assert!(error.contains("chat API"), "{error}");
    let error = refused(&|r| {
        let mut open = talks(&[10], 2, 5);
        open.turns.pop();
        r.pacing = Pacing::Open(open);
    });
    assert!(error.contains("compute both again"), "{error}");
}
