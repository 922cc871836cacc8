//! Every mistake in a campaign file is reported with its place and a way to mend it.
#![allow(clippy::unwrap_used)] // a test's own helpers may panic

use std::path::PathBuf;

use blackstart_config::{BuildContext, CampaignFile, GateChoice, Source, build_plan};
use blackstart_plan::Profile;

const GOOD: &str = r#"
name = "demo"
profile = "free"
seed = 1
runs = 3

[phases]
warmup = "2s"
baseline = "10s"
fault_window = "20s"
cooldown = "1s"

[load]
rate = 20.0
model = "mock"
max_tokens = 32
timeout = "3s"

[target]
accelerators = "none"

[[target.replica]]
id = "r0"
base_url = "http://127.0.0.1:18431"
[target.replica.process]
command = ["${blackstart}", "mock"]

[fault]
variant = "process-kill"
victims = ["r0"]
[fault.config]
signal = "KILL"
[fault.grant]
process = ["r0"]
"#;

fn context() -> BuildContext {
    BuildContext {
        instrument_version: "0.0.0-test".into(),
        instrument_path: PathBuf::from("/opt/blackstart"),
        gates: ["G2", "G6"]
            .map(|id| GateChoice {
                id: id.into(),
                plugin: format!("gate-{id}"),
                of_the_method: true,
            })
            .to_vec(),
        ..BuildContext::default()
    }
}

fn load(text: &str) -> Result<blackstart_plan::Plan, String> {
    let file = CampaignFile::parse(Source {
        name: "campaign.toml".into(),
        text: text.into(),
        base_dir: PathBuf::from("/campaigns"),
    })
    .map_err(|e| e.to_string())?;
    build_plan(&file, &context()).map_err(|e| e.to_string())
}

/// Replaces one text of the good file and returns the error, which must name the place.
fn broken(from: &str, to: &str, place: &str) -> String {
    assert!(GOOD.contains(from), "`{from}` is not in the file");
    let error = load(&GOOD.replacen(from, to, 1)).expect_err("the file is wrong");
    assert!(
        error.contains(&format!("campaign.toml:{place}")),
        "place {place} not in:\n{error}"
    );
    assert!(error.contains("help: "), "no way to mend it in:\n{error}");
    error
}

#[test]
fn the_good_file_makes_a_plan() {
    let plan = load(GOOD).unwrap();
    assert_eq!(plan.profile, Profile::Free);
    assert_eq!(plan.runs.len(), 3);
    assert_eq!(plan.runs[2].seed, 3);
    assert_eq!(plan.phases.fire_at_ns(), 12_000_000_000);
    let blackstart_plan::RuntimePlan::Process(process) = &plan.target.replicas[0].runtime else {
        panic!("a launched replica")
    };
    assert_eq!(process.command, ["/opt/blackstart", "mock"]);
    // What departs from the pinned numbers is said, each once.
    for key in [
        "phases.warmup",
        "phases.baseline",
        "phases.cooldown",
        "load.max_tokens",
        "load.timeout",
        "runs",
    ] {
        assert_eq!(
            plan.deviations
                .iter()
                .filter(|d| d.starts_with(&format!("{key}:")))
                .count(),
            1,
            "{key} in {:?}",
            plan.deviations
        );
    }
}

#[test]
fn an_unknown_key_is_named_with_the_nearest_known_one() {
    let error = broken("warmup =", "warm_up =", "8:1");
    assert!(error.contains("unknown field `warm_up`"), "{error}");
    assert!(error.contains("did you mean `warmup`?"), "{error}");
}

#[test]
fn the_published_profile_refuses_a_loosened_number() {
    let error = load(&GOOD.replace("profile = \"free\"\n", "")).unwrap_err();
    assert!(
        error.contains("`phases.warmup` is 2s, but published results are pinned to 1m"),
        "{error}"
    );
    assert!(error.contains("campaign.toml:7:10"), "{error}");
}

#[test]
fn a_victim_that_is_no_replica_is_named() {
    let error = broken("victims = [\"r0\"]", "victims = [\"r9\"]", "30:12");
    assert!(
        error.contains("no replica is called `r9`") && error.contains("did you mean `r0`?"),
        "{error}"
    );
}

#[test]
fn no_victim_is_refused() {
    broken("victims = [\"r0\"]", "victims = []", "30:11");
}

