//! Effects on what surrounds a replica: real network namespaces, control groups and file systems.

mod support;

use std::io::{BufRead, BufReader, Read};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use blackstart_effects::{Action, Limit, NetworkRule, Operation};
use blackstart_plan::ReplicaPlan;
use support::*;

fn network(rule: NetworkRule) -> Action {
    Action::Operation {
        replica: "r0".to_owned(),
        operation: Operation::Network(rule),
    }
}

fn limit(limit: Limit) -> Action {
    Action::Operation {
        replica: "r0".to_owned(),
        operation: Operation::Resources(limit),
    }
}

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
        Err(format!("{script}: {}", text(&out.stderr)))
    }
}

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A network namespace joined to ours by a pair of devices, with a server in it.
struct Island {
    name: String,
    server: Child,
    address: String,
}

impl Island {
    /// `None` where this host gives none; said by name.
    fn new(test: &str) -> Option<Self> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("bst-{}-{n}", std::process::id());
        // Of a block for tests of networks (RFC 2544); the process and the test choose the subnet.
        let subnet = format!("198.18.{}", std::process::id() * 8 % 250 + n % 8);
        let net = n / 8 * 4;
        let (here, there) = (
            format!("{subnet}.{}", net + 1),
            format!("{subnet}.{}", net + 2),
        );
        let (out, inn) = (format!("bo{}", &name[4..]), format!("bi{}", &name[4..]));
        let made = sh(&format!(
            "nft --version >/dev/null && ip netns add {name} && \
             ip link add {out} type veth peer name {inn} netns {name} && \
             ip addr add {here}/30 dev {out} && ip link set {out} up && \
             ip -n {name} addr add {there}/30 dev {inn} && ip -n {name} link set {inn} up && \
             ip -n {name} link set lo up"
        ));
        if let Err(reason) = made {
            let _ = sh(&format!("ip netns del {name}"));
            lacks(test, &reason);
            return None;
        }
        let address = format!("{there}:18001");
        let mut server = Command::new("ip")
            .args(["netns", "exec", &name])
            .arg(program())
            .args(["ticks", &address])
            .stdout(Stdio::piped())
            .spawn()
            .expect("server");
        let mut ready = String::new();
        BufReader::new(server.stdout.take().expect("pipe"))
            .read_line(&mut ready)
            .expect("ready");
        Some(Self {
            name,
            server: Child(server),
            address,
        })
    }

    fn replica(&self) -> ReplicaPlan {
        ReplicaPlan {
            base_url: format!("http://{}", self.address),
            ..running("r0", self.server.pid())
        }
    }

    fn client(&self) -> TcpStream {
        let client = TcpStream::connect(&self.address).expect("connected");
        client
            .set_read_timeout(Some(Duration::from_millis(100)))
            .expect("timeout");
        client
    }

    /// Names of tables in it.
    fn tables(&self) -> String {
        sh(&format!("ip netns exec {} nft list tables", self.name)).expect("tables")
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        let _ = self.server.0.kill();
        let _ = sh(&format!("ip netns del {}", self.name));
    }
}

/// Whether anything arrives within a time.
fn arrives(client: &mut TcpStream, within: Duration) -> bool {
    let end = Instant::now() + within;
    let mut bytes = [0; 4096];
    while Instant::now() < end {
        if client.read(&mut bytes).is_ok_and(|n| n > 0) {
            return true;
        }
    }
    false
}

/// Takes what is there.
fn drain(client: &mut TcpStream) {
    let mut bytes = [0; 65536];
    client.set_nonblocking(true).expect("set");
    while client.read(&mut bytes).is_ok_and(|n| n > 0) {}
    client.set_nonblocking(false).expect("set");
}

