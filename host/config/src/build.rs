//! From a campaign file to a plan: checks that need the whole file, and the pinned numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use blackstart_plan::{
    Arrivals, FaultPlan, GatePlan, GrantPlan, LoadPlan, MatcherPlan, Method, ObservePlan,
    PLAN_SCHEMA_VERSION, Phases, Plan, PluginIdentity, ProcessPlan, ProcessSelector, Profile,
    RecoveryRule, ReplicaPlan, Routing, RunPlan, RuntimePlan, SloSweep, SloThresholds, TargetPlan,
};
use url::Url;

use crate::words::edit_distance;
use crate::{
    ArrivalsConfig, CampaignFile, Config, ConfigError, Duration, ReplicaConfig, RoleConfig, Source,
};

/// What the host knows besides the file.
#[derive(Debug, Clone, Default)]
pub struct BuildContext {
    /// Version of the instrument.
    pub instrument_version: String,
    /// The running instrument, for `${blackstart}` in commands.
    pub instrument_path: PathBuf,
    /// Plugins that the campaign uses.
    pub plugins: BTreeMap<String, PluginIdentity>,
    /// Judges, in order.
    pub gates: Vec<GateChoice>,
    /// What the fault plugin says about itself.
    pub fault: Option<FaultFacts>,
}

/// A gate that judges the runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GateChoice {
    /// Stable id.
    pub id: String,
    /// Name of the plugin.
    pub plugin: String,
    /// Whether the id is one of the bundled gates: those are part of the published method.
    pub of_the_method: bool,
}

/// What a fault plugin says about itself.
#[derive(Debug, Clone, Default)]
pub struct FaultFacts {
    /// Segments that cannot occur: name → reason.
    pub without_segments: BTreeMap<String, String>,
    /// Labels that the run may carry.
    pub labels: Vec<String>,
}

/// Most replicas, runs and load threads that a file may ask for.
const MAX_REPLICAS: usize = 64;
const MAX_RUNS: u32 = 1000;
const MAX_THREADS: u32 = 64;
const MAX_PROMPT_WORDS: u32 = 1_000_000;
const MIN_PROMPT_WORDS: u32 = 3;
/// Longest run and longest client timeout.
const MAX_RUN_NS: i64 = 7 * 86_400 * NS_PER_S;
const MAX_TIMEOUT_NS: i64 = 86_400 * NS_PER_S;
/// What the names of headers contain whose values are credentials by nature.
const SECRET_NAMES: [&str; 9] = [
    "authorization",
    "secret",
    "password",
    "passwd",
    "credential",
    "api-key",
    "apikey",
    "subscription-key",
    "cookie",
];
/// Words that make a key, or tokens, one that lets in.
const ACCESS_WORDS: [&str; 7] = [
    "auth",
    "access",
    "refresh",
    "bearer",
    "security",
    "private",
    "functions",
];
/// Words before a `token` that is one of a text: a number of them, or one among many.
const COUNTING_WORDS: [&str; 8] = [
    "max", "min", "num", "per", "first", "total", "prompt", "output",
];
/// Words behind a `token` of which they say how many, how fast or what kind.
const MEASURING_WORDS: [&str; 11] = [
    "count", "counts", "limit", "budget", "rate", "timeout", "usage", "length", "latency", "ids",
    "type",
];

/// Whether a header of this name holds a credential, as far as the name tells. Headers are kept in the
/// results, and whoever reads these must not be let in by them; so a `token` is a credential unless its
/// neighbours say that tokens of a text are meant.
pub fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    let plain = words.join("-");
    if SECRET_NAMES.iter().any(|part| plain.contains(part)) {
        return true;
    }
    // `access-key` as well as `accesskey`.
    let lets_in = words.iter().any(|word| {
        let stem = ["key", "tokens"]
            .iter()
            .find_map(|end| word.strip_suffix(end));
        ACCESS_WORDS.contains(word) || stem.is_some_and(|stem| ACCESS_WORDS.contains(&stem))
    });
    let last = words.last().copied().unwrap_or_default();
    if ["auth", "bearer", "jwt"].contains(&last) || (last.ends_with("key") && lets_in) {
        return true;
    }
    words.iter().enumerate().any(|(place, word)| {
        let before = place.checked_sub(1).map(|place| words[place]);
        let behind = words.get(place + 1).copied();
        if word.ends_with("tokens") {
            lets_in
        } else if *word == "token" {
            !before.is_some_and(|word| COUNTING_WORDS.contains(&word))
                && !behind.is_some_and(|word| MEASURING_WORDS.contains(&word))
        } else {
            // `authtoken`, not `tokenizer`.
            word.ends_with("token")
        }
    })
}

