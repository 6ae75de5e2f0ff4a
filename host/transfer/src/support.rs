//! The abilities of engines to transfer KV.

/// The interface to an engine's KV.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KvInterface {
    /// llama.cpp: slots are saved to files.
    SlotFiles,
    /// vLLM: its `NixlConnector`, from engine to engine.
    Nixl,
    /// SGLang: a storage behind its HiCache.
    HiCache,
    /// treadle's simulated engine.
    Simulated,
    /// No transfers.
    Nothing,
}

/// The abilities of a worker.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Support {
    /// The interface to its KV.
    pub interface: KvInterface,
    /// Whether KV can be stored outside of the engine's memory.
    pub offload: bool,
    /// Whether KV can move to another worker of the same kind.
    pub migrate: bool,
    /// The missing requirement, with the remedy; empty if nothing is missing.
    pub why: Box<str>,
}

impl Support {
    /// Full support by an interface.
    pub(crate) fn full(interface: KvInterface) -> Self {
        Self {
            interface,
            offload: true,
            migrate: true,
            why: "".into(),
        }
    }

    /// No support, and why.
    pub(crate) fn none(why: impl Into<Box<str>>) -> Self {
        Self {
            interface: KvInterface::Nothing,
            offload: false,
            migrate: false,
            why: why.into(),
        }
    }
}
