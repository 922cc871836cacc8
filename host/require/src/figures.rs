//! The figures that a requirement can name, of each document that holds figures.
//!
//! The names are those of the documents themselves: `report.json`, `compare --json`, a load's
//! `summary.json`. They are taken from the types that these are written from, so that they cannot
//! part from them.

use std::collections::BTreeSet;

use blackstart_analyze::{
    CampaignComparison, CanaryFigures, ComparedEndpoint, DroppedRun, Endpoint, EndpointSide,
    LoadAsked, LoadFiguresBuilder, Summary, TurnFigures, Verdict, WindowName, compared_names,
    endpoint_names, summarize,
};
use blackstart_plan::SloThresholds;
use blackstart_record::{CensorKind, ErrorClass, pinned_histogram};
use blackstart_report::{CampaignReport, LoadReport, RunPart};
use serde_json::Value;

use crate::{Figure, Figures};

/// A figure of a run that is no endpoint of the campaign.
type OfRun = (&'static str, fn(&RunPart) -> Option<f64>);

/// Figures of single runs, summed up over the runs that count.
const OF_RUNS: [OfRun; 8] = [
    ("baseline_goodput", |r| {
        window(r, WindowName::Baseline)?.slo.goodput
    }),
    ("baseline_ttft_p95_ms", |r| {
        window(r, WindowName::Baseline)?.ttft_ms.p95
    }),
    ("baseline_e2e_p95_ms", |r| {
        window(r, WindowName::Baseline)?.e2e_ms.p95
    }),
    ("fault_window_goodput", |r| {
        window(r, WindowName::Fault)?.slo.goodput
    }),
    ("fault_window_ttft_p95_ms", |r| {
        window(r, WindowName::Fault)?.ttft_ms.p95
    }),
    ("fault_window_e2e_p95_ms", |r| {
        window(r, WindowName::Fault)?.e2e_ms.p95
    }),
    ("requests_errored", |r| {
        Some(r.analysis.counts.errored as f64)
    }),
    ("requests_censored", |r| {
        Some(r.analysis.counts.censored as f64)
    }),
];

/// Counts of a campaign.
const COUNTS: [&str; 4] = ["repetitions", "valid_runs", "invalid_runs", "missing_runs"];

fn window(run: &RunPart, name: WindowName) -> Option<&blackstart_analyze::WindowAnalysis> {
    run.analysis.windows.iter().find(|w| w.name == name)
}

/// Every name of [`campaign_figures`].
pub fn campaign_names() -> BTreeSet<String> {
    let statistics: Vec<String> = statistics(&summarize(&[], false, 0))
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    let mut names: BTreeSet<String> = COUNTS.iter().map(|name| (*name).to_owned()).collect();
    for endpoint in endpoint_names() {
        let more = [
            "km_median",
            "contributing_n",
            "dropped_runs",
            "censored_runs",
        ];
        let all = statistics.iter().map(String::as_str).chain(more);
        names.extend(all.map(|statistic| format!("{endpoint}.{statistic}")));
    }
    for (figure, _) in OF_RUNS {
        names.extend(
            statistics
                .iter()
                .map(|statistic| format!("{figure}.{statistic}")),
        );
    }
    names
}

/// The figures of a campaign's report: `ENDPOINT.STATISTIC`, and a few counts.
pub fn campaign_figures(report: &CampaignReport) -> Figures {
    let campaign = &report.campaign;
    let mut all = Figures::new();
    let counts = [
        campaign.repetitions,
        campaign.valid_runs,
        campaign.invalid_runs,
        campaign.missing_runs.len() as u64,
    ];
    for (name, count) in COUNTS.iter().zip(counts) {
        all.insert((*name).to_owned(), Figure::exact(count as f64));
    }
    for endpoint in campaign.endpoints.iter().chain(&campaign.segments) {
        of_endpoint(&mut all, endpoint);
    }
    let counted: Vec<&RunPart> = campaign
        .per_run
        .iter()
        .filter(|r| r.valid && !r.analysis.negative_control)
        .collect();
    for (name, pick) in OF_RUNS {
        let values: Vec<f64> = counted.iter().filter_map(|r| pick(r)).collect();
        // A run without the figure is no run in which it was good.
        let without = counted.iter().find(|r| pick(r).is_none());
        let why = match without {
            _ if counted.is_empty() => "no run counts".to_owned(),
            Some(run) => format!("run {} has none", run.analysis.run),
            None => "so few runs carry none".to_owned(),
        };
        let values = if without.is_some() { &[][..] } else { &values };
        let planned_df = campaign.repetitions.saturating_sub(1);
        for (statistic, value) in statistics(&summarize(values, true, planned_df)) {
            let figure = Figure::maybe(value, None, &why);
            all.insert(format!("{name}.{statistic}"), figure);
        }
    }
    // What no run of this campaign measured has a name all the same.
    for name in campaign_names() {
        let none = || Figure::NotMeasured("no run that counts measured it".to_owned());
        all.entry(name).or_insert_with(none);
    }
    all
}

/// Statistics that lie as near to the true ones as the values do: within the same ±.
const AS_CERTAIN_AS_VALUES: [&str; 4] = ["median", "mean", "min", "max"];

fn of_endpoint(all: &mut Figures, endpoint: &Endpoint) {
    let uncertainty = |statistic: &str| {
        AS_CERTAIN_AS_VALUES
            .contains(&statistic)
            .then_some(endpoint.uncertainty)
            .flatten()
    };
    let mut put = |statistic: &str, figure: Figure| {
        all.insert(format!("{}.{statistic}", endpoint.name), figure);
    };
    for (statistic, value) in statistics(&endpoint.summary) {
        let figure = match value {
            Some(value) => Figure::number(value, uncertainty(&statistic)),
            None => absent(endpoint),
        };
        put(&statistic, figure);
    }
    let km = match (endpoint.km_median, endpoint.censored.is_empty()) {
        (Some(km), _) => Figure::number(km, endpoint.uncertainty),
        (None, false) => absent(endpoint),
        (None, true) => Figure::NotMeasured("no run is censored; see median".to_owned()),
    };
    put("km_median", km);
    put(
        "contributing_n",
        Figure::exact(endpoint.contributing_n as f64),
    );
    put("dropped_runs", Figure::exact(endpoint.dropped_runs as f64));
    put(
        "censored_runs",
        Figure::exact(endpoint.censored.len() as f64),
    );
}

/// Why a statistic is absent.
fn absent(endpoint: &Endpoint) -> Figure {
    let dropped = |d: &DroppedRun| format!("run {}: {}", d.run, d.reason);
    if let Some(censored) = endpoint.censored.first() {
        return Figure::NotReached(format!(
            "run {}: at least {} {}",
            censored.run, censored.at_least, endpoint.unit
        ));
    }
    let why = endpoint
        .dropped_reason
        .clone()
        .or_else(|| endpoint.dropped.first().map(dropped))
        .unwrap_or_else(|| "so few runs carry none".to_owned());
    Figure::NotMeasured(why)
}

/// The numbers of a summary, by its own names.
fn statistics(summary: &Summary) -> Vec<(String, Option<f64>)> {
    // Every field that is a number or could be one; words, flags and lists are no figures.
    let Ok(Value::Object(fields)) = serde_json::to_value(summary) else {
        return Vec::new();
    };
    fields
        .into_iter()
        .filter(|(name, value)| name != "values" && (value.is_number() || value.is_null()))
        .map(|(name, value)| (name, value.as_f64()))
        .collect()
}

/// Keys of a load's summary that are absent or hold no figure. What a killed instrument left (`killed`)
/// is none either: such a load is invalid.
const LOAD_TEXTS: [&str; 6] = [
    "tls",
    "out",
    "read_lag_us.not_measured",
    "schema_version",
    "turns",
    "canary",
];

/// Every name of [`load_figures`].
pub fn load_names() -> BTreeSet<String> {
    let asked = LoadAsked {
        rate_per_s: None,
        length_ns: 0,
        slo: SloThresholds {
            ttft_ms: 0,
            e2e_ms: 0,
        },
        partial: false,
    };
    let mut figures = LoadFiguresBuilder::new(asked).finish(&pinned_histogram(), &[]);
    figures.turns = Some(TurnFigures::default());
    figures.canary = Some(CanaryFigures {
        ttft_ms: 0,
        itl_ms: 0,
        tokens: 0,
        streams: 0,
        completed: 0,
        ttft_dev_p50_us: None,
        ttft_dev_max_us: None,
        itl_dev_p50_us: None,
        itl_dev_p99_us: None,
        itl_dev_max_us: None,
        event_lag_p99_us: None,
        event_lag_max_us: None,
    });
    load_figures(&LoadReport::new(figures, None, None))
        .into_keys()
        .collect()
}

/// The figures of a load's summary, by their keys: `ttft_ms.p99`, `errored_by_class.connect`.
pub fn load_figures(report: &LoadReport) -> Figures {
    let mut all = Figures::new();
    // A class that did not occur is not listed; it was counted all the same.
    for class in ErrorClass::ALL {
        let name = format!("errored_by_class.{}", class.name());
        all.insert(name, Figure::exact(0.0));
    }
    for kind in CensorKind::ALL {
        let name = format!("censored_by_kind.{}", kind.name());
        all.insert(name, Figure::exact(0.0));
    }
    if let Ok(document) = serde_json::to_value(report) {
        flatten(&mut all, String::new(), &document);
    }
    all.retain(|name, _| !LOAD_TEXTS.contains(&name.as_str()) && !name.starts_with("killed"));
    all
}

/// Every number below a value, and every null, which is a number that was not measured.
fn flatten(all: &mut Figures, name: String, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let name = match name.as_str() {
                    "" => key.clone(),
                    name => format!("{name}.{key}"),
                };
                flatten(all, name, value);
            }
        }
        Value::Number(number) => {
            all.insert(name, Figure::maybe(number.as_f64(), None, ""));
        }
        Value::Null => {
            all.insert(name, Figure::NotMeasured(String::new()));
        }
        _ => {}
    }
}

