//! What holds for every variant.

use std::collections::BTreeSet;
use std::path::PathBuf;

use blackstart_sdk::Error;
use blackstart_sdk::fault::{Ending, Fact, Proof};
use blackstart_sdk::testing::arm_context;
use serde_json::{Value, json};

use super::{all, config_errors, drive, host, kind, named, read};

#[test]
fn every_example_is_armed_and_needs_exactly_what_the_page_says() {
    for variant in all() {
        let name = variant.about.name;
        let context = variant.context();
        let mut host = host();
        let (mut live, armed) = (variant.arm)(&variant.example(), &context, &mut host).expect(name);
        assert_eq!(armed.victims, context.victims, "{name}");
        for victim in &context.victims {
            assert!(
                armed.statement.contains(victim),
                "{name}: {}",
                armed.statement
            );
        }
        assert_eq!(
            host.needs[0].1.at, context.fire_at,
            "{name} begins at the fire"
        );
        drive(live.as_mut(), &mut host);
        let needed: BTreeSet<&str> = host.needs.iter().map(|(need, _)| *need).collect();
        let granted = variant.about.grants.iter().map(|(key, _)| *key);
        let mut granted: BTreeSet<&str> = granted.collect();
        // Waiting needs no grant.
        if needed.contains("conditions") {
            granted.insert("conditions");
        }
        assert_eq!(needed, granted, "{name}");
        for (need, when) in &host.needs {
            let until = when.until.unwrap_or(when.at);
            assert!(
                context.fire_at <= when.at && when.at <= until && until <= context.expire_at,
                "{name}: {need} at {when:?}"
            );
        }
    }
}

/// Facts of victims to which nothing was done. Those of effects are not there, or say so.
fn untouched() -> Vec<Fact> {
    let steady = |name: &str, value: &str| read(name, [value; 3]);
    let mut facts = vec![
        steady("target.restart-count", "0"),
        steady("target.exit-code", "?"),
        steady("container.id", "4f1d2c3b4a59687f"),
        steady("container.state", "running"),
        steady("container.started-at", "2027-01-01T00:00:00Z"),
        steady("container.restart-count", "0"),
        steady("container.oom-killed", "false"),
        steady("container.networks", "bridge"),
        steady("network.dropped-packets", "0"),
        steady("network.rejected-packets", "0"),
        steady("network.queue", "noqueue"),
        steady("cgroup.frozen", "0"),
        steady("cgroup.cpu-quota-percent", "max"),
        steady("cgroup.throttled-periods", "17"),
        steady("cgroup.memory-limit-bytes", "max"),
        steady("cgroup.oom-kills", "1"),
        steady("disk.available-bytes", "1000000000"),
    ];
    facts.extend(super::same_process());
    facts
}

#[test]
fn a_negative_control_is_never_proven() {
    for variant in all() {
        let name = variant.about.name;
        // Effects are told as started, but nothing is done.
        let (mut live, mut host) = variant.armed(&variant.example());
        drive(live.as_mut(), &mut host);
        let mut facts = Vec::new();
        for victim in variant.victims() {
            facts.extend(untouched().into_iter().map(|fact| Fact {
                replica: victim.clone(),
                ..fact
            }));
        }
        let proof = live.prove(&facts);
        assert_ne!(kind(&proof), "happened", "{name}: {proof:?}");
        // What no effect was there to tell of is not read.
        facts.retain(|f| {
            let of_effects = ["network.", "cgroup.", "disk.", "http."];
            !of_effects.iter().any(|prefix| f.name.starts_with(prefix))
        });
        let proof = live.prove(&facts);
        assert_ne!(kind(&proof), "happened", "{name}: {proof:?}");
        let proof = live.prove(&[]);
        assert!(matches!(proof, Proof::CannotTell(_)), "{name}: {proof:?}");
    }
}

