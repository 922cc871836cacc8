//! Small guests for tests, good ones and hostile ones: core modules in text form that
//! speak the canonical ABI, made into components by the same encoder that guests
//! written in Rust go through.

#![allow(dead_code, clippy::unwrap_used, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use blackstart_plugins::{
    Artifact, EffectError, EffectRequest, Engine, Evidence, FaultHost, FaultRecord, Field, Limits,
    LoggedEvent, Measure, Point, RequestRecord, TargetReplica, Window,
};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Where bump allocation for arguments begins; static data lies below.
const HEAP: u32 = 256 << 10;
/// Where it starts over.
const HEAP_END: u32 = 3 << 20;
/// Initial memory, in pages of 64 KiB.
const PAGES: u32 = 64;

/// A guest under construction. Every function has a body that answers well; tests
/// replace the ones they are about.
#[derive(Clone)]
pub struct Guest {
    world: &'static str,
    interface: &'static str,
    api: String,
    stamp: Option<String>,
    data: Vec<u8>,
    imports: String,
    bodies: BTreeMap<&'static str, String>,
    extra: String,
    pages: u32,
}

impl Guest {
    fn new(world: &'static str, interface: &'static str, name: &str) -> Guest {
        Guest {
            world,
            interface,
            api: "0.1.0".into(),
            stamp: Some(format!(
                r#"{{"name":"{name}","version":"1.2.3","api":"0.1.0","world":"{world}"}}"#
            )),
            data: vec![0; 16],
            imports: String::new(),
            bodies: BTreeMap::new(),
            extra: String::new(),
            pages: PAGES,
        }
    }

    /// A fault that arms nothing and says that it happened.
    pub fn fault(name: &str) -> Guest {
        let mut guest = Guest::new("fault-variant", "fault", name);
        let mut info = guest.info(name, "1.2.3", "a fault");
        info.extend([0, 0, 0, 0]); // ending
        info.extend([0; 16]); // without-segments, labels
        let info = guest.put(&info);
        let statement = guest.text("armed");
        let armed = guest.put(&words(&[0, 0, 0, statement.0, statement.1]));
        let observed = guest.put(&words(&[0, 0, 0, 0]));
        let proof = guest.put(&words(&[0, statement.0, statement.1]));
        guest.set("describe", format!("i32.const {info}"));
        guest.set("arm", format!("i32.const {armed}"));
        guest.set("observe", format!("i32.const {observed}"));
        guest.set("prove", format!("i32.const {proof}"));
        guest
    }

    /// A gate that passes.
    pub fn gate(name: &str) -> Guest {
        let mut guest = Guest::new("validity-gate", "gate", name);
        let mut info = guest.info(name, "1.2.3", "a gate");
        let id = guest.text("GX");
        info.extend(words(&[id.0, id.1, id.0, id.1, 2, 0, 0, 0, 0, 0]));
        let info = guest.put(&info);
        let finding = guest.put(&words(&[0, 0, 0, 0, 0, 0]));
        guest.set("describe", format!("i32.const {info}"));
        guest.set("evaluate", format!("i32.const {finding}"));
        guest
    }

