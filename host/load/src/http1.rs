//! An HTTP/1.1 response, taken apart as it arrives. Without I/O.
//!
//! It takes bytes in any portions and hands out each part in the very call that brought its last byte,
//! so that the caller's stamp of that read is the stamp of the part. Body data is handed out where it
//! lies in the read's own buffer: nothing is copied, nothing is kept but a head that is not whole yet.
//! Strict where laxness would hide a broken server: a chunk's size, its line ends and its length must
//! be right, and so must the lengths of a head.

use memchr::{memchr, memrchr};

/// Largest head, and most bytes of trailers and chunk extensions, that is accepted.
pub const MAX_HEAD_BYTES: usize = 64 << 10;
/// Most headers.
const MAX_HEADERS: usize = 128;

/// The head of a response.
#[derive(Debug)]
pub struct Head<'h, 'b> {
    /// Its status.
    pub status: u16,
    headers: &'h [httparse::Header<'b>],
}

impl<'b> Head<'_, 'b> {
    /// The first header of a name, if its value is text.
    pub fn text(&self, name: &str) -> Option<&'b str> {
        let value = self.values(name).next()?;
        std::str::from_utf8(value).ok()
    }

    fn values<'n>(&self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'_, 'n, 'b> {
        self.headers
            .iter()
            .filter(move |h| h.name.eq_ignore_ascii_case(name))
            .map(|h| h.value)
    }

    /// Whether a header that is a list has an entry.
    fn lists(&self, name: &str, entry: &str) -> bool {
        self.values(name).any(|value| {
            value
                .split(|&b| b == b',')
                .any(|item| item.trim_ascii().eq_ignore_ascii_case(entry.as_bytes()))
        })
    }

    fn framing(&self) -> Result<Framing, Malformed> {
        if matches!(self.status, 204 | 304) {
            return Ok(Framing::Whole);
        }
        if self.values("transfer-encoding").next().is_some() {
            // Whatever else is announced: chunks say where the body ends if they are the last coding,
            // and otherwise nothing but the connection does.
            let last = self
                .values("transfer-encoding")
                .last()
                .and_then(|value| value.rsplit(|&b| b == b',').next())
                .unwrap_or_default();
            return Ok(if last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                Framing::Chunked(Chunk::Size { digits: 0 }, 0)
            } else {
                Framing::UntilClose
            });
        }
        let mut length = None;
        for value in self.values("content-length") {
            let value = std::str::from_utf8(value)
                .ok()
                .map(str::trim)
                .filter(|v| v.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|v| v.parse::<u64>().ok())
                .ok_or(Malformed("a content length that is no number"))?;
            if length.is_some_and(|before| before != value) {
                return Err(Malformed("two content lengths that differ"));
            }
            length = Some(value);
        }
        Ok(match length {
            Some(0) => Framing::Whole,
            Some(n) => Framing::Length(n),
            None => Framing::UntilClose,
        })
    }
}

