//! Printing the start-up lines of a phase, with figures that equal the script.

use serde_json::{Map, Value};

use crate::args::Config;
use crate::logline::{LineWriter, with_commas};
use crate::mono::now_ns;
use crate::phases::{Phase, PhaseLengths};
use crate::release::Release;
use crate::release::lines::{Line, Occasion, Who};
use crate::truth::Truth;

/// Weights of the make-believe model, GiB.
const MODEL_GIB: f64 = 14.29;
/// Memory left for the KV cache, GiB.
const KV_GIB: f64 = 48.0;
/// Memory of the captured graphs, GiB.
const GRAPHS_GIB: f64 = 0.61;

/// vLLM prints the download line only above this, seconds.
const DOWNLOAD_LINE_ABOVE_S: f64 = 0.5;

/// Prints one process's share of the start-up lines.
pub struct Boot<'a> {
    /// Release whose lines to print.
    pub release: &'static Release,
    /// Its lines.
    pub lines: &'a [Line],
    /// Configuration with the scripted lengths.
    pub config: &'a Config,
    /// Where the truth goes.
    pub truth: &'a Truth,
    /// Line writers by printer; `None` for printers that are another process.
    pub api: Option<LineWriter>,
    /// Engine lines.
    pub engine: Option<LineWriter>,
    /// Worker lines.
    pub worker: Option<LineWriter>,
}

/// The figures in the lines, from the scripted phase lengths, seconds.
struct Figures {
    weights: f64,
    load: f64,
    compile: f64,
    graphs: f64,
    init: f64,
    download: f64,
}

impl Figures {
    fn of(p: &PhaseLengths) -> Self {
        let s = |phase| p.seconds(phase);
        Figures {
            weights: s(Phase::Weights),
            load: s(Phase::Download) + s(Phase::Weights) + s(Phase::Model),
            compile: s(Phase::Compile),
            graphs: s(Phase::Graphs),
            init: s(Phase::Compile) + s(Phase::Kv) + s(Phase::Graphs) + s(Phase::Warmup),
            download: s(Phase::Download),
        }
    }
}

impl Boot<'_> {
    /// Prints the lines of `occasion` that belong to this process, with `more`
    /// placeholders filled in; records the boundaries.
    pub fn print(&self, occasion: Occasion, more: &[(&str, &str)]) {
        for line in self.lines.iter().filter(|l| l.occasion == occasion) {
            let writer = match line.who {
                Who::Api => &self.api,
                Who::Engine => &self.engine,
                Who::Worker => &self.worker,
            };
            let Some(writer) = writer else { continue };
            if line.key == Some("weight_download")
                && self.config.phases.seconds(Phase::Download) <= DOWNLOAD_LINE_ABOVE_S
            {
                continue;
            }
            let mut text = self.fill(line.text);
            for (name, value) in more {
                text = text.replace(&format!("{{{name}}}"), value);
            }
            let ns = now_ns();
            if !self.config.quiet {
                writer.print(line.kind, &text);
            }
            if let Some(key) = line.key {
                self.truth.write_at(ns, "boundary", self.fields(key));
            }
        }
    }

    fn fill(&self, text: &str) -> String {
        let c = self.config;
        let f = Figures::of(&c.phases);
        let mut out = text.to_owned();
        let concurrency = c.kv_cache_tokens as f64 / f64::from(c.max_model_len);
        for (name, value) in [
            ("version", self.release.version.to_owned()),
            ("model", c.model.clone()),
            ("host", c.host.clone()),
            ("port", c.port.to_string()),
            ("pid", std::process::id().to_string()),
            ("engine", self.release.engine_name.to_owned()),
            ("max_len", c.max_model_len.to_string()),
            ("max_len_commas", with_commas(u64::from(c.max_model_len))),
            ("weights", format!("{:.2}", f.weights)),
            ("load", format!("{:.6}", f.load)),
            ("load6", format!("{:.6}", f.load)),
            ("gib", format!("{MODEL_GIB:.2}")),
            ("gib4", format!("{MODEL_GIB:.4}")),
            ("dynamo", format!("{:.2}", f.compile * 0.4)),
            ("compile", format!("{:.2}", f.compile)),
            ("kv_gib", format!("{KV_GIB:.2}")),
            ("kv_tokens", with_commas(c.kv_cache_tokens)),
            ("concurrency", format!("{concurrency:.2}")),
            ("graphs", format!("{:.0}", f.graphs)),
            ("graphs_gib", format!("{GRAPHS_GIB:.2}")),
            ("init", format!("{:.2}", f.init)),
            ("download", format!("{:.6}", f.download)),
        ] {
            if out.contains('{') {
                out = out.replace(&format!("{{{name}}}"), &value);
            }
        }
        out
    }

    fn fields(&self, key: &str) -> Value {
        let f = Figures::of(&self.config.phases);
        let mut m = Map::new();
        m.insert("key".into(), key.into());
        let figure = match key {
            "weight_download" => Some(("weight_download_s", f.download)),
            "weights_loaded" => Some(("weights_loaded_s", f.weights)),
            "model_loaded" => Some(("model_loaded_s", f.load)),
            "torch_compile" => Some(("torch_compile_s", f.compile)),
            "graph_capture" => Some(("graph_capture_s", f.graphs)),
            "engine_ready" => Some(("engine_ready_s", f.init)),
            _ => None,
        };
        if let Some((name, value)) = figure {
            m.insert(name.into(), value.into());
        }
        Value::Object(m)
    }
}
