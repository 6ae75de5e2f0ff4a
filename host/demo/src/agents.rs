//! The agents: one task per slot, in a closed loop.

use super::exchange::{headers, release, step};
use super::run_counters::RunCounters;
use super::run_queue::RunQueue;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use treadle_http::Upstream;
use treadle_simulator::workload::{AgentRun, ChatScript};

/// Pause after a failure, in scaled microseconds: agents don't retry at once.
const FAILURE_PAUSE_US: u64 = 1_000_000;

/// Scaled time since the agents began.
#[derive(Clone, Copy)]
pub struct ScaledClock {
    began: Instant,
    scale: f64,
}

impl ScaledClock {
    /// Begins now.
    pub fn begin(scale: f64) -> Self {
        Self {
            began: Instant::now(),
            scale,
        }
    }

    /// Scaled microseconds so far.
    pub fn now_us(self) -> u64 {
        (self.began.elapsed().as_secs_f64() * self.scale * 1e6) as u64
    }

    /// The real length of a scaled time.
    pub fn real(self, us: u64) -> Duration {
        Duration::from_secs_f64(us as f64 / 1e6 / self.scale)
    }
}

/// What the agents of a run share.
pub(super) struct Crowd {
    pub(super) url: String,
    pub(super) upstream: Upstream,
    pub(super) model: String,
    pub(super) stream: bool,
    pub(super) seed: u64,
    pub(super) clock: ScaledClock,
    pub(super) run_queue: RunQueue,
    pub(super) run_counters: RunCounters,
}

impl Crowd {
    /// One slot: run after run, until it is dropped.
    pub(super) async fn sit(self: Arc<Self>, slot: usize) {
        loop {
            let run = self.run_queue.take();
            self.play(slot, &run).await;
        }
    }

    async fn play(&self, slot: usize, run: &AgentRun) {
        let headers = headers(&run.id);
        let mut script = ChatScript::new(run, self.seed);
        while let Some(index) = script.next_step() {
            let body = script.body(&self.model, self.stream);
            self.run_counters.sent(slot, self.clock.now_us());
            match step(&self.upstream, &self.url, &headers, body).await {
                Ok(answer) => {
                    let now_us = self.clock.now_us();
                    self.run_counters.answered(slot, now_us, answer.prompt);
                    script.push_answer(&answer.text);
                }
                Err(cause) => self.fail(slot, cause).await,
            }
            if index + 1 < run.steps.len() {
                self.sleep(run.steps[index].tool_us).await;
            }
        }
        let released = release(&self.upstream, &self.url, &headers, &run.id).await;
        if let Err(cause) = released {
            self.fail(slot, cause).await;
        }
    }

    async fn fail(&self, slot: usize, cause: String) {
        self.run_counters.failed(slot, self.clock.now_us(), cause);
        self.sleep(FAILURE_PAUSE_US).await;
    }

    /// Sleeps a scaled time and returns by how much it overslept.
    async fn sleep(&self, us: u64) {
        let wanted = self.clock.real(us);
        let began = Instant::now();
        tokio::time::sleep(wanted).await;
        let lag = began.elapsed().saturating_sub(wanted);
        let now_us = self.clock.now_us();
        self.run_counters.overslept(now_us, lag);
    }
}
