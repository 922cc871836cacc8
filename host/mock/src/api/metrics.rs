//! `/metrics` with vLLM's names, in the text format its Prometheus client writes.

use std::fmt::Write;

use crate::ipc::Finish;
use crate::release::MetricNames;

const TTFT_LE: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const INTER_TOKEN_LE: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const REQUEST_LE: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];

/// A Prometheus histogram.
#[derive(Debug)]
pub struct Histogram {
    le: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(le: &'static [f64]) -> Self {
        Histogram {
            le,
            counts: vec![0; le.len()],
            sum: 0.0,
            count: 0,
        }
    }

    /// Adds one observation, seconds.
    pub fn observe(&mut self, seconds: f64) {
        let at = self.le.partition_point(|le| *le < seconds);
        if let Some(c) = self.counts.get_mut(at) {
            *c += 1;
        }
        self.sum += seconds;
        self.count += 1;
    }
}

/// All counters of one server life.
#[derive(Debug)]
pub struct Metrics {
    /// Sequences in the running set.
    pub running: u64,
    /// Requests in the queue.
    pub waiting: u64,
    /// Prompt tokens processed (counted at the first token).
    pub prompt_tokens: u64,
    /// Generated tokens.
    pub generation_tokens: u64,
    /// Finished with `stop`, `length`, `abort`.
    pub finished: [u64; 3],
    /// Arrival → first token.
    pub ttft: Histogram,
    /// Between tokens.
    pub inter_token: Histogram,
    /// Arrival → last token.
    pub e2e: Histogram,
    /// Arrival → admission.
    pub queue: Histogram,
    created_s: f64,
}

impl Metrics {
    /// All zero; `created_s` is the Unix time of creation.
    pub fn new(created_s: f64) -> Self {
        Metrics {
            running: 0,
            waiting: 0,
            prompt_tokens: 0,
            generation_tokens: 0,
            finished: [0; 3],
            ttft: Histogram::new(TTFT_LE),
            inter_token: Histogram::new(INTER_TOKEN_LE),
            e2e: Histogram::new(REQUEST_LE),
            queue: Histogram::new(REQUEST_LE),
            created_s,
        }
    }

    /// Counts an ended request.
    pub fn finish(&mut self, finish: Finish) {
        let at = match finish {
            Finish::Stop => 0,
            Finish::Length => 1,
            Finish::Abort => 2,
        };
        self.finished[at] += 1;
    }

    /// The page, with the KV cache use as a fraction.
    pub fn render(&self, names: MetricNames, model: &str, kv_usage: f64) -> String {
        let model = escape_label(model);
        let labels = format!("engine=\"0\",model_name=\"{model}\"");
        let mut page = Page {
            out: String::with_capacity(16 * 1024),
            labels: &labels,
            model: &model,
            created_s: self.created_s,
        };
        let start = (
            "process_start_time_seconds",
            "Start time of the process since unix epoch in seconds.",
        );
        let _ = writeln!(
            page.out,
            "# HELP {} {}\n# TYPE {} gauge\n{} {}",
            start.0,
            start.1,
            start.0,
            start.0,
            float(self.created_s)
        );
        page.gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            self.running as f64,
        );
        page.gauge(
            "vllm:num_requests_waiting",
            "Number of requests waiting to be processed.",
            self.waiting as f64,
        );
        page.gauge(
            names.kv_usage,
            "KV-cache usage. 1 means 100 percent usage.",
            kv_usage,
        );
        page.counter(
            "vllm:num_preemptions",
            "Cumulative number of preemption from the engine.",
            0,
        );
        page.counter(
            "vllm:prompt_tokens",
            "Number of prefill tokens processed.",
            self.prompt_tokens,
        );
        page.counter(
            "vllm:generation_tokens",
            "Number of generation tokens processed.",
            self.generation_tokens,
        );
        page.successes(&self.finished);
        page.histogram(
            "vllm:time_to_first_token_seconds",
            "Histogram of time to first token in seconds.",
            &self.ttft,
        );
        page.histogram(
            names.inter_token,
            "Histogram of inter-token latency in seconds.",
            &self.inter_token,
        );
        page.histogram(
            "vllm:e2e_request_latency_seconds",
            "Histogram of e2e request latency in seconds.",
            &self.e2e,
        );
        page.histogram(
            "vllm:request_queue_time_seconds",
            "Histogram of time spent in WAITING phase for request.",
            &self.queue,
        );
        page.out
    }
}