/// Headers that the load path sets itself.
const OWN_HEADERS: [&str; 7] = [
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "accept",
    "x-request-id",
];
const NS_PER_S: i64 = 1_000_000_000;

/// Checks the file as a whole and makes the plan.
///
/// # Errors
/// The first mistake, with its place and a way to mend it.
pub fn build_plan(file: &CampaignFile, context: &BuildContext) -> Result<Plan, ConfigError> {
    let source = &file.source;
    let config = &file.config;
    let mut pins = Pins {
        source,
        profile: config.profile,
        deviations: Vec::new(),
    };
    check_name(source, "name", &config.name)?;
    if config.runs == 0 || config.runs > MAX_RUNS {
        return Err(source.error_at(
            "runs",
            format!("{} runs are not possible", config.runs),
            format!("choose 1 to {MAX_RUNS}; published results have 5"),
        ));
    }
    let phases = phases(source, config, &mut pins)?;
    let target = target(source, config, context)?;
    let load = load(source, config, &target, &mut pins)?;
    if phases.baseline_ns <= load.timeout_ns {
        return Err(source.error_at(
            "phases.baseline",
            format!(
                "the baseline of {} is not longer than the client timeout of {}",
                config.phases.baseline, config.load.timeout
            ),
            "the last client timeout before the fire is a guard that feeds no baseline figure: lengthen `baseline` or shorten `load.timeout`",
        ));
    }
    let method = method(source, config, &mut pins)?;
    let fault = fault(source, config, &phases, &target, context)?;
    let gates = gates(source, config, context, &mut pins)?;
    let observe = observe(source, config)?;
    let mut plan = Plan {
        schema_version: PLAN_SCHEMA_VERSION,
        campaign: config.name.clone(),
        instrument_version: context.instrument_version.clone(),
        config_sha256: source.sha256(),
        profile: config.profile,
        deviations: pins.deviations,
        phases,
        load,
        target,
        fault,
        gates,
        matcher: MatcherPlan {
            plugin: config.matcher.plugin.clone(),
            config: json_of(&config.matcher.config),
        },
        observe,
        method,
        runs: Vec::new(),
        plugins: context.plugins.clone(),
    };
    plan.runs = runs(source, config, &plan)?;
    Ok(plan)
}

/// Holds the file to the pinned numbers, or notes where a free profile departs from them.
struct Pins<'a> {
    source: &'a Source,
    profile: Profile,
    deviations: Vec<String>,
}

impl Pins<'_> {
    fn pin(
        &mut self,
        path: &str,
        holds: bool,
        value: impl ToString,
        pinned: &str,
    ) -> Result<(), ConfigError> {
        if holds {
            return Ok(());
        }
        let value = value.to_string();
        match self.profile {
            Profile::Free => {
                self.deviations.push(format!("{path}: {value} (pinned: {pinned})"));
                Ok(())
            }
            Profile::Published => Err(self.source.error_at(
                path,
                format!("`{path}` is {value}, but published results are pinned to {pinned}"),
                "use the pinned value, or set `profile = \"free\"`: every report is then stamped \"free profile\"",
            )),
        }
    }

    fn duration(
        &mut self,
        path: &str,
        value: Duration,
        pinned: Duration,
    ) -> Result<(), ConfigError> {
        self.pin(path, value == pinned, value, &pinned.to_string())
    }
}

fn check_name(source: &Source, path: &str, name: &str) -> Result<(), ConfigError> {
    const LONGEST: usize = 64;
    let ok = !name.is_empty()
        && name.len() <= LONGEST
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if ok {
        return Ok(());
    }
    Err(source.error_at(
        path,
        format!("`{}` cannot be part of a file name", name.escape_debug()),
        format!("use 1 to {LONGEST} letters, digits, `-`, `_` and `.`"),
    ))
}

