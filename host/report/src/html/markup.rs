//! Pieces of HTML. Everything that comes from outside goes through [`esc`].

use std::fmt::{self, Display, Write as _};

/// Writes to a `String`, which cannot fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write as _;
        let _ = write!($out, $($arg)*);
    }};
}
pub(super) use put;

/// Most characters that one text from outside may take on the page.
pub(super) const MAX_TEXT_CHARS: usize = 1_000;

/// Most items of a list from outside that the page shows; the rest is counted.
pub(super) const MAX_LIST_ITEMS: usize = 60;

/// A text from outside, made safe for element content and for quoted attributes.
pub(super) struct Esc<'a>(&'a str);

/// Makes a text safe: markup escaped, control and direction-changing characters replaced, length bounded.
pub(super) fn esc(text: &str) -> Esc<'_> {
    Esc(text)
}

impl Display for Esc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.0.chars().enumerate() {
            if i == MAX_TEXT_CHARS {
                return f.write_char('…');
            }
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' | '\r' => f.write_char(' ')?,
                // Direction marks could make a text read as something else.
                '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                    f.write_char('\u{fffd}')?;
                }
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// "not measured", with the reason where there is one.
pub(super) fn absent(reason: Option<&str>) -> String {
    match reason.filter(|r| !r.is_empty()) {
        Some(reason) => format!(
            "<span class=\"absent\">not measured <small>{}</small></span>",
            esc(reason)
        ),
        None => "<span class=\"absent\">not measured</span>".to_owned(),
    }
}

/// A measured figure, or its absence with the reason.
pub(super) fn figure<T>(
    value: Option<T>,
    show: impl Fn(T) -> String,
    reason: Option<&str>,
) -> String {
    value.map_or_else(|| absent(reason), show)
}

/// A figure in a dense table: a dash where there is none; the reason stands elsewhere in the row.
pub(super) fn dense<T>(value: Option<T>, show: impl Fn(T) -> String) -> String {
    value.map_or_else(
        || "<span class=\"absent\" title=\"not measured\">–</span>".to_owned(),
        show,
    )
}

/// A bounded list of texts from outside.
pub(super) fn list(items: &[String]) -> String {
    let mut out = String::from("<ul>");
    for item in items.iter().take(MAX_LIST_ITEMS) {
        put!(out, "<li>{}</li>", esc(item));
    }
    if items.len() > MAX_LIST_ITEMS {
        put!(
            out,
            "<li>… and {} more, all in report.json</li>",
            items.len() - MAX_LIST_ITEMS
        );
    }
    out.push_str("</ul>");
    out
}

/// A fold-out.
pub(super) fn fold(summary: &str, open: bool, body: &str) -> String {
    let open = if open { " open" } else { "" };
    format!("<details{open}><summary>{summary}</summary><div class=\"fold\">{body}</div></details>")
}

/// A section of the page; `title` and `lead` are our own texts.
pub(super) fn section(id: &str, title: &str, lead: &str, body: &str) -> String {
    let lead = if lead.is_empty() {
        String::new()
    } else {
        format!("<p class=\"lead\">{lead}</p>")
    };
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-h\"><h2 id=\"{id}-h\">{title}</h2>{lead}{body}</section>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_quotes_controls_and_length_are_tamed() {
        assert_eq!(
            esc("<script>\"a\" & 'b'\u{202e}\u{7}\n</script>").to_string(),
            "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;\u{fffd}\u{fffd} &lt;/script&gt;"
        );
        let long = esc(&"x".repeat(5_000)).to_string();
        assert_eq!(long.chars().count(), MAX_TEXT_CHARS + 1);
        assert!(long.ends_with('…'));
    }

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        let items: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        assert!(list(&items).contains("… and 40 more"));
    }
}
