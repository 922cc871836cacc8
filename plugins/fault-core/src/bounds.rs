//! Bounds of configuration values: each stands once, for the JSON Schema and for the check.

use std::fmt::Display;

use blackstart_sdk::Problems;

/// Longest name of a process role.
pub(crate) const MAX_ROLE_BYTES: usize = 64;
/// Longest effect that the host undoes.
pub(crate) const MAX_DURATION_MS: u64 = 3_600_000;
/// Longest time that an orderly stop is given.
pub(crate) const MAX_GRACE_S: u32 = 600;
/// Least time between a victim's return and the next effect: the host looks a victim up before.
pub(crate) const MIN_PAUSE_MS: u64 = 100;
/// Smallest rate that still lets a packet through, bytes per second.
pub(crate) const MIN_RATE: u64 = 1_000;
/// Largest rate.
pub(crate) const MAX_RATE: u64 = 10_000_000_000;
/// Longest path.
pub(crate) const MAX_PATH_BYTES: usize = 4_096;

/// Notes a value outside its bounds.
pub(crate) fn within<T: PartialOrd + Copy + Display>(
    problems: &mut Problems,
    key: &str,
    value: T,
    (least, most): (T, T),
    unit: &str,
) {
    if !(least..=most).contains(&value) {
        problems.add(
            key,
            format!("{value}{unit} is out of range"),
            format!("a value from {least} to {most}"),
        );
    }
}

/// Notes a duration outside its bounds.
pub(crate) fn duration(problems: &mut Problems, key: &str, ms: u64) {
    within(problems, key, ms, (1, MAX_DURATION_MS), " ms");
}

/// Notes a name of a process that cannot be one.
pub(crate) fn process(problems: &mut Problems, process: &str) {
    if process.is_empty() || process.len() > MAX_ROLE_BYTES {
        problems.add(
            "process",
            format!("a process name of {} bytes", process.len()),
            format!("name a process of the target in 1 to {MAX_ROLE_BYTES} bytes, such as `api`"),
        );
    }
}
