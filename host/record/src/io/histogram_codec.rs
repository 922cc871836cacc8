//! HdrHistogram V2 bytes, with the header checked before the library allocates by it.

use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer, V2Serializer};
use std::io::Read;

use crate::{MAX_GAP_US, SIGNIFICANT_FIGURES};

/// Largest uncompressed form of one histogram that is read.
pub(crate) const MAX_HISTOGRAM_BYTES: usize = 4 << 20;

/// `V2` cookie of the format, uncompressed and compressed.
const COOKIE: u32 = 0x1c84_9303 | 0x10;
const COOKIE_COMPRESSED: u32 = 0x1c84_9304 | 0x10;
/// Header of the uncompressed form: cookie, payload length, normalizing offset, figures, lowest,
/// highest, ratio.
const HEADER_BYTES: usize = 40;

/// Appends the uncompressed V2 form.
pub(crate) fn encode(histogram: &Histogram<u32>, out: &mut Vec<u8>) -> Result<(), String> {
    V2Serializer::new()
        .serialize(histogram, out)
        .map(|_| ())
        .map_err(|e| e.to_string())
}

/// Appends the compressed V2 form, which histogram logs hold in base64.
pub(crate) fn encode_compressed(
    histogram: &Histogram<u32>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    V2DeflateSerializer::new()
        .serialize(histogram, out)
        .map(|_| ())
        .map_err(|e| e.to_string())
}

/// Decodes the uncompressed form of a histogram of the pinned configuration.
pub(crate) fn decode(bytes: &[u8]) -> Result<Histogram<u32>, String> {
    let word = |at: usize| {
        bytes
            .get(at..at + 4)
            .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
            .ok_or_else(|| "histogram header cut short".to_owned())
    };
    if word(0)? != COOKIE {
        return Err("no HdrHistogram V2 cookie".to_owned());
    }
    let payload = word(4)? as usize;
    if bytes.len() < HEADER_BYTES || payload > bytes.len() - HEADER_BYTES {
        return Err("histogram payload cut short".to_owned());
    }
    if word(12)? != u32::from(SIGNIFICANT_FIGURES) {
        return Err(format!(
            "histogram with {} significant figures instead of {SIGNIFICANT_FIGURES}",
            word(12)?
        ));
    }
    let highest = (u64::from(word(24)?) << 32) | u64::from(word(28)?);
    // A power of two above the largest recorded value still fits.
    if highest > MAX_GAP_US * 4 {
        return Err(format!("histogram up to {highest} µs, beyond {MAX_GAP_US}"));
    }
    let decoded: Histogram<u32> = Deserializer::new()
        .deserialize(&mut &bytes[..HEADER_BYTES + payload])
        .map_err(|e| e.to_string())?;
    // Its size is fixed by its header; the pinned one grows.
    let mut grown = Histogram::new(SIGNIFICANT_FIGURES).map_err(|e| e.to_string())?;
    grown.add(&decoded).map_err(|e| e.to_string())?;
    Ok(grown)
}

/// Decodes the compressed form.
pub(crate) fn decode_compressed(bytes: &[u8]) -> Result<Histogram<u32>, String> {
    let (head, body) = bytes
        .split_at_checked(8)
        .ok_or_else(|| "histogram header cut short".to_owned())?;
    let cookie = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let length = u32::from_be_bytes([head[4], head[5], head[6], head[7]]) as usize;
    if cookie != COOKIE_COMPRESSED {
        return Err("no HdrHistogram V2 compressed cookie".to_owned());
    }
    let body = body
        .get(..length)
        .ok_or_else(|| "compressed histogram cut short".to_owned())?;
    let mut plain = Vec::new();
    ZlibDecoder::new(body)
        .take(MAX_HISTOGRAM_BYTES as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(|e| e.to_string())?;
    if plain.len() > MAX_HISTOGRAM_BYTES {
        return Err(format!("histogram larger than {MAX_HISTOGRAM_BYTES} bytes"));
    }
    decode(&plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Histogram<u32> {
        let mut h = Histogram::new(SIGNIFICANT_FIGURES).unwrap();
        for v in [1, 10_000, 10_007, 14_000_000, MAX_GAP_US] {
            h.record(v).unwrap();
        }
        h
    }

    #[test]
    fn both_forms_round_trip() {
        let (mut plain, mut packed) = (Vec::new(), Vec::new());
        encode(&sample(), &mut plain).unwrap();
        encode_compressed(&sample(), &mut packed).unwrap();
        assert_eq!(decode(&plain).unwrap(), sample());
        assert_eq!(decode_compressed(&packed).unwrap(), sample());
    }

    #[test]
    fn a_header_that_lies_is_refused_before_it_allocates() {
        let mut plain = Vec::new();
        encode(&sample(), &mut plain).unwrap();
        for (at, value) in [(4, u32::MAX), (12, 5), (24, u32::MAX)] {
            let mut lie = plain.clone();
            lie[at..at + 4].copy_from_slice(&value.to_be_bytes());
            assert!(decode(&lie).is_err(), "offset {at}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0usize..400,
            value: u8,
        ) {
            let _ = decode(&bytes);
            let _ = decode_compressed(&bytes);
            let mut plain = Vec::new();
            encode(&sample(), &mut plain).unwrap();
            let at = at % plain.len();
            plain[at] = value;
            let _ = decode(&plain);
        }
    }
}
