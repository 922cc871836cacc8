//! The supervisor with real processes: life, restarts, orphans, logs, death of the instrument.

mod support;

use std::process::{Command, Stdio};

use blackstart_plan::{OrphanPolicy, RestartPolicy};
use blackstart_record::ReplicaStep;
use blackstart_targets::{ProcessRef, Signal, Supervised, TargetError};
use support::*;

fn launch(
    plan: &blackstart_plan::ReplicaPlan,
    dir: &tempfile::TempDir,
    events: &Events,
) -> Result<Supervised, TargetError> {
    Supervised::launch(
        plan,
        &dir.path().join("server-r0.log"),
        clock(),
        &helper(),
        events.sink(),
    )
}

fn refused(plan: &blackstart_plan::ReplicaPlan) -> TargetError {
    let dir = tempfile::tempdir().expect("dir");
    match launch(plan, &dir, &Events::default()) {
        Ok(_) => panic!("it was launched"),
        Err(e) => e,
    }
}

fn log_lines(dir: &tempfile::TempDir) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(dir.path().join("server-r0.log")).expect("log");
    text.lines()
        .map(|l| {
            let (stamp, rest) = l.split_once(' ').expect("stamp");
            (stamp.to_owned(), rest.to_owned())
        })
        .collect()
}

fn kill(pid: u32) {
    ProcessRef::open(pid)
        .expect("lives")
        .send(Signal::Kill)
        .expect("killed");
}

/// The supervisor may run at real-time priority; the system under test must run as it always does.
#[test]
fn a_server_runs_under_the_ordinary_scheduler() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let plan = replica("exec sleep 1000");
    let server = launch(&plan, &dir, &events).expect("launched");
    let (main, _) = server.main().expect("main");
    let stat = std::fs::read_to_string(format!("/proc/{main}/stat")).expect("stat");
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .expect("title")
        .1
        .split_ascii_whitespace()
        .collect();
    // Fields 19 (nice), 40 (real-time priority) and 41 (policy) of proc(5); the title is the second.
    assert_eq!((fields[16], fields[37], fields[38]), ("0", "0", "0"));
    let slack = |pid: &str| {
        std::fs::read_to_string(format!("/proc/{pid}/timerslack_ns")).expect("timer slack")
    };
    assert_eq!(slack(&main.to_string()), slack("self"));
}

#[test]
fn a_tree_is_started_logged_and_stopped_completely() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let nap = unique_sleep();
    let plan = replica(&format!(
        "echo out; echo err >&2; printf unfinished; sleep {nap} & setsid sleep {nap} & wait"
    ));
    let server = launch(&plan, &dir, &events).expect("launched");
    let (main, start_time) = server.main().expect("main");
    until("both sleeps", || with_text(&nap).len() >= 3);
    let held = ProcessRef::open_same(main, start_time).expect("main lives");
    assert!(server.contains(&held));
    let bystander = Bystander::sleep("1000");
    assert!(!server.contains(&ProcessRef::open(bystander.pid()).expect("lives")));
    assert_eq!(server.stop(), Vec::<String>::new());
    assert!(with_text(&nap).is_empty());
    assert!(lives(bystander.pid()));
    assert!(matches!(
        events.steps().last(),
        Some(ReplicaStep::Exited { pid, signal: Some(15), .. }) if *pid == main
    ));
    let lines = log_lines(&dir);
    let texts: Vec<&str> = lines.iter().map(|l| l.1.as_str()).collect();
    assert_eq!(texts, ["out", "err", "unfinished"]);
    // Fixed width: the order of the texts is the order of the instants.
    assert!(lines.is_sorted_by(|a, b| a.0 <= b.0), "{lines:?}");
    assert!(lines.iter().all(|l| l.0.len() == 30 && l.0.ends_with('Z')));
}