/// A part of a response.
#[derive(Debug)]
pub enum Part<'p, 'h, 'b> {
    /// The head; informational ones (1xx) are not handed out.
    Head(&'p Head<'h, 'b>),
    /// Data of the body.
    Data(&'p [u8]),
    /// The body is whole.
    End,
}

/// These bytes are no HTTP/1.1 response; what is wrong with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not HTTP/1.1: {0}")]
pub struct Malformed(&'static str);

const NOT_HTTP: Malformed = Malformed("another version, or not HTTP at all");

/// Whether these first bytes may become a head. A server that speaks something else may wait for an
/// answer and never end its line.
fn may_begin_a_head(bytes: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"HTTP/1.";
    let blank = bytes.iter().take_while(|b| b"\r\n".contains(b)).count();
    BEGINNING
        .iter()
        .zip(&bytes[blank..])
        .all(|(wanted, byte)| wanted == byte)
}

/// How the end of a body is known.
#[derive(Debug)]
enum Framing {
    /// So many bytes are left.
    Length(u64),
    /// The last chunk says so; and how much of [`MAX_HEAD_BYTES`] extensions and trailers have taken.
    Chunked(Chunk, usize),
    /// The connection is closed.
    UntilClose,
    /// It is whole.
    Whole,
}

/// Where a chunked body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In the size, of which so many digits came; the number is in `left`.
    Size { digits: u8 },
    /// Behind the size.
    Extension,
    /// Before the line feed of the size's line.
    SizeEnd,
    /// In the data.
    Data,
    /// Before the carriage return behind the data.
    DataReturn,
    /// Before the line feed behind the data.
    DataEnd,
    /// At the start of a line behind the last chunk.
    TrailerStart,
    /// In a trailer.
    Trailer,
    /// Before the line feed of a trailer.
    TrailerEnd,
    /// Before the very last line feed.
    LastEnd,
}

/// The response to one request.
#[derive(Debug)]
pub struct ResponseReader {
    /// Beginning of a head that is not whole.
    head: Vec<u8>,
    /// Once the head is known.
    framing: Option<Framing>,
    /// Bytes of the chunk under way, or its size so far.
    chunk_left: u64,
    keep_alive: bool,
    /// Bytes came behind its end.
    excess: bool,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseReader {
    /// Before its first byte.
    pub fn new() -> Self {
        Self {
            head: Vec::new(),
            framing: None,
            chunk_left: 0,
            keep_alive: true,
            excess: false,
        }
    }

    /// Whether a byte of it came.
    pub fn begun(&self) -> bool {
        self.framing.is_some() || !self.head.is_empty()
    }

    /// Whether its body is whole.
    pub fn whole(&self) -> bool {
        matches!(self.framing, Some(Framing::Whole))
    }

    /// Whether the head came.
    pub fn has_head(&self) -> bool {
        self.framing.is_some()
    }

    /// Whether another request may follow on its connection.
    pub fn reusable(&self) -> bool {
        self.whole() && self.keep_alive && !self.excess
    }

    /// Whether the end of the connection is the proper end of the body.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.framing, Some(Framing::UntilClose | Framing::Whole))
    }

    /// Takes the next bytes and hands out the parts that they complete, in order.
    ///
    /// # Errors
    /// [`Malformed`]; the parts before were handed out, and it is of no more use.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(Part<'_, '_, '_>),
    ) -> Result<(), Malformed> {
        let mut rest = bytes;
        while self.framing.is_none() {
            let Some(length) = self.take_head(rest, &mut sink)? else {
                return Ok(());
            };
            rest = &rest[length..];
            if self.whole() {
                sink(Part::End);
            }
        }
        self.take_body(rest, &mut sink)
    }

    /// How many of these bytes the head took, once it is whole.
    fn take_head(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(Part<'_, '_, '_>),
    ) -> Result<Option<usize>, Malformed> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let before = self.head.len();
        let mut gathered = std::mem::take(&mut self.head);
        let all = if before == 0 {
            bytes
        } else {
            gathered.extend_from_slice(bytes);
            // Without a line's end there is nothing new to see: a head that comes byte by byte must
            // not be parsed as often.
            if memchr(b'\n', bytes).is_none()
                && gathered.len() <= MAX_HEAD_BYTES
                && may_begin_a_head(&gathered)
            {
                self.head = gathered;
                return Ok(None);
            }
            &gathered
        };
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        if !may_begin_a_head(all) {
            return Err(NOT_HTTP);
        }
        // Whole lines only: what is wrong with one is found when it is whole, in whatever portions it comes.
        let lines = memrchr(b'\n', all).map_or(0, |end| end + 1);
        let parsed = response.parse(&all[..lines]).map_err(|e| {
            Malformed(match e {
                httparse::Error::TooManyHeaders => "too many headers",
                httparse::Error::Version => return NOT_HTTP,
                httparse::Error::Status => "no status line",
                _ => "a broken head",
            })
        })?;
        let too_long = Err(Malformed("a head of more than 64 KiB"));
        let httparse::Status::Complete(length) = parsed else {
            if all.len() > MAX_HEAD_BYTES {
                return too_long;
            }
            if before == 0 {
                gathered.extend_from_slice(bytes);
            }
            self.head = gathered;
            return Ok(None);
        };
        if length > MAX_HEAD_BYTES {
            return too_long;
        }
        let status = response.code.unwrap_or_default();
        let head = Head {
            status,
            headers: response.headers,
        };
        match status {
            101 => return Err(Malformed("a change of protocol that nobody asked for")),
            // Another head follows.
            100..200 => {}
            _ => {
                self.framing = Some(head.framing()?);
                let current = response.version == Some(1);
                self.keep_alive = if current {
                    !head.lists("connection", "close")
                } else {
                    head.lists("connection", "keep-alive")
                };
                sink(Part::Head(&head));
            }
        }
        // Of the bytes before, none was behind this head: it was not whole then.
        Ok(Some(length.saturating_sub(before)))
    }

    fn take_body(
        &mut self,
        bytes: &[u8],
        sink: &mut impl FnMut(Part<'_, '_, '_>),
    ) -> Result<(), Malformed> {
        let mut rest = bytes;
        while !rest.is_empty() {
            match &mut self.framing {
                None => return Ok(()),
                Some(Framing::Whole) => {
                    self.excess = true;
                    return Ok(());
                }
                Some(Framing::UntilClose) => {
                    sink(Part::Data(rest));
                    return Ok(());
                }
                Some(Framing::Length(left)) => {
                    let n = usize::try_from(*left).map_or(rest.len(), |n| n.min(rest.len()));
                    *left -= n as u64;
                    let last = *left == 0;
                    sink(Part::Data(&rest[..n]));
                    rest = &rest[n..];
                    if last {
                        self.framing = Some(Framing::Whole);
                        sink(Part::End);
                    }
                }
                Some(Framing::Chunked(at, overhead)) => {
                    let left = &mut self.chunk_left;
                    let step = chunk_step(at, overhead, left, rest)?;
                    if let Some(data) = step.data {
                        sink(Part::Data(data));
                    }
                    rest = &rest[step.taken..];
                    if step.last {
                        self.framing = Some(Framing::Whole);
                        sink(Part::End);
                    }
                }
            }
        }
        Ok(())
    }
}

/// What the next bytes of a chunked body are.
struct Step<'b> {
    taken: usize,
    data: Option<&'b [u8]>,
    last: bool,
}

