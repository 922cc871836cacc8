//! From the banner to the first answer.

use super::Anchor::{Free, Message};
use super::{Found, Rule, Site, free_of_quotes, is_word};
use crate::text::Cursor;

pub(super) fn rules() -> Vec<Rule> {
    let rule = |literal, anchor, key, read| Rule {
        literal,
        anchor,
        key,
        read,
    };
    vec![
        rule("vLLM API server version ", Message, "banner", banner),
        rule("vLLM server version ", Message, "banner", banner),
        rule("  version ", Free, "banner", logo),
        rule("\u{2588} version ", Free, "banner", logo),
        rule(
            "Initializing an LLM engine",
            Message,
            "engine_init",
            engine_init,
        ),
        rule(
            "Initializing a V0 LLM engine",
            Message,
            "engine_init",
            engine_init_v0,
        ),
        rule(
            "Initializing a V1 LLM engine",
            Message,
            "engine_init",
            engine_init_v1,
        ),
        rule(
            "Starting to load model ",
            Message,
            "model_load_start",
            load_start,
        ),
        rule(
            "Loading model from scratch...",
            Message,
            "model_load_start",
            |_| Some(Found::default()),
        ),
        rule(
            "Time spent downloading weights for ",
            Message,
            "weight_download",
            download,
        ),
        rule(
            "Loading weights took ",
            Message,
            "weights_loaded",
            weights_loaded,
        ),
        rule(
            "Loading model weights took ",
            Message,
            "model_loaded",
            model_loaded,
        ),
        rule("Model loading took ", Message, "model_loaded", model_loaded),
        rule("torch.compile took ", Message, "torch_compile", compile),
        rule("torch.compile takes ", Message, "torch_compile", compile),
        rule(
            "graph compilation takes ",
            Message,
            "torch_compile",
            compile,
        ),
        rule(
            "Available KV cache memory: ",
            Message,
            "kv_cache",
            kv_memory,
        ),
        rule("Initial free memory ", Message, "kv_cache", kv_reserved),
        rule(
            "Memory profiling results:",
            Message,
            "kv_cache",
            kv_profiled,
        ),
        rule(
            "the rest of the memory reserved for KV Cache is ",
            Free,
            "kv_cache",
            kv_rest,
        ),
        rule(
            "Applying persisted startup plan",
            Message,
            "kv_cache",
            kv_plan,
        ),
        rule(" KV cache size: ", Free, "kv_cache", kv_size),
        rule(
            "Maximum concurrency for ",
            Message,
            "kv_cache",
            kv_concurrency,
        ),
        rule(", # CPU blocks: ", Free, "kv_cache", blocks_both),
        rule("# GPU blocks: ", Message, "kv_cache", blocks_gpu),
        rule(
            "vllm cache_config_info with initialization after num_gpu_blocks is: ",
            Free,
            "kv_cache",
            blocks_config,
        ),
        rule(
            "Graph capturing finished in ",
            Message,
            "graph_capture",
            capture,
        ),
        rule(
            "init engine (profile, create kv cache, warmup model) took ",
            Message,
            "engine_ready",
            engine_ready,
        ),
        rule(
            "Starting vLLM API server",
            Message,
            "server_start",
            server_start,
        ),
        rule(
            "Starting vLLM server on ",
            Message,
            "server_start",
            server_start,
        ),
        rule(
            "Application startup complete.",
            Message,
            "startup_complete",
            |_| Some(Found::default()),
        ),
    ]
}

fn banner(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let found = Found::default().field("version", cursor.version()?);
    let model = cursor
        .skip(", serving model ")
        .then(|| cursor.word())
        .flatten();
    Some(found.field_if("model", model))
}

/// Line 3 of the logo: drawing, then `version V`. The model stands in the next line.
fn logo(site: &Site<'_>) -> Option<Found> {
    let drawing = site.before;
    let drawn = site.headed()
        && !drawing.is_ascii()
        && !drawing.contains(|c: char| c.is_ascii_alphanumeric());
    if !drawn {
        return None;
    }
    let mut cursor = site.cursor();
    let version = cursor.version()?;
    let tail = cursor
        .0
        .trim_matches(|c: char| c.is_whitespace() || c == '│');
    tail.is_empty()
        .then(|| Found::default().field("version", version))
}

/// Line 4 of the logo: drawing, then `model   M`.
pub(crate) fn logo_model(message: &str) -> Option<&str> {
    let at = message.find(" model ")?;
    let drawing = &message[..at];
    let drawn = !drawing.is_ascii() && !drawing.contains(|c: char| c.is_ascii_alphanumeric());
    drawn
        .then(|| Cursor(message[at + 7..].trim_start()).word())
        .flatten()
}

