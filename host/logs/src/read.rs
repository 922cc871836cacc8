//! One log through one matcher.

use std::io::{self, BufRead};

use blackstart_record::{Boundary, Measure, StampSource};

use crate::escapes::without_escapes;
use crate::keep::{Dropped, Keeper, Kept};
use crate::lines::LineSplitter;
use crate::lives::Lives;
use crate::stamp::{LineClock, Wrapper, strip_wrapper};

/// What a matcher says of a line.
#[derive(Debug, Clone, PartialEq)]
pub struct RawBoundary {
    /// Physical line, from 0.
    pub line: u64,
    /// Key as in `wit/matcher.wit`.
    pub key: String,
    /// The printing process as the log names it.
    pub process: Option<String>,
    /// The line's own clock.
    pub stamp: Option<String>,
    /// Figures in the line.
    pub measures: Vec<Measure>,
    /// Labelled texts in the line.
    pub fields: Vec<(String, String)>,
}

/// Something that recognises boundaries: a plugin's session, or a double in a test.
pub trait LineMatcher {
    /// Whole lines joined by `\n`, without a last one.
    ///
    /// # Errors
    /// Why the matcher can go on no longer.
    fn feed(&mut self, text: &str) -> Result<Vec<RawBoundary>, String>;

    /// Boundaries that only the end decides.
    ///
    /// # Errors
    /// Why the matcher can go on no longer.
    fn finish(&mut self) -> Result<Vec<RawBoundary>, String>;
}

/// How a log is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// The stamps before the lines are the instrument's own.
    pub captured: bool,
    /// Latest instant that the log can hold, nanoseconds since the Unix epoch: it places stamps
    /// without a year.
    pub reference_unix_ns: i64,
    /// Offset from UTC of lines' own stamps, in seconds.
    pub offset_s: i64,
}

/// What was read.
#[derive(Debug, Clone, PartialEq)]
pub struct LogReading {
    /// Boundaries in file order, without those that were dropped.
    pub boundaries: Vec<Boundary>,
    /// What did not fit into memory, in the middle of an endless log. Lines, matches and server
    /// starts are counted over the whole log all the same.
    pub dropped: Option<Dropped>,
    /// Physical lines.
    pub lines: u64,
    /// Lines that gave at least one boundary.
    pub matched: u64,
    /// Lines in which bytes had to be replaced.
    pub lossy_lines: u64,
    /// Lines that were too long and lost their middle.
    pub cut_lines: u64,
}

/// Why a log could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The input failed.
    #[error("reading the log failed: {0}")]
    Input(#[from] io::Error),
    /// The matcher failed.
    #[error("{0}")]
    Matcher(String),
}

/// Lines and bytes of one call of the matcher.
const BATCH_LINES: usize = 2048;
const BATCH_BYTES: usize = 256 << 10;
/// Text of a boundary's line that is kept.
const KEPT_TEXT_BYTES: usize = 16 << 10;

struct Line {
    text: String,
    wrapper: Option<Wrapper>,
}

/// Reads a log to its end.
///
/// # Errors
/// See [`ReadError`].
pub fn read_log(
    input: impl BufRead,
    matcher: &mut dyn LineMatcher,
    options: ReadOptions,
) -> Result<LogReading, ReadError> {
    let mut splitter = LineSplitter::new(input);
    let mut reading = Reading {
        options,
        clock: LineClock::new(options.reference_unix_ns, options.offset_s),
        lives: Lives::default(),
        previous: Vec::new(),
        previous_start: 0,
        keeper: Keeper::default(),
        out: LogReading {
            boundaries: Vec::new(),
            dropped: None,
            lines: 0,
            matched: 0,
            lossy_lines: 0,
            cut_lines: 0,
        },
        last_matched: None,
    };
    loop {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_LINES && bytes < BATCH_BYTES {
            let Some(line) = splitter.next_line()? else {
                break;
            };
            reading.out.lossy_lines += u64::from(line.lossy);
            reading.out.cut_lines += u64::from(line.cut);
            let (wrapper, rest) = strip_wrapper(&line.text);
            let text = if wrapper.is_some() {
                rest.to_owned()
            } else {
                line.text
            };
            bytes += text.len() + 1;
            batch.push(Line { text, wrapper });
        }
        if batch.is_empty() {
            break;
        }
        let text = batch
            .iter()
            .map(|l| l.text.as_str())
            .collect::<Vec<_>>()
            .join("\n");
        let found = matcher.feed(&text).map_err(ReadError::Matcher)?;
        let start = reading.out.lines;
        reading.out.lines += batch.len() as u64;
        reading.take(found, &batch, start);
        reading.previous_start = start;
        reading.previous = batch;
    }
    let found = matcher.finish().map_err(ReadError::Matcher)?;
    let end = reading.out.lines;
    reading.take(found, &[], end);
    Ok(reading.finish())
}

