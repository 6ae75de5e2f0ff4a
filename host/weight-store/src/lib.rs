//! Versions of weights as folders, in the format of slime, which miles and SGLang with slime's patch
//! read too (`docs/weights.md`).
//!
//! A [`Stream`] is a folder of versions, `weight_v000001` and so on. A version is a whole checkpoint
//! as Hugging Face writes it, or a delta: for each tensor that changed its difference to the version
//! before, compressed, and the checksum of what it becomes. [`Stream::publish`] adds one; a [`Local`]
//! folder on a host gets whole checkpoints of them, and only what the host lacks is read from the
//! stream. Each byte is proven by a checksum before a version is visible.
//!
//! This crate reads files that others wrote: every name, length and count is checked.

mod checkpoint;
mod checksum;
mod collect;
mod delta;
mod encode;
mod error;
mod files;
mod local;
mod places;
mod publish;
mod replay;
mod stream;
mod version;
mod workers;

pub use checksum::Algorithm;
pub use collect::Collected;
pub use delta::Encoding;
pub use error::StoreError;
pub use local::{Local, Pulled};
pub use places::Places;
pub use publish::{CHAIN_MAX, PublishOptions, Published};
pub use stream::{Stream, VersionEntry};
