//! The registry of policies: uploads, their bindings, and their statistics.
//!
//! The driver asks the worlds that scheduling waits for, with an evaluator of its own; the others
//! are asked here ([`BackgroundEvaluator`]). Either way a policy is loaded first; then the core
//! handles the change as an event, between two decisions, and the evaluator applies it.

mod ask;
mod ask_queues;
mod backfill;
mod bind;
mod engine;
mod error;
mod forecaster;
mod limits;
mod logs;
mod modules;
mod reference;
mod remote;
mod reservoir;
mod samples;
mod totals;
mod upload;
mod version_metrics;

pub use ask::{AskError, AttributedAnswer};
use ask_queues::AskQueues;
pub use bind::BindRequest;
pub use engine::replay_engine;
pub use engine::{COMPILE_SUBCOMMAND, EngineError, engine, signing};
pub use error::RegistryError;
pub use forecaster::forecast;
pub use limits::evaluator_limits;
pub use logs::{LoggedLine, PolicyLogs};
pub use reference::{bundled, unstored};
pub use remote::RemotePredictor;
pub use treadle_policy_runtime::{Inspection, SmokeTiming, UploadRefusal};
pub use upload::{Signing, Upload, check_share};
pub use version_metrics::render_versions;

use modules::Modules;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc::UnboundedSender;
use treadle_model::World;
use treadle_policy::BackgroundEvaluator;
use treadle_policy::evaluator::{EvaluatorLimits, Notice, PolicyEvaluator, is_asked_in_place};
use treadle_policy_runtime::PolicyEngine;
use treadle_scheduler::DriverHandle;
use treadle_store::Store;

/// The eviction policy without `kv.retention` that is bound by default.
const DEFAULT_EVICTION: &str = "thunderagent-eviction";
/// The default one with `kv.retention`: treadle's own, which can decide on cache actions.
const RETAINING_EVICTION: &str = "foresight-eviction";
/// The name under which a world's built-in default can be bound.
pub const NATIVE: &str = treadle_core::bindings::BUILT_IN;

/// The module of `thunderagent-eviction`, for measurements.
pub fn default_eviction_module() -> &'static [u8] {
    reference::module(DEFAULT_EVICTION)
}

/// The eviction policy that is bound by default.
pub fn eviction_by_default(retention: bool) -> &'static [u8] {
    if retention {
        reference::module(RETAINING_EVICTION)
    } else {
        default_eviction_module()
    }
}

/// Whether a digest is that of a world's built-in default: the native one, or the reference plugin,
/// which decides like the native one of its world.
pub fn is_built_in(digest: &str) -> bool {
    digest == NATIVE || digest == treadle_policy_runtime::upload_digest(default_eviction_module())
}

/// Uploaded policies and their bindings.
pub struct PluginRegistry {
    engine: PolicyEngine,
    store: Arc<dyn Store>,
    driver: DriverHandle,
    background: BackgroundEvaluator,
    ask_queues: AskQueues,
    signing: Signing,
    logs: PolicyLogs,
    modules: Modules,
    /// True while any policy uses predictions.
    forecasts_wanted: Arc<AtomicBool>,
    /// Held during a change of a binding, so that changes happen one after another.
    changing: tokio::sync::Mutex<()>,
}

impl PluginRegistry {
    /// Creates a registry over a store.
    pub fn new(
        engine: PolicyEngine,
        store: Arc<dyn Store>,
        driver: DriverHandle,
        limits: EvaluatorLimits,
        signing: Signing,
        forecasts_wanted: Arc<AtomicBool>,
        notices: UnboundedSender<Notice>,
    ) -> Result<Self, EngineError> {
        let background = BackgroundEvaluator::new(PolicyEvaluator::new(limits), notices)
            .map_err(|error| EngineError::Native(error.to_string()))?;
        Ok(Self {
            engine,
            store,
            driver,
            background,
            ask_queues: AskQueues::default(),
            signing,
            logs: PolicyLogs::default(),
            modules: Modules::default(),
            forecasts_wanted,
            changing: tokio::sync::Mutex::default(),
        })
    }

    /// Largest upload, in bytes.
    pub fn upload_bytes_max(&self) -> usize {
        self.engine.limits().upload_bytes_max
    }

    /// Time limit of a policy's answer in this world, in milliseconds: that of the questions that
    /// scheduling waits for, if it has any.
    pub fn deadline_ms(&self, world: World) -> u64 {
        let limits = self.engine.limits();
        if is_asked_in_place(world) {
            limits.hot_deadline_ms
        } else {
            limits.background_deadline_ms
        }
    }

    /// The logs of policies.
    pub fn logs(&self) -> &PolicyLogs {
        &self.logs
    }
}

fn unix_us() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros() as u64
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