fn engine_init_v0(site: &Site<'_>) -> Option<Found> {
    engine_init(site).map(|found| found.field("engine", "V0"))
}

fn engine_init_v1(site: &Site<'_>) -> Option<Found> {
    engine_init(site).map(|found| found.field("engine", "V1"))
}

fn engine_init(site: &Site<'_>) -> Option<Found> {
    /// The model is the first key of the configuration that is printed.
    const MODEL_WITHIN_BYTES: usize = 64;
    let mut cursor = site.cursor();
    let mut found = Found::default();
    if cursor.skip(" (v") {
        let version = cursor.version()?;
        if !cursor.skip(")") {
            return None;
        }
        found = found.field("version", version);
    }
    if !cursor.skip(" with config:") {
        return None;
    }
    if cursor.skip_past("model=", MODEL_WITHIN_BYTES) {
        let quote = cursor.0.chars().next().filter(|c| matches!(c, '\'' | '"'));
        if let Some(quote) = quote {
            let rest = &cursor.0[1..];
            found = found.field_if("model", rest.split_once(quote).map(|(model, _)| model));
        }
    }
    Some(found)
}

fn load_start(site: &Site<'_>) -> Option<Found> {
    let (model, _) = site.after.split_once("...")?;
    Some(Found::default().field("model", model))
}

fn download(site: &Site<'_>) -> Option<Found> {
    /// Longest model name looked over.
    const MODEL_BYTES: usize = 1024;
    let mut cursor = site.cursor();
    let all = cursor.0;
    if !cursor.skip_past(": ", MODEL_BYTES) {
        return None;
    }
    let model = &all[..all.len() - cursor.0.len() - 2];
    let seconds = cursor.seconds()?;
    Some(
        Found::default()
            .seconds("weight_download_s", seconds)
            .field("model", model),
    )
}

fn weights_loaded(site: &Site<'_>) -> Option<Found> {
    Some(Found::default().seconds("weights_loaded_s", site.cursor().seconds()?))
}

fn model_loaded(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let mut found = Found::default().gib("model_loaded_gib", cursor.gib()?);
    cursor.skip(" memory");
    if cursor.skip(" and ")
        && let Some(seconds) = cursor.seconds()
    {
        found = found.seconds("model_loaded_s", seconds);
    }
    Some(found)
}

fn compile(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let seconds = cursor.seconds()?;
    if !cursor.skip(" in total") {
        return None;
    }
    // 0.32+ names the part of the model: `[backbone] `.
    let tag = site
        .before
        .trim_end()
        .strip_suffix(']')
        .and_then(|before| before.rsplit_once('['))
        .map(|(_, tag)| tag)
        .filter(|tag| tag.chars().all(|c| is_word(c) || matches!(c, '.' | '-')));
    Some(
        Found::default()
            .seconds("torch_compile_s", seconds)
            .field_if("tag", tag),
    )
}

fn kv_memory(site: &Site<'_>) -> Option<Found> {
    Some(Found::default().gib("kv_cache_gib", site.cursor().gib()?))
}

fn kv_reserved(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    cursor.gib()?;
    if !cursor.skip(", reserved ") {
        return None;
    }
    let reserved = cursor.gib()?;
    cursor
        .skip(" memory for KV Cache")
        .then(|| Found::default().gib("kv_cache_gib", reserved))
}

fn kv_profiled(site: &Site<'_>) -> Option<Found> {
    const WITHIN_BYTES: usize = 1024;
    let mut cursor = site.cursor();
    if !cursor.skip_past("kv_cache_size=", WITHIN_BYTES) {
        return None;
    }
    Some(Found::default().gib("kv_cache_gib", cursor.gib()?))
}

fn kv_rest(site: &Site<'_>) -> Option<Found> {
    if !free_of_quotes(site.before) {
        return None;
    }
    Some(Found::default().gib("kv_cache_gib", site.cursor().gib()?))
}

fn kv_plan(site: &Site<'_>) -> Option<Found> {
    const WITHIN_BYTES: usize = 2048;
    let mut cursor = site.cursor();
    if !cursor.skip_past("kv_cache_memory_bytes=", WITHIN_BYTES) {
        return None;
    }
    cursor.integer_text()?;
    if !cursor.skip(" (") {
        return None;
    }
    Some(Found::default().gib("kv_cache_gib", cursor.gib()?))
}

