//! Causes: memory, collective communication, arguments, network.

use super::Anchor::{Exception, Free, Within};
use super::{Found, Rule, Site, free_of_quotes, is_word, severe, skip_tags};

pub(super) fn rules() -> Vec<Rule> {
    let mut rules = memory();
    rules.extend(device());
    rules.extend(start());
    rules
}

fn rule(
    literal: &'static str,
    anchor: super::Anchor,
    key: &'static str,
    read: fn(&Site<'_>) -> Option<Found>,
) -> Rule {
    Rule {
        literal,
        anchor,
        key,
        read,
    }
}

fn plain(_: &Site<'_>) -> Option<Found> {
    Some(Found::default())
}

/// An exception's name: followed by `: message` or by nothing.
fn named(site: &Site<'_>) -> Option<Found> {
    let after = site.after.trim_end();
    (after.is_empty() || after.starts_with(':')).then(Found::default)
}

fn memory() -> Vec<Rule> {
    const CUDA: &str = "failure.cuda_oom";
    const HOST: &str = "failure.host_oom";
    const KV: &str = "failure.kv_too_small";
    vec![
        rule("ray.exceptions.OutOfMemoryError", Exception, HOST, named),
        rule("CUDA out of memory", Exception, CUDA, requested),
        rule("HIP out of memory", Exception, CUDA, requested),
        rule("XPU out of memory", Exception, CUDA, requested),
        rule("OutOfMemoryError: ", Exception, CUDA, requested),
        rule("Triton Error [CUDA]: out of memory", Exception, CUDA, plain),
        rule("CUDA error: out of memory", Exception, CUDA, plain),
        rule(
            "DefaultCPUAllocator: can't allocate memory",
            Within,
            HOST,
            plain,
        ),
        rule("Cannot allocate memory", Exception, HOST, plain),
        rule("Unable to allocate ", Exception, HOST, |site| {
            let known = site.before.contains("MemoryError") || site.after.contains("for an array");
            known.then(Found::default)
        }),
        rule("Out of memory: Killed process ", Within, HOST, kernel_kill),
        rule(
            "No available memory for the cache blocks",
            Exception,
            KV,
            plain,
        ),
        rule("The model's max seq len (", Exception, KV, kv_tokens),
        rule(
            "To serve at least one request with the model",
            Exception,
            KV,
            kv_needed,
        ),
        rule(
            "Free memory on device",
            Exception,
            "failure.gpu_memory_utilization",
            free_memory,
        ),
    ]
}

fn device() -> Vec<Rule> {
    const NCCL: &str = "failure.nccl";
    vec![
        rule(
            "an illegal memory access was encountered",
            Within,
            "failure.illegal_memory_access",
            plain,
        ),
        rule(
            "operation not permitted when stream is capturing",
            Within,
            "failure.graph_capture",
            plain,
        ),
        rule(
            "operation failed due to a previous error during capture",
            Within,
            "failure.graph_capture",
            plain,
        ),
        rule("CUDA error: ", Exception, "failure.cuda_error", |site| {
            Some(Found::default().field("error", first_sentence(site.after)))
        }),
        rule("NCCL error", Exception, NCCL, |site| {
            let after = site.after.strip_prefix(" in").unwrap_or(site.after);
            let text = after.strip_prefix(": ")?;
            // `raise RuntimeError(f"NCCL error: {error_str}")` is source, not an error.
            (!text.starts_with('{')).then(|| Found::default().field("error", first_sentence(text)))
        }),
        rule("DistBackendError: ", Exception, NCCL, plain),
        rule("ncclUnhandledCudaError", Exception, NCCL, named),
        rule("ncclRemoteError", Exception, NCCL, named),
        rule("ncclSystemError", Exception, NCCL, named),
        rule("ncclInternalError", Exception, NCCL, named),
        rule(
            "Watchdog caught collective operation timeout",
            Within,
            NCCL,
            plain,
        ),
        rule("ray.exceptions.", Exception, "failure.ray", |site| {
            let end = site.after.find(|c| !is_word(c)).unwrap_or(site.after.len());
            let (name, rest) = site.after.split_at(end);
            let ends = rest.is_empty() || rest.starts_with([':', '(', '\r']);
            (ends && !name.is_empty()).then(|| Found::default().field("error", name))
        }),
        rule(
            "Unable to register worker with raylet",
            Within,
            "failure.ray",
            plain,
        ),
    ]
}

fn start() -> Vec<Rule> {
    const ARGUMENT: &str = "failure.bad_argument";
    const PORT: &str = "failure.port_in_use";
    const DOWNLOAD: &str = "failure.download";
    vec![
        rule("ddress already in use", Free, PORT, |site| {
            let bound = ["Errno 98", "Errno 48", "EADDRINUSE"]
                .iter()
                .any(|mark| site.before.contains(mark));
            (bound && severe(site.level) && !site.before.contains("raise ")).then(Found::default)
        }),
        rule(
            ": error: unrecognized arguments: ",
            Free,
            ARGUMENT,
            argument,
        ),
        rule(": error: argument ", Free, ARGUMENT, argument),
        rule(
            ": error: the following arguments are required",
            Free,
            ARGUMENT,
            argument,
        ),
        rule(": error: ambiguous option: ", Free, ARGUMENT, argument),
        rule(" validation error", Free, ARGUMENT, validation),
        rule("huggingface_hub.errors.", Exception, DOWNLOAD, download),
        rule(
            "huggingface_hub.utils._errors.",
            Exception,
            DOWNLOAD,
            download,
        ),
        rule("We couldn't connect to ", Exception, DOWNLOAD, plain),
        rule(
            "You are trying to access a gated repo",
            Exception,
            DOWNLOAD,
            plain,
        ),
        rule("is not a valid model identifier", Free, DOWNLOAD, |site| {
            let is_error = skip_tags(site.before).starts_with("OSError: ");
            (is_error && severe(site.level)).then(Found::default)
        }),
    ]
}

fn first_sentence(text: &str) -> &str {
    const MAX_BYTES: usize = 120;
    let end = text.find(['\r', '\n']).unwrap_or(text.len());
    &text[..crate::text::floor_char(text, end.min(MAX_BYTES))]
}

fn requested(site: &Site<'_>) -> Option<Found> {
    const WITHIN_BYTES: usize = 256;
    let mut cursor = site.cursor();
    let mut found = Found::default();
    if cursor.skip_past("Tried to allocate ", WITHIN_BYTES) {
        let text = cursor.0;
        cursor.number()?;
        cursor.skip(" ");
        if cursor.run(|c| c.is_ascii_alphabetic()).is_some() {
            found = found.field("requested", &text[..text.len() - cursor.0.len()]);
        }
    }
    Some(found)
}

fn kernel_kill(site: &Site<'_>) -> Option<Found> {
    Some(Found::default().field("pid", site.cursor().integer_text()?))
}

/// `(I) is larger than the maximum number of tokens that can be stored in KV cache (I)`.
fn kv_tokens(site: &Site<'_>) -> Option<Found> {
    let mut cursor = site.cursor();
    let asked = cursor.integer_text()?;
    if !cursor
        .skip(") is larger than the maximum number of tokens that can be stored in KV cache (")
    {
        return None;
    }
    let fits = cursor.integer_text()?;
    Some(
        Found::default()
            .field("max_seq_len", asked)
            .field("kv_cache_tokens", fits),
    )
}

/// `[s]'s max seq len (I), (N GiB KV cache is needed, which is larger than the
/// available KV cache memory (N GiB)`.
fn kv_needed(site: &Site<'_>) -> Option<Found> {
    const WITHIN_BYTES: usize = 256;
    let mut cursor = site.cursor();
    if !cursor.skip_past("max seq len (", WITHIN_BYTES) {
        return None;
    }
    let mut found = Found::default().field("max_seq_len", cursor.integer_text()?);
    for (mark, key) in [("(", "needed_gib"), ("memory (", "available_gib")] {
        if !cursor.skip_past(mark, WITHIN_BYTES) {
            break;
        }
        let text = cursor.0;
        let Some(number) = cursor.run(|c| c.is_ascii_digit() || c == '.') else {
            break;
        };
        if text[number.len()..].starts_with(" GiB") {
            found = found.field(key, number);
        }
    }
    Some(found)
}

/// ` cuda:I (N/N GiB) on startup is less than desired GPU memory utilization`.
fn free_memory(site: &Site<'_>) -> Option<Found> {
    const WITHIN_BYTES: usize = 128;
    let mut cursor = site.cursor();
    if !cursor.skip_past("(", WITHIN_BYTES) {
        return None;
    }
    let numeric = |c: char| c.is_ascii_digit() || c == '.';
    let free = cursor.run(numeric)?;
    if !cursor.skip("/") {
        return None;
    }
    let total = cursor.run(numeric)?;
    if !cursor.skip(" GiB) on startup is less than desired GPU memory utilization") {
        return None;
    }
    Some(
        Found::default()
            .field("free_gib", free)
            .field("total_gib", total),
    )
}

/// `vllm serve: error: …`, `api_server.py: error: …`: the argument parser's last line.
fn argument(site: &Site<'_>) -> Option<Found> {
    let program = site.before.to_ascii_lowercase();
    let ours = program.contains("vllm") || program.contains("api_server");
    (ours && !site.headed() && free_of_quotes(site.before))
        .then(|| Found::default().field("error", first_sentence(site.after)))
}

/// `1 validation error for ModelConfig`: of a configuration, not of a request.
fn validation(site: &Site<'_>) -> Option<Found> {
    let counted = site.before.ends_with(|c: char| c.is_ascii_digit());
    let after = site.after.strip_prefix('s').unwrap_or(site.after);
    let name = after.strip_prefix(" for ")?;
    let name = &name[..name.find(|c| !is_word(c)).unwrap_or(name.len())];
    let ours = name.ends_with("Config") || name.ends_with("Args");
    (counted && ours && severe(site.level) && free_of_quotes(site.before))
        .then(|| Found::default().field("error", name))
}

fn download(site: &Site<'_>) -> Option<Found> {
    let end = site.after.find(|c| !is_word(c)).unwrap_or(site.after.len());
    let (name, rest) = site.after.split_at(end);
    let ends = rest.trim_end().is_empty() || rest.starts_with(':');
    (ends && name.ends_with(|c: char| c.is_ascii_alphabetic()))
        .then(|| Found::default().field("error", name))
}