    /// A matcher that finds `ready` in the last line of each batch, if the batch
    /// holds a byte `R`, and nothing at the end. Its sessions count their lines in a
    /// cell of memory each.
    pub fn matcher(name: &str) -> Guest {
        let mut guest = Guest::new("log-matcher", "matcher", name);
        let mut info = guest.info(name, "1.2.3", "a matcher");
        let product = guest.text("vllm");
        info.extend(words(&[product.0, product.1, product.0, product.1, 0, 0]));
        let info = guest.put(&info);
        let probe = guest.put(&words(&[1, product.0, product.1, 100]));
        let key = guest.text("ready");
        let boundary = guest.put(&words(&[0, 0, key.0, key.1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
        let none = guest.put(&words(&[0, 0, 0, 0]));
        let one = guest.put(&words(&[0, boundary, 1, 0]));
        let cells = guest.put(&[0; 8 * 64]);
        guest.import(
            r#"(import "[export]blackstart:plugin/matcher@0.1.0" "[resource-new]session" (func $new (param i32) (result i32)))"#,
        );
        guest.extra = format!(
            "(global $next (mut i32) (i32.const {cells}))
             (global $live (mut i32) (i32.const 0))"
        );
        guest.set("describe", format!("i32.const {info}"));
        guest.set("probe", format!("i32.const {probe}"));
        guest.set(
            "[constructor]session",
            format!(
                "(i64.store (global.get $next) (i64.const 0))
                 (call $new (global.get $next))
                 (global.set $next (i32.add (global.get $next) (i32.const 8)))
                 (if (i32.ge_u (global.get $next) (i32.const {}))
                   (then (global.set $next (i32.const {cells}))))
                 (global.set $live (i32.add (global.get $live) (i32.const 1)))",
                cells + 8 * 64
            ),
        );
        guest.set(
            "[method]session.feed",
            format!(
                "(local $end i32) (local $found i32) (local $byte i32) (local $lines i64)
                 (local.set $end (i32.add (local.get 1) (local.get 2)))
                 (local.set $lines (i64.load (local.get 0)))
                 (block $done (loop $again
                   (br_if $done (i32.ge_u (local.get 1) (local.get $end)))
                   (local.set $byte (i32.load8_u (local.get 1)))
                   (if (i32.eq (local.get $byte) (i32.const 10))
                     (then (local.set $lines (i64.add (local.get $lines) (i64.const 1)))))
                   (if (i32.eq (local.get $byte) (i32.const 82))
                     (then (local.set $found (i32.const 1))))
                   (local.set 1 (i32.add (local.get 1) (i32.const 1)))
                   (br $again)))
                 (i64.store (i32.const {boundary}) (local.get $lines))
                 (i64.store (local.get 0) (i64.add (local.get $lines) (i64.const 1)))
                 (select (i32.const {one}) (i32.const {none}) (local.get $found))"
            ),
        );
        guest.set("[method]session.finish", format!("i32.const {none}"));
        guest.set(
            "[dtor]session",
            "(global.set $live (i32.sub (global.get $live) (i32.const 1)))".into(),
        );
        guest
    }

    /// The first 32 bytes of every `describe`.
    fn info(&mut self, name: &str, version: &str, summary: &str) -> Vec<u8> {
        let parts = [name, version, summary, r#"{"type":"object"}"#].map(|text| self.text(text));
        words(&parts.map(|(at, len)| [at, len]).concat())
    }

    /// Replaces the body of a function. Parameters are numbered from 0.
    pub fn set(&mut self, function: &'static str, body: String) {
        self.bodies.insert(function, body);
    }

    /// The body of a function.
    pub fn body(&self, function: &str) -> String {
        self.bodies[function].clone()
    }

    /// As [`Guest::set`], in a chain.
    pub fn with(mut self, function: &'static str, body: &str) -> Guest {
        self.set(function, body.into());
        self
    }

    /// Other stamp, or none.
    pub fn stamped(mut self, stamp: Option<&str>) -> Guest {
        self.stamp = stamp.map(Into::into);
        self
    }

    /// Adds an import in text form.
    pub fn import(&mut self, import: &str) {
        self.imports.push_str(import);
        self.imports.push('\n');
    }

    /// Adds other module fields in text form.
    pub fn field(mut self, field: &str) -> Guest {
        self.extra.push_str(field);
        self
    }

    /// Other initial memory, in pages of 64 KiB.
    pub fn pages(mut self, pages: u32) -> Guest {
        self.pages = pages;
        self
    }

    /// Another API version in every interface name, as a newer or older SDK has it.
    pub fn api(mut self, api: &str) -> Guest {
        self.stamp = self
            .stamp
            .map(|s| s.replace("\"0.1.0\"", &format!("{api:?}")));
        self.imports = self.imports.replace("@0.1.0", &format!("@{api}"));
        self.api = api.into();
        self
    }

    /// Static text: address and length.
    pub fn text(&mut self, text: &str) -> (u32, u32) {
        (self.put(text.as_bytes()), text.len() as u32)
    }

    /// Static bytes, aligned to 8: their address.
    pub fn put(&mut self, bytes: &[u8]) -> u32 {
        self.data.resize(self.data.len().next_multiple_of(8), 0);
        let at = self.data.len() as u32;
        self.data.extend(bytes);
        assert!((self.data.len() as u32) < HEAP);
        at
    }

    fn module(&self) -> Vec<u8> {
        let mut text = String::from("(module\n");
        text.push_str(&self.imports);
        write!(
            text,
            r#"(memory (export "memory") {})
               (global $heap (mut i32) (i32.const {HEAP}))
               (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
                 (local $at i32)
                 (global.set $heap (i32.and
                   (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
                 (if (i32.gt_u (i32.add (global.get $heap) (local.get 3)) (i32.const {HEAP_END}))
                   (then (global.set $heap (i32.const {HEAP}))))
                 (local.set $at (global.get $heap))
                 (global.set $heap (i32.add (global.get $heap) (local.get 3)))
                 (local.get $at))
               {}
               (data (i32.const 0) ""#,
            self.pages, self.extra
        )
        .unwrap();
        for byte in &self.data {
            write!(text, "\\{byte:02x}").unwrap();
        }
        text.push_str("\")\n");
        for (function, body) in &self.bodies {
            let signature = match *function {
                "arm" => "(param i32 i32 i64 i64 i64 i64 i32 i32) (result i32)",
                "observe" => "(param i32 i32 i64 i32) (result i32)",
                "prove" | "evaluate" | "probe" => "(param i32 i32) (result i32)",
                "[constructor]session" => "(param i32 i32 i32 i32) (result i32)",
                "[method]session.feed" => "(param i32 i32 i32) (result i32)",
                "[method]session.finish" => "(param i32) (result i32)",
                "[dtor]session" => "(param i32)",
                "describe" => "(result i32)",
                other => panic!("no signature for {other}"),
            };
            writeln!(
                text,
                r#"(func (export "blackstart:plugin/{}@{}#{function}") {signature} {body})"#,
                self.interface, self.api
            )
            .unwrap();
        }
        text.push(')');
        wat::parse_str(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
    }

    /// The component.
    pub fn build(&self) -> Vec<u8> {
        let mut module = self.module();
        if let Some(stamp) = &self.stamp {
            append_section(&mut module, "blackstart-plugin", stamp.as_bytes());
        }
        let (resolve, package) = interfaces(&self.api);
        let world = resolve.select_world(&[package], Some(self.world)).unwrap();
        embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
        ComponentEncoder::default()
            .validate(true)
            .module(&module)
            .unwrap()
            .encode()
            .unwrap()
    }

    /// The component as the host reads it.
    pub fn artifact(&self) -> Artifact {
        Artifact::from_bytes("test.wasm", self.build()).unwrap()
    }
}

/// The interfaces in `wit/` under another package version.
fn interfaces(api: &str) -> (Resolve, wit_parser::PackageId) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit");
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "wit") {
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.replace("@0.1.0;", &format!("@{api};"));
            std::fs::write(copy.path().join(path.file_name().unwrap()), text).unwrap();
        }
    }
    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_dir(copy.path()).unwrap();
    (resolve, package)
}

/// Appends a custom section to a module or a component.
pub fn append_section(wasm: &mut Vec<u8>, name: &str, data: &[u8]) {
    use wasm_encoder::Section as _;
    wasm_encoder::CustomSection {
        name: name.into(),
        data: data.into(),
    }
    .append_to(wasm);
}

/// Little-endian words.
pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

pub const IMPORT_LOG: &str =
    r#"(import "blackstart:plugin/log@0.1.0" "emit" (func $emit (param i32 i32 i32)))"#;
pub const IMPORT_NOW: &str =
    r#"(import "blackstart:plugin/clock@0.1.0" "now" (func $now (result i64)))"#;
pub const IMPORT_SIGNAL: &str = r#"(import "blackstart:plugin/effect-process@0.1.0" "send-signal" (func $signal (param i32 i32 i32 i32 i32 i64 i32 i64 i32)))"#;
pub const IMPORT_HTTP: &str =
    r#"(import "blackstart:plugin/effect-http@0.1.0" "send" (func $send (param i32 i32)))"#;
pub const IMPORT_SCALAR: &str =
    r#"(import "blackstart:plugin/evidence@0.1.0" "scalar" (func $scalar (param i32 i32 i32)))"#;
pub const IMPORT_REQUESTS: &str = r#"(import "blackstart:plugin/evidence@0.1.0" "requests" (func $requests (param i32 i32 i64 i32 i32)))"#;

/// A fault that sends `signal` (by its index in `wit/`) to a process when it is armed
/// and answers with the host's answer if that is an error.
pub fn signalling(name: &str, replica: &str, role: &str, signal: u32, until: Option<i64>) -> Guest {
    let mut guest = Guest::fault(name);
    guest.import(IMPORT_SIGNAL);
    let replica = guest.text(replica);
    let role = guest.text(role);
    let result = guest.put(&[0; 16]);
    let call = format!(
        "(call $signal (i32.const {}) (i32.const {}) (i32.const {}) (i32.const {}) (i32.const {signal})
           (i64.const 1000) (i32.const {}) (i64.const {}) (i32.const {result}))",
        replica.0, replica.1, role.0, role.1,
        i32::from(until.is_some()), until.unwrap_or(0)
    );
    relay(&mut guest, &call, result);
    guest
}

/// A fault that sends a request, and `on_expiry` if there is one, when it is armed.
pub fn requesting(
    name: &str,
    url: &str,
    header: (&str, &str),
    on_expiry: Option<&str>,
    until: Option<i64>,
) -> Guest {
    let mut guest = Guest::fault(name);
    guest.import(IMPORT_HTTP);
    let method = guest.text("POST");
    let (key, value) = (guest.text(header.0), guest.text(header.1));
    let headers = guest.put(&words(&[key.0, key.1, value.0, value.1]));
    let body = guest.text("{}");
    let mut request = |url: &str| {
        let url = guest.text(url);
        [method.0, method.1, url.0, url.1, headers, 1, body.0, body.1]
    };
    let first = request(url);
    let mut params = words(&first);
    params.extend(words(&[u32::from(on_expiry.is_some())]));
    params.extend(words(&on_expiry.map_or([0; 8], &mut request)));
    params.resize(72, 0);
    params.extend(1000_i64.to_le_bytes());
    params.extend(u64::from(until.is_some()).to_le_bytes());
    params.extend(until.unwrap_or(0).to_le_bytes());
    let params = guest.put(&params);
    let result = guest.put(&[0; 16]);
    let call = format!("(call $send (i32.const {params}) (i32.const {result}))");
    relay(&mut guest, &call, result);
    guest
}

/// Makes `arm` do `call` and answer with its error, or else as before. The answer of
/// `call` is `result<u32, error>`, that of `arm` `result<armed, error>`: the error
/// lies at the same place in both.
fn relay(guest: &mut Guest, call: &str, result: u32) {
    let armed = guest.bodies["arm"].clone();
    guest.set(
        "arm",
        format!(
            "{call} (select (i32.const {result}) ({armed}) (i32.load8_u (i32.const {result})))"
        ),
    );
    guest.put(&[0; 8]); // `armed` is longer than the answer
}

/// A host for faults that records what is scheduled.
#[derive(Default)]
pub struct Recorder {
    pub effects: Mutex<Vec<EffectRequest>>,
}

impl FaultHost for Recorder {
    fn now(&self) -> i64 {
        -5
    }

    fn targets(&self) -> Vec<TargetReplica> {
        ["vllm-0", "vllm-1", "other"]
            .map(|id| TargetReplica {
                id: id.into(),
                runtime: "process".into(),
                process_roles: vec!["api".into(), "engine".into()],
                attributes: [
                    ("base-url", "http://127.0.0.1:1"),
                    ("admin-url", "http://127.0.0.1:9000"),
                ]
                .map(|(key, value)| Field {
                    key: key.into(),
                    value: value.into(),
                })
                .into(),
            })
            .into()
    }

    fn schedule(&self, effect: EffectRequest) -> Result<u32, EffectError> {
        let mut effects = self.effects.lock().unwrap();
        effects.push(effect);
        Ok(effects.len() as u32)
    }
}

/// Evidence with one scalar and as many requests as asked for.
pub struct Facts {
    pub requests: u64,
    /// The largest limit a gate asked for.
    pub asked: Mutex<u32>,
}

impl Facts {
    pub fn new(requests: u64) -> Arc<Facts> {
        Arc::new(Facts {
            requests,
            asked: Mutex::new(0),
        })
    }
}

impl Evidence for Facts {
    fn scalar(&self, name: &str) -> Option<Measure> {
        (name == "client.skew_us_p99").then(|| Measure {
            name: name.into(),
            value: 42.0,
            unit: "us".into(),
        })
    }

    fn scalar_absence(&self, name: &str) -> Option<String> {
        Some(format!("{name} was not collected"))
    }

    fn windows(&self) -> Vec<Window> {
        Vec::new()
    }

    fn faults(&self) -> Vec<FaultRecord> {
        Vec::new()
    }

    fn replicas(&self) -> Vec<String> {
        vec!["vllm-0".into()]
    }

    fn requests(&self, _window: &str, offset: u64, limit: u32) -> Vec<RequestRecord> {
        let mut asked = self.asked.lock().unwrap();
        *asked = (*asked).max(limit);
        let end = self.requests.min(offset + u64::from(limit));
        (offset..end)
            .map(|index| RequestRecord {
                index,
                intended_at_ns: index as i64,
                dispatched_at_ns: None,
                first_token_at_ns: None,
                ended_at_ns: index as i64,
                outcome: blackstart_plugins::Outcome::Censored,
                error_class: None,
                content_events: 0,
                completion_tokens: None,
                replica: None,
            })
            .collect()
    }

    fn request_count(&self, _window: &str) -> u64 {
        self.requests
    }

    fn series(&self, _name: &str) -> Option<Vec<Point>> {
        None
    }

    fn log_events(&self, _window: &str, _offset: u64, _limit: u32) -> Vec<LoggedEvent> {
        Vec::new()
    }
}

/// An engine whose deadlines are short, for guests that run into them.
pub fn impatient() -> Engine {
    Engine::builder()
        .limits(Limits {
            call_budget: Duration::from_millis(50),
            batch_budget: Duration::from_millis(50),
            ..Limits::default()
        })
        .build()
        .unwrap()
}

/// An engine with the default limits.
pub fn engine() -> Engine {
    Engine::builder().build().unwrap()
}
