//! A mistake in a campaign file, shown as a compiler would.

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
}

impl ConfigError {
    /// The same as a warning: the campaign can run, but this is hardly meant.
    pub fn warning(&self) -> String {
        self.drawn(Level::WARNING)
    }

    fn drawn(&self, level: Level<'_>) -> String {
        let title = level.clone().primary_title(self.message.as_str());
        let group = match &self.place {
            Some(place) => Group::with_title(title).element(
                Snippet::source(place.text.as_str())
                    .path(self.file.as_str())
                    .annotation(AnnotationKind::Primary.span(place.span.clone())),
            ),
            None => {
                Group::with_title(level.primary_title(format!("{}: {}", self.file, self.message)))
            }
        };
        let group = match &self.help {
            Some(help) => group.element(Level::HELP.message(help.as_str())),
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
