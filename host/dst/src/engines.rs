//! Engines: they generate tokens, and fail in several ways.

use super::Simulation;
use super::calendar::{Progress, ScheduledEvent};
use super::gateway::Answer;
use super::plan::EnginePlan;
use super::schedule::FaultKind;
use treadle_core::Event;
use treadle_core::memory::Capacity;
use treadle_core::programs::WorkerState;
use treadle_core::programs::{ProgramEvent, StepFailure, StepTokens};
use treadle_model::{FinishReason, StepId, WorkerId};

/// Tokens between progress reports.
const PROGRESS_TOKENS: u64 = 64;
/// A gateway's wait for a first token beyond the prompt's computing time.
const PREFILL_LEEWAY_US: u64 = 1_000_000;

/// An engine.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) plan: EnginePlan,
    pub(crate) capacity: Capacity,
    pub(crate) up: bool,
    /// Whether its owner wants it to be registered.
    pub(crate) wanted: bool,
    /// Number of times that its owner has changed that.
    pub(crate) wish: u64,
    /// Whether the daemon has acknowledged the owner's latest request.
    pub(crate) acknowledged: bool,
    /// The state ordered by operators, the number of changes, and which of them was acknowledged.
    pub(crate) state: WorkerState,
    pub(crate) orders: u64,
    pub(crate) orders_acknowledged: u64,
}

/// A request at an engine.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) gateway: usize,
    pub(crate) step: StepId,
    pub(crate) engine: usize,
    pub(crate) agent: usize,
    pub(crate) branch: usize,
    pub(crate) prompt: u64,
    pub(crate) output: u64,
    /// Tokens that its client has, including those before a preemption.
    pub(crate) tokens: u64,
    /// Whether its client has any.
    pub(crate) began: bool,
}

