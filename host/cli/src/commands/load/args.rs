//! Options of `blackstart load`, and the plan that they make.

use std::path::PathBuf;

use blackstart_config::Duration;
use blackstart_load::Secret;
use blackstart_plan::{
    Arrivals, Endpoint, LOAD_SPEC_SCHEMA_VERSION, LoadPlan, LoadSpec, MAX_SCHEDULED_REQUESTS, Pace,
    RateProfile, RateSegment, SloThresholds,
};
use clap::{Args, ValueEnum};

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
    /// Most requests under way; without --rate, a closed loop of so many
    #[arg(long, value_name = "N", required_unless_present = "rate")]
    concurrency: Option<u32>,
    /// How long requests are started
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = Duration::parse)]
    duration: Duration,
    /// Most requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Arrival process of an open loop: poisson, constant, or gamma:BURSTINESS (1 is Poisson, less is
    /// burstier)
    #[arg(long, value_name = "PROCESS", default_value = "poisson", value_parser = parse_arrivals)]
    arrivals: Arrivals,
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

fn parse_arrivals(text: &str) -> Result<Arrivals, String> {
    match text.split_once(':') {
        None if text == "poisson" => Ok(Arrivals::Poisson),
        None if text == "constant" => Ok(Arrivals::Constant),
        Some(("gamma", burstiness)) => burstiness
            .parse()
            .map(|burstiness| Arrivals::Gamma { burstiness })
            .map_err(|_| format!("`{burstiness}` is no number; write gamma:0.5")),
        _ => Err("write poisson, constant, or gamma:BURSTINESS".to_owned()),
    }
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
                use std::io::Read;
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

    /// The load that was asked for. `model` is called for its name when none was given.
    ///
    /// # Errors
    /// When options contradict each other or ask for something impossible.
    pub(super) fn spec(
        &self,
        model: impl FnOnce(&LoadPlan) -> Result<String, Failure>,
    ) -> Result<LoadSpec, Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let length_ns = self.duration.ns;
        if length_ns == 0 {
            return Err(wrong("--duration 0 asks for nothing".to_owned()));
        }
        let (pace, rate_per_s) = match (&self.rate, self.concurrency) {
            (Some(rate), concurrency) => {
                let profile = rate.profile(length_ns);
                let mean = profile.expected() / (length_ns as f64 / 1e9);
                (
                    Pace::Open {
                        profile,
                        requests: self.requests,
                        concurrency,
                    },
                    mean,
                )
            }
            (None, concurrency) => (
                Pace::Closed {
                    concurrency: concurrency.unwrap_or(1),
                    requests: self.requests.unwrap_or(MAX_SCHEDULED_REQUESTS as u64),
                    length_ns,
                },
                0.0,
            ),
        };
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
            arrivals: self.arrivals,
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
        let mut spec = LoadSpec {
            schema_version: LOAD_SPEC_SCHEMA_VERSION,
            instrument_version: env!("CARGO_PKG_VERSION").to_owned(),
            load: load.clone(),
            pace,
            seed: self.seed,
            slo: SloThresholds {
                ttft_ms: ms("--slo-ttft", self.slo_ttft)?,
                e2e_ms: ms("--slo-e2e", self.slo_e2e)?,
            },
            schedule_sha256: None,
        };
        let schedule = spec.schedule().map_err(|e| wrong(e.to_string()))?;
        spec.schedule_sha256 = schedule.map(|s| s.sha256());
        load.model = match &self.model {
            Some(name) => name.clone(),
            None => model(&load)?,
        };
        spec.load = load;
        Ok(spec)
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
        let gamma = Arrivals::Gamma { burstiness: 0.5 };
        assert_eq!(parse_arrivals("gamma:0.5"), Ok(gamma));
        assert_eq!(parse_arrivals("constant"), Ok(Arrivals::Constant));
        for text in ["gamma", "gamma:x", "Poisson:1", "weibull"] {
            assert!(parse_arrivals(text).is_err(), "{text}");
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
