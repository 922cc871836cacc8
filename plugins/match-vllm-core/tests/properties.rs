//! What must hold for every text, however it is cut.

use std::fs;
use std::path::PathBuf;

use blackstart_match_vllm::{Boundary, Session, describe, probe};
use proptest::prelude::*;

fn corpus() -> Vec<String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .expect("tests/logs exists")
        .map(|entry| entry.expect("readable entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("readable log"))
        .collect()
}

fn all(text: &str) -> Vec<Boundary> {
    let mut session = Session::new();
    let mut found = session.feed(text);
    found.extend(session.finish());
    found
}

/// Feeds the lines in batches whose sizes `sizes` gives, round and round.
fn batched(text: &str, sizes: &[usize]) -> Vec<Boundary> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut session = Session::new();
    let mut found = Vec::new();
    let mut rest = &lines[..];
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (batch, after) = rest.split_at((*size).min(rest.len()));
        found.extend(session.feed(&batch.join("\n")));
        rest = after;
    }
    found.extend(session.finish());
    found
}

/// Fragments from which hostile lines are made.
fn fragment() -> impl Strategy<Value = String> {
    let literals = [
        "(EngineCore pid=72) ",
        "(Worker_TP1 pid=9",
        ", ip=192.0.2.7) ",
        " pid=",
        "INFO ",
        "ERROR 01-02 03:04:05 [core.py:1] ",
        "INFO 01-02 03:04:05 loader.py:123] ",
        ".py:1] ",
        "Loading weights took ",
        "3.10",
        " seconds",
        "Model loading took ",
        " GiB",
        " memory and ",
        "\u{2588}  version ",
        "\u{2588}  model   ",
        "0.33.0",
        "vLLM API server version ",
        "Initializing a V1 LLM engine (v",
        ") with config: model='",
        "'",
        "\"",
        "{\"message\": \"",
        "\", \"levelname\": \"INFO\"",
        "}",
        "\\u2588",
        "\\",
        "\x1b[0;36m",
        "\x1b[",
        "^[[",
        "^M",
        "\r",
        "\n",
        "[shutdown] ",
        "EngineDeadError: ",
        "raise ",
        "Worker proc ",
        " died unexpectedly",
        " (exit code: ",
        "-9",
        ", # CPU blocks: ",
        "# GPU blocks: ",
        " KV cache size: ",
        "Received request",
        "Application startup complete.",
        "Shutting down",
        ": error: argument ",
        "é",
        "\u{FFFD}",
        "99999999999999999999999999",
        ",",
        ".",
        "=",
        "count=",
        ": ",
    ];
    prop_oneof![
        8 => proptest::sample::select(literals.to_vec()).prop_map(str::to_owned),
        1 => ".{0,8}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn batches_do_not_matter_for_logs(index in 0_usize..100, sizes in proptest::collection::vec(1_usize..60, 1..12)) {
        let corpus = corpus();
        let text = &corpus[index % corpus.len()];
        prop_assert_eq!(batched(text, &sizes), all(text));
    }

    #[test]
    fn batches_do_not_matter_for_made_up_text(
        parts in proptest::collection::vec(fragment(), 0..120),
        sizes in proptest::collection::vec(1_usize..4, 1..6),
    ) {
        let text = parts.concat();
        let found = all(&text);
        prop_assert_eq!(&batched(&text, &sizes), &found);
        let lines = text.split('\n').count() as u64;
        for pair in found.windows(2) {
            prop_assert!(pair[0].line <= pair[1].line, "boundaries come in line order");
        }
        for boundary in &found {
            prop_assert!(boundary.line < lines);
            prop_assert!(describe::BOUNDARIES.iter().any(|info| info.key == boundary.key));
            prop_assert!(boundary.measures.iter().all(|m| m.value.is_finite()));
            prop_assert!(boundary.fields.iter().all(|f| f.value.len() <= 256));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let text = String::from_utf8_lossy(&bytes);
        all(&text);
        probe(&text);
    }

    /// A cut line may lose its boundary, but never yields another figure.
    #[test]
    fn truncation_invents_nothing(index in 0_usize..100, keep in 0.0_f64..1.0) {
        let corpus = corpus();
        let text = &corpus[index % corpus.len()];
        let whole = all(text);
        let mut end = (text.len() as f64 * keep) as usize;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        for cut in all(&text[..end]) {
            let same = whole.iter().find(|b| b.line == cut.line && b.key == cut.key);
            prop_assert!(same.is_some(), "{cut:?}");
            for measure in &cut.measures {
                prop_assert!(same.is_some_and(|b| b.measures.contains(measure)), "{cut:?}");
            }
        }
    }

    /// Recorded lines shuffled together with hostile ones keep their boundaries.
    #[test]
    fn line_numbers_survive_foreign_lines(index in 0_usize..100, gap in 1_usize..50, noise in "[a-z ]{0,80}") {
        let corpus = corpus();
        let text = &corpus[index % corpus.len()];
        let spaced: String = text.split_inclusive('\n').map(|line| {
            format!("{line}{}", format!("{noise}\n").repeat(gap))
        }).collect();
        // The banner's model is looked for in the next lines only.
        let strip = |found: Vec<Boundary>| -> Vec<_> {
            found.into_iter().map(|b| (b.line, b.key, b.stamp, b.process, b.measures)).collect()
        };
        let expected: Vec<_> = strip(all(text)).into_iter()
            .map(|b| (b.0 * (gap as u64 + 1), b.1, b.2, b.3, b.4)).collect();
        prop_assert_eq!(strip(all(&spaced)), expected);
    }
}

/// Lines of megabytes: bounded work, and what stands at their end is found.
#[test]
fn long_lines() {
    let bar =
        "\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01,  1.55s/it]";
    let long = format!(
        "(EngineCore pid=7) {}(Worker_TP0 pid=8) INFO 01-02 03:04:05 [loader.py:1] Loading weights took 3.10 seconds",
        bar.repeat(60_000)
    );
    let found = all(&long);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].process.as_deref(), Some("Worker_TP0"));
    assert_eq!(found[0].measures[0].value, 3.1);

    for hostile in [
        "Loading weights took 1 seconds ".repeat(100_000),
        "INFO 01-02 03:04:05 [a.py:1] Loading weights took 1 seconds ".repeat(50_000),
        ".py:1] ".repeat(500_000),
        " pid=".repeat(500_000),
        "(a pid=1) ".repeat(300_000),
        "{\"a\": ".repeat(300_000),
        "[a] ".repeat(300_000) + "torch.compile took 1 s in total",
        "\x1b[".repeat(500_000) + "Loading weights took 1 seconds",
        "^[[".repeat(500_000) + "Loading weights took 1 seconds",
    ] {
        // The bound is 8 views of 64 KiB, each of at most 17 records.
        assert!(all(&hostile).len() <= 8 * 17);
    }
}

/// A million lines leave nothing behind but the line count.
#[test]
fn memory_does_not_grow_with_the_log() {
    let mut session = Session::new();
    let request = "INFO 01-02 03:04:05 [logger.py:1] Received request x: prompt: 'Loading weights took 3 seconds'";
    let batch = vec![request; 1000].join("\n");
    for _ in 0..1000 {
        assert!(session.feed(&batch).is_empty());
    }
    let found = session.feed("INFO 01-02 03:04:05 [loader.py:1] Loading weights took 3.10 seconds");
    assert_eq!(found[0].line, 1_000_000);
    assert!(
        session.retained_bytes() < 1024,
        "{}",
        session.retained_bytes()
    );
}
