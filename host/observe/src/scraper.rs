//! The loop that scrapes one replica's metrics for the whole run.
//!
//! Each tick has exactly one result: the samples of a whole body, or a [`EventKind::ScrapeError`].
//! A body that ends early is an error, never a shorter set of samples.

use std::error::Error;
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, RunNs};
use blackstart_record::{EventKind, MetricTable};
use hyper::http::header;
use reqwest::Client;
use tokio::sync::watch;

use crate::failure::excerpt;
use crate::observers::{ScrapeSummary, at, stopped};
use crate::prometheus::parse_text;
use crate::signal::EventSink;
use crate::table::{Kept, TableBuilder};

/// Largest body that is read, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// A scrape may take one interval, but within these bounds.
const TIMEOUT_BOUNDS_NS: (i64, i64) = (NS_PER_S, 10 * NS_PER_S);
/// Shortest interval that is honoured.
const MIN_INTERVAL_NS: i64 = 10 * NS_PER_MS;
/// Lines that are parsed before the other observers get a turn.
const LINES_PER_TURN: usize = 256;

/// One replica and how it is scraped.
pub(crate) struct Scraper {
    pub(crate) replica: String,
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) headers: header::HeaderMap,
    pub(crate) interval_ns: i64,
    pub(crate) needed: String,
    pub(crate) clock: RunClock,
    pub(crate) sink: EventSink,
    pub(crate) first_ns: RunNs,
    /// The API key, to be masked wherever the server repeats it.
    pub(crate) secret: Option<String>,
}

/// Overwrites every occurrence of a secret. The length stays, so that nothing else moves.
fn mask(body: &mut [u8], secret: &[u8]) {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(&body[from..], secret) {
        let start = from + at;
        body[start..start + secret.len()].fill(b'x');
        from = start + secret.len();
    }
}

/// A client that sends each request once, straight, on a fresh connection.
pub(crate) fn client() -> Result<Client, String> {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(0)
        .build()
        .map_err(|e| chain(&e))
}

/// What has been said once and is not said again.
#[derive(Default)]
struct Said {
    series: bool,
    samples: bool,
    malformed: bool,
}

