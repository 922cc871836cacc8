//! Stamps: those that a container runtime puts before a line, and the line's own clock.

use blackstart_record::StampSource;
use jiff::Timestamp;
use jiff::civil::DateTime;

/// A wrapper stamp taken off a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrapper {
    /// Nanoseconds since the Unix epoch.
    pub unix_ns: i64,
    /// Whose clock: docker or kubernetes.
    pub source: StampSource,
    /// Resolution: the last digit that was printed.
    pub resolution_ns: i64,
}

/// Takes an RFC 3339 stamp off the start of a line: `docker logs --timestamps` and
/// `kubectl logs --timestamps` (stamp, space), or the kubelet's own files (stamp, stream, flag).
pub fn strip_wrapper(line: &str) -> (Option<Wrapper>, &str) {
    /// Longest RFC 3339 stamp with nanoseconds and an offset.
    const LONGEST: usize = 36;
    let bytes = line.as_bytes();
    // Cheap refusal before any parsing: most lines have no stamp.
    if bytes.len() < 20 || !bytes[0].is_ascii_digit() || bytes[4] != b'-' || bytes[10] != b'T' {
        return (None, line);
    }
    let Some(space) = memchr::memchr(b' ', &bytes[..bytes.len().min(LONGEST)]) else {
        return (None, line);
    };
    let text = &line[..space];
    let Ok(stamp) = text.parse::<Timestamp>() else {
        return (None, line);
    };
    let Ok(unix_ns) = i64::try_from(stamp.as_nanosecond()) else {
        return (None, line);
    };
    let rest = &line[space + 1..];
    let (source, rest) = ["stdout F ", "stderr F ", "stdout P ", "stderr P "]
        .iter()
        .find_map(|flag| rest.strip_prefix(flag))
        .map_or((StampSource::Docker, rest), |rest| {
            (StampSource::Kubernetes, rest)
        });
    let wrapper = Wrapper {
        unix_ns,
        source,
        resolution_ns: resolution_ns(text),
    };
    (Some(wrapper), rest)
}

/// Nanoseconds of the last digit printed in a stamp's fraction of a second.
fn resolution_ns(stamp: &str) -> i64 {
    let fraction = stamp
        .split_once('.')
        .map_or(0, |(_, f)| f.bytes().take_while(u8::is_ascii_digit).count());
    10_i64.pow(9 - fraction.min(9) as u32)
}

/// Resolves the lines' own stamps, which have no zone and often no year.
///
/// The zone is the caller's word. Without a year, each stamp is placed after the one before it
/// (December to January is a new year), and the last one is placed at or before the reference.
#[derive(Debug, Clone)]
pub struct LineClock {
    /// Latest instant that the log can hold, in nanoseconds since the Unix epoch.
    reference_unix_ns: i64,
    /// Offset of the log's clock from UTC, in seconds.
    offset_s: i64,
    years_passed: i16,
    last_month: Option<i8>,
}

/// A line's own stamp, not yet placed in a year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OwnStamp {
    /// With a year.
    Dated(DateTime, i64),
    /// Without one; years that have passed since the log's first stamp.
    Yearless {
        month: i8,
        day: i8,
        ns_of_day: i64,
        years_passed: i16,
    },
}

impl LineClock {
    /// A clock for one log.
    pub fn new(reference_unix_ns: i64, offset_s: i64) -> Self {
        Self {
            reference_unix_ns,
            offset_s,
            years_passed: 0,
            last_month: None,
        }
    }

