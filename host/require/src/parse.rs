//! The grammar: comparisons of names with numbers and words, joined by `and`, `or` and parentheses.
//!
//! ```text
//! any        = all { "or" all }
//! all        = one { "and" one }
//! one        = "(" any ")" | operand comparison operand
//! comparison = "<=" | "<" | ">=" | ">" | "==" | "!="
//! operand    = name | number | word
//! name       = letter { letter | digit | "_" } { "." part }      a part may begin with a digit
//! word       = "'" … "'" | '"' … '"'
//! ```

use std::fmt;

/// Longest text of a requirement, in bytes.
pub const MAX_LENGTH: usize = 1_000;
/// Deepest nesting of parentheses.
pub const MAX_DEPTH: usize = 32;

/// A comparison's sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sign {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand {
    Name(String),
    Number(f64),
    Word(String),
}

/// A requirement's tree.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Compare(Operand, Sign, Operand),
}

/// An objective, as it was written.
#[derive(Debug, Clone, PartialEq)]
pub struct Requirement {
    text: String,
    pub(crate) expression: Expression,
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is no requirement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {at}: {what}; write it like `outage_s.median <= 30 and valid_runs >= 5`")]
pub struct ParseError {
    /// Where, counted in characters from 1.
    pub at: usize,
    /// What.
    pub what: String,
}

impl Requirement {
    /// Reads a requirement.
    ///
    /// # Errors
    /// With the place of the first mistake.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseError {
                at: 1,
                what: format!(
                    "{} bytes are more than the {MAX_LENGTH} accepted",
                    text.len()
                ),
            });
        }
        let tokens = tokens(text)?;
        let mut parser = Parser {
            tokens: &tokens,
            next: 0,
            end: text.chars().count() + 1,
        };
        let expression = parser.any(0)?;
        if let Some((at, token)) = parser.peek() {
            let what =
                format!("{token} is more than was expected; join comparisons by `and` or `or`");
            return Err(ParseError { at, what });
        }
        Ok(Self {
            text: text.trim().to_owned(),
            expression,
        })
    }

    /// Every name that is used, in order, each once.
    pub fn names(&self) -> Vec<&str> {
        let mut all = Vec::new();
        gather(&self.expression, &mut all);
        all
    }
}

fn gather<'a>(expression: &'a Expression, all: &mut Vec<&'a str>) {
    match expression {
        Expression::Any(parts) | Expression::All(parts) => {
            parts.iter().for_each(|part| gather(part, all));
        }
        Expression::Compare(a, _, b) => {
            for operand in [a, b] {
                if let Operand::Name(name) = operand
                    && !all.contains(&name.as_str())
                {
                    all.push(name);
                }
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Sign(Sign),
    Operand(Operand),
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
            Self::And => f.write_str("`and`"),
            Self::Or => f.write_str("`or`"),
            Self::Sign(_) => f.write_str("a comparison"),
            Self::Operand(Operand::Name(name)) => write!(f, "`{name}`"),
            Self::Operand(Operand::Number(number)) => write!(f, "`{number}`"),
            Self::Operand(Operand::Word(word)) => write!(f, "{word:?}"),
        }
    }
}

