//! The text of a campaign file, and where each key of it stands.

use std::ops::Range;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use toml::de::{DeArray, DeTable, DeValue};

use crate::error::Place;
use crate::words::plain;
use crate::{Config, ConfigError};

/// Largest campaign file that is read.
pub const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// A campaign file's text, kept so that an error found late can still point into it.
#[derive(Debug, Clone)]
pub struct Source {
    /// File as it was named on the command line.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Folder that relative paths in the file start from.
    pub base_dir: PathBuf,
}

/// A campaign file that parsed.
#[derive(Debug, Clone)]
pub struct CampaignFile {
    /// Where it came from.
    pub source: Source,
    /// What it says.
    pub config: Config,
}

impl CampaignFile {
    /// Reads and parses a file.
    ///
    /// # Errors
    /// A [`ConfigError`] with the place of the first mistake.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |message: String, help: &str| ConfigError {
            message,
            file: path.display().to_string(),
            place: None,
            help: Some(help.to_owned()),
        };
        let meta = std::fs::metadata(path).map_err(|e| {
            unreadable(
                format!("cannot be read: {e}"),
                "check the path; `blackstart demo --print-config` shows a campaign file to start from",
            )
        })?;
        // A pipe would block, a device never end.
        if !meta.is_file() {
            return Err(unreadable(
                "not a regular file".to_owned(),
                "give the path of a campaign file",
            ));
        }
        let size = meta.len();
        if size > MAX_CONFIG_BYTES {
            return Err(unreadable(
                format!("is {size} bytes long, more than the {MAX_CONFIG_BYTES} accepted"),
                "a campaign file is a few kilobytes of TOML; is this the right file?",
            ));
        }
        let text = std::fs::read_to_string(path)
            .map_err(|e| unreadable(format!("cannot be read: {e}"), "save it as UTF-8 text"))?;
        let base_dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Self::parse(Source {
            name: path.display().to_string(),
            text,
            base_dir,
        })
    }

    /// Parses a text.
    ///
    /// # Errors
    /// A [`ConfigError`] with the place of the first mistake.
    pub fn parse(source: Source) -> Result<Self, ConfigError> {
        match toml::from_str::<Config>(&source.text) {
            Ok(config) => Ok(Self { source, config }),
            Err(error) => {
                let (message, help) = plain(error.message());
                Err(ConfigError {
                    place: Some(Place {
                        span: error.span().unwrap_or(0..0),
                        text: source.text,
                    }),
                    message,
                    file: source.name,
                    help: Some(help),
                })
            }
        }
    }
}

impl Source {
    /// SHA-256 of the text, in hexadecimal.
    pub fn sha256(&self) -> String {
        hex::encode(Sha256::digest(self.text.as_bytes()))
    }

    /// An error at a key path (`fault.config.signal`, `target.replica.0.base_url`). A path that the
    /// file does not have points at the deepest part of it that is there.
    pub fn error_at(
        &self,
        path: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        ConfigError {
            message: message.into(),
            file: self.name.clone(),
            place: Some(Place {
                text: self.text.clone(),
                span: self.span_of(path),
            }),
            help: Some(help.into()),
        }
    }

    /// An error at a key itself, where [`Self::error_at`] points at its value: the key is what is
    /// wrong.
    pub fn error_at_key(
        &self,
        path: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        let mut error = self.error_at(path, message, help);
        if let (Some(place), Some(span)) = (&mut error.place, self.key_span(path)) {
            place.span = span;
        }
        error
    }

    /// An error at a key path whose line must not be shown, since it holds a secret.
    pub fn secret_error_at(
        &self,
        path: &str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> ConfigError {
        let mut error = self.error_at(path, message, help);
        if let Some(place) = error.place.take() {
            let (line, column) = place.line_column();
            error.file = format!("{}:{line}:{column}", self.name);
        }
        error
    }

    /// Bytes of the value at a key path, or of the deepest part of the path that is there.
    pub fn span_of(&self, path: &str) -> Range<usize> {
        let Ok(root) = DeTable::parse(&self.text) else {
            return 0..0;
        };
        let mut best = 0..0;
        let mut table = Some(root.get_ref());
        let mut array: Option<&DeArray<'_>> = None;
        for part in path.split('.') {
            let value = match (table, array) {
                (Some(t), _) => t.iter().find(|(k, _)| k.get_ref() == part).map(|(k, v)| {
                    // A table's own span is its header; the key is where a reader looks first.
                    best = match v.get_ref() {
                        DeValue::Table(_) => k.span(),
                        // Of `[[tables]]` the key, of `[values]` the values.
                        DeValue::Array(_) => {
                            let text = self.text.get(v.span()).unwrap_or_default();
                            if text.starts_with('[') && !text.starts_with("[[") {
                                v.span()
                            } else {
                                k.span()
                            }
                        }
                        _ => v.span(),
                    };
                    v
                }),
                (None, Some(items)) => part
                    .parse::<usize>()
                    .ok()
                    .and_then(|i| items.get(i))
                    .inspect(|v| {
                        if !v.span().is_empty() {
                            best = v.span();
                        }
                    }),
                _ => None,
            };
            let Some(value) = value else { break };
            (table, array) = match value.get_ref() {
                DeValue::Table(t) => (Some(t), None),
                DeValue::Array(a) => (None, Some(a)),
                _ => (None, None),
            };
        }
        best
    }

    /// Bytes of the last key of a path, if the file has it.
    fn key_span(&self, path: &str) -> Option<Range<usize>> {
        let root = DeTable::parse(&self.text).ok()?;
        let (parents, last) = match path.rsplit_once('.') {
            Some((parents, last)) => (Some(parents), last),
            None => (None, path),
        };
        let span_in = |table: &DeTable<'_>| {
            let (key, _) = table.iter().find(|(k, _)| k.get_ref() == last)?;
            Some(key.span())
        };
        let Some(parents) = parents else {
            return span_in(root.get_ref());
        };
        let mut parts = parents.split('.');
        let first = parts.next()?;
        let mut value = root
            .get_ref()
            .iter()
            .find(|(k, _)| k.get_ref() == first)?
            .1
            .get_ref();
        for part in parts {
            value = match value {
                DeValue::Table(table) => {
                    table.iter().find(|(k, _)| k.get_ref() == part)?.1.get_ref()
                }
                DeValue::Array(items) => items.get(part.parse::<usize>().ok()?)?.get_ref(),
                _ => return None,
            };
        }
        match value {
            DeValue::Table(table) => span_in(table),
            _ => None,
        }
    }

    /// A path in the file, made absolute from the file's folder.
    pub fn resolve(&self, path: &str) -> PathBuf {
        let path = Path::new(path);
        if path.is_absolute() {
            path.to_path_buf()
        } else {
            self.base_dir.join(path)
        }
    }
}
