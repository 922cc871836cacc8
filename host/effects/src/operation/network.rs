//! Packet rules (nftables) and queueing disciplines (tc) in a replica's network namespace.
//!
//! A table of our own holds the rules. It is made seconds before the instant and does nothing
//! yet: each rule first asks whether a set holds the packet's protocol family (or the replica's
//! port), and the set is empty. The fault is one element added to it, with a timeout after which
//! *the kernel* removes it: the fault ends at its end even if every process of ours is killed.
//! Undoing removes the whole table.
//!
//! Queueing disciplines have no such timeout; those the instrument or the watchdog must remove.

use blackstart_clock::NS_PER_MS;

use super::namespace::{NetNs, Tool};
use super::{Bench, FactSource, NetworkRule, Task, Victim};
use crate::watchdog::Undo;

/// Largest delay.
pub(crate) const MAX_DELAY_US: u64 = 60_000_000;
/// Smallest rate that still lets a packet through, bytes per second.
pub(crate) const MIN_RATE: u64 = 1_000;
/// Largest rate.
pub(crate) const MAX_RATE: u64 = 10_000_000_000;
/// Begin of every table's name.
pub(crate) const TABLE_PREFIX: &str = "blackstart_";
/// A burst that lets one full packet through at any rate, and 50 ms of a large one.
const MIN_BURST: u64 = 3_000;
/// How long a packet may wait for a rate cap before it is dropped.
const QUEUE_MS: u64 = 400;

/// Which packets of a namespace are the replica's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// The namespace is the replica's own: all but those of the loopback device.
    Whole,
    /// It is the instrument's too: those of the replica's port.
    Port(u16),
}

fn scope(victim: &Victim<'_>, ns: &NetNs) -> Result<Scope, String> {
    let own = NetNs::own().map_err(|e| format!("own network namespace: {e}"))?;
    if own.inode() != ns.inode() {
        return Ok(Scope::Whole);
    }
    victim.port.map(Scope::Port).ok_or_else(|| {
        format!(
            "replica `{}` shares the instrument's network namespace, and its base_url names no \
             port to which the rule could be limited",
            victim.replica
        )
    })
}

fn namespace(victim: &Victim<'_>) -> Result<NetNs, String> {
    let ns = NetNs::of(victim.main.pid()).map_err(|e| {
        format!(
            "network namespace of replica `{}` (process {}): {e}",
            victim.replica,
            victim.main.pid()
        )
    })?;
    // The pid was still this process's when its namespace was opened.
    if victim.main.has_ended() {
        return Err(format!("process {} has just ended", victim.main.pid()));
    }
    Ok(ns)
}

pub(super) fn preflight(rule: NetworkRule, victim: &Victim<'_>) -> Result<(), String> {
    let ns = namespace(victim)?;
    let scope = scope(victim, &ns)?;
    match rule {
        NetworkRule::Delay(_) | NetworkRule::LimitSend(_) => {
            if scope != Scope::Whole {
                return Err(format!(
                    "a queue acts on a whole device, and replica `{}` shares the instrument's \
                     network namespace: it would hit others too; run the replica in a namespace \
                     of its own (a container)",
                    victim.replica
                ));
            }
            let kind = if matches!(rule, NetworkRule::Delay(_)) {
                "netem"
            } else {
                "tbf"
            };
            kernel_has(kind)?;
            for device in devices(&ns)? {
                let present = root_queue(&ns, &device)?;
                if !DEFAULT_QUEUES.contains(&present.as_str()) {
                    return Err(format!(
                        "device {device} of replica `{}` has a queue of its own already ({present}), \
                         which could not be put back as it was",
                        victim.replica
                    ));
                }
            }
            Ok(())
        }
        _ => {
            // The right to make a table, and to remove it, is tried out with an empty one.
            let table = format!("{TABLE_PREFIX}preflight_{}", std::process::id());
            ns.run(
                "nft",
                &["-f", "-"],
                &format!("add table inet {table}\ndelete table inet {table}\n"),
            )
            .map(|_| ())
            .map_err(|e| format!("packet rules cannot be set here: {e}"))
        }
    }
}

