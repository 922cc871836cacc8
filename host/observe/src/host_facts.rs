//! Facts about the client's host, for the manifest.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::excerpt;

/// Most bytes read of one file. `/proc/cpuinfo` of a large host has several hundred kilobytes.
const MAX_READ_BYTES: u64 = 4 * 1024 * 1024;

/// Facts about this host: kernel, CPU model, cores, memory, clock source, frequency governor,
/// hypervisor. A fact that cannot be read is absent. The host's name is left out unless asked for,
/// because reports are published.
pub fn host_facts(with_hostname: bool) -> BTreeMap<String, String> {
    host_facts_under(Path::new("/"), with_hostname)
}

/// The same from the files below another root.
pub fn host_facts_under(root: &Path, with_hostname: bool) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::new();
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value.map(|v| excerpt(&v)).filter(|v| !v.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    let line = |path: &str| read(root, path).map(|t| t.lines().next().unwrap_or("").to_owned());

    put("os", Some(std::env::consts::OS.to_owned()));
    put("arch", Some(std::env::consts::ARCH.to_owned()));
    put("kernel", line("proc/sys/kernel/osrelease"));
    put("kernel_build", line("proc/sys/kernel/version"));
    put(
        "distribution",
        read(root, "etc/os-release").and_then(|t| {
            let value = t.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="))?;
            Some(value.trim_matches(['"', '\'']).to_owned())
        }),
    );
    if let Some(text) = read(root, "proc/cpuinfo") {
        let cpu = CpuInfo::parse(&text);
        put("cpu_model", cpu.model);
        put(
            "cpu_cores_online",
            (cpu.online > 0).then(|| cpu.online.to_string()),
        );
        put("cpu_cores_physical", cpu.physical.map(|n| n.to_string()));
        put(
            "hypervisor",
            cpu.hypervisor
                .map(|yes| if yes { "yes" } else { "no" }.to_owned()),
        );
    }
    put(
        "memory_bytes",
        read(root, "proc/meminfo")
            .and_then(|t| memory_bytes(&t))
            .map(|b| b.to_string()),
    );
    put(
        "clock_source",
        line("sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    put(
        "cpu_governor",
        line("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    );
    if with_hostname {
        put("hostname", line("proc/sys/kernel/hostname"));
    }
    facts
}

fn read(root: &Path, path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(root.join(path))
        .and_then(|f| f.take(MAX_READ_BYTES).read_to_end(&mut bytes))
        .ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `MemTotal` of `/proc/meminfo`.
fn memory_bytes(text: &str) -> Option<u64> {
    let value = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let mut fields = value.split_ascii_whitespace();
    let amount: u64 = fields.next()?.parse().ok()?;
    (fields.next() == Some("kB")).then(|| amount.checked_mul(1024))?
}

/// What `/proc/cpuinfo` says.
#[derive(Debug, Default, PartialEq, Eq)]
struct CpuInfo {
    model: Option<String>,
    online: usize,
    /// `None` where the file does not name sockets and cores.
    physical: Option<usize>,
    /// `None` where the file lists no flags.
    hypervisor: Option<bool>,
}

impl CpuInfo {
    fn parse(text: &str) -> Self {
        let mut out = Self::default();
        let mut cores = BTreeSet::new();
        let mut socket = "";
        for (key, value) in text.lines().filter_map(|l| l.split_once(':')) {
            let value = value.trim();
            match key.trim() {
                "processor" => out.online += 1,
                // `Model`/`Hardware` name the board on small ARM machines.
                "model name" | "Model" | "cpu model" if out.model.is_none() => {
                    out.model = Some(value.to_owned());
                }
                "physical id" => socket = value,
                "core id" => {
                    cores.insert((socket, value));
                }
                "flags" if out.hypervisor.is_none() => {
                    out.hypervisor = Some(value.split(' ').any(|f| f == "hypervisor"));
                }
                _ => {}
            }
        }
        out.physical = (!cores.is_empty()).then_some(cores.len());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/sys/kernel/osrelease", "6.1.0-x\n"),
            ("proc/sys/kernel/hostname", "secret-host\n"),
            (
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Some CPU @ 2GHz\nphysical id : 0\ncore id\t: 0\nflags : fpu hypervisor\n\n\
                 processor\t: 1\nmodel name\t: Some CPU @ 2GHz\nphysical id : 0\ncore id\t: 0\nflags : fpu hypervisor\n",
            ),
            (
                "proc/meminfo",
                "MemTotal:       24000000 kB\nMemFree: 1 kB\n",
            ),
            ("etc/os-release", "ID=x\nPRETTY_NAME=\"Some OS 12\"\n"),
        ] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn facts_of_a_tree() {
        let dir = tree();
        let facts = host_facts_under(dir.path(), false);
        assert_eq!(facts["kernel"], "6.1.0-x");
        assert_eq!(facts["cpu_model"], "Some CPU @ 2GHz");
        assert_eq!(facts["cpu_cores_online"], "2");
        assert_eq!(facts["cpu_cores_physical"], "1");
        assert_eq!(facts["hypervisor"], "yes");
        assert_eq!(facts["memory_bytes"], "24576000000");
        assert_eq!(facts["distribution"], "Some OS 12");
        assert!(!facts.contains_key("clock_source"), "it was not there");
        assert!(!facts.values().any(|v| v.contains("secret-host")));
        assert_eq!(
            host_facts_under(dir.path(), true)["hostname"],
            "secret-host"
        );
    }

    #[test]
    fn odd_files() {
        assert_eq!(memory_bytes("MemTotal: x kB"), None);
        assert_eq!(memory_bytes("MemTotal: 5 MB"), None);
        assert_eq!(memory_bytes("MemTotal: 18446744073709551615 kB"), None);
        assert_eq!(CpuInfo::parse("::\n:"), CpuInfo::default());
        let here = host_facts(false);
        assert!(here.contains_key("kernel") && here.contains_key("memory_bytes"));
    }
}
