//! Applies a delta to a tensor, piece by piece.

use crate::checksum::{Digest, Hasher};
use crate::files::{PIECE, Part};
use serde::{Deserialize, Serialize};
use std::io::{self, BufReader, Error, Read};
use zstd::stream::read::Decoder;

/// How a delta says what changed.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// The exclusive or of old and new bytes: small, and only right if applied once.
    #[default]
    Xor,
    /// The number of changed bytes (u32), their positions (u32 each), then their values: may be
    /// applied again.
    Overwrite,
}

/// Largest memory of a change while it is unpacked, as a power of two. One that is packed at
/// zstd's levels up to 19 needs no more.
const WINDOW_LOG_MAX: u32 = 23;

type Unpacked<'f> = BufReader<Decoder<'static, BufReader<Part<'f>>>>;

enum Change<'f> {
    Xor {
        mask: Unpacked<'f>,
        piece: Vec<u8>,
    },
    Overwrite {
        positions: Unpacked<'f>,
        values: Unpacked<'f>,
        /// Positions that are not read yet, without the next one.
        left: u32,
        next: Option<u64>,
    },
}

/// A change to a tensor, and the checksum of what it becomes.
pub(crate) struct Stage<'f> {
    version: u64,
    change: Change<'f>,
    hasher: Hasher,
    wanted: Digest,
}

fn unpack(packed: Part<'_>) -> io::Result<Unpacked<'_>> {
    let packed = BufReader::with_capacity(PIECE / 8, packed);
    let mut decoder = Decoder::with_buffer(packed)?.single_frame();
    decoder.window_log_max(WINDOW_LOG_MAX)?;
    Ok(BufReader::with_capacity(PIECE / 8, decoder))
}

fn no_frame(why: &str) -> Error {
    Error::new(io::ErrorKind::InvalidData, why)
}

impl<'f> Stage<'f> {
    /// Begins to apply a compressed change that is in a file.
    pub(crate) fn begin(
        encoding: Encoding,
        packed: Part<'f>,
        version: u64,
        wanted: Digest,
    ) -> io::Result<Self> {
        let mut first = unpack(packed)?;
        let change = match encoding {
            Encoding::Xor => Change::Xor {
                mask: first,
                piece: vec![0; PIECE],
            },
            Encoding::Overwrite => {
                let count = read_u32(&mut first)?;
                let mut values = unpack(packed)?;
                let before = 4 + 4 * u64::from(count);
                if io::copy(&mut values.by_ref().take(before), &mut io::sink())? < before {
                    return Err(no_frame("it has fewer positions than it says"));
                }
                let mut change = Change::Overwrite {
                    positions: first,
                    values,
                    left: count,
                    next: None,
                };
                change.step(0)?;
                change
            }
        };
        let hasher = Hasher::new(wanted.algorithm);
        Ok(Self {
            version,
            change,
            hasher,
            wanted,
        })
    }

    /// The version that the change is of.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Changes the bytes that begin at a position.
    pub(crate) fn apply(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.change.apply(at, bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Whether the tensor became what it should.
    pub(crate) fn ends_well(self) -> io::Result<bool> {
        let is_over = match self.change {
            Change::Xor { mut mask, .. } => mask.read(&mut [0])? == 0,
            Change::Overwrite {
                next, mut values, ..
            } => next.is_none() && values.read(&mut [0])? == 0,
        };
        Ok(is_over && self.hasher.finish() == self.wanted)
    }
}

impl Change<'_> {
    fn apply(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Xor { mask, piece } => {
                for bytes in bytes.chunks_mut(PIECE) {
                    let piece = &mut piece[..bytes.len()];
                    mask.read_exact(piece)?;
                    for (byte, mask) in bytes.iter_mut().zip(piece) {
                        *byte ^= *mask;
                    }
                }
                Ok(())
            }
            Self::Overwrite { .. } => self.overwrite(at, bytes),
        }
    }

    fn overwrite(&mut self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let end = at + bytes.len() as u64;
        loop {
            let Self::Overwrite { values, next, .. } = self else {
                return Ok(());
            };
            let Some(position) = next.filter(|position| *position < end) else {
                return Ok(());
            };
            let offset = position - at;
            values.read_exact(&mut bytes[offset as usize..][..1])?;
            self.step(position + 1)?;
        }
    }

    /// Reads the next position, which must be at least this one.
    fn step(&mut self, least: u64) -> io::Result<()> {
        if let Self::Overwrite {
            positions,
            left,
            next,
            ..
        } = self
        {
            *next = None;
            if *left > 0 {
                *left -= 1;
                let position = u64::from(read_u32(positions)?);
                if position < least {
                    return Err(no_frame("its positions do not rise"));
                }
                *next = Some(position);
            }
        }
        Ok(())
    }
}

fn read_u32(from: &mut impl Read) -> io::Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}
