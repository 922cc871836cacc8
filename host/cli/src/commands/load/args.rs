//! Options of `blackstart load`, and the plan that they make.

use std::io::Read;
use std::path::PathBuf;

use blackstart_config::Duration;
use blackstart_load::{DataSet, MAX_DATA_SET_BYTES, Prompts, Secret};
use blackstart_plan::{
    Arrivals, Endpoint, LOAD_SPEC_SCHEMA_VERSION, LoadPlan, LoadSpec, MAX_SCHEDULED_REQUESTS, Pace,
    PromptSpec, RateProfile, RateSegment, Schedule, ShareSpec, SloThresholds, schedule,
};
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

use crate::exit::{Exit, Failure};

/// `load`
#[derive(Debug, Args)]
#[command(after_help = "\
Open loop (--rate): requests are sent at times fixed beforehand, whatever the server does, and all\n\
latencies count from these times. With --concurrency besides it, at most so many are under way, and\n\
the wait for admission counts.\n\
Closed loop (--concurrency alone): so many requests are always under way. The server sets the pace,\n\
so its stalls slow the load down: for capacity, not for what a stall costs.")]
pub struct LoadArgs {
    /// Address of the server, http://host:port
    #[arg(long, value_name = "URL")]
    url: String,
    /// Model name to send [default: the first one that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Requests per second: 20, a ramp 5..50, or equal steps 10,20,40
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Most requests under way; without --rate or a trace, a closed loop of so many
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,
    /// How long requests are started [default: 30s; a trace's own length]
    #[arg(long, value_name = "TIME", value_parser = Duration::parse)]
    duration: Option<Duration>,
    /// Most requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Arrival process of an open loop: poisson, constant, gamma:BURSTINESS (1 is Poisson, less is
    /// burstier), or trace (the timestamps of the data set)
    #[arg(long, value_name = "PROCESS", default_value = "poisson", value_parser = parse_arrivals)]
    arrivals: ArrivalsArg,
    /// Seed of arrivals and prompts
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// API to call
    #[arg(long, value_enum, default_value = "chat")]
    endpoint: EndpointArg,
    /// Tokens of a completion, at most
    #[arg(long, value_name = "N", default_value_t = 128)]
    max_tokens: u32,
    /// Ask for exactly so many tokens (vLLM and its like; hosted services refuse it)
    #[arg(long)]
    ignore_eos: bool,
    /// Words of a synthetic prompt; the first ones are unique to the request
    #[arg(long, value_name = "N", default_value_t = 128)]
    prompt_words: u32,
    /// Words that all synthetic prompts begin with: what a prefix cache can serve
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        conflicts_with = "prompt_file"
    )]
    shared_prefix_words: u32,
    /// A text to send, or a data set (.jsonl): one object a line with `prompt` or `messages`, and
    /// optionally `max_tokens` and `timestamp` (seconds)
    #[arg(long, value_name = "FILE")]
    pub(super) prompt_file: Option<PathBuf>,
    /// A request without an end after so long is censored
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = Duration::parse)]
    timeout: Duration,
    /// A request for which no byte came for so long is censored
    #[arg(long, value_name = "TIME", value_parser = Duration::parse)]
    idle_timeout: Option<Duration>,
    /// A request without content after so long is censored
    #[arg(long, value_name = "TIME", value_parser = Duration::parse)]
    first_token_timeout: Option<Duration>,
    /// Extra request header (may be given several times)
    // Read by us and not by the parser of options, whose errors show the value.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Environment variable that holds the API key
    #[arg(long, value_name = "NAME", conflicts_with = "api_key_file")]
    api_key_env: Option<String>,
    /// File that holds the API key
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// A request is good if its first token comes within this time …
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Duration::parse)]
    slo_ttft: Duration,
    /// … and its end within this one
    #[arg(long, value_name = "TIME", default_value = "14s", value_parser = Duration::parse)]
    slo_e2e: Duration,
    /// Send only part I of N of the schedule (from 0), beside other machines that send the others;
    /// `merge` joins the results
    #[arg(long, value_name = "I/N", value_parser = parse_share, requires = "start_at")]
    shard: Option<ShareSpec>,
    /// When the load starts: 2026-01-31T12:00:00Z, or seconds since 1970
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    pub(super) start_at: Option<UnixNs>,
    /// Load threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: u32,
    /// Do not ask for real-time priority
    #[arg(long)]
    no_real_time: bool,
    /// Do not run the canary (a stream of known timing that bounds what the client adds)
    #[arg(long)]
    pub(super) no_canary: bool,
    /// Folder for the records of every request; it must not exist or be empty
    #[arg(long, value_name = "DIR")]
    pub(super) out: Option<PathBuf>,
    /// Keep each gap between content events too, as a row of gaps.parquet
    #[arg(long, requires = "out")]
    every_gap: bool,
    /// Print the summary as one JSON object on stdout
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EndpointArg {
    Chat,
    Completions,
}

