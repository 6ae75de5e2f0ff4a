//! Options of the watch, and the measurement that they ask for.

use super::adapter::Detected;
use super::speed::speeds;
use std::time::Duration;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_scheduler::DriverHandle;

/// Options of the watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Interval of probes.
    pub interval: Duration,
    /// Whether the speed of engines is measured with prompts.
    pub measures: bool,
    /// Speed of the scheduler's clock relative to real time.
    pub time_scale: f64,
}

impl WatchOptions {
    /// Measures an engine before it gets any steps. An engine in use may hold caches that a prompt
    /// would evict, and an engine of unknown kind may charge for requests, so those are not
    /// measured.
    pub(super) async fn measure(
        self,
        driver: &DriverHandle,
        upstream: &Upstream,
        worker: WorkerId,
        url: &str,
        engine: Detected,
    ) -> Option<Event> {
        let known = driver.worker(worker).await.ok().flatten();
        let in_use = known.is_some_and(|w| w.is_healthy());
        if !self.measures || in_use || engine.kind == EngineKind::Openai {
            return None;
        }
        let measured = speeds(upstream, url, engine.capacity).await?;
        Some(Event::Program(ProgramEvent::WorkerSpeedRead {
            worker,
            prefill_tokens_per_s: (measured.prefill_tokens_per_s / self.time_scale) as u64,
            token_us: (measured.token_s * self.time_scale * 1e6) as u64,
            step_us: 0,
            declared: false,
        }))
    }
}
