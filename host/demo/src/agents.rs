//! The agents: one task per slot, in a closed loop.

use super::exchange::{release, step};
use super::naming::{Naming, Sender};
use super::run_counters::{Look, Measured, RunCounters, Window};
use super::run_queue::RunQueue;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use treadle_http::Upstream;
use treadle_simulator::workload::{AgentRun, ChatScript, Subagents};

/// Pause after a failure, in scaled microseconds, so that agents don't retry at once.
const FAILURE_PAUSE_US: u64 = 1_000_000;
/// Interval of progress reports.
const LOOK: Duration = Duration::from_millis(250);
/// Timeout of an agent's connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Scaled time since the agents began.
#[derive(Clone, Copy)]
pub struct ScaledClock {
    began: Instant,
    scale: f64,
}

impl ScaledClock {
    /// Starts the clock.
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

/// What agents do, and where they send it.
pub struct CrowdOptions {
    /// Base URL that they send their steps to.
    pub url: String,
    /// How requests name their program.
    pub naming: Naming,
    /// The requested model.
    pub model: String,
    /// Whether they request event streams.
    pub stream: bool,
    /// Seed of the text that they write.
    pub seed: u64,
    /// Scaled seconds per real second.
    pub time_scale: f64,
    /// The agents' runs, at least one.
    pub runs: Arc<[AgentRun]>,
    /// Subagents of runs, by the runs' ids.
    pub subagents: BTreeMap<String, Subagents>,
    /// Number of concurrent agents, not counting subagents.
    pub slots: usize,
    /// The measurement window.
    pub window: Window,
}

/// Running agents, until this is dropped.
pub struct Crowd {
    shared: Arc<Shared>,
    slots: JoinSet<()>,
    window: Window,
}

impl Crowd {
    /// Starts all agents.
    pub fn begin(options: CrowdOptions) -> Self {
        let at_once = options.subagents.values().map(|started| started.runs.len());
        let places_per_slot = 1 + at_once.max().unwrap_or(0);
        let places = options.slots * places_per_slot;
        let shared = Arc::new(Shared {
            url: options.url,
            naming: options.naming,
            upstream: Upstream::new(CONNECT_TIMEOUT),
            model: options.model,
            stream: options.stream,
            seed: options.seed,
            clock: ScaledClock::begin(options.time_scale),
            run_queue: RunQueue::new(options.runs),
            run_counters: RunCounters::new(places, options.window),
            places_per_slot,
            subagents: options.subagents,
        });
        let mut slots = JoinSet::new();
        for slot in 0..options.slots {
            slots.spawn(Arc::clone(&shared).run_slot(slot));
        }
        Self {
            shared,
            slots,
            window: options.window,
        }
    }

    /// Returns the measurements when the window has ended; the agents continue. `report` is called
    /// with the progress at intervals.
    pub async fn until_end(&self, mut report: impl FnMut(Look)) -> Measured {
        let Shared {
            clock,
            run_counters,
            ..
        } = &*self.shared;
        loop {
            let now_us = clock.now_us();
            report(run_counters.look(now_us));
            let left_us = self.window.to_us.saturating_sub(now_us);
            if left_us == 0 {
                return run_counters.close();
            }
            tokio::time::sleep(clock.real(left_us).min(LOOK)).await;
        }
    }

    /// Stops all agents at once, in the middle of their steps.
    pub async fn leave(mut self) {
        self.slots.shutdown().await;
    }
}

/// State that all agents share.
struct Shared {
    url: String,
    naming: Naming,
    upstream: Upstream,
    model: String,
    stream: bool,
    seed: u64,
    clock: ScaledClock,
    run_queue: RunQueue,
    run_counters: RunCounters,
    /// Maximum number of open steps of a slot: its agent's, and one of each subagent.
    places_per_slot: usize,
    subagents: BTreeMap<String, Subagents>,
}

impl Shared {
    /// Runs one slot: one run after another, until it is dropped.
    async fn run_slot(self: Arc<Self>, slot: usize) {
        let place = slot * self.places_per_slot;
        loop {
            let (planned, run) = self.run_queue.take();
            let started = self.subagents.get(planned);
            self.run_agent(place, run.id.as_str().into(), &run, started)
                .await;
        }
    }

    /// Runs all subagents of a program concurrently, until the last has ended.
    fn run_subagents<'a>(
        &'a self,
        place: usize,
        parent: &'a str,
        started: &'a Subagents,
    ) -> BoxFuture<'a, ()> {
        let each = started
            .runs
            .iter()
            .enumerate()
            .map(move |(number, run)| async move {
                // A repeated run has another id, and so have its subagents.
                let id = format!("{parent}.{number}");
                let sender = Sender {
                    program: &id,
                    parent: Some(parent),
                };
                self.run_agent(place + 1 + number, sender, run, None).await;
            });
        join_all(each).map(drop).boxed()
    }

    /// Executes one run. Subagents run between their step and its tool.
    async fn run_agent(
        &self,
        place: usize,
        sender: Sender<'_>,
        run: &AgentRun,
        started: Option<&Subagents>,
    ) {
        let headers = self.naming.headers(sender);
        let mut script = ChatScript::new(run, self.seed);
        while let Some(index) = script.next_step() {
            let is_last = index + 1 == run.steps.len();
            let body = script.body(&self.model, self.stream);
            let body = self.naming.body(body, sender, is_last);
            self.run_counters.sent(place, self.clock.now_us());
            match step(&self.upstream, &self.url, &headers, body).await {
                Ok(answer) => {
                    let now_us = self.clock.now_us();
                    self.run_counters.answered(place, now_us, answer.prompt);
                    script.push_answer(&answer.text);
                }
                Err(cause) => self.fail(place, cause).await,
            }
            if let Some(started) = started.filter(|started| started.after_step == index) {
                self.run_subagents(place, sender.program, started).await;
            }
            if !is_last {
                self.sleep(run.steps[index].tool_us).await;
            }
        }
        let released = release(&self.upstream, &self.url, &self.naming, sender).await;
        if let Err(cause) = released {
            self.fail(place, cause).await;
        }
    }

    async fn fail(&self, place: usize, cause: String) {
        self.run_counters.failed(place, self.clock.now_us(), cause);
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