fn phases(source: &Source, config: &Config, pins: &mut Pins<'_>) -> Result<Phases, ConfigError> {
    let p = &config.phases;
    pins.duration("phases.warmup", p.warmup, Duration::from_s(60))?;
    pins.duration("phases.baseline", p.baseline, Duration::from_s(300))?;
    pins.pin(
        "phases.fault_window",
        p.fault_window <= Duration::from_s(600),
        p.fault_window,
        "at most 10m",
    )?;
    pins.duration("phases.cooldown", p.cooldown, Duration::from_s(60))?;
    for (path, value) in [
        ("phases.baseline", p.baseline),
        ("phases.fault_window", p.fault_window),
    ] {
        if value.ns <= 0 {
            return Err(source.error_at(
                path,
                format!("`{path}` is empty"),
                "give it a length, such as \"30s\"",
            ));
        }
    }
    let total = [p.warmup, p.baseline, p.fault_window, p.cooldown]
        .iter()
        .fold(0_i64, |sum, d| sum.saturating_add(d.ns));
    if total > MAX_RUN_NS {
        return Err(source.error_at(
            "phases",
            "a run of more than a week is not possible",
            "shorten the phases",
        ));
    }
    Ok(Phases {
        warmup_ns: p.warmup.ns,
        baseline_ns: p.baseline.ns,
        fault_window_ns: p.fault_window.ns,
        cooldown_ns: p.cooldown.ns,
    })
}

/// An `http://host:port` address without path, query or credentials.
fn address(source: &Source, path: &str, text: &str) -> Result<String, ConfigError> {
    let refuse = |message: String, help: &str| Err(source.error_at(path, message, help));
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(e) => {
            return refuse(
                format!("`{path}` is no address: {e}"),
                "write it as http://host:port",
            );
        }
    };
    if url.scheme() == "https" {
        return refuse(
            format!("`{path}` asks for https, which a campaign does not speak"),
            "point it at the server's plain port, or at a local TLS-terminating proxy",
        );
    }
    if url.scheme() != "http" || url.host_str().is_none() {
        return refuse(
            format!("`{path}` is not an http address"),
            "write it as http://host:port",
        );
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(source.secret_error_at(
            path,
            format!("`{path}` holds credentials"),
            "name an environment variable in `load.api_key_env` instead; the file is copied into the results",
        ));
    }
    if url.port() == Some(0) {
        return refuse(
            format!("`{path}` has port 0"),
            "name the port on which the server listens",
        );
    }
    if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
        return refuse(
            format!("`{path}` has a path; the API's own path is added to the address"),
            "leave only http://host:port",
        );
    }
    let host = url.host_str().unwrap_or_default();
    Ok(format!(
        "http://{host}:{}",
        url.port_or_known_default().unwrap_or(80)
    ))
}

fn target(
    source: &Source,
    config: &Config,
    context: &BuildContext,
) -> Result<TargetPlan, ConfigError> {
    let t = &config.target;
    if t.replica.is_empty() || t.replica.len() > MAX_REPLICAS {
        return Err(source.error_at(
            "target.replica",
            format!("{} replicas are not possible", t.replica.len()),
            format!("declare 1 to {MAX_REPLICAS} tables [[target.replica]]"),
        ));
    }
    let mut seen = BTreeSet::new();
    let mut replicas = Vec::new();
    for (i, replica) in t.replica.iter().enumerate() {
        let path = format!("target.replica.{i}");
        check_name(source, &format!("{path}.id"), &replica.id)?;
        if !seen.insert(replica.id.as_str()) {
            return Err(source.error_at(
                &format!("{path}.id"),
                format!("two replicas are called `{}`", replica.id),
                "give each its own id",
            ));
        }
        replicas.push(self::replica(source, &path, replica, context)?);
    }
    let service_url = t
        .service_url
        .as_deref()
        .map(|url| address(source, "target.service_url", url))
        .transpose()?;
    match (t.routing, &service_url) {
        (Routing::Direct, Some(_)) => {
            return Err(source.error_at(
                "target.service_url",
                "a service address is given, but `routing` says that the replica is addressed directly",
                "set `routing = \"per_request\"` (layer-7 balancer) or `\"per_connection\"`, or remove `service_url`",
            ));
        }
        (Routing::Direct, None) if replicas.len() > 1 => {
            return Err(source.error_at(
                "target.replica",
                format!("{} replicas cannot all be addressed directly", replicas.len()),
                "give the balancer's address as `service_url` and say how it chooses with `routing`",
            ));
        }
        (Routing::PerRequest | Routing::PerConnection, None) => {
            return Err(source.error_at(
                "target.routing",
                "`routing` names a balancer, but there is no `service_url`",
                "give the balancer's address, such as service_url = \"http://127.0.0.1:8080\"",
            ));
        }
        _ => {}
    }
    Ok(TargetPlan {
        replicas,
        service_url,
        routing: t.routing,
        accelerators: t.accelerators,
    })
}

