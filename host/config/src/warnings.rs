//! Settings that are possible each by itself, but hardly meant together.

use crate::{CampaignFile, Config, ConfigError, Duration};

/// What may be a mistake, each with its place and a way to mend it. Nothing here keeps a campaign
/// from running: [`ConfigError::warning`] draws it.
pub fn warnings(file: &CampaignFile) -> Vec<ConfigError> {
    let Config {
        phases,
        recovery,
        observe,
        load,
        fault,
        ..
    } = &file.config;
    let mut found = Vec::new();
    let mut warn = |path: &str, message: String, help: &str| {
        found.push(file.source.error_at(path, message, help));
    };
    if fault.is_some() && recovery.hold < observe.probe_timeout {
        warn(
            "recovery.hold",
            format!(
                "the hold of {} is shorter than the probe timeout of {}: service may count as recovered while a probe of the outage still waits",
                recovery.hold, observe.probe_timeout
            ),
            "lengthen `recovery.hold`, or shorten `observe.probe_timeout`",
        );
    }
    let confirms = recovery.window.ns.saturating_add(recovery.hold.ns);
    let left = phases.fault_window.ns.saturating_add(phases.cooldown.ns);
    if fault.is_some() && left < confirms {
        warn(
            "phases.fault_window",
            format!(
                "load goes on for {} after the fire, but a recovery takes {} (window and hold) to confirm: no run can show one",
                Duration { ns: left },
                Duration { ns: confirms }
            ),
            "lengthen `phases.fault_window` or `phases.cooldown`, or shorten `recovery.window` or `recovery.hold`",
        );
    }
    if fault.is_some() && observe.probe_timeout >= phases.fault_window {
        warn(
            "observe.probe_timeout",
            format!(
                "a probe may take {}, as long as the whole fault window of {}: no probe can fail within it, and the outage is then not measured",
                observe.probe_timeout, phases.fault_window
            ),
            "shorten `observe.probe_timeout`",
        );
    }
    if observe.probe_timeout > load.timeout {
        warn(
            "observe.probe_timeout",
            format!(
                "a probe may take {}, longer than the {} that a client waits: an outage that clients see may pass unseen by probes",
                observe.probe_timeout, load.timeout
            ),
            "shorten `observe.probe_timeout`, or lengthen `load.timeout`",
        );
    }
    found
}
