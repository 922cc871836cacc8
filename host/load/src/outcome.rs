//! What becomes of one request: the state machine from the response's bytes to its record.
//!
//! Without I/O: the caller reports the head, each portion of the body with its stamp, and how the
//! body ended. Rules, in the order in which they decide:
//!
//! | seen | outcome |
//! | --- | --- |
//! | anything stamped after an [`Expiry`] | censored by its kind, at that instant |
//! | status ≥ 400 | `http_status`, at the head |
//! | another status than 200, or 200 that is no event stream | `not_sse`, at the head; `in_stream_error` if its body is an error object |
//! | an error object inside the stream | `in_stream_error`, at that event; a `[DONE]` behind it changes nothing |
//! | an event that is no JSON chunk, or is too long | `malformed_stream`, at that event |
//! | finish reason `abort` | `aborted`, at that event |
//! | `[DONE]` and no content | `empty` |
//! | `[DONE]`, `ignore_eos` asked and the server counts fewer tokens than asked | `short_completion` |
//! | `[DONE]` | completed; without a finish reason too, since the terminal marker decides (the record tells) |
//! | the body ends after a finish reason, without `[DONE]` | as with `[DONE]`, `done_marker` false |
//! | the body ends without one: no event, or in good order without content | `empty` |
//! | the body ends without one, else | `truncated` |
//! | a connection error, a broken chunk | its own class, unless decided before |
//!
//! Once a failure is certain its time is fixed, but the machine goes on listening for what explains
//! it (the body of an error status, the usage behind an abort) until the body ends.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use blackstart_record::{CensorKind, ErrorClass, FinishReason, Gap, Outcome, RequestRecord};

use crate::Secret;
use crate::delta::{self, Chunk, EventParser, MAX_CHOICES, Parsed};
use crate::gaps::GapSink;
use crate::sse::SseDecoder;
use crate::text::{bounded, bounded_reason};

/// Bytes kept of a body that is no event stream, to explain it.
pub const MAX_SAMPLE_BYTES: usize = 8 << 10;

/// Longest name of a replica that is kept.
const MAX_REPLICA_CHARS: usize = 128;

/// What the request asked for, as far as it decides the outcome.
#[derive(Debug, Clone)]
pub struct Expectation {
    /// Run time at which the client gives up.
    pub deadline_ns: i64,
    /// Run time at which it gives up unless content came before.
    pub first_token_deadline_ns: Option<i64>,
    /// Longest time without a byte, counted from the intended send time at first.
    pub idle_ns: Option<i64>,
    /// With `ignore_eos`: the tokens that a completion must have.
    pub exact_tokens: Option<u32>,
    /// Removed from every text that is kept.
    pub secret: Option<Arc<Secret>>,
}

/// When observation ends unless something comes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Run time.
    pub at_ns: i64,
    /// What a request that reaches it is.
    pub kind: CensorKind,
}

impl Expectation {
    /// A client that gives up at an instant, and expects nothing else.
    pub fn until(deadline_ns: i64) -> Self {
        Self {
            deadline_ns,
            first_token_deadline_ns: None,
            idle_ns: None,
            exact_tokens: None,
            secret: None,
        }
    }

    /// The earliest end, given when the last byte came.
    fn expiry(&self, has_content: bool, last_byte_ns: i64) -> Expiry {
        let mut first = Expiry {
            at_ns: self.deadline_ns,
            kind: CensorKind::Timeout,
        };
        let mut consider = |at_ns: i64, kind| {
            if at_ns < first.at_ns {
                first = Expiry { at_ns, kind };
            }
        };
        if let Some(at_ns) = self.first_token_deadline_ns
            && !has_content
        {
            consider(at_ns, CensorKind::FirstToken);
        }
        if let Some(idle_ns) = self.idle_ns {
            consider(last_byte_ns.saturating_add(idle_ns), CensorKind::Idle);
        }
        first
    }
}

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEnd {
    /// As its framing says.
    Clean,
    /// The connection was closed before the framing's end.
    Cut,
    /// A failure with its class.
    Failed(ErrorClass, String),
}

/// Longest reply that a conversation keeps, as JSON writes it. What is longer is cut there, at the end
/// of an event's text.
pub const MAX_REPLY_BYTES: usize = 64 << 10;

/// The text of choice 0 so far: the inside of a JSON string.
#[derive(Debug, Default)]
struct Reply {
    text: String,
    /// Nothing is added behind what was left out.
    full: bool,
}