/// Rates as they are written.
#[derive(Debug, Clone, PartialEq)]
enum Rate {
    /// Equal steps; one of them is a constant rate.
    Steps(Vec<f64>),
    /// From one rate to another.
    Ramp(f64, f64),
}

impl Rate {
    fn profile(&self, length_ns: i64) -> RateProfile {
        let segments = match self {
            Self::Ramp(from_per_s, to_per_s) => vec![RateSegment {
                length_ns,
                from_per_s: *from_per_s,
                to_per_s: *to_per_s,
            }],
            Self::Steps(rates) => {
                let steps = i64::try_from(rates.len()).unwrap_or(i64::MAX);
                (0..steps)
                    .zip(rates)
                    .map(|(k, rate)| RateSegment {
                        // The steps' lengths differ by a nanosecond at most, and add up.
                        length_ns: length_ns * (k + 1) / steps - length_ns * k / steps,
                        from_per_s: *rate,
                        to_per_s: *rate,
                    })
                    .collect()
            }
        };
        RateProfile { segments }
    }
}

/// How long requests are started, unless said otherwise.
const DEFAULT_LENGTH_NS: i64 = 30_000_000_000;
fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Most steps of a rate on the command line.
const MAX_STEPS: usize = 100;

fn parse_rate(text: &str) -> Result<Rate, String> {
    let number = |text: &str| {
        let rate: f64 = text.trim().parse().map_err(|_| {
            format!("`{text}` is no number; write 20, a ramp 5..50, or steps 10,20,40")
        })?;
        if rate.is_finite() && rate >= 0.0 {
            Ok(rate)
        } else {
            Err(format!(
                "{rate} requests per second; a rate is not negative"
            ))
        }
    };
    if let Some((from, to)) = text.split_once("..") {
        return Ok(Rate::Ramp(number(from)?, number(to)?));
    }
    let steps: Vec<f64> = text.split(',').map(number).collect::<Result<_, _>>()?;
    if steps.len() > MAX_STEPS {
        return Err(format!("{} steps; at most {MAX_STEPS}", steps.len()));
    }
    Ok(Rate::Steps(steps))
}

/// What decides the times of an open loop.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ArrivalsArg {
    /// A process at the rate.
    Process(Arrivals),
    /// The data set's timestamps.
    Trace,
}

fn parse_arrivals(text: &str) -> Result<ArrivalsArg, String> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(ArrivalsArg::Process(Arrivals::Poisson)),
        None if text == "constant" => Ok(ArrivalsArg::Process(Arrivals::Constant)),
        None if text == "trace" => Ok(ArrivalsArg::Trace),
        Some(("gamma", burstiness)) => burstiness
            .parse()
            .map(|burstiness| ArrivalsArg::Process(Arrivals::Gamma { burstiness }))
            .map_err(|_| format!("`{burstiness}` is no number; write gamma:0.5")),
        _ => Err("write poisson, constant, gamma:BURSTINESS, or trace".to_owned()),
    }
}

/// Nanoseconds since 1970 on the wall clock.
pub(super) type UnixNs = i64;

