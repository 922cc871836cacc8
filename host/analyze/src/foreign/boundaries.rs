//! The log's boundary lines: stamps, resolutions and figures, read again from the kept texts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::checker::{Checker, TOLERANCE_EXACT_NS, shorten, show};
use crate::time::{NS_PER_S, parse_rfc3339, rfc3339};

/// Boundaries by key: the path of the stamp, and the stamp itself.
pub(crate) type Boundaries = BTreeMap<String, (String, i64)>;

/// The order in which the server prints them.
const ORDER: [&str; 10] = [
    "banner",
    "engine_init",
    "model_load_start",
    "weights_loaded",
    "model_loaded",
    "torch_compile",
    "graph_capture",
    "engine_ready",
    "server_start",
    "startup_complete",
];

/// Shortest and longest mean line of a server log, in bytes.
const LINE_BYTES: (f64, f64) = (20.0, 4096.0);

/// Figures of a line: the boundary, the expression, and a name for each group.
struct Reader {
    key: &'static str,
    expression: Regex,
    names: &'static [&'static str],
}

static READERS: LazyLock<Vec<Reader>> = LazyLock::new(|| {
    let reader = |key, expression: &str, names| Reader {
        key,
        expression: Regex::new(expression).expect("a constant expression that a test compiles"),
        names,
    };
    vec![
        reader(
            "weights_loaded",
            r"Loading weights took ([0-9.]+) s",
            &["weights_loaded_s"],
        ),
        reader(
            "model_loaded",
            r"Model loading took ([0-9.]+) Gi?B(?: memory)? and ([0-9.]+) s",
            &["model_loaded_gib", "model_loaded_s"],
        ),
        reader(
            "torch_compile",
            r"torch\.compile took ([0-9.]+) s in total",
            &["torch_compile_s"],
        ),
        reader(
            "graph_capture",
            r"Graph capturing finished in ([0-9.]+) secs(?:, took ([0-9.]+) GiB)?",
            &["graph_capture_s", "graph_capture_gib"],
        ),
        reader(
            "engine_ready",
            r"init engine .* took ([0-9.]+) s(?:econds)?(?: \(compilation: ([0-9.]+) s)?",
            &["init_engine_s", "init_engine_compilation_s"],
        ),
        reader(
            "weight_download",
            r"Time spent downloading weights for .*: ([0-9.]+) s",
            &["weight_download_s"],
        ),
    ]
});

/// Stamp inside the line: month, day and time of day, without year and zone.
static INNER_STAMP: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(\d\d-\d\d) (\d\d:\d\d:\d\d)\b")
        .expect("a constant expression that a test compiles")
});

/// Release in the banner and in the engine's line.
static VERSION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:version |\(v)(\d+\.\d+[0-9a-z.+]*)")
        .expect("a constant expression that a test compiles")
});

/// Checks one run's boundaries and figures.
pub(crate) fn check(check: &mut Checker<'_>, run: &str) -> Boundaries {
    let c = format!("{run}.container");
    let matches = format!("{c}.boundaries.matches");
    let mut found = Boundaries::new();
    let mut figures = BTreeMap::<String, (f64, String)>::new();
    for key in check.doc.keys(&matches) {
        let m = format!("{matches}.{key}");
        check.eq_text(&format!("{m}.key"), "own-name", &key, &[]);
        let Some(text) = check.doc.text(&format!("{m}.text")) else {
            continue;
        };
        if let Some(at) = stamps(check, &m, text) {
            found.insert(key.clone(), (format!("{m}.at"), at));
        }
        line_figures(check, &m, &key, text, &mut figures);
    }
    log_figures(check, run, &figures);
    lines(check, &c, &matches, &found);
    versions(check, &matches);
    found
}

/// The stamp before the line, its resolution, and the stamp inside the line.
fn stamps(check: &mut Checker<'_>, m: &str, text: &str) -> Option<i64> {
    let (at_path, text_path) = (format!("{m}.at"), format!("{m}.text"));
    let at = check.stamp(&at_path);
    let outer = text.split(' ').next().unwrap_or("");
    let stamped = parse_rfc3339(outer);
    if check.doc.text(&format!("{m}.stamp")) != Some("docker") {
        return at;
    }
    let Some(expected) = stamped else {
        check.require(
            &text_path,
            "docker-stamp",
            false,
            "a line that begins with an RFC 3339 stamp".to_owned(),
            shorten(text),
            &[],
        );
        return at;
    };
    check.eq_stamp(
        &at_path,
        "from-text",
        expected,
        TOLERANCE_EXACT_NS - 1,
        &[&text_path],
    );
    // The runtime prints as many digits as its clock carries: nine are 1 ns. Zeros at the end are kept.
    let digits = outer
        .split_once('.')
        .map_or(0, |(_, f)| f.bytes().take_while(u8::is_ascii_digit).count());
    if let Some(power) = 9_u32.checked_sub(digits as u32) {
        check.eq_int(
            &format!("{m}.resolution_ns"),
            "digits-of-stamp",
            10_i64.pow(power),
            &[],
        );
    }
    if let Some(inner) = INNER_STAMP.captures(text)
        && let Some(at) = at
        && let Some(year) = outer.get(..4)
    {
        // The line carries the same day and second, give or take the second in which it was passed on.
        let inner_text = format!("{year}-{}T{}Z", &inner[1], &inner[2]);
        let printed = parse_rfc3339(&inner_text);
        let ok = printed.is_some_and(|p| {
            let lag = at.saturating_sub(p);
            (0..2 * NS_PER_S).contains(&lag)
        });
        check.require(
            &at_path,
            "inner-stamp",
            ok,
            format!("within 2 s after {inner_text}"),
            show(rfc3339(at)),
            &[&text_path],
        );
    }
    at
}