impl Reply {
    /// Adds the text of an event. What is no text (null, a list of parts) says nothing.
    fn push(&mut self, raw: &str) {
        let Some(inside) = raw.strip_prefix('"').and_then(|r| r.strip_suffix('"')) else {
            return;
        };
        if self.full || self.text.len() + inside.len() > MAX_REPLY_BYTES {
            self.full = true;
            return;
        }
        self.text.push_str(inside);
    }
}

/// The response to one request, and the record that it becomes.
#[derive(Debug)]
pub struct Response {
    record: RequestRecord,
    expect: Expectation,
    /// The body is decoded as an event stream.
    streaming: bool,
    decoder: SseDecoder,
    parser: EventParser,
    events: u64,
    sample: Vec<u8>,
    /// A certain failure and its time; decided when the body ends.
    failure: Option<(ErrorClass, i64)>,
    decided: bool,
    last_by_choice_ns: [Option<i64>; MAX_CHOICES as usize],
    /// The read under way and the content events that it delivered.
    read: (u64, u32),
    /// Both stamps of the read under way.
    kernel: (i64, Option<i64>),
    /// Stamps of all content events, where they are asked for.
    token_stamps_ns: Option<Vec<i64>>,
    /// The visible text, where a later turn needs it.
    reply: Option<Reply>,
    /// Shared with whoever watches the clock. It only ever moves later.
    expiry: Rc<Cell<Expiry>>,
    last_byte_ns: i64,
}

impl Response {
    /// Before anything was sent.
    pub fn new(index: u64, intended_ns: i64, expect: Expectation) -> Self {
        Self {
            expiry: Rc::new(Cell::new(expect.expiry(false, intended_ns))),
            last_byte_ns: intended_ns,
            record: RequestRecord {
                index,
                intended_ns,
                admitted_ns: None,
                connect_started_ns: None,
                dispatched_ns: None,
                headers_ns: None,
                first_event_ns: None,
                first_token_ns: None,
                last_token_ns: None,
                ended_ns: intended_ns,
                outcome: Outcome::Censored,
                error_class: None,
                censor_kind: None,
                http_status: None,
                error_code: None,
                error_text: None,
                finish_reason: None,
                done_marker: false,
                content_events: 0,
                completion_tokens: None,
                prompt_tokens: None,
                body_bytes: 0,
                coalesced_reads: 0,
                gap_max_ns: None,
                connection_reused: false,
                replica: None,
                first_token_kernel_ns: None,
                ended_kernel_ns: None,
                read_lag_max_ns: None,
                conversation: None,
                turn: None,
            },
            expect,
            streaming: false,
            decoder: SseDecoder::new(),
            parser: EventParser::default(),
            events: 0,
            sample: Vec::new(),
            failure: None,
            decided: false,
            last_by_choice_ns: [None; MAX_CHOICES as usize],
            read: (0, 0),
            kernel: (intended_ns, None),
            token_stamps_ns: None,
            reply: None,
        }
    }

    /// Keeps the stamp of each content event, at most `limit` of them (the canary's).
    pub fn keep_token_stamps(&mut self, limit: usize) {
        self.token_stamps_ns = Some(Vec::with_capacity(limit));
    }

    /// The kept stamps.
    pub fn token_stamps_ns(&self) -> &[i64] {
        self.token_stamps_ns.as_deref().unwrap_or_default()
    }

    /// It is a turn of a conversation.
    pub fn in_conversation(&mut self, conversation: u32, turn: u32) {
        self.record.conversation = Some(conversation);
        self.record.turn = Some(turn);
    }

    /// Keeps the visible text of choice 0, at most [`MAX_REPLY_BYTES`] of it.
    pub fn keep_reply(&mut self) {
        self.reply = Some(Reply::default());
    }

    /// The kept text, as the inside of a JSON string; empty if none was kept.
    pub fn take_reply(&mut self) -> String {
        self.reply.take().unwrap_or_default().text
    }

    /// When observation ends unless something comes before; moves later with what comes.
    pub fn expiry(&self) -> Rc<Cell<Expiry>> {
        Rc::clone(&self.expiry)
    }

    /// The concurrency cap admitted it only now, or the turn before it ended only now.
    pub fn admitted(&mut self, at_ns: i64) {
        self.record.admitted_ns = Some(at_ns);
    }

    /// A connection is being opened for it.
    pub fn connecting(&mut self, at_ns: i64) {
        self.record.connect_started_ns = Some(at_ns);
    }

    /// Its connection was ready before its intended time: it did not wait for it.
    pub fn connected_in_time(&mut self) {
        self.record.connect_started_ns = None;
    }

    /// The first byte of the request was written to its socket.
    pub fn dispatched(&mut self, at_ns: i64) {
        self.record.dispatched_ns.get_or_insert(at_ns);
    }

