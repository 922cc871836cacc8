//! What the configuration grants to one plugin, and the check of every single effect
//! against it. A component's imports are its request; this is the answer.

use crate::error::PluginError;
use crate::glob;
use crate::text::shown;
use crate::url::Url;

/// Most patterns in one grant.
pub const MAX_PATTERNS: usize = 64;
/// Longest name shown back in a refusal, in bytes.
const MAX_SHOWN: usize = 200;

/// Capabilities of one plugin. Nothing is granted by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants {
    replicas: [Vec<String>; REPLICA_GRANTS.len()],
    http: Vec<String>,
}

/// Capabilities that are granted by the names of replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplicaGrant {
    /// Signals to its processes.
    Process,
    /// Operations of the container engine on its container.
    Container,
    /// Packet rules in its network namespace.
    Network,
    /// Limits on what it may use.
    Resources,
}

/// All of them, in the order of their values.
pub const REPLICA_GRANTS: [ReplicaGrant; 4] = [
    ReplicaGrant::Process,
    ReplicaGrant::Container,
    ReplicaGrant::Network,
    ReplicaGrant::Resources,
];

impl ReplicaGrant {
    /// Its key in `[fault.grant]`.
    pub fn key(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Container => "container",
            Self::Network => "network",
            Self::Resources => "resources",
        }
    }

    /// What it allows, for people.
    fn allows(self) -> &'static str {
        match self {
            Self::Process => "signals to",
            Self::Container => "operations on the container of",
            Self::Network => "packet rules for",
            Self::Resources => "limits on",
        }
    }
}

impl Grants {
    /// Grants nothing.
    pub fn none() -> Grants {
        Grants::default()
    }

    /// Grants signals to processes of the replicas that match a glob of `process`, and
    /// HTTP requests to the URLs that match a pattern of `http`: scheme, host and port
    /// as written, the path (with its query) by glob.
    ///
    /// # Errors
    /// [`PluginError::BadGrant`] for a pattern that cannot mean anything.
    pub fn new(process: Vec<String>, http: Vec<String>) -> Result<Grants, PluginError> {
        Grants::default()
            .with_http(http)?
            .with(ReplicaGrant::Process, process)
    }

    /// Grants a capability over the replicas that match a glob, too.
    ///
    /// # Errors
    /// As [`Grants::new`].
    pub fn with(
        mut self,
        grant: ReplicaGrant,
        patterns: Vec<String>,
    ) -> Result<Grants, PluginError> {
        Self::check_patterns(grant.key(), &patterns)?;
        self.replicas[grant as usize] = patterns;
        Ok(self)
    }

    fn with_http(mut self, patterns: Vec<String>) -> Result<Grants, PluginError> {
        Self::check_patterns("http", &patterns)?;
        self.http = patterns;
        Ok(self)
    }

    fn check_patterns(key: &'static str, patterns: &[String]) -> Result<(), PluginError> {
        {
            for (i, pattern) in patterns.iter().enumerate() {
                let bad = |reason: &str| PluginError::BadGrant {
                    key,
                    pattern: masked(pattern),
                    reason: reason.to_owned(),
                };
                if i >= MAX_PATTERNS {
                    return Err(bad("there are too many patterns"));
                }
                if pattern.is_empty() {
                    return Err(bad("an empty pattern grants nothing"));
                }
                if pattern.len() > glob::MAX_PATTERN_BYTES {
                    return Err(bad("the pattern is too long"));
                }
                if key == "http" {
                    Url::parse(pattern).map_err(|why| bad(&format!("as a URL, {why}")))?;
                }
            }
        }
        Ok(())
    }

    /// Globs over replica names.
    pub fn replicas(&self, grant: ReplicaGrant) -> &[String] {
        &self.replicas[grant as usize]
    }

    /// Patterns over URLs.
    pub fn http(&self) -> &[String] {
        &self.http
    }

    /// True when the capability over some replica is granted.
    pub fn grants(&self, grant: ReplicaGrant) -> bool {
        !self.replicas(grant).is_empty()
    }

    /// True when requests to some URL are granted.
    pub fn grants_http(&self) -> bool {
        !self.http.is_empty()
    }

    /// May this be done to this replica? `Err` is a sentence for people.
    pub fn check(&self, grant: ReplicaGrant, replica: &str) -> Result<(), String> {
        let patterns = self.replicas(grant);
        if patterns.iter().any(|p| glob::matches(p, replica)) {
            return Ok(());
        }
        Err(format!(
            "{} replica `{}` are not granted: [fault.grant] {} = {}",
            grant.allows(),
            shown(replica, MAX_SHOWN),
            grant.key(),
            as_toml(patterns)
        ))
    }

