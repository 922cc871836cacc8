//! Log matcher for vLLM 0.4 and later: the plugin around `blackstart-match-vllm`, which
//! holds every rule and every test of them.

use blackstart_match_vllm as core;
use blackstart_sdk::matcher::{
    Boundary, LogMatcher, LogSession, MatcherDescription, ProbeResult, boundary_info,
};
use blackstart_sdk::{Error, Field, Measure, NoConfig};

/// The plugin.
#[derive(Debug)]
pub struct Vllm;

blackstart_sdk::register!(matcher: Vllm);

impl LogMatcher for Vllm {
    type Config = NoConfig;
    type Session = Session;

    fn describe() -> MatcherDescription {
        MatcherDescription {
            summary: "Finds start-up phases, shutdown, preemption and failures in the log of \
                      vLLM 0.4 and later."
                .to_owned(),
            product: "vllm".to_owned(),
            versions: core::describe::VERSIONS.to_owned(),
            boundaries: core::describe::BOUNDARIES
                .iter()
                .map(|info| boundary_info(info.key, info.meaning, info.per_rank))
                .collect(),
        }
    }

    fn probe(head: &str) -> ProbeResult {
        let core::Probe {
            version,
            confidence,
        } = core::probe(head);
        ProbeResult {
            version,
            confidence,
        }
    }

    fn open(_replica: &str, _config: NoConfig) -> Result<Session, Error> {
        Ok(Session(core::Session::new()))
    }
}

/// Parser state of one replica's log.
pub struct Session(core::Session);

impl LogSession for Session {
    fn feed(&mut self, text: &str) -> Result<Vec<Boundary>, Error> {
        Ok(exported(self.0.feed(text)))
    }

    fn finish(&mut self) -> Result<Vec<Boundary>, Error> {
        Ok(exported(self.0.finish()))
    }
}

fn exported(found: Vec<core::Boundary>) -> Vec<Boundary> {
    found.into_iter().map(export).collect()
}

fn export(found: core::Boundary) -> Boundary {
    Boundary {
        line: found.line,
        key: found.key.to_owned(),
        process: found.process,
        stamp: found.stamp,
        measures: found
            .measures
            .into_iter()
            .map(|measure| Measure {
                name: measure.name.to_owned(),
                value: measure.value,
                unit: measure.unit.to_owned(),
            })
            .collect(),
        fields: found
            .fields
            .into_iter()
            .map(|field| Field {
                key: field.key.to_owned(),
                value: field.value,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carries_every_part_over() {
        let mut session = Vllm::open("vllm-0", NoConfig {}).expect("no configuration to refuse");
        let text = "noise\n(EngineCore pid=7) INFO 01-02 03:04:05 [loader.py:1] Loading weights took 3.10 seconds";
        let found = session.feed(text).expect("readable");
        assert_eq!(found.len(), 1);
        let boundary = &found[0];
        assert_eq!(
            (boundary.line, boundary.key.as_str()),
            (1, "weights_loaded")
        );
        assert_eq!(boundary.process.as_deref(), Some("EngineCore"));
        assert_eq!(boundary.stamp.as_deref(), Some("--01-02T03:04:05"));
        let measure = &boundary.measures[0];
        assert_eq!(
            (measure.name.as_str(), measure.value, measure.unit.as_str()),
            ("weights_loaded_s", 3.1, "s")
        );
        assert_eq!(boundary.fields[0].value, "7");
    }

    #[test]
    fn a_banner_without_a_model_comes_at_the_end() {
        let mut session = Vllm::open("vllm-0", NoConfig {}).expect("no configuration to refuse");
        let text = "INFO 01-02 03:04:05 api_server.py:1] vLLM API server version 0.6.6";
        assert_eq!(session.feed(text).expect("readable").len(), 0);
        let found = session.finish().expect("readable");
        assert_eq!(found[0].fields[0].value, "0.6.6");
    }

    #[test]
    fn describes_and_probes() {
        let about = Vllm::describe();
        assert_eq!(about.product, "vllm");
        assert_eq!(about.boundaries.len(), core::describe::BOUNDARIES.len());
        assert_eq!(Vllm::probe("nothing").confidence, 0);
        let probe = Vllm::probe("INFO 01-02 03:04:05 [a.py:1] vLLM API server version 0.9.2");
        assert_eq!(
            (probe.version.as_deref(), probe.confidence),
            (Some("0.9.2"), 100)
        );
    }
}
