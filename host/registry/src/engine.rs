//! Construction of the registry's policy engine from the configuration.

use super::Signing;
use std::path::{Path, PathBuf};
use treadle_config::Config;
use treadle_policy_runtime::{
    ArtifactStore, ArtifactStoreError, Compiler, CompilerCommand, CompilerLimits, KeyError,
    PolicyEngine, RuntimeError, SignaturePolicy, TrustedKeys,
};

/// The subcommand that compiles one upload; not to be called by hand.
pub const COMPILE_SUBCOMMAND: &str = "compile-policy";
/// Folder of compiled policies, beside the store's file.
const ARTIFACTS_FOLDER: &str = "policies";

/// Why no policies can run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The runtime does not start.
    #[error("{0}")]
    Runtime(#[from] RuntimeError),
    /// Compiled policies can't be kept.
    #[error("{0}")]
    Artifacts(#[from] ArtifactStoreError),
    /// A key is invalid.
    #[error("plugins.trusted_keys: {0}")]
    Key(#[from] KeyError),
    /// A built-in default refuses its own default configuration.
    #[error("a built-in policy does not start: {0}")]
    Native(String),
    /// An entry of the keys has no name.
    #[error("plugins.trusted_keys: `{0}` has no name; write name=key")]
    Nameless(String),
}

/// The engine that inspects, compiles and runs policies.
pub fn engine(config: &Config) -> Result<PolicyEngine, EngineError> {
    Ok(PolicyEngine::new(config.plugins.limits())?.with_compiler(compiler(config)?))
}

/// The engine for policies in replays: limited by fuel instead of time.
pub fn replay_engine(config: &Config) -> Result<PolicyEngine, EngineError> {
    let engine = treadle_policy::repeatable_engine(config.plugins.limits())?;
    Ok(engine.with_compiler(compiler(config)?))
}

fn compiler(config: &Config) -> Result<Compiler, EngineError> {
    let mut compiler = match compiler_program(&config.plugins.compiler) {
        Some(program) => {
            let command = CompilerCommand {
                program,
                args: vec![COMPILE_SUBCOMMAND.into()],
            };
            let limits = CompilerLimits {
                cpu_s_max: config.plugins.compile_cpu_s_max,
                ..CompilerLimits::default()
            };
            Compiler::in_children(command, limits)?
        }
        None => Compiler::in_process(),
    };
    if let Some(folder) = artifacts_folder(config) {
        let artifacts = ArtifactStore::open(&folder, config.plugins.artifacts_bytes_max)?;
        compiler = compiler.with_artifacts(artifacts);
    }
    Ok(compiler)
}

/// The trusted keys, and whether uploads need a signature.
pub fn signing(config: &Config) -> Result<Signing, EngineError> {
    let mut keys = Vec::new();
    for entry in &config.plugins.trusted_keys {
        let pair = entry.split_once('=');
        keys.push(pair.ok_or_else(|| EngineError::Nameless(entry.clone()))?);
    }
    let policy = if config.plugins.signed_only {
        SignaturePolicy::SignedOnly
    } else {
        SignaturePolicy::UnsignedAllowed
    };
    Ok(Signing {
        policy,
        keys: TrustedKeys::new(keys)?,
    })
}

/// The program that compiles in child processes, if there is one: programs that embed the daemon,
/// such as tests, can't be started for that.
fn compiler_program(configured: &str) -> Option<PathBuf> {
    if !configured.is_empty() {
        return Some(configured.into());
    }
    let own = std::env::current_exe().ok()?;
    (own.file_stem()? == "treadle").then_some(own)
}

/// Beside the store's file; of a store in memory, as configured.
fn artifacts_folder(config: &Config) -> Option<PathBuf> {
    if config.store.path == "memory" {
        let folder = &config.plugins.artifacts_folder;
        return (!folder.is_empty()).then(|| folder.into());
    }
    let parent = Path::new(&config.store.path).parent()?;
    Some(parent.join(ARTIFACTS_FOLDER))
}