fn replica(
    source: &Source,
    path: &str,
    replica: &ReplicaConfig,
    context: &BuildContext,
) -> Result<ReplicaPlan, ConfigError> {
    let runtime = match (&replica.process, &replica.running) {
        (Some(process), None) => {
            let command: Vec<String> = process
                .command
                .iter()
                .map(|arg| arg.replace("${blackstart}", &context.instrument_path.to_string_lossy()))
                .collect();
            if command
                .first()
                .is_none_or(|program| program.trim().is_empty())
            {
                return Err(source.error_at(
                    &format!("{path}.process.command"),
                    "the command is empty",
                    "write the program and its arguments, such as [\"vllm\", \"serve\", \"MODEL\"]",
                ));
            }
            if process.start_timeout.ns <= 0 {
                return Err(source.error_at(
                    &format!("{path}.process.start_timeout"),
                    "no server starts in no time",
                    "give it a length, such as \"10m\"",
                ));
            }
            RuntimePlan::Process(ProcessPlan {
                command,
                env: process.env.clone(),
                cwd: Some(
                    process
                        .cwd
                        .as_deref()
                        .map_or_else(|| source.base_dir.clone(), |cwd| source.resolve(cwd))
                        .to_string_lossy()
                        .into_owned(),
                ),
                restart: process.restart,
                restart_delay_ns: process.restart_delay.ns,
                orphans: process.orphans,
                start_timeout_ns: process.start_timeout.ns,
                stop_timeout_ns: process.stop_timeout.ns,
            })
        }
        (None, Some(running)) => {
            if let Some(pattern) = &running.command_match
                && let Err(e) = regex::Regex::new(pattern)
            {
                return Err(source.error_at(
                    &format!("{path}.running.command_match"),
                    format!(
                        "not a regular expression: {}",
                        e.to_string().replace('\n', " ")
                    ),
                    "escape special characters with a backslash",
                ));
            }
            if running.pid.is_some() && running.command_match.is_some() {
                return Err(source.error_at(
                    &format!("{path}.running.pid"),
                    "both `pid` and `command_match` are given",
                    "keep the one that names the main process",
                ));
            }
            RuntimePlan::Url {
                log_file: running
                    .log_file
                    .as_deref()
                    .map(|p| source.resolve(p).to_string_lossy().into_owned()),
                pid: running.pid,
                command_match: running.command_match.clone(),
            }
        }
        (None, None) => {
            return Err(source.error_at(
                path,
                format!("replica `{}` says neither how to start it nor that it runs", replica.id),
                "add [target.replica.process] with a command, or an (empty) [target.replica.running]",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(source.error_at(
                &format!("{path}.running"),
                format!(
                    "replica `{}` is both launched and already running",
                    replica.id
                ),
                "keep one of [target.replica.process] and [target.replica.running]",
            ));
        }
    };
    Ok(ReplicaPlan {
        id: replica.id.clone(),
        base_url: address(source, &format!("{path}.base_url"), &replica.base_url)?,
        admin_url: replica
            .admin_url
            .as_deref()
            .map(|url| address(source, &format!("{path}.admin_url"), url))
            .transpose()?,
        runtime,
        process_roles: replica
            .roles
            .iter()
            .map(|(role, how)| {
                let selector = match how {
                    RoleConfig::Named(_) => ProcessSelector::Main,
                    RoleConfig::Contains { contains } => ProcessSelector::Contains {
                        text: contains.clone(),
                    },
                };
                (role.clone(), selector)
            })
            .collect(),
    })
}

fn load(
    source: &Source,
    config: &Config,
    target: &TargetPlan,
    pins: &mut Pins<'_>,
) -> Result<LoadPlan, ConfigError> {
    let l = &config.load;
    pins.pin("load.max_tokens", l.max_tokens == 256, l.max_tokens, "256")?;
    pins.duration("load.timeout", l.timeout, Duration::from_s(30))?;
    if l.timeout.ns <= 0 || l.timeout.ns > MAX_TIMEOUT_NS {
        return Err(source.error_at(
            "load.timeout",
            format!("a client timeout of {} is not possible", l.timeout),
            "give it a length of at most a day, such as \"30s\"",
        ));
    }
    if let Some(header) = &l.replica_header
        && !header_name(header)
    {
        return Err(source.error_at(
            "load.replica_header",
            format!("`{}` is no HTTP header name", header.escape_debug()),
            "use letters, digits, `-` and `_`, such as \"x-replica\"",
        ));
    }
    for (path, value, max) in [
        ("load.max_tokens", l.max_tokens, 1_000_000),
        ("load.threads", l.threads, MAX_THREADS),
        ("load.prompt_words", l.prompt_words, MAX_PROMPT_WORDS),
    ] {
        // The first words of a prompt make it unique.
        let min = if path == "load.prompt_words" {
            MIN_PROMPT_WORDS
        } else {
            1
        };
        if value < min || value > max {
            return Err(source.error_at(
                path,
                format!("`{path}` is {value}"),
                format!("choose {min} to {max}"),
            ));
        }
    }
    for (name, value) in &l.headers {
        let path = format!("load.headers.{name}");
        let name_ok = header_name(name);
        let value_ok = value.bytes().all(|b| (0x20..0x7f).contains(&b));
        if !name_ok || !value_ok {
            return Err(source.error_at(
                &path,
                format!("`{}` is no HTTP header", name.escape_debug()),
                "use printable ASCII",
            ));
        }
        if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(source.error_at(
                &path,
                format!("the load path sets `{name}` itself"),
                "remove it",
            ));
        }
        if is_secret_header(name) {
            return Err(source.secret_error_at(
                &path,
                format!("`{name}` holds a secret, and this file is copied into the results"),
                "put the key into an environment variable and name it in `load.api_key_env`",
            ));
        }
    }
    Ok(LoadPlan {
        rate_per_s: l.rate,
        arrivals: match l.arrivals {
            ArrivalsConfig::Poisson => Arrivals::Poisson,
            ArrivalsConfig::Constant => Arrivals::Constant,
        },
        endpoint: l.endpoint,
        model: l.model.clone(),
        max_tokens: l.max_tokens,
        ignore_eos: l.ignore_eos,
        prompt_words: l.prompt_words,
        timeout_ns: l.timeout.ns,
        idle_timeout_ns: None,
        first_token_timeout_ns: None,
        base_url: target
            .service_url
            .clone()
            .unwrap_or_else(|| target.replicas[0].base_url.clone()),
        headers: l
            .headers
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect(),
        api_key_env: l.api_key_env.clone(),
        replica_header: l.replica_header.clone(),
        threads: l.threads,
        real_time: l.real_time,
    })
}

fn header_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
}

