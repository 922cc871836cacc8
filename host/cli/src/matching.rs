//! A server's log through a matcher plugin.

use std::io::{BufReader, Read};
use std::path::Path;

use blackstart_logs::{LineMatcher, LogReading, RawBoundary, ReadError, ReadOptions, read_log};
use blackstart_plugins::{Boundary, MatcherPlugin, PluginError, Session};
use blackstart_record::{Boundaries, LogCoverage, Measure, open_regular};

use crate::plugins::{Plugins, log_head};

/// Bytes of a log's head that are read to find its matcher.
const HEAD_BYTES: u64 = 64 << 10;

/// A plugin's session, seen as a reader of logs sees it.
struct PluginLines<'a> {
    plugin: &'a mut MatcherPlugin,
    session: Option<Session>,
    error: Option<PluginError>,
}

impl LineMatcher for PluginLines<'_> {
    fn feed(&mut self, text: &str) -> Result<Vec<RawBoundary>, String> {
        let Some(session) = &self.session else {
            return Err("the session has ended".to_owned());
        };
        let found = self.plugin.feed(session, text);
        self.take(found)
    }

    fn finish(&mut self) -> Result<Vec<RawBoundary>, String> {
        let Some(session) = self.session.take() else {
            return Err("the session has ended".to_owned());
        };
        let found = self.plugin.finish(session);
        self.take(found)
    }
}

impl PluginLines<'_> {
    fn take(
        &mut self,
        found: Result<Vec<Boundary>, PluginError>,
    ) -> Result<Vec<RawBoundary>, String> {
        match found {
            Ok(found) => Ok(found.into_iter().map(raw).collect()),
            Err(error) => {
                let text = error.to_string();
                self.error = Some(error);
                Err(text)
            }
        }
    }
}

fn raw(b: Boundary) -> RawBoundary {
    RawBoundary {
        line: b.line,
        key: b.key,
        process: b.process,
        stamp: b.stamp,
        measures: b
            .measures
            .into_iter()
            .map(|m| Measure {
                name: m.name,
                value: m.value,
                unit: m.unit,
            })
            .collect(),
        fields: b.fields.into_iter().map(|f| (f.key, f.value)).collect(),
    }
}

/// A log that was read, and by which matcher.
pub struct Matched {
    /// What was read.
    pub reading: LogReading,
    /// The matcher: `name version`.
    pub matcher: String,
    /// Release that the matcher read at the log's head, or the last banner names.
    pub server_version: Option<String>,
}

/// Why a log was not matched.
#[derive(Debug, thiserror::Error)]
pub enum MatchError {
    /// No matcher claims the log.
    #[error("no log matcher recognises it")]
    Unclaimed,
    /// A matcher was stopped or is missing.
    #[error("{0}")]
    Plugin(#[from] PluginError),
    /// The input failed.
    #[error("{0}")]
    Input(#[from] std::io::Error),
}

/// Reads a log to its end through the named matcher, or the one most certain of its head.
///
/// # Errors
/// See [`MatchError`].
pub fn match_log(
    plugins: &Plugins,
    name: Option<&str>,
    config: &str,
    replica: &str,
    mut input: impl Read,
    options: ReadOptions,
) -> Result<Matched, MatchError> {
    let mut head = Vec::new();
    input.by_ref().take(HEAD_BYTES).read_to_end(&mut head)?;
    let Some((mut plugin, version)) = plugins.matcher_for(name, &log_head(&head))? else {
        return Err(MatchError::Unclaimed);
    };
    let session = plugin.session(replica, config)?;
    let matcher = format!("{} {}", plugin.label().name, plugin.label().version);
    let mut lines = PluginLines {
        plugin: &mut plugin,
        session: Some(session),
        error: None,
    };
    let whole = BufReader::new(std::io::Cursor::new(head).chain(input));
    let reading = match read_log(whole, &mut lines, options) {
        Ok(reading) => reading,
        Err(ReadError::Input(e)) => return Err(e.into()),
        Err(ReadError::Matcher(text)) => {
            return Err(lines.error.take().map_or_else(
                || MatchError::Input(std::io::Error::other(text)),
                MatchError::Plugin,
            ));
        }
    };
    let banner = reading
        .boundaries
        .iter()
        .rev()
        .flat_map(|b| &b.fields)
        .find(|(key, _)| key == "version")
        .map(|(_, version)| version.clone());
    Ok(Matched {
        reading,
        matcher,
        server_version: banner.or(version),
    })
}

/// Matches a replica's captured log, which holds nothing later than `reference_unix_ns`. What goes
/// wrong is coverage that was not measured, never an empty log.
pub fn match_replica_log(
    plugins: &Plugins,
    name: Option<&str>,
    config: &str,
    replica: &str,
    path: &Path,
    reference_unix_ns: i64,
) -> Boundaries {
    let options = ReadOptions {
        captured: true,
        reference_unix_ns,
        offset_s: 0,
    };
    let not_measured = |reason: String| Boundaries {
        replica: replica.to_owned(),
        matcher: None,
        server_version: None,
        coverage: LogCoverage::NotMeasured { reason },
        boundaries: Vec::new(),
    };
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(e) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            return not_measured(format!("no log of this replica was captured ({name}: {e})"));
        }
    };
    match match_log(plugins, name, config, replica, file, options) {
        // The boundaries of the fault may be among those that were dropped, and a later start would
        // then pass for the one that followed the fire.
        Ok(Matched {
            reading:
                LogReading {
                    dropped: Some(dropped),
                    ..
                },
            ..
        }) => not_measured(format!(
            "the log names more boundaries than are kept: {} of them, from line {} to line {}, were dropped",
            dropped.boundaries, dropped.first_line, dropped.last_line
        )),
        Ok(matched) => Boundaries {
            replica: replica.to_owned(),
            matcher: Some(matched.matcher),
            server_version: matched.server_version,
            coverage: LogCoverage::Measured {
                lines: matched.reading.lines,
                matched: matched.reading.matched,
            },
            boundaries: matched.reading.boundaries,
        },
        Err(e) => not_measured(e.to_string()),
    }
}
