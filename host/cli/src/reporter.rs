//! All human output: to stderr, through one place, with control characters made harmless.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::Failure;
use crate::glyphs;
use crate::wrap::{columns, wrap};

/// What a picture may be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Canvas {
    /// Columns.
    pub width: usize,
    /// Whether block characters can be shown.
    pub unicode: bool,
}

/// Columns where no terminal says how many it has.
const DEFAULT_WIDTH: usize = 80;

/// Writes to stderr; while a progress line is shown, above it.
pub struct Reporter {
    bar: Mutex<Option<ProgressBar>>,
    terminal: bool,
}

impl Reporter {
    /// A reporter on stderr.
    pub fn new() -> Self {
        Self {
            bar: Mutex::new(None),
            terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Whether a person watches.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// What pictures may be made of: the width of the terminal, and block characters where the locale
    /// is one of UTF-8. Without colours.
    pub fn canvas(&self) -> Canvas {
        Canvas {
            width: columns(std::io::stderr()).unwrap_or(DEFAULT_WIDTH),
            unicode: glyphs::unicode(),
        }
    }

    /// One line (or several).
    pub fn say(&self, text: impl AsRef<str>) {
        let text = harmless(text.as_ref());
        let text = glyphs::shown(&text);
        match &*self.lock() {
            Some(bar) => bar.println(&text),
            None => {
                let mut err = std::io::stderr().lock();
                // A closed stderr must not end a run.
                let _ = writeln!(err, "{text}");
            }
        }
    }

    /// One line, on a terminal broken to its width, so that what follows it hangs below its text.
    pub fn say_hanging(&self, indent: usize, text: impl AsRef<str>) {
        let text = text.as_ref();
        match columns(std::io::stderr()).filter(|_| self.terminal) {
            Some(width) => self.say(wrap(text, width, indent)),
            None => self.say(text),
        }
    }

    /// Shows a progress line of this length (in milliseconds of the run) until [`Self::end_bar`].
    pub fn start_bar(&self, length_ms: u64) {
        if !self.terminal {
            return;
        }
        let bar =
            ProgressBar::with_draw_target(Some(length_ms), ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("  {bar:28} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars(&glyphs::shown("━╸─"));
        bar.set_style(style);
        bar.enable_steady_tick(Duration::from_millis(250));
        *self.lock() = Some(bar);
    }

    /// Moves the progress line.
    pub fn progress(&self, at_ms: u64, message: String) {
        if let Some(bar) = &*self.lock() {
            bar.set_position(at_ms);
            bar.set_message(glyphs::shown(&harmless(&message)).into_owned());
        }
    }

    /// Takes the progress line away.
    pub fn end_bar(&self) {
        if let Some(bar) = self.lock().take() {
            bar.finish_and_clear();
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        self.bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Text of unknown origin (a server's error, a plugin's message) without terminal control.
pub fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

/// Prints an error as the last thing of a command.
pub fn print_failure(failure: &Failure) {
    let mut text = if failure.drawn {
        failure.error.to_string()
    } else {
        format!("error: {}", failure.text())
    };
    if let Some(help) = &failure.help {
        text.push_str("\n  help: ");
        text.push_str(&help.replace('\n', "\n        "));
    }
    Reporter::new().say(text);
}