#[test]
fn a_killed_server_comes_back_and_its_orphans_are_killed_first() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let nap = unique_sleep();
    let mut plan = replica(&format!("printf begun; sleep {nap} & wait"));
    process(&mut plan).restart = RestartPolicy::OnFailure;
    let server = launch(&plan, &dir, &events).expect("launched");
    let (main, _) = server.main().expect("main");
    until("its sleep", || {
        with_text(&format!("sleep {nap}")).len() >= 2
    });
    kill(main);
    let again = events.wait("second start", |s| {
        matches!(s, ReplicaStep::Started { restarts: 1, .. })
    });
    let steps = events.steps();
    let [
        ReplicaStep::Started { restarts: 0, .. },
        ReplicaStep::Exited {
            pid,
            code: None,
            signal: Some(9),
            orphans,
            ..
        },
        ReplicaStep::OrphansGone {
            count: 1,
            killed: true,
            ..
        },
        ReplicaStep::Started { pid: new, .. },
    ] = steps.as_slice()
    else {
        panic!("{steps:?}, {again:?}");
    };
    assert_eq!(*pid, main);
    assert_ne!(*new, main);
    assert!(orphans[0].contains(&nap), "{orphans:?}");
    assert_eq!(server.restarts(), 1);
    assert_eq!(server.last_exit(), Some((None, Some(9))));
    assert!(server.living_orphans().is_empty());
    until("its second sleep", || {
        with_text(&format!("sleep {nap}")).len() >= 2
    });
    server.stop();
    // The dead server's unfinished line is not continued by its successor.
    let texts: Vec<String> = log_lines(&dir).into_iter().map(|l| l.1).collect();
    assert_eq!(texts, ["begun", "begun"]);
}

#[test]
fn orphans_that_are_left_are_recorded_watched_and_removed_at_the_end() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let nap = unique_sleep();
    // Only the first life has children: a marker file tells.
    let marker = dir.path().join("second");
    let mut plan = replica(&format!(
        "if [ -e {m} ]; then exec sleep 90; fi; touch {m}; sleep {nap} & sleep {nap} & wait",
        m = marker.display()
    ));
    process(&mut plan).restart = RestartPolicy::Always;
    process(&mut plan).orphans = OrphanPolicy::Leave;
    let server = launch(&plan, &dir, &events).expect("launched");
    let (main, _) = server.main().expect("main");
    until("its sleeps", || server_sleeps(&nap).len() == 2);
    kill(main);
    events.wait("second start", |s| {
        matches!(s, ReplicaStep::Started { restarts: 1, .. })
    });
    let orphans = server.living_orphans();
    assert_eq!(orphans.len(), 2, "{orphans:?}");
    for (pid, _) in &orphans {
        let held = ProcessRef::open(*pid).expect("left alive");
        assert!(server.contains(&held), "adopted by the supervisor");
        kill(*pid);
    }
    let gone = events.wait("orphans gone", |s| {
        matches!(s, ReplicaStep::OrphansGone { .. })
    });
    assert!(
        matches!(
            gone,
            ReplicaStep::OrphansGone {
                count: 2,
                killed: false,
                ..
            }
        ),
        "{gone:?}"
    );
    assert!(server.living_orphans().is_empty());
    server.stop();
    assert!(server_sleeps(&nap).is_empty());
}

fn server_sleeps(nap: &str) -> Vec<u32> {
    with_text(nap)
        .into_iter()
        .filter(|p| blackstart_targets::proc::cmdline(*p).is_some_and(|c| c.starts_with("sleep")))
        .collect()
}

#[test]
fn exit_zero_is_not_a_failure_and_a_number_is() {
    for (script, policy, back) in [
        ("exit 0", RestartPolicy::OnFailure, false),
        ("exit 3", RestartPolicy::No, false),
        ("exit 3", RestartPolicy::OnFailure, true),
        ("exit 0", RestartPolicy::Always, true),
    ] {
        let dir = tempfile::tempdir().expect("dir");
        let events = Events::default();
        let mut plan = replica(script);
        process(&mut plan).restart = policy;
        let server = launch(&plan, &dir, &events).expect("launched");
        if back {
            events.wait("third start", |s| {
                matches!(s, ReplicaStep::Started { restarts: 2, .. })
            });
        } else {
            let step = events.wait("not restarted", |s| {
                matches!(s, ReplicaStep::NotRestarted { .. })
            });
            assert!(server.main().is_none(), "{step:?}");
            assert_eq!(server.restarts(), 0);
        }
        let code = script[5..].parse::<i32>().expect("code");
        assert_eq!(server.last_exit(), Some((Some(code), None)));
    }
}