#[test]
fn a_black_hole_is_silent_both_ways_and_heals_and_leaves_no_rule_and_hits_no_other() {
    let test = "a_black_hole";
    let (Some(island), Some(other)) = (Island::new(test), Island::new(test)) else {
        return;
    };
    let bench = Bench::new(vec![island.replica()]);
    let (mut client, mut bystander) = (island.client(), other.client());
    assert!(arrives(&mut client, PATIENCE));
    let at = bench.in_ms(500);
    let id = bench
        .timeline
        .schedule(network(NetworkRule::DropAll), at, Some(at + 1_500_000_000))
        .expect("scheduled");
    let started = bench.wait(id, "started");
    assert_eq!(started.action, "drop every packet of r0");
    assert!(started.before_ns.expect("before") >= at);
    drain(&mut client);
    drain(&mut bystander);
    assert!(!arrives(&mut client, Duration::from_millis(600)), "silence");
    assert!(arrives(&mut bystander, PATIENCE), "a bystander hears on");
    assert!(
        TcpStream::connect_timeout(
            &island.address.parse().expect("address"),
            Duration::from_millis(200)
        )
        .is_err(),
        "no new connection"
    );
    let dropped = bench.timeline.facts("r0");
    let dropped = dropped
        .iter()
        .find(|(n, _)| n == "network.dropped-packets")
        .and_then(|(_, v)| v.clone());
    assert!(dropped.is_some_and(|n| n != "0"), "counted");
    let undone = bench.wait(id, "undone");
    assert_eq!(undone.detail.as_deref(), Some("no rule left"));
    assert!(arrives(&mut client, PATIENCE), "the same connection heals");
    assert_eq!(island.tables(), "");
    assert_eq!(other.tables(), "");
    let last = bench.timeline.facts("r0");
    assert!(
        last.iter()
            .any(|(n, v)| n == "network.dropped-packets" && v.as_deref().is_some_and(|v| v != "0"))
    );
}

#[test]
fn a_reset_reaches_the_client_as_one() {
    let Some(island) = Island::new("a_reset") else {
        return;
    };
    let bench = Bench::new(vec![island.replica()]);
    let mut client = island.client();
    let at = bench.in_ms(300);
    let until_ns = Some(at + 700_000_000);
    let id = bench
        .timeline
        .schedule(network(NetworkRule::RejectWithReset), at, until_ns)
        .expect("scheduled");
    let mut bytes = [0; 4096];
    let end = Instant::now() + PATIENCE;
    let kind = loop {
        assert!(Instant::now() < end, "no reset");
        match client.read(&mut bytes) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => break e.kind(),
            Ok(0) => panic!("an orderly end"),
            Ok(_) => {}
        }
    };
    assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
    bench.wait(id, "undone");
    assert!(arrives(&mut island.client(), PATIENCE));
}

/// The kernel itself ends the rule's bite: nobody of ours is needed.
#[test]
fn the_kernel_ends_a_black_hole_when_everyone_of_ours_is_dead() {
    let Some(island) = Island::new("the_kernel_ends") else {
        return;
    };
    let dir = tempfile::tempdir().expect("folder");
    let mut client = island.client();
    let bench = Bench::new(vec![island.replica()]);
    let at = bench.in_ms(200);
    let until_ns = Some(at + 2_000_000_000);
    let id = bench
        .timeline
        .schedule(network(NetworkRule::DropAll), at, until_ns)
        .expect("scheduled");
    bench.wait(id, "started");
    // Neither the instrument's undo nor the watchdog's will come.
    let watchdog = bench.watchdog.pid();
    assert!(sh(&format!("kill -9 {watchdog}")).is_ok());
    std::mem::forget(bench);
    drain(&mut client);
    assert!(!arrives(&mut client, Duration::from_millis(500)));
    let _ = dir;
    assert!(arrives(&mut client, PATIENCE), "it heals all the same");
}

#[test]
fn a_rate_is_capped_by_a_queue_that_is_gone_afterwards() {
    let Some(island) = Island::new("a_rate") else {
        return;
    };
    let bench = Bench::new(vec![island.replica()]);
    let at = bench.in_ms(500);
    let until_ns = Some(at + 600_000_000);
    let asked = bench
        .timeline
        .schedule(network(NetworkRule::LimitSend(20_000)), at, until_ns);
    let id = match asked {
        Ok(id) => id,
        Err(e) if e.to_string().contains("not available") => {
            lacks("a_rate", &e.to_string());
            return;
        }
        Err(e) => panic!("{e}"),
    };
    bench.wait(id, "started");
    let shown = || sh(&format!("ip netns exec {} tc qdisc show", island.name)).expect("tc");
    assert!(shown().contains("tbf"), "{}", shown());
    bench.wait(id, "undone");
    assert!(!shown().contains("tbf"), "{}", shown());
    // Delay needs a queue that this kernel may not have: then it says so before anything is done.
    let at = bench.in_ms(500);
    if let Err(e) =
        bench
            .timeline
            .schedule(network(NetworkRule::Delay(1000)), at, Some(at + 1_000_000))
    {
        assert!(e.to_string().contains("not available"), "{e}");
    }
}

