//! Removes the container of each victim and makes it anew.

use blackstart_sdk::fault::{ArmContext, ContainerOperation, EffectId, Ending, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `container-recreate`: there is nothing to choose.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

impl PluginConfig for Config {}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "container-recreate",
        summary: "Removes the container of each victim and creates it anew from the same \
                  configuration.",
        mechanism: "The container engine removes the container by force, and creates and starts \
                    another with the same name, image, configuration, networks and volumes.",
        client_sees: "A cut of open connections (`truncated` or `reset`), then `connect` until \
                      the new server listens. What the container had written outside of volumes \
                      is gone: caches of weights and of compiled graphs, too, so that the start \
                      takes longer than a restart.",
        proof: "Another container (id) is in its place afterwards and is `running`.",
        ends: "By itself: creation and start are part of the operation. It is not undone; the \
               new container stays.",
        stands_for: "A replica that is removed and replaced: a new pod, a redeployment, a node \
                     that is exchanged while the image is there.",
        not_for: "A graceful drain: the server is not asked. Nor the pull of an image, or the \
                  wait for a node.",
        ending: Ending::VictimRestarts,
        grants: &[("container", "[\"vllm-0\"]")],
        example: "",
        ..PLAIN
    };

    fn until(&self, _: &ArmContext) -> Result<Option<RunNs>, Error> {
        Ok(None)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        host.run_container(&replica.id, &ContainerOperation::Recreate, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!("container of {victims} removed and created anew")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::made_anew(facts)
    }
}
