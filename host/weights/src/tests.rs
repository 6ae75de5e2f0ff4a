//! The machine of weights and the real drivers above scripted engines that fail at any request in
//! any way, while steps run there.

mod engine;
mod protocols;
mod scripts;

use crate::engines;
use engine::{Content, Engine, FAULTS, Fault, Running, Scripted, Token};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use treadle_core::weights::{
    Call, Holding, Phase, UpdatePlan, Weights, WeightsCommand, WeightsEvent, WeightsMachine,
};
use treadle_core::{CapturedVersion, DaemonEvent, ServedVersions};
use treadle_machine::{Machine, Notice, Notified};
use treadle_model::{EngineKind, Span, Timestamp, WorkerId};

/// Tokens of a step.
const TOKENS: usize = 4;

/// Which faults happen by chance.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Faults {
    None,
    /// Any request to any engine fails in any way, but none lies.
    Any,
    /// The first engine says that it loaded what it has not; the others are sound.
    Liar,
}

/// Which engines answered when they were last probed.
struct LastProbes(BTreeMap<WorkerId, bool>);

impl treadle_core::weights::Engines for LastProbes {
    fn engines(&self) -> Vec<WorkerId> {
        self.0.keys().copied().collect()
    }

    fn answers(&self, worker: WorkerId) -> bool {
        self.0[&worker]
    }

    fn ends_steps(&self, _worker: WorkerId) -> bool {
        false
    }
}

/// A step that runs at an engine, and its tokens will be trained.
struct Step {
    number: u64,
    worker: WorkerId,
    sent: Timestamp,
    begun: CapturedVersion,
}

/// An answer that arrives later.
struct Late {
    at: Timestamp,
    event: WeightsEvent,
}

struct Fleet {
    machine: WeightsMachine,
    engines: BTreeMap<WorkerId, Scripted>,
    seen: LastProbes,
    fenced: BTreeSet<WorkerId>,
    calls: Vec<WeightsCommand>,
    answers: Vec<Late>,
    steps: Vec<Step>,
    begun: u64,
    /// The version in service.
    served: u64,
    /// Steps whose tokens have versions on record.
    captured: u64,
    faults: Faults,
    now: Timestamp,
    random: u64,
}

fn version(number: u64) -> Weights {
    Weights {
        lineage: 0,
        version: number,
        name: format!("0.{number}").into(),
        folder: format!("/weights/{number}").into(),
    }
}

/// What drivers return: they wait for nothing but engines, which answer at once.
fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a driver waits for something else than its engine"),
    }
}

impl Fleet {
    fn new(kind: EngineKind, engines: u32, seed: u64) -> Self {
        let workers = || (0..engines).map(WorkerId);
        let engine = |worker: WorkerId| Scripted::new(Engine::new(kind, u64::from(worker.0)));
        Self {
            machine: WeightsMachine::default(),
            engines: workers().map(|w| (w, engine(w))).collect(),
            seen: LastProbes(workers().map(|w| (w, true)).collect()),
            fenced: BTreeSet::new(),
            calls: Vec::new(),
            answers: Vec::new(),
            steps: Vec::new(),
            begun: 0,
            served: 0,
            captured: 0,
            faults: Faults::None,
            now: Timestamp(0),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % bound as u64) as usize
    }

    fn any(&mut self) -> WorkerId {
        let worker = self.below(self.engines.len());
        WorkerId(u32::try_from(worker).expect("few"))
    }

