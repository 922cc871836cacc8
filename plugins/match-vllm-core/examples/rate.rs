//! Prints how fast a session reads: `cargo run --release --example rate`.
//!
//! Counts time on the processor where the kernel tells it, else wall time. Once over lines that match nothing, as a busy server logs them, and once over the
//! recorded logs of the tests, repeated.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use blackstart_match_vllm::Session;

/// The most lines that the host hands over at once.
const BATCH_LINES: usize = 4096;
const LINES: usize = 4_000_000;

fn main() {
    let unmatched = [
        "INFO:     127.0.0.1:37836 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK",
        "(APIServer pid=1) INFO:     127.0.0.1:48796 - \"GET /health HTTP/1.1\" 200 OK",
        "(APIServer pid=1) INFO 11-30 00:35:53 [loggers.py:248] Engine 000: Avg prompt throughput: 2.8 tokens/s, Avg generation throughput: 0.4 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%, Prefix cache hit rate: 0.0%",
        "(EngineCore pid=9) ERROR 11-30 00:35:53 [core.py:1]   File \"/opt/vllm/lib/python3/site-packages/vllm/v1/engine/core.py\", line 13, in run",
    ];
    let unmatched: Vec<&str> = unmatched
        .iter()
        .copied()
        .cycle()
        .take(BATCH_LINES)
        .collect();
    measure("unmatched", &unmatched.join("\n"));

    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut recorded = String::new();
    for entry in std::fs::read_dir(folder).expect("tests/logs exists") {
        let path = entry.expect("readable entry").path();
        if path.extension().is_some_and(|extension| extension == "log") {
            recorded += &std::fs::read_to_string(path).expect("readable log");
        }
    }
    measure("recorded", recorded.trim_end());
}

struct Clock {
    wall: Instant,
    on_processor_ns: Option<u64>,
}

impl Clock {
    fn now() -> Self {
        // First number: nanoseconds that this thread ran.
        let status = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        Self {
            wall: Instant::now(),
            on_processor_ns: status
                .and_then(|status| status.split_whitespace().next()?.parse().ok()),
        }
    }

    fn elapsed_s(&self) -> f64 {
        let on_processor = self.on_processor_ns.zip(Self::now().on_processor_ns);
        match on_processor {
            Some((start, end)) if end > start => (end - start) as f64 / 1e9,
            _ => self.wall.elapsed().as_secs_f64(),
        }
    }
}

fn measure(name: &str, batch: &str) {
    let lines = batch.split('\n').count();
    let rounds = LINES.div_ceil(lines);
    let mut session = Session::new();
    let mut boundaries = 0;
    let start = Clock::now();
    for _ in 0..rounds {
        boundaries += session.feed(black_box(batch)).len();
    }
    let seconds = start.elapsed_s();
    println!(
        "{name}: {:.2} M lines/s, {:.0} MB/s, {boundaries} boundaries in {} lines",
        (lines * rounds) as f64 / seconds / 1e6,
        (batch.len() * rounds) as f64 / seconds / 1e6,
        lines * rounds,
    );
}