/// Tokens with their places.
fn tokens(text: &str) -> Result<Vec<(usize, Token)>, ParseError> {
    let mut found = Vec::new();
    let chars: Vec<char> = text.chars().collect();
    let mut i = 0;
    while let Some(&c) = chars.get(i) {
        let start = i;
        let wrong = |what: String| ParseError {
            at: start + 1,
            what,
        };
        let ahead = chars.get(i + 1).copied();
        i += 1;
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            '<' | '>' | '=' | '!' if ahead == Some('=') => {
                i += 1;
                Token::Sign(match c {
                    '<' => Sign::LessOrEqual,
                    '>' => Sign::GreaterOrEqual,
                    '=' => Sign::Equal,
                    _ => Sign::NotEqual,
                })
            }
            '<' => Token::Sign(Sign::Less),
            '>' => Token::Sign(Sign::Greater),
            '≤' => Token::Sign(Sign::LessOrEqual),
            '≥' => Token::Sign(Sign::GreaterOrEqual),
            '=' => return Err(wrong("`=` is no comparison, `==` is".to_owned())),
            '\'' | '"' => {
                let Some(length) = chars[i..].iter().position(|other| *other == c) else {
                    return Err(wrong("the word has no end".to_owned()));
                };
                let word = chars[i..i + length].iter().collect();
                i += length + 1;
                Token::Operand(Operand::Word(word))
            }
            '0'..='9' | '+' | '-' | '.' => {
                while chars.get(i).is_some_and(|c| {
                    c.is_ascii_alphanumeric()
                        || *c == '.'
                        || (matches!(c, '+' | '-') && matches!(chars[i - 1], 'e' | 'E'))
                }) {
                    i += 1;
                }
                let written: String = chars[start..i].iter().collect();
                match written.parse::<f64>() {
                    Ok(number) if number.is_finite() => Token::Operand(Operand::Number(number)),
                    _ => {
                        return Err(wrong(format!(
                            "`{written}` is no number (units stand in the names: 30 s is 30)"
                        )));
                    }
                }
            }
            c if c.is_ascii_alphabetic() || c == '_' => {
                while chars
                    .get(i)
                    .is_some_and(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
                {
                    i += 1;
                }
                let name: String = chars[start..i].iter().collect();
                match name.as_str() {
                    "and" => Token::And,
                    "or" => Token::Or,
                    _ => Token::Operand(Operand::Name(name)),
                }
            }
            '&' | '|' => return Err(wrong("write `and` or `or`".to_owned())),
            '*' | '/' => return Err(wrong("there is no arithmetic".to_owned())),
            c => {
                return Err(wrong(format!(
                    "`{}` is not part of a requirement",
                    c.escape_debug()
                )));
            }
        };
        found.push((start + 1, token));
    }
    Ok(found)
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    next: usize,
    /// Place behind the last character.
    end: usize,
}

