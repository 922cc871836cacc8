//! A campaign file, TOML; and the message of what is wrong with it.

#![no_main]

use std::path::PathBuf;

use blackstart_config::{CampaignFile, Source};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let source = Source {
        name: "campaign.toml".to_owned(),
        text: text.to_owned(),
        base_dir: PathBuf::from("."),
    };
    match CampaignFile::parse(source) {
        Ok(file) => {
            for path in [
                "fault.config.signal",
                "target.replica.0.base_url",
                "load.rate_rps",
                "",
            ] {
                let _ = file.source.error_at(path, "wrong", "mend it").to_string();
            }
        }
        Err(error) => {
            let _ = error.to_string();
        }
    }
});