fn parse_instant(text: &str) -> Result<UnixNs, String> {
    let wrong = || "write 2026-01-31T12:00:00Z, or seconds since 1970".to_owned();
    if let Ok(seconds) = text.parse::<f64>() {
        // Nanoseconds must fit: until 2262.
        return (0.0..9.2e9)
            .contains(&seconds)
            .then(|| (seconds * 1e9).round() as i64)
            .ok_or_else(wrong);
    }
    let stamp: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
    i64::try_from(stamp.as_nanosecond()).map_err(|_| wrong())
}

/// Most parts of a schedule.
const MAX_SHARES: u32 = 10_000;

fn parse_share(text: &str) -> Result<ShareSpec, String> {
    let parse = || {
        let (number, of) = text.split_once('/')?;
        let share = ShareSpec {
            number: number.parse().ok()?,
            of: of.parse().ok()?,
        };
        (share.number < share.of && share.of <= MAX_SHARES).then_some(share)
    };
    parse().ok_or_else(|| {
        format!("write I/N with I from 0 to N-1 and N at most {MAX_SHARES}, such as 0/3")
    })
}

fn parse_header(text: &str) -> Result<(String, String), String> {
    // The value is not shown: it may be a secret.
    let (name, value) = text
        .split_once(':')
        .ok_or("write it as `Name: value`".to_owned())?;
    let name = name.trim().to_owned();
    if ["authorization", "api-key", "x-api-key", "cookie"]
        .contains(&name.to_ascii_lowercase().as_str())
    {
        return Err(format!(
            "`{name}` holds a secret, and headers are kept in the results; use --api-key-env or --api-key-file"
        ));
    }
    Ok((name, value.trim().to_owned()))
}

impl LoadArgs {
    /// The API key, which is kept apart from everything that is written.
    ///
    /// # Errors
    /// When it cannot be read, or is empty.
    pub(super) fn api_key(&self) -> Result<Option<Secret>, Failure> {
        const MAX_KEY_BYTES: u64 = 64 * 1024;
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let key = match (&self.api_key_env, &self.api_key_file) {
            (None, None) => return Ok(None),
            (Some(name), _) => std::env::var(name)
                .map_err(|_| wrong(format!("--api-key-env names {name}, which is not set")))?,
            (None, Some(path)) => {
                let mut key = String::new();
                std::fs::File::open(path)
                    .and_then(|f| f.take(MAX_KEY_BYTES).read_to_string(&mut key))
                    .map_err(|e| wrong(format!("--api-key-file {}: {e}", path.display())))?;
                key
            }
        };
        let key = key.trim();
        if key.is_empty() {
            return Err(wrong("the API key is empty".to_owned()));
        }
        Ok(Some(Secret::new(key)))
    }

    /// What the requests ask.
    ///
    /// # Errors
    /// When the file cannot be read, or is no data set.
    pub(super) fn prompts(&self) -> Result<Prompts, Failure> {
        let Some(path) = &self.prompt_file else {
            return Ok(Prompts::Synthetic {
                shared_words: self.shared_prefix_words,
            });
        };
        let wrong = |what: String| {
            Failure::message(Exit::Configuration, format!("{}: {what}", path.display()))
        };
        let mut bytes = Vec::new();
        blackstart_record::open_regular(path)
            .and_then(|f| {
                f.take(MAX_DATA_SET_BYTES as u64 + 1)
                    .read_to_end(&mut bytes)
            })
            .map_err(|e| wrong(e.to_string()))?;
        if path.extension().is_some_and(|e| e == "jsonl") {
            return DataSet::parse(&bytes)
                .map(Prompts::DataSet)
                .map_err(|e| wrong(e.to_string()));
        }
        match String::from_utf8(bytes) {
            Ok(text) if !text.trim().is_empty() => Ok(Prompts::Text(text)),
            Ok(_) => Err(wrong("it is empty".to_owned())),
            Err(_) => Err(wrong(
                "it is no UTF-8 text; a data set needs the ending .jsonl".to_owned(),
            )),
        }
    }

