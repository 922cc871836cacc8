//! Victims: found, authorised, described by facts; bystanders never.

mod support;

use std::io::Write;

use blackstart_plan::{
    Accelerators, OrphanPolicy, ReplicaPlan, RestartPolicy, Routing, RuntimePlan, TargetPlan,
};
use blackstart_record::Fact;
use blackstart_targets::{GuardError, ProcessRef, Signal, TargetError, Targets};
use support::*;

fn plan(replicas: Vec<ReplicaPlan>) -> TargetPlan {
    TargetPlan {
        replicas,
        service_url: None,
        routing: Routing::Direct,
        accelerators: Accelerators::None,
    }
}

fn launch(replicas: Vec<ReplicaPlan>, dir: &tempfile::TempDir) -> Result<Targets, TargetError> {
    Targets::launch(
        &plan(replicas),
        dir.path(),
        clock(),
        &helper(),
        Events::default().sink(),
    )
}

fn url_replica(pid: Option<u32>, command_match: Option<&str>) -> ReplicaPlan {
    let mut plan = replica("");
    plan.id = "u0".to_owned();
    plan.runtime = RuntimePlan::Url {
        log_file: None,
        pid,
        command_match: command_match.map(str::to_owned),
    };
    plan
}

fn refused(result: Result<Targets, TargetError>) -> TargetError {
    match result {
        Ok(_) => panic!("accepted"),
        Err(e) => e,
    }
}

fn value<'f>(facts: &'f [Fact], name: &str) -> Option<&'f str> {
    facts
        .iter()
        .find(|f| f.name == name)
        .unwrap_or_else(|| panic!("no fact {name}"))
        .value
        .as_deref()
}

#[test]
fn roles_of_a_supervised_tree_and_facts_over_a_kill() {
    let dir = tempfile::tempdir().expect("dir");
    let nap = unique_sleep();
    let mut server = replica(&format!("sleep {nap} & wait"));
    process(&mut server).restart = RestartPolicy::Always;
    process(&mut server).orphans = OrphanPolicy::Leave;
    let targets = launch(vec![server], &dir).expect("launched");
    until("its engine", || {
        targets.resolve_role("r0", "engine").is_ok()
    });
    let api = targets.resolve_role("r0", "api").expect("api");
    let engine = targets.resolve_role("r0", "engine").expect("engine");
    assert_ne!(api.pid(), engine.pid());

    let before = targets.facts("r0").expect("facts");
    assert_eq!(
        value(&before, "process.api.pid"),
        Some(api.pid().to_string().as_str())
    );
    assert_eq!(
        value(&before, "process.api.start-time"),
        Some(api.start_time().to_string().as_str())
    );
    assert_eq!(value(&before, "process.api.orphaned-pids"), Some(""));
    assert_eq!(value(&before, "target.restart-count"), Some("0"));
    assert_eq!(value(&before, "target.exit-code"), None);

    api.send(Signal::Kill).expect("killed");
    until("restarted", || {
        let facts = targets.facts("r0").expect("facts");
        value(&facts, "target.restart-count") == Some("1")
            && value(&facts, "process.engine.pid").is_some()
    });
    let after = targets.facts("r0").expect("facts");
    assert_ne!(
        value(&after, "process.api.pid"),
        value(&before, "process.api.pid")
    );
    // The new server's engine, not the old one's that still lives.
    assert_ne!(
        value(&after, "process.engine.pid"),
        Some(engine.pid().to_string().as_str())
    );
    assert_eq!(
        value(&after, "process.api.orphaned-pids"),
        Some(engine.pid().to_string().as_str())
    );
    assert_eq!(value(&after, "target.exit-signal"), Some("9"));
    assert_eq!(value(&after, "target.exit-code"), None);
    assert_eq!(targets.stop(), Vec::<String>::new());
    assert!(with_text(&nap).is_empty());
    let stopped = targets.facts("r0").expect("facts");
    assert_eq!(value(&stopped, "process.api.state"), Some("gone"));
    assert_eq!(value(&stopped, "process.api.pid"), None);
}