#[test]
fn every_bound_of_the_schema_is_checked_with_a_help() {
    let mut bounds = 0;
    for variant in all() {
        let name = variant.about.name;
        let keys = variant.schema["properties"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for (key, about) in &keys {
            let with = |value: Value| {
                let mut table: Value =
                    serde_json::from_str(&variant.example()).expect("the example is JSON");
                table[key] = value;
                (variant.parse)(&table.to_string())
            };
            let refused = |value: Value| {
                let errors = config_errors(with(value.clone()));
                let error = errors.iter().find(|e| e.path == *key);
                let error = error.unwrap_or_else(|| panic!("{name}.{key}: {errors:?}"));
                // What is no number of this kind at all is refused by the parser.
                let negative = value.as_f64().is_some_and(|v| v < 0.0);
                assert!(error.help.is_some() || negative, "{name}.{key}: {error:?}");
            };
            for (bound, step) in [("minimum", -1.0), ("maximum", 1.0)] {
                let Some(limit) = about[bound].as_f64() else {
                    continue;
                };
                bounds += 1;
                let whole = about["type"].as_str() == Some("integer")
                    || about["type"][0].as_str() == Some("integer");
                let value = |v: f64| if whole { json!(v as i64) } else { json!(v) };
                refused(value(limit + step));
                let errors = with(value(limit)).err();
                let own = |e: &Error| {
                    // Another key may forbid it together with this one.
                    let Error::InvalidConfig(all) = e else {
                        return true;
                    };
                    all.iter().any(|e| e.message.contains("out of range"))
                };
                assert!(
                    !errors.as_ref().is_some_and(own),
                    "{name}.{key}: {errors:?}"
                );
            }
            if let Some(most) = about["maxLength"].as_u64() {
                bounds += 1;
                refused(json!(""));
                refused(json!("/".repeat(most as usize + 1)));
            }
            if about["type"].as_str() == Some("integer") {
                assert!(
                    about["maximum"].is_number() || name == "mock-fault",
                    "{name}.{key} has no upper bound"
                );
            }
        }
        assert!(config_errors((variant.parse)(r#"{"no_such_key":1}"#))[0].path == "no_such_key");
    }
    assert!(bounds > 60, "{bounds}");
}

#[test]
fn an_effect_that_outlasts_the_window_is_refused_at_its_key() {
    for variant in all() {
        let name = variant.about.name;
        for key in ["duration_ms", "down_ms"] {
            if !variant.schema["properties"][key].is_object() {
                continue;
            }
            let mut table: Value =
                serde_json::from_str(&variant.example()).expect("the example is JSON");
            let context = variant.context();
            table[key] = json!(120_000);
            let mut host = host();
            let armed = (variant.arm)(&table.to_string(), &context, &mut host);
            assert!(armed.is_ok(), "{name} fits exactly");
            table[key] = json!(120_001);
            let mut host = super::host();
            let armed = (variant.arm)(&table.to_string(), &context, &mut host);
            let errors = config_errors(armed.map(|(_, armed)| armed));
            assert_eq!(errors[0].path, key, "{name}");
            let help = errors[0].help.as_deref().unwrap_or_default();
            assert!(help.contains("at most 120000"), "{name}: {help}");
            assert!(host.needs.is_empty(), "{name}: nothing is scheduled");
        }
    }
}

#[test]
fn victims_that_are_none_and_refusals_stop_the_arming() {
    for variant in all() {
        let name = variant.about.name;
        let arm = |victims: &[&str], refuse: Option<Error>| {
            let mut context = variant.context();
            context.victims = arm_context(victims).victims;
            let mut host = host();
            host.refuse = refuse;
            let armed = (variant.arm)(&variant.example(), &context, &mut host);
            assert!(host.needs.is_empty(), "{name}: nothing is scheduled");
            armed.map(|(_, armed)| armed)
        };
        assert!(matches!(arm(&[], None), Err(Error::Other(_))), "{name}");
        let unknown = arm(&["vllm-0", "vllm-9"], None);
        assert!(matches!(unknown, Err(Error::Unsupported(_))), "{name}");
        let denied = Error::Denied("no grant".into());
        let refused = arm(&["vllm-0", "vllm-1"], Some(denied.clone()));
        assert_eq!(refused, Err(denied), "{name}");
    }
}

#[test]
fn a_process_that_a_victim_does_not_have_is_refused() {
    for variant in all() {
        if !variant.schema["properties"]["process"].is_object() {
            continue;
        }
        let name = variant.about.name;
        let mut table: Value =
            serde_json::from_str(&variant.example()).expect("the example is JSON");
        table["process"] = json!("engine");
        let mut context = variant.context();
        context.victims = arm_context(&["vllm-0", "vllm-1"]).victims;
        let mut host = host();
        host.targets[1].process_roles = vec!["api".into()];
        let armed = (variant.arm)(&table.to_string(), &context, &mut host);
        let errors = config_errors(armed.map(|(_, armed)| armed));
        assert_eq!(errors[0].path, "process", "{name}");
        assert!(errors[0].message.contains("vllm-1"), "{name}");
        assert!(host.needs.is_empty(), "{name}: nothing is scheduled");
    }
}

#[test]
fn instants_at_the_edge_of_time_do_not_overflow() {
    for variant in all() {
        for (fire_at, expire_at) in [(i64::MAX - 5, i64::MIN), (i64::MIN, i64::MAX), (0, 0)] {
            let mut context = variant.context();
            (context.fire_at, context.expire_at) = (fire_at, expire_at);
            let mut host = host();
            if let Ok((mut live, _)) = (variant.arm)(&variant.example(), &context, &mut host) {
                drive(live.as_mut(), &mut host);
            }
            for (_, when) in &host.needs {
                assert!(
                    when.until
                        .is_none_or(|until| until <= expire_at.max(fire_at))
                );
            }
        }
    }
}

#[test]
fn nothing_starts_anew_only_where_the_host_undoes_it() {
    for variant in all() {
        let about = (variant.describe)();
        let name = variant.about.name;
        let keys: Vec<&str> = about
            .without_segments
            .iter()
            .map(|f| f.key.as_str())
            .collect();
        if variant.about.no_start_up.is_some() {
            assert_eq!(about.ending, Ending::HostUndoes, "{name}");
            assert!(keys.contains(&"weight_load") && keys.contains(&"container_start"));
        } else {
            assert!(keys.is_empty(), "{name}");
        }
        // Recovery is measured under each of them.
        for kept in [
            "replica_ready",
            "traffic_restored",
            "routing_propagation",
            "goodput_restored",
        ] {
            assert!(!keys.contains(&kept), "{name}");
        }
    }
    let labels = (named("black-hole").describe)().labels;
    // The name by which the gates G3 and G4 know it, and the label that they decide.
    assert_eq!(labels, ["node-loss-representative"]);
}

#[test]
fn every_variant_is_a_plugin_and_every_plugin_a_variant() {
    let plugins = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: BTreeSet<String> = std::fs::read_dir(&plugins)
        .expect("the folder of all plugins")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter_map(|name| name.strip_prefix("fault-").map(str::to_owned))
        .collect();
    assert!(folders.remove("core"));
    let names: BTreeSet<String> = all().iter().map(|v| v.about.name.to_owned()).collect();
    assert_eq!(folders, names);
    for name in names {
        let folder = plugins.join(format!("fault-{name}"));
        let text = |file: &str| std::fs::read_to_string(folder.join(file)).expect(file);
        let manifest = text("Cargo.toml");
        assert!(
            manifest.contains(&format!("\nname = \"{name}\"\n")),
            "{name}"
        );
        let module = name.replace('-', "_");
        let registered = format!("register!(fault: blackstart_fault_core::{module}::");
        assert!(text("src/lib.rs").contains(&registered), "{name}");
    }
}