#[test]
fn addresses_are_checked() {
    let at = "24:12";
    let with = |url: &str| broken("\"http://127.0.0.1:18431\"", &format!("\"{url}\""), at);
    assert!(with("https://x:1").contains("does not speak"));
    assert!(with("127.0.0.1:80").contains("http"));
    assert!(with("http://h:1/v1").contains("path"));
    // The line holds a secret, so it is named and not shown.
    let secret =
        load(&GOOD.replace("http://127.0.0.1:18431", "http://me:hunter2@h:1")).unwrap_err();
    assert!(
        secret.contains("credentials") && secret.contains("campaign.toml:24:12"),
        "{secret}"
    );
    assert!(!secret.contains("hunter2"), "{secret}");
}

#[test]
fn secrets_do_not_belong_in_the_file() {
    let text = GOOD.replace(
        "[target]",
        "[load.headers]\nAuthorization = \"Bearer hunter2\"\n[target]",
    );
    let error = load(&text).unwrap_err();
    assert!(
        error.contains("api_key_env") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn a_baseline_shorter_than_the_timeout_is_refused() {
    broken("baseline = \"10s\"", "baseline = \"3s\"", "9:12");
}

#[test]
fn durations_and_types_are_checked_in_place() {
    let error = broken("warmup = \"2s\"", "warmup = \"2 parsecs\"", "8:10");
    assert!(error.contains("write a number and a unit"), "{error}");
    let error = broken("seed = 1", "seed = \"one\"", "4:8");
    assert!(error.contains("help: write a whole number"), "{error}");
    let error = broken("rate = 20.0", "rate = \"20\"", "14:8");
    assert!(
        error.contains("help: write a number (without quotes)") && !error.contains("f64"),
        "{error}"
    );
    let error = broken("model = \"mock\"", "model = 7", "15:9");
    assert!(error.contains("help: write a text in quotes"), "{error}");
    let error = broken("rate = 20.0\n", "", "13:1");
    assert!(error.contains("add `rate = …`"), "{error}");
    broken("rate = 20.0", "rate = ", "14:8");
    broken("rate = 20.0", "rate = -1.0", "14:8");
}

/// The warnings of the good file with a few more lines.
fn warned(more: &str) -> Vec<String> {
    let file = CampaignFile::parse(Source {
        name: "campaign.toml".into(),
        text: format!("{GOOD}{more}"),
        base_dir: PathBuf::from("/campaigns"),
    })
    .unwrap();
    let warnings = blackstart_config::warnings(&file);
    warnings.iter().map(|w| w.warning()).collect()
}

#[test]
fn settings_that_do_not_go_together_are_warned_of() {
    for (more, says) in [
        (
            "\n[recovery]\nwindow = \"3s\"\nhold = \"2s\"\n[observe]\nprobe_timeout = \"3s\"\n",
            "the hold of 2s is shorter than the probe timeout of 3s",
        ),
        (
            "\n[recovery]\nwindow = \"10s\"\nhold = \"12s\"\n",
            "goes on for 21s after the fire, but a recovery takes 22s",
        ),
        (
            "\n[recovery]\nwindow = \"3s\"\nhold = \"5s\"\n[observe]\nprobe_timeout = \"4s\"\n",
            "longer than the 3s that a client waits",
        ),
    ] {
        let found = warned(more);
        assert_eq!(found.len(), 1, "{found:?}");
        let text = &found[0];
        assert!(
            text.starts_with("warning: ") && text.contains(says) && text.contains("help: "),
            "{text}"
        );
        assert!(text.contains("campaign.toml:"), "{text}");
    }
    assert_eq!(
        warned("\n[recovery]\nwindow = \"3s\"\nhold = \"5s\"\n"),
        [""; 0]
    );
}

#[test]
fn gates_are_known_and_pinned() {
    let error = load(&format!("{GOOD}\n[gates.G9]\n")).unwrap_err();
    assert!(
        error.contains("no gate has the id `G9`") && error.contains("G2, G6"),
        "{error}"
    );
    let plan = load(&format!(
        "{GOOD}\n[gates.G2.config]\ncpu_percent_max = 95\n"
    ))
    .unwrap();
    assert_eq!(plan.gates[0].config["cpu_percent_max"], 95);
    assert!(
        plan.deviations
            .iter()
            .any(|d| d.contains("gates.G2.config.cpu_percent_max")),
        "{:?}",
        plan.deviations
    );
}

#[test]
fn a_missing_file_says_so() {
    let error = CampaignFile::read(std::path::Path::new("/nonexistent/c.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nonexistent/c.toml: cannot be read") && error.contains("help:"),
        "{error}"
    );
}

#[test]
fn a_replica_needs_exactly_one_way_to_run() {
    let neither = GOOD.replace(
        "[target.replica.process]\ncommand = [\"${blackstart}\", \"mock\"]\n",
        "",
    );
    assert!(
        load(&neither)
            .unwrap_err()
            .contains("neither how to start it nor that it runs")
    );
    let both = GOOD.replace("[fault]\n", "[target.replica.running]\n[fault]\n");
    assert!(
        load(&both)
            .unwrap_err()
            .contains("both launched and already running")
    );
}

#[test]
fn the_published_profile_keeps_the_methods_gates() {
    let published = |gates: &str| {
        let text = GOOD
            .replace("profile = \"free\"\n", "")
            .replace("runs = 3", "runs = 5")
            .replace("warmup = \"2s\"", "warmup = \"60s\"")
            .replace("baseline = \"10s\"", "baseline = \"300s\"")
            .replace("cooldown = \"1s\"", "cooldown = \"60s\"")
            .replace("max_tokens = 32\n", "")
            .replace("timeout = \"3s\"\n", "");
        load(&format!("{text}{gates}"))
    };
    published("").unwrap();
    for gates in [
        "[gates.G2.config]\nmax_cpu_percent = 99\n",
        "[gates.G2]\nplugin = \"mine\"\n",
        "[gates.G6]\npath = \"mine.wasm\"\n",
    ] {
        let error = published(gates).unwrap_err();
        assert!(error.contains("published results are pinned to"), "{error}");
    }
}

#[test]
fn what_the_load_path_would_refuse_is_refused_here() {
    let with = |key: &str| {
        load(&GOOD.replacen("rate = 20.0", &format!("rate = 20.0\n{key}"), 1)).unwrap_err()
    };
    assert!(with("prompt_words = 2").contains("choose 3 to"));
    assert!(with("replica_header = \"x y\"").contains("no HTTP header name"));
    assert!(with("headers = { Host = \"x\" }").contains("sets `Host` itself"));
    assert!(
        load(&GOOD.replace("timeout = \"3s\"", "timeout = \"25h\""))
            .unwrap_err()
            .contains("at most a day")
    );
    assert!(
        load(&GOOD.replace("warmup = \"2s\"", "warmup = \"999h\""))
            .unwrap_err()
            .contains("more than a week")
    );
}

#[test]
fn what_would_only_fail_later_is_refused_here() {
    broken("victims = [\"r0\"]", "victims = [\"r0\", \"r0\"]", "30:");
    broken("18431", "0", "24:12");
    let observe = |key: &str| load(&format!("{GOOD}\n[observe]\n{key}\n")).unwrap_err();
    assert!(observe("metrics_path = \"/a b\"").contains("space or a control character"));
    assert!(observe("waiting_metric = \"\"").contains("has no name"));
    let cookie = GOOD.replace(
        "[target]",
        "[load.headers]\ncookie = \"session=hunter2\"\n[target]",
    );
    let error = load(&cookie).unwrap_err();
    assert!(
        error.contains("holds a secret") && !error.contains("hunter2"),
        "{error}"
    );
}

#[test]
fn a_value_of_any_length_is_named_and_not_repeated() {
    let long = "a".repeat(100_000);
    let lines = "line\n".repeat(20_000);
    for (text, place, why) in [
        (
            GOOD.replace("rate = 20.0", &format!("rate = \"{long}\"")),
            "campaign.toml:14:8",
            "a number (without quotes) is needed",
        ),
        (
            GOOD.replace("rate = 20.0", &format!("rate = \"\"\"{lines}\"\"\"")),
            "campaign.toml:14:8",
            "a number (without quotes) is needed",
        ),
        (
            GOOD.replace("name = \"demo\"", &format!("name = \"{long}\"")),
            "campaign.toml:2:8",
            "",
        ),
        (
            GOOD.replace("timeout = \"3s\"", &format!("{long} = 3")),
            "campaign.toml:17:1",
            "unknown field",
        ),
        (
            GOOD.replace("victims = [\"r0\"]", &format!("victims = [\"{long}\"]")),
            "campaign.toml:",
            "",
        ),
    ] {
        let error = load(&text).unwrap_err();
        assert!(error.len() < 2_000, "{} bytes: {:.300}", error.len(), error);
        assert!(error.contains(place) && error.contains(why), "{error}");
    }
}
