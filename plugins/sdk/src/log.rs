//! Diagnostics. Lines reach the host's log with the plugin's name and version; in
//! native tests they go to stderr.

/// For the author of the plugin.
pub fn debug(message: &str) {
    emit(Level::Debug, message);
}

/// Worth a line in the run's log.
pub fn info(message: &str) {
    emit(Level::Info, message);
}

/// Something is off, the plugin goes on.
pub fn warn(message: &str) {
    emit(Level::Warn, message);
}

/// The plugin cannot do what it was asked.
pub fn error(message: &str) {
    emit(Level::Error, message);
}

pub use crate::bindings::fault::blackstart::plugin::log::Level;

fn emit(level: Level, message: &str) {
    #[cfg(target_arch = "wasm32")]
    crate::bindings::fault::blackstart::plugin::log::emit(level, message);
    #[cfg(not(target_arch = "wasm32"))]
    eprintln!("{level:?}: {message}");
}