struct Page<'a> {
    out: String,
    labels: &'a str,
    model: &'a str,
    created_s: f64,
}

/// Python's `repr` of a float: integers keep `.0`.
fn float(v: f64) -> String {
    format!("{v:?}")
}

fn escape_label(s: &str) -> String {
    s.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

impl Page<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, help, "gauge");
        let _ = writeln!(self.out, "{name}{{{}}} {}", self.labels, float(value));
    }

    fn created(&mut self, base: &str, help: &str) {
        let name = format!("{base}_created");
        let created = self.created_s;
        self.gauge(&name, help, created);
    }

    fn counter(&mut self, base: &str, help: &str, value: u64) {
        let name = format!("{base}_total");
        self.head(&name, help, "counter");
        let _ = writeln!(
            self.out,
            "{name}{{{}}} {}",
            self.labels,
            float(value as f64)
        );
        self.created(base, help);
    }

    fn successes(&mut self, finished: &[u64; 3]) {
        let name = "vllm:request_success_total";
        self.head(name, "Count of successfully processed requests.", "counter");
        for (reason, n) in ["stop", "length", "abort"].iter().zip(finished) {
            let _ = writeln!(
                self.out,
                "{name}{{engine=\"0\",finished_reason=\"{reason}\",model_name=\"{}\"}} {}",
                self.model,
                float(*n as f64)
            );
        }
    }

    fn histogram(&mut self, name: &str, help: &str, h: &Histogram) {
        self.head(name, help, "histogram");
        let mut cumulative = 0;
        for (le, n) in h.le.iter().zip(&h.counts) {
            cumulative += n;
            let _ = writeln!(
                self.out,
                "{name}_bucket{{engine=\"0\",le=\"{}\",model_name=\"{}\"}} {}",
                float(*le),
                self.model,
                float(cumulative as f64)
            );
        }
        let _ = writeln!(
            self.out,
            "{name}_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"{}\"}} {}",
            self.model,
            float(h.count as f64)
        );
        let _ = writeln!(
            self.out,
            "{name}_count{{{}}} {}",
            self.labels,
            float(h.count as f64)
        );
        let _ = writeln!(self.out, "{name}_sum{{{}}} {}", self.labels, float(h.sum));
        self.created(name, help);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::find;

    #[test]
    fn buckets_are_cumulative_and_bounds_inclusive() {
        let mut m = Metrics::new(1.5);
        for s in [0.02, 0.020_001, 5000.0] {
            m.ttft.observe(s);
        }
        let page = m.render(find("0.32.0").unwrap().metrics, "a\"b", 0.25);
        let line = |start: &str| {
            page.lines()
                .find(|l| l.starts_with(start))
                .unwrap()
                .to_owned()
        };
        assert!(
            line("vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"0.02\",")
                .ends_with(" 1.0")
        );
        assert!(
            line("vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"2560.0\",")
                .ends_with(" 2.0")
        );
        assert!(
            line("vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"+Inf\",")
                .ends_with(" 3.0")
        );
        assert_eq!(
            line("vllm:kv_cache_usage_perc"),
            "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"a\\\"b\"} 0.25"
        );
        let old = m.render(find("0.9.2").unwrap().metrics, "m", 0.0);
        assert!(
            old.contains("vllm:gpu_cache_usage_perc{")
                && old.contains("vllm:time_per_output_token_seconds_bucket")
        );
        assert!(!old.contains("vllm:inter_token_latency_seconds"));
    }
}
