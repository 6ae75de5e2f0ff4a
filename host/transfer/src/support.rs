//! What can be done with the KV of which engine.

/// How an engine's KV is reached.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Means {
    /// llama.cpp: slots are saved to files.
    SlotFiles,
    /// vLLM: its `NixlConnector`, from engine to engine.
    Nixl,
    /// SGLang: a storage behind its HiCache.
    HiCache,
    /// treadle's simulated engine.
    Simulated,
    /// Not at all.
    Nothing,
}

/// What can be done with a worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Support {
    /// By which means.
    pub means: Means,
    /// Whether KV can wait outside of the engine's memory.
    pub offload: bool,
    /// Whether KV can go to another worker of the kind.
    pub migrate: bool,
    /// What is missing, with the remedy; empty if nothing is.
    pub why: Box<str>,
}

impl Support {
    /// Support by some means.
    pub(crate) fn full(means: Means) -> Self {
        Self {
            means,
            offload: true,
            migrate: true,
            why: "".into(),
        }
    }

    /// None, and why.
    pub(crate) fn none(why: impl Into<Box<str>>) -> Self {
        Self {
            means: Means::Nothing,
            offload: false,
            migrate: false,
            why: why.into(),
        }
    }
}
