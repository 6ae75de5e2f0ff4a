//! The only place of this crate where compiled code is trusted.
#![allow(unsafe_code)]

use wasmtime::component::Component;
use wasmtime::{Engine, Result};

use super::Artifact;

/// Makes compiled code runnable.
pub(crate) fn component(engine: &Engine, artifact: &Artifact) -> Result<Component> {
    // SAFETY: the bytes have to be the unchanged output of `Engine::precompile_component`. An
    // `Artifact` comes from two sources. One is the child process that runs this same program and
    // compiles with the same settings; its answer comes through a private pipe. The other is a file
    // that this host wrote from such an answer, in a folder that only its user may enter. Both are
    // checked against their SHA-256, which was computed where they were compiled, and held in
    // memory from the check on, so that they cannot change in between. The engine itself refuses
    // code compiled by another version or with other settings.
    unsafe { Component::deserialize(engine, artifact.code()) }
}