/// Queues that the kernel gives by itself, and gives again when ours is removed.
const DEFAULT_QUEUES: [&str; 6] = ["noqueue", "pfifo_fast", "pfifo", "fq_codel", "fq", "mq"];

/// Whether the kernel has a queueing discipline, tried in a namespace that ends with the trial.
fn kernel_has(kind: &str) -> Result<(), String> {
    let own = NetNs::own().map_err(|e| e.to_string())?;
    let settings: &[&str] = if kind == "netem" {
        &["delay", "1ms"]
    } else {
        &["rate", "1mbit", "burst", "10kb", "latency", "400ms"]
    };
    let trial: Vec<&str> = ["--net", "tc", "qdisc", "add", "dev", "lo", "root", kind]
        .iter()
        .chain(settings)
        .copied()
        .collect();
    own.run("unshare", &trial, "").map(|_| ()).map_err(|e| {
        format!(
            "not available: this host cannot use the queueing discipline `{kind}` ({e}); it needs \
             a kernel with it, and the right to make network namespaces"
        )
    })
}

/// Devices other than loopback.
fn devices(ns: &NetNs) -> Result<Vec<String>, String> {
    let text = ns.run("ip", &["-j", "link", "show"], "")?;
    let links: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|e| format!("`ip -j link`: {e}"))?;
    Ok(links
        .iter()
        .filter_map(|l| l["ifname"].as_str())
        .filter(|name| *name != "lo")
        .map(str::to_owned)
        .collect())
}

fn root_queue(ns: &NetNs, device: &str) -> Result<String, String> {
    let text = ns.run("tc", &["-j", "qdisc", "show", "dev", device], "")?;
    let queues: Vec<serde_json::Value> =
        serde_json::from_str(&text).map_err(|e| format!("`tc -j qdisc`: {e}"))?;
    let root = queues.iter().find(|q| q["root"] == true);
    Ok(root
        .and_then(|q| q["kind"].as_str())
        .unwrap_or("noqueue")
        .to_owned())
}

pub(super) fn prepare(
    rule: NetworkRule,
    bench: &Bench<'_>,
    victim: &Victim<'_>,
    duration_ns: i64,
    register: &mut dyn FnMut(Undo) -> Result<(), String>,
) -> Result<Box<dyn Task>, String> {
    let ns = namespace(victim)?;
    let scope = scope(victim, &ns)?;
    let name = format!("{TABLE_PREFIX}{}_{}", bench.namespace, victim.effect);
    match queue(rule) {
        Some(settings) => {
            if scope != Scope::Whole {
                return Err("a queue would act on others too".to_owned());
            }
            let devices = devices(&ns)?;
            let undo = Undo::Queues {
                namespace: ns.inode(),
                pid: victim.main.pid(),
                devices: devices.clone(),
                kind: settings.0.to_owned(),
            };
            register(undo.clone())?;
            let batch = devices
                .iter()
                .map(|d| format!("qdisc add dev {d} root {} {}\n", settings.0, settings.1))
                .collect();
            queues(bench, victim.replica, &ns, &devices);
            let tool = ns.tool("tc", &["-batch", "-"])?;
            Ok(Box::new(Fed {
                tool: Some(tool),
                input: batch,
                undo,
                facts: None,
            }))
        }
        None => {
            let undo = Undo::Table {
                namespace: ns.inode(),
                pid: victim.main.pid(),
                table: name.clone(),
            };
            register(undo.clone())?;
            ns.run("nft", &["-f", "-"], &rules(&name, scope, rule))?;
            let tool = ns.tool("nft", &["-f", "-"])?;
            let facts = counters(bench, victim.replica, &ns, &name);
            Ok(Box::new(Fed {
                tool: Some(tool),
                input: element(&name, scope, duration_ns),
                undo,
                facts: Some(facts),
            }))
        }
    }
}

