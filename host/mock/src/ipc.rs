//! The wire between the API process and the engine process: a Unix stream
//! socket carrying one length-prefixed JSON configuration and then fixed-size
//! records both ways. Fixed size keeps parsing trivial, bounded and batchable.

/// Bytes of one record.
pub const RECORD_BYTES: usize = 32;
/// The largest configuration message accepted at start.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The token budget was used up.
    Length,
    /// The model ended its answer (end-of-sequence).
    Stop,
    /// Cut by the server (shutdown) or by the client going away.
    Abort,
}

impl Finish {
    /// The word in the OpenAI API and in vLLM's metrics.
    pub fn word(self) -> &'static str {
        match self {
            Finish::Length => "length",
            Finish::Stop => "stop",
            Finish::Abort => "abort",
        }
    }

    fn code(value: Option<Finish>) -> u8 {
        match value {
            None => 0,
            Some(Finish::Length) => 1,
            Some(Finish::Stop) => 2,
            Some(Finish::Abort) => 3,
        }
    }

    fn from_code(code: u8) -> Result<Option<Finish>, WireError> {
        Ok(match code {
            0 => None,
            1 => Some(Finish::Length),
            2 => Some(Finish::Stop),
            3 => Some(Finish::Abort),
            other => return Err(WireError::Finish(other)),
        })
    }
}

/// A record that is not one of ours.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// Unknown record kind.
    #[error(
        "engine socket: unknown record kind {0}; API and engine process must be the same build"
    )]
    Kind(u8),
    /// Unknown finish code.
    #[error(
        "engine socket: unknown finish code {0}; API and engine process must be the same build"
    )]
    Finish(u8),
}

/// From the API process to the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToEngine {
    /// A request to schedule.
    Submit {
        /// Chosen by the API process, unique in its life.
        id: u64,
        /// Prompt length, tokens.
        prompt_tokens: u32,
        /// Tokens to generate, at least 1.
        max_tokens: u32,
        /// Ends with `stop` instead of `length`.
        stops: bool,
        /// When the request reached the API process, CLOCK_MONOTONIC ns.
        arrival_ns: u64,
    },
    /// The client went away.
    Abort {
        /// Request.
        id: u64,
    },
    /// Stop (or restart) the engine's clock: nothing is admitted, nothing comes out.
    Stall {
        /// True stops.
        on: bool,
    },
    /// Abort everything, report it, and exit.
    Shutdown,
}

/// From the engine to the API process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromEngine {
    /// Start-up is over.
    Ready {
        /// When the last start-up phase ended, CLOCK_MONOTONIC ns.
        at_ns: u64,
        /// Process id of the worker, 0 without one.
        worker_pid: u32,
    },
    /// Start-up failed; the engine's own lines say why.
    Failed,
    /// A request left the queue.
    Admitted {
        /// Request.
        id: u64,
        /// Admission instant, CLOCK_MONOTONIC ns.
        at_ns: u64,
    },
    /// One token.
    Token {
        /// Request.
        id: u64,
        /// 0-based.
        index: u32,
        /// The instant the token was due, CLOCK_MONOTONIC ns.
        due_ns: u64,
        /// Set on the last token.
        finish: Option<Finish>,
    },
    /// The sequence ended without a further token.
    Ended {
        /// Request.
        id: u64,
        /// CLOCK_MONOTONIC ns.
        at_ns: u64,
        /// Why.
        finish: Finish,
    },
}

fn pack(kind: u8, code: u8, a: u32, id: u64, x: u64, y: u64) -> [u8; RECORD_BYTES] {
    let mut r = [0_u8; RECORD_BYTES];
    r[0] = kind;
    r[1] = code;
    r[4..8].copy_from_slice(&a.to_le_bytes());
    r[8..16].copy_from_slice(&id.to_le_bytes());
    r[16..24].copy_from_slice(&x.to_le_bytes());
    r[24..32].copy_from_slice(&y.to_le_bytes());
    r
}

struct Unpacked {
    kind: u8,
    code: u8,
    a: u32,
    id: u64,
    x: u64,
    y: u64,
}

fn unpack(r: &[u8; RECORD_BYTES]) -> Unpacked {
    let word = |at: usize| {
        let mut b = [0_u8; 8];
        b.copy_from_slice(&r[at..at + 8]);
        u64::from_le_bytes(b)
    };
    Unpacked {
        kind: r[0],
        code: r[1],
        a: (word(0) >> 32) as u32,
        id: word(8),
        x: word(16),
        y: word(24),
    }
}

