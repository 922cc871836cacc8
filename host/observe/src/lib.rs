//! Watching a run from outside: probes, metrics, canary endpoint, host telemetry.