#[test]
fn a_server_that_ignores_term_is_killed_after_its_time() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let nap = unique_sleep();
    let mut plan = replica(&format!(
        "trap '' TERM; sleep {nap}; sleep {nap}; sleep {nap}; sleep {nap}"
    ));
    process(&mut plan).stop_timeout_ns = 200_000_000;
    let server = launch(&plan, &dir, &events).expect("launched");
    until("its sleep", || !server_sleeps(&nap).is_empty());
    assert_eq!(server.stop(), Vec::<String>::new());
    assert!(with_text(&nap).is_empty());
    assert_eq!(server.last_exit(), Some((None, Some(9))));
}

#[test]
fn a_frozen_server_is_stopped_in_good_order() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let plan = replica("trap 'exit 7' TERM; while :; do sleep 0.05; done");
    let server = launch(&plan, &dir, &events).expect("launched");
    let (main, _) = server.main().expect("main");
    let held = ProcessRef::open(main).expect("lives");
    // Its trap must be set before it is frozen.
    until("its loop", || {
        blackstart_targets::proc::snapshot()
            .expect("proc")
            .descendants(main)
            .iter()
            .any(|s| s.comm == "sleep")
    });
    held.send(Signal::Stop).expect("stopped");
    until("frozen", || held.state() == Some('T'));
    assert_eq!(server.stop(), Vec::<String>::new());
    assert_eq!(server.last_exit(), Some((Some(7), None)));
}

#[test]
fn a_server_below_a_launcher_is_stopped_in_good_order_too() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let server_script = "trap 'echo in good order; exit 0' TERM; echo ready; \
                         while :; do sleep 0.02; done";
    let plan = replica(&format!("sh -c \"{server_script}\" & wait"));
    let server = launch(&plan, &dir, &events).expect("launched");
    until("its trap", || {
        std::fs::read_to_string(dir.path().join("server-r0.log")).is_ok_and(|l| l.contains("ready"))
    });
    assert_eq!(server.stop(), Vec::<String>::new());
    let texts: Vec<String> = log_lines(&dir).into_iter().map(|l| l.1).collect();
    // The shell may say between them that its own child was terminated.
    assert_eq!(texts.last().map(String::as_str), Some("in good order"));
}

#[test]
fn dropping_it_stops_the_tree_also_in_a_panic() {
    let nap = unique_sleep();
    let caught = std::panic::catch_unwind(|| {
        let dir = tempfile::tempdir().expect("dir");
        let plan = replica(&format!("sleep {nap} & wait"));
        let _server = launch(&plan, &dir, &Events::default()).expect("launched");
        until("its sleep", || !server_sleeps(&nap).is_empty());
        panic!("on purpose");
    });
    assert!(caught.is_err());
    assert!(with_text(&nap).is_empty());
}

#[test]
fn the_end_of_the_lifeline_stops_the_tree_and_a_sigterm_does_too() {
    use std::io::{BufRead, BufReader, Write};
    for by_signal in [false, true] {
        let dir = tempfile::tempdir().expect("dir");
        let nap = unique_sleep();
        let mut plan = replica(&format!("sleep {nap} & setsid sleep {nap} & wait"));
        let config = blackstart_targets::supervisor::Config::new(
            "r0",
            process(&mut plan),
            dir.path().join("log"),
            &clock(),
        );
        let mut child = Bystander(
            Command::new(helper().program)
                .arg("__supervise")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("supervisor"),
        );
        let mut stdin = child.0.stdin.take().expect("stdin");
        let line = serde_json::to_string(&config).expect("json");
        writeln!(stdin, "{line}").expect("sent");
        let mut out = BufReader::new(child.0.stdout.take().expect("stdout"));
        let mut line = String::new();
        out.read_line(&mut line).expect("started");
        assert!(line.contains("started"), "{line}");
        until("both sleeps", || server_sleeps(&nap).len() == 2);
        // A terminal's Ctrl-C does not concern it.
        let held = ProcessRef::open(child.pid()).expect("lives");
        held.send(Signal::Int).expect("sent");
        if by_signal {
            held.send(Signal::Term).expect("sent");
        } else {
            drop(stdin);
        }
        until("supervisor gone", || held.has_ended());
        assert!(with_text(&nap).is_empty());
        assert!(child.0.wait().expect("reaped").success());
    }
}