    /// Whether the connection had served another request before.
    pub fn on_connection(&mut self, reused: bool) {
        self.record.connection_reused = reused;
    }

    /// Of all its reads, the longest time between the kernel's stamp and this client's.
    pub fn read_lag(&mut self, max_ns: Option<i64>) {
        self.record.read_lag_max_ns = max_ns;
    }

    /// The kernel's stamp of the read that is stamped `at_ns`; before what it brought is handed over.
    pub fn read_by_kernel(&mut self, at_ns: i64, kernel_ns: Option<i64>) {
        self.kernel = (at_ns, kernel_ns);
    }

    /// The response head arrived.
    pub fn head(
        &mut self,
        at_ns: i64,
        status: u16,
        content_type: Option<&str>,
        replica: Option<&str>,
    ) {
        if self.late(at_ns) {
            return;
        }
        self.byte(at_ns);
        self.record.headers_ns = Some(at_ns);
        self.record.http_status = Some(status);
        self.record.replica = replica.map(|r| bounded(&self.redacted(r), MAX_REPLICA_CHARS));
        // A missing content type is judged by what the body turns out to be.
        let event_stream = content_type.is_none_or(|t| {
            let essence = t.split(';').next().unwrap_or(t).trim();
            essence.eq_ignore_ascii_case("text/event-stream")
        });
        if status >= 400 {
            self.fail(at_ns, ErrorClass::HttpStatus, None);
        } else if status != 200 {
            self.fail(at_ns, ErrorClass::NotSse, Some(&format!("status {status}")));
        } else if event_stream {
            self.streaming = true;
        } else {
            let what = format!("content type {}", content_type.unwrap_or("unknown"));
            self.fail(at_ns, ErrorClass::NotSse, Some(&what));
        }
    }

    /// A portion of the body, with the stamp and the number of the socket read that delivered it.
    /// Gaps go to `gaps`.
    pub fn body(&mut self, at_ns: i64, read: u64, bytes: &[u8], gaps: &mut GapSink) {
        if self.decided || self.late(at_ns) {
            return;
        }
        self.byte(at_ns);
        self.record.body_bytes += bytes.len() as u64;
        if !self.streaming {
            self.keep(bytes);
            if self.sample.len() == MAX_SAMPLE_BYTES {
                self.decide();
            }
            return;
        }
        if self.read.0 != read {
            self.read = (read, 0);
        }
        let mut decoder = std::mem::take(&mut self.decoder);
        let fed = decoder.feed(bytes, |event| {
            self.event(at_ns, event.data, event.named_error, gaps);
        });
        self.decoder = decoder;
        if let Err(e) = fed
            && !self.decided
        {
            self.fail(at_ns, ErrorClass::MalformedStream, Some(&e.to_string()));
            self.decide();
        }
        if self.events == 0 {
            self.keep(bytes);
        }
    }

    /// The body ended, or the request failed before it had one.
    pub fn end(&mut self, at_ns: i64, end: BodyEnd) {
        if self.decided || self.late(at_ns) {
            return;
        }
        if self.failure.is_some() {
            self.decide();
            return;
        }
        match end {
            BodyEnd::Failed(class, text) => self.fail(at_ns, class, Some(&text)),
            BodyEnd::Clean | BodyEnd::Cut if self.record.finish_reason.is_some() => {
                self.complete(at_ns);
                return;
            }
            BodyEnd::Clean | BodyEnd::Cut if self.record.http_status.is_none() => self.fail(
                at_ns,
                ErrorClass::Truncated,
                Some("the connection was closed inside the response head"),
            ),
            BodyEnd::Clean | BodyEnd::Cut if self.events == 0 => self.fail_without_event(at_ns),
            BodyEnd::Clean if self.record.content_events == 0 => self.fail(
                at_ns,
                ErrorClass::Empty,
                Some("the stream ended without content"),
            ),
            BodyEnd::Clean => self.fail(
                at_ns,
                ErrorClass::Truncated,
                Some("the stream ended in good order without finish reason and [DONE]"),
            ),
            BodyEnd::Cut => self.fail(
                at_ns,
                ErrorClass::Truncated,
                Some("the connection was closed inside the stream"),
            ),
        }
        self.decide();
    }

    /// Observation ends without a terminal event, unless a failure was certain before.
    pub fn censor(&mut self, at_ns: i64, kind: CensorKind) {
        if self.decided {
            return;
        }
        if self.failure.is_some() {
            self.decide();
            return;
        }
        self.record.outcome = Outcome::Censored;
        self.record.censor_kind = Some(kind);
        // A request that was never due is observed for no time, not for a negative one.
        self.record.ended_ns = at_ns.max(self.record.intended_ns);
        self.decided = true;
    }

