//! Whether the client itself was fit to measure.

use blackstart_record::{ErrorClass, Event, EventKind, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::{mean, nearest_rank};
use crate::time::{NS_PER_S, micros};

/// Heartbeat of one load thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatSummary {
    /// Thread number.
    pub thread: u32,
    /// Ticks.
    pub ticks: u64,
    /// Lateness, p50, in microseconds.
    pub late_us_p50: f64,
    /// Lateness, p99.
    pub late_us_p99: f64,
    /// Lateness, largest.
    pub late_us_max: f64,
    /// Whether it ran under real-time priority.
    pub real_time: bool,
    /// Why not.
    pub real_time_note: Option<String>,
}

/// The client's validity figures (gate G2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientAnalysis {
    /// Requests that were dispatched.
    pub dispatched: u64,
    /// Requests that never were.
    pub undispatched: u64,
    /// Send skew (how late the client was ready to write), p50.
    pub skew_us_p50: Option<f64>,
    /// Send skew, p99.
    pub skew_us_p99: Option<f64>,
    /// Send skew, largest.
    pub skew_us_max: Option<f64>,
    /// Whole 5 s windows of host CPU that were measured.
    pub cpu_windows: u64,
    /// Host CPU over the busiest of them, percent.
    pub cpu_percent_max_5s: Option<f64>,
    /// Host CPU, mean over the samples, percent.
    pub cpu_percent_mean: Option<f64>,
    /// The instrument's own share, mean, percent.
    pub process_percent_mean: Option<f64>,
    /// Largest share stolen by the hypervisor in one sample, percent.
    pub steal_percent_max: Option<f64>,
    /// Why CPU figures are absent.
    pub cpu_note: Option<String>,
    /// Worst thread's heartbeat lateness, p99, in microseconds.
    pub stall_us_p99: Option<f64>,
    /// Worst thread's largest lateness.
    pub stall_us_max: Option<f64>,
    /// Why stall figures are absent.
    pub stall_note: Option<String>,
    /// Heartbeats by thread.
    pub heartbeats: Vec<HeartbeatSummary>,
    /// Requests whose reads delivered more than one content event at once.
    pub coalesced_requests: u64,
}

/// Length of a CPU window.
const CPU_WINDOW_NS: i64 = 5 * NS_PER_S;

/// Part of a window that samples must cover for it to count as whole: sampling intervals touch each
/// other up to the time that reading the counters takes.
const CPU_COVERAGE: f64 = 0.99;

/// The client's figures.
pub(crate) fn analyze(requests: &[RequestRecord], events: &[Event]) -> ClientAnalysis {
    let mut skews: Vec<i64> = requests.iter().filter_map(|r| r.send_skew_ns()).collect();
    skews.sort_unstable();
    let skew = |q: f64| nearest_rank(&skews, q).map(micros);
    let cpu: Vec<CpuSample> = events.iter().filter_map(CpuSample::of).collect();
    let (cpu_windows, cpu_percent_max_5s) = cpu_windows(&cpu);
    let column = |pick: fn(&CpuSample) -> f64| cpu.iter().map(pick).collect::<Vec<f64>>();
    let heartbeats: Vec<HeartbeatSummary> = events.iter().filter_map(heartbeat).collect();
    let worst = |pick: fn(&HeartbeatSummary) -> f64| heartbeats.iter().map(pick).reduce(f64::max);
    ClientAnalysis {
        dispatched: requests
            .iter()
            .filter(|r| r.dispatched_ns.is_some())
            .count() as u64,
        // A refused connection is the server's failure, not one of dispatching.
        undispatched: requests
            .iter()
            .filter(|r| r.error_class == Some(ErrorClass::Undispatched))
            .count() as u64,
        skew_us_p50: skew(0.5),
        skew_us_p99: skew(0.99),
        skew_us_max: skew(1.0),
        cpu_windows,
        cpu_percent_max_5s,
        cpu_percent_mean: mean(&column(|s| s.host_percent)),
        process_percent_mean: mean(&column(|s| s.process_percent)),
        steal_percent_max: column(|s| s.steal_percent).into_iter().reduce(f64::max),
        cpu_note: (cpu_windows == 0).then(|| {
            if cpu.is_empty() {
                "the client's CPU was not sampled".to_owned()
            } else {
                "no whole 5 s window of the client's CPU was measured".to_owned()
            }
        }),
        stall_us_p99: worst(|h| h.late_us_p99),
        stall_us_max: worst(|h| h.late_us_max),
        stall_note: heartbeats
            .is_empty()
            .then(|| "no load thread recorded a heartbeat".to_owned()),
        heartbeats,
        coalesced_requests: requests.iter().filter(|r| r.coalesced_reads > 0).count() as u64,
    }
}

