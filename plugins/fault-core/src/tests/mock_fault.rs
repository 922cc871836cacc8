use blackstart_sdk::Error;
use blackstart_sdk::config::parse;
use blackstart_sdk::fault::{FaultVariant, Proof};
use blackstart_sdk::testing::{FakeHost, SECOND, arm_context, fact};

use crate::mock_fault::{Config, Fault as MockFault};

fn arm(config: &str, host: &mut FakeHost) -> Result<MockFault, Error> {
    let context = arm_context(&["vllm-1"]);
    MockFault::arm(parse::<Config>(config)?, &context, host).map(|(fault, _)| fault)
}

fn wrong_keys(config: &str) -> Vec<String> {
    match parse::<Config>(config) {
        Err(Error::InvalidConfig(errors)) => errors.into_iter().map(|e| e.path).collect(),
        other => panic!("expected a configuration error, got {other:?}"),
    }
}

#[test]
fn the_mode_is_switched_on_and_off_at_the_victims_admin_url() {
    let mut host = FakeHost::default();
    host.targets[1].attributes[0].value = "http://127.0.0.1:9001/".into();
    arm(
        r#"{"mode":"error","status":503,"delay_ms":20,"fraction":0.5,"duration_ms":2000}"#,
        &mut host,
    )
    .expect("arms");
    let sent = &host.requests[0];
    let off = sent.on_expiry.as_ref().expect("it is undone");
    for request in [&sent.request, off] {
        assert_eq!(request.method, "POST");
        assert_eq!(request.url, "http://127.0.0.1:9001/admin/fault");
        assert_eq!(request.headers[0].value, "application/json");
    }
    let body = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).expect("JSON");
    let on = body(&sent.request.body);
    assert_eq!(
        on,
        serde_json::json!({"mode": "error", "status": 503, "delay_ms": 20, "fraction": 0.5})
    );
    assert_eq!(body(&off.body), serde_json::json!({"mode": "none"}));
    assert_eq!(
        (sent.when.at, sent.when.until),
        (20 * SECOND, Some(22 * SECOND))
    );
}

#[test]
fn without_a_duration_the_mode_lasts_to_the_end_of_the_window() {
    for mode in [
        "stall",
        "error",
        "stream_abort",
        "silent_hang",
        "slow_reload",
    ] {
        let mut host = FakeHost::default();
        arm(&format!(r#"{{"mode":"{mode}"}}"#), &mut host).expect("arms");
        assert_eq!(host.requests[0].when.until, Some(40 * SECOND));
        let body = String::from_utf8_lossy(&host.requests[0].request.body).into_owned();
        assert_eq!(body, format!(r#"{{"mode":"{mode}"}}"#));
    }
}

#[test]
fn the_mode_must_end_within_the_fault_window() {
    let mut host = FakeHost::default();
    assert!(arm(r#"{"mode":"stall","duration_ms":20000}"#, &mut host).is_ok());
    for too_long in ["20001", "3600000"] {
        let config = format!(r#"{{"mode":"stall","duration_ms":{too_long}}}"#);
        let result = arm(&config, &mut host);
        assert!(matches!(result, Err(Error::InvalidConfig(_))), "{result:?}");
    }
    assert_eq!(host.requests.len(), 1);
}

#[test]
fn mistakes_in_the_configuration_name_their_key() {
    assert_eq!(wrong_keys(r#"{"mode":"stal"}"#), ["mode"]);
    assert_eq!(wrong_keys(r#"{"mode":"stall","status":500}"#), ["status"]);
    assert_eq!(wrong_keys(r#"{"mode":"error","status":399}"#), ["status"]);
    assert_eq!(wrong_keys(r#"{"mode":"error","status":600}"#), ["status"]);
    assert_eq!(
        wrong_keys(r#"{"mode":"stall","duration_ms":0}"#),
        ["duration_ms"]
    );
    for (mode, key, bad, good) in [
        ("slow_reload", "factor", "-0.1", "0"),
        ("slow_reload", "factor", "1000000.1", "1000000"),
        ("silent_hang", "fraction", "1.01", "1"),
        ("stream_abort", "fraction", "-0.01", "0"),
        ("error", "delay_ms", "3600001", "3600000"),
    ] {
        let with = |value: &str| format!(r#"{{"mode":"{mode}","{key}":{value}}}"#);
        assert_eq!(wrong_keys(&with(bad)), [key], "{bad}");
        assert!(parse::<Config>(&with(good)).is_ok(), "{good}");
    }
    assert_eq!(
        wrong_keys(r#"{"mode":"silent_hang","after_tokens":3,"factor":1}"#),
        ["after_tokens", "factor"]
    );
    assert_eq!(wrong_keys("{}"), [""]);
    assert!(parse::<Config>(r#"{"mode":"error","status":400}"#).is_ok());
    assert!(parse::<Config>(r#"{"mode":"error","status":599}"#).is_ok());
    assert!(parse::<Config>(r#"{"mode":"stream_abort","after_tokens":0}"#).is_ok());
}

#[test]
fn a_replica_without_a_usable_admin_url_is_refused() {
    for attribute in [None, Some("ftp://127.0.0.1"), Some("")] {
        let mut host = FakeHost::default();
        match attribute {
            None => host.targets[1].attributes.clear(),
            Some(url) => host.targets[1].attributes[0].value = url.into(),
        }
        let result = arm(r#"{"mode":"stall"}"#, &mut host);
        assert!(matches!(result, Err(Error::Unsupported(_))), "{result:?}");
        assert!(host.requests.is_empty());
    }
}

#[test]
fn the_servers_answer_is_the_proof() {
    let fault = arm(r#"{"mode":"stall"}"#, &mut FakeHost::default()).expect("arms");
    let prove = |during: &str, after: &str| {
        fault.prove(&[fact("vllm-1", "http.status", "x", during, after)])
    };
    for (during, after) in [("200", ""), ("299", "404"), (" 204 ", ""), ("", "200")] {
        let proof = prove(during, after);
        assert!(
            matches!(proof, Proof::Happened(_)),
            "{during} {after}: {proof:?}"
        );
    }
    for (during, after) in [("199", ""), ("300", ""), ("404", "200"), ("", "503")] {
        let proof = prove(during, after);
        assert!(
            matches!(proof, Proof::DidNotHappen(_)),
            "{during} {after}: {proof:?}"
        );
    }
    for (during, after) in [("", ""), ("ok", "")] {
        let proof = prove(during, after);
        assert!(
            matches!(proof, Proof::CannotTell(_)),
            "{during} {after}: {proof:?}"
        );
    }
    assert!(matches!(fault.prove(&[]), Proof::CannotTell(_)));
}
