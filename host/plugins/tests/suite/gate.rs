//! The gate world.

use blackstart_plugins::{Call, GatePlugin, GuestError, Measure, PluginError, Severity, Verdict};

use crate::support::{Facts, Guest, IMPORT_SCALAR, engine, words};

#[test]
fn a_gate_describes_itself_and_passes() {
    let mut gate = GatePlugin::instantiate(&engine(), &Guest::gate("good").artifact()).unwrap();
    assert_eq!(gate.describe().id, "GX");
    assert_eq!(gate.describe().severity, Severity::Advisory);
    for _ in 0..3 {
        let finding = gate.evaluate("{}", Facts::new(0)).unwrap();
        assert_eq!(finding.verdict, Verdict::Pass);
        assert_eq!(finding.measures, []);
    }
}

#[test]
fn a_gate_reads_a_scalar_and_gives_it_back() {
    let mut guest = Guest::gate("reader");
    guest.import(IMPORT_SCALAR);
    let name = guest.text("client.skew_us_p99");
    // option<measure>: a tag, then name, value and unit.
    let read = guest.put(&[0; 48]);
    let why = guest.text("too high");
    let finding = guest.put(&words(&[0, 1, why.0, why.1, read + 8, 1]));
    let body = format!(
        "(call $scalar (i32.const {}) (i32.const {}) (i32.const {read}))
         (if (i32.ne (i32.load8_u (i32.const {read})) (i32.const 1)) (then unreachable))
         (i32.const {finding})",
        name.0, name.1
    );
    let artifact = guest.with("evaluate", &body).artifact();
    let mut gate = GatePlugin::instantiate(&engine(), &artifact).unwrap();
    let finding = gate.evaluate("{}", Facts::new(0)).unwrap();
    assert_eq!(finding.verdict, Verdict::Fail("too high".into()));
    assert_eq!(
        finding.measures,
        [Measure {
            name: "client.skew_us_p99".into(),
            value: 42.0,
            unit: "us".into()
        }]
    );
}

#[test]
fn an_error_of_the_gate_leaves_it_usable() {
    let mut guest = Guest::gate("picky");
    let (path, message) = (guest.text("limit"), guest.text("must be\u{7} positive"));
    let mistake = guest.put(&words(&[path.0, path.1, message.0, message.1, 0, 0, 0]));
    let answer = guest.put(&words(&[1, 0, mistake, 1, 0, 0]));
    let body = format!("(i32.const {answer})");
    let artifact = guest.with("evaluate", &body).artifact();
    let mut gate = GatePlugin::instantiate(&engine(), &artifact).unwrap();
    for _ in 0..2 {
        let error = gate.evaluate("{}", Facts::new(0)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "plugin picky 1.2.3: evaluate: invalid configuration: limit: must be\\u{7} positive"
        );
        let PluginError::Guest { call, error, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(call, Call::Evaluate);
        assert!(matches!(error, GuestError::InvalidConfig(m) if m[0].path == "limit"));
    }
    assert_eq!(gate.quarantined(), None);
}

#[test]
fn a_gate_that_strips_a_label_names_it() {
    let mut guest = Guest::gate("odd");
    let parts = ["odd", "1.2.3", "", "{}", "GX", "title"].map(|t| guest.text(t));
    let mut info = words(&parts.map(|(at, len)| [at, len]).concat());
    info.extend(words(&[1, 0, 0, 0, 0, 0]));
    let info = guest.put(&info);
    let artifact = guest
        .with("describe", &format!("(i32.const {info})"))
        .artifact();
    let error = GatePlugin::instantiate(&engine(), &artifact).err().unwrap();
    assert!(error.to_string().contains("label"), "{error}");
}
