//! Tables of many checked runs, as Markdown.

use std::fmt::Write;

use crate::{RunCheck, SCENARIOS, Scenario, Settings};

/// Noise levels of the second table: share of requests that fail without any fault.
pub const NOISE_LEVELS: [f64; 6] = [0.0, 0.01, 0.02, 0.05, 0.1, 0.2];
/// Rates of the second table, requests per second.
pub const NOISE_RATES: [f64; 3] = [5.0, 20.0, 50.0];

/// Cells of the second table.
pub fn noise_cells() -> Vec<Settings> {
    NOISE_RATES
        .iter()
        .flat_map(|&rate_per_s| {
            NOISE_LEVELS
                .iter()
                .map(move |&noise| Settings { rate_per_s, noise })
        })
        .collect()
}

/// Sums of the runs of one scenario.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sum {
    /// Runs.
    pub runs: usize,
    /// Requests of all of them.
    pub requests: u64,
    /// Runs in which the analysis differs from the truth.
    pub failed: usize,
    /// Runs whose conclusion the method defines.
    pub certain: usize,
    /// Of these, runs whose conclusion is the planted one, the entry within one bucket.
    pub within: usize,
    /// Runs with a planted return of service in which a recovery was found.
    pub returned: usize,
    /// Of these, runs whose entry lies within one bucket of it.
    pub return_within: usize,
    /// Runs with exact counts.
    pub exact: usize,
    /// Recoveries that were not planted.
    pub false_recoveries: usize,
    /// Outages that were not planted.
    pub false_alarms: usize,
    /// Recoveries that were found.
    pub recovered: usize,
    /// Lag of the entry behind the true return: mean, smallest, largest, in seconds.
    pub lag_s: Option<(f64, f64, f64)>,
    /// Largest difference between requests in flight at the known and at the true fire.
    pub in_flight_off: i64,
}

impl Sum {
    /// Sums up runs.
    pub fn of<'a>(checks: impl IntoIterator<Item = &'a RunCheck>) -> Self {
        let mut sum = Self::default();
        let mut lags = 0.0;
        for check in checks {
            sum.runs += 1;
            sum.requests += check.requests;
            sum.failed += usize::from(!check.mismatches.is_empty());
            sum.certain += usize::from(check.certain);
            let strayed = check
                .mismatches
                .iter()
                .any(|m| m.what == "detector near the planted course");
            sum.within += usize::from(check.certain && !strayed);
            sum.exact += usize::from(check.counts_exact);
            sum.false_recoveries += usize::from(check.false_recovery);
            sum.false_alarms += usize::from(check.false_alarm);
            sum.recovered += usize::from(check.recovered);
            let off = check.in_flight_off.unwrap_or(0).abs();
            sum.in_flight_off = sum.in_flight_off.max(off);
            let (Some(lag), Some(buckets)) = (check.lag_s, check.return_buckets) else {
                continue;
            };
            sum.returned += 1;
            sum.return_within += usize::from(buckets.abs() <= 1);
            lags += lag;
            let (_, least, most) = sum.lag_s.unwrap_or((0.0, lag, lag));
            sum.lag_s = Some((lags / sum.returned as f64, least.min(lag), most.max(lag)));
        }
        sum
    }

    /// The lag for a table.
    fn lag(&self) -> String {
        self.lag_s.map_or_else(
            || "– | – | –".to_owned(),
            |(mean, least, most)| format!("{mean:+.2} | {least:+.2} | {most:+.2}"),
        )
    }

    /// A part of a whole for a table.
    fn part(part: usize, whole: usize) -> String {
        if whole == 0 {
            "–".to_owned()
        } else {
            format!("{part} of {whole}")
        }
    }
}

/// The table of scenarios, from the checks of any number of seeds.
pub fn scenarios(checks: &[RunCheck]) -> String {
    let mut out = String::from(
        "| scenario | runs | defined | found within one bucket | counts exact | false recoveries | false alarms | in flight off by | entry within one bucket of the return | lag behind the return: mean, s | min | max |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    let mut row = |name: &str, sum: &Sum| {
        // A write to a string cannot fail.
        let _ = writeln!(
            out,
            "| {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            sum.runs,
            sum.certain,
            Sum::part(sum.within, sum.certain),
            sum.exact,
            sum.false_recoveries,
            sum.false_alarms,
            sum.in_flight_off,
            Sum::part(sum.return_within, sum.returned),
            sum.lag(),
        );
    };
    for scenario in &SCENARIOS {
        let sum = Sum::of(of(checks, scenario));
        if sum.runs > 0 {
            row(&format!("`{}`", scenario.name), &sum);
        }
    }
    let all = Sum::of(checks);
    // Lags of different scenarios have no common mean.
    row("**all**", &Sum { lag_s: None, ..all });
    out
}