fn method(source: &Source, config: &Config, pins: &mut Pins<'_>) -> Result<Method, ConfigError> {
    let pinned = Method::pinned();
    let ms = |path: &str, d: Duration| -> Result<u32, ConfigError> {
        u32::try_from(d.ns / 1_000_000)
            .ok()
            .filter(|&ms| ms > 0 && d.ns % 1_000_000 == 0)
            .ok_or_else(|| {
                source.error_at(
                    path,
                    format!("`{path}` is {d}"),
                    "use whole milliseconds above zero",
                )
            })
    };
    let s = &config.slo;
    let slo = SloThresholds {
        ttft_ms: ms("slo.ttft", s.ttft)?,
        e2e_ms: ms("slo.e2e", s.e2e)?,
    };
    pins.pin("slo.ttft", slo.ttft_ms == pinned.slo.ttft_ms, s.ttft, "1s")?;
    pins.pin("slo.e2e", slo.e2e_ms == pinned.slo.e2e_ms, s.e2e, "14s")?;
    let list = |path: &str, values: &[Duration]| -> Result<Vec<u32>, ConfigError> {
        const MOST: usize = 16;
        if values.is_empty() || values.len() > MOST {
            return Err(source.error_at(
                path,
                format!("`{path}` has {} thresholds", values.len()),
                format!("give 1 to {MOST}"),
            ));
        }
        values.iter().map(|&d| ms(path, d)).collect()
    };
    let slo_sweep = SloSweep {
        ttft_ms: list("slo.sweep_ttft", &s.sweep_ttft)?,
        e2e_ms: list("slo.sweep_e2e", &s.sweep_e2e)?,
    };
    pins.pin(
        "slo.sweep_ttft",
        slo_sweep.ttft_ms == pinned.slo_sweep.ttft_ms,
        format!("{:?} ms", slo_sweep.ttft_ms),
        "800, 1000, 1500 ms",
    )?;
    pins.pin(
        "slo.sweep_e2e",
        slo_sweep.e2e_ms == pinned.slo_sweep.e2e_ms,
        format!("{:?} ms", slo_sweep.e2e_ms),
        "12, 14, 18 s",
    )?;
    let r = &config.recovery;
    let buckets = |path: &str, d: Duration| -> Result<u32, ConfigError> {
        u32::try_from(d.ns / NS_PER_S)
            .ok()
            .filter(|&n| n > 0 && d.ns % NS_PER_S == 0)
            .ok_or_else(|| {
                source.error_at(
                    path,
                    format!("`{path}` is {d}"),
                    "use whole seconds above zero: recovery is found on buckets of 1 s",
                )
            })
    };
    let recovery = RecoveryRule {
        bucket_ns: NS_PER_S,
        window_buckets: buckets("recovery.window", r.window)?,
        hold_buckets: buckets("recovery.hold", r.hold)?,
        entry_percent: r.entry_percent,
        exit_percent: r.exit_percent,
    };
    if !(1..=100).contains(&r.entry_percent)
        || r.exit_percent == 0
        || r.exit_percent > r.entry_percent
    {
        return Err(source.error_at(
            "recovery.exit_percent",
            format!(
                "entry at {} % and exit at {} % of the baseline make no rule",
                r.entry_percent, r.exit_percent
            ),
            "0 < exit_percent ≤ entry_percent ≤ 100",
        ));
    }
    let rule = RecoveryRule::PINNED;
    pins.duration("recovery.window", r.window, Duration::from_s(10))?;
    pins.duration("recovery.hold", r.hold, Duration::from_s(30))?;
    pins.pin(
        "recovery.entry_percent",
        r.entry_percent == rule.entry_percent,
        r.entry_percent,
        "90",
    )?;
    pins.pin(
        "recovery.exit_percent",
        r.exit_percent == rule.exit_percent,
        r.exit_percent,
        "85",
    )?;
    pins.pin("runs", config.runs == pinned.planned_runs, config.runs, "5")?;
    let scaled = |value: u32, pinned: u32, part: u32| (value * part).div_ceil(pinned).max(1);
    let mut sensitivity = pinned.sensitivity.clone();
    if recovery != rule {
        // A scaled run keeps the grid's proportions, so that its table says something.
        sensitivity.window_buckets = vec![
            scaled(recovery.window_buckets, 10, 5),
            recovery.window_buckets,
            recovery.window_buckets * 2,
        ];
        sensitivity.hold_buckets = vec![
            scaled(recovery.hold_buckets, 30, 15),
            recovery.hold_buckets,
            recovery.hold_buckets * 2,
        ];
    }
    Ok(Method {
        slo,
        slo_sweep,
        recovery,
        sensitivity,
        planned_runs: config.runs,
        ..pinned
    })
}

