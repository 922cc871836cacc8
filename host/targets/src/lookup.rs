//! Checks before a launch, so that what the operator can mend is said before anything starts.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};

use blackstart_plan::ProcessPlan;

use crate::error::TargetError;
use crate::holder::port_holder;

/// Host and port of `http://host:port[/…]`; the port defaults to 80.
pub(crate) fn host_port(base_url: &str) -> Option<(String, u16)> {
    let rest = base_url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    if authority.contains('@') {
        return None;
    }
    let (host, port) = match authority.rsplit_once(':') {
        // A colon inside brackets belongs to an IPv6 address.
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, 80),
    };
    let host = host
        .strip_prefix('[')
        .map_or(Some(host), |h| h.strip_suffix(']'))?;
    (!host.is_empty()).then(|| (host.to_owned(), port))
}

/// Whether the command, its directory and its port can be used.
pub(crate) fn before_launch(
    replica: &str,
    base_url: &str,
    plan: &ProcessPlan,
) -> Result<(), TargetError> {
    let cwd = plan.cwd.as_ref().map(PathBuf::from);
    if let Some(cwd) = &cwd
        && !cwd.is_dir()
    {
        return Err(TargetError::CwdMissing {
            replica: replica.to_owned(),
            cwd: cwd.clone(),
        });
    }
    command(replica, plan, cwd.as_deref())?;
    port(replica, base_url)
}

fn command(replica: &str, plan: &ProcessPlan, cwd: Option<&Path>) -> Result<(), TargetError> {
    let Some(command) = plan.command.first().filter(|c| !c.is_empty()) else {
        return Err(TargetError::EmptyCommand {
            replica: replica.to_owned(),
        });
    };
    let not_found = |searched: String| TargetError::CommandNotFound {
        replica: replica.to_owned(),
        command: command.clone(),
        searched,
    };
    if command.contains('/') {
        let path = cwd.map_or_else(|| PathBuf::from(command), |cwd| cwd.join(command));
        return if !path.exists() {
            Err(not_found(format!(
                "`{}`",
                path.parent().unwrap_or(Path::new("/")).display()
            )))
        } else if executable(&path) {
            Ok(())
        } else {
            Err(TargetError::NotExecutable {
                replica: replica.to_owned(),
                path,
            })
        };
    }
    let search = plan
        .env
        .get("PATH")
        .map(Into::into)
        .or_else(|| std::env::var_os("PATH"))
        .unwrap_or_default();
    let mut there = None;
    for directory in std::env::split_paths(&search) {
        let path = directory.join(command);
        if path.is_file() {
            if executable(&path) {
                return Ok(());
            }
            there.get_or_insert(path);
        }
    }
    Err(match there {
        Some(path) => TargetError::NotExecutable {
            replica: replica.to_owned(),
            path,
        },
        None => not_found("PATH".to_owned()),
    })
}

fn executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Tries to listen where the server will. Only what is certainly taken is refused: an address
/// that is not this host's is the server's own business.
fn port(replica: &str, base_url: &str) -> Result<(), TargetError> {
    let Some((host, port)) = host_port(base_url) else {
        return Err(TargetError::BadAddress {
            replica: replica.to_owned(),
            base_url: base_url.to_owned(),
        });
    };
    let Ok(addresses) = (host.as_str(), port).to_socket_addrs() else {
        return Ok(());
    };
    for address in addresses {
        if let Err(e) = TcpListener::bind(address)
            && e.kind() == std::io::ErrorKind::AddrInUse
        {
            return Err(TargetError::PortInUse {
                replica: replica.to_owned(),
                port,
                base_url: base_url.to_owned(),
                holder: port_holder(port).map_or_else(
                    || {
                        "a process that cannot be named (another user's, or another namespace's)"
                            .to_owned()
                    },
                    |h| format!("pid {} ({})", h.pid, h.title),
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let some = |h: &str, p| Some((h.to_owned(), p));
        assert_eq!(host_port("http://127.0.0.1:8000"), some("127.0.0.1", 8000));
        assert_eq!(host_port("http://h:1/v1?x#y"), some("h", 1));
        assert_eq!(host_port("http://h"), some("h", 80));
        assert_eq!(host_port("http://[::1]:99/"), some("::1", 99));
        assert_eq!(host_port("http://[::1]"), some("::1", 80));
        for bad in [
            "https://h:1",
            "h:1",
            "http://",
            "http://:80",
            "http://h:99999",
            "http://u:p@h:1",
            "http://[::1:80",
        ] {
            assert_eq!(host_port(bad), None, "{bad}");
        }
    }
}
