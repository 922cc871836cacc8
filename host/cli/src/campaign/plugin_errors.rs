//! Plugins' errors at the line of the campaign file that asked for them.

use blackstart_config::{CampaignFile, ConfigError};
use blackstart_plugins::{ConfigMistake, EFFECT_HTTP, PluginError, Refusal};

use crate::exit::{Exit, Failure};

/// A plugin's complaint about its table, at its place in the file.
pub fn mistake_error(file: &CampaignFile, table: &str, mistake: &ConfigMistake) -> ConfigError {
    let path = if mistake.path.is_empty() {
        table.to_owned()
    } else {
        format!("{table}.{}", mistake.path)
    };
    let help = mistake.help.clone().unwrap_or_else(|| {
        "correct this value; docs/campaign-file.md lists the keys of the bundled plugins".to_owned()
    });
    let message = mistake.message.clone();
    if mistake.of_key {
        file.source.error_at_key(&path, message, help)
    } else {
        file.source.error_at(&path, message, help)
    }
}

/// The grant that is missing, with this campaign's own victims.
pub fn grant_help(file: &CampaignFile, error: &PluginError) -> Option<String> {
    let PluginError::Refused { reason, .. } = error else {
        return None;
    };
    let Refusal::NotGranted { interface, .. } = reason.as_ref() else {
        return None;
    };
    let config = &file.config;
    let victims: Vec<&String> = config.fault.iter().flat_map(|f| &f.victims).collect();
    let line = if *interface == EFFECT_HTTP {
        let urls: Vec<String> = config
            .target
            .replica
            .iter()
            .filter(|r| victims.contains(&&r.id))
            .map(|r| r.admin_url.as_ref().unwrap_or(&r.base_url))
            .map(|url| format!("{}/*", url.trim_end_matches('/')))
            .collect();
        format!("http = {urls:?}")
    } else {
        let key = interface.strip_prefix("effect-").unwrap_or("process");
        format!("{key} = {victims:?}")
    };
    Some(format!(
        "to grant it, write under [fault.grant] in the campaign file: {line}"
    ))
}

/// A plugin's error, pointing at the line of the file that asked for it.
pub fn plugin_failure(file: &CampaignFile, path: &str, error: &PluginError) -> Failure {
    plugin_failure_with(file, path, error, error.help())
}

/// The same with another way to mend it.
pub fn plugin_failure_with(
    file: &CampaignFile,
    path: &str,
    error: &PluginError,
    help: String,
) -> Failure {
    let drawn = file.source.error_at(path, error.to_string(), help);
    let exit = if error.is_shortage() {
        Exit::Internal
    } else {
        Exit::Plugin
    };
    Failure {
        exit,
        ..Failure::from(drawn)
    }
}