/// Figures of a line against its text.
fn line_figures(
    check: &mut Checker<'_>,
    m: &str,
    key: &str,
    text: &str,
    all: &mut BTreeMap<String, (f64, String)>,
) {
    let text_path = format!("{m}.text");
    let mut read = BTreeMap::new();
    for reader in READERS.iter().filter(|r| r.key == key) {
        if let Some(groups) = reader.expression.captures(text) {
            for (i, name) in reader.names.iter().enumerate() {
                if let Some(value) = groups.get(i + 1).and_then(|g| g.as_str().parse().ok()) {
                    read.insert((*name).to_owned(), value);
                }
            }
        }
    }
    for (name, value) in &read {
        let path = format!("{m}.figures.{name}");
        check.eq_stat(&path, "from-text", *value, &[&text_path]);
        all.insert(name.clone(), (*value, path));
    }
    for name in check.doc.keys(&format!("{m}.figures")) {
        if !read.contains_key(&name) {
            let path = format!("{m}.figures.{name}");
            check.equal(
                &path,
                "from-text",
                false,
                "a figure that the line holds".to_owned(),
                "not in the line".to_owned(),
                &[&text_path],
            );
        }
    }
}

/// `log_figures` is the union of the lines' figures.
fn log_figures(check: &mut Checker<'_>, run: &str, figures: &BTreeMap<String, (f64, String)>) {
    let base = format!("{run}.decomposition.log_figures");
    for (name, (value, path)) in figures {
        check.eq_stat(&format!("{base}.{name}"), "from-line", *value, &[path]);
    }
    for name in check.doc.keys(&base) {
        if !figures.contains_key(&name) {
            let path = format!("{base}.{name}");
            check.equal(
                &path,
                "from-line",
                false,
                "a figure of a boundary line".to_owned(),
                "no line holds it".to_owned(),
                &[],
            );
        }
    }
}

/// Line numbers ascend with time, inside the log.
fn lines(check: &mut Checker<'_>, c: &str, matches: &str, found: &Boundaries) {
    let total_path = format!("{c}.boundaries.lines");
    let total = check.count(&total_path);
    let mut last: Option<(String, i64)> = None;
    let mut stamps = Vec::new();
    for key in ORDER {
        if !found.contains_key(key) {
            continue;
        }
        let path = format!("{matches}.{key}.line");
        stamps.push(format!("{matches}.{key}.at"));
        let Some(line) = check.count(&path) else {
            continue;
        };
        if let Some((before_path, before)) = &last {
            check.require(
                &path,
                "ascending",
                line > *before,
                format!("after line {before}"),
                line.to_string(),
                &[before_path],
            );
        } else {
            check.require(
                &path,
                "from-1",
                line >= 1,
                "at least 1".to_owned(),
                line.to_string(),
                &[],
            );
        }
        if let Some(total) = total {
            check.require(
                &path,
                "inside-log",
                line <= total,
                format!("at most {total}"),
                line.to_string(),
                &[&total_path],
            );
        }
        last = Some((path, line));
    }
    let stamps: Vec<&str> = stamps.iter().map(String::as_str).collect();
    check.ascending("order", &stamps);
    let bytes_path = format!("{c}.log_bytes");
    if let (Some(total), Some(bytes)) = (total, check.count(&bytes_path)) {
        let mean = bytes as f64 / total.max(1) as f64;
        check.within(&bytes_path, "mean-line", mean, LINE_BYTES, &[&total_path]);
    }
}

/// The banner and the engine name the same release.
fn versions(check: &mut Checker<'_>, matches: &str) {
    let (banner, engine) = (
        format!("{matches}.banner.text"),
        format!("{matches}.engine_init.text"),
    );
    let read = |text: Option<&str>| {
        text.and_then(|t| VERSION.captures(t))
            .map(|c| c[1].to_owned())
    };
    let (a, b) = (read(check.doc.text(&banner)), read(check.doc.text(&engine)));
    if let (Some(a), Some(b)) = (a, b) {
        check.require(&engine, "same-release", a == b, a, b, &[&banner]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_compile_and_read() {
        let line = "init engine (profile, create kv cache, warmup model) took 8.28 s (compilation: 0.19 s)";
        let reader = READERS.iter().find(|r| r.key == "engine_ready").unwrap();
        let groups = reader.expression.captures(line).unwrap();
        assert_eq!((&groups[1], &groups[2]), ("8.28", "0.19"));
        assert!(INNER_STAMP.is_match("INFO 10-02 16:15:43 [a.py:1]"));
        assert_eq!(
            &VERSION.captures("engine (v0.29.0) with").unwrap()[1],
            "0.29.0"
        );
    }
}