/// A table whose rules ask an empty set first.
fn rules(table: &str, scope: Scope, rule: NetworkRule) -> String {
    let (kind, arriving, leaving) = match scope {
        Scope::Whole => (
            "nf_proto",
            r#"iifname != "lo" meta nfproto @cut"#,
            r#"oifname != "lo" meta nfproto @cut"#,
        ),
        Scope::Port(_) => ("inet_service", "tcp dport @cut", "tcp sport @cut"),
    };
    let dropped = "counter name dropped drop";
    let (receive, send) = match rule {
        NetworkRule::RejectWithReset => {
            // What arrives is answered, and the answer goes out. A reset that arrives passes, so
            // that the server's end of the connection ends, too.
            let verdict = "meta l4proto tcp tcp flags & rst == 0 \
                           counter name rejected reject with tcp reset";
            (Some(verdict.to_owned()), None)
        }
        NetworkRule::Lose(percent) => {
            // In millionths: nftables draws whole numbers.
            let share = (percent * 10_000.0).round().clamp(1.0, 1_000_000.0);
            let verdict = format!("numgen random mod 1000000 < {share:.0} {dropped}");
            (Some(verdict.clone()), Some(verdict))
        }
        NetworkRule::LimitReceive(rate) => {
            let burst = (rate / 20).max(MIN_BURST);
            let verdict =
                format!("limit rate over {rate} bytes/second burst {burst} bytes {dropped}");
            (Some(verdict), None)
        }
        _ => (Some(dropped.to_owned()), Some(dropped.to_owned())),
    };
    // Before connection tracking and every rule of others, so that none of them sees the packet.
    let hook = "priority -300; policy accept;";
    let mut text = format!(
        "add table inet {table}\n\
         add counter inet {table} dropped\n\
         add counter inet {table} rejected\n\
         add set inet {table} cut {{ type {kind}; flags timeout; }}\n\
         add chain inet {table} arriving {{ type filter hook input {hook} }}\n\
         add chain inet {table} leaving {{ type filter hook output {hook} }}\n"
    );
    if let Some(verdict) = receive {
        text.push_str(&format!(
            "add rule inet {table} arriving {arriving} {verdict}\n"
        ));
    }
    if let Some(verdict) = send {
        text.push_str(&format!(
            "add rule inet {table} leaving {leaving} {verdict}\n"
        ));
    }
    text
}

/// The element that makes the rules bite, and that the kernel removes by itself.
fn element(table: &str, scope: Scope, duration_ns: i64) -> String {
    let ms = (duration_ns / NS_PER_MS).max(1);
    let keys = match scope {
        Scope::Whole => format!("ipv4 timeout {ms}ms, ipv6 timeout {ms}ms"),
        Scope::Port(port) => format!("{port} timeout {ms}ms"),
    };
    format!("add element inet {table} cut {{ {keys} }}\n")
}

/// Queueing discipline and settings, for the rules that are one.
fn queue(rule: NetworkRule) -> Option<(&'static str, String)> {
    match rule {
        NetworkRule::Delay(us) => Some(("netem", format!("delay {us}us limit 100000"))),
        NetworkRule::LimitSend(rate) => {
            let burst = (rate / 20).max(MIN_BURST);
            Some((
                "tbf",
                format!("rate {}bit burst {burst} latency {QUEUE_MS}ms", rate * 8),
            ))
        }
        _ => None,
    }
}

/// Which queues stand at the replica's devices, for the proof.
fn queues(bench: &Bench<'_>, replica: &str, ns: &NetNs, devices: &[String]) {
    let (ns, devices) = (ns.clone(), devices.to_vec());
    bench.board.add(replica, move || {
        let kinds: Result<Vec<String>, String> = devices
            .iter()
            .map(|device| root_queue(&ns, device))
            .collect();
        vec![(
            "network.queue".to_owned(),
            kinds.ok().map(|kinds| kinds.join(" ")),
        )]
    });
}

/// What the rules have hit, for the proof.
fn counters(bench: &Bench<'_>, replica: &str, ns: &NetNs, table: &str) -> FactSource {
    let (ns, table) = (ns.clone(), table.to_owned());
    bench.board.add(replica, move || {
        let counts = read_counters(&ns, &table);
        ["dropped", "rejected"]
            .map(|name| {
                let count = counts.as_ref().ok().and_then(|c| {
                    c.iter()
                        .find(|(n, _)| n == name)
                        .map(|(_, packets)| packets.to_string())
                });
                (format!("network.{name}-packets"), count)
            })
            .to_vec()
    })
}

