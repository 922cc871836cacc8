//! The component boundary: loading, instantiating, and matching log lines. Needs the bundled
//! plugins: `cargo xtask plugins`, then build again.
#![allow(missing_docs)] // criterion's macros make public items

use std::hint::black_box;

use blackstart_plugins::{Engine, GateTemplate, MatcherPlugin, Registry, World};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LINE: &str = "(APIServer pid=1) INFO 11-30 00:00:32 [loggers.py:259] Engine 000: Avg prompt throughput: 12.3 tokens/s, Avg generation throughput: 45.6 tokens/s, Running: 3 reqs, Waiting: 0 reqs";

fn plugins(c: &mut Criterion) {
    let engine = Engine::builder().build().expect("native code is allowed");
    let registry = Registry::with_bundled().expect("the bundle is of this build");
    let Ok(matcher) = registry.get("vllm", World::LogMatcher) else {
        println!(
            "skipped: plugins: this build bundles none; run `cargo xtask plugins` and build again"
        );
        return;
    };
    let mut plugin = MatcherPlugin::instantiate(&engine, matcher).expect("the matcher runs");
    let session = plugin.session("bench", "{}").expect("a session");
    let mut group = c.benchmark_group("unmatched_lines");
    for lines in [1, 16, 256, 1024] {
        let text = vec![LINE; lines].join("\n");
        group.throughput(Throughput::Elements(lines as u64));
        group.bench_function(format!("batch_of_{lines}"), |b| {
            b.iter(|| {
                plugin
                    .feed(&session, black_box(&text))
                    .expect("the matcher runs")
            });
        });
    }
    group.finish();

    let gate = registry
        .get("gate-client", World::ValidityGate)
        .expect("it is bundled with the matcher");
    let template = GateTemplate::new(&engine, gate).expect("the gate links");
    c.bench_function("instantiate_and_describe_a_gate", |b| {
        b.iter(|| template.instantiate().expect("the gate runs"));
    });
}

criterion_group!(benches, plugins);
criterion_main!(benches);