fn chunk_step<'b>(
    at: &mut Chunk,
    overhead: &mut usize,
    left: &mut u64,
    rest: &'b [u8],
) -> Result<Step<'b>, Malformed> {
    let mut step = Step {
        taken: 1,
        data: None,
        last: false,
    };
    let byte = rest[0];
    let expect = |wanted: u8, what: &'static str| {
        if byte == wanted {
            Ok(())
        } else {
            Err(Malformed(what))
        }
    };
    match *at {
        Chunk::Size { digits } => {
            if digits == 0 {
                *left = 0;
            }
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                b'\r' if digits > 0 => {
                    *at = Chunk::SizeEnd;
                    return Ok(step);
                }
                b';' | b' ' | b'\t' if digits > 0 => {
                    *at = Chunk::Extension;
                    return Ok(step);
                }
                _ => return Err(Malformed("a chunk without a size")),
            };
            // 15 digits are more than any body; a 16th could overflow.
            if digits == 15 {
                return Err(Malformed("a chunk's size is beyond reason"));
            }
            *left = *left * 16 + u64::from(digit);
            *at = Chunk::Size { digits: digits + 1 };
        }
        Chunk::Extension => {
            let end = memchr(b'\r', rest);
            step.taken = end.map_or(rest.len(), |n| n + 1);
            spend(overhead, step.taken)?;
            if end.is_some() {
                *at = Chunk::SizeEnd;
            }
        }
        Chunk::SizeEnd => {
            expect(b'\n', "a chunk's size is not followed by a line end")?;
            *at = if *left == 0 {
                Chunk::TrailerStart
            } else {
                // Extensions are bounded for each chunk: a long stream may have one on each.
                *overhead = 0;
                Chunk::Data
            };
        }
        Chunk::Data => {
            let n = usize::try_from(*left).map_or(rest.len(), |n| n.min(rest.len()));
            *left -= n as u64;
            if *left == 0 {
                *at = Chunk::DataReturn;
            }
            step.taken = n;
            step.data = Some(&rest[..n]);
        }
        Chunk::DataReturn => {
            expect(b'\r', "a chunk is longer than its size")?;
            *at = Chunk::DataEnd;
        }
        Chunk::DataEnd => {
            expect(b'\n', "a chunk is longer than its size")?;
            *at = Chunk::Size { digits: 0 };
        }
        Chunk::TrailerStart if byte == b'\r' => *at = Chunk::LastEnd,
        Chunk::TrailerStart | Chunk::Trailer => {
            let end = memchr(b'\r', rest);
            step.taken = end.map_or(rest.len(), |n| n + 1);
            spend(overhead, step.taken)?;
            *at = if end.is_some() {
                Chunk::TrailerEnd
            } else {
                Chunk::Trailer
            };
        }
        Chunk::TrailerEnd => {
            expect(b'\n', "a trailer without a line end")?;
            *at = Chunk::TrailerStart;
        }
        Chunk::LastEnd => {
            expect(b'\n', "the last chunk without a line end")?;
            step.last = true;
        }
    }
    Ok(step)
}

