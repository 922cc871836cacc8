//! Faults on real namespaces and control groups, through the whole instrument: what clients see, that the
//! fault is proven, that it is undone, and that a bystander is never touched.

#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use blackstart_record::{Outcome, RequestRecord};
use blackstart_testkit::Instrument;
use rustix::process::Signal;
use serde_json::Value;

/// Groups of the controllers that a case may ask for.
const CONTROLLERS: [&str; 3] = ["freezer", "cpu", "memory"];

static NEXT: AtomicU32 = AtomicU32::new(0);

fn sh(script: &str) -> Result<String, String> {
    let out = Command::new("sh")
        .args(["-c", script])
        .env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        )
        .output()
        .map_err(|e| e.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if out.status.success() {
        Ok(text(&out.stdout))
    } else {
        Err(text(&out.stderr))
    }
}

/// A network namespace, control groups and a small disk for one server, and a bystander of the same kind.
struct Island {
    name: String,
    address: String,
    groups: Vec<PathBuf>,
    bystander: Option<Child>,
}

impl Island {
    /// `None` where this host gives none; said by name.
    fn new(test: &str) -> Option<Self> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bsf-{}-{n}", std::process::id());
        // Of a block for tests of networks (RFC 2544).
        let subnet = format!("198.19.{}", std::process::id() % 250);
        let (here, there) = (
            format!("{subnet}.{}", n % 60 * 4 + 1),
            format!("{subnet}.{}", n % 60 * 4 + 2),
        );
        let (out, inn) = (format!("fo{}", &name[4..]), format!("fi{}", &name[4..]));
        let made = sh(&format!(
            "nft --version >/dev/null && ip netns add {name} && \
             ip link add {out} type veth peer name {inn} netns {name} && \
             ip addr add {here}/30 dev {out} && ip link set {out} up && \
             ip -n {name} addr add {there}/30 dev {inn} && ip -n {name} link set {inn} up && \
             ip -n {name} link set lo up"
        ));
        let mut this = Self {
            name,
            address: there,
            groups: Vec::new(),
            bystander: None,
        };
        let mut lacks = made.err();
        for controller in CONTROLLERS {
            let dir = PathBuf::from("/sys/fs/cgroup")
                .join(controller)
                .join(&this.name);
            match std::fs::create_dir(&dir) {
                Ok(()) => this.groups.push(dir),
                Err(e) => lacks = Some(format!("{}: {e}", dir.display())),
            }
        }
        if let Some(reason) = lacks {
            // Not by a macro of the standard library, whose text the test harness keeps to itself.
            let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
            return None;
        }
        let bystander = Command::new("ip")
            .args(["netns", "exec", &this.name, "sleep", "1000"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        this.bystander = Some(bystander);
        Some(this)
    }

    /// The campaign: a mock in this namespace, these groups, and a mount namespace with a small disk.
    fn campaign(&self, fault: &str) -> String {
        let joined: Vec<String> = self
            .groups
            .iter()
            .map(|g| format!("echo $$ > {}/cgroup.procs", g.display()))
            .collect();
        let script = format!(
            "{} && mount -t tmpfs -o size=8m none /mnt && exec \\\"$0\\\" \\\"$@\\\"",
            joined.join(" && ")
        );
        format!(
            r#"name = "surroundings"
profile = "free"
seed = 7
runs = 1

[phases]
warmup = "1s"
baseline = "4s"
fault_window = "9s"
cooldown = "1s"

[load]
rate = 15.5
arrivals = "constant"
model = "mock"
max_tokens = 30
prompt_words = 8
timeout = "1500ms"

[target]
accelerators = "none"

[[target.replica]]
id = "r0"
base_url = "http://{address}:18500"

[target.replica.process]
command = ["nsenter", "--net=/run/netns/{name}", "unshare", "-m", "sh", "-c", "{script}", "${{blackstart}}", "mock", "--host", "0.0.0.0", "--port", "18500", "--model", "mock", "--ttft-ms", "40", "--itl-ms", "12", "--startup-scale", "0.2"]
restart = "always"
restart_delay = "300ms"
start_timeout = "60s"
stop_timeout = "5s"

{fault}

[observe]
probe_interval = "250ms"
probe_interval_outage = "50ms"
probe_timeout = "500ms"
metrics_interval = "250ms"

[recovery]
window = "1s"
hold = "2s"

[gates.G2.config]
max_cpu_percent = 100
max_skew_us_p99 = 1000000
max_skew_us_max = 10000000
max_stall_us_p99 = 1000000
"#,
            address = self.address,
            name = self.name,
        )
    }

    /// Tables of packet rules and queues of ours in it.
    fn rules(&self) -> String {
        let (tables, queues) = (
            sh(&format!("ip netns exec {} nft list tables", self.name)),
            sh(&format!("ip netns exec {} tc qdisc show", self.name)),
        );
        let ours = |text: String| {
            text.lines()
                .filter(|l| l.contains("blackstart_") || l.contains("tbf") || l.contains("netem"))
                .collect::<Vec<_>>()
                .join("; ")
        };
        tables.map(ours).unwrap() + &queues.map(ours).unwrap()
    }

    /// Limits of its groups.
    fn limits(&self) -> Vec<String> {
        let read = |controller: usize, file: &str| {
            let text = std::fs::read_to_string(self.groups[controller].join(file)).unwrap();
            text.trim().to_owned()
        };
        vec![
            read(0, "freezer.state"),
            read(1, "cpu.cfs_quota_us"),
            read(2, "memory.limit_in_bytes"),
        ]
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        if let Some(mut bystander) = self.bystander.take() {
            let _ = bystander.kill();
            let _ = bystander.wait();
        }
        let _ = sh(&format!(
            "for p in $(ip netns pids {0}); do kill -9 $p; done; ip netns del {0}",
            self.name
        ));
        for group in &self.groups {
            let _ = std::fs::write(group.join("freezer.state"), "THAWED");
            let until = Instant::now() + Duration::from_secs(5);
            while std::fs::remove_dir(group).is_err() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

fn fault(variant: &str, config: &str, grants: &[&str]) -> String {
    let grants: String = grants.iter().map(|g| format!("{g} = [\"r0\"]\n")).collect();
    format!(
        "[fault]\nvariant = \"{variant}\"\nvictims = [\"r0\"]\n\n[fault.config]\n{config}\n\n[fault.grant]\n{grants}"
    )
}

/// What clients saw of the requests that were under way while the fault was in force.
#[derive(Debug, Default)]
struct Seen {
    completed: usize,
    censored: usize,
    errors: Vec<String>,
    /// Longest time to the first token, milliseconds.
    slowest_ms: i64,
}

fn seen(requests: &[RequestRecord], from_ns: i64, to_ns: i64) -> Seen {
    let mut seen = Seen::default();
    for r in requests
        .iter()
        .filter(|r| r.intended_ns < to_ns && r.ended_ns > from_ns)
    {
        match r.outcome {
            Outcome::Completed => seen.completed += 1,
            Outcome::Censored => seen.censored += 1,
            Outcome::Errored => seen.errors.push(
                r.error_class
                    .map(|c| c.name().to_owned())
                    .unwrap_or_default(),
            ),
        }
        if let Some(first) = r.first_token_ns {
            seen.slowest_ms = seen.slowest_ms.max((first - r.intended_ns) / 1_000_000);
        }
    }
    seen
}

/// Runs a variant and checks what holds for all of them; gives what clients saw and the analysis.
fn run(test: &str, variant: &str, config: &str, grants: &[&str]) -> Option<(Seen, Value)> {
    let island = Island::new(test)?;
    let _turn = common::turn();
    let instrument = common::instrument();
    let before = island.limits();
    let file = instrument.write(
        "campaign.toml",
        island.campaign(&fault(variant, config, grants)),
    );
    let finished = instrument.run([
        "run".as_ref(),
        file.as_os_str(),
        "--out".as_ref(),
        instrument.path("results").as_os_str(),
    ]);
    instrument.expect_nothing_left(common::GONE_WITHIN);
    let results = common::only_results(&instrument);
    let analysis = common::analysis(&results, 1);
    assert_eq!(
        analysis["fault"]["proof"], "happened",
        "{}\n{}",
        analysis["fault"], finished.stderr
    );
    // Undone, by everything that can be seen.
    assert_eq!(island.rules(), "", "rules are left");
    assert_eq!(island.limits(), before, "limits are left");
    let undo = instrument.run(["undo".as_ref(), results.as_os_str()]);
    undo.expect_code(0);
    assert!(undo.stdout.contains("nothing is left"), "{}", undo.stdout);
    // The bystander in the same namespace lives, and was never started anew.
    let bystander = island.bystander.as_ref().unwrap().id();
    let stat = std::fs::read_to_string(format!("/proc/{bystander}/stat")).unwrap();
    assert!(stat.contains("(sleep) S"), "{stat}");
    let at = |effect: &str| {
        analysis["fault"]["effects"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|e| e[effect].as_i64())
            .collect::<Vec<_>>()
    };
    let fire = analysis["fire"]["actual_ns"]
        .as_i64()
        .unwrap_or_else(|| panic!("no fire: {}", analysis["fire"]));
    let until = at("undone_ns")
        .into_iter()
        .max()
        .unwrap_or(fire + 2_000_000_000);
    let seen = seen(&common::requests(&results, 1), fire, until);
    Some((seen, analysis))
}

#[test]
fn a_black_hole_is_silence() {
    let Some((seen, _)) = run(
        "a_black_hole",
        "black-hole",
        "duration_ms = 3000",
        &["network"],
    ) else {
        return;
    };
    assert!(seen.censored > 10, "{seen:?}");
    assert!(
        seen.errors.iter().all(|e| e == "connect"),
        "no open stream ended in an error: {seen:?}"
    );
}

#[test]
fn a_reset_is_told_to_clients() {
    let Some((seen, _)) = run(
        "a_reset",
        "connection-reset",
        "duration_ms = 2000",
        &["network"],
    ) else {
        return;
    };
    assert!(seen.errors.iter().any(|e| e == "reset"), "{seen:?}");
}

#[test]
fn lost_packets_slow_and_do_not_end() {
    let Some((seen, _)) = run(
        "lost_packets",
        "network-loss",
        "percent = 20.0\nduration_ms = 3000",
        &["network"],
    ) else {
        return;
    };
    assert!(seen.completed > 0, "{seen:?}");
    assert!(seen.slowest_ms > 100, "retransmissions take time: {seen:?}");
}

#[test]
fn a_throttled_processor_is_proven_by_its_group() {
    run(
        "a_throttled_processor",
        "cpu-throttle",
        "percent = 1\nduration_ms = 3000",
        &["resources"],
    );
}

#[test]
fn a_frozen_group_is_silence_and_goes_on() {
    let Some((seen, _)) = run(
        "a_frozen_group",
        "cgroup-freeze",
        "duration_ms = 2500",
        &["resources"],
    ) else {
        return;
    };
    assert!(seen.censored > 5, "{seen:?}");
}

#[test]
fn out_of_memory_ends_the_server_which_comes_back() {
    let Some((_, analysis)) = run(
        "out_of_memory",
        "memory-limit",
        "headroom_mib = 8\nduration_ms = 4000",
        &["resources"],
    ) else {
        return;
    };
    assert!(
        analysis["outage_s"].as_f64().is_some_and(|s| s > 0.1),
        "{}",
        analysis["outage_note"]
    );
}

#[test]
fn a_full_disk_is_full_and_then_not() {
    run(
        "a_full_disk",
        "disk-full",
        "path = \"/mnt\"\nleave_mib = 1\nduration_ms = 2000",
        &["resources"],
    );
}

#[test]
fn a_graceful_stop_is_a_restart() {
    let Some((_, analysis)) = run("a_graceful_stop", "graceful-stop", "", &["process"]) else {
        return;
    };
    assert!(analysis["outage_s"].as_f64().is_some(), "{analysis}");
}

#[test]
fn flapping_kills_as_often_as_asked() {
    let Some((_, analysis)) = run(
        "flapping",
        "flapping",
        "times = 2\npause_ms = 500",
        &["process"],
    ) else {
        return;
    };
    let exits = analysis["replicas"][0]["exits"].as_array().unwrap().len();
    assert!(exits >= 2, "{}", analysis["replicas"]);
}

/// Killed at any moment, the instrument leaves no rule a second after the fault's deadline, and no process.
#[test]
fn a_killed_instrument_leaves_no_rule() {
    let test = "a_killed_instrument";
    let times: u32 = std::env::var("BLACKSTART_KILLS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3);
    let Some(island) = Island::new(test) else {
        return;
    };
    let _turn = common::turn();
    let mut in_force = 0;
    for n in 0..times {
        let instrument = common::instrument();
        let text = island
            .campaign(&fault("black-hole", "duration_ms = 1500", &["network"]))
            .replace("baseline = \"4s\"", "baseline = \"2s\"")
            .replace("warmup = \"1s\"", "warmup = \"0s\"")
            .replace("fault_window = \"9s\"", "fault_window = \"4s\"");
        let file = instrument.write("campaign.toml", text);
        let mut running = instrument.start([
            "run".as_ref(),
            file.as_os_str(),
            "--out".as_ref(),
            instrument.path("results").as_os_str(),
        ]);
        running.wait_for_stderr("run 1/1");
        // Evenly over the time from the arming to the end of the fault.
        let wait = 5500 * u64::from(n * 7 % times * 2 + 1) / u64::from(times * 2);
        std::thread::sleep(Duration::from_millis(wait));
        let had = !island.rules().is_empty();
        in_force += u32::from(had);
        running.signal(Signal::KILL);
        let killed = Instant::now();
        // The fault lasts 1.5 s; whatever is left of that, and one second more.
        while !island.rules().is_empty() {
            assert!(
                killed.elapsed() < Duration::from_millis(2500),
                "kill {n}: {} is left",
                island.rules()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(running);
        instrument.expect_nothing_left(common::GONE_WITHIN);
        in_results(&instrument);
    }
    // A few kills may all come before a slow start is over; many cannot.
    assert!(in_force > 0 || times < 10, "no kill met the rules in force");
    let _ = writeln!(
        std::io::stderr(),
        "{test}: {times} kills, {in_force} while rules were in force, none left"
    );
}

/// Nothing is left to undo by the journal, either.
fn in_results(instrument: &Instrument) {
    let results: &Path = &instrument.path("results");
    if results.exists() {
        let list = instrument.run(["undo".as_ref(), results.as_os_str(), "--list".as_ref()]);
        list.expect_code(0);
    }
}