/// `GPU KV cache size: I tokens`, from 0.30 with the device's own name, from 0.28
/// with the concurrency in the same line.
fn kv_size(site: &Site<'_>) -> Option<Found> {
    let device = site
        .before
        .rsplit(|c: char| !is_word(c))
        .next()
        .filter(|word| !word.is_empty())?;
    let before = &site.before[..site.before.len() - device.len()];
    let admitted = if site.headed() {
        super::skip_tags(before).is_empty()
    } else {
        free_of_quotes(before)
    };
    if !admitted {
        return None;
    }
    let mut cursor = site.cursor();
    let tokens = cursor.number()?;
    if !cursor.skip(" tokens") {
        return None;
    }
    let mut found = Found::default()
        .measure("kv_cache_tokens", tokens, "{tokens}")
        .field("device", device);
    if cursor.skip(", Maximum concurrency for ")
        && let Some(times) = concurrency(&mut cursor)
    {
        found = found.measure("max_concurrency", times, "1");
    }
    Some(found)
}

fn kv_concurrency(site: &Site<'_>) -> Option<Found> {
    let times = concurrency(&mut site.cursor())?;
    Some(Found::default().measure("max_concurrency", times, "1"))
}

/// `I tokens per request: N.NNx`.
fn concurrency(cursor: &mut Cursor<'_>) -> Option<f64> {
    cursor.number()?;
    if !cursor.skip(" tokens per request: ") {
        return None;
    }
    let times = cursor.number()?;
    cursor.skip("x").then_some(times)
}

/// V0: `# cuda blocks: I, # CPU blocks: I`; the device word varies.
fn blocks_both(site: &Site<'_>) -> Option<Found> {
    let at = site.before.rfind("# ")?;
    let (device, count) = site.before[at + 2..].split_once(" blocks: ")?;
    let plain = device.chars().all(is_word)
        && !count.is_empty()
        && count
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b',');
    let start = &site.before[..at];
    let admitted = plain
        && if site.headed() {
            super::skip_tags(start).is_empty()
        } else {
            free_of_quotes(start)
        };
    if !admitted {
        return None;
    }
    let cpu = site.cursor().integer_text()?;
    Some(
        Found::default()
            .field("device", device)
            .field("device_blocks", count)
            .field("cpu_blocks", cpu),
    )
}

fn blocks_gpu(site: &Site<'_>) -> Option<Found> {
    let count = site.cursor().integer_text()?;
    Some(Found::default().field("device_blocks", count))
}

/// `[Engine III: ]…` or `D Engines: …`.
fn blocks_config(site: &Site<'_>) -> Option<Found> {
    let engine = site.before.trim().trim_end_matches(':');
    let admitted = if site.headed() {
        engine.is_empty() || engine.starts_with("Engine ") || engine.ends_with(" Engines")
    } else {
        free_of_quotes(site.before)
    };
    if !admitted {
        return None;
    }
    let count = site.cursor().integer_text()?;
    Some(Found::default().field("device_blocks", count))
}

fn capture(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let mut found = Found::default().seconds("graph_capture_s", cursor.seconds()?);
    if cursor.skip(", took ")
        && let Some(gib) = cursor.gib()
    {
        found = found.gib("graph_capture_gib", gib);
    }
    Some(found)
}

fn engine_ready(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let mut found = Found::default().seconds("init_engine_s", cursor.seconds()?);
    if cursor.skip(" (compilation: ")
        && let Some(seconds) = cursor.seconds()
    {
        found = found.seconds("init_engine_compilation_s", seconds);
    }
    Some(found)
}

/// `Starting vLLM API server[ I] on URL`, `Starting vLLM server on URL`.
fn server_start(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let mut found = Found::default();
    if cursor.skip(" ") && !cursor.0.starts_with("on ") {
        found = found.field("server", cursor.integer_text()?);
        cursor.skip(" ");
    }
    cursor.skip("on ");
    let url = cursor.word()?;
    let known = ["http://", "https://", "unix:"];
    known
        .iter()
        .any(|scheme| url.starts_with(scheme))
        .then(|| found.field("url", url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_model_of_the_logo() {
        assert_eq!(
            logo_model("  █▄█▀ █     █  model   org/model-8b\r"),
            Some("org/model-8b")
        );
        assert_eq!(logo_model(" █ model a/b"), Some("a/b"));
        assert_eq!(logo_model("the model is here"), None);
        assert_eq!(logo_model("█ x model a"), None);
    }

    #[test]
    fn within_is_used_nowhere_for_figures() {
        // A figure in the middle of arbitrary text could be a client's.
        assert!(
            rules()
                .iter()
                .all(|rule| rule.anchor != crate::rules::Anchor::Within)
        );
    }
}