fn heartbeat(event: &Event) -> Option<HeartbeatSummary> {
    match &event.kind {
        EventKind::Heartbeat {
            thread,
            ticks,
            late_ns_p50,
            late_ns_p99,
            late_ns_max,
            real_time,
        } if *ticks > 0 => Some(HeartbeatSummary {
            thread: *thread,
            ticks: *ticks,
            late_us_p50: micros(*late_ns_p50),
            late_us_p99: micros(*late_ns_p99),
            late_us_max: micros(*late_ns_max),
            real_time: real_time.is_ok(),
            real_time_note: real_time.clone().err(),
        }),
        _ => None,
    }
}

/// One sample of the client's CPU.
struct CpuSample {
    start_ns: i64,
    end_ns: i64,
    host_percent: f64,
    process_percent: f64,
    steal_percent: f64,
}

impl CpuSample {
    fn of(event: &Event) -> Option<Self> {
        match event.kind {
            EventKind::ClientCpu {
                interval_ns,
                host_percent,
                steal_percent,
                process_percent,
            } if interval_ns > 0 && host_percent.is_finite() => Some(Self {
                start_ns: event.at_ns - interval_ns,
                end_ns: event.at_ns,
                host_percent,
                process_percent,
                steal_percent,
            }),
            _ => None,
        }
    }
}

/// Number of whole 5 s windows, and the busiest one's host CPU. A window ends with each sample; its
/// figure is the mean over the samples in it, weighted by their overlap. Windows that samples do not
/// cover are not whole and are left out.
fn cpu_windows(samples: &[CpuSample]) -> (u64, Option<f64>) {
    let mut whole = 0;
    let mut busiest: Option<f64> = None;
    let mut from = 0;
    for (i, last) in samples.iter().enumerate() {
        let start_ns = last.end_ns - CPU_WINDOW_NS;
        while from < i && samples[from].end_ns <= start_ns {
            from += 1;
        }
        let (mut covered, mut weighted) = (0.0, 0.0);
        for s in &samples[from..=i] {
            let overlap = s.end_ns.min(last.end_ns) - s.start_ns.max(start_ns);
            if overlap > 0 {
                covered += overlap as f64;
                weighted += overlap as f64 * s.host_percent;
            }
        }
        if covered >= CPU_COVERAGE * CPU_WINDOW_NS as f64 {
            whole += 1;
            let percent = weighted / covered;
            busiest = Some(busiest.map_or(percent, |b| b.max(percent)));
        }
    }
    (whole, busiest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(end_s: i64, percent: f64) -> CpuSample {
        CpuSample {
            start_ns: (end_s - 1) * NS_PER_S,
            end_ns: end_s * NS_PER_S,
            host_percent: percent,
            process_percent: 0.0,
            steal_percent: 0.0,
        }
    }

    #[test]
    fn only_whole_windows_count() {
        let four: Vec<CpuSample> = (1..=4).map(|s| sample(s, 90.0)).collect();
        assert_eq!(cpu_windows(&four), (0, None));
        let five: Vec<CpuSample> = (1..=5).map(|s| sample(s, 10.0 * s as f64)).collect();
        assert_eq!(cpu_windows(&five), (1, Some(30.0)));
        let seven: Vec<CpuSample> = (1..=7).map(|s| sample(s, 10.0 * s as f64)).collect();
        assert_eq!(cpu_windows(&seven), (3, Some(50.0)));
    }

    #[test]
    fn a_gap_in_the_samples_is_no_window() {
        let gap: Vec<CpuSample> = [1, 2, 3, 5, 6, 7].map(|s| sample(s, 50.0)).into();
        assert_eq!(cpu_windows(&gap), (0, None));
    }
}