fn read_counters(ns: &NetNs, table: &str) -> Result<Vec<(String, u64)>, String> {
    let text = ns.run(
        "nft",
        &["-j", "list", "counters", "table", "inet", table],
        "",
    )?;
    let all: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| format!("`nft -j`: {e}"))?;
    let listed = all["nftables"].as_array().cloned().unwrap_or_default();
    Ok(listed
        .iter()
        .map(|entry| &entry["counter"])
        .filter_map(|c| Some((c["name"].as_str()?.to_owned(), c["packets"].as_u64()?)))
        .collect())
}

/// A tool that waits for what makes the fault.
struct Fed {
    tool: Option<Tool>,
    input: String,
    undo: Undo,
    facts: Option<FactSource>,
}

impl Task for Fed {
    fn fire(&mut self) -> Result<String, String> {
        let tool = self.tool.take().ok_or("it was fired before")?;
        tool.feed(&self.input).map(|_| String::new())
    }

    fn undo(&mut self) -> Result<String, String> {
        // The counters end with the table: they are read a last time.
        if let Some(facts) = &self.facts {
            facts.freeze();
        }
        self.undo.execute()
    }
}

/// What is seen of an effect whose network namespace the kernel has removed.
const GONE: &str = "gone with its network namespace";

/// The namespace in which something is to be removed, if a process still lives in it.
fn still_there(namespace: u64, pid: u32) -> Result<Option<NetNs>, String> {
    match NetNs::by_inode(namespace, pid) {
        Ok(ns) => Ok(Some(ns)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e.to_string()),
    }
}

/// Removes a table of ours.
pub(crate) fn remove_table(namespace: u64, pid: u32, table: &str) -> Result<String, String> {
    if !table.starts_with(TABLE_PREFIX) {
        return Err(format!("`{table}` is not a table of ours"));
    }
    let Some(ns) = still_there(namespace, pid)? else {
        return Ok(GONE.to_owned());
    };
    // `add` first: removing what is not there is not an error then.
    ns.run(
        "nft",
        &["-f", "-"],
        &format!("add table inet {table}\ndelete table inet {table}\n"),
    )?;
    let left = ns.run("nft", &["list", "tables"], "")?;
    if left
        .lines()
        .any(|l| l.split_whitespace().last() == Some(table))
    {
        return Err("the table is still there after its removal".to_owned());
    }
    Ok("no rule left".to_owned())
}

/// Removes queues of ours.
pub(crate) fn remove_queues(
    namespace: u64,
    pid: u32,
    devices: &[String],
    kind: &str,
) -> Result<String, String> {
    let Some(ns) = still_there(namespace, pid)? else {
        return Ok(GONE.to_owned());
    };
    for device in devices {
        // Another's queue in its place is left alone.
        if root_queue(&ns, device).is_ok_and(|present| present == kind) {
            ns.run("tc", &["qdisc", "del", "dev", device, "root"], "")?;
        }
        if root_queue(&ns, device).is_ok_and(|present| present == kind) {
            return Err(format!("device {device} still has its queue `{kind}`"));
        }
    }
    Ok("no queue left".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_ask_the_set_first_and_leave_loopback_alone() {
        for rule in [
            NetworkRule::DropAll,
            NetworkRule::RejectWithReset,
            NetworkRule::Lose(2.5),
            NetworkRule::LimitReceive(5_000),
        ] {
            let text = rules("blackstart_t_0", Scope::Whole, rule);
            for line in text.lines().filter(|l| l.starts_with("add rule")) {
                assert!(
                    line.contains(r#"ifname != "lo" meta nfproto @cut"#),
                    "{line}"
                );
            }
            let text = rules("blackstart_t_0", Scope::Port(8000), rule);
            for line in text.lines().filter(|l| l.starts_with("add rule")) {
                assert!(line.contains("port @cut"), "{line}");
            }
        }
        let lossy = rules("t", Scope::Whole, NetworkRule::Lose(2.5));
        assert!(lossy.contains("mod 1000000 < 25000"), "{lossy}");
        let port = element("t", Scope::Port(81), 1_500_000_000);
        assert_eq!(port, "add element inet t cut { 81 timeout 1500ms }\n");
    }

    #[test]
    fn a_table_of_another_is_never_removed() {
        assert!(remove_table(1, 1, "filter").is_err());
    }
}