impl Parser<'_> {
    fn peek(&self) -> Option<(usize, &Token)> {
        self.tokens.get(self.next).map(|(at, token)| (*at, token))
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let there = self.peek().is_some_and(|(_, token)| token == wanted);
        self.next += usize::from(there);
        there
    }

    fn expected(&self, what: &str) -> ParseError {
        match self.peek() {
            Some((at, token)) => ParseError {
                at,
                what: format!("{what} is expected, not {token}"),
            },
            None => ParseError {
                at: self.end,
                what: format!("{what} is expected, and the text ends"),
            },
        }
    }

    fn any(&mut self, depth: usize) -> Result<Expression, ParseError> {
        let mut parts = vec![self.all(depth)?];
        while self.take(&Token::Or) {
            parts.push(self.all(depth)?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Expression, ParseError> {
        let mut parts = vec![self.one(depth)?];
        while self.take(&Token::And) {
            parts.push(self.one(depth)?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn one(&mut self, depth: usize) -> Result<Expression, ParseError> {
        if self.take(&Token::Open) {
            if depth >= MAX_DEPTH {
                let (at, _) = self.tokens[self.next - 1];
                let what = format!("parentheses are nested deeper than {MAX_DEPTH}");
                return Err(ParseError { at, what });
            }
            let inner = self.any(depth + 1)?;
            if !self.take(&Token::Close) {
                return Err(self.expected("`)`"));
            }
            return Ok(inner);
        }
        let a = self.operand()?;
        let Some((_, Token::Sign(sign))) = self.peek() else {
            return Err(self.expected("one of <= < >= > == !="));
        };
        let sign = *sign;
        self.next += 1;
        let b = self.operand()?;
        let ordered = !matches!(sign, Sign::Equal | Sign::NotEqual);
        let word = |o: &Operand| matches!(o, Operand::Word(_));
        if ordered && (word(&a) || word(&b)) {
            let (at, _) = self.tokens[self.next - 2];
            let what = "words are compared by == and != alone".to_owned();
            return Err(ParseError { at, what });
        }
        Ok(Expression::Compare(a, sign, b))
    }

    fn operand(&mut self) -> Result<Operand, ParseError> {
        match self.peek() {
            Some((_, Token::Operand(operand))) => {
                let operand = operand.clone();
                self.next += 1;
                Ok(operand)
            }
            _ => Err(self.expected("a name or a number")),
        }
    }
}

fn one_or(mut parts: Vec<Expression>, join: fn(Vec<Expression>) -> Expression) -> Expression {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mistakes_have_a_place_and_a_way_to_mend_them() {
        for (text, at, says) in [
            ("", 1, "a name or a number is expected, and the text ends"),
            ("a", 2, "one of <= < >= > == != is expected"),
            ("a <=", 5, "a name or a number"),
            ("a = 1", 3, "`==` is"),
            ("a <= 30s", 6, "units stand in the names"),
            ("a <= 1 b >= 2", 8, "`b` is more than was expected"),
            ("a <= 1 && b >= 2", 8, "write `and`"),
            ("(a <= 1", 8, "`)` is expected"),
            ("a <= 1)", 7, "`)` is more"),
            ("a <= 'x'", 3, "words are compared by == and != alone"),
            ("a == 'x", 6, "the word has no end"),
            ("a <= 1e999", 6, "is no number"),
            ("a <= inf and", 13, "the text ends"),
            ("a * 2 <= 1", 3, "no arithmetic"),
            ("a <= 1 ä", 8, "`ä` is not part"),
        ] {
            let error = Requirement::parse(text).unwrap_err();
            assert_eq!(error.at, at, "{text}: {error}");
            assert!(error.what.contains(says), "{text}: {error}");
        }
        let long = "a".repeat(MAX_LENGTH + 1);
        assert!(
            Requirement::parse(&long)
                .unwrap_err()
                .what
                .contains("1001 bytes")
        );
        let deep = format!("{}a<1{}", "(".repeat(33), ")".repeat(33));
        assert!(
            Requirement::parse(&deep)
                .unwrap_err()
                .what
                .contains("nested deeper")
        );
        let deep = format!("{}a<1{}", "(".repeat(32), ")".repeat(32));
        assert!(Requirement::parse(&deep).is_ok());
    }

    #[test]
    fn names_are_listed_once_in_order() {
        let text = "(p99.9 < 1 or b_s.median ≥ 2e-3) and 3 != p99.9 and verdict == 'it''s' ";
        assert!(Requirement::parse(text).is_err());
        let text =
            "(ttft_ms.p99.9 < 1 or b_s.median ≥ 2e-3) and 3 != ttft_ms.p99.9 and v == \"b\" ";
        let parsed = Requirement::parse(text).unwrap();
        assert_eq!(parsed.names(), ["ttft_ms.p99.9", "b_s.median", "v"]);
        assert_eq!(parsed.to_string(), text.trim());
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,300}") {
            let _ = Requirement::parse(&text);
        }

        #[test]
        fn no_row_of_pieces_panics(pieces in proptest::collection::vec(
            prop_oneof![
                Just("a.b"), Just("("), Just(")"), Just("and"), Just("or"), Just("<="), Just("!"),
                Just("=="), Just("1e"), Just("-"), Just("'"), Just("\""), Just(" "), Just("é"), Just("9"),
            ], 0..80)) {
            let text: String = pieces.concat();
            if let Ok(parsed) = Requirement::parse(&text) {
                // What was read reads again, as the same.
                let again = Requirement::parse(&parsed.to_string()).unwrap();
                prop_assert_eq!(again.expression, parsed.expression);
            }
        }
    }
}
