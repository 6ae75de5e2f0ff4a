//! Inspection of an upload: from bytes of unknown origin to a component that may run.

mod bytes;
mod contract;
mod description;
mod embed;
mod packages;

use std::time::Instant;

use serde::Serialize;
use wasmparser::Encoding;

use crate::engine::PolicyEngine;
use crate::error::{LoadError, UploadRefusal};
use crate::instance::Description;
use crate::limits::Limits;
use crate::module::InstanceOptions;
use crate::signature::upload_digest;
use crate::smoke::{self, SmokeTiming};

pub use embed::embed_contract;

type Refused<T> = Result<T, UploadRefusal>;

/// An accepted upload.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// SHA-256 of the upload, in hexadecimal.
    pub digest: String,
    /// The world it targets.
    pub world: String,
    /// The policy's own description.
    #[serde(flatten)]
    pub description: Description,
    /// Tools that made it, as far as it names them, such as `language Rust` or `processed-by
    /// wit-bindgen-rust 0.61.1`.
    pub producers: Vec<String>,
    /// Interfaces that it imports.
    pub imports: Vec<String>,
    /// Interfaces that it exports.
    pub exports: Vec<String>,
    /// Time to compile it.
    pub compile_ms: u64,
    /// Durations of the trial run's calls.
    pub smoke: Vec<SmokeTiming>,
    /// The component, for [`PolicyEngine::load`](crate::PolicyEngine::load).
    #[serde(skip)]
    pub component: Vec<u8>,
}

/// An upload that is acceptable as far as can be determined without running it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// SHA-256 of the upload, in hexadecimal.
    pub digest: String,
    /// The world it targets.
    pub world: String,
    /// Tools that made it, as far as it names them.
    pub producers: Vec<String>,
    /// Interfaces that it imports.
    pub imports: Vec<String>,
    /// Interfaces that it exports.
    pub exports: Vec<String>,
    /// The upload as a component.
    #[serde(skip)]
    pub component: Vec<u8>,
}

pub(crate) fn examine(limits: &Limits, bytes: &[u8]) -> Refused<Candidate> {
    bytes::check_size(limits, bytes)?;
    let component = match bytes::check_valid(bytes)? {
        Encoding::Component => bytes.to_vec(),
        Encoding::Module => contract::componentize(bytes)?,
    };
    contract::check_imports(&component)?;
    packages::check(&component)?;
    let (resolve, world) = contract::decode(&component)?;
    let imports = contract::interfaces(&resolve, &resolve.worlds[world].imports);
    let exports = contract::interfaces(&resolve, &resolve.worlds[world].exports);
    let world = contract::find_world(&component, &exports)?;
    Ok(Candidate {
        digest: upload_digest(bytes),
        world: world.to_owned(),
        producers: bytes::producers(bytes),
        imports,
        exports,
        component,
    })
}

pub(crate) fn inspect(engine: &PolicyEngine, bytes: &[u8]) -> Refused<Inspection> {
    let candidate = examine(engine.limits(), bytes)?;
    let begin = Instant::now();
    let module = engine
        .compile(&candidate.component)
        .map_err(|error| load_refusal(&error))?;
    let compile_ms = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
    let mut instance = module
        .instance(&InstanceOptions::default())
        .map_err(|error| load_refusal(&error))?;
    description::check_description(&candidate.world, engine.limits(), instance.description())?;
    let smoke = smoke::run(&mut instance, engine.limits())?;
    Ok(Inspection {
        digest: candidate.digest,
        world: candidate.world,
        description: instance.description().clone(),
        producers: candidate.producers,
        imports: candidate.imports,
        exports: candidate.exports,
        compile_ms,
        smoke,
        component: candidate.component,
    })
}

fn load_refusal(error: &LoadError) -> UploadRefusal {
    match error {
        LoadError::Compile(fault) => fault.refusal(),
        LoadError::Component(_) => UploadRefusal::new(
            "compile-failed",
            error.to_string(),
            "the component's code",
            "build it again without experimental WebAssembly features",
        ),
        LoadError::Config(_)
        | LoadError::ConfigTooLarge { .. }
        | LoadError::SnapshotTooLarge { .. } => UploadRefusal::new(
            "config-refused",
            error.to_string(),
            "call configure with {}",
            "give every key of the configuration a default",
        ),
        LoadError::Fault(fault) => {
            smoke::refusal(fault, "starting, describe and configure".to_owned())
        }
    }
}
