//! Content codings of request bodies (RFC 9110 §8.4): compressed bodies are decoded here, and
//! limits apply to the decoded bytes.

use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use std::io::Read;
use treadle_wire::{ErrorBody, ErrorCode};

/// The supported codings, for the header of a refusal.
pub(crate) const TAKEN: &str = "gzip, deflate, zstd";
/// Bytes that are decoded before yielding to other tasks.
const PIECE_BYTES: usize = 64 << 10;
/// The largest zstd window in HTTP (RFC 9659): 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// A content coding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

impl Coding {
    /// The coding in a request's headers; `None` for an uncompressed body.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, ErrorBody> {
        let mut found = None;
        for value in headers.get_all(header::CONTENT_ENCODING) {
            let value = value.to_str().map_err(|_| unknown("(not ASCII)"))?;
            for name in value.split(',').map(str::trim) {
                let coding = match name.to_ascii_lowercase().as_str() {
                    "" | "identity" => continue,
                    "gzip" | "x-gzip" => Self::Gzip,
                    "deflate" => Self::Deflate,
                    "zstd" => Self::Zstd,
                    _ => return Err(unknown(name)),
                };
                if found.replace(coding).is_some() {
                    return Err(unknown("(several codings)"));
                }
            }
        }
        Ok(found)
    }

    fn decoder<'b>(self, coded: &'b [u8]) -> std::io::Result<Box<dyn Read + Send + 'b>> {
        Ok(match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(coded)),
            // RFC 9110 means zlib's format; some clients send what is within.
            Self::Deflate if is_zlib(coded) => Box::new(ZlibDecoder::new(coded)),
            Self::Deflate => Box::new(DeflateDecoder::new(coded)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(coded)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }

    /// Decodes a body; `None` if it is longer than `bytes_max`. Each piece is accounted with `hold`
    /// before the next one is decoded.
    pub(crate) async fn decode(
        self,
        coded: &[u8],
        bytes_max: usize,
        mut hold: impl FnMut(u64) -> Result<(), ErrorBody>,
    ) -> Result<Option<Bytes>, ErrorBody> {
        let mut decoder = self.decoder(coded).map_err(|error| broken(&error))?;
        let mut whole = BytesMut::new();
        loop {
            let so_far = whole.len();
            let piece = PIECE_BYTES.min(bytes_max.saturating_sub(so_far).saturating_add(1));
            whole.resize(so_far + piece, 0);
            let read = decoder.read(&mut whole[so_far..]);
            let read = read.map_err(|error| broken(&error))?;
            whole.truncate(so_far + read);
            if read == 0 {
                return Ok(Some(whole.freeze()));
            }
            if whole.len() > bytes_max {
                return Ok(None);
            }
            hold(read as u64)?;
            tokio::task::yield_now().await;
        }
    }
}

/// Refuses compressed bodies, for paths that don't decode them.
///
/// # Errors
/// `unsupported_encoding` if it is.
pub fn refuse_coded(headers: &HeaderMap) -> Result<(), ErrorBody> {
    match Coding::of(headers)? {
        None => Ok(()),
        Some(_) => Err(ErrorBody::new(
            ErrorCode::UnsupportedEncoding,
            "this path accepts no Content-Encoding; send the body uncompressed",
        )
        .with_param("content-encoding")),
    }
}

/// zlib's header: its method is deflate, and its check fits.
fn is_zlib(coded: &[u8]) -> bool {
    matches!(coded, [first, second, ..]
        if first & 0x0f == 8 && (u16::from(*first) << 8 | u16::from(*second)) % 31 == 0)
}

fn unknown(name: &str) -> ErrorBody {
    let shown: String = name.chars().take(100).collect();
    let message = format!(
        "the Content-Encoding `{shown}` is not supported; send the body uncompressed, or with one \
         of {TAKEN}"
    );
    ErrorBody::new(ErrorCode::UnsupportedEncoding, message).with_param("content-encoding")
}

