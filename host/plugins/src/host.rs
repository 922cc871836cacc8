//! Host functions that every world has, and the conversions of the shared types.

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::{log, types};
use crate::error::Stopped;
use crate::instance::{HostState, LogLevel};
use crate::limits::{MAX_LIST, MAX_NAME_BYTES, MAX_SCHEMA_BYTES, MAX_TEXT_BYTES, MAX_VALUE_BYTES};
use crate::text::escape;
use crate::types::{ConfigMistake, Field, GuestError, Measure, PluginInfo};

impl<W> log::Host for HostState<W> {
    fn emit(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        let level = match level {
            log::Level::Debug => LogLevel::Debug,
            log::Level::Info => LogLevel::Info,
            log::Level::Warn => LogLevel::Warn,
            log::Level::Error => LogLevel::Error,
        };
        self.log_line(level, &message);
        Ok(())
    }
}

impl<W> types::Host for HostState<W> {}

/// Links what every world imports.
pub(crate) fn link_common<W: Send + 'static>(
    linker: &mut Linker<HostState<W>>,
) -> wasmtime::Result<()> {
    types::add_to_linker::<_, HasSelf<_>>(linker, |state| state)?;
    log::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
}

/// Refuses text over its bound and makes the rest printable.
pub(crate) fn text(what: &str, text: String, max: usize) -> Result<String, Stopped> {
    if text.len() > max {
        return Err(Stopped::TooLarge {
            what: what.to_owned(),
            limit: format!("{max} bytes"),
        });
    }
    Ok(match escape(&text) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(escaped) => escaped,
    })
}

/// A name or key.
pub(crate) fn name(what: &str, value: String) -> Result<String, Stopped> {
    text(what, value, MAX_NAME_BYTES)
}

/// A sentence for people.
pub(crate) fn sentence(what: &str, value: String) -> Result<String, Stopped> {
    text(what, value, MAX_TEXT_BYTES)
}

/// A list of at most [`MAX_LIST`] elements, each taken over by `each`.
pub(crate) fn list<T, U>(
    what: &str,
    values: Vec<T>,
    each: impl FnMut(T) -> Result<U, Stopped>,
) -> Result<Vec<U>, Stopped> {
    list_of(what, values, MAX_LIST, each)
}

/// A list of at most `max` elements, each taken over by `each`.
pub(crate) fn list_of<T, U>(
    what: &str,
    values: Vec<T>,
    max: usize,
    each: impl FnMut(T) -> Result<U, Stopped>,
) -> Result<Vec<U>, Stopped> {
    if values.len() > max {
        return Err(Stopped::TooLarge {
            what: what.to_owned(),
            limit: format!("{max} elements"),
        });
    }
    values.into_iter().map(each).collect()
}

pub(crate) fn plugin_info(info: types::PluginInfo) -> Result<PluginInfo, Stopped> {
    if info.config_schema.len() > MAX_SCHEMA_BYTES {
        return Err(Stopped::TooLarge {
            what: "config-schema".into(),
            limit: format!("{MAX_SCHEMA_BYTES} bytes"),
        });
    }
    Ok(PluginInfo {
        name: name("the plugin's name", info.name)?,
        version: name("the plugin's version", info.version)?,
        summary: sentence("the plugin's summary", info.summary)?,
        // Parsed before anyone sees it, so left as it is.
        config_schema: info.config_schema,
    })
}

pub(crate) fn guest_error(error: types::Error) -> Result<GuestError, Stopped> {
    Ok(match error {
        types::Error::InvalidConfig(mistakes) => {
            GuestError::InvalidConfig(list("the list of mistakes", mistakes, |mistake| {
                Ok(ConfigMistake {
                    path: name("a mistake's path", mistake.path)?,
                    of_key: false,
                    message: sentence("a mistake's message", mistake.message)?,
                    help: mistake
                        .help
                        .map(|help| sentence("a mistake's help", help))
                        .transpose()?,
                })
            })?)
        }
        types::Error::Denied(why) => GuestError::Denied(sentence("an error", why)?),
        types::Error::Unsupported(why) => GuestError::Unsupported(sentence("an error", why)?),
        types::Error::Other(why) => GuestError::Other(sentence("an error", why)?),
    })
}

pub(crate) fn measures(values: Vec<types::Measure>) -> Result<Vec<Measure>, Stopped> {
    list("the list of measures", values, |measure| {
        Ok(Measure {
            name: name("a measure's name", measure.name)?,
            value: measure.value,
            unit: name("a measure's unit", measure.unit)?,
        })
    })
}

pub(crate) fn fields(values: Vec<types::Field>) -> Result<Vec<Field>, Stopped> {
    list("the list of fields", values, |field| {
        Ok(Field {
            key: name("a field's key", field.key)?,
            value: text("a field's value", field.value, MAX_VALUE_BYTES)?,
        })
    })
}

pub(crate) fn to_fields(fields: Vec<Field>) -> Vec<types::Field> {
    fields
        .into_iter()
        .map(|field| types::Field {
            key: field.key,
            value: field.value,
        })
        .collect()
}
