//! Long lines on a narrow terminal. What goes to a file or a pipe stays one line: it is searched.

use std::os::fd::AsFd;

/// Columns of the terminal behind a stream; `None` where it is none.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    rustix::termios::tcgetwinsize(stream)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
}

/// The text broken between words so that no line is wider, the later ones indented. The spaces of the
/// first line stay as they are; a word that is wider than the terminal stays whole.
pub fn wrap(text: &str, width: usize, indent: usize) -> String {
    let mut out = String::new();
    let mut used = 0;
    // Words with the spaces before them.
    let mut rest = text;
    while !rest.is_empty() {
        let start = rest.len() - rest.trim_start_matches(' ').len();
        let end = rest[start..].find(' ').map_or(rest.len(), |at| start + at);
        let (word, after) = rest.split_at(end);
        let columns = word.chars().count();
        if used > indent && used + columns > width {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            out.push_str(&word[start..]);
            used = indent + columns - start;
        } else {
            out.push_str(word);
            used += columns;
        }
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_hang() {
        let text = "  ✓ G1  pass: one two three four";
        assert_eq!(wrap(text, 40, 8), text);
        assert_eq!(
            wrap(text, 20, 8),
            "  ✓ G1  pass: one\n        two three\n        four"
        );
        let long = format!("a {} b", "x".repeat(30));
        assert_eq!(wrap(&long, 10, 2), format!("a {}\n  b", "x".repeat(30)));
        assert_eq!(wrap("", 10, 2), "");
        for line in wrap(&"word ".repeat(50), 33, 4).lines() {
            assert!(line.chars().count() <= 33, "{line:?}");
        }
    }
}