#[test]
fn only_the_named_replicas_own_processes_are_authorised() {
    let dir = tempfile::tempdir().expect("dir");
    let mut other = replica("sleep 300 & wait");
    other.id = "r1".to_owned();
    let targets = launch(vec![replica("sleep 300 & wait"), other], &dir).expect("launched");
    let bystander = Bystander::sleep("300");
    let outside = ProcessRef::open(bystander.pid()).expect("lives");
    let mine = targets.resolve_role("r0", "api").expect("r0");
    let theirs = targets.resolve_role("r1", "api").expect("r1");
    targets.authorize("r0", &mine).expect("own process");
    for stranger in [&outside, &theirs] {
        let error = targets.authorize("r0", stranger).expect_err("a stranger");
        assert!(
            matches!(error, TargetError::Guard(GuardError::Outside { .. })),
            "{error}"
        );
    }
    let me = ProcessRef::open(std::process::id()).expect("lives");
    assert!(matches!(
        targets.authorize("r0", &me),
        Err(TargetError::Guard(GuardError::Instrument { .. }))
    ));
    let supervisor = blackstart_targets::proc::stat(mine.pid())
        .expect("stat")
        .ppid;
    let supervisor = ProcessRef::open(supervisor).expect("lives");
    assert!(matches!(
        targets.authorize("r0", &supervisor),
        Err(TargetError::Guard(GuardError::Helper { .. }))
    ));
    assert!(matches!(
        targets.resolve_role("r9", "api"),
        Err(TargetError::UnknownReplica { .. })
    ));
    let error = targets.resolve_role("r0", "gpu").expect_err("no such role");
    assert!(error.to_string().contains("`api`, `engine`"), "{error}");
    mine.send(Signal::Kill).expect("killed");
    until("ended", || mine.has_ended());
    assert!(targets.authorize("r0", &mine).is_err());
    until("not found", || {
        matches!(
            targets.resolve_role("r0", "api"),
            Err(TargetError::VictimNotFound { .. })
        )
    });
    assert!(lives(bystander.pid()) && lives(theirs.pid()));
}

#[test]
fn a_running_server_is_found_by_pid_or_by_its_command() {
    let dir = tempfile::tempdir().expect("dir");
    let nap = unique_sleep();
    let server = Bystander::sleep(&nap);
    let by_pid = launch(vec![url_replica(Some(server.pid()), None)], &dir).expect("by pid");
    let by_match = launch(
        vec![url_replica(None, Some(&format!("^sleep {nap}$")))],
        &dir,
    )
    .expect("by match");
    for targets in [&by_pid, &by_match] {
        let found = targets.resolve_role("u0", "api").expect("found");
        assert_eq!(found.pid(), server.pid());
        let facts = targets.facts("u0").expect("facts");
        assert_eq!(value(&facts, "process.api.state"), Some("S"));
        assert_eq!(value(&facts, "target.restart-count"), None);
        targets.stop();
    }
    assert!(
        lives(server.pid()),
        "a server that was not launched is not stopped"
    );
    drop(server);
    for targets in [&by_pid, &by_match] {
        let facts = targets.facts("u0").expect("facts");
        assert_eq!(value(&facts, "process.api.state"), Some("gone"));
        assert!(targets.resolve_role("u0", "api").is_err());
    }
    // A restarted server is found again by its command only.
    let again = Bystander::sleep(&nap);
    assert!(by_pid.resolve_role("u0", "api").is_err());
    let found = by_match.resolve_role("u0", "api").expect("found again");
    assert_eq!(found.pid(), again.pid());
}

