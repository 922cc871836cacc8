//! Who listens on a TCP port of this host.

use std::collections::HashSet;
use std::fs;
use std::io::Read;

use crate::proc;

/// Most bytes of a socket table that are read.
const MAX_TABLE_BYTES: u64 = 16 << 20;
/// Most descriptors of one process that are looked at.
const MAX_FDS: usize = 65_536;
/// `TCP_LISTEN` in the kernel's table.
const LISTEN: &str = "0A";

/// A process that listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortHolder {
    /// Its pid.
    pub pid: u32,
    /// Its command line, bounded.
    pub title: String,
}

/// The process that listens on a port, over IPv4 or IPv6, where this user may see it. Of several
/// that share the socket (a server and its forked workers), the oldest.
pub fn port_holder(port: u16) -> Option<PortHolder> {
    let mut inodes = HashSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let mut text = String::new();
        if let Ok(file) = fs::File::open(table)
            && file.take(MAX_TABLE_BYTES).read_to_string(&mut text).is_ok()
        {
            inodes.extend(listening(&text, port));
        }
    }
    if inodes.is_empty() {
        return None;
    }
    let all = proc::snapshot().ok()?;
    all.iter()
        .filter(|s| s.lives() && holds(s.pid, &inodes))
        .min_by_key(|s| (s.start_time, s.pid))
        .map(|s| PortHolder {
            pid: s.pid,
            title: proc::title(s),
        })
}

/// Inodes of sockets that listen on the port.
fn listening(table: &str, port: u16) -> Vec<u64> {
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let (_, hex) = fields.get(1)?.rsplit_once(':')?;
            let here = u16::from_str_radix(hex, 16).ok()? == port && *fields.get(3)? == LISTEN;
            here.then(|| fields.get(9)?.parse().ok()).flatten()
        })
        .collect()
}

fn holds(pid: u32, inodes: &HashSet<u64>) -> bool {
    let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    fds.take(MAX_FDS).flatten().any(|fd| {
        fs::read_link(fd.path()).ok().is_some_and(|link| {
            link.to_str()
                .and_then(|l| l.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok())
                .is_some_and(|inode: u64| inodes.contains(&inode))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_named_as_holder() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let port = listener.local_addr().expect("address").port();
        let holder = port_holder(port).expect("holder");
        assert_eq!(holder.pid, std::process::id());
        drop(listener);
        assert_eq!(port_holder(port), None);
    }

    #[test]
    fn connections_are_not_listeners_and_broken_lines_are_skipped() {
        let table = "  sl  local_address rem_address st\n\
             0: 0100007F:1F90 00000000:0000 0A 0:0 0:0 0 0 0 111 1\n\
             1: 0100007F:1F90 0100007F:9999 01 0:0 0:0 0 0 0 222 1\n\
             2: garbage\n\n";
        assert_eq!(listening(table, 8080), [111]);
        assert_eq!(listening(table, 81), Vec::<u64>::new());
    }
}
