//! The agents: one task per seat, in a closed loop.

use super::exchange::{headers, release, step};
use super::roster::Roster;
use super::tally::Tally;
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
    pub(super) roster: Roster,
    pub(super) tally: Tally,
}

impl Crowd {
    /// One seat: run after run, until it is dropped.
    pub(super) async fn sit(self: Arc<Self>, seat: usize) {
        loop {
            let run = self.roster.take();
            self.play(seat, &run).await;
        }
    }

    async fn play(&self, seat: usize, run: &AgentRun) {
        let headers = headers(&run.id);
        let mut script = ChatScript::new(run, self.seed);
        while let Some(index) = script.next_step() {
            let body = script.body(&self.model, self.stream);
            self.tally.sent(seat, self.clock.now_us());
            match step(&self.upstream, &self.url, &headers, body).await {
                Ok(answer) => {
                    let now_us = self.clock.now_us();
                    self.tally.answered(seat, now_us, answer.prompt);
                    script.push_answer(&answer.text);
                }
                Err(cause) => self.fail(seat, cause).await,
            }
            if index + 1 < run.steps.len() {
                self.sleep(run.steps[index].tool_us).await;
            }
        }
        let released = release(&self.upstream, &self.url, &headers, &run.id).await;
        if let Err(cause) = released {
            self.fail(seat, cause).await;
        }
    }

    async fn fail(&self, seat: usize, cause: String) {
        self.tally.failed(seat, self.clock.now_us(), cause);
        self.sleep(FAILURE_PAUSE_US).await;
    }

    /// Sleeps a scaled time and tells by how much it was too long.
    async fn sleep(&self, us: u64) {
        let wanted = self.clock.real(us);
        let began = Instant::now();
        tokio::time::sleep(wanted).await;
        let lag = began.elapsed().saturating_sub(wanted);
        let now_us = self.clock.now_us();
        self.tally.overslept(now_us, lag);
    }
}
