//! GPUs, language models, and the roofline that computes an engine's profile from them.
//!
//! ```
//! use treadle_engine_model::engine::EngineProfile;
//! use treadle_engine_model::hardware::{Assumptions, H100, QWEN3_14B};
//!
//! let profile = EngineProfile::of(&H100, &QWEN3_14B, 2, &Assumptions::default()).unwrap();
//! assert_eq!(profile.name, "qwen3-14b-2xh100");
//! ```
//!
//! All figures come from published sources and are fixed before any policy runs. They are listed in
//! `docs/simulation-parameters.md`, which [`parameters_markdown`] writes.

mod gpu;
mod language_model;
mod parameters;
mod roofline;
#[cfg(test)]
mod tests;

pub use gpu::{Gpu, H20, H100, H200, H800};
pub use language_model::{
    Experts, GLM_46, LanguageModel, QWEN3_8B, QWEN3_14B, QWEN3_30B_A3B, QWEN3_32B,
};
pub use parameters::parameters_markdown;
pub use roofline::{Assumptions, DEGREES, HardwareError, MESSAGES_BYTES};