/// Which table a page shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// [`scenarios`]
    Scenarios,
    /// [`noise`]
    Noise,
}

/// A table in a page, between `<!-- simulated <kind>, <n> seeds -->` and `<!-- end -->`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Which table.
    pub kind: Kind,
    /// Seeds of each scenario (or cell), from 1 on.
    pub seeds: u64,
    /// Where the table stands, in bytes.
    pub place: std::ops::Range<usize>,
}

/// Every table of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    const BEGIN: &str = "<!-- simulated ";
    const END: &str = "<!-- end -->";
    let mut all = Vec::new();
    let mut from = 0;
    while let Some(begin) = page[from..].find(BEGIN).map(|at| from + at) {
        let head = &page[begin + BEGIN.len()..];
        from = begin + BEGIN.len();
        let Some((words, rest)) = head.split_once(" seeds -->\n") else {
            break;
        };
        let Some((kind, seeds)) = words.split_once(", ") else {
            continue;
        };
        let kind = match kind {
            "scenarios" => Kind::Scenarios,
            "noise" => Kind::Noise,
            _ => continue,
        };
        let start = page.len() - rest.len();
        if let (Ok(seeds), Some(length)) = (seeds.parse(), rest.find(END)) {
            all.push(Block {
                kind,
                seeds,
                place: start..start + length,
            });
            from = start + length;
        }
    }
    all
}

/// Checks of a scenario.
fn of<'a>(checks: &'a [RunCheck], scenario: &Scenario) -> impl Iterator<Item = &'a RunCheck> {
    let name = scenario.name;
    checks.iter().filter(move |c| c.scenario == name)
}

/// The table of noise: for each cell the checks of `crash` and of `control`.
pub fn noise(cells: &[(Settings, Vec<RunCheck>, Vec<RunCheck>)]) -> String {
    let mut out = String::from(
        "| requests/s | noise, % | outages | found recovered | defined | entry within one bucket of the return | lag: mean, s | min | max | controls | false alarms |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for (settings, crashes, controls) in cells {
        let (crash, control) = (Sum::of(crashes), Sum::of(controls));
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            settings.rate_per_s,
            settings.noise * 100.0,
            crash.runs,
            crash.recovered,
            crash.certain,
            Sum::part(crash.return_within, crash.returned),
            crash.lag(),
            control.runs,
            control.false_alarms,
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_a_page_are_found_in_their_places() {
        let page = "a\n<!-- simulated scenarios, 500 seeds -->\nold\n<!-- end -->\n\
                    <!-- simulated dances, 3 seeds -->\n<!-- simulated noise, 2 seeds -->\n<!-- end -->\n\
                    <!-- simulated noise, 7 seeds -->\nnever ends";
        let found = blocks(page);
        let shown: Vec<_> = found
            .iter()
            .map(|b| (b.kind, b.seeds, &page[b.place.clone()]))
            .collect();
        assert_eq!(
            shown,
            [(Kind::Scenarios, 500, "old\n"), (Kind::Noise, 2, "")]
        );
        assert_eq!(blocks("nothing here"), []);
    }

    #[test]
    fn lags_have_a_mean_over_the_runs_that_have_one() {
        let run = |lag_s: Option<f64>| RunCheck {
            scenario: "crash",
            seed: 1,
            requests: 10,
            mismatches: Vec::new(),
            certain: true,
            recovered: lag_s.is_some(),
            off_buckets: Some(0),
            return_buckets: lag_s.map(|s| s as i64),
            lag_s,
            counts_exact: true,
            false_recovery: false,
            false_alarm: false,
            in_flight_off: Some(-2),
        };
        let runs = [run(Some(-1.0)), run(None), run(Some(2.0))];
        let sum = Sum::of(&runs);
        assert_eq!(sum.lag_s, Some((0.5, -1.0, 2.0)));
        assert_eq!((sum.returned, sum.return_within), (2, 1));
        assert_eq!((sum.runs, sum.requests, sum.in_flight_off), (3, 30, 2));
    }
}