    /// May this URL be requested? `Err` is a sentence for people.
    pub fn check_http(&self, url: &str) -> Result<(), String> {
        let asked = Url::parse(url)
            .map_err(|why| format!("the URL `{}` is not usable: {why}", masked(url)))?;
        let granted = self.http.iter().any(|pattern| {
            Url::parse(pattern).is_ok_and(|pattern| {
                pattern.same_server(&asked) && glob::matches(pattern.path, asked.path)
            })
        });
        if granted {
            return Ok(());
        }
        Err(format!(
            "requests to `{}` are not granted: [fault.grant] http = {}",
            masked(url),
            as_toml(&self.http)
        ))
    }
}

/// `text` for people, without what may be a password.
fn masked(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, after)) => format!("…@{}", shown(after, MAX_SHOWN)),
        None => shown(text, MAX_SHOWN),
    }
}

fn as_toml(patterns: &[String]) -> String {
    let quoted: Vec<String> = patterns
        .iter()
        .map(|p| format!("\"{}\"", shown(p, MAX_SHOWN)))
        .collect();
    format!("[{}]", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(pattern: &str) -> Grants {
        Grants::new(vec![], vec![pattern.into()]).unwrap()
    }

    #[test]
    fn replicas_are_matched_whole() {
        let grants = Grants::new(vec!["vllm-*".into()], vec![]).unwrap();
        assert_eq!(grants.check(ReplicaGrant::Process, "vllm-0"), Ok(()));
        let refused = grants
            .check(ReplicaGrant::Process, "other\u{1b}[1m")
            .unwrap_err();
        assert_eq!(
            refused,
            "signals to replica `other\\u{1b}[1m` are not granted: [fault.grant] process = [\"vllm-*\"]"
        );
        assert!(
            Grants::none()
                .check(ReplicaGrant::Process, "vllm-0")
                .is_err()
        );
    }

    #[test]
    fn urls_are_matched_by_server_exactly_and_by_path_glob() {
        let grants = http("http://127.0.0.1:9000/admin/*");
        assert!(
            grants
                .check_http("http://127.0.0.1:9000/admin/stall")
                .is_ok()
        );
        assert!(
            grants
                .check_http("http://127.0.0.1:9000/admin/a/b?c=d")
                .is_ok()
        );
        for url in [
            "https://127.0.0.1:9000/admin/stall",
            "http://127.0.0.1:9001/admin/stall",
            "http://127.0.0.1/admin/stall",
            "http://127.0.0.2:9000/admin/stall",
            "http://127.0.0.1.evil:9000/admin/stall",
            "http://127.0.0.1:9000/adminx",
            "http://127.0.0.1:9000/v1/chat",
            "http://127.0.0.1:9000/admin/../v1/chat",
            "http://127.0.0.1:9000/admin/%2e%2e/v1/chat",
            "http://127.0.0.1:9000/x?y=http://127.0.0.1:9000/admin/stall",
            "http://127.0.0.1:9000@evil/admin/stall",
        ] {
            assert!(grants.check_http(url).is_err(), "{url}");
        }
        assert!(
            http("http://h/reset")
                .check_http("http://h:80/reset")
                .is_ok()
        );
        assert!(
            http("http://h/reset")
                .check_http("http://h/reset?x")
                .is_err()
        );
    }

    #[test]
    fn a_password_in_a_refused_url_is_not_shown() {
        let pattern = Grants::new(vec![], vec!["http://me:secret@h/*".into()]).unwrap_err();
        assert!(!pattern.to_string().contains("secret"), "{pattern}");
        let refused = http("http://h/*")
            .check_http("http://me:secret@h/x")
            .unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
        assert!(refused.contains("user information"), "{refused}");
    }

    #[test]
    fn patterns_that_cannot_mean_anything_are_refused() {
        for pattern in [
            "",
            "127.0.0.1:9000/*",
            "http://*/x",
            "http://a@b/*",
            "http://a/../*",
        ] {
            let error = Grants::new(vec![], vec![pattern.into()]).unwrap_err();
            assert!(
                matches!(error, PluginError::BadGrant { key: "http", .. }),
                "{pattern}"
            );
            assert!(error.help().contains("http://127.0.0.1:9000/admin/*"));
        }
        assert!(Grants::new(vec![String::new()], vec![]).is_err());
        assert!(Grants::new(vec!["x".repeat(2000)], vec![]).is_err());
        assert!(Grants::new(vec!["x".into(); MAX_PATTERNS + 1], vec![]).is_err());
    }
}
