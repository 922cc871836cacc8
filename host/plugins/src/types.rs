//! Host-side vocabulary shared by all worlds: plain data that has already been
//! bounded and made printable. No type of the WebAssembly engine appears here.

use std::fmt;

/// What a plugin says about itself; equal to its stamp in name and version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginInfo {
    /// Name, as the stamp has it.
    pub name: String,
    /// Package version, as the stamp has it.
    pub version: String,
    /// One line for people.
    pub summary: String,
    /// JSON Schema of the plugin's own configuration table.
    pub config_schema: String,
}

/// One mistake in a plugin's configuration table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigMistake {
    /// Key path inside the plugin's table (`signal`, `stages.0.rate`); empty for the
    /// table itself.
    pub path: String,
    /// The key itself is wrong (there is none of that name), not its value.
    pub of_key: bool,
    /// What is wrong.
    pub message: String,
    /// How to mend it, where the finder knew.
    pub help: Option<String>,
}

impl fmt::Display for ConfigMistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// Why a plugin said it could not do what it was asked. The plugin is well and can
/// be called again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestError {
    /// Its configuration table is wrong.
    InvalidConfig(Vec<ConfigMistake>),
    /// It was refused a capability.
    Denied(String),
    /// The target does not support the operation.
    Unsupported(String),
    /// Anything else.
    Other(String),
}

impl fmt::Display for GuestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestError::InvalidConfig(mistakes) => {
                f.write_str("invalid configuration")?;
                for (i, mistake) in mistakes.iter().enumerate() {
                    f.write_str(if i == 0 { ": " } else { "; " })?;
                    mistake.fmt(f)?;
                }
                Ok(())
            }
            GuestError::Denied(why) => write!(f, "denied: {why}"),
            GuestError::Unsupported(why) => write!(f, "unsupported: {why}"),
            GuestError::Other(why) => f.write_str(why),
        }
    }
}

/// A measured number carried next to a verdict or a boundary.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Name, with no unit in it beyond what the name itself carries.
    pub name: String,
    /// The number; may be NaN or infinite, for a guest may send either.
    pub value: f64,
    /// UCUM unit (`ms`, `s`, `%`, `GiBy`, `1`).
    pub unit: String,
}

/// A labelled text value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Label.
    pub key: String,
    /// Value.
    pub value: String,
}

/// Name and version of a plugin, as every error and log line carries them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Label {
    /// Name from the stamp.
    pub name: String,
    /// Package version from the stamp.
    pub version: String,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "plugin {} {}", self.name, self.version)
    }
}

/// An entry point of a plugin, as errors name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Creating the instance, which runs its start code.
    Instantiate,
    /// `describe` of any world.
    Describe,
    /// `fault.arm`.
    Arm,
    /// `fault.observe`.
    Observe,
    /// `fault.prove`.
    Prove,
    /// `matcher.probe`.
    Probe,
    /// The constructor of `matcher.session`.
    SessionNew,
    /// `matcher.session.feed`.
    SessionFeed,
    /// `matcher.session.finish`.
    SessionFinish,
    /// Dropping a `matcher.session`.
    SessionDrop,
    /// `gate.evaluate`.
    Evaluate,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Call::Instantiate => "instantiate",
            Call::Describe => "describe",
            Call::Arm => "arm",
            Call::Observe => "observe",
            Call::Prove => "prove",
            Call::Probe => "probe",
            Call::SessionNew => "session constructor",
            Call::SessionFeed => "session.feed",
            Call::SessionFinish => "session.finish",
            Call::SessionDrop => "session drop",
            Call::Evaluate => "evaluate",
        })
    }
}
