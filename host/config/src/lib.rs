//! The campaign file: TOML with spans, checked, turned into a plan.
//!
//! The doc comments of [`Config`] and its parts are the reference of the file. Every mistake is
//! reported with file, line, column and a way to mend it; nothing is started before the whole file
//! has been accepted.

mod build;
mod duration;
mod error;
mod model;
mod source;
mod warnings;
mod words;

pub use build::{BuildContext, FaultFacts, GateChoice, build_plan, is_secret_header};
pub use duration::{Duration, DurationError};
pub use error::ConfigError;
pub use model::*;
pub use source::{CampaignFile, MAX_CONFIG_BYTES, Source};
pub use warnings::warnings;
