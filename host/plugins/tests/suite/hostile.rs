//! Guests that misbehave when they run: each is stopped with one clear message, and
//! the engine and the other plugins go on.

use std::sync::{Arc, Mutex};

use blackstart_plugins::{
    ArmContext, Call, Engine, FaultPlugin, GatePlugin, Grants, Limits, LogLevel, PluginError,
    Quarantine, Stopped, Verdict,
};

use crate::support::{
    Facts, Guest, IMPORT_LOG, IMPORT_NOW, IMPORT_REQUESTS, IMPORT_SCALAR, Recorder, impatient,
    words,
};

/// Runs `evaluate` of a gate that must be stopped in it, and a good gate after it.
fn stopped(engine: &Engine, guest: &Guest) -> Quarantine {
    let mut good = GatePlugin::instantiate(engine, &Guest::gate("good").artifact()).unwrap();
    let mut gate = GatePlugin::instantiate(engine, &guest.artifact()).unwrap();
    let error = gate.evaluate("{}", Facts::new(0)).unwrap_err();
    let quarantine = quarantine(&error);
    assert_eq!(quarantine.call, Call::Evaluate);
    assert_eq!(gate.quarantined(), Some(&quarantine));
    let again = gate.evaluate("{}", Facts::new(0)).unwrap_err();
    assert_eq!(again, error, "a stopped instance stays stopped");
    let finding = good.evaluate("{}", Facts::new(0)).unwrap();
    assert_eq!(finding.verdict, Verdict::Pass);
    quarantine
}

fn quarantine(error: &PluginError) -> Quarantine {
    let line = error.to_string();
    assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{line}");
    assert!(error.is_quarantine() && !error.help().is_empty());
    match error {
        PluginError::Quarantined(quarantine) => (**quarantine).clone(),
        other => panic!("{other:?}"),
    }
}

fn evaluating(name: &str, body: &str) -> Guest {
    Guest::gate(name).with("evaluate", body)
}

#[test]
fn an_endless_loop() {
    let quarantine = stopped(
        &impatient(),
        &evaluating("looper", "(loop (br 0)) unreachable"),
    );
    assert_eq!(
        quarantine.to_string(),
        "plugin looper 1.2.3 was stopped in evaluate: it did not return within its 50 ms"
    );
}

#[test]
fn an_endless_loop_over_a_host_function() {
    let mut guest = Guest::gate("spinner");
    guest.import(IMPORT_SCALAR);
    let at = guest.put(&[0; 64]);
    let body = format!(
        "(loop (call $scalar (i32.const 0) (i32.const 0) (i32.const {at})) (br 0)) unreachable"
    );
    let quarantine = stopped(&impatient(), &guest.with("evaluate", &body));
    assert!(matches!(quarantine.stopped, Stopped::Deadline { .. }));
}

#[test]
fn clock_spinning() {
    let mut guest = Guest::fault("clock");
    guest.import(IMPORT_NOW);
    let guest = guest.with(
        "prove",
        "(loop (br_if 0 (i64.lt_s (call $now) (i64.const 1000000)))) unreachable",
    );
    let mut fault = FaultPlugin::instantiate(
        &impatient(),
        &guest.artifact(),
        &Grants::none(),
        Arc::new(Recorder::default()),
    )
    .unwrap();
    let error = fault.prove(&[]).unwrap_err();
    assert!(matches!(
        quarantine(&error).stopped,
        Stopped::Deadline { .. }
    ));
}

#[test]
fn an_endless_loop_before_the_first_call() {
    let guest = Guest::gate("starter").field("(func $f (loop (br 0))) (start $f)");
    let error = GatePlugin::instantiate(&impatient(), &guest.artifact())
        .err()
        .unwrap();
    let quarantine = quarantine(&error);
    assert_eq!(quarantine.call, Call::Instantiate);
    assert!(matches!(quarantine.stopped, Stopped::Deadline { .. }));
}

#[test]
fn an_endless_loop_in_describe() {
    let guest = Guest::gate("mute").with("describe", "(loop (br 0)) unreachable");
    let error = GatePlugin::instantiate(&impatient(), &guest.artifact())
        .err()
        .unwrap();
    assert_eq!(quarantine(&error).call, Call::Describe);
}

