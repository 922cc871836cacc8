//! Plain types of the matcher world.

use crate::types::{Field, Measure, PluginInfo};

/// A boundary of a server's life that a log line marks.
#[derive(Debug, Clone, PartialEq)]
pub struct Boundary {
    /// Index of the line within the session, from 0.
    pub line: u64,
    /// What it marks (`engine_ready`, `failure.cuda_oom`, ...).
    pub key: String,
    /// The printing process as the log names it.
    pub process: Option<String>,
    /// The line's own clock, as `wit/matcher.wit` spells it.
    pub stamp: Option<String>,
    /// Figures in the line.
    pub measures: Vec<Measure>,
    /// Texts in the line.
    pub fields: Vec<Field>,
}

/// A boundary key that a matcher can give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundaryInfo {
    /// The key.
    pub key: String,
    /// What it means.
    pub meaning: String,
    /// Printed once per rank.
    pub per_rank: bool,
}

/// What a matcher says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatcherInfo {
    /// Name, version, summary and configuration schema.
    pub plugin: PluginInfo,
    /// Server product (`vllm`).
    pub product: String,
    /// Semver requirement on the product's release.
    pub versions: String,
    /// Keys it can give.
    pub boundaries: Vec<BoundaryInfo>,
}

/// Does a log belong to a matcher?
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    /// Release read from the banner.
    pub version: Option<String>,
    /// 0 = no, 100 = certain.
    pub confidence: u8,
}