#[test]
fn a_killed_supervisor_leaves_nothing_behind() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let nap = unique_sleep();
    let plan = replica(&format!("sleep {nap} & wait"));
    let server = launch(&plan, &dir, &events).expect("launched");
    until("its sleep", || !server_sleeps(&nap).is_empty());
    kill(server.supervisor_pid());
    until("tree gone", || with_text(&nap).is_empty());
    assert!(server.main().is_none());
    until("a note", || {
        events.all().iter().any(|e| {
            matches!(&e.kind, blackstart_record::EventKind::Note { text }
                if text.contains("ended unexpectedly"))
        })
    });
}

#[test]
fn what_can_be_mended_is_said_before_anything_starts() {
    let mut plan = replica("true");
    process(&mut plan).command = vec!["no-such-program-here".to_owned()];
    let text = refused(&plan).to_string();
    assert!(
        text.contains("no-such-program-here") && text.contains("PATH") && text.contains("`r0`"),
        "{text}"
    );

    process(&mut plan).command = vec!["/proc/version".to_owned()];
    let error = refused(&plan);
    assert!(
        matches!(error, TargetError::NotExecutable { .. }),
        "{error}"
    );

    process(&mut plan).command = vec![];
    assert!(matches!(refused(&plan), TargetError::EmptyCommand { .. }));

    let mut plan = replica("true");
    process(&mut plan).cwd = Some("/no/such/directory".to_owned());
    let error = refused(&plan);
    assert!(matches!(error, TargetError::CwdMissing { .. }), "{error}");

    let mut plan = replica("true");
    plan.base_url = "localhost:80".to_owned();
    assert!(matches!(refused(&plan), TargetError::BadAddress { .. }));
}

#[test]
fn a_port_in_use_is_refused_with_its_holder() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let address = listener.local_addr().expect("address");
    let mut plan = replica("true");
    plan.base_url = format!("http://{address}");
    let text = refused(&plan).to_string();
    assert!(text.contains(&format!("port {}", address.port())), "{text}");
    assert!(
        text.contains(&format!("pid {}", std::process::id())),
        "{text}"
    );
}

#[test]
fn a_program_that_the_system_refuses_is_an_error_of_the_launch() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("dir");
    let program = dir.path().join("not-a-program");
    std::fs::write(&program, "#!/no/such/interpreter\n").expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("mode");
    let mut plan = replica("true");
    process(&mut plan).command = vec![program.display().to_string()];
    let error = refused(&plan);
    assert!(matches!(error, TargetError::LaunchFailed { .. }), "{error}");
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_of_the_launch() {
    let plan = replica("sleep 60");
    let result = Supervised::launch(
        &plan,
        std::path::Path::new("/no/such/directory/server.log"),
        clock(),
        &helper(),
        Events::default().sink(),
    );
    let Err(error) = result else {
        panic!("it was launched");
    };
    assert!(error.to_string().contains("/no/such/directory"), "{error}");
}

#[test]
fn a_flood_of_lines_is_kept_whole_and_in_order() {
    let dir = tempfile::tempdir().expect("dir");
    let events = Events::default();
    let plan = replica("i=0; while [ $i -lt 20000 ]; do echo line-$i; i=$((i+1)); done");
    let server = launch(&plan, &dir, &events).expect("launched");
    events.wait("its end", |s| matches!(s, ReplicaStep::NotRestarted { .. }));
    server.stop();
    let lines = log_lines(&dir);
    assert_eq!(lines.len(), 20_000);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(line.1, format!("line-{index}"));
    }
    assert!(lines.is_sorted_by(|a, b| a.0 <= b.0));
}