struct Reading {
    options: ReadOptions,
    clock: LineClock,
    lives: Lives,
    previous: Vec<Line>,
    previous_start: u64,
    keeper: Keeper,
    out: LogReading,
    last_matched: Option<u64>,
}

impl Reading {
    fn take(&mut self, found: Vec<RawBoundary>, batch: &[Line], start: u64) {
        for raw in found {
            let line = if raw.line >= start {
                batch.get((raw.line - start) as usize)
            } else {
                raw.line
                    .checked_sub(self.previous_start)
                    .and_then(|i| self.previous.get(i as usize))
            };
            if self.last_matched != Some(raw.line) {
                self.out.matched += 1;
                self.last_matched = Some(raw.line);
            }
            let wrapper = line.and_then(|l| l.wrapper);
            let own = raw.stamp.as_deref().and_then(|s| self.clock.read(s));
            let life = self.lives.of(&raw.key, raw.process.as_deref());
            let stamp = match wrapper {
                Some(_) if self.options.captured => StampSource::Capture,
                Some(w) => w.source,
                None => StampSource::None,
            };
            let boundary = Boundary {
                line: raw.line + 1,
                life,
                key: raw.key,
                process: raw.process,
                at_unix_ns: wrapper.map(|w| w.unix_ns),
                stamp,
                resolution_ns: wrapper.map(|w| w.resolution_ns),
                measures: raw.measures,
                fields: raw.fields,
                text: line
                    .map(|l| bounded(&without_escapes(&l.text)))
                    .unwrap_or_default(),
            };
            self.keeper.push(Kept { boundary, own });
        }
    }

    fn finish(mut self) -> LogReading {
        let (kept, dropped) = self.keeper.finish();
        self.out.dropped = dropped;
        let (own, mut boundaries): (Vec<_>, Vec<_>) =
            kept.into_iter().map(|k| (k.own, k.boundary)).unzip();
        for (boundary, own) in boundaries.iter_mut().zip(self.clock.place(&own)) {
            if boundary.stamp == StampSource::None
                && let Some((unix_ns, resolution_ns)) = own
            {
                boundary.at_unix_ns = Some(unix_ns);
                boundary.resolution_ns = Some(resolution_ns);
                boundary.stamp = StampSource::Line;
            }
        }
        self.out.boundaries = boundaries;
        self.out
    }
}