#[test]
fn unbounded_memory() {
    let body = "(loop (drop (memory.grow (i32.const 16))) (br 0)) unreachable";
    let quarantine = stopped(&impatient(), &evaluating("glutton", body));
    assert_eq!(
        quarantine.to_string(),
        "plugin glutton 1.2.3 was stopped in evaluate: it asked for more than 64 MiB of memory"
    );
}

#[test]
fn too_much_memory_from_the_start() {
    let artifact = Guest::gate("fat").pages(1025).artifact();
    let error = GatePlugin::instantiate(&impatient(), &artifact)
        .err()
        .unwrap();
    assert!(
        matches!(quarantine(&error).stopped, Stopped::Memory { .. }),
        "{error}"
    );
}

#[test]
fn too_many_table_elements() {
    let guest = evaluating(
        "tabler",
        "(drop (table.grow $t (ref.null func) (i32.const 1000000))) unreachable",
    )
    .field("(table $t 1 funcref)");
    let quarantine = stopped(&impatient(), &guest);
    assert!(matches!(
        quarantine.stopped,
        Stopped::Count {
            what: "table elements",
            ..
        }
    ));
}

#[test]
fn deep_recursion() {
    let guest = evaluating("deep", "(call $f)")
        .field("(func $f (result i32) (i32.add (call $f) (i32.const 1)))");
    let quarantine = stopped(&impatient(), &guest);
    assert_eq!(quarantine.stopped, Stopped::StackOverflow);
}

#[test]
fn traps() {
    for (body, says) in [
        ("unreachable", "unreachable"),
        ("(i32.div_u (i32.const 1) (i32.const 0))", "divide by zero"),
        ("(i32.load (i32.const -1))", "out of bounds"),
    ] {
        let quarantine = stopped(&impatient(), &evaluating("trapper", body));
        assert!(quarantine.to_string().contains(says), "{quarantine}");
    }
}

#[test]
fn a_panic_is_told_in_its_own_words_and_safely() {
    let mut guest = Guest::gate("panicker");
    guest.import(IMPORT_LOG);
    let (at, len) = guest.text("panicked at src/lib.rs:7:5:\n\u{1b}[31mno \u{202e}luck");
    let body = format!("(call $emit (i32.const 3) (i32.const {at}) (i32.const {len})) unreachable");
    let quarantine = stopped(&impatient(), &guest.with("evaluate", &body));
    assert_eq!(
        quarantine.to_string(),
        "plugin panicker 1.2.3 was stopped in evaluate: it panicked: \
         panicked at src/lib.rs:7:5:\\n\\u{1b}[31mno \\u{202e}luck"
    );
}

#[test]
fn answers_that_lie_outside_memory_or_are_nonsense() {
    let mut guest = Guest::gate("liar");
    let far = guest.put(&words(&[0, 1, 0xffff_0000, 0xffff, 0, 0]));
    let unknown = guest.put(&words(&[0, 9, 0, 0, 0, 0]));
    let (at, _) = guest.text("\u{0}\u{0}");
    let bytes = guest.put(&[0xff, 0xfe, 0xfd]);
    let garbled = guest.put(&words(&[0, 1, bytes, 3, 0, 0]));
    for pointer in [far, unknown, garbled, 0xffff_fff0, at | 1] {
        let body = format!("(i32.const {})", pointer as i32);
        let quarantine = stopped(&impatient(), &guest.clone().with("evaluate", &body));
        assert!(
            matches!(quarantine.stopped, Stopped::Trap(_)),
            "{quarantine}"
        );
    }
}

#[test]
fn huge_results() {
    let mut guest = Guest::gate("verbose");
    // A reason of 8 KiB, one of 16 MiB, and a million measures.
    let zeros = 4 << 20;
    let sentence = guest.put(&words(&[0, 1, zeros, 8 << 10, 0, 0]));
    let book = guest.put(&words(&[0, 1, zeros, 16 << 20, 0, 0]));
    let numbers = guest.put(&words(&[0, 0, 0, 0, zeros, 1 << 20]));
    let few_too_many = guest.put(&words(&[0, 0, 0, 0, zeros, 2000]));
    let guest = guest.pages(1000);
    for pointer in [sentence, book, numbers, few_too_many] {
        let body = format!("(i32.const {pointer})");
        let quarantine = stopped(&impatient(), &guest.clone().with("evaluate", &body));
        assert!(
            matches!(quarantine.stopped, Stopped::TooLarge { .. }),
            "{pointer}: {quarantine}"
        );
    }
}