impl Simulation {
    /// Sends a gateway's request to an engine; returns the request's number.
    pub(crate) fn start_request(
        &mut self,
        gateway: usize,
        step: StepId,
        worker: WorkerId,
        (agent, branch): (usize, usize),
        generated: u64,
    ) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        let engine = worker.0 as usize;
        let (prompt, output) = self.agents[agent].demand(&self.plan.agents[agent]);
        let request = Request {
            gateway,
            step,
            engine,
            agent,
            branch,
            prompt,
            output,
            tokens: generated,
            began: generated > 0,
        };
        self.requests.insert(id, request);
        let e = &self.engines[engine];
        let longest = e
            .capacity
            .context_tokens_max
            .unwrap_or(u64::MAX)
            .min(e.capacity.tokens.unwrap_or(u64::MAX));
        let (up, prefill_us) = (e.up, prompt * 1_000_000 / e.plan.prefill_tokens_per_s);
        let failing = self.strikes_engine(FaultKind::EngineFailing, engine);
        let (delay, progress) = if !up {
            (1_000, Progress::Refuse)
        } else if failing.is_some_and(|strength| self.streams.engines.percent(strength)) {
            self.counts.count(FaultKind::EngineFailing.name());
            (5_000, Progress::Refuse)
        } else if prompt > longest {
            (5_000, Progress::Reject)
        } else {
            (1_000 + prefill_us, Progress::Tokens(generated + 1))
        };
        self.calendar.put(
            self.now_us + delay,
            ScheduledEvent::Engine {
                request: id,
                progress,
            },
        );
        // Gateways are configured to wait for the time that a prompt takes.
        let timeout_us = self
            .plan
            .behaviour
            .stall_us
            .max(prefill_us + PREFILL_LEEWAY_US);
        self.calendar.put(
            self.now_us + timeout_us,
            ScheduledEvent::Stalled {
                request: id,
                seen: generated,
            },
        );
        id
    }

    pub(crate) fn strikes_engine(&self, kind: FaultKind, engine: usize) -> Option<u64> {
        self.active_faults.strikes(kind, engine, self.engines.len())
    }

    /// An engine gets on with a request, if that is still there.
    pub(crate) fn progressed(&mut self, id: u64, progress: Progress) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        let (gateway, step, engine) = (request.gateway, request.step, request.engine);
        if self
            .strikes_engine(FaultKind::EngineHanging, engine)
            .is_some()
            && !matches!(progress, Progress::Break)
        {
            self.counts.count(FaultKind::EngineHanging.name());
            let later = self.now_us + 1_000_000;
            return self.calendar.put(
                later,
                ScheduledEvent::Engine {
                    request: id,
                    progress,
                },
            );
        }
        match progress {
            Progress::Refuse => self.request_failed(id, "503"),
            Progress::Break => self.request_failed(id, "connection reset"),
            Progress::Reject => self.rejected(id, gateway, step),
            Progress::Tokens(tokens) => self.generated(id, tokens),
        }
    }

    fn rejected(&mut self, id: u64, gateway: usize, step: StepId) {
        self.requests.remove(&id);
        let failure = StepFailure {
            cause: "400: the prompt is too long".into(),
            retryable: false,
            rejected: true,
            busy: None,
        };
        self.send_report(
            gateway,
            Event::Program(ProgramEvent::StepFailed { step, failure }),
            None,
        );
        if let Some(exchange) = self.gateways[gateway].exchanges.remove(&step) {
            self.answer(exchange.agent, exchange.branch, Answer::Hopeless);
        }
    }

    fn generated(&mut self, id: u64, tokens: u64) {
        let Some(request) = self.requests.get_mut(&id) else {
            return;
        };
        let first = !request.began;
        request.tokens = tokens;
        request.began = true;
        let (gateway, step, output) = (request.gateway, request.step, request.output);
        let token_us = self.engines[request.engine].plan.token_us;
        if first {
            self.send_report(
                gateway,
                Event::Program(ProgramEvent::StepFirstToken { step }),
                None,
            );
        } else if tokens < output {
            self.send_report(
                gateway,
                Event::Program(ProgramEvent::StepProgressed {
                    step,
                    output_tokens: tokens,
                }),
                None,
            );
        }
        if tokens >= output {
            return self.finished(id);
        }
        let next = (tokens + PROGRESS_TOKENS).min(output);
        let at = self.now_us + (next - tokens) * token_us;
        self.calendar.put(
            at,
            ScheduledEvent::Engine {
                request: id,
                progress: Progress::Tokens(next),
            },
        );
        let stalls = self.now_us + self.plan.behaviour.stall_us;
        self.calendar.put(
            stalls,
            ScheduledEvent::Stalled {
                request: id,
                seen: tokens,
            },
        );
    }

    fn finished(&mut self, id: u64) {
        let Some(request) = self.requests.remove(&id) else {
            return;
        };
        let cached = self
            .streams
            .engines
            .percent(50)
            .then_some(request.prompt / 2);
        let tokens = StepTokens {
            prompt: request.prompt,
            output: request.output,
            cached,
        };
        let event = Event::Program(ProgramEvent::StepFinished {
            step: request.step,
            tokens,
            finish: FinishReason::Stop,
            weights: None,
        });
        self.send_report(request.gateway, event, None);
        self.gateways[request.gateway]
            .exchanges
            .remove(&request.step);
        self.answer(request.agent, request.branch, Answer::Whole);
    }

    /// A gateway gives up a request without progress.
    pub(crate) fn stalled(&mut self, id: u64, seen: u64) {
        let still = self
            .requests
            .get(&id)
            .is_some_and(|request| request.tokens == seen);
        if still {
            self.request_failed(id, "no token for long");
        }
    }

    /// Breaks connections to an engine, each with this probability in percent.
    pub(crate) fn break_connections(&mut self, engine: usize, percent: u64) {
        let there: Vec<u64> = self
            .requests
            .iter()
            .filter(|(_, request)| request.engine == engine)
            .map(|(id, _)| *id)
            .collect();
        for request in there {
            if self.streams.engines.percent(percent) {
                let at = self.now_us + self.streams.engines.below(500_000);
                self.calendar.put(
                    at,
                    ScheduledEvent::Engine {
                        request,
                        progress: Progress::Break,
                    },
                );
            }
        }
    }
}