impl Scraper {
    /// Scrapes until stopped.
    pub(crate) async fn run(
        self,
        mut stop: watch::Receiver<bool>,
    ) -> (ScrapeSummary, TableBuilder) {
        let mut summary = ScrapeSummary {
            replica: self.replica.clone(),
            scrapes: 0,
            errors: 0,
            series: 0,
            dropped_samples: 0,
            malformed_lines: 0,
        };
        let mut table = TableBuilder::new(&self.needed);
        let mut said = Said::default();
        let interval_ns = self.interval_ns.max(MIN_INTERVAL_NS);
        let timeout_ns = interval_ns.clamp(TIMEOUT_BOUNDS_NS.0, TIMEOUT_BOUNDS_NS.1);
        let timeout = Duration::from_nanos(u64::try_from(timeout_ns).unwrap_or(0));
        let mut next_ns = self.first_ns;
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                () = at(self.clock, next_ns) => {}
            }
            let before = self.clock.now();
            let fetched = tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                fetched = tokio::time::timeout(timeout, self.fetch()) => fetched,
            };
            let after = self.clock.now();
            let result = match fetched {
                Ok(Ok(body)) => {
                    let middle = before + (after - before) / 2;
                    self.keep(&body, middle, &mut table, &mut summary, &mut said)
                        .await
                }
                Ok(Err(reason)) => Err(reason),
                Err(_) => Err(format!(
                    "timeout: no whole answer within {} ms",
                    timeout_ns / NS_PER_MS
                )),
            };
            match result {
                Ok(()) => summary.scrapes += 1,
                Err(reason) => self.error(after, reason, &mut summary),
            }
            // Ticks that this scrape overran have no sample: that is said, not passed over.
            next_ns += interval_ns;
            let missed = (self.clock.now() - next_ns).max(0) / interval_ns;
            if missed > 0 {
                next_ns += missed * interval_ns;
                self.error(
                    self.clock.now(),
                    format!(
                        "late: {missed} scrape(s) left out because the one before took too long"
                    ),
                    &mut summary,
                );
            }
        }
        summary.series = table.series() as u64;
        (summary, table)
    }

    fn error(&self, at_ns: RunNs, reason: String, summary: &mut ScrapeSummary) {
        summary.errors += 1;
        self.sink.emit(
            at_ns,
            EventKind::ScrapeError {
                replica: self.replica.clone(),
                reason,
            },
        );
    }

    async fn fetch(&self) -> Result<Vec<u8>, String> {
        let mut response = self
            .client
            .get(&self.url)
            .headers(self.headers.clone())
            .header(header::ACCEPT, "text/plain; version=0.0.4, */*;q=0.1")
            .send()
            .await
            .map_err(|e| chain(&e))?;
        if response.status() != 200 {
            return Err(format!("http_status {}", response.status().as_u16()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|e| chain(&e))? {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(format!(
                    "the body is larger than {MAX_BODY_BYTES} bytes; is {} the metrics path?",
                    self.url
                ));
            }
            body.extend_from_slice(&chunk);
        }
        // A server may put what it was sent into a label.
        if let Some(secret) = &self.secret {
            mask(&mut body, secret.as_bytes());
        }
        Ok(body)
    }

    async fn keep(
        &self,
        body: &[u8],
        at_ns: RunNs,
        table: &mut TableBuilder,
        summary: &mut ScrapeSummary,
        said: &mut Said,
    ) -> Result<(), String> {
        table.next_scrape();
        let mut kept = 0_u64;
        let mut malformed = 0_u64;
        let mut first_malformed = None;
        for (count, (line, parsed)) in parse_text(body).enumerate() {
            if count % LINES_PER_TURN == LINES_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
            let (bad, why) = match parsed.map(|sample| table.push(at_ns, sample)) {
                Ok(Kept::Yes) => {
                    kept += 1;
                    continue;
                }
                Ok(Kept::TooManySeries) => {
                    summary.dropped_samples += 1;
                    self.note(at_ns, &mut said.series, || {
                        format!(
                            "has more than {} series; those beyond are not kept",
                            crate::table::MAX_SERIES
                        )
                    });
                    continue;
                }
                Ok(Kept::TooManySamples) => {
                    summary.dropped_samples += 1;
                    self.note(at_ns, &mut said.samples, || {
                        format!(
                            "gave more than {} samples; from here only {} is kept",
                            crate::table::MAX_SAMPLES,
                            self.needed
                        )
                    });
                    continue;
                }
                Ok(Kept::Duplicate) => (line, "it repeats a series of the same scrape".to_owned()),
                Err(e) => (line, e.to_string()),
            };
            malformed += 1;
            first_malformed.get_or_insert((bad, why));
        }
        summary.malformed_lines += malformed;
        if kept == 0 {
            return Err(match first_malformed {
                Some((line, why)) => format!(
                    "not Prometheus text: line {line}: {why}; the body begins {:?}",
                    excerpt(&String::from_utf8_lossy(&body[..body.len().min(1024)]))
                ),
                None => "the body holds no sample".to_owned(),
            });
        }
        if let Some((line, why)) = first_malformed {
            self.note(at_ns, &mut said.malformed, || {
                format!("has {malformed} line(s) that cannot be read, first line {line}: {why}")
            });
        }
        Ok(())
    }

    fn note(&self, at_ns: RunNs, said: &mut bool, what: impl FnOnce() -> String) {
        if std::mem::replace(said, true) {
            return;
        }
        let text = format!("metrics of {} ({}): it {}", self.replica, self.url, what());
        self.sink.emit(at_ns, EventKind::Note { text });
    }
}

/// Everything collected, in one table.
pub(crate) fn merge(parts: Vec<(String, TableBuilder)>) -> MetricTable {
    let mut table = MetricTable::default();
    for (replica, part) in parts {
        part.finish(&replica, &mut table);
    }
    table
}

/// The innermost cause, which is what says something ("Connection refused").
fn chain(error: &reqwest::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let class = if error.is_connect() {
        "connect"
    } else if error.is_body() || error.is_decode() {
        "truncated"
    } else {
        "request"
    };
    excerpt(&format!("{class}: {innermost}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_masked_wherever_the_server_repeats_it() {
        let mut body = b"m{a=\"key\"} 1\nm{b=\"Bearer key\"} 2\n".to_vec();
        mask(&mut body, b"key");
        assert_eq!(body, b"m{a=\"xxx\"} 1\nm{b=\"Bearer xxx\"} 2\n");
    }
}
