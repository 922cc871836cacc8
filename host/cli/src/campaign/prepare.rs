//! Everything that can be known before anything is started: the plan, the plugins, the timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blackstart_config::{
    BuildContext, CampaignFile, ConfigError, FaultFacts, GateChoice, GrantConfig, build_plan,
    warnings,
};
use blackstart_plan::{Plan, ReplicaPlan, RunPlan, RuntimePlan};
use blackstart_plugins::{
    ArmContext, Artifact, EffectAction, EffectRequest, FaultInfo, FaultTemplate, GateTemplate,
    Grants, GuestError, MatcherPlugin, PluginError, PluginInfo, ReplicaGrant, World, check_config,
};
use blackstart_targets::{ProcessRef, TargetError};

use super::fault_host::DryHost;
use super::plugin_errors::{grant_help, mistake_error, plugin_failure, plugin_failure_with};
use super::service;
use crate::exit::{Exit, Failure};
use crate::keys;
use crate::plugins::{Plugins, identity, origin};

/// A campaign that could start now.
pub struct Prepared {
    /// The file.
    pub file: CampaignFile,
    /// The plan.
    pub plan: Plan,
    /// Every plugin that can be named.
    pub plugins: Plugins,
    /// The fault.
    pub fault: Option<FaultSetup>,
    /// The gates, in the plan's order.
    pub gates: Vec<GateTemplate>,
    /// What is possible but hardly meant, drawn.
    pub warnings: Vec<String>,
}

/// The fault plugin, linked, and what it will do.
pub struct FaultSetup {
    /// Makes an instance for each run.
    pub template: FaultTemplate,
    /// Effects that it put on the timeline when it was armed for the dry run.
    pub effects: Vec<EffectRequest>,
}

/// Reads, checks and plans a campaign. Nothing is started, nothing is written.
///
/// # Errors
/// The first mistake: in the file (exit 3) or of a plugin (exit 4).
pub fn prepare(
    path: &Path,
    plugin_dirs: &[PathBuf],
    runs: Option<u32>,
) -> Result<Prepared, Failure> {
    let mut file = CampaignFile::read(path)?;
    if let Some(runs) = runs {
        file.config.runs = runs;
    }
    prepare_file(file, plugin_dirs)
}

/// The same from a file that was read already.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_file(file: CampaignFile, plugin_dirs: &[PathBuf]) -> Result<Prepared, Failure> {
    let mut folders: Vec<PathBuf> = file
        .config
        .plugins
        .dirs
        .iter()
        .map(|d| file.source.resolve(d))
        .collect();
    folders.extend(plugin_dirs.iter().cloned());
    let plugins = Plugins::open(&folders)?;
    let instrument = InstrumentFacts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        path: std::env::current_exe().map_err(Failure::internal)?,
    };
    plan_file(file, plugins, instrument, |file, plan| {
        api_key(plan)?;
        running_processes(file, plan)
    })
}

/// The instrument that runs a campaign, as far as its plan names it.
pub struct InstrumentFacts {
    /// Its version.
    pub version: String,
    /// Where it is, for `${blackstart}` in commands.
    pub path: PathBuf,
}

/// Plans a campaign with these plugins. `here` looks at what only the machine that runs it can say.
///
/// # Errors
/// As [`prepare`].
pub fn plan_file(
    file: CampaignFile,
    mut plugins: Plugins,
    instrument: InstrumentFacts,
    here: impl FnOnce(&CampaignFile, &Plan) -> Result<(), Failure>,
) -> Result<Prepared, Failure> {
    let mut context = BuildContext {
        instrument_version: instrument.version,
        instrument_path: instrument.path,
        ..BuildContext::default()
    };
    let use_plugin = |context: &mut BuildContext, artifact: &Artifact| {
        context
            .plugins
            .insert(artifact.label().name.clone(), identity(artifact));
    };

    let fault = fault_plugin(&file, &mut plugins)?;
    if let Some((artifact, _, info)) = &fault {
        use_plugin(&mut context, artifact);
        context.fault = Some(FaultFacts {
            without_segments: info
                .without_segments
                .iter()
                .map(|f| (f.key.clone(), f.value.clone()))
                .collect(),
            labels: info.labels.clone(),
        });
    }

    let gates = gate_plugins(&file, &mut plugins)?;
    for (id, artifact, of_the_method) in &gates {
        use_plugin(&mut context, artifact);
        context.gates.push(GateChoice {
            id: id.clone(),
            plugin: artifact.label().name.clone(),
            of_the_method: *of_the_method,
        });
    }

    for artifact in matcher_plugins(&file, &mut plugins)? {
        use_plugin(&mut context, &artifact);
    }

    let mut plan = build_plan(&file, &context)?;
    here(&file, &plan)?;
    let templates = gate_templates(&file, &plugins, &plan, &gates)?;
    let fault = fault
        .map(|(artifact, template, info)| arm_dry(&file, &mut plan, &artifact, template, &info))
        .transpose()?;
    if let Some(fault) = &fault {
        reachable(&file, &plan, &fault.effects)?;
    }
    let warnings = warnings(&file).iter().map(ConfigError::warning).collect();
    Ok(Prepared {
        warnings,
        file,
        plan,
        plugins,
        fault,
        gates: templates,
    })
}

