//! A parser of the Prometheus text format, line by line, for hostile input.
//!
//! Written here because the published parser of the format, `prometheus-parse` 0.2.5, takes `\w+`
//! for a metric name and so ignores every `vllm:…` series without a word, splits labels at each
//! comma (also inside a value), knows no escapes, and folds buckets away.
//!
//! Accepted: comments (HELP, TYPE, EOF are ignored), label escapes, quoted metric names, trailing
//! commas, timestamps and exemplars (read past), `NaN` and `±Inf`. A line that is none of this is
//! an error of that line alone.

use std::iter::Peekable;
use std::str::CharIndices;

/// Longest line that is read, in bytes.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// Most labels of one series.
pub const MAX_LABELS: usize = 256;

/// One sample.
#[derive(Debug, Clone, PartialEq)]
pub struct PromSample {
    /// `name` or `name{label="value",…}`, labels in the order and escapes of the format.
    pub series: String,
    /// Value as exported.
    pub value: f64,
}

impl PromSample {
    /// The metric name without labels.
    pub fn name(&self) -> &str {
        self.series.split('{').next().unwrap_or(&self.series)
    }
}

/// Why a line is not in the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// Longer than `MAX_LINE_BYTES`.
    #[error("the line is longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    /// Not UTF-8.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// It does not begin with a metric name.
    #[error("it does not begin with a metric name")]
    Name,
    /// The labels cannot be read.
    #[error("its labels cannot be read")]
    Labels,
    /// More than `MAX_LABELS` labels.
    #[error("it has more than {MAX_LABELS} labels")]
    TooManyLabels,
    /// The value is not a number.
    #[error("its value is not a number")]
    Value,
    /// What follows the value is neither a timestamp nor an exemplar.
    #[error("what follows its value is neither a timestamp nor an exemplar")]
    Tail,
}

/// The lines of a body with their numbers from 1, each parsed; blank lines and comments are left
/// out.
pub fn parse_text(body: &[u8]) -> impl Iterator<Item = (usize, Result<PromSample, LineError>)> {
    body.split(|b| *b == b'\n')
        .zip(1..)
        .filter_map(|(line, number)| {
            if line.len() > MAX_LINE_BYTES {
                return (!line.starts_with(b"#")).then_some((number, Err(LineError::TooLong)));
            }
            match std::str::from_utf8(line) {
                Err(_) if line.starts_with(b"#") => None,
                Err(_) => Some((number, Err(LineError::NotUtf8))),
                Ok(line) => parse_line(line).transpose().map(|parsed| (number, parsed)),
            }
        })
}

/// Parses one line; `None` = a blank line or a comment.
///
/// # Errors
/// When the line is not in the format.
pub fn parse_line(line: &str) -> Result<Option<PromSample>, LineError> {
    let line = line.trim_matches([' ', '\t', '\r']);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    let name_end = line.find(|c: char| !is_name_char(c)).unwrap_or(line.len());
    let mut name = line[..name_end].to_owned();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(LineError::Name);
    }
    let mut rest = skip_blanks(&line[name_end..]);
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        let mut cursor = Cursor::new(inside);
        cursor.labels(&mut name, &mut labels)?;
        rest = cursor.rest();
    } else if rest.len() == line.len() - name_end {
        // Neither a blank nor a brace after the name.
        return Err(LineError::Name);
    }
    if name.is_empty() || name.contains('{') {
        return Err(LineError::Name);
    }
    let mut fields = rest.split([' ', '\t']).filter(|f| !f.is_empty());
    let value = fields
        .next()
        .and_then(|f| f.parse::<f64>().ok())
        .ok_or(LineError::Value)?;
    match fields.next() {
        None | Some("#") => {}
        Some(stamp) => {
            stamp.parse::<f64>().map_err(|_| LineError::Tail)?;
            if !matches!(fields.next(), None | Some("#")) {
                return Err(LineError::Tail);
            }
        }
    }
    Ok(Some(PromSample {
        series: render(name, &labels),
        value,
    }))
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn skip_blanks(text: &str) -> &str {
    text.trim_start_matches([' ', '\t'])
}

