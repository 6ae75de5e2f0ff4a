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

/// Pause after a failure, in scaled microseconds: agents don't retry at once.
const FAILURE_PAUSE_US: u64 = 1_000_000;
/// Between two looks at how far they are.
const LOOK: Duration = Duration::from_millis(250);
/// For a connection to what they send their steps to.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

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

/// What agents are to do, and where.
pub struct CrowdOptions {
    /// Base URL of what they send their steps to.
    pub url: String,
    /// How it is told which program a step is of.
    pub naming: Naming,
    /// The model that they ask for.
    pub model: String,
    /// Whether they ask for event streams.
    pub stream: bool,
    /// Seed of what they write.
    pub seed: u64,
    /// Scaled seconds in a real one.
    pub time_scale: f64,
    /// Their runs, at least one.
    pub runs: Arc<[AgentRun]>,
    /// What runs start and wait for, by their ids.
    pub subagents: BTreeMap<String, Subagents>,
    /// Agents at once, subagents apart.
    pub slots: usize,
    /// What is measured.
    pub window: Window,
}

/// Agents at work, which they are until this is dropped.
pub struct Crowd {
    shared: Arc<Shared>,
    slots: JoinSet<()>,
    window: Window,
}

impl Crowd {
    /// All begin now.
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
            slots.spawn(Arc::clone(&shared).sit(slot));
        }
        Self {
            shared,
            slots,
            window: options.window,
        }
    }

    /// What was measured, once the window has ended; the agents go on. On the way `report` gets how
    /// far they are.
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

    /// All leave at once, in the middle of what they do.
    pub async fn leave(mut self) {
        self.slots.shutdown().await;
    }
}

/// What the agents of a run share.
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
    /// Open steps that a slot can have: its agent's, and one of each subagent.
    places_per_slot: usize,
    subagents: BTreeMap<String, Subagents>,
}

impl Shared {
    /// One slot: run after run, until it is dropped.
    async fn sit(self: Arc<Self>, slot: usize) {
        let place = slot * self.places_per_slot;
        loop {
            let (planned, run) = self.run_queue.take();
            let started = self.subagents.get(planned);
            self.play(place, run.id.as_str().into(), &run, started)
                .await;
        }
    }

    /// All subagents of a program at once, to the end of the last.
    fn play_subagents<'a>(
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
                // A run that comes again has another id, and so have its subagents.
                let id = format!("{parent}.{number}");
                let sender = Sender {
                    program: &id,
                    parent: Some(parent),
                };
                self.play(place + 1 + number, sender, run, None).await;
            });
        join_all(each).map(drop).boxed()
    }

    /// One run. Between a step and its tool come the subagents that it starts there.
    async fn play(
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
                self.play_subagents(place, sender.program, started).await;
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