/// Finds the fault plugin, links it against its grants, and checks its configuration.
fn fault_plugin(
    file: &CampaignFile,
    plugins: &mut Plugins,
) -> Result<Option<(Artifact, FaultTemplate, FaultInfo)>, Failure> {
    let Some(fault) = &file.config.fault else {
        return Ok(None);
    };
    let at = |path: &'static str| move |e: PluginError| plugin_failure(file, path, &e);
    let path = fault.path.as_deref().map(|p| file.source.resolve(p));
    let artifact = plugins
        .find(
            Some(&fault.variant),
            path.as_deref(),
            fault.sha256.as_deref(),
            World::FaultVariant,
        )
        .map_err(at(if path.is_some() {
            "fault.path"
        } else {
            "fault.variant"
        }))?;
    if artifact.label().name != fault.variant {
        return Err(file
            .source
            .error_at(
                "fault.variant",
                format!(
                    "the component at `path` is called `{}`",
                    artifact.label().name
                ),
                format!("write variant = \"{}\"", artifact.label().name),
            )
            .into());
    }
    let grants = granted(&fault.grant).map_err(at("fault.grant"))?;
    let template = FaultTemplate::new(&plugins.engine, &artifact, &grants).map_err(|e| {
        let help = grant_help(file, &e).unwrap_or_else(|| e.help());
        plugin_failure_with(file, "fault.grant", &e, help)
    })?;
    // Describing needs no target; an instance for that alone keeps the runs' instances fresh.
    let info = template
        .instantiate(Arc::new(DryHost::default()))
        .map_err(at("fault.variant"))?
        .describe()
        .clone();
    check_table(file, "fault.config", &info.plugin, &fault.config)?;
    Ok(Some((artifact, template, info)))
}

fn granted(grant: &GrantConfig) -> Result<Grants, PluginError> {
    let mut grants = Grants::new(grant.process.clone(), grant.http.clone())?;
    for (which, replicas) in [
        (ReplicaGrant::Container, &grant.container),
        (ReplicaGrant::Network, &grant.network),
        (ReplicaGrant::Resources, &grant.resources),
    ] {
        grants = grants.with(which, replicas.clone())?;
    }
    Ok(grants)
}

/// Bundled gates and those that the file adds: id, plugin, and whether the id is a bundled gate's.
fn gate_plugins(
    file: &CampaignFile,
    plugins: &mut Plugins,
) -> Result<Vec<(String, Artifact, bool)>, Failure> {
    let found = plugins.gates()?;
    let bundled: BTreeSet<String> = found
        .iter()
        .filter(|(_, a)| origin(a) == "bundled")
        .map(|(id, _)| id.clone())
        .collect();
    let mut gates: BTreeMap<String, Artifact> = BTreeMap::new();
    for (id, artifact) in found {
        if let Some(other) = gates.insert(id.clone(), artifact.clone()) {
            return Err(Failure::message(
                Exit::Plugin,
                format!(
                    "two plugins judge gate {id}: {} and {}",
                    other.origin(),
                    artifact.origin()
                ),
            )
            .help("remove one of them from the plugin folders, or give it an id of its own"));
        }
    }
    for (id, gate) in &file.config.gates {
        let at = |e: PluginError| plugin_failure(file, &format!("gates.{id}"), &e);
        if gate.plugin.is_none() && gate.path.is_none() {
            if let (Some(pin), Some(artifact)) = (&gate.sha256, gates.get(id)) {
                artifact.check_pin(pin).map_err(at)?;
            }
            continue;
        }
        let path = gate.path.as_deref().map(|p| file.source.resolve(p));
        let artifact = plugins
            .find(
                gate.plugin.as_deref(),
                path.as_deref(),
                gate.sha256.as_deref(),
                World::ValidityGate,
            )
            .map_err(at)?;
        gates.insert(id.clone(), artifact);
    }
    Ok(gates
        .into_iter()
        .map(|(id, artifact)| {
            let of_the_method = bundled.contains(&id);
            (id, artifact, of_the_method)
        })
        .collect())
}