#[test]
fn one_text_handed_over_a_million_times_does_not_multiply_in_the_host() {
    // 100 000 measures whose names are all the same 1 MiB: 100 GiB when copied.
    let mut guest = Guest::gate("amplifier").pages(1000);
    let list = 8_u32 << 20;
    let count = 100_000_u32;
    let finding = guest.put(&words(&[0, 0, 0, 0, list, count]));
    let body = format!(
        "(local $at i32)
         (local.set $at (i32.const {list}))
         (loop
           (i32.store offset=0 (local.get $at) (i32.const 1024))
           (i32.store offset=4 (local.get $at) (i32.const 1048576))
           (local.set $at (i32.add (local.get $at) (i32.const 32)))
           (br_if 0 (i32.lt_u (local.get $at) (i32.const {}))))
         (i32.const {finding})",
        list + 32 * count
    );
    let quarantine = stopped(&impatient(), &guest.with("evaluate", &body));
    assert!(
        matches!(quarantine.stopped, Stopped::TooLarge { .. }),
        "{quarantine}"
    );
}

#[test]
fn host_functions_called_with_absurd_sizes() {
    let mut guest = Guest::gate("greedy");
    guest.import(IMPORT_SCALAR);
    let at = guest.put(&[0; 64]);
    for (len, memory) in [(-1_i32, "outside"), (16 << 20, "inside")] {
        let body = format!(
            "(call $scalar (i32.const 0) (i32.const {len}) (i32.const {at})) (i32.const 0)"
        );
        let guest = guest.clone().pages(1000).with("evaluate", &body);
        let quarantine = stopped(&impatient(), &guest);
        match memory {
            "outside" => assert!(
                matches!(quarantine.stopped, Stopped::Trap(_)),
                "{quarantine}"
            ),
            _ => assert!(
                matches!(quarantine.stopped, Stopped::TooLarge { .. }),
                "{quarantine}"
            ),
        }
    }
}

#[test]
fn a_page_is_never_larger_than_the_contract_says() {
    let mut guest = Guest::gate("pager");
    guest.import(IMPORT_REQUESTS);
    let at = guest.put(&[0; 16]);
    let verdict = guest.put(&words(&[0, 0, 0, 0, 0, 0]));
    let body = format!(
        "(call $requests (i32.const 0) (i32.const 0) (i64.const 0) (i32.const -1) (i32.const {at}))
         (if (i32.ne (i32.load offset=4 (i32.const {at})) (i32.const 4096)) (then unreachable))
         (i32.const {verdict})"
    );
    let artifact = guest.with("evaluate", &body).artifact();
    let mut gate = GatePlugin::instantiate(&crate::support::engine(), &artifact).unwrap();
    let facts = Facts::new(1 << 40);
    gate.evaluate("{}", facts.clone()).unwrap();
    assert_eq!(*facts.asked.lock().unwrap(), 4096);
}

#[test]
fn evidence_outside_evaluate() {
    let mut guest = Guest::gate("early");
    guest.import(IMPORT_SCALAR);
    let at = guest.put(&[0; 64]);
    let body = format!("(call $scalar (i32.const 0) (i32.const 0) (i32.const {at})) unreachable");
    let artifact = guest.with("describe", &body).artifact();
    let error = GatePlugin::instantiate(&impatient(), &artifact)
        .err()
        .unwrap();
    let quarantine = quarantine(&error);
    assert_eq!(quarantine.call, Call::Describe);
    assert!(
        matches!(quarantine.stopped, Stopped::Misuse(_)),
        "{quarantine}"
    );
}

