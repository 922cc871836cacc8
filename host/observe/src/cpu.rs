//! CPU use of the client's host and of the instrument, from `/proc`.
//!
//! Both figures are shares of all cores over the interval, in the kernel's own ticks, so that no
//! tick length and no core count enters. "Busy" is everything but idle and I/O wait; time stolen by
//! the hypervisor counts as busy, because the client could not use it, and is shown apart as well.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use blackstart_clock::{NS_PER_S, RunClock, RunNs};
use blackstart_record::EventKind;
use tokio::sync::watch;

use crate::observers::{at, stopped};
use crate::signal::EventSink;

/// Sampling interval.
pub(crate) const INTERVAL_NS: i64 = NS_PER_S;
/// Most bytes read of a `/proc` file; the wanted line is the first one.
const MAX_READ_BYTES: u64 = 16 * 1024;

/// Where the counters are read.
#[derive(Debug, Clone)]
pub struct CpuSource {
    /// `/proc/stat`
    pub host: PathBuf,
    /// `/proc/self/stat`
    pub process: PathBuf,
}

impl Default for CpuSource {
    fn default() -> Self {
        Self {
            host: PathBuf::from("/proc/stat"),
            process: PathBuf::from("/proc/self/stat"),
        }
    }
}

/// Counters at one instant, in kernel ticks since boot over all cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuReading {
    /// `user nice system idle iowait irq softirq steal` of the host. Fields that an old kernel does
    /// not have are 0. Guest time is part of user time and not counted again.
    pub host: [u64; 8],
    /// User and system ticks of the process with its threads.
    pub process: u64,
}

/// Shares of all cores over an interval, percent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuShares {
    /// Busy share of the host, stolen time included.
    pub host_percent: f64,
    /// Share stolen by the hypervisor.
    pub steal_percent: f64,
    /// Share of the process.
    pub process_percent: f64,
}

/// The `cpu` line of `/proc/stat`; `None` if the text does not begin with one.
pub fn parse_host_cpu(text: &str) -> Option<[u64; 8]> {
    let mut fields = text.lines().next()?.split_ascii_whitespace();
    if fields.next()? != "cpu" {
        return None;
    }
    let mut out = [0; 8];
    let mut seen = 0;
    for (slot, field) in out.iter_mut().zip(fields) {
        *slot = field.parse().ok()?;
        seen += 1;
    }
    // user, nice, system and idle have always been there.
    (seen >= 4).then_some(out)
}