/// A process in a control group of its own.
struct Grouped {
    dir: PathBuf,
    child: Child,
}

impl Grouped {
    fn new(test: &str, controller: &str) -> Option<Self> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = PathBuf::from(format!(
            "/sys/fs/cgroup/{controller}/blackstart-test-{}-{n}",
            std::process::id()
        ));
        if let Err(e) = std::fs::create_dir(&dir) {
            lacks(test, &format!("{}: {e}", dir.display()));
            return None;
        }
        let mut child = Command::new(program())
            .arg("hold")
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        std::fs::write(dir.join("cgroup.procs"), child.id().to_string()).expect("joined");
        let mut ready = String::new();
        BufReader::new(child.stdout.take().expect("pipe"))
            .read_line(&mut ready)
            .expect("ready");
        Some(Self {
            dir,
            child: Child(child),
        })
    }

    fn read(&self, file: &str) -> String {
        let text = std::fs::read_to_string(self.dir.join(file)).expect("read");
        text.trim().to_owned()
    }
}

impl Drop for Grouped {
    fn drop(&mut self) {
        let _ = std::fs::write(self.dir.join("freezer.state"), "THAWED");
        let _ = self.child.0.kill();
        let _ = self.child.0.wait();
        until("group removed", || std::fs::remove_dir(&self.dir).is_ok());
    }
}

#[test]
fn a_frozen_group_stands_still_and_is_thawed() {
    let Some(group) = Grouped::new("a_frozen_group", "freezer") else {
        return;
    };
    let bench = Bench::new(vec![running("r0", group.child.pid())]);
    let at = bench.in_ms(300);
    let until_ns = Some(at + 600_000_000);
    let id = bench
        .timeline
        .schedule(limit(Limit::Freeze), at, until_ns)
        .expect("scheduled");
    bench.wait(id, "started");
    assert_eq!(group.read("freezer.state"), "FROZEN");
    let frozen = |value: &str| {
        let facts = bench.timeline.facts("r0");
        assert!(
            facts.contains(&("cgroup.frozen".to_owned(), Some(value.to_owned()))),
            "{facts:?}"
        );
    };
    frozen("1");
    bench.wait(id, "undone");
    until("thawed", || group.read("freezer.state") == "THAWED");
    frozen("0");
}

#[test]
fn processor_time_is_capped_and_given_back() {
    let Some(group) = Grouped::new("processor_time", "cpu") else {
        return;
    };
    let before = group.read("cpu.cfs_quota_us");
    let bench = Bench::new(vec![running("r0", group.child.pid())]);
    let at = bench.in_ms(300);
    let until_ns = Some(at + 800_000_000);
    let id = bench
        .timeline
        .schedule(limit(Limit::CpuPercent(10)), at, until_ns)
        .expect("scheduled");
    bench.wait(id, "started");
    assert_eq!(group.read("cpu.cfs_quota_us"), "10000");
    until("throttled", || {
        !group.read("cpu.stat").contains("nr_throttled 0")
    });
    bench.wait(id, "undone");
    assert_eq!(group.read("cpu.cfs_quota_us"), before);
}

#[test]
fn memory_that_runs_out_ends_the_victim_and_not_the_helper() {
    let Some(group) = Grouped::new("memory_that_runs_out", "memory") else {
        return;
    };
    let before = group.read("memory.limit_in_bytes");
    let bench = Bench::new(vec![running("r0", group.child.pid())]);
    let at = bench.in_ms(500);
    let until_ns = Some(at + 3_000_000_000);
    let id = bench
        .timeline
        .schedule(limit(Limit::MemoryHeadroom(8 << 20)), at, until_ns)
        .expect("scheduled");
    bench.wait(id, "started");
    until("ended by the kernel", || {
        matches!(state(group.child.pid()), 'Z' | '-')
    });
    let facts = bench.timeline.facts("r0");
    assert!(
        facts.contains(&("cgroup.oom-kills".to_owned(), Some("1".to_owned()))),
        "{facts:?}"
    );
    bench.wait(id, "undone");
    assert_eq!(group.read("memory.limit_in_bytes"), before);
    until("the helper has left", || {
        group.read("cgroup.procs").is_empty()
    });
}