#[test]
fn a_flood_of_log_lines() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let engine = Engine::builder()
        .log(move |line| {
            sink.lock().unwrap().push((
                line.plugin.to_string(),
                line.call,
                line.level,
                line.message.to_owned(),
            ));
        })
        .limits(Limits {
            call_budget: std::time::Duration::from_secs(60),
            ..Limits::default()
        })
        .build()
        .unwrap();
    let mut guest = Guest::gate("chatty");
    guest.import(IMPORT_LOG);
    let (at, len) = guest.text("he\u{1b}[2Jllo\r\n");
    let finding = guest.put(&words(&[0, 0, 0, 0, 0, 0]));
    let body = format!(
        "(local $n i32)
         (loop
           (call $emit (i32.const 1) (i32.const {at}) (i32.const {len}))
           (local.set $n (i32.add (local.get $n) (i32.const 1)))
           (br_if 0 (i32.lt_u (local.get $n) (i32.const 1000000))))
         (i32.const {finding})"
    );
    let artifact = guest.with("evaluate", &body).artifact();
    let mut gate = GatePlugin::instantiate(&engine, &artifact).unwrap();
    gate.evaluate("{}", Facts::new(0)).unwrap();
    let lines = lines.lock().unwrap();
    assert_eq!(lines.len(), 65);
    assert_eq!(
        lines[0],
        (
            "plugin chatty 1.2.3".to_owned(),
            Call::Evaluate,
            LogLevel::Info,
            "he\\u{1b}[2Jllo\\r\\n".to_owned()
        )
    );
    assert_eq!(lines[64].2, LogLevel::Warn);
    assert_eq!(
        lines[64].3,
        "999936 more log lines of this call were dropped"
    );
}

#[test]
fn a_hundred_plugins_live_beside_a_stopped_one() {
    let engine = impatient();
    let mut gates: Vec<GatePlugin> = (0..100)
        .map(|i| {
            let name = format!("gate-{i}");
            let guest = if i % 10 == 0 {
                evaluating(&name, "unreachable")
            } else {
                Guest::gate(&name)
            };
            GatePlugin::instantiate(&engine, &guest.artifact()).unwrap()
        })
        .collect();
    for _ in 0..2 {
        for (i, gate) in gates.iter_mut().enumerate() {
            let result = gate.evaluate("{}", Facts::new(0));
            assert_eq!(result.is_ok(), i % 10 != 0, "gate-{i}");
        }
    }
}

#[test]
fn plugins_of_several_threads_do_not_disturb_each_other() {
    let engine = impatient();
    let looper = evaluating("looper", "(loop (br 0)) unreachable").artifact();
    let good = Guest::gate("good").artifact();
    std::thread::scope(|scope| {
        for bad in [true, false, true, false] {
            let (engine, artifact) = (&engine, if bad { &looper } else { &good });
            scope.spawn(move || {
                for _ in 0..3 {
                    let mut gate = GatePlugin::instantiate(engine, artifact).unwrap();
                    assert_eq!(gate.evaluate("{}", Facts::new(0)).is_err(), bad);
                }
            });
        }
    });
}

#[test]
fn a_fault_that_is_stopped_while_arming_keeps_what_it_scheduled_with_the_host() {
    let mut guest = crate::support::signalling("half", "vllm-0", "api", 1, None);
    let body = guest_body_then_trap(&mut guest);
    let artifact = guest.with("arm", &body).artifact();
    let host = Arc::new(Recorder::default());
    let grants = Grants::new(vec!["*".into()], vec![]).unwrap();
    let mut fault =
        FaultPlugin::instantiate(&impatient(), &artifact, &grants, host.clone()).unwrap();
    let context = ArmContext {
        config: "{}".into(),
        seed: 0,
        fire_at_ns: 0,
        expire_at_ns: 2000,
        run_end_ns: 3000,
        victims: vec![],
    };
    assert!(fault.arm(&context).unwrap_err().is_quarantine());
    assert_eq!(host.effects.lock().unwrap().len(), 1);
}

fn guest_body_then_trap(guest: &mut Guest) -> String {
    format!("{} unreachable", guest.body("arm"))
}

/// A component around one module, made of these functions' bodies, and its digest's worth of bytes
/// that nobody can have compiled before.
fn component(
    bodies: &[wasm_encoder::Function],
    extra: impl FnOnce(&mut wasm_encoder::Module),
) -> Vec<u8> {
    use wasm_encoder::{
        CodeSection, Component, FunctionSection, Module, ModuleSection, TypeSection,
    };
    let mut types = TypeSection::new();
    types.ty().function([], []);
    let mut functions = FunctionSection::new();
    let mut code = CodeSection::new();
    for body in bodies {
        functions.function(0);
        code.function(body);
    }
    let mut module = Module::new();
    module.section(&types);
    module.section(&functions);
    extra(&mut module);
    module.section(&code);
    let mut component = Component::new();
    component.section(&ModuleSection(&module));
    component.finish()
}