fn fault(
    source: &Source,
    config: &Config,
    phases: &Phases,
    target: &TargetPlan,
    context: &BuildContext,
) -> Result<Option<FaultPlan>, ConfigError> {
    let Some(fault) = &config.fault else {
        return Ok(None);
    };
    if fault.victims.is_empty() {
        return Err(source.error_at(
            "fault.victims",
            "no victim is named, and a fault may only touch what is named",
            format!(
                "name replicas, such as victims = [\"{}\"]",
                target.replicas[0].id
            ),
        ));
    }
    for (i, victim) in fault.victims.iter().enumerate() {
        if fault.victims[..i].contains(victim) {
            return Err(source.error_at(
                &format!("fault.victims.{i}"),
                format!("`{}` is named twice", victim.escape_debug()),
                "name each victim once",
            ));
        }
        if !target.replicas.iter().any(|r| r.id == *victim) {
            let nearest = target
                .replicas
                .iter()
                .min_by_key(|r| edit_distance(&r.id, victim));
            return Err(source.error_at(
                &format!("fault.victims.{i}"),
                format!("no replica is called `{}`", victim.escape_debug()),
                nearest.map_or_else(String::new, |r| format!("did you mean `{}`?", r.id)),
            ));
        }
    }
    let facts = context.fault.clone().unwrap_or_default();
    Ok(Some(FaultPlan {
        variant: fault.variant.clone(),
        victims: fault.victims.clone(),
        config: json_of(&fault.config),
        grant: GrantPlan {
            process: fault.grant.process.clone(),
            container: fault.grant.container.clone(),
            network: fault.grant.network.clone(),
            resources: fault.grant.resources.clone(),
            http: fault.grant.http.clone(),
        },
        fire_at_ns: phases.fire_at_ns(),
        expire_at_ns: phases.fault_window_end_ns(),
        statement: None,
        without_segments: facts.without_segments,
        labels: facts.labels,
    }))
}

