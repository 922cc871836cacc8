//! The log lines of a release, read from the tables under `lines/`.
//!
//! `occasion | printer | place | boundary | text`: the occasion is a start phase
//! (printed when it ends), `engine_dead` or `shutdown`; the place is `file.py:line`
//! with a level before it unless INFO, or `uvicorn`, or `bare`. In the text, `{name}`
//! is filled in by [`crate::boot`]; `{logo}` and its like are the fragments below.

use crate::logline::Kind;
use crate::phases::Phase;

/// When a line is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// A start phase ends.
    After(Phase),
    /// The engine died.
    EngineDead,
    /// The server was told to stop.
    Shutdown,
}

/// The process that the log names as the printer of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The API server.
    Api,
    /// The engine core.
    Engine,
    /// The worker where there is one, else the engine core.
    Worker,
}

/// One line.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// When.
    pub occasion: Occasion,
    /// By whom.
    pub who: Who,
    /// Record, uvicorn or bare.
    pub kind: Kind,
    /// Boundary key, for lines that are one.
    pub key: Option<&'static str>,
    /// Text with placeholders.
    pub text: &'static str,
}

/// Texts too long for a table row.
const FRAGMENTS: &[(&str, &str)] = &[
    (
        "{logo}",
        "\n       █     █     █▄   ▄█\n ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}\n  █▄█▀ █     █     █     █  \
         model   {model}\n   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀\n",
    ),
    (
        "{args}",
        "non-default args: {'model_tag': '{model}', 'host': '{host}', 'port': {port}, 'model': '{model}', \
         'max_model_len': {max_len}}",
    ),
    (
        "{config}",
        "Initializing a V1 LLM engine (v{version}) with config: model='{model}', speculative_config=None, \
         tokenizer='{model}', dtype=torch.bfloat16, max_seq_len={max_len}, tensor_parallel_size=1, \
         served_model_name={model}",
    ),
    (
        "{shards}",
        "\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]\
         \rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  4.58it/s]\
         \rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:00<00:00,  4.61it/s]\n",
    ),
    (
        "{capture}",
        "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 35/35 \
         [00:00<00:00, 72.10it/s]",
    ),
    (
        "{output_handler}",
        "AsyncLLM output_handler failed.\nTraceback (most recent call last):\n\
         vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the \
         root cause.",
    ),
];

/// Reads a table.
///
/// # Errors
/// The first malformed row.
pub fn parse(table: &'static str) -> Result<Vec<Line>, String> {
    table
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(row)
        .collect()
}

fn row(line: &'static str) -> Result<Line, String> {
    let bad = |what: &str| format!("log line table: {what} in `{line}`");
    let mut columns = line.splitn(5, " | ").map(str::trim);
    let mut column = || columns.next().ok_or_else(|| bad("a column is missing"));
    let occasion = match column()? {
        "engine_dead" => Occasion::EngineDead,
        "shutdown" => Occasion::Shutdown,
        phase => Occasion::After(Phase::parse(phase).map_err(|e| bad(&e))?),
    };
    let who = match column()? {
        "api" => Who::Api,
        "engine" => Who::Engine,
        "worker" => Who::Worker,
        _ => return Err(bad("an unknown printer")),
    };
    let kind = match column()? {
        "uvicorn" => Kind::Uvicorn("INFO"),
        "bare" => Kind::Bare,
        place => match place.split_once(' ') {
            None => Kind::Record("INFO", place),
            Some((level @ ("INFO" | "WARNING" | "ERROR"), file)) => Kind::Record(level, file),
            Some(_) => return Err(bad("an unknown level")),
        },
    };
    let key = Some(column()?).filter(|k| *k != "-");
    let text = column()?;
    let text = FRAGMENTS
        .iter()
        .find(|(name, _)| *name == text)
        .map_or(text, |(_, long)| long);
    Ok(Line {
        occasion,
        who,
        kind,
        key,
        text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_mistakes_named() {
        let lines = parse(
            "# comment\n\nkv | worker | gpu_worker.py:566 | - | a | b\n\
             engine_dead | api | WARNING x.py:1 | failure.engine_dead | gone\n",
        )
        .unwrap();
        assert_eq!(lines[0].occasion, Occasion::After(Phase::Kv));
        assert_eq!((lines[0].key, lines[0].text), (None, "a | b"));
        assert_eq!(lines[1].kind, Kind::Record("WARNING", "x.py:1"));
        for (bad, says) in [
            ("lunch | api | x.py:1 | - | t", "no start phase"),
            ("kv | cook | x.py:1 | - | t", "printer"),
            ("kv | api | LOUD x.py:1 | - | t", "level"),
            ("kv | api | x.py:1", "column"),
        ] {
            assert!(parse(bad).unwrap_err().contains(says), "{bad}");
        }
    }
}
