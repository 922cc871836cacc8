//! A small decoder of `text/event-stream`, bounded, for probes.
//!
//! Line ends are LF, CRLF or CR; several `data` lines of one event are joined by a newline; all
//! other fields and comments are ignored. Chunks may be split anywhere.

/// Largest event that is kept, in bytes. A one-token event has some hundred.
pub(crate) const MAX_EVENT_BYTES: usize = 256 * 1024;

/// The stream has an event larger than [`MAX_EVENT_BYTES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventTooLarge;

/// Decoder state.
#[derive(Debug, Default)]
pub(crate) struct SseDecoder {
    line: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    after_cr: bool,
}

impl SseDecoder {
    /// Feeds bytes and calls `on_event` with the data of each event that they complete.
    pub(crate) fn feed(
        &mut self,
        bytes: &[u8],
        mut on_event: impl FnMut(&[u8]),
    ) -> Result<(), EventTooLarge> {
        for &byte in bytes {
            match byte {
                b'\n' if self.after_cr => self.after_cr = false,
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(&mut on_event);
                }
                _ => {
                    self.after_cr = false;
                    self.line.push(byte);
                }
            }
            if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
                return Err(EventTooLarge);
            }
        }
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            if self.has_data {
                on_event(&self.data);
            }
            self.data.clear();
            self.has_data = false;
            return;
        }
        if let Some(value) = self.line.strip_prefix(b"data:") {
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data
                .extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            self.has_data = true;
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(chunks: &[&[u8]]) -> Vec<String> {
        let mut decoder = SseDecoder::default();
        let mut events = Vec::new();
        for chunk in chunks {
            decoder
                .feed(chunk, |e| {
                    events.push(String::from_utf8_lossy(e).into_owned());
                })
                .unwrap();
        }
        events
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let text = ": hi\r\nevent: x\r\ndata: {\"a\":\"é\"}\r\n\r\ndata:b\ndata: c\n\nid: 4\n\ndata: [DONE]\r\r";
        let expected = ["{\"a\":\"é\"}", "b\nc", "[DONE]"];
        for split in 0..=text.len() {
            let (a, b) = text.as_bytes().split_at(split);
            assert_eq!(decode(&[a, b]), expected, "split at {split}");
        }
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut decoder = SseDecoder::default();
        let piece = [b'x'; 4096];
        let refused = (0..1000).any(|_| decoder.feed(&piece, |_| {}).is_err());
        assert!(refused);
    }
}
