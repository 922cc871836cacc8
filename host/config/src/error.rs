//! A mistake in a campaign file, shown as a compiler would.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

/// A mistake in the campaign file, or what kept it from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// What is wrong.
    pub message: String,
    /// File as it was named on the command line.
    pub file: String,
    /// Where in it, with the file's text; `None` when the file could not be read at all.
    pub place: Option<Place>,
    /// How to mend it.
    pub help: Option<String>,
}

/// A place in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The file's text.
    pub text: String,
    /// Bytes that are wrong.
    pub span: Range<usize>,
}

impl Place {
    /// Line and column, from 1.
    pub fn line_column(&self) -> (usize, usize) {
        let before = &self.text[..self.span.start.min(self.text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        (line, column)
    }

    /// The lines that the span touches, which is what a drawing shows.
    fn excerpt(&self) -> &str {
        let start = self.span.start.min(self.text.len());
        let end = self.span.end.clamp(start, self.text.len());
        let from = self.text[..start].rfind('\n').map_or(0, |n| n + 1);
        let to = self.text[end..]
            .find('\n')
            .map_or(self.text.len(), |n| end + n);
        &self.text[from..to]
    }

    /// From the span's start to the end of its line.
    fn rest_of_line(&self) -> &str {
        let rest = &self.text[self.span.start.min(self.text.len())..];
        rest.lines().next().unwrap_or_default()
    }
}

/// Longest message, and help, in characters: a file may hold values of any length.
const MAX_MESSAGE_CHARS: usize = 600;
/// Longest piece of the file that is drawn.
const MAX_EXCERPT_BYTES: usize = 2000;
/// Of a longer one, characters that are shown.
const MAX_SHOWN_CHARS: usize = 60;

/// The text, or its beginning and end where it is longer: what is wrong and how to mend it stand there.
fn bounded(text: &str, limit: usize) -> Cow<'_, str> {
    let length = text.chars().count();
    if length <= limit {
        return Cow::Borrowed(text);
    }
    let head: String = text.chars().take(limit / 2).collect();
    let tail: String = text.chars().skip(length - limit / 2).collect();
    Cow::Owned(format!("{head}…{tail}"))
}

impl ConfigError {
    /// The same as a warning: the campaign can run, but this is hardly meant.
    pub fn warning(&self) -> String {
        self.drawn(Level::WARNING)
    }

    fn drawn(&self, level: Level<'_>) -> String {
        let message = bounded(&self.message, MAX_MESSAGE_CHARS);
        let help = self.help.as_deref().map(|h| bounded(h, MAX_MESSAGE_CHARS));
        let title = level.clone().primary_title(message.as_ref());
        let group = match &self.place {
            // Many lines, or one that is too long to show: as much as says which one it is.
            Some(place) if place.excerpt().len() > MAX_EXCERPT_BYTES => {
                let (line, column) = place.line_column();
                let shown = bounded(place.rest_of_line(), MAX_SHOWN_CHARS);
                Group::with_title(level.primary_title(format!(
                    "{}:{line}:{column}: {message}, at `{shown}`",
                    self.file
                )))
            }
            Some(place) => Group::with_title(title).element(
                Snippet::source(place.text.as_str())
                    .path(self.file.as_str())
                    .annotation(AnnotationKind::Primary.span(place.span.clone())),
            ),
            None => Group::with_title(level.primary_title(format!("{}: {message}", self.file))),
        };
        let group = match &help {
            Some(help) => group.element(Level::HELP.message(help.as_ref())),
            None => group,
        };
        Renderer::plain().render(&[group])
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.drawn(Level::ERROR))
    }
}

impl std::error::Error for ConfigError {}