fn spend(overhead: &mut usize, bytes: usize) -> Result<(), Malformed> {
    *overhead += bytes;
    if *overhead > MAX_HEAD_BYTES {
        return Err(Malformed(
            "more than 64 KiB of trailers or chunk extensions",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        status: Option<u16>,
        content_type: Option<String>,
        data: Vec<u8>,
        ended: bool,
        malformed: Option<Malformed>,
        reusable: bool,
        clean_at_close: bool,
    }

    fn read(portions: &[&[u8]]) -> Seen {
        let mut reader = ResponseReader::new();
        let mut seen = Seen::default();
        for portion in portions {
            let fed = reader.feed(portion, |part| match part {
                Part::Head(head) => {
                    assert_eq!(seen.status.replace(head.status), None);
                    seen.content_type = head.text("content-type").map(str::to_owned);
                }
                Part::Data(data) => {
                    assert!(!seen.ended && !data.is_empty());
                    seen.data.extend_from_slice(data);
                }
                Part::End => {
                    assert!(!seen.ended);
                    seen.ended = true;
                }
            });
            if let Err(e) = fed {
                seen.malformed = Some(e);
                return seen;
            }
        }
        seen.reusable = reader.reusable();
        seen.clean_at_close = reader.ends_with_connection();
        seen
    }

    const CHUNKED: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn a_chunked_body() {
        let seen = read(&[
            format!("{CHUNKED}5\r\nhello\r\n1;a=\"b\"\r\n!\r\n0\r\nx: y\r\n\r\n").as_bytes(),
        ]);
        assert_eq!(seen.status, Some(200));
        assert_eq!(seen.content_type.as_deref(), Some("text/event-stream"));
        assert_eq!(seen.data, b"hello!");
        assert!(seen.ended && seen.reusable);
    }

    #[test]
    fn bodies_of_a_length_and_until_the_close() {
        let seen = read(&[b"HTTP/1.1 404 Not Found\r\ncontent-length: 3\r\n\r\nno!"]);
        assert_eq!((seen.status, &seen.data[..]), (Some(404), &b"no!"[..]));
        assert!(seen.ended && seen.reusable);
        let seen = read(&[b"HTTP/1.0 200 OK\r\n\r\nall", b" of it"]);
        assert_eq!(&seen.data[..], b"all of it");
        assert!(!seen.ended && !seen.reusable && seen.clean_at_close);
        let seen = read(&[b"HTTP/1.1 204 No Content\r\n\r\n"]);
        assert!(seen.ended && seen.reusable);
        let seen = read(&[b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"]);
        assert!(seen.ended && !seen.reusable);
    }

    #[test]
    fn informational_heads_are_passed_over() {
        let seen = read(&[
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        ]);
        assert_eq!((seen.status, &seen.data[..]), (Some(200), &b"ok"[..]));
    }

    #[test]
    fn a_cut_is_no_proper_end() {
        for cut in ["", "HTTP/1.1 2", CHUNKED, &format!("{CHUNKED}5\r\nhel")] {
            assert!(!read(&[cut.as_bytes()]).clean_at_close, "{cut}");
        }
    }

    #[test]
    fn excess_bytes_spoil_the_connection_only() {
        let seen = read(&[b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 200"]);
        assert!(seen.ended && !seen.reusable && seen.malformed.is_none());
    }

    #[test]
    fn broken_ones_are_refused() {
        let long = format!("{CHUNKED}1;{}\r\nx\r\n", "e".repeat(MAX_HEAD_BYTES));
        let head = format!("HTTP/1.1 200 OK\r\nx: {}", "e".repeat(MAX_HEAD_BYTES));
        let many = format!(
            "HTTP/1.1 200 OK\r\n{}\r\n",
            "a: b\r\n".repeat(MAX_HEADERS + 1)
        );
        for (bytes, why) in [
            ("<html>", "not HTTP"),
            ("SSH-2.0-OpenSSH\r\n", "not HTTP"),
            ("HTTP/1.1 abc\r\n\r\n", "status"),
            ("HTTP/1.1 101 Switching\r\n\r\n", "change of protocol"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "no number"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
                "differ",
            ),
            (&format!("{CHUNKED}\r\n"), "without a size"),
            (&format!("{CHUNKED}zz\r\n"), "without a size"),
            (&format!("{CHUNKED}1\r\nxy\r\n"), "longer than its size"),
            (&format!("{CHUNKED}1\nx\r\n"), "without a size"),
            (&format!("{CHUNKED}ffffffffffffffff\r\n"), "beyond reason"),
            (&long, "64 KiB"),
            (&head, "64 KiB"),
            (&many, "too many"),
        ] {
            let seen = read(&[bytes.as_bytes()]);
            let error = seen.malformed.map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains(why), "{bytes:.60}: {error:?}");
        }
    }

    proptest! {
        /// However the bytes are cut, the same comes out.
        #[test]
        fn portions_change_nothing(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(0_usize..400, 0..6),
        ) {
            let mut bytes = format!("HTTP/1.1 100 Continue\r\n\r\n{CHUNKED}").into_bytes();
            for chunk in &chunks {
                bytes.extend(format!("{:X}\r\n", chunk.len()).into_bytes());
                bytes.extend(chunk);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\nt: r\r\n\r\n");
            let whole = read(&[&bytes]);
            prop_assert_eq!(&whole.data, &chunks.concat());
            prop_assert!(whole.ended && whole.reusable);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(&read(&single), &whole);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let portions: Vec<&[u8]> = cuts.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(&read(&portions), &whole);
        }

        /// Also where they are no proper response.
        #[test]
        fn portions_of_a_broken_head_change_nothing(
            lines in prop::collection::vec("(HTTP/1.1 200 OK|HTTP/1.1 2x0|x: \\x00|x: y|content-length: 2|x y|)(\r\n|\n|)", 1..6),
        ) {
            let bytes = lines.concat().into_bytes();
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(read(&single), read(&[&bytes]));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), cut in 0_usize..200) {
            for prefix in ["", "HTTP/1.1 200 OK\r\n", CHUNKED] {
                let all = [prefix.as_bytes(), &bytes].concat();
                let cut = cut.min(all.len());
                let _ = read(&[&all[..cut], &all[cut..]]);
            }
        }
    }
}