    /// Bytes of the response came, whatever they are: of a head or of its framing too.
    pub fn heard(&mut self, at_ns: i64) {
        if !self.decided && !self.late(at_ns) {
            self.byte(at_ns);
        }
    }

    /// Whether a failure is certain and what explains it may still come.
    pub fn failing(&self) -> bool {
        self.failure.is_some() && !self.decided
    }

    /// What explains a certain failure has had its time.
    pub fn give_up_explanation(&mut self) {
        if !self.decided {
            self.decide();
        }
    }

    /// Whether the outcome is fixed; what comes later changes nothing.
    pub fn decided(&self) -> bool {
        self.decided
    }

    /// The record. A response that was not decided counts as censored by the run's end.
    pub fn into_record(mut self) -> RequestRecord {
        if !self.decided {
            let at = self.record.ended_ns;
            self.censor(at, CensorKind::RunEnd);
        }
        self.record
    }

    /// Whether this stamp lies after the end of the observation, which then ends it.
    fn late(&mut self, at_ns: i64) -> bool {
        let end = self.expiry.get();
        if at_ns <= end.at_ns {
            return false;
        }
        self.censor(end.at_ns, end.kind);
        true
    }

    /// The kernel's stamp of what is stamped `at_ns`. An end that no read brought has none.
    fn kernel_ns(&self, at_ns: i64) -> Option<i64> {
        let (user_ns, kernel_ns) = self.kernel;
        kernel_ns.filter(|_| user_ns == at_ns)
    }

    /// A byte came in time.
    fn byte(&mut self, at_ns: i64) {
        self.last_byte_ns = at_ns;
        self.put_off();
    }

    fn put_off(&mut self) {
        let has_content = self.record.first_token_ns.is_some();
        self.expiry
            .set(self.expect.expiry(has_content, self.last_byte_ns));
    }

    fn event(&mut self, at_ns: i64, data: &[u8], named_error: bool, gaps: &mut GapSink) {
        if self.decided {
            return;
        }
        self.events += 1;
        self.record.first_event_ns.get_or_insert(at_ns);
        match self.parser.parse(data) {
            Ok(Parsed::Error(json)) => self.stream_error(at_ns, json),
            _ if named_error => self.stream_error(at_ns, &String::from_utf8_lossy(data)),
            Ok(Parsed::Nothing) => {}
            Ok(Parsed::Chunk(chunk)) => self.chunk(at_ns, &chunk, gaps),
            Ok(Parsed::Done) => {
                self.record.done_marker = true;
                self.complete(at_ns);
            }
            Err(reason) => {
                self.fail(at_ns, ErrorClass::MalformedStream, Some(&reason));
                self.decide();
            }
        }
    }

    fn chunk(&mut self, at_ns: i64, chunk: &Chunk<'_>, gaps: &mut GapSink) {
        if let (Some(reply), Some(text)) = (&mut self.reply, chunk.text) {
            reply.push(text);
        }
        if chunk.content != 0 {
            if self.record.first_token_ns.is_none() {
                self.record.first_token_ns = Some(at_ns);
                self.record.first_token_kernel_ns = self.kernel_ns(at_ns);
                self.put_off();
            }
            self.record.last_token_ns = Some(at_ns);
            self.record.content_events = self.record.content_events.saturating_add(1);
            if let Some(stamps) = &mut self.token_stamps_ns
                && stamps.len() < stamps.capacity()
            {
                stamps.push(at_ns);
            }
            self.read.1 += 1;
            if self.read.1 == 2 {
                self.record.coalesced_reads += 1;
            }
            for (choice, last) in (0..).zip(&mut self.last_by_choice_ns) {
                if chunk.content & (1 << choice) == 0 {
                    continue;
                }
                if let Some(last) = last.replace(at_ns) {
                    let gap_ns = at_ns - last;
                    let gap = Gap {
                        index: self.record.index,
                        chunk: self.record.content_events - 1,
                        choice,
                        at_ns,
                        gap_ns,
                    };
                    gaps.record(self.record.intended_ns, gap);
                    let longest = self.record.gap_max_ns.get_or_insert(gap_ns);
                    *longest = gap_ns.max(*longest);
                }
            }
        }
        if let Some(usage) = chunk.usage {
            // Beyond the record's room it is no count of tokens.
            let count = |n: u64| u32::try_from(n).ok();
            // Each count is the total so far: the last one stands.
            self.record.completion_tokens = usage
                .completion_tokens
                .and_then(count)
                .or(self.record.completion_tokens);
            self.record.prompt_tokens = usage
                .prompt_tokens
                .and_then(count)
                .or(self.record.prompt_tokens);
        }
        if let Some(finish) = chunk.finish {
            let name = serde_json::from_str::<String>(finish.get())
                .unwrap_or_else(|_| finish.get().to_owned());
            let reason = FinishReason::from_name(bounded_reason(&self.redacted(&name)));
            if reason == FinishReason::Abort {
                self.fail(at_ns, ErrorClass::Aborted, Some("finish reason abort"));
            }
            self.record.finish_reason = Some(reason);
        }
    }

