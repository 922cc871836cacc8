//! The fault world: what reaches the timeline, and what does not.

use std::sync::Arc;

use blackstart_plugins::{
    ArmContext, EffectAction, EffectEvent, Ending, Fact, FaultPlugin, Grants, GuestError,
    PluginError, Proof, Signal,
};

use crate::support::{Guest, Recorder, engine, requesting, signalling};

fn context() -> ArmContext {
    ArmContext {
        config: r#"{"signal":"KILL"}"#.into(),
        seed: 7,
        fire_at_ns: 1000,
        expire_at_ns: 2000,
        run_end_ns: 3000,
        victims: vec!["vllm-0".into()],
    }
}

fn grants() -> Grants {
    Grants::new(
        vec!["vllm-*".into()],
        vec!["http://127.0.0.1:9000/admin/*".into()],
    )
    .unwrap()
}

/// Arms the guest; gives back its answer and what it scheduled.
fn arm(guest: &Guest) -> (Result<String, GuestError>, Arc<Recorder>) {
    let host = Arc::new(Recorder::default());
    let mut fault =
        FaultPlugin::instantiate(&engine(), &guest.artifact(), &grants(), host.clone()).unwrap();
    let answer = match fault.arm(&context()) {
        Ok(armed) => Ok(armed.statement),
        Err(PluginError::Guest { error, .. }) => Err(error),
        Err(other) => panic!("{other}"),
    };
    (answer, host)
}

#[test]
fn a_fault_describes_arms_observes_and_proves() {
    let host = Arc::new(Recorder::default());
    let mut fault = FaultPlugin::instantiate(
        &engine(),
        &Guest::fault("good").artifact(),
        &Grants::none(),
        host,
    )
    .unwrap();
    let info = fault.describe();
    assert_eq!(info.plugin.name, "good");
    assert_eq!(info.plugin.summary, "a fault");
    assert_eq!(info.ending, Ending::VictimRestarts);
    let armed = fault.arm(&context()).unwrap();
    assert_eq!((armed.victims, armed.statement.as_str()), (vec![], "armed"));
    fault.observe(1, &EffectEvent::Started(5)).unwrap();
    fault
        .observe(1, &EffectEvent::Failed("no such process".into()))
        .unwrap();
    let fact = Fact {
        replica: "vllm-0".into(),
        name: "process.api.pid".into(),
        before: Some("7".into()),
        during: None,
        after: Some("9".into()),
    };
    assert_eq!(
        fault.prove(&[fact]).unwrap(),
        Proof::Happened("armed".into())
    );
}

#[test]
fn a_signal_that_is_granted_reaches_the_timeline() {
    let (answer, host) = arm(&signalling("kill", "vllm-0", "engine", 1, None));
    assert_eq!(answer, Ok("armed".into()));
    let effects = host.effects.lock().unwrap();
    assert_eq!(effects.len(), 1);
    assert_eq!((effects[0].at_ns, effects[0].until_ns), (1000, None));
    assert_eq!(
        effects[0].action,
        EffectAction::Signal {
            replica: "vllm-0".into(),
            process_role: "engine".into(),
            signal: Signal::Kill,
        }
    );
}

#[test]
fn a_stop_is_scheduled_with_its_end() {
    let (answer, host) = arm(&signalling("stop", "vllm-1", "api", 2, Some(2000)));
    assert_eq!(answer, Ok("armed".into()));
    assert_eq!(host.effects.lock().unwrap()[0].until_ns, Some(2000));
}

#[test]
fn signals_that_may_not_be_sent_never_reach_the_timeline() {
    for (guest, says) in [
        (
            signalling("a", "other", "api", 1, None),
            "are not granted: [fault.grant] process = [\"vllm-*\"]",
        ),
        (
            signalling("a", "vllm-9", "api", 1, None),
            "there is no replica `vllm-9`; replicas: vllm-0, vllm-1, other",
        ),
        (
            signalling("a", "vllm-0", "init", 1, None),
            "has no process `init`; processes: api, engine",
        ),
        (
            signalling("a", "vllm-0", "api", 1, Some(2000)),
            "only STOP can be undone",
        ),
        (
            signalling("a", "vllm-0", "api", 2, Some(999)),
            "cannot end before it starts",
        ),
    ] {
        let (answer, host) = arm(&guest);
        let error = answer.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(host.effects.lock().unwrap().len(), 0, "{error}");
    }
    let (denied, _) = arm(&signalling("a", "other", "api", 1, None));
    assert!(matches!(denied, Err(GuestError::Denied(_))));
}