fn broken(error: &std::io::Error) -> ErrorBody {
    let message = format!("the body does not match its Content-Encoding: {error}");
    ErrorBody::new(ErrorCode::InvalidField, message).with_param("content-encoding")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InUse;
    use crate::body::{BodyLimits, read};
    use crate::tally::Tally;
    use axum::body::Body;
    use axum::http::HeaderValue;
    use flate2::Compression;
    use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};
    use std::sync::Arc;
    use std::time::Duration;

    const PLAIN: &[u8] =
        b"{\"messages\": [{\"role\": \"user\", \"content\": \"hello hello hello\"}]}";

    fn all_of(mut reader: impl Read) -> Vec<u8> {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn gzip(plain: &[u8]) -> Vec<u8> {
        all_of(GzEncoder::new(plain, Compression::best()))
    }

    /// What is read of a body with such headers, by a daemon that takes `bytes_max`, and what its
    /// tally has then.
    async fn outcome(
        codings: &[&str],
        body: Vec<u8>,
        bytes_max: usize,
    ) -> (Result<Bytes, ErrorBody>, bool, u64) {
        let mut headers = HeaderMap::new();
        for coding in codings {
            headers.append(
                header::CONTENT_ENCODING,
                HeaderValue::from_str(coding).unwrap(),
            );
        }
        let all = Arc::new(Tally::default());
        let limits = BodyLimits {
            bytes_max,
            pause_max: Duration::from_mins(1),
            in_use: InUse::new([(all.clone(), 1 << 30), (Arc::default(), 1 << 30)]),
        };
        let read = read(&mut headers, Body::from(body), limits).await;
        let used = all.used();
        let is_left = headers.contains_key(header::CONTENT_ENCODING);
        (read.map(|(bytes, _)| bytes), is_left, used)
    }

    #[tokio::test]
    async fn what_clients_compress_is_decoded() {
        let zlib = all_of(ZlibEncoder::new(PLAIN, Compression::fast()));
        let raw = all_of(DeflateEncoder::new(PLAIN, Compression::fast()));
        let zstd = zstd::encode_all(PLAIN, 3).unwrap();
        for (codings, body) in [
            (&["gzip"][..], gzip(PLAIN)),
            (&["X-GZIP"], gzip(PLAIN)),
            (&["gzip"], [gzip(&PLAIN[..20]), gzip(&PLAIN[20..])].concat()),
            (&["deflate"], zlib),
            (&["deflate"], raw),
            (&["zstd"], zstd),
            (&["identity"], PLAIN.to_vec()),
            (&["", "identity, gzip"], gzip(PLAIN)),
            (&[], PLAIN.to_vec()),
        ] {
            let (read, is_coded, used) = outcome(codings, body, 1_000).await;
            assert_eq!(read.unwrap(), PLAIN, "{codings:?}");
            assert!(!is_coded, "the header goes no further");
            assert!(used >= PLAIN.len() as u64);
        }
    }

    #[tokio::test]
    async fn other_codings_are_named_in_the_refusal() {
        for codings in [
            &["br"][..],
            &["gzip, br"],
            &["gzip", "gzip"],
            &["deflate, gzip"],
        ] {
            let (read, _, used) = outcome(codings, gzip(PLAIN), 1_000).await;
            let error = read.unwrap_err();
            assert_eq!(error.code, ErrorCode::UnsupportedEncoding);
            assert_eq!(error.code.status(), 415);
            assert!(
                error.message.contains("Content-Encoding"),
                "{}",
                error.message
            );
            assert_eq!(used, 0);
        }
    }

    #[tokio::test]
    async fn both_sizes_of_a_body_are_bounded() {
        let zeros = vec![b' '; 8 << 20];
        let bombs = [
            ("gzip", gzip(&zeros)),
            (
                "deflate",
                all_of(ZlibEncoder::new(&*zeros, Compression::best())),
            ),
            ("zstd", zstd::encode_all(&*zeros, 3).unwrap()),
        ];
        for (coding, bomb) in bombs {
            assert!(bomb.len() < 20_000);
            let (read, _, used) = outcome(&[coding], bomb.clone(), 1 << 20).await;
            assert_eq!(read.unwrap_err().code, ErrorCode::BodyTooLarge, "{coding}");
            assert_eq!(used, 0, "nothing of it is held");
            let (read, ..) = outcome(&[coding], bomb.clone(), 8 << 20).await;
            assert_eq!(
                read.unwrap().len(),
                8 << 20,
                "a body of the greatest length"
            );
            let (read, ..) = outcome(&[coding], bomb, 100).await;
            assert_eq!(read.unwrap_err().code, ErrorCode::BodyTooLarge);
        }
    }

    #[tokio::test]
    async fn a_body_that_is_something_else_is_refused() {
        let whole = gzip(PLAIN);
        for body in [PLAIN.to_vec(), whole[..whole.len() - 9].to_vec()] {
            for coding in ["gzip", "zstd"] {
                let (read, ..) = outcome(&[coding], body.clone(), 1_000).await;
                let error = read.unwrap_err();
                assert_eq!(error.param.as_deref(), Some("content-encoding"));
                assert_eq!(error.code, ErrorCode::InvalidField);
            }
        }
    }
}