fn gate_templates(
    file: &CampaignFile,
    plugins: &Plugins,
    plan: &Plan,
    gates: &[(String, Artifact, bool)],
) -> Result<Vec<GateTemplate>, Failure> {
    let mut templates = Vec::new();
    for ((id, artifact, _), planned) in gates.iter().zip(&plan.gates) {
        let at = |e: PluginError| plugin_failure(file, &format!("gates.{id}"), &e);
        let template = GateTemplate::new(&plugins.engine, artifact).map_err(at)?;
        let info = template.instantiate().map_err(at)?.describe().clone();
        if info.id != *id {
            return Err(file
                .source
                .error_at(
                    &format!("gates.{id}"),
                    format!(
                        "the plugin `{}` judges gate `{}`",
                        artifact.label().name,
                        info.id
                    ),
                    format!("name the table [gates.{}]", info.id),
                )
                .into());
        }
        let mistakes = check_config(&info.plugin, &planned.config).map_err(at)?;
        if let Some(mistake) = mistakes.first() {
            return Err(mistake_error(file, &format!("gates.{id}.config"), mistake).into());
        }
        templates.push(template);
    }
    Ok(templates)
}

/// The matcher that the file names, or every one that may be chosen by the log.
fn matcher_plugins(file: &CampaignFile, plugins: &mut Plugins) -> Result<Vec<Artifact>, Failure> {
    let matcher = &file.config.matcher;
    if matcher.plugin.is_none() && matcher.path.is_none() {
        // Which matcher the log chooses is not known yet, so nothing can be held to it.
        for (key, set) in [
            ("sha256", matcher.sha256.is_some()),
            ("config", !matcher.config.is_empty()),
        ] {
            if set {
                return Err(file
                    .source
                    .error_at(
                        &format!("matcher.{key}"),
                        format!("`{key}` is given, but not for which matcher"),
                        "name it, such as plugin = \"vllm\"",
                    )
                    .into());
            }
        }
        return Ok(plugins
            .registry
            .of_world(World::LogMatcher)
            .cloned()
            .collect());
    }
    let path = matcher.path.as_deref().map(|p| file.source.resolve(p));
    let at = |e: PluginError| plugin_failure(file, "matcher.plugin", &e);
    let artifact = plugins
        .find(
            matcher.plugin.as_deref(),
            path.as_deref(),
            matcher.sha256.as_deref(),
            World::LogMatcher,
        )
        .map_err(at)?;
    let info = MatcherPlugin::instantiate(&plugins.engine, &artifact)
        .map_err(at)?
        .describe()
        .clone();
    check_table(file, "matcher.config", &info.plugin, &matcher.config)?;
    Ok(vec![artifact])
}