#[test]
fn effects_beyond_the_run_never_reach_the_timeline() {
    let url = "http://127.0.0.1:9000/admin/stall";
    let plain = ("a", "b");
    for guest in [
        signalling("a", "vllm-0", "api", 2, Some(2001)),
        requesting("a", url, plain, Some(url), Some(2001)),
        // No end, or one that the clock never shows.
        signalling("a", "vllm-0", "api", 2, Some(i64::MAX)),
    ] {
        let (answer, host) = arm(&guest);
        let error = answer.unwrap_err().to_string();
        assert!(
            error.contains("0.000002 s") && error.contains("`phases.fault_window`"),
            "{error}"
        );
        assert_eq!(host.effects.lock().unwrap().len(), 0, "{error}");
    }
    // The guests' effects start at 1000 ns.
    let armed_until = |run_end_ns: i64| {
        let host = Arc::new(Recorder::default());
        let guest = signalling("a", "vllm-0", "api", 1, None).artifact();
        let mut fault =
            FaultPlugin::instantiate(&engine(), &guest, &grants(), host.clone()).unwrap();
        let answer = fault.arm(&ArmContext {
            run_end_ns,
            ..context()
        });
        (answer, host.effects.lock().unwrap().len())
    };
    assert!(matches!(armed_until(1000), (Ok(_), 1)));
    let (answer, scheduled) = armed_until(999);
    let error = answer.unwrap_err().to_string();
    assert!(
        error.contains("0.000001 s would come after the end of the run at 0.000000999 s"),
        "{error}"
    );
    assert_eq!(scheduled, 0);
}

#[test]
fn requests_are_held_to_the_granted_urls() {
    let url = "http://127.0.0.1:9000/admin/stall";
    let (answer, host) = arm(&requesting(
        "ok",
        url,
        ("x-run", "7"),
        Some(url),
        Some(2000),
    ));
    assert_eq!(answer, Ok("armed".into()));
    let effects = host.effects.lock().unwrap();
    let EffectAction::Http { request, on_expiry } = &effects[0].action else {
        panic!("{effects:?}");
    };
    assert_eq!(request.url, url);
    assert_eq!(request.method, "POST");
    assert_eq!(request.body, b"{}");
    assert_eq!(on_expiry.as_ref(), Some(request));

    let evil = "http://127.0.0.1:9000@evil/admin/x";
    let plain = ("a", "b");
    for (guest, says) in [
        (
            requesting("a", "http://127.0.0.1:9000/v1/chat", plain, None, None),
            "not granted",
        ),
        (requesting("a", evil, plain, None, None), "user information"),
        (
            requesting(
                "a",
                url,
                plain,
                Some("http://127.0.0.1:9001/admin/x"),
                Some(2000),
            ),
            "not granted",
        ),
        (
            requesting("a", url, plain, None, Some(2000)),
            "exactly when",
        ),
        (requesting("a", url, plain, Some(url), None), "exactly when"),
        (
            requesting("a", url, ("a", "b\r\nHost: evil"), None, None),
            "control characters",
        ),
        (requesting("a", url, ("Host", "evil"), None, None), "`Host`"),
        (requesting("a", url, ("a b", "c"), None, None), "tokens"),
    ] {
        let (answer, host) = arm(&guest);
        let error = answer.unwrap_err();
        assert!(error.to_string().contains(says), "{says}: {error}");
        assert_eq!(host.effects.lock().unwrap().len(), 0, "{error}");
    }
}

#[test]
fn the_number_of_effects_is_bounded() {
    let guest = signalling("many", "vllm-0", "api", 1, None);
    let host = Arc::new(Recorder::default());
    let mut fault =
        FaultPlugin::instantiate(&engine(), &guest.artifact(), &grants(), host.clone()).unwrap();
    for _ in 0..blackstart_plugins::MAX_EFFECTS {
        fault.arm(&context()).unwrap();
    }
    let error = fault.arm(&context()).unwrap_err();
    assert!(error.to_string().contains("at most 256 effects"), "{error}");
    assert_eq!(
        host.effects.lock().unwrap().len(),
        blackstart_plugins::MAX_EFFECTS
    );
}

#[test]
fn effects_are_scheduled_in_arm_and_observe_only() {
    let guest = signalling("late", "vllm-0", "api", 1, None);
    // `prove` schedules as well, and traps when it is refused.
    let call = guest.body("arm");
    let (call, _) = call.split_once("(select").unwrap();
    let result = call.rsplit_once("(i32.const ").unwrap().1;
    let result = result.split(')').next().unwrap();
    let body =
        format!("{call} (if (i32.load8_u (i32.const {result})) (then unreachable)) (i32.const 0)");
    let host = Arc::new(Recorder::default());
    let artifact = guest.with("prove", &body).artifact();
    let mut fault =
        FaultPlugin::instantiate(&engine(), &artifact, &grants(), host.clone()).unwrap();
    fault.arm(&context()).unwrap();
    assert!(fault.prove(&[]).unwrap_err().is_quarantine());
    assert_eq!(host.effects.lock().unwrap().len(), 1);
}
