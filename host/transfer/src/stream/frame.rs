//! Frames: a magic number, a length, a hash, and a payload.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use xxhash_rust::xxh3::xxh3_64;

/// Magic number at the start of each frame.
const MARK: [u8; 4] = *b"TKV1";
/// Bytes before the payload: magic number, length, hash.
const HEAD_BYTES: usize = 16;
/// Longest payload: enough for a handle.
pub const PAYLOAD_BYTES_MAX: usize = 512 << 10;

/// Invalid frames.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The magic number is wrong.
    #[error("not a frame of treadle's transfers")]
    Mark,
    /// The length exceeds the limit.
    #[error("a frame of {0} bytes; the limit is {PAYLOAD_BYTES_MAX}")]
    Length(usize),
    /// The hash does not match the payload.
    #[error("a damaged frame")]
    Damaged,
    /// The connection failed.
    #[error("the connection broke: {0}")]
    Broken(#[from] std::io::Error),
}

/// Encodes a payload as a frame.
pub fn encode(payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let bytes = payload.len();
    let length = u32::try_from(bytes).map_err(|_| FrameError::Length(bytes))?;
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(FrameError::Length(bytes));
    }
    let mut frame = Vec::with_capacity(HEAD_BYTES + bytes);
    frame.extend(MARK);
    frame.extend(length.to_le_bytes());
    frame.extend(xxh3_64(payload).to_le_bytes());
    frame.extend(payload);
    Ok(frame)
}

/// Parses a frame's head: the payload's length and hash.
fn head(bytes: &[u8; HEAD_BYTES]) -> Result<(usize, u64), FrameError> {
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    if word(0) != MARK {
        return Err(FrameError::Mark);
    }
    let length = u32::from_le_bytes(word(4));
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > PAYLOAD_BYTES_MAX {
        return Err(FrameError::Length(length));
    }
    let hash = u64::from(u32::from_le_bytes(word(8)));
    let hash = hash | u64::from(u32::from_le_bytes(word(12))) << 32;
    Ok((length, hash))
}

/// A frame's payload, and the bytes after the frame.
pub type Decoded<'b> = (&'b [u8], &'b [u8]);

/// Decodes the frame at the start of the bytes; `None` while it is incomplete.
pub fn decode(bytes: &[u8]) -> Result<Option<Decoded<'_>>, FrameError> {
    let Some((first, rest)) = bytes.split_first_chunk::<HEAD_BYTES>() else {
        let mark = &bytes[..bytes.len().min(MARK.len())];
        return if MARK.starts_with(mark) {
            Ok(None)
        } else {
            Err(FrameError::Mark)
        };
    };
    let (length, hash) = head(first)?;
    let Some((payload, rest)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    if xxh3_64(payload) != hash {
        return Err(FrameError::Damaged);
    }
    Ok(Some((payload, rest)))
}

/// Reads one frame's payload.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, FrameError> {
    let mut first = [0; HEAD_BYTES];
    from.read_exact(&mut first).await?;
    let (length, hash) = head(&first)?;
    let mut payload = vec![0; length];
    from.read_exact(&mut payload).await?;
    if xxh3_64(&payload) != hash {
        return Err(FrameError::Damaged);
    }
    Ok(payload)
}

/// Writes one frame.
pub async fn write(to: &mut (impl AsyncWrite + Unpin), payload: &[u8]) -> Result<(), FrameError> {
    to.write_all(&encode(payload)?).await?;
    to.flush().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_are_read_one_after_another(
            payloads in vec(vec(any::<u8>(), 0..200), 0..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let frames: Vec<Vec<u8>> = payloads.iter().map(|payload| encode(payload).unwrap()).collect();
            let bytes = frames.concat();
            let mut rest = &bytes[..];
            for payload in &payloads {
                let (read, left) = decode(rest).unwrap().unwrap();
                prop_assert_eq!(read, payload);
                rest = left;
            }
            prop_assert!(rest.is_empty());
            if let Some(first) = frames.first() {
                prop_assert!(decode(&first[..cut.index(first.len())]).unwrap().is_none());
            }
        }

        #[test]
        fn a_changed_bit_never_reads_as_another_frame(
            payload in vec(any::<u8>(), 0..100),
            at in any::<prop::sample::Index>(),
            bit in 0_u8..8,
        ) {
            let mut bytes = encode(&payload).unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            // A greater length waits for bytes that never arrive.
            prop_assert!(!matches!(decode(&bytes), Ok(Some(_))));
        }

        #[test]
        fn nothing_panics(bytes in vec(any::<u8>(), 0..64)) {
            let _ = decode(&bytes);
            let _ = decode(&[&MARK[..], &bytes].concat());
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(encode(&vec![0; PAYLOAD_BYTES_MAX]).is_ok());
        assert!(matches!(
            encode(&vec![0; PAYLOAD_BYTES_MAX + 1]),
            Err(FrameError::Length(_))
        ));
        let mut bytes = encode(b"x").unwrap();
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(decode(&bytes), Err(FrameError::Length(_))));
    }
}
