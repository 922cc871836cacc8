//! A decoder of server-sent events, without I/O.
//!
//! It takes bytes in any portions and hands out each event in the very call that brought the byte
//! which completes it; the caller stamps that call. Line ends are CRLF, LF and CR, and nothing else
//! (U+2028 and U+0085 are text). A carriage return ends its line at once; a line feed after it is
//! swallowed whenever it comes. Bytes are not decoded as text here, so that a split inside a UTF-8
//! sequence needs no care. In steady state nothing is allocated: two buffers grow to the largest
//! event of their stream and are bounded by [`MAX_EVENT_BYTES`].

use memchr::memchr2;

/// Largest event, and longest line, that is accepted. A server that sends a longer one is broken, or
/// hostile.
pub const MAX_EVENT_BYTES: usize = 1 << 20;

/// Room that a buffer keeps for the next event: more than almost any, and little for a stream that had
/// one huge event and is silent since.
const KEPT_BYTES: usize = 16 << 10;

const BYTE_ORDER_MARK: &[u8; 3] = b"\xEF\xBB\xBF";

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its data lines, joined by line feeds.
    pub data: &'a [u8],
    /// Whether its event type is `error`.
    pub named_error: bool,
}

/// An event grew beyond [`MAX_EVENT_BYTES`]; the decoder is of no more use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event of more than {MAX_EVENT_BYTES} bytes")]
pub struct EventTooLong;

/// The decoder of one stream.
#[derive(Debug, Default)]
pub struct SseDecoder {
    /// Beginning of a line whose end has not arrived.
    line: Vec<u8>,
    /// Data of the event under way.
    data: Vec<u8>,
    has_data: bool,
    named_error: bool,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    swallow_line_feed: bool,
    /// Bytes of a byte order mark seen so far; `None` once the stream's first byte is past.
    mark: Option<usize>,
    begun: bool,
}