    /// What releases the requests, their mean rate, and the times of an open loop.
    fn pace(&self, prompts: &Prompts) -> Result<(Pace, f64, Option<Schedule>), Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let length_ns = self.duration.map_or(DEFAULT_LENGTH_NS, |d| d.ns);
        if length_ns == 0 {
            return Err(wrong("--duration 0 asks for nothing".to_owned()));
        }
        match (self.arrivals, &self.rate, self.concurrency) {
            (ArrivalsArg::Trace, Some(_), _) => Err(wrong(
                "a trace has its own times; leave --rate out".to_owned(),
            )),
            (ArrivalsArg::Trace, None, concurrency) => {
                let times = match prompts {
                    Prompts::DataSet(set) => set.timestamps_ns(),
                    _ => None,
                };
                let times = times.ok_or_else(|| {
                    wrong(
                        "--arrivals trace needs --prompt-file with a data set (.jsonl) of which every \
                         line has a `timestamp`"
                            .to_owned(),
                    )
                })?;
                let most = self.requests.unwrap_or(u64::MAX);
                let within = self.duration.map_or(i64::MAX, |d| d.ns);
                let intended_ns: Vec<i64> = (0..most)
                    .zip(times.iter().copied().take_while(|t| *t < within))
                    .map(|(_, t)| t)
                    .collect();
                let length_ns = intended_ns.last().map_or(1, |last| last + 1);
                let pace = Pace::Trace {
                    length_ns,
                    requests: intended_ns.len() as u64,
                    concurrency,
                };
                let rate = intended_ns.len() as f64 / (length_ns as f64 / 1e9).max(1.0);
                Ok((pace, rate, Some(Schedule { intended_ns })))
            }
            (ArrivalsArg::Process(arrivals), Some(rate), concurrency) => {
                let profile = rate.profile(length_ns);
                let times = schedule(arrivals, &profile, self.requests, self.seed)
                    .map_err(|e| wrong(e.to_string()))?;
                let mean = profile.expected() / (length_ns as f64 / 1e9);
                let pace = Pace::Open {
                    profile,
                    requests: self.requests,
                    concurrency,
                };
                Ok((pace, mean, Some(times)))
            }
            (ArrivalsArg::Process(_), None, Some(concurrency)) => Ok((
                Pace::Closed {
                    concurrency,
                    requests: self.requests.unwrap_or(MAX_SCHEDULED_REQUESTS as u64),
                    length_ns,
                },
                0.0,
                None,
            )),
            (ArrivalsArg::Process(_), None, None) => Err(wrong(
                "nothing says how many requests to send; give --rate, --concurrency or both"
                    .to_owned(),
            )),
        }
    }

    /// The load that was asked for, with the times of an open loop. `model` is called for the
    /// model's name when none was given.
    ///
    /// # Errors
    /// When options contradict each other or ask for something impossible.
    pub(super) fn spec(
        &self,
        prompts: &Prompts,
        model: impl FnOnce(&LoadPlan) -> Result<String, Failure>,
    ) -> Result<(LoadSpec, Option<Schedule>), Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let (pace, rate_per_s, schedule) = self.pace(prompts)?;
        if self.shard.is_some() && schedule.is_none() {
            return Err(wrong(
                "a closed loop has no schedule of which --shard could take a part; divide its --concurrency"
                    .to_owned(),
            ));
        }
        let ms = |what: &str, d: Duration| {
            u32::try_from(d.ns / 1_000_000)
                .map_err(|_| wrong(format!("{what} {d} is longer than 49 days")))
        };
        let headers = self
            .header
            .iter()
            .map(|text| parse_header(text).map_err(|what| wrong(format!("--header: {what}"))))
            .collect::<Result<_, _>>()?;
        let mut load = LoadPlan {
            rate_per_s,
            arrivals: match self.arrivals {
                ArrivalsArg::Process(arrivals) => arrivals,
                // Not used: the times are the trace's.
                ArrivalsArg::Trace => Arrivals::Constant,
            },
            endpoint: match self.endpoint {
                EndpointArg::Chat => Endpoint::Chat,
                EndpointArg::Completions => Endpoint::Completions,
            },
            model: String::new(),
            max_tokens: self.max_tokens,
            ignore_eos: self.ignore_eos,
            prompt_words: self.prompt_words,
            timeout_ns: self.timeout.ns,
            idle_timeout_ns: self.idle_timeout.map(|d| d.ns),
            first_token_timeout_ns: self.first_token_timeout.map(|d| d.ns),
            base_url: self.url.trim_end_matches('/').to_owned(),
            headers,
            api_key_env: self.api_key_env.clone(),
            replica_header: None,
            threads: self.threads,
            real_time: !self.no_real_time,
        };
        if load.base_url.ends_with("/v1") {
            return Err(wrong(format!(
                "--url {}: the API's own path is added to it; leave `/v1` out",
                self.url
            )));
        }
        blackstart_load::check_url(&load.base_url).map_err(|e| wrong(format!("--url {e}")))?;
        load.model = match &self.model {
            Some(name) => name.clone(),
            None => model(&load)?,
        };
        let spec = LoadSpec {
            schema_version: LOAD_SPEC_SCHEMA_VERSION,
            instrument_version: env!("CARGO_PKG_VERSION").to_owned(),
            load,
            pace,
            seed: self.seed,
            slo: SloThresholds {
                ttft_ms: ms("--slo-ttft", self.slo_ttft)?,
                e2e_ms: ms("--slo-e2e", self.slo_e2e)?,
            },
            schedule_sha256: schedule.as_ref().map(Schedule::sha256),
            prompts: match prompts {
                Prompts::Synthetic { shared_words } => PromptSpec::Synthetic {
                    shared_words: *shared_words,
                },
                Prompts::Text(text) => PromptSpec::Text {
                    sha256: sha256(text.as_bytes()),
                },
                Prompts::DataSet(set) => PromptSpec::DataSet {
                    sha256: set.sha256().to_owned(),
                    requests: set.requests() as u64,
                },
            },
            share: self.shard.unwrap_or(ShareSpec { number: 0, of: 1 }),
            every_gap: self.every_gap,
        };
        Ok((spec, schedule))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_write_them() {
        assert_eq!(parse_rate("20"), Ok(Rate::Steps(vec![20.0])));
        assert_eq!(parse_rate("5..50"), Ok(Rate::Ramp(5.0, 50.0)));
        assert_eq!(parse_rate("1, 2.5"), Ok(Rate::Steps(vec![1.0, 2.5])));
        for text in ["", "x", "-1", "1..", "1,,2", "inf", "NaN", "..", "1..2..3"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        let thirds = Rate::Steps(vec![1.0, 2.0, 3.0]).profile(10);
        assert_eq!(thirds.length_ns(), 10);
    }

    #[test]
    fn arrivals_as_people_write_them() {
        let process = |a| Ok(ArrivalsArg::Process(a));
        let gamma = Arrivals::Gamma { burstiness: 0.5 };
        assert_eq!(parse_arrivals("gamma:0.5"), process(gamma));
        assert_eq!(parse_arrivals("constant"), process(Arrivals::Constant));
        assert_eq!(parse_arrivals("trace"), Ok(ArrivalsArg::Trace));
        for text in ["gamma", "gamma:x", "Poisson:1", "weibull"] {
            assert!(parse_arrivals(text).is_err(), "{text}");
        }
    }

    #[test]
    fn parts_and_instants_as_people_write_them() {
        assert_eq!(parse_share("2/3"), Ok(ShareSpec { number: 2, of: 3 }));
        for text in ["3/3", "0/0", "1", "-1/2", "a/b", "0/99999", ""] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(parse_instant("1.5"), Ok(1_500_000_000));
        assert_eq!(parse_instant("1970-01-01T00:00:02Z"), Ok(2_000_000_000));
        for text in ["", "now", "-1", "1e300", "NaN", "2026-01-31"] {
            assert!(parse_instant(text).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_do_not_come_in_headers() {
        assert_eq!(
            parse_header("X-Tenant: a: b"),
            Ok(("X-Tenant".to_owned(), "a: b".to_owned()))
        );
        let error = parse_header("Authorization: Bearer sk-1").unwrap_err();
        assert!(
            error.contains("--api-key-env") && !error.contains("sk-1"),
            "{error}"
        );
        assert!(!parse_header("sk-nocolon").unwrap_err().contains("sk-"));
    }
}
