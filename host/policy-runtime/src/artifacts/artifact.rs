//! A compiled policy with the data needed to trust it: the component and engine that it was made
//! for, and a checksum.

use std::fmt::Write as _;
use std::hash::{Hash, Hasher};

use sha2::{Digest, Sha256};
use thiserror::Error;
use wasmtime::Engine;

const MAGIC: [u8; 8] = *b"treadle1";
/// Magic, component, engine, checksum of the code.
const HEAD_BYTES: usize = MAGIC.len() + 3 * 32;

/// Why bytes are not a compiled policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Damage {
    #[error("its header is not that of a compiled policy")]
    Head,
    #[error("it was compiled from another component or for another engine")]
    Key,
    #[error("its checksum is wrong")]
    Checksum,
}

/// What a compiled policy was made from, and for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ArtifactKey {
    component: [u8; 32],
    engine: [u8; 32],
}

impl ArtifactKey {
    pub(crate) fn of(engine: &Engine, component: &[u8]) -> Self {
        Self {
            component: Sha256::digest(component).into(),
            engine: engine_digest(engine),
        }
    }

    /// The digest of the engine's settings, in hexadecimal.
    pub(crate) fn engine_hex(&self) -> String {
        hex(&self.engine)
    }

    /// Both digests; half of the engine's is enough to distinguish engines.
    pub(crate) fn file_stem(&self) -> String {
        format!("{}-{}", hex(&self.component), hex(&self.engine[..16]))
    }
}

/// The settings that decide whether an engine can run what another has compiled.
fn engine_digest(engine: &Engine) -> [u8; 32] {
    struct Sha(Sha256);
    impl Hasher for Sha {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            0
        }
    }
    let mut sha = Sha(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut sha);
    sha.0.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// A compiled policy with a valid checksum. It comes either from the compiler or from a stored
/// file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Artifact {
    sealed: Vec<u8>,
}

impl Artifact {
    /// Seals the compiler's output.
    pub(crate) fn seal(code: &[u8], key: &ArtifactKey) -> Self {
        let mut sealed = Vec::with_capacity(HEAD_BYTES + code.len());
        sealed.extend_from_slice(&MAGIC);
        sealed.extend_from_slice(&key.component);
        sealed.extend_from_slice(&key.engine);
        sealed.extend_from_slice(&Sha256::digest(code));
        sealed.extend_from_slice(code);
        Self { sealed }
    }

    /// Parses sealed bytes, and checks all of them.
    pub(crate) fn parse(sealed: Vec<u8>, key: &ArtifactKey) -> Result<Self, Damage> {
        let head = sealed.get(..HEAD_BYTES).ok_or(Damage::Head)?;
        let (magic, head) = head.split_at(MAGIC.len());
        let (component, head) = head.split_at(32);
        let (engine, checksum) = head.split_at(32);
        if magic != MAGIC {
            return Err(Damage::Head);
        }
        if component != key.component || engine != key.engine {
            return Err(Damage::Key);
        }
        let found: [u8; 32] = Sha256::digest(&sealed[HEAD_BYTES..]).into();
        if found != checksum {
            return Err(Damage::Checksum);
        }
        Ok(Self { sealed })
    }

    /// Head and code, as they are stored and sent.
    pub(crate) fn sealed(&self) -> &[u8] {
        &self.sealed
    }

    /// The code, for the engine.
    pub(crate) fn code(&self) -> &[u8] {
        &self.sealed[HEAD_BYTES..]
    }
}
