//! The throughput line that vLLM prints while it works.

use std::rc::Rc;
use std::time::Duration;

use crate::api::app::App;
use crate::logline::{Kind, LineWriter};

/// Period of the line.
const STATS_PERIOD: Duration = Duration::from_secs(10);

/// vLLM's throughput line, every ten seconds while something happens.
pub async fn stats_loop(app: Rc<App>, writer: LineWriter) {
    let mut last = (0_u64, 0_u64);
    let mut was_busy = false;
    loop {
        tokio::time::sleep(STATS_PERIOD).await;
        let (prompt, generated, running, waiting) = {
            let m = app.metrics.borrow();
            (m.prompt_tokens, m.generation_tokens, m.running, m.waiting)
        };
        let busy = running + waiting > 0 || (prompt, generated) != last;
        if busy || was_busy {
            let per_s = |now: u64, before: u64| (now - before) as f64 / STATS_PERIOD.as_secs_f64();
            writer.print(
                Kind::Record("INFO", app.release.stats_file),
                &format!(
                    "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, \
                     Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {:.1}%, \
                     Prefix cache hit rate: 0.0%",
                    per_s(prompt, last.0),
                    per_s(generated, last.1),
                    app.kv_usage() * 100.0
                ),
            );
        }
        was_busy = busy;
        last = (prompt, generated);
    }
}