impl SseDecoder {
    /// A decoder at the start of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next bytes and hands each event that they complete to `sink`, in order.
    ///
    /// An event that the end of the stream cuts short is never handed out, as the standard demands.
    ///
    /// # Errors
    /// [`EventTooLong`]; events before the long one were handed out.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(SseEvent<'_>),
    ) -> Result<(), EventTooLong> {
        let mut rest = if self.begun {
            bytes
        } else {
            self.skip_mark(bytes)
        };
        while !rest.is_empty() {
            if self.swallow_line_feed {
                self.swallow_line_feed = false;
                if rest[0] == b'\n' {
                    rest = &rest[1..];
                    continue;
                }
            }
            let Some(end) = memchr2(b'\n', b'\r', rest) else {
                self.check(rest.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            self.check(end)?;
            // Almost every event is one data line and comes whole: it is handed out where it lies.
            if rest[end..].starts_with(b"\n\n")
                && self.line.is_empty()
                && !self.has_data
                && let Some(data) = data_value(&rest[..end])
            {
                sink(SseEvent {
                    data,
                    named_error: std::mem::take(&mut self.named_error),
                });
                rest = &rest[end + 2..];
                continue;
            }
            self.swallow_line_feed = rest[end] == b'\r';
            if self.line.is_empty() {
                self.end_line(&rest[..end], &mut sink);
            } else {
                self.line.extend_from_slice(&rest[..end]);
                let mut line = std::mem::take(&mut self.line);
                self.end_line(&line, &mut sink);
                line.clear();
                line.shrink_to(KEPT_BYTES);
                self.line = line;
            }
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    fn check(&self, more: usize) -> Result<(), EventTooLong> {
        if self.line.len() + self.data.len() + more > MAX_EVENT_BYTES {
            return Err(EventTooLong);
        }
        Ok(())
    }

    /// Skips a byte order mark at the start of the stream, which may itself arrive in pieces.
    fn skip_mark<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let mut seen = self.mark.unwrap_or(0);
        while let Some(&byte) = bytes.first() {
            if byte != BYTE_ORDER_MARK[seen] {
                // No mark after all: what looked like one is text.
                self.line.extend_from_slice(&BYTE_ORDER_MARK[..seen]);
                self.begun = true;
                break;
            }
            seen += 1;
            bytes = &bytes[1..];
            if seen == BYTE_ORDER_MARK.len() {
                self.begun = true;
                break;
            }
        }
        self.mark = Some(seen);
        bytes
    }

    fn end_line(&mut self, line: &[u8], sink: &mut impl FnMut(SseEvent<'_>)) {
        if line.is_empty() {
            if self.has_data {
                sink(SseEvent {
                    data: &self.data,
                    named_error: self.named_error,
                });
            }
            self.data.clear();
            self.data.shrink_to(KEPT_BYTES);
            self.has_data = false;
            self.named_error = false;
            return;
        }
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &line[line.len()..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => self.named_error = value == b"error",
            // `id` and `retry` serve reconnection, which a measurement never does; a line that
            // begins with a colon is a comment; anything else is to be ignored.
            _ => {}
        }
    }
}

/// The value of a `data` field, if the line is one with a value.
fn data_value(line: &[u8]) -> Option<&[u8]> {
    let value = line.strip_prefix(b"data:")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(parts: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut decoder = SseDecoder::new();
        let mut events = Vec::new();
        for part in parts {
            decoder
                .feed(part, |e| events.push(e.data.to_vec()))
                .unwrap();
        }
        events
    }

    fn one(text: &str) -> Vec<String> {
        decode(&[text.as_bytes()])
            .into_iter()
            .map(|e| String::from_utf8(e).unwrap())
            .collect()
    }

    #[test]
    fn the_three_line_ends_and_their_mixtures() {
        for text in [
            "data: a\n\ndata: b\n\n",
            "data: a\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata: b\r\r",
            "data: a\n\r\ndata: b\r\n\n",
            "data: a\r\n\rdata: b\n\r",
        ] {
            assert_eq!(one(text), ["a", "b"], "{text:?}");
        }
    }

    #[test]
    fn fields_comments_and_joined_lines() {
        assert_eq!(one(": c\ndata: a\n: d\ndata:b\ndata\n\n"), ["a\nb\n"]);
        assert_eq!(one("data:  two spaces\n\n"), [" two spaces"]);
        assert_eq!(one("datas: x\nid: 1\nretry: 5\n\n"), Vec::<String>::new());
        assert_eq!(one("data: a: b\n\n"), ["a: b"]);
        assert_eq!(one("data\n\n"), [""]);
        assert_eq!(one("data: cut short\n"), Vec::<String>::new());
    }

    #[test]
    fn only_a_leading_mark_is_skipped() {
        assert_eq!(one("\u{feff}data: a\n\n\u{feff}data: b\n\n"), ["a"]);
        assert_eq!(decode(&[b"\xEF", b"\xBB", b"\xBFdata: a\n\n"]), [b"a"]);
        // Half a mark makes the first line an unknown field.
        assert_eq!(decode(&[b"\xEF\xBB", b"data: a\n\ndata: b\n\n"]), [b"b"]);
    }

    #[test]
    fn an_event_is_handed_out_with_the_byte_that_completes_it() {
        for (text, complete_at) in [("data: a\n\n", 9), ("data: a\r\n\r\n", 10)] {
            let mut decoder = SseDecoder::new();
            for (i, byte) in text.bytes().enumerate() {
                let mut events = 0;
                decoder.feed(&[byte], |_| events += 1).unwrap();
                assert_eq!(
                    events,
                    u32::from(i + 1 == complete_at),
                    "byte {i} of {text:?}"
                );
            }
        }
    }

    #[test]
    fn a_named_error_is_marked_and_the_mark_does_not_stick() {
        let mut decoder = SseDecoder::new();
        let mut marks = Vec::new();
        decoder
            .feed(b"event: error\ndata: x\n\ndata: y\n\n", |e| {
                marks.push(e.named_error);
            })
            .unwrap();
        assert_eq!(marks, [true, false]);
    }

    #[test]
    fn an_event_beyond_the_bound_is_refused_however_it_arrives() {
        let long = vec![b'x'; MAX_EVENT_BYTES + 1];
        assert_eq!(SseDecoder::new().feed(&long, |_| {}), Err(EventTooLong));
        let mut decoder = SseDecoder::new();
        let refused =
            (0..MAX_EVENT_BYTES).any(|_| decoder.feed(b"data: xxxxxxx\n", |_| {}).is_err());
        assert!(refused);
        let mut decoder = SseDecoder::new();
        for _ in 0..10 {
            decoder.feed(&long[..MAX_EVENT_BYTES / 2], |_| {}).unwrap();
            decoder.feed(b"\n\n", |_| {}).unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            lines in prop::collection::vec("(data|event|:|id)?[: a-c\u{2028}ä]{0,6}(\r\n|\n|\r)", 0..30),
            cuts in prop::collection::vec(0usize..200, 0..20),
        ) {
            let bytes = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let parts: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            let bytewise: Vec<&[u8]> = bytes.chunks(1).collect();
            let whole = decode(&[&bytes]);
            prop_assert_eq!(&decode(&parts), &whole);
            prop_assert_eq!(&decode(&bytewise), &whole);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = SseDecoder::new().feed(&bytes, |_| {});
        }
    }
}