/// A function of exactly this many bytes: locals, `nop`s and the end.
fn body(bytes: u64, locals: u32) -> wasm_encoder::Function {
    let mut body = match locals {
        0 => wasm_encoder::Function::new([]),
        n => wasm_encoder::Function::new([(n, wasm_encoder::ValType::I32)]),
    };
    let begun = body.byte_len() as u64;
    body.raw(std::iter::repeat_n(
        0x01,
        (bytes.max(begun + 1) - begun - 1) as usize,
    ));
    body.raw([0x0b]);
    body
}

#[test]
fn what_would_take_minutes_to_compile_is_refused_uncompiled() {
    use blackstart_plugins::limits::{
        MAX_BODY_BYTES, MAX_BODY_LOCALS, MAX_CODE_BYTES, MAX_DEFINITIONS, MAX_FUNCTIONS,
        MAX_INNER_COMPONENTS, MAX_NESTING,
    };
    let small = || body(0, 0);
    let full = |n: u64| vec![body(MAX_BODY_BYTES, 0); n as usize];
    let functions = |n: u64| vec![small(); n as usize];
    let globals = |n: u64| {
        component(&[], |module| {
            let mut globals = wasm_encoder::GlobalSection::new();
            let ty = wasm_encoder::GlobalType {
                val_type: wasm_encoder::ValType::I32,
                mutable: false,
                shared: false,
            };
            for _ in 0..n {
                globals.global(ty, &wasm_encoder::ConstExpr::i32_const(0));
            }
            module.section(&globals);
        })
    };
    let nested = |levels: u64| {
        let mut component = wasm_encoder::Component::new();
        for _ in 1..levels {
            let mut outer = wasm_encoder::Component::new();
            outer.section(&wasm_encoder::NestedComponentSection(&component));
            component = outer;
        }
        component.finish()
    };
    let beside = |n: u64| {
        let mut component = wasm_encoder::Component::new();
        for _ in 0..n {
            component.section(&wasm_encoder::ModuleSection(&wasm_encoder::Module::new()));
        }
        component.finish()
    };
    let most_bodies = MAX_CODE_BYTES / MAX_BODY_BYTES;
    let mut over = full(most_bodies);
    over.push(small());
    let locals = |n: u64| component(&[body(0, n as u32)], |_| ());
    // Each just over its limit, beside the same just within it: then only the stamp is missing.
    for (what, limit, over, within) in [
        (
            "bytes in one function",
            MAX_BODY_BYTES,
            component(&[body(MAX_BODY_BYTES + 1, 0)], |_| ()),
            component(&[body(MAX_BODY_BYTES, 0)], |_| ()),
        ),
        (
            "locals in one function",
            MAX_BODY_LOCALS,
            locals(MAX_BODY_LOCALS + 1),
            locals(MAX_BODY_LOCALS),
        ),
        (
            "bytes of code",
            MAX_CODE_BYTES,
            component(&over, |_| ()),
            component(&full(most_bodies), |_| ()),
        ),
        (
            "functions",
            MAX_FUNCTIONS,
            component(&functions(MAX_FUNCTIONS + 1), |_| ()),
            component(&functions(MAX_FUNCTIONS), |_| ()),
        ),
        (
            "globals",
            MAX_DEFINITIONS,
            globals(MAX_DEFINITIONS + 1),
            globals(MAX_DEFINITIONS),
        ),
        (
            "levels of modules and components inside each other",
            MAX_NESTING,
            nested(MAX_NESTING + 1),
            nested(MAX_NESTING),
        ),
        (
            "modules and components inside it",
            MAX_INNER_COMPONENTS,
            beside(MAX_INNER_COMPONENTS + 1),
            beside(MAX_INNER_COMPONENTS),
        ),
    ] {
        // An artifact cannot be made of it, and only an artifact is ever compiled.
        let error = blackstart_plugins::Artifact::from_bytes("huge.wasm", over).unwrap_err();
        let line = error.to_string();
        assert!(line.starts_with("huge.wasm: it has "), "{line}");
        let says = format!(" {what}; a plugin may have at most {limit}");
        assert!(line.ends_with(&says), "{line}");
        assert!(error.help().contains("not compiled"));
        let error = blackstart_plugins::Artifact::from_bytes("full.wasm", within).unwrap_err();
        assert!(
            error.to_string().contains("no identity stamp"),
            "{what}: {error}"
        );
    }
}