/// The line's text, bounded: the end of a bar's history is what matters of a long line.
fn bounded(text: &str) -> String {
    if text.len() <= KEPT_TEXT_BYTES {
        return text.to_owned();
    }
    let mut from = text.len() - KEPT_TEXT_BYTES;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("…{}", &text[from..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line that holds `!` is a boundary named by its first word.
    struct Bang {
        next: u64,
    }

    impl LineMatcher for Bang {
        fn feed(&mut self, text: &str) -> Result<Vec<RawBoundary>, String> {
            let mut found = Vec::new();
            for line in text.split('\n') {
                if line.contains('!') {
                    found.push(RawBoundary {
                        line: self.next,
                        key: line.split(' ').next().unwrap_or_default().to_owned(),
                        process: None,
                        stamp: line.split_once('@').map(|(_, s)| s.to_owned()),
                        measures: Vec::new(),
                        fields: Vec::new(),
                    });
                }
                self.next += 1;
            }
            Ok(found)
        }
        fn finish(&mut self) -> Result<Vec<RawBoundary>, String> {
            Ok(Vec::new())
        }
    }

    const OPTIONS: ReadOptions = ReadOptions {
        captured: false,
        reference_unix_ns: 1_800_000_000_000_000_000,
        offset_s: 0,
    };

    fn read(text: &str, options: ReadOptions) -> LogReading {
        read_log(text.as_bytes(), &mut Bang { next: 0 }, options).unwrap()
    }

    #[test]
    fn lines_count_from_one_and_stamps_say_whose_clock() {
        let log =
            "x\n2026-10-02T16:15:43.5Z banner !\nstartup_complete ! @2026-10-02T16:15:44\nnone !\n";
        let reading = read(log, OPTIONS);
        assert_eq!((reading.lines, reading.matched), (4, 3));
        let stamps: Vec<_> = reading
            .boundaries
            .iter()
            .map(|b| (b.line, b.stamp, b.at_unix_ns.is_some()))
            .collect();
        assert_eq!(
            stamps,
            [
                (2, StampSource::Docker, true),
                (3, StampSource::Line, true),
                (4, StampSource::None, false)
            ]
        );
        assert_eq!(reading.boundaries[0].text, "banner !");
        let captured = read(
            log,
            ReadOptions {
                captured: true,
                ..OPTIONS
            },
        );
        assert_eq!(captured.boundaries[0].stamp, StampSource::Capture);
    }

    #[test]
    fn the_text_of_a_line_has_no_colours() {
        let reading = read(
            "\x1b[0;36mbanner\x1b[0m ! \x1b]8;;http://h\x07link\x1b]8;;\x07\n",
            OPTIONS,
        );
        assert_eq!(reading.boundaries[0].text, "banner ! link");
    }

    #[test]
    fn line_numbers_hold_over_many_batches() {
        let log: String = (0..3 * BATCH_LINES)
            .map(|i| if i % 1000 == 999 { "k !\n" } else { "plain\n" })
            .collect();
        let lines: Vec<u64> = read(&log, OPTIONS)
            .boundaries
            .iter()
            .map(|b| b.line)
            .collect();
        assert_eq!(
            lines,
            (1..=lines.len() as u64)
                .map(|i| i * 1000)
                .collect::<Vec<_>>()
        );
        assert_eq!(lines.len(), 3 * BATCH_LINES / 1000);
    }

    #[test]
    fn an_endless_log_keeps_its_ends_and_says_what_it_dropped() {
        /// Many lines that are made as they are read.
        struct Endless {
            left: u64,
            line: &'static [u8],
            at: usize,
        }
        impl io::Read for Endless {
            fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
                let mut n = 0;
                while n < out.len() && self.left > 0 {
                    out[n] = self.line[self.at];
                    n += 1;
                    self.at = (self.at + 1) % self.line.len();
                    self.left -= u64::from(self.at == 0);
                }
                Ok(n)
            }
        }
        const LINES: u64 = 300_000;
        let input = Endless {
            left: LINES,
            line: b"banner ! of a server that is started again and again\n",
            at: 0,
        };
        let input = io::BufReader::new(input);
        let reading = read_log(input, &mut Bang { next: 0 }, OPTIONS).unwrap();
        let dropped = reading.dropped.unwrap();
        assert_eq!((reading.lines, reading.matched), (LINES, LINES));
        assert_eq!(reading.boundaries.len() as u64 + dropped.boundaries, LINES);
        assert!(
            reading.boundaries.len() < 250_000,
            "{}",
            reading.boundaries.len()
        );
        // The numbers of lines and starts are those of the whole log.
        let ends = [reading.boundaries.first(), reading.boundaries.last()];
        assert_eq!(
            ends.map(|b| b.map(|b| (b.line, u64::from(b.life)))),
            [Some((1, 1)), Some((LINES, LINES))]
        );
        let gap = reading
            .boundaries
            .windows(2)
            .find(|w| w[1].line != w[0].line + 1)
            .unwrap();
        assert_eq!(
            (gap[0].line + 1, gap[1].line - 1),
            (dropped.first_line, dropped.last_line)
        );
    }

    #[test]
    fn an_empty_log_has_no_lines() {
        assert_eq!(read("", OPTIONS).lines, 0);
    }
}