#[test]
fn a_match_must_be_exactly_one_tree_and_never_the_instrument() {
    let dir = tempfile::tempdir().expect("dir");
    let nap = unique_sleep();
    let error = refused(launch(vec![url_replica(None, Some(&nap))], &dir));
    assert!(matches!(error, TargetError::NoMatch { .. }), "{error}");

    let many: Vec<Bystander> = (0..10).map(|_| Bystander::sleep(&nap)).collect();
    let error = refused(launch(vec![url_replica(None, Some(&nap))], &dir)).to_string();
    assert!(error.contains("10 process trees"), "{error}");
    assert!(error.contains("and 2 more"), "{error}");
    assert_eq!(error.matches("  pid ").count(), 8, "{error}");
    drop(many);

    // Launcher and server both match: one tree, its root.
    let launcher = Bystander(
        std::process::Command::new("sh")
            .args(["-c", &format!("trap 'kill $!' TERM; sleep {nap} & wait")])
            .spawn()
            .expect("sh"),
    );
    until("its child", || with_text(&nap).len() == 2);
    let targets = launch(vec![url_replica(None, Some(&nap))], &dir).expect("one tree");
    assert_eq!(
        targets.resolve_role("u0", "api").expect("root").pid(),
        launcher.pid()
    );
    let engine = targets.resolve_role("u0", "engine").expect("child");
    assert_ne!(engine.pid(), launcher.pid());
    // When the root dies its descendants are orphans, whoever adopts them.
    drop(launcher);
    let facts = targets.facts("u0").expect("facts");
    let orphans = value(&facts, "process.api.orphaned-pids").map(str::to_owned);
    engine.send(Signal::Kill).expect("killed");
    assert!(
        orphans.is_some(),
        "without a readable /proc this test says nothing"
    );

    let own = std::fs::read_link("/proc/self/exe").expect("own program");
    let own = own
        .file_name()
        .expect("name")
        .to_string_lossy()
        .into_owned();
    let error = refused(launch(
        vec![url_replica(None, Some(&format!("{own}$|{own} ")))],
        &dir,
    ));
    assert!(matches!(error, TargetError::NoMatch { .. }), "{error}");

    let error = refused(launch(vec![url_replica(None, Some("("))], &dir));
    assert!(matches!(error, TargetError::BadMatch { .. }), "{error}");
    let error = refused(launch(
        vec![url_replica(Some(std::process::id()), None)],
        &dir,
    ));
    assert!(
        matches!(error, TargetError::Guard(GuardError::Instrument { .. })),
        "{error}"
    );
    let error = refused(launch(vec![url_replica(Some(1), None)], &dir));
    assert!(
        matches!(error, TargetError::Guard(GuardError::First { .. })),
        "{error}"
    );
    let error = refused(launch(vec![url_replica(Some(u32::MAX), None)], &dir));
    assert!(matches!(error, TargetError::PidNotFound { .. }), "{error}");
}

#[test]
fn orphans_of_a_running_server_are_remembered() {
    let dir = tempfile::tempdir().expect("dir");
    let nap = unique_sleep();
    let mut server = Bystander(
        std::process::Command::new("sh")
            .args(["-c", &format!("sleep {nap} & wait")])
            .spawn()
            .expect("sh"),
    );
    until("its child", || with_text(&nap).len() == 2);
    let targets = launch(vec![url_replica(Some(server.pid()), None)], &dir).expect("found");
    let child = targets.resolve_role("u0", "engine").expect("child");
    server.0.kill().expect("killed");
    server.0.wait().expect("reaped");
    let facts = targets.facts("u0").expect("facts");
    assert_eq!(
        value(&facts, "process.api.orphaned-pids"),
        Some(child.pid().to_string().as_str())
    );
    child.send(Signal::Kill).expect("killed");
    until("orphan gone", || {
        let facts = targets.facts("u0").expect("facts");
        value(&facts, "process.api.orphaned-pids") == Some("")
    });
}

#[test]
fn a_running_servers_log_is_followed_from_its_end_over_a_rotation() {
    let dir = tempfile::tempdir().expect("dir");
    let source = dir.path().join("vllm.log");
    std::fs::write(&source, "old line\n").expect("written");
    let mut plan = url_replica(None, None);
    if let RuntimePlan::Url { log_file, .. } = &mut plan.runtime {
        *log_file = Some(source.display().to_string());
    }
    let targets = launch(vec![plan], &dir).expect("followed");
    let copied = dir.path().join("server-u0.log");
    let texts = || -> Vec<String> {
        std::fs::read_to_string(&copied)
            .expect("log")
            .lines()
            .map(|l| l.split_once(' ').expect("stamp").1.to_owned())
            .collect()
    };
    let append = |text: &str| {
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&source)
            .expect("opened");
        file.write_all(text.as_bytes()).expect("written");
    };
    append("new line\n");
    until("a new line", || texts() == ["new line"]);
    std::fs::rename(&source, dir.path().join("vllm.log.1")).expect("rotated");
    append("after rotation\n");
    until("the rotated file", || {
        texts() == ["new line", "after rotation"]
    });
    std::fs::write(&source, "cut\n").expect("truncated");
    until("the truncated file", || texts().len() == 3);
    append("unfinished");
    let error = targets
        .resolve_role("u0", "api")
        .expect_err("no victim named");
    assert!(error.to_string().contains("command_match"), "{error}");
    drop(targets);
    assert_eq!(texts(), ["new line", "after rotation", "cut", "unfinished"]);

    let mut plan = url_replica(None, None);
    if let RuntimePlan::Url { log_file, .. } = &mut plan.runtime {
        *log_file = Some("/no/such/file.log".to_owned());
    }
    let error = refused(launch(vec![plan], &dir));
    assert!(error.to_string().contains("/no/such/file.log"), "{error}");
}