/// Every name of [`comparison_figures`].
pub fn comparison_names() -> BTreeSet<String> {
    compared_names()
        .into_iter()
        .flat_map(|endpoint| {
            FIELDS
                .iter()
                .map(move |(field, _)| format!("{endpoint}.{field}"))
        })
        .collect()
}

/// A figure of a compared endpoint.
type OfComparison = (&'static str, fn(&ComparedEndpoint) -> Figure);

/// What a comparison says of an endpoint. Differences are B − A, and as uncertain as both sides.
const FIELDS: [OfComparison; 23] = [
    ("a.n", |e| {
        Figure::exact((e.a.values.len() + e.a.censored.len()) as f64)
    }),
    ("a.median", |e| of_side(e, &e.a, e.a.median)),
    ("a.mean", |e| of_side(e, &e.a, e.a.mean)),
    ("a.km_median", |e| of_side(e, &e.a, e.a.km_median)),
    ("a.sample_sd", |e| of_sd(&e.a)),
    ("b.n", |e| {
        Figure::exact((e.b.values.len() + e.b.censored.len()) as f64)
    }),
    ("b.median", |e| of_side(e, &e.b, e.b.median)),
    ("b.mean", |e| of_side(e, &e.b, e.b.mean)),
    ("b.km_median", |e| of_side(e, &e.b, e.b.km_median)),
    ("b.sample_sd", |e| of_sd(&e.b)),
    ("median_difference", |e| difference(e, e.median_difference)),
    ("mean_difference", |e| difference(e, e.mean_difference)),
    ("shift_interval.lo", |e| {
        difference(e, e.shift_interval.map(|i| i.lo))
    }),
    ("shift_interval.hi", |e| {
        difference(e, e.shift_interval.map(|i| i.hi))
    }),
    ("mean_interval.lo", |e| {
        difference(e, e.mean_interval.map(|i| i.lo))
    }),
    ("mean_interval.hi", |e| {
        difference(e, e.mean_interval.map(|i| i.hi))
    }),
    ("p", |e| test(e, e.p)),
    ("p_adjusted", |e| test(e, e.p_adjusted)),
    ("smallest_p", |e| test(e, e.smallest_p)),
    ("noise.spread", |e| difference_exact(e, e.noise.spread)),
    ("noise.floor", |e| difference_exact(e, e.noise.floor)),
    // The uncertainty is part of it already.
    ("carried_margin", |e| difference_exact(e, e.carried_margin)),
    ("verdict", |e| {
        Figure::Word(
            match e.verdict {
                Verdict::ALower => "a_lower",
                Verdict::BLower => "b_lower",
                Verdict::Equivalent { .. } => "equivalent",
                Verdict::CannotTell { .. } => "cannot_tell",
            }
            .to_owned(),
        )
    }),
];

fn of_side(e: &ComparedEndpoint, side: &EndpointSide, value: Option<f64>) -> Figure {
    match (value, side.censored.first(), side.dropped.first()) {
        (Some(value), ..) => Figure::number(value, side.uncertainty),
        (None, Some(censored), _) => Figure::NotReached(format!(
            "run {}: at least {} {}",
            censored.run, censored.at_least, e.unit
        )),
        (None, None, Some(dropped)) => {
            Figure::NotMeasured(format!("run {}: {}", dropped.run, dropped.reason))
        }
        _ => Figure::NotMeasured(String::new()),
    }
}

fn of_sd(side: &EndpointSide) -> Figure {
    Figure::maybe(side.sample_sd, None, "so few runs carry none")
}

fn difference(e: &ComparedEndpoint, value: Option<f64>) -> Figure {
    let why = e.interval_note.as_deref().unwrap_or_default();
    Figure::maybe(value, Some(e.noise.uncertainty), why)
}

fn difference_exact(e: &ComparedEndpoint, value: Option<f64>) -> Figure {
    Figure::maybe(value, None, e.interval_note.as_deref().unwrap_or_default())
}

fn test(e: &ComparedEndpoint, value: Option<f64>) -> Figure {
    Figure::maybe(value, None, e.p_note.as_deref().unwrap_or_default())
}

/// The figures of a comparison: `ENDPOINT.FIELD`; none where nothing was compared.
pub fn comparison_figures(comparison: &CampaignComparison) -> Figures {
    let mut all = Figures::new();
    for endpoint in &comparison.endpoints {
        for (field, figure) in FIELDS {
            all.insert(format!("{}.{field}", endpoint.name), figure(endpoint));
        }
    }
    all
}