fn gates(
    source: &Source,
    config: &Config,
    context: &BuildContext,
    pins: &mut Pins<'_>,
) -> Result<Vec<GatePlan>, ConfigError> {
    let mut gates = Vec::new();
    for choice in &context.gates {
        let id = &choice.id;
        let configured = config.gates.get(id);
        let table = configured.map(|g| g.config.clone()).unwrap_or_default();
        if choice.of_the_method {
            // The method's own gates are pinned: neither their rule nor their limits move.
            for (key, set) in [
                ("plugin", configured.and_then(|g| g.plugin.as_deref())),
                ("path", configured.and_then(|g| g.path.as_deref())),
            ] {
                if let Some(value) = set {
                    pins.pin(
                        &format!("gates.{id}.{key}"),
                        false,
                        value,
                        "the bundled gate",
                    )?;
                }
            }
            for (key, value) in &table {
                pins.pin(
                    &format!("gates.{id}.config.{key}"),
                    false,
                    value,
                    "the method's limit",
                )?;
            }
        }
        gates.push(GatePlan {
            plugin: choice.plugin.clone(),
            id: id.clone(),
            config: json_of(&table),
        });
    }
    if let Some(unknown) = config
        .gates
        .keys()
        .find(|id| !context.gates.iter().any(|known| known.id == **id))
    {
        let known: Vec<&str> = context.gates.iter().map(|g| g.id.as_str()).collect();
        return Err(source.error_at(
            &format!("gates.{unknown}"),
            format!("no gate has the id `{}`", unknown.escape_debug()),
            format!(
                "known: {}; a gate of your own needs `plugin` or `path`",
                known.join(", ")
            ),
        ));
    }
    Ok(gates)
}