/// Arms the fault on a timeline that executes nothing, once for each run's seed, so that a refusal
/// comes before anything is started.
fn arm_dry(
    file: &CampaignFile,
    plan: &mut Plan,
    artifact: &Artifact,
    template: FaultTemplate,
    info: &FaultInfo,
) -> Result<FaultSetup, Failure> {
    let runs: Vec<RunPlan> = plan.runs.clone();
    let mut effects = Vec::new();
    for (i, run) in runs.iter().enumerate() {
        let host = Arc::new(DryHost::of(plan));
        let mut plugin = template
            .instantiate(host.clone())
            .map_err(|e| plugin_failure(file, "fault.variant", &e))?;
        let Some(context) = arm_context(plan, run) else {
            break;
        };
        let armed = match plugin.arm(&context) {
            Ok(armed) => armed,
            Err(PluginError::Guest {
                error: GuestError::InvalidConfig(mistakes),
                ..
            }) if !mistakes.is_empty() => {
                return Err(mistake_error(file, "fault.config", &mistakes[0]).into());
            }
            Err(e) => return Err(plugin_failure(file, "fault", &e)),
        };
        let stray = armed.victims.iter().find(|v| !context.victims.contains(v));
        if let Some(stray) = stray {
            return Err(file
                .source
                .error_at(
                    "fault.victims",
                    format!(
                        "{} wants to harm `{stray}`, which is no victim of this campaign",
                        artifact.label()
                    ),
                    "a fault may only touch what is named; add it here if that is meant",
                )
                .into());
        }
        if i == 0 {
            effects = host.effects();
            if let Some(fault) = &mut plan.fault {
                fault.statement = Some(armed.statement);
            }
        }
    }
    if effects.is_empty() {
        return Err(Failure::message(
            Exit::Plugin,
            format!(
                "{} put no effect on the timeline when it was armed",
                artifact.label()
            ),
        )
        .help(format!(
            "a fault must schedule what it does in `arm`; it ends by {:?}",
            info.ending
        )));
    }
    Ok(FaultSetup { template, effects })
}

/// The API key, from the variable that the plan names. It is never printed.
///
/// # Errors
/// When the variable is not set, or holds what no header may (exit 3).
pub fn api_key(plan: &Plan) -> Result<Option<String>, Failure> {
    let Some(variable) = &plan.load.api_key_env else {
        return Ok(None);
    };
    keys::of_variable("`load.api_key_env`", variable).map(Some)
}

/// A running replica's pid must be one now. A command line is only looked for when a run starts: its
/// process may still come.
fn running_processes(file: &CampaignFile, plan: &Plan) -> Result<(), Failure> {
    for (i, replica) in plan.target.replicas.iter().enumerate() {
        let RuntimePlan::Url { pid: Some(pid), .. } = &replica.runtime else {
            continue;
        };
        if ProcessRef::open(*pid).is_err() {
            let error = TargetError::PidNotFound {
                replica: replica.id.clone(),
                pid: *pid,
            };
            let path = format!("target.replica.{i}.running.pid");
            return Err(service::target_error(&file.source, &path, &error));
        }
    }
    Ok(())
}

/// A signal needs a process: of a replica that already runs the file must say which one.
fn reachable(file: &CampaignFile, plan: &Plan, effects: &[EffectRequest]) -> Result<(), Failure> {
    for effect in effects {
        let EffectAction::Signal { replica, .. } = &effect.action else {
            continue;
        };
        let nameless = |r: &ReplicaPlan| {
            let RuntimePlan::Url {
                pid, command_match, ..
            } = &r.runtime
            else {
                return false;
            };
            r.id == *replica && pid.is_none() && command_match.is_none()
        };
        if let Some(place) = plan.target.replicas.iter().position(nameless) {
            return Err(file
                .source
                .error_at(
                    &format!("target.replica.{place}.running"),
                    format!(
                        "the fault sends a signal to replica `{replica}`, of which nothing says which process it is"
                    ),
                    "give its main process by pid = …, or by command_match = \"…\"",
                )
                .into());
        }
    }
    Ok(())
}

/// What a fault plugin is told of a run.
pub fn arm_context(plan: &Plan, run: &RunPlan) -> Option<ArmContext> {
    let fault = plan.fault.as_ref()?;
    Some(ArmContext {
        config: fault.config.to_string(),
        seed: run.seed,
        fire_at_ns: fault.fire_at_ns,
        expire_at_ns: fault.expire_at_ns,
        run_end_ns: plan.phases.load_end_ns(),
        victims: fault.victims.clone(),
    })
}

fn check_table(
    file: &CampaignFile,
    path: &str,
    plugin: &PluginInfo,
    table: &toml::Table,
) -> Result<(), Failure> {
    let json = serde_json::to_value(table).map_err(Failure::internal)?;
    let mistakes = check_config(plugin, &json).map_err(|e| plugin_failure(file, path, &e))?;
    match mistakes.first() {
        Some(mistake) => Err(mistake_error(file, path, mistake).into()),
        None => Ok(()),
    }
}