/// The series as the format writes it.
fn render(name: String, labels: &[(String, String)]) -> String {
    let mut out = name;
    for (i, (key, value)) in labels.iter().enumerate() {
        out.push(if i == 0 { '{' } else { ',' });
        out.push_str(key);
        out.push_str("=\"");
        for c in value.chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                '"' => out.push_str("\\\""),
                '\n' => out.push_str("\\n"),
                c => out.push(c),
            }
        }
        out.push('"');
    }
    if !labels.is_empty() {
        out.push('}');
    }
    out
}

/// Reads the inside of a label set.
struct Cursor<'a> {
    text: &'a str,
    chars: Peekable<CharIndices<'a>>,
}

impl<'a> Cursor<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            chars: text.char_indices().peekable(),
        }
    }

    fn blanks(&mut self) {
        while self
            .chars
            .next_if(|(_, c)| matches!(c, ' ' | '\t'))
            .is_some()
        {}
    }

    fn eat(&mut self, wanted: char) -> bool {
        self.chars.next_if(|(_, c)| *c == wanted).is_some()
    }

    fn rest(mut self) -> &'a str {
        match self.chars.peek() {
            Some((at, _)) => &self.text[*at..],
            None => "",
        }
    }

    fn word(&mut self) -> String {
        let mut out = String::new();
        while let Some((_, c)) = self.chars.next_if(|(_, c)| is_name_char(*c) || *c == '.') {
            out.push(c);
        }
        out
    }

    /// A quoted text, its opening quote eaten.
    fn quoted(&mut self) -> Result<String, LineError> {
        let mut out = String::new();
        loop {
            match self.chars.next() {
                None => return Err(LineError::Labels),
                Some((_, '"')) => return Ok(out),
                Some((_, '\\')) => match self.chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('\\' | '"'))) => out.push(c),
                    // The format knows no other escape; what was written is kept.
                    Some((_, c)) => out.extend(['\\', c]),
                    None => return Err(LineError::Labels),
                },
                Some((_, c)) => out.push(c),
            }
        }
    }

    fn labels(
        &mut self,
        name: &mut String,
        labels: &mut Vec<(String, String)>,
    ) -> Result<(), LineError> {
        loop {
            self.blanks();
            if self.eat('}') {
                return Ok(());
            }
            let quoted = self.eat('"');
            let key = if quoted { self.quoted()? } else { self.word() };
            self.blanks();
            if self.eat('=') {
                self.blanks();
                if key.is_empty() || !self.eat('"') {
                    return Err(LineError::Labels);
                }
                let value = self.quoted()?;
                if labels.len() >= MAX_LABELS {
                    return Err(LineError::TooManyLabels);
                }
                labels.push((key, value));
            } else if quoted && name.is_empty() && labels.is_empty() {
                // `{"metric.name", label="value"}`
                *name = key;
            } else {
                return Err(LineError::Labels);
            }
            self.blanks();
            if !self.eat(',') {
                return if self.eat('}') {
                    Ok(())
                } else {
                    Err(LineError::Labels)
                };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(line: &str) -> (String, f64) {
        let sample = parse_line(line).unwrap().unwrap();
        (sample.series, sample.value)
    }

    #[test]
    fn lines_of_the_format() {
        assert_eq!(one("up 1"), ("up".into(), 1.0));
        assert_eq!(one("a:b_c\t-2.5e-3\r"), ("a:b_c".into(), -0.0025));
        assert_eq!(one("m{} 3"), ("m".into(), 3.0));
        assert_eq!(
            one(r#"m { a = "x" , b="y", } 1 1700000000000"#),
            (r#"m{a="x",b="y"}"#.into(), 1.0)
        );
        assert_eq!(
            one(r#"m{le="+Inf"} 7 # {trace_id="a b"} 0.5 1.7e9"#),
            (r#"m{le="+Inf"}"#.into(), 7.0)
        );
        assert_eq!(
            one(r#"m{p="C:\\x \"q\" a,b} \n=\z"} 1 17 # {} 1"#),
            (r#"m{p="C:\\x \"q\" a,b} \n=\\z"}"#.into(), 1.0)
        );
        assert_eq!(
            one(r#"{"http.requests", "code.x"="200"} 4"#),
            (r#"http.requests{code.x="200"}"#.into(), 4.0)
        );
        assert_eq!(one("m +Inf").1, f64::INFINITY);
        assert_eq!(one("m -Inf").1, f64::NEG_INFINITY);
        assert!(one("m NaN").1.is_nan());
        for comment in ["", "  ", "# HELP m text", "# TYPE m gauge", "# EOF", "#"] {
            assert_eq!(parse_line(comment), Ok(None), "{comment:?}");
        }
    }

    #[test]
    fn lines_that_are_not() {
        use LineError as E;
        for (line, expected) in [
            ("<!doctype html>", E::Name),
            ("1m 2", E::Name),
            ("m", E::Name),
            ("m=1", E::Name),
            ("é 1", E::Name),
            ("{a=\"b\"} 1", E::Name),
            ("{\"a{b\"} 1", E::Name),
            ("m{a=\"b\" 1", E::Labels),
            ("m{a=\"b 1", E::Labels),
            ("m{a=\"b\\", E::Labels),
            ("m{a=b} 1", E::Labels),
            ("m{=\"b\"} 1", E::Labels),
            ("m{a=\"b\" c=\"d\"} 1", E::Labels),
            ("m{", E::Labels),
            ("m{} ", E::Value),
            ("m one", E::Value),
            ("m 1 yesterday", E::Tail),
            ("m 1 2 3", E::Tail),
        ] {
            assert_eq!(parse_line(line), Err(expected), "{line:?}");
        }
        let many = format!("m{{{}}} 1", "a=\"b\",".repeat(MAX_LABELS + 1));
        assert_eq!(parse_line(&many), Err(E::TooManyLabels));
        assert_eq!(
            parse_line(&format!("m{{a=\"{}\"}} 1", "x".repeat(MAX_LINE_BYTES))),
            Err(E::TooLong)
        );
    }

    #[test]
    fn bodies_keep_line_numbers_and_go_on_after_a_bad_line() {
        let body = b"# HELP a x\na 1\n\n\xff\xfe\nb{ 2\nc 3";
        let parsed: Vec<_> = parse_text(body).collect();
        assert_eq!(parsed.len(), 4);
        assert_eq!(parsed[0].0, 2);
        assert_eq!(parsed[1], (4, Err(LineError::NotUtf8)));
        assert_eq!(parsed[2], (5, Err(LineError::Labels)));
        assert_eq!(parsed[3].1.as_ref().unwrap().name(), "c");
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(body in proptest::collection::vec(any::<u8>(), 0..400)) {
            for _ in parse_text(&body) {}
        }

        #[test]
        fn near_misses_are_survived(line in "[am:_{}\",=\\\\ 1#é\t.]{0,60}") {
            let _ = parse_line(&line);
        }

        /// What is rendered parses to itself: the series is a canonical key.
        #[test]
        fn series_are_canonical(
            name in "[a-z_:][a-z0-9_:]{0,10}",
            labels in proptest::collection::vec(("[a-z_]{1,5}", "\\PC{0,10}|[\\\\\"\n,}]{0,5}"), 0..5),
            value in any::<f64>(),
        ) {
            let series = render(name.clone(), &labels);
            let sample = parse_line(&format!("{series} {value:?}")).unwrap().unwrap();
            prop_assert_eq!(&sample.series, &series);
            prop_assert_eq!(sample.name(), &name);
            prop_assert!(sample.value == value || (value.is_nan() && sample.value.is_nan()));
        }
    }
}