impl ToEngine {
    /// Encodes one record.
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        match self {
            ToEngine::Submit {
                id,
                prompt_tokens,
                max_tokens,
                stops,
                arrival_ns,
            } => pack(
                1,
                u8::from(stops),
                prompt_tokens,
                id,
                u64::from(max_tokens),
                arrival_ns,
            ),
            ToEngine::Abort { id } => pack(2, 0, 0, id, 0, 0),
            ToEngine::Stall { on } => pack(3, u8::from(on), 0, 0, 0, 0),
            ToEngine::Shutdown => pack(4, 0, 0, 0, 0, 0),
        }
    }

    /// Decodes one record.
    pub fn decode(r: &[u8; RECORD_BYTES]) -> Result<Self, WireError> {
        let u = unpack(r);
        Ok(match u.kind {
            1 => ToEngine::Submit {
                id: u.id,
                prompt_tokens: u.a,
                max_tokens: u32::try_from(u.x).unwrap_or(u32::MAX).max(1),
                stops: u.code != 0,
                arrival_ns: u.y,
            },
            2 => ToEngine::Abort { id: u.id },
            3 => ToEngine::Stall { on: u.code != 0 },
            4 => ToEngine::Shutdown,
            other => return Err(WireError::Kind(other)),
        })
    }
}

impl FromEngine {
    /// Encodes one record.
    pub fn encode(self) -> [u8; RECORD_BYTES] {
        match self {
            FromEngine::Ready { at_ns, worker_pid } => pack(101, 0, worker_pid, 0, at_ns, 0),
            FromEngine::Failed => pack(102, 0, 0, 0, 0, 0),
            FromEngine::Admitted { id, at_ns } => pack(103, 0, 0, id, at_ns, 0),
            FromEngine::Token {
                id,
                index,
                due_ns,
                finish,
            } => pack(104, Finish::code(finish), index, id, due_ns, 0),
            FromEngine::Ended { id, at_ns, finish } => {
                pack(105, Finish::code(Some(finish)), 0, id, at_ns, 0)
            }
        }
    }

    /// Decodes one record.
    pub fn decode(r: &[u8; RECORD_BYTES]) -> Result<Self, WireError> {
        let u = unpack(r);
        Ok(match u.kind {
            101 => FromEngine::Ready {
                at_ns: u.x,
                worker_pid: u.a,
            },
            102 => FromEngine::Failed,
            103 => FromEngine::Admitted {
                id: u.id,
                at_ns: u.x,
            },
            104 => FromEngine::Token {
                id: u.id,
                index: u.a,
                due_ns: u.x,
                finish: Finish::from_code(u.code)?,
            },
            105 => FromEngine::Ended {
                id: u.id,
                at_ns: u.x,
                finish: Finish::from_code(u.code)?.ok_or(WireError::Finish(0))?,
            },
            other => return Err(WireError::Kind(other)),
        })
    }
}

/// Takes whole records off the front of `buffer`, leaving a partial one.
pub fn drain_records<T>(
    buffer: &mut Vec<u8>,
    decode: impl Fn(&[u8; RECORD_BYTES]) -> Result<T, WireError>,
    mut each: impl FnMut(T),
) -> Result<(), WireError> {
    let whole = buffer.len() / RECORD_BYTES * RECORD_BYTES;
    for chunk in buffer[..whole].chunks_exact(RECORD_BYTES) {
        let mut r = [0_u8; RECORD_BYTES];
        r.copy_from_slice(chunk);
        each(decode(&r)?);
    }
    buffer.drain(..whole);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_wire_at_every_split() {
        let sent = [
            ToEngine::Submit {
                id: u64::MAX,
                prompt_tokens: 7,
                max_tokens: u32::MAX,
                stops: true,
                arrival_ns: 123_456_789_012,
            },
            ToEngine::Abort { id: 3 },
            ToEngine::Stall { on: true },
            ToEngine::Stall { on: false },
            ToEngine::Shutdown,
        ];
        let bytes: Vec<u8> = sent.iter().flat_map(|m| m.encode()).collect();
        for split in 0..=bytes.len() {
            let mut buffer = Vec::new();
            let mut got = Vec::new();
            for part in [&bytes[..split], &bytes[split..]] {
                buffer.extend_from_slice(part);
                drain_records(&mut buffer, ToEngine::decode, |m| got.push(m)).unwrap();
            }
            assert_eq!(got, sent, "split at {split}");
        }
    }

    #[test]
    fn engine_records_round_trip() {
        for m in [
            FromEngine::Ready {
                at_ns: 5,
                worker_pid: 77,
            },
            FromEngine::Failed,
            FromEngine::Admitted { id: 1, at_ns: 2 },
            FromEngine::Token {
                id: 9,
                index: 31,
                due_ns: 4,
                finish: None,
            },
            FromEngine::Token {
                id: 9,
                index: 31,
                due_ns: 4,
                finish: Some(Finish::Stop),
            },
            FromEngine::Ended {
                id: 9,
                at_ns: 4,
                finish: Finish::Abort,
            },
        ] {
            assert_eq!(FromEngine::decode(&m.encode()).unwrap(), m);
        }
    }

    #[test]
    fn foreign_bytes_are_an_error() {
        assert_eq!(
            FromEngine::decode(&[9; RECORD_BYTES]),
            Err(WireError::Kind(9))
        );
        let mut r = FromEngine::Token {
            id: 1,
            index: 1,
            due_ns: 1,
            finish: None,
        }
        .encode();
        r[1] = 77;
        assert_eq!(FromEngine::decode(&r), Err(WireError::Finish(77)));
    }
}