/// User plus system ticks of `/proc/<pid>/stat`; `None` if the text is not of that form.
pub fn parse_process_cpu(text: &str) -> Option<u64> {
    // The title is in parentheses and may hold blanks and parentheses itself.
    let after_title = &text[text.rfind(')')? + 1..];
    let mut fields = after_title.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// Shares between two readings; `None` if no tick lies between them.
pub fn cpu_shares(before: &CpuReading, after: &CpuReading) -> Option<CpuShares> {
    // Idle and I/O wait are known to step back a little on some kernels.
    let mut delta = [0_u64; 8];
    for (slot, (a, b)) in delta.iter_mut().zip(after.host.iter().zip(before.host)) {
        *slot = a.saturating_sub(b);
    }
    let total = delta.iter().try_fold(0_u64, |sum, d| sum.checked_add(*d))?;
    if total == 0 {
        return None;
    }
    let percent = |ticks: u64| ticks as f64 * 100.0 / total as f64;
    Some(CpuShares {
        host_percent: percent(total - delta[3] - delta[4]),
        steal_percent: percent(delta[7]),
        process_percent: percent(after.process.saturating_sub(before.process)),
    })
}

impl CpuSource {
    /// Reads both counters.
    ///
    /// # Errors
    /// A text that names the file that cannot be read or understood.
    pub fn read(&self) -> Result<CpuReading, String> {
        Ok(CpuReading {
            host: self.parsed(&self.host, parse_host_cpu)?,
            process: self.parsed(&self.process, parse_process_cpu)?,
        })
    }

    fn parsed<T>(&self, path: &Path, parse: fn(&str) -> Option<T>) -> Result<T, String> {
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|f| f.take(MAX_READ_BYTES).read_to_end(&mut bytes))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        parse(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| format!("{}: not in the form of this kernel file", path.display()))
    }

    /// Samples until stopped; returns the number of samples. Where the counters cannot be read
    /// there is one note and no sample.
    pub(crate) async fn run(
        self,
        clock: RunClock,
        sink: EventSink,
        mut stop: watch::Receiver<bool>,
    ) -> u64 {
        let mut samples = 0;
        let mut said = false;
        let mut last: Option<(RunNs, CpuReading)> = None;
        let mut next_ns = clock.now();
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return samples,
                () = at(clock, next_ns) => {}
            }
            let now = clock.now();
            match self.read() {
                Ok(reading) => {
                    if let Some((then, before)) = last
                        && let Some(shares) = cpu_shares(&before, &reading)
                    {
                        samples += 1;
                        sink.emit(
                            now,
                            EventKind::ClientCpu {
                                interval_ns: now - then,
                                host_percent: shares.host_percent,
                                steal_percent: shares.steal_percent,
                                process_percent: shares.process_percent,
                            },
                        );
                    }
                    last = Some((now, reading));
                }
                Err(why) => {
                    last = None;
                    if !std::mem::replace(&mut said, true) {
                        let text = format!("the client's CPU use is not measured: {why}");
                        sink.emit(now, EventKind::Note { text });
                    }
                }
            }
            next_ns += INTERVAL_NS;
            next_ns += (clock.now() - next_ns).max(0) / INTERVAL_NS * INTERVAL_NS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_lines() {
        let text = "cpu  10 1 5 80 4 0 2 3 9 9\ncpu0 1 1 1 1\n";
        assert_eq!(parse_host_cpu(text), Some([10, 1, 5, 80, 4, 0, 2, 3]));
        assert_eq!(
            parse_host_cpu("cpu 1 2 3 4"),
            Some([1, 2, 3, 4, 0, 0, 0, 0])
        );
        for bad in [
            "",
            "cpu",
            "cpu 1 2 3",
            "cpu0 1 2 3 4",
            "cpu 1 2 x 4",
            "cpu -1 2 3 4",
        ] {
            assert_eq!(parse_host_cpu(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn process_lines() {
        let text = "42 (a) b (c)) S 1 1 1 0 -1 4194560 100 0 0 0 17 25 3 4 20 0 8 0 99";
        assert_eq!(parse_process_cpu(text), Some(42));
        for bad in ["", "42 (x", "42 (x) S 1 2 3", ")"] {
            assert_eq!(parse_process_cpu(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn shares_by_hand() {
        let before = CpuReading {
            host: [100, 0, 50, 1000, 10, 0, 0, 5],
            process: 40,
        };
        let after = CpuReading {
            host: [130, 0, 60, 1150, 10, 0, 0, 15],
            process: 65,
        };
        // 30 user + 10 system + 150 idle + 10 stolen = 200 ticks.
        let shares = cpu_shares(&before, &after).unwrap();
        assert_eq!(shares.host_percent, 25.0);
        assert_eq!(shares.steal_percent, 5.0);
        assert_eq!(shares.process_percent, 12.5);
        assert_eq!(cpu_shares(&after, &after), None);
    }

    #[test]
    fn counters_that_step_back_are_no_negative_share() {
        let before = CpuReading {
            host: [100, 0, 0, 1000, 10, 0, 0, 0],
            process: 9,
        };
        let after = CpuReading {
            host: [110, 0, 0, 1000, 8, 0, 0, 0],
            process: 8,
        };
        let shares = cpu_shares(&before, &after).unwrap();
        assert_eq!((shares.host_percent, shares.process_percent), (100.0, 0.0));
    }

    #[test]
    fn this_machine_is_readable() {
        let reading = CpuSource::default().read().unwrap();
        assert!(reading.host.iter().sum::<u64>() > 0);
    }
}