#[test]
fn a_group_with_others_in_it_is_refused() {
    let Some(group) = Grouped::new("a_group_with_others", "freezer") else {
        return;
    };
    let other = Child::run(&["sleep", "1000"]);
    std::fs::write(group.dir.join("cgroup.procs"), other.pid().to_string()).expect("joined");
    let bench = Bench::new(vec![running("r0", group.child.pid())]);
    let at = bench.in_ms(300);
    let error = bench
        .timeline
        .schedule(limit(Limit::Freeze), at, Some(at + 1_000_000))
        .expect_err("refused");
    let text = error.to_string();
    assert!(text.contains("holds others too"), "{text}");
    assert!(text.contains("container"), "says how to mend it: {text}");
    assert_eq!(group.read("freezer.state"), "THAWED");
}

#[test]
fn a_disk_of_its_own_is_filled_and_emptied_and_a_shared_one_is_refused() {
    let test = "a_disk_of_its_own";
    let folder = tempfile::tempdir().expect("folder");
    let point = folder.path().display().to_string();
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c"])
        .arg(format!(
            "mount -t tmpfs -o size=8m blackstart {point} && echo ready && exec sleep 1000"
        ))
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare");
    let mut ready = String::new();
    BufReader::new(child.stdout.take().expect("pipe"))
        .read_line(&mut ready)
        .expect("read");
    let child = Child(child);
    if ready.trim() != "ready" {
        lacks(test, "no mount in a namespace of its own");
        return;
    }
    let bench = Bench::new(vec![running("r0", child.pid())]);
    let fill = |path: &str| {
        limit(Limit::FillDisk {
            path: path.to_owned(),
            leave: 1 << 20,
        })
    };
    let available = || -> u64 {
        let text = sh(&format!(
            "stat -f -c '%a %S' /proc/{}/root{point}",
            child.pid()
        ))
        .expect("stat");
        let (blocks, size) = text.split_once(' ').expect("two");
        blocks.parse::<u64>().expect("n") * size.parse::<u64>().expect("n")
    };
    let empty = available();
    let at = bench.in_ms(300);
    let id = bench
        .timeline
        .schedule(fill(&point), at, Some(at + 600_000_000))
        .expect("scheduled");
    bench.wait(id, "started");
    assert!(available() <= 1 << 20 && available() > 0, "{}", available());
    bench.wait(id, "undone");
    assert_eq!(available(), empty);
    let at = bench.in_ms(300);
    let error = bench
        .timeline
        .schedule(fill("/tmp"), at, Some(at + 1_000_000))
        .expect_err("refused");
    assert!(error.to_string().contains("others on this host"), "{error}");
}

#[test]
fn an_effect_without_an_end_or_sense_is_refused() {
    let victim = Child::run(&["sleep", "1000"]);
    let bench = Bench::new(vec![running("r0", victim.pid())]);
    for (action, until_ns, says) in [
        (network(NetworkRule::DropAll), None, "needs an end"),
        (network(NetworkRule::Lose(f64::NAN)), Some(9), "not one"),
        (network(NetworkRule::LimitSend(1)), Some(9), "at least"),
        (limit(Limit::CpuPercent(0)), Some(9), "at least"),
    ] {
        let text = bench
            .timeline
            .schedule(action, 0, until_ns)
            .expect_err(says)
            .to_string();
        assert!(text.contains(says), "{text:?} lacks {says:?}");
    }
    // It shares our own namespace: only its port may be touched, and its queue not at all.
    let at = bench.in_ms(300);
    let text = bench
        .timeline
        .schedule(network(NetworkRule::LimitSend(10_000)), at, Some(at + 9))
        .expect_err("shared")
        .to_string();
    assert!(text.contains("hit others too"), "{text}");
}