    /// The terminal marker, or the protocol's own end after a finish reason.
    fn complete(&mut self, at_ns: i64) {
        if self.failure.is_none() {
            if self.record.content_events == 0 {
                self.fail(
                    at_ns,
                    ErrorClass::Empty,
                    Some("the stream was complete and empty"),
                );
            } else if let (Some(got), Some(asked)) =
                (self.record.completion_tokens, self.expect.exact_tokens)
                && got < asked
            {
                let text = format!("{got} of {asked} tokens although ignore_eos was asked");
                self.fail(at_ns, ErrorClass::ShortCompletion, Some(&text));
            } else {
                self.record.outcome = Outcome::Completed;
                self.record.ended_ns = at_ns;
                self.record.ended_kernel_ns = self.kernel_ns(at_ns);
                self.decided = true;
                return;
            }
        }
        self.decide();
    }

    fn stream_error(&mut self, at_ns: i64, json: &str) {
        let (code, message) = delta::error_object(json).unwrap_or((None, json.to_owned()));
        self.record.error_code = code;
        self.fail(at_ns, ErrorClass::InStreamError, Some(&message));
        self.decide();
    }

    /// A body without any event: an error object, another kind of document, or nothing.
    fn fail_without_event(&mut self, at_ns: i64) {
        if self.sample.trim_ascii().is_empty() {
            let text = "the response ended without any event";
            self.fail(at_ns, ErrorClass::Empty, Some(text));
        } else if self.looks_like_events() {
            let text = "the connection was closed inside the first event";
            self.fail(at_ns, ErrorClass::Truncated, Some(text));
        } else {
            // `decide` looks into the sample.
            self.fail(at_ns, ErrorClass::NotSse, Some("no event in the body"));
        }
    }

    /// Whether the sample has a line that only an event stream has.
    fn looks_like_events(&self) -> bool {
        self.sample
            .split(|b| matches!(b, b'\n' | b'\r'))
            .any(|line| {
                [&b"data:"[..], b":", b"event:", b"id:", b"retry:"]
                    .iter()
                    .any(|field| line.starts_with(field))
            })
    }

    /// A failure is certain; the first one stands.
    fn fail(&mut self, at_ns: i64, class: ErrorClass, text: Option<&str>) {
        if self.failure.is_none() {
            self.failure = Some((class, at_ns));
            self.record.ended_kernel_ns = self.kernel_ns(at_ns);
            if let Some(text) = text {
                self.set_text(text);
            }
        }
    }

    /// Fixes a failure, with what the kept body says about it.
    fn decide(&mut self) {
        let Some((mut class, at_ns)) = self.failure else {
            return;
        };
        if matches!(class, ErrorClass::HttpStatus | ErrorClass::NotSse) && !self.sample.is_empty() {
            let mut body = String::from_utf8_lossy(&self.sample).into_owned();
            if self.sample.len() == MAX_SAMPLE_BYTES
                && let Some(secret) = &self.expect.secret
            {
                secret.cut_beginning(&mut body);
            }
            match delta::error_object(body.trim()) {
                Some((code, message)) => {
                    self.record.error_code = code;
                    self.set_text(&message);
                    if class == ErrorClass::NotSse {
                        class = ErrorClass::InStreamError;
                    }
                }
                None => {
                    let what = self.record.error_text.take();
                    let text = match what {
                        Some(what) => format!("{what}: {}", body.trim()),
                        None => body.trim().to_owned(),
                    };
                    self.set_text(&text);
                }
            }
        }
        self.sample = Vec::new();
        self.record.outcome = Outcome::Errored;
        self.record.error_class = Some(class);
        self.record.ended_ns = at_ns;
        self.decided = true;
    }

    fn set_text(&mut self, text: &str) {
        // The secret goes first: cutting might leave half of it.
        self.record.error_text = Some(bounded_reason(&self.redacted(text)));
    }

    fn redacted(&self, text: &str) -> String {
        match &self.expect.secret {
            Some(secret) => secret.redact(text),
            None => text.to_owned(),
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_SAMPLE_BYTES - self.sample.len();
        self.sample
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}