fn observe(source: &Source, config: &Config) -> Result<ObservePlan, ConfigError> {
    let o = &config.observe;
    for (path, value) in [
        ("observe.probe_interval", o.probe_interval),
        ("observe.probe_interval_outage", o.probe_interval_outage),
        ("observe.probe_timeout", o.probe_timeout),
        ("observe.metrics_interval", o.metrics_interval),
    ] {
        if value < Duration::from_ms(10) {
            return Err(source.error_at(
                path,
                format!("`{path}` is {value}"),
                "use at least 10ms: probes and scrapes are load too",
            ));
        }
    }
    if o.waiting_metric.is_empty() {
        return Err(source.error_at(
            "observe.waiting_metric",
            "the gauge of waiting requests has no name",
            "write it as the server exports it, such as \"vllm:num_requests_waiting\"",
        ));
    }
    if !o.metrics_path.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(source.error_at(
            "observe.metrics_path",
            "the path holds a space or a control character",
            "write \"/metrics\", or \"\" to scrape nothing",
        ));
    }
    if !o.metrics_path.is_empty() && !o.metrics_path.starts_with('/') {
        return Err(source.error_at(
            "observe.metrics_path",
            "the path does not start with a slash",
            "write \"/metrics\", or \"\" to scrape nothing",
        ));
    }
    Ok(ObservePlan {
        probe_interval_ns: o.probe_interval.ns,
        probe_interval_outage_ns: o.probe_interval_outage.ns,
        probe_timeout_ns: o.probe_timeout.ns,
        metrics_interval_ns: o.metrics_interval.ns,
        metrics_path: (!o.metrics_path.is_empty()).then(|| o.metrics_path.clone()),
        waiting_metric: o.waiting_metric.clone(),
        canary: o.canary,
    })
}

fn runs(source: &Source, config: &Config, plan: &Plan) -> Result<Vec<RunPlan>, ConfigError> {
    let total = config.runs + u32::from(config.negative_control);
    (1..=total)
        .map(|number| {
            let mut run = RunPlan {
                run: number,
                seed: config.seed.wrapping_add(u64::from(number) - 1),
                requests: 0,
                schedule_sha256: String::new(),
                negative_control: number > config.runs,
            };
            let schedule = plan.schedule(&run).map_err(|e| {
                source.error_at(
                    "load.rate",
                    e.to_string(),
                    "requests per second over the whole service, such as rate = 20.0",
                )
            })?;
            if schedule.intended_ns.is_empty() {
                return Err(source.error_at(
                    "load.rate",
                    "the schedule holds no request",
                    "raise the rate or lengthen the phases",
                ));
            }
            run.requests = schedule.intended_ns.len() as u64;
            run.schedule_sha256 = schedule.sha256();
            Ok(run)
        })
        .collect()
}

/// A TOML table as JSON. Dates become texts; floats that JSON cannot hold become null.
fn json_of(table: &toml::Table) -> serde_json::Value {
    fn value(v: &toml::Value) -> serde_json::Value {
        match v {
            toml::Value::String(s) => s.clone().into(),
            toml::Value::Integer(i) => (*i).into(),
            toml::Value::Float(f) => {
                serde_json::Number::from_f64(*f).map_or(serde_json::Value::Null, Into::into)
            }
            toml::Value::Boolean(b) => (*b).into(),
            toml::Value::Datetime(d) => d.to_string().into(),
            toml::Value::Array(a) => a.iter().map(value).collect(),
            toml::Value::Table(t) => json_of(t),
        }
    }
    table
        .iter()
        .map(|(k, v)| (k.clone(), value(v)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_let_in_are_secrets_and_those_that_count_tokens_are_not() {
        for name in [
            "Authorization",
            "Proxy-Authorization",
            "X-Auth-Token",
            "X-AuthToken",
            "Private-Token",
            "X-Amz-Security-Token",
            "token",
            "X-Token-Id",
            "X-Access-Tokens",
            "x-goog-api-key",
            "Ocp-Apim-Subscription-Key",
            "X_APIKEY",
            "X-Auth-Key",
            "X-AccessKey",
            "x-functions-key",
            "Set-Cookie",
            "client-secret",
            "Password",
            "X-Auth",
        ] {
            assert!(is_secret_header(name), "{name}");
        }
        for name in [
            "x-max-tokens",
            "X-MaxTokens",
            "x-max-token",
            "x-token-count",
            "X-Token-Limit",
            "x-tokenizer",
            "x-tokenization-mode",
            "x-time-to-first-token",
            "x-prompt-tokens",
            "X-Author",
            "Idempotency-Key",
            "x-routing-key",
            "x-session-id",
            "x-tenant",
            "",
        ] {
            assert!(!is_secret_header(name), "{name}");
        }
    }
}