    /// Reads a stamp as the matcher gives it.
    pub(crate) fn read(&mut self, stamp: &str) -> Option<OwnStamp> {
        if let Some(rest) = stamp.strip_prefix("--") {
            let (date, time) = rest.split_once('T')?;
            let (month, day) = date.split_once('-')?;
            let (month, day): (i8, i8) = (month.parse().ok()?, day.parse().ok()?);
            let time: jiff::civil::Time = time.parse().ok()?;
            if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
                return None;
            }
            // A step back of more than half a year is a new year; a step forward of more than that
            // is a straggler from the old one (two processes whose lines crossed at midnight).
            let step = self.last_month.map_or(0, |last| month - last);
            let mut years_passed = self.years_passed;
            if step < -6 {
                self.years_passed += 1;
                years_passed = self.years_passed;
                self.last_month = Some(month);
            } else if step > 6 && self.years_passed > 0 {
                years_passed -= 1;
            } else {
                self.last_month = Some(month);
            }
            return Some(OwnStamp::Yearless {
                month,
                day,
                ns_of_day: i64::from(time.hour()) * 3_600_000_000_000
                    + i64::from(time.minute()) * 60_000_000_000
                    + i64::from(time.second()) * 1_000_000_000
                    + i64::from(time.subsec_nanosecond()),
                years_passed,
            });
        }
        let dated: DateTime = stamp.parse().ok()?;
        Some(OwnStamp::Dated(dated, resolution_ns(stamp)))
    }

    /// Places stamps in time, once the whole log has been read: nanoseconds since the Unix epoch
    /// and resolution.
    pub(crate) fn place(&self, stamps: &[Option<OwnStamp>]) -> Vec<Option<(i64, i64)>> {
        let reference = Timestamp::from_nanosecond(i128::from(self.reference_unix_ns)).ok();
        let reference_year = reference.map_or(1970, |t| {
            t.to_zoned_datetime(jiff::tz::TimeZone::UTC).year()
        });
        let last = stamps.iter().rev().flatten().find_map(|s| match s {
            OwnStamp::Yearless { .. } => self.unix_ns(s, reference_year, self.years_passed),
            OwnStamp::Dated(..) => None,
        });
        // A day of slack: the zone is an assumption, and clocks differ.
        const SLACK_NS: i64 = 86_400_000_000_000;
        let final_year = match last {
            Some(ns) if ns > self.reference_unix_ns.saturating_add(SLACK_NS) => reference_year - 1,
            _ => reference_year,
        };
        stamps
            .iter()
            .map(|stamp| {
                let stamp = stamp.as_ref()?;
                let resolution = match stamp {
                    OwnStamp::Dated(_, resolution) => *resolution,
                    OwnStamp::Yearless { .. } => 1_000_000_000,
                };
                Some((
                    self.unix_ns(stamp, final_year, self.years_passed)?,
                    resolution,
                ))
            })
            .collect()
    }

    fn unix_ns(&self, stamp: &OwnStamp, final_year: i16, all_years: i16) -> Option<i64> {
        let local = match stamp {
            OwnStamp::Dated(dated, _) => *dated,
            OwnStamp::Yearless {
                month,
                day,
                ns_of_day,
                years_passed,
            } => {
                let year = final_year - (all_years - years_passed);
                let midnight = jiff::civil::Date::new(year, *month, *day)
                    .ok()?
                    .at(0, 0, 0, 0);
                midnight
                    .checked_add(jiff::SignedDuration::from_nanos(*ns_of_day))
                    .ok()?
            }
        };
        let utc = local
            .to_zoned_datetime(jiff::tz::TimeZone::UTC)
            .ok()?
            .timestamp();
        i64::try_from(utc.as_nanosecond())
            .ok()?
            .checked_sub(self.offset_s.checked_mul(1_000_000_000)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unix(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_nanosecond() as i64
    }

    #[test]
    fn docker_stamps_come_off_to_the_nanosecond() {
        let (wrapper, rest) =
            strip_wrapper("2026-10-02T16:15:43.861550185Z (APIServer pid=1) INFO x");
        let wrapper = wrapper.unwrap();
        assert_eq!(wrapper.unix_ns, unix("2026-10-02T16:15:43.861550185Z"));
        assert_eq!(
            (wrapper.source, wrapper.resolution_ns),
            (StampSource::Docker, 1)
        );
        assert_eq!(rest, "(APIServer pid=1) INFO x");
    }

    #[test]
    fn kubelet_files_and_offsets() {
        let (wrapper, rest) = strip_wrapper("2026-10-02T18:15:43.5+02:00 stderr F INFO x");
        let wrapper = wrapper.unwrap();
        assert_eq!(wrapper.unix_ns, unix("2026-10-02T16:15:43.5Z"));
        assert_eq!(
            (wrapper.source, wrapper.resolution_ns),
            (StampSource::Kubernetes, 100_000_000)
        );
        assert_eq!(rest, "INFO x");
    }

    #[test]
    fn what_is_no_stamp_stays() {
        for line in [
            "",
            "INFO 10-02 16:15:43 [x.py:1] y",
            "2026-13-45T99:99:99Z x",
            "2026-10-02T16:15:43Zx",
            "2026-10-02Tä16:15:43Z x",
        ] {
            assert_eq!(strip_wrapper(line), (None, line));
        }
    }

    #[test]
    fn the_new_year_and_the_reference_place_yearless_stamps() {
        let mut clock = LineClock::new(unix("2027-03-01T00:00:00Z"), 0);
        let stamps: Vec<_> = [
            "--12-31T23:59:58",
            "--01-01T00:00:03",
            "--12-31T23:59:59",
            "--01-01T00:00:04",
        ]
        .iter()
        .map(|s| clock.read(s))
        .collect();
        // The third line crossed the second (two processes): not another year back and forth.
        let placed: Vec<i64> = clock
            .place(&stamps)
            .into_iter()
            .map(|p| p.unwrap().0)
            .collect();
        assert_eq!(placed[0], unix("2026-12-31T23:59:58Z"));
        assert_eq!(placed[1], unix("2027-01-01T00:00:03Z"));
        assert_eq!(placed[3], unix("2027-01-01T00:00:04Z"));
    }

    #[test]
    fn a_log_from_last_year_is_not_placed_in_the_future() {
        let mut clock = LineClock::new(unix("2027-03-01T00:00:00Z"), 0);
        let stamps = [clock.read("--11-30T10:00:00")];
        assert_eq!(
            clock.place(&stamps)[0],
            Some((unix("2026-11-30T10:00:00Z"), 1_000_000_000))
        );
    }

    #[test]
    fn dated_stamps_use_the_zone_given() {
        let mut clock = LineClock::new(0, 2 * 3600);
        let stamps = [clock.read("2027-01-01T00:00:02.000")];
        assert_eq!(
            clock.place(&stamps)[0],
            Some((unix("2026-12-31T22:00:02Z"), 1_000_000))
        );
    }
}