    fn engine(&self, worker: WorkerId) -> std::sync::MutexGuard<'_, Engine> {
        self.engines[&worker].lock()
    }

    fn event(&mut self, event: &WeightsEvent) {
        self.machine.advance(self.now);
        self.machine.apply(event, &self.seen);
        self.settle();
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        self.machine.advance(self.now);
        self.machine.daemon(event);
        self.settle();
    }

    fn notice(&mut self, notice: &Notice) {
        self.machine.advance(self.now);
        self.machine.notice(notice);
        self.settle();
    }

    /// Publishes a version, unless one is being loaded.
    fn publish(&mut self, number: u64) -> bool {
        let event = WeightsEvent::WeightsPublished {
            job: "job".into(),
            weights: version(number),
            workers: Vec::new(),
            plan: UpdatePlan::default(),
        };
        let may = self.machine.check(&event, &self.seen).is_ok();
        if may {
            self.event(&event);
        }
        may
    }

    fn settle(&mut self) {
        self.machine.settle(&self.seen);
        self.machine.assert_invariants();
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::WorkerFenced { worker, fenced } if fenced => {
                    self.fenced.insert(worker);
                }
                Notice::WorkerFenced { worker, .. } => {
                    self.fenced.remove(&worker);
                }
                Notice::VersionServed { version, .. } => {
                    assert!(version > self.served, "versions come in order");
                    self.served = version;
                }
                _ => {}
            }
        }
        while let Some(command) = self.machine.poll_command() {
            self.calls.push(command);
        }
        for worker in &self.fenced {
            let why = self.machine.state().why_fenced(*worker);
            assert!(why.is_some_and(|why| !why.is_empty()), "{worker} says why");
        }
    }

    /// What is known of an engine's version, as the core reads it for captured steps.
    fn read(&self, worker: WorkerId) -> CapturedVersion {
        let state = self.machine.state();
        let job = state.jobs.get("job");
        let holding = state.holding(worker);
        let held = holding.and_then(|holding| holding.held.as_ref());
        let is_changing = |h: &&Holding| !matches!(h.phase, Phase::Held | Phase::Paused);
        let loading = holding.filter(is_changing);
        let loading = loading.and_then(|holding| holding.loading.as_ref());
        let held: Vec<&Weights> = held.into_iter().chain(loading).collect();
        let update = job.and_then(|job| job.update.as_ref());
        let last = job.and_then(|job| job.last.as_ref());
        let serving = job.and_then(|job| job.serving.as_ref());
        let known = serving.into_iter().chain(update.map(|u| &u.weights));
        let known = known.chain(last.map(|last| &last.weights));
        CapturedVersion {
            version: Some(self.served),
            held: held.iter().map(|weights| weights.version).collect(),
            named: known
                .chain(held.iter().copied())
                .map(|weights| (weights.name.clone(), weights.version))
                .collect(),
            ..CapturedVersion::default()
        }
    }

    fn begin_step(&mut self) {
        let worker = self.any();
        if self.fenced.contains(&worker) || !self.seen.0[&worker] || !self.engine(worker).up {
            return;
        }
        self.begun += 1;
        let number = self.begun;
        let running = Running::default();
        self.engine(worker).running.insert(number, running);
        let (sent, begun) = (self.now, self.read(worker));
        self.steps.push(Step {
            number,
            worker,
            sent,
            begun,
        });
    }

    /// Engines generate, and steps whose tokens are complete end.
    fn run_steps(&mut self) {
        for engine in self.engines.values() {
            engine.lock().generate();
        }
        let mut ended = Vec::new();
        for step in std::mem::take(&mut self.steps) {
            let mut engine = self.engine(step.worker);
            let found = engine.running.get(&step.number);
            let is_whole = found.is_some_and(|found| found.tokens.len() >= TOKENS);
            // What is not there any more died with its process.
            let is_lost = found.is_none();
            let whole = if is_whole {
                engine.running.remove(&step.number)
            } else {
                None
            };
            drop(engine);
            match whole {
                Some(whole) => ended.push((step, whole.tokens)),
                None if is_lost => {}
                None => self.steps.push(step),
            }
        }
        for (step, tokens) in ended {
            self.end_step(step, &tokens);
        }
    }

    /// The versions on record for each token are those that sampled it, or there is no sample.
    fn end_step(&mut self, step: Step, tokens: &[Token]) {
        let Step {
            worker,
            sent,
            begun,
            ..
        } = step;
        let ended = self.read(worker);
        let served = ServedVersions { begun, ended };
        let named: Result<Vec<_>, _> = tokens.iter().map(|t| served.named(&t.name)).collect();
        if let Ok((named, whole)) = named.and_then(|named| Ok((named, served.bounds()?))) {
            let is_named = named.iter().all(Option::is_some);
            for (token, bounds) in tokens.iter().zip(&named) {
                let bounds = bounds.filter(|_| is_named).unwrap_or(whole);
                let Content::Whole(number) = token.weights else {
                    panic!("{worker}: a token of a mixture is captured: {token:?}");
                };
                assert!(
                    (bounds.oldest..=bounds.newest).contains(&number),
                    "{worker}: {token:?} is captured as {bounds:?}"
                );
                assert_eq!(token.caches, token.weights, "{worker}: with caches of it");
            }
            self.captured += 1;
        }
        let name = tokens.last().expect("some").name.as_str().into();
        self.notice(&Notice::WeightsNamed { worker, sent, name });
    }

    /// Whether an engine answers, and still names what it is to have. Not each restart is noticed.
    fn probe(&mut self, worker: WorkerId) {
        let state = self.machine.state();
        let holding = state.holding(worker);
        let serves = holding.filter(|h| h.phase == Phase::Held && h.call.is_none());
        let held = serves.and_then(|holding| holding.held.as_ref());
        let held = held.map(|held| held.name.clone());
        let engine = self.engine(worker);
        let answers = engine.up && held.is_none_or(|held| *held == *engine.name);
        drop(engine);
        if self.seen.0.insert(worker, answers) != Some(answers) {
            self.notice(&Notice::WorkersChanged);
        }
    }

    /// Makes a call with the real driver.
    fn make(&mut self, command: WeightsCommand) {
        let WeightsCommand::Call {
            job,
            worker,
            number,
            call,
            weights,
        } = command;
        let scripted = &self.engines[&worker];
        let kind = scripted.lock().kind;
        let engine = engines::Engine {
            upstream: scripted,
            url: "http://engine",
            kind,
        };
        let answer = ready(engines::call(engine, call, &weights));
        let mut engine = scripted.lock();
        let after = std::mem::take(&mut engine.after);
        if after.restarts {
            engine.restart();
        }
        let waited = Span::from_secs(after.waited.as_secs());
        drop(engine);
        self.answers.push(Late {
            at: self.now + waited,
            event: WeightsEvent::WeightsCallEnded {
                job,
                worker,
                number,
                answer,
            },
        });
    }

    /// What goes wrong with the requests of a call that is made now; there are at most three.
    fn write_script(&mut self, worker: WorkerId, call: Call) {
        let is_liar = self.faults == Faults::Liar && worker == WorkerId(0);
        let mut script = Vec::new();
        for _ in 0..3 {
            let (dice, fault) = (self.below(8), FAULTS[self.below(FAULTS.len())]);
            script.push(match self.faults {
                Faults::Any if dice == 0 => Some(fault).filter(|f| *f != Fault::Lie),
                Faults::Liar if is_liar && call == Call::Apply && dice < 4 => Some(Fault::Lie),
                _ => None,
            });
        }
        self.engine(worker).script = script;
    }

    /// Makes a call, or delivers an answer; else time passes.
    fn go_on(&mut self) {
        self.now = self.now + Span::from_millis(100);
        self.run_steps();
        if self.below(2) == 0 {
            self.begin_step();
        }
        if self.below(4) == 0 {
            let worker = self.any();
            self.probe(worker);
        }
        let now = self.now;
        let due = self.answers.iter().position(|late| late.at <= now);
        if let Some(due) = due {
            let late = self.answers.swap_remove(due);
            return self.event(&late.event);
        }
        if self.calls.is_empty() {
            self.now = self.now + Span::from_secs(5);
            return self.daemon(&DaemonEvent::TimerFired);
        }
        let index = self.below(self.calls.len());
        let command = self.calls.swap_remove(index);
        let WeightsCommand::Call { worker, call, .. } = command;
        if self.faults != Faults::None {
            self.write_script(worker, call);
        }
        self.make(command);
    }

    /// Something happens to an engine, or to the daemon, from outside.
    fn disturb(&mut self) {
        let worker = self.any();
        match self.below(4) {
            0 => self.engine(worker).die(),
            1 => self.engine(worker).restart(),
            2 => {
                // What is under way is lost with it: engines did it, or will do it.
                self.calls.clear();
                self.answers.clear();
                self.steps.clear();
                for engine in self.engines.values() {
                    engine.lock().running.clear();
                }
                self.daemon(&DaemonEvent::DaemonRestarted);
            }
            _ => {}
        }
        self.supervise(worker);
    }

    /// An engine whose process died is started again.
    fn supervise(&mut self, worker: WorkerId) {
        let mut engine = self.engine(worker);
        if !engine.up {
            engine.restart();
        }
    }

    fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        for _ in 0..20_000 {
            if is_over(self) {
                return;
            }
            let worker = self.any();
            if self.below(4) == 0 {
                self.supervise(worker);
            }
            self.go_on();
        }
        panic!("it does not come to an end: {:?}", self.machine.state());
    }

    fn is_idle(&self) -> bool {
        let job = self.machine.state().jobs.get("job");
        job.is_none_or(|job| job.update.is_none())
    }

    fn serves_everywhere(&self, number: u64) -> bool {
        self.served == number
            && self.fenced.is_empty()
            && self.engines.values().all(|engine| {
                let engine = engine.lock();
                engine.content == Content::Whole(number) && !engine.paused
            })
    }
}
