//! Options of `blackstart load`, and the plan that they make.

use std::io::Read;
use std::path::{Path, PathBuf};

use blackstart_config::{Duration, is_secret_header};
use blackstart_load::{
    DataSet, LoadError, MAX_DATA_SET_BYTES, MAX_PROMPT_WORDS, MAX_TIMEOUT_NS, Prompts, Secret,
    UNIQUE_WORDS,
};
use blackstart_plan::{
    Arrivals, ArrivalsError, ConversationSchedule, Conversations, DEFAULT_THINK_TIME, Endpoint,
    LOAD_SPEC_SCHEMA_VERSION, LoadPlan, LoadSpec, MAX_BURSTINESS, MAX_SCHEDULED_REQUESTS,
    MAX_TURNS, MIN_BURSTINESS, Pace, PromptSpec, RateProfile, RateSegment, Schedule, Share,
    SloThresholds, ThinkTime, TlsSpec, conversation_schedule, schedule,
};
use blackstart_tls::{MAX_CA_FILE_BYTES, TlsClient, TlsError, Trust};
use clap::{Args, ValueEnum};
use sha2::{Digest, Sha256};

use crate::exit::{Exit, Failure};
use crate::keys;
use crate::require::Requirements;
use crate::when;

/// `load`
#[derive(Debug, Args)]
#[command(after_help = "\
Open loop (--rate): requests are sent at times fixed beforehand, whatever the server does, and all\n\
latencies count from these times. With --concurrency besides it, at most so many are under way, and\n\
the wait for admission counts.\n\
Closed loop (--concurrency alone): so many requests are always under way. The server sets the pace,\n\
so its stalls slow the load down: for capacity, not for what a stall costs.")]
pub struct LoadArgs {
    /// Address of the server, http://host:port or https://host:port
    #[arg(long, value_name = "URL")]
    url: String,
    /// Model name to send [default: the first one that the server lists]
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Requests per second: 20, a ramp 5..50, or equal steps 10,20,40
    // So that a negative one is refused as what it is.
    #[arg(long, value_name = "RATE", value_parser = parse_rate, allow_hyphen_values = true)]
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
    /// A text to send, or a data set (.jsonl): one object a line with `prompt`, `messages` or `turns`
    /// (what the user says, one after the other), and optionally `max_tokens` and `timestamp` (seconds)
    #[arg(long, value_name = "FILE")]
    pub(super) prompt_file: Option<PathBuf>,
    /// Conversations: each arrival begins one of so many turns, which carry all that was said before.
    /// --rate is then of conversations, everything else of requests [default: 1; the data set's own]
    #[arg(long, value_name = "N")]
    turns: Option<u32>,
    /// From one turn's intended time to the next one's (not from the answer, which must not move the
    /// schedule): a mean, or constant:TIME. A turn is never sent before the earlier ones have ended;
    /// that wait counts [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = parse_think_time)]
    think_time: Option<ThinkTime>,
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
    /// PEM file of certificates to trust besides the platform's: issuers, or the server's own
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    ca_file: Option<PathBuf>,
    /// Do not verify the server's certificate: whoever answers is believed, and gets the API key
    #[arg(long)]
    insecure: bool,
    /// A request is good if its first token comes within this time …
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Duration::parse)]
    slo_ttft: Duration,
    /// … and its end within this one
    #[arg(long, value_name = "TIME", default_value = "14s", value_parser = Duration::parse)]
    slo_e2e: Duration,
    /// Send only part I of N of the schedule (from 0), beside other machines that send the others;
    /// `merge` joins the results
    #[arg(long, value_name = "I/N", value_parser = parse_share, requires = "start_at")]
    shard: Option<Share>,
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
    #[command(flatten)]
    pub(super) requirements: Requirements,
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
        match rate {
            r if r.is_finite() && r >= 0.0 => Ok(rate),
            r if r < 0.0 && r.is_finite() => Err(format!(
                "{rate} requests per second; a rate is not negative: write 20, a ramp 5..50, or steps 10,20,40"
            )),
            _ => Err(format!("{rate} is no rate; write a number such as 20")),
        }
    };
    if let Some((from, to)) = text.split_once("..") {
        if from.trim().is_empty() || to.trim().is_empty() {
            return Err(
                "a ramp has two ends, the rate at its beginning and that at its end: 5..50"
                    .to_owned(),
            );
        }
        return Ok(Rate::Ramp(number(from)?, number(to)?));
    }
    if text.split(',').any(|step| step.trim().is_empty()) {
        return Err("a rate is missing; write 20, a ramp 5..50, or steps 10,20,40".to_owned());
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

fn parse_think_time(text: &str) -> Result<ThinkTime, String> {
    let (distribution, time) = text.split_once(':').unwrap_or(("exponential", text));
    let ns = Duration::parse(time).map_err(|e| e.to_string())?.ns;
    match distribution {
        "exponential" => Ok(ThinkTime::Exponential { mean_ns: ns }),
        "constant" => Ok(ThinkTime::Constant { ns }),
        _ => Err("write 5s (a mean), exponential:5s or constant:5s".to_owned()),
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

fn parse_share(text: &str) -> Result<Share, String> {
    let parse = || {
        let (number, of) = text.split_once('/')?;
        let share = Share {
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
    if is_secret_header(&name) {
        return Err(format!(
            "`{name}` holds a secret, and headers are kept in the results; use --api-key-env or --api-key-file"
        ));
    }
    let fit = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(fit) {
        return Err(
            "what stands before the `:` is no header name; use letters, digits and hyphens"
                .to_owned(),
        );
    }
    let value = value.trim().to_owned();
    if !value.bytes().all(|b| (0x20..0x7f).contains(&b)) {
        return Err(format!(
            "the value of `{name}` holds characters that no header may; use printable ASCII"
        ));
    }
    Ok((name, value))
}

/// Whether an address has something before an `@` where its host should begin.
fn holds_user(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    // A `/` in a password does not end it for whoever typed it.
    rest.contains('@')
}

/// TLS of a load.
pub(super) struct Tls {
    pub(super) client: TlsClient,
    spec: TlsSpec,
}

fn read_ca_file(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    blackstart_record::open_regular(path)
        .and_then(|f| f.take(MAX_CA_FILE_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(|e| e.to_string())?;
    if bytes.len() > MAX_CA_FILE_BYTES {
        return Err(format!(
            "it is larger than {} MiB; give only the certificates of your issuers",
            MAX_CA_FILE_BYTES >> 20
        ));
    }
    Ok(bytes)
}

/// What releases the requests of a load.
struct Paced {
    pace: Pace,
    /// Mean rate of requests; 0 in a closed loop.
    rate_per_s: f64,
    conversations: Option<Conversations>,
    /// The times of an open loop, with their turns where there are conversations.
    open: Option<ConversationSchedule>,
}

/// Why there is no schedule, in the words of this command's options.
fn schedule_error(error: &ArrivalsError) -> String {
    match error {
        ArrivalsError::Rate(rate) => {
            format!(
                "--rate {rate}: not a positive number; write how many requests a second to send"
            )
        }
        ArrivalsError::TooMany { rate, seconds } => format!(
            "--rate: {rate} requests a second for {} are more than {MAX_SCHEDULED_REQUESTS}; lower the rate or \
             shorten --duration",
            when::seconds((seconds * 1e9) as i64)
        ),
        ArrivalsError::Burstiness(burstiness) => format!(
            "--arrivals gamma:{burstiness}: choose a burstiness from {MIN_BURSTINESS} to {MAX_BURSTINESS}"
        ),
        ArrivalsError::TooManyTurns { .. } => {
            format!("{error} (--rate, --duration, --turns)")
        }
        other => other.to_string(),
    }
}

/// Requests that stand alone.
fn single(schedule: Schedule) -> ConversationSchedule {
    ConversationSchedule {
        schedule,
        turns: Vec::new(),
    }
}

impl LoadArgs {
    /// The API key, which is kept apart from everything that is written.
    ///
    /// # Errors
    /// When it cannot be read, or is none that a header may hold.
    pub(super) fn api_key(&self) -> Result<Option<Secret>, Failure> {
        let key = match (&self.api_key_env, &self.api_key_file) {
            (None, None) => return Ok(None),
            (Some(name), _) => keys::of_variable("--api-key-env", name)?,
            (None, Some(path)) => keys::of_file("--api-key-file", path)?,
        };
        Ok(Some(Secret::new(key)))
    }

    /// How to speak TLS, where the address asks for it.
    ///
    /// # Errors
    /// When the options do not go with the address, the file is of no use, or nobody would be trusted.
    pub(super) fn tls(&self) -> Result<Option<Tls>, Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        if holds_user(&self.url) {
            // The address is not shown: it holds a secret.
            return Err(wrong(
                "--url has a user name or password, and addresses are kept in the results; leave it out, \
                 and use --api-key-env or --api-key-file"
                    .to_owned(),
            ));
        }
        // Schemes are written in any case.
        let https = self
            .url
            .get(..8)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        if !https {
            return match (&self.ca_file, self.insecure) {
                (None, false) => Ok(None),
                (Some(_), _) => Err(wrong(
                    "--ca-file is for an https:// address; leave it out, or write https:// in --url"
                        .to_owned(),
                )),
                (None, true) => Err(wrong(
                    "--insecure is for an https:// address; leave it out, or write https:// in --url"
                        .to_owned(),
                )),
            };
        }
        let added_pem = self
            .ca_file
            .as_deref()
            .map(|path| {
                read_ca_file(path)
                    .map_err(|what| wrong(format!("--ca-file {}: {what}", path.display())))
            })
            .transpose()?;
        let trust = if self.insecure {
            Trust::Anyone
        } else {
            Trust::Platform {
                added_pem: added_pem.as_deref(),
            }
        };
        let client = TlsClient::new(trust).map_err(|e| {
            wrong(match (&e, &self.ca_file) {
                (TlsError::CaFile { what }, Some(path)) => {
                    format!("--ca-file {}: {what}", path.display())
                }
                _ => format!("--url {}: {e}", self.url),
            })
        })?;
        Ok(Some(Tls {
            client,
            spec: TlsSpec {
                insecure: self.insecure,
                ca_file_sha256: added_pem.as_deref().map(sha256),
            },
        }))
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

    /// The conversations that the arrivals begin, if they do.
    fn conversations(&self, prompts: &Prompts) -> Result<Option<Conversations>, Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let (own, single) = match prompts {
            Prompts::DataSet(set) => (set.most_turns(), set.most_turns().is_none()),
            Prompts::Synthetic { .. } | Prompts::Text(_) => (None, false),
        };
        if let Some(turns) = self.turns
            && !(1..=MAX_TURNS).contains(&turns)
        {
            return Err(wrong(format!("--turns {turns}; choose 1 to {MAX_TURNS}")));
        }
        let turns = match (self.turns, own) {
            (Some(asked), Some(own)) => asked.min(own),
            (Some(asked), None) => asked,
            (None, own) => own.unwrap_or(1),
        };
        if turns == 1 && own.is_none() {
            return match self.think_time {
                None => Ok(None),
                Some(_) => Err(wrong(
                    "--think-time is the time between turns; give --turns, or a data set whose lines have \
                     `turns`"
                        .to_owned(),
                )),
            };
        }
        if single {
            return Err(wrong(format!(
                "--turns {turns}: no line of the data set has `turns`, so that each is a single request"
            )));
        }
        if matches!(self.endpoint, EndpointArg::Completions) {
            return Err(wrong(
                "the completions API knows no turns; use --endpoint chat".to_owned(),
            ));
        }
        let closed = self.rate.is_none() && self.arrivals != ArrivalsArg::Trace;
        let think_time = match (closed, self.think_time) {
            (true, Some(_)) => {
                return Err(wrong(
                    "a closed loop has no think times: each turn follows the end of the one before; give \
                     --rate, or leave --think-time out"
                        .to_owned(),
                ));
            }
            (true, None) => None,
            (false, given) => Some(given.unwrap_or(DEFAULT_THINK_TIME)),
        };
        Ok(Some(Conversations { turns, think_time }))
    }

    /// What releases the requests, their mean rate, and the times of an open loop.
    fn paced(&self, prompts: &Prompts) -> Result<Paced, Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        let length_ns = self.duration.map_or(DEFAULT_LENGTH_NS, |d| d.ns);
        if length_ns == 0 {
            return Err(wrong("--duration 0 asks for nothing".to_owned()));
        }
        if self.requests == Some(0) {
            return Err(wrong(
                "--requests 0 asks for nothing; leave it out to send all of --duration".to_owned(),
            ));
        }
        let conversations = self.conversations(prompts)?;
        let turns_of = |conversation| match prompts {
            Prompts::DataSet(set) => set.turns(conversation),
            Prompts::Synthetic { .. } | Prompts::Text(_) => MAX_TURNS,
        };
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
                let within = self.duration.map_or(i64::MAX, |d| d.ns);
                let starts = Schedule {
                    intended_ns: times.iter().copied().take_while(|t| *t < within).collect(),
                };
                let open = match conversations {
                    Some(conversations) => conversations
                        .schedule(&starts, turns_of, within, self.requests, self.seed)
                        .map_err(|e| wrong(schedule_error(&e)))?,
                    None => {
                        let mut schedule = starts;
                        schedule.truncate(self.requests);
                        single(schedule)
                    }
                };
                let times = &open.schedule.intended_ns;
                let length_ns = times.last().map_or(1, |last| last + 1);
                let requests = times.len() as u64;
                Ok(Paced {
                    pace: Pace::Trace {
                        length_ns,
                        requests,
                        concurrency,
                    },
                    rate_per_s: requests as f64 / (length_ns as f64 / 1e9).max(1.0),
                    conversations,
                    open: Some(open),
                })
            }
            (ArrivalsArg::Process(arrivals), Some(rate), concurrency) => {
                let profile = rate.profile(length_ns);
                let seconds = length_ns as f64 / 1e9;
                let (open, rate_per_s) = match conversations {
                    Some(conversations) => {
                        let open = conversation_schedule(
                            arrivals,
                            &profile,
                            conversations,
                            turns_of,
                            self.requests,
                            self.seed,
                        )
                        .map_err(|e| wrong(schedule_error(&e)))?;
                        // Of requests, as everywhere.
                        let rate = open.turns.len() as f64 / seconds;
                        (open, rate)
                    }
                    None => {
                        let schedule = schedule(arrivals, &profile, self.requests, self.seed)
                            .map_err(|e| wrong(schedule_error(&e)))?;
                        (single(schedule), profile.expected() / seconds)
                    }
                };
                Ok(Paced {
                    pace: Pace::Open {
                        profile,
                        requests: self.requests,
                        concurrency,
                    },
                    rate_per_s,
                    conversations,
                    open: Some(open),
                })
            }
            (ArrivalsArg::Process(_), None, Some(concurrency)) => Ok(Paced {
                pace: Pace::Closed {
                    concurrency,
                    requests: self.requests.unwrap_or(MAX_SCHEDULED_REQUESTS as u64),
                    length_ns,
                },
                rate_per_s: 0.0,
                conversations,
                open: None,
            }),
            (ArrivalsArg::Process(_), None, None) => Err(wrong(
                "nothing says how many requests to send; give --rate, --concurrency or both"
                    .to_owned(),
            )),
        }
    }

    /// Options whose values make no sense by themselves.
    fn check_each(&self, prompts: &Prompts) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::message(Exit::Configuration, what));
        if self.max_tokens == 0 {
            return wrong(
                "--max-tokens 0: a completion of no tokens has no first one; choose 1 or more"
                    .to_owned(),
            );
        }
        for (option, given) in [
            ("--timeout", Some(self.timeout)),
            ("--idle-timeout", self.idle_timeout),
            ("--first-token-timeout", self.first_token_timeout),
        ] {
            let Some(given) = given else { continue };
            if !(1..=MAX_TIMEOUT_NS).contains(&given.ns) {
                return wrong(format!(
                    "{option} {given}: choose more than nothing and at most a day, such as 30s"
                ));
            }
        }
        for (option, given) in [("--slo-ttft", self.slo_ttft), ("--slo-e2e", self.slo_e2e)] {
            if given.ns < 1_000_000 {
                return wrong(format!(
                    "{option} {given}: no request could be good; choose at least 1ms"
                ));
            }
        }
        let Prompts::Synthetic { shared_words } = prompts else {
            return Ok(());
        };
        let needed = UNIQUE_WORDS.saturating_add(*shared_words);
        if (needed..=MAX_PROMPT_WORDS).contains(&self.prompt_words) {
            return Ok(());
        }
        let taken = match shared_words {
            0 => format!("{UNIQUE_WORDS} words make each prompt its own"),
            n => format!("{n} words are shared and {UNIQUE_WORDS} make each prompt its own"),
        };
        wrong(if needed > MAX_PROMPT_WORDS {
            format!(
                "--shared-prefix-words {shared_words}: a prompt has at most {MAX_PROMPT_WORDS} words, of which \
                 {UNIQUE_WORDS} make it its own"
            )
        } else {
            format!(
                "--prompt-words {}: {taken}; choose {needed} to {MAX_PROMPT_WORDS}",
                self.prompt_words
            )
        })
    }

    /// The load that was asked for, with the times of an open loop. `model` is called for the
    /// model's name when none was given.
    ///
    /// # Errors
    /// When options contradict each other or ask for something impossible.
    pub(super) fn spec(
        &self,
        prompts: &Prompts,
        tls: Option<&Tls>,
        model: impl FnOnce(&LoadPlan, Option<&TlsClient>) -> Result<String, Failure>,
    ) -> Result<(LoadSpec, Option<ConversationSchedule>), Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        self.check_each(prompts)?;
        let Paced {
            pace,
            rate_per_s,
            conversations,
            open,
        } = self.paced(prompts)?;
        if self.shard.is_some() && open.is_none() {
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
        let client = tls.map(|tls| &tls.client);
        blackstart_load::check_url(&load.base_url, client).map_err(|e| match e {
            // A name that nobody knows is a server that cannot be reached.
            LoadError::Resolve { .. } => Failure::message(Exit::Target, format!("--url {e}")),
            e => wrong(format!("--url {e}")),
        })?;
        load.model = match &self.model {
            Some(name) => name.clone(),
            None => model(&load, client)?,
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
            schedule_sha256: open.as_ref().map(|o| o.schedule.sha256()),
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
            conversations,
            share: self.shard.unwrap_or(Share::WHOLE),
            tls: tls.map(|tls| tls.spec.clone()),
            every_gap: self.every_gap,
        };
        Ok((spec, open))
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
        for (text, why) in [
            ("", "is missing"),
            ("x", "a ramp 5..50"),
            ("-1", "not negative"),
            ("1..", "two ends"),
            ("..", "two ends"),
            ("1,,2", "is missing"),
            ("inf", "is no rate"),
            ("NaN", "is no rate"),
            ("1..2..3", "no number"),
        ] {
            let error = parse_rate(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
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
        assert_eq!(parse_share("2/3"), Ok(Share { number: 2, of: 3 }));
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
    fn think_times_as_people_write_them() {
        let mean = |s: i64| {
            Ok(ThinkTime::Exponential {
                mean_ns: s * 1_000_000_000,
            })
        };
        assert_eq!(parse_think_time("5s"), mean(5));
        assert_eq!(parse_think_time("exponential:2"), mean(2));
        let constant = ThinkTime::Constant { ns: 250_000_000 };
        assert_eq!(parse_think_time("constant:250ms"), Ok(constant));
        for text in ["", "x", "constant", "constant:", "gamma:5s", "5s:"] {
            assert!(parse_think_time(text).is_err(), "{text}");
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
        let tokens = ("x-max-tokens".to_owned(), "16".to_owned());
        assert_eq!(parse_header("x-max-tokens: 16"), Ok(tokens));
        for text in ["a b: c", ": c", "x-team: é", "x-team: a\nb"] {
            let error = parse_header(text).unwrap_err();
            assert!(error.contains("use "), "{text}: {error}");
        }
        for name in [
            "Proxy-Authorization",
            "X-Auth-Token",
            "x-goog-api-key",
            "Ocp-Apim-Subscription-Key",
            "X_APIKEY",
            "Set-Cookie",
            "client-secret",
            "Password",
        ] {
            let error = parse_header(&format!("{name}: sk-1")).unwrap_err();
            assert!(error.contains("holds a secret"), "{name}: {error}");
        }
    }

    #[test]
    fn addresses_with_a_user_are_known() {
        for url in ["http://me:pw@host", "https://me@host:1", "me:p/w@host"] {
            assert!(holds_user(url), "{url}");
        }
        assert!(!holds_user("http://127.0.0.1:8000"));
    }
}
