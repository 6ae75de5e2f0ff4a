//! Updates of engines that fail at any call, lose answers, lie and restart.

mod bugs;
mod driven;
mod edges;
mod groups;
mod left;
mod release;
mod trainer;

use super::*;
use std::collections::BTreeMap;
use treadle_machine::Machine;
use treadle_model::Span;

/// What an engine really has.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Content {
    Whole(Box<str>),
    Torn(u64),
}

/// An engine, as it is behind its answers.
#[derive(Clone, Debug)]
struct Engine {
    content: Content,
    /// The version that it reports.
    name: Box<str>,
    /// With what its caches were computed.
    caches: Content,
    paused: bool,
    up: bool,
    /// Steps that were cut and have not ended.
    cut: u32,
    /// It is another process, and nobody noticed until its next answer.
    restarted: bool,
}

impl Engine {
    fn fresh() -> Self {
        let base = Content::Whole("base".into());
        Self {
            content: base.clone(),
            name: "base".into(),
            caches: base,
            paused: false,
            up: true,
            cut: 0,
            restarted: false,
        }
    }

    fn checksum(&self) -> Checksum {
        let value = match &self.content {
            Content::Whole(name) => format!("sum of {name}"),
            Content::Torn(nonce) => format!("torn {nonce}"),
        };
        Checksum {
            layout: "tp1".into(),
            value: value.into(),
        }
    }
}

/// How calls end in a scenario.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Faults {
    None,
    /// Any call of any engine fails, before or after it was carried out, or in the middle.
    Any,
    /// The first engine says that it loaded what it has not, or only in part; the others are sound.
    Liar,
}

struct Fleet {
    machine: WeightsMachine,
    /// The machine as a snapshot had it a while ago, with everything since.
    restored: WeightsMachine,
    engines: BTreeMap<WorkerId, Engine>,
    fenced: BTreeMap<WorkerId, bool>,
    served: Vec<u64>,
    pending: VecDeque<WeightsCommand>,
    faults: Faults,
    bug: Option<bugs::Bug>,
    /// Its trainer pauses no engine: treadle does.
    never_pauses: bool,
    /// Updates that its trainer has begun.
    rounds: u64,
    /// The last of them is in parts that no call begins or ends.
    in_buckets: bool,
    now: Timestamp,
    random: u64,
}

impl Engines for BTreeMap<WorkerId, Engine> {
    fn engines(&self) -> Vec<WorkerId> {
        self.keys().copied().collect()
    }

    fn answers(&self, worker: WorkerId) -> bool {
        self[&worker].up
    }

    fn ends_steps(&self, worker: WorkerId) -> bool {
        self[&worker].cut > 0
    }
}

fn version(number: u64) -> Weights {
    Weights {
        lineage: 0,
        version: number,
        name: format!("v{number}").into(),
        folder: format!("/weights/{number}").into(),
    }
}

impl Fleet {
    fn new(engines: u32, faults: Faults, seed: u64) -> Self {
        let engines = (0..engines).map(|id| (WorkerId(id), Engine::fresh()));
        Self {
            machine: WeightsMachine::default(),
            restored: WeightsMachine::default(),
            engines: engines.collect(),
            fenced: BTreeMap::new(),
            served: Vec::new(),
            pending: VecDeque::new(),
            faults,
            bug: None,
            never_pauses: false,
            rounds: 0,
            in_buckets: false,
            now: Timestamp(0),
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % bound
    }

    fn event(&mut self, event: &WeightsEvent) {
        for machine in [&mut self.machine, &mut self.restored] {
            machine.advance(self.now);
            machine.apply(event, &self.engines);
        }
        self.settle();
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        for machine in [&mut self.machine, &mut self.restored] {
            machine.advance(self.now);
            machine.daemon(event);
        }
        self.settle();
    }

    fn publish(&mut self, number: u64, plan: UpdatePlan) -> Result<(), WeightsError> {
        let event = WeightsEvent::WeightsPublished {
            job: "job".into(),
            weights: version(number),
            workers: Vec::new(),
            plan,
        };
        self.machine.check(&event, &self.engines)?;
        self.event(&event);
        Ok(())
    }

    fn notice(&mut self, notice: &Notice) {
        if self.bug.is_some_and(|bug| bug.misses(notice)) {
            return;
        }
        for machine in [&mut self.machine, &mut self.restored] {
            machine.advance(self.now);
            machine.notice(notice);
        }
        self.settle();
    }

    fn settle(&mut self) {
        for machine in [&mut self.machine, &mut self.restored] {
            machine.advance(self.now);
        }
        self.machine.settle(&self.engines);
        self.restored.settle(&self.engines);
        assert_eq!(
            self.restored.state(),
            self.machine.state(),
            "a replay differs"
        );
        if self.now.0.is_multiple_of(17) {
            let snapshot = serde_json::to_vec(self.machine.state()).expect("JSON");
            let state = serde_json::from_slice(&snapshot).expect("its own");
            self.restored = WeightsMachine::with_state(state);
        }
        self.machine.assert_invariants();
        while let Some(notice) = self.machine.poll_notice() {
            match notice {
                Notice::WorkerFenced { worker, fenced } => {
                    let is_lost = self.bug == Some(bugs::Bug::LoseFences) && fenced;
                    self.fenced.insert(worker, fenced && !is_lost);
                }
                Notice::VersionServed { version, .. } => self.served.push(version),
                Notice::WeightsChanged { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(command) = self.machine.poll_command() {
            self.pending.push_back(command);
        }
        self.assert_honest();
    }

    /// No engine gets steps unless it really has what is on record, caches included.
    fn assert_honest(&self) {
        for (worker, engine) in &self.engines {
            let is_fenced = self.fenced.get(worker).copied().unwrap_or_default();
            if is_fenced || !engine.up || engine.restarted {
                continue;
            }
            let state = self.machine.state();
            let held = state.holding(*worker).and_then(|h| h.held.as_ref());
            // What an engine had when its job was released is not on record.
            let is_given_up = held.is_none() && state.given_up(*worker) > 0;
            let expected = match &engine.content {
                Content::Whole(name) if is_given_up => Content::Whole(name.clone()),
                _ => Content::Whole(held.map_or("base".into(), |held| held.name.clone())),
            };
            assert_eq!(
                engine.content, expected,
                "{worker}: serves what is on record"
            );
            assert_eq!(engine.caches, expected, "{worker}: with caches of it");
            assert!(!engine.paused, "{worker}: generates");
        }
    }

    /// Carries out one call, as the engine does, and returns its answer.
    fn carry_out(&mut self, worker: WorkerId, call: Call, weights: &Weights) -> Answer {
        let cause = || Box::from("as scripted");
        let (dice, nonce) = (self.below(100), self.below(u64::MAX));
        let is_liar = self.faults == Faults::Liar && worker == WorkerId(0);
        let engine = self.engines.get_mut(&worker).expect("is there");
        if !engine.up {
            return Answer::Refused { cause: cause() };
        }
        if self.faults == Faults::Any {
            match dice {
                0..6 => return Answer::Refused { cause: cause() },
                6..12 => return Answer::Failed { cause: cause() },
                12..16 if call == Call::Apply => {
                    engine.content = Content::Torn(nonce);
                    return Answer::Failed { cause: cause() };
                }
                16..20 if call == Call::Apply => {
                    engine.content = Content::Torn(nonce);
                    engine.name = weights.name.clone();
                    return Answer::Failed { cause: cause() };
                }
                _ => {}
            }
        }
        match call {
            Call::Prepare => {}
            Call::Pause => engine.paused = true,
            Call::Apply if is_liar => {
                engine.name = weights.name.clone();
                if dice < 50 {
                    engine.content = Content::Torn(nonce);
                }
            }
            Call::Apply => {
                engine.content = Content::Whole(weights.name.clone());
                engine.name = weights.name.clone();
            }
            Call::Verify => {
                return Answer::Reports {
                    name: Some(engine.name.clone()),
                    checksum: Some(engine.checksum()),
                    whole: false,
                };
            }
            Call::Clear if self.bug == Some(bugs::Bug::KeepCaches) => {}
            Call::Clear => engine.caches = engine.content.clone(),
            Call::Resume => engine.paused = false,
        }
        match dice {
            // Carried out, and the answer is lost.
            20..26 if self.faults == Faults::Any => Answer::Failed { cause: cause() },
            _ => Answer::Done,
        }
    }

    /// Engines that restarted and get steps name their version in the answers.
    fn answer_steps(&mut self) {
        for (worker, engine) in self.engines.clone() {
            let is_fenced = self.fenced.get(&worker).copied().unwrap_or_default();
            if !engine.restarted || is_fenced {
                continue;
            }
            if let Some(engine) = self.engines.get_mut(&worker) {
                engine.restarted = false;
            }
            self.notice(&Notice::WeightsNamed {
                worker,
                sent: self.now,
                name: engine.name,
            });
        }
    }

    /// Answers one of the calls that are under way; else time passes.
    fn go_on(&mut self) {
        self.now = self.now + Span::from_millis(100);
        self.answer_steps();
        if self.pending.is_empty() {
            self.now = self.now + Span::from_secs(1);
            return self.daemon(&DaemonEvent::TimerFired);
        }
        let index = self.below(self.pending.len() as u64) as usize;
        let Some(WeightsCommand::Call {
            job,
            worker,
            number,
            call,
            weights,
        }) = self.pending.remove(index)
        else {
            return;
        };
        if !self.engines.contains_key(&worker) {
            return;
        }
        let mut answer = self.carry_out(worker, call, &weights);
        if let Some(bug) = self.bug {
            bug.tamper(call, &weights, &mut answer);
        }
        self.event(&WeightsEvent::WeightsCallEnded {
            job,
            worker,
            number,
            answer,
        });
    }

    /// Something happens to an engine from outside.
    fn disturb(&mut self) {
        let workers = self.engines.len() as u64;
        let worker = WorkerId(u32::try_from(self.below(workers)).expect("few"));
        match self.below(6) {
            0 => {
                let engine = self.engines.get_mut(&worker).expect("is there");
                if engine.up {
                    engine.up = false;
                } else {
                    *engine = Engine::fresh();
                }
                self.notice(&Notice::WorkersChanged);
            }
            1 => {
                let engine = self.engines.get_mut(&worker).expect("is there");
                if engine.up {
                    *engine = Engine::fresh();
                    engine.restarted = true;
                }
            }
            2 => {
                self.pending.clear();
                self.daemon(&DaemonEvent::DaemonRestarted);
            }
            3 => {
                let cut = &mut self.engines.get_mut(&worker).expect("is there").cut;
                *cut = u32::from(*cut == 0);
            }
            _ => {}
        }
    }

    fn holding(&self, worker: u32) -> &Holding {
        &self.machine.state().holdings[&WorkerId(worker)]
    }

    fn is_fenced(&self, worker: u32) -> bool {
        self.machine.state().fenced.contains(&WorkerId(worker))
    }

    fn job(&self) -> &JobWeights {
        &self.machine.state().jobs["job"]
    }

    fn run_until(&mut self, is_over: impl Fn(&Self) -> bool) {
        for _ in 0..5_000 {
            if is_over(self) {
                return;
            }
            self.go_on();
        }
        let (state, engines) = (self.machine.state(), &self.engines);
        panic!("it does not come to an end: {state:?}, {engines:?}");
    }

    fn serves_everywhere(&self, number: u64) -> bool {
        let mut up = self.engines.iter().filter(|(_, engine)| engine.up);
        up.all(|(worker, engine)| {
            let holding = self.machine.state().holding(*worker);
            let is_fenced = self.machine.state().fenced.contains(worker);
            holding.is_some_and(|h| h.serves(Some(&version(number))) && !is_fenced)
                && engine.content == Content::Whole(format!("v{number}").into())
        })
    }
}

/// A scenario, with faults at first and without in the end: whatever happened, the next version
/// serves everywhere then.
fn survive(seed: u64) {
    survive_with(seed, None);
}

fn survive_with(seed: u64, bug: Option<bugs::Bug>) {
    let faults = if seed.is_multiple_of(3) {
        Faults::Liar
    } else {
        Faults::Any
    };
    let mut fleet = Fleet::new(3 + u32::try_from(seed % 3).expect("few"), faults, seed);
    fleet.bug = bug;
    let plan = UpdatePlan {
        rolling: seed % 4 == 1 && faults == Faults::Any,
        ready_s: 20,
        ..UpdatePlan::default()
    };
    let mut next = 1;
    for _ in 0..120 {
        if fleet.below(20) == 0 && fleet.publish(next, plan).is_ok() {
            next += 1;
        }
        if faults == Faults::Any && fleet.below(8) == 0 {
            fleet.disturb();
        }
        fleet.go_on();
    }
    fleet.faults = Faults::None;
    for engine in fleet.engines.values_mut() {
        engine.cut = 0;
        if !engine.up {
            *engine = Engine::fresh();
        }
    }
    fleet.notice(&Notice::WorkersChanged);
    let is_over = |fleet: &Fleet| {
        let job = fleet.machine.state().jobs.get("job");
        job.is_none_or(|job| job.update.is_none())
    };
    // The first may still find engines that restarted.
    for _ in 0..2 {
        fleet.run_until(is_over);
        fleet.publish(next, plan).expect("nothing is under way");
    }
    fleet.run_until(is_over);
    fleet.publish(next, plan).expect("nothing is under way");
    fleet.run_until(|fleet| fleet.serves_everywhere(next));
    assert_eq!(fleet.served.last(), Some(&next));
    let rises = fleet.served.windows(2).all(|pair| pair[0] < pair[1]);
    assert!(rises, "versions come into service in order");
}

#[test]
fn no_engine_serves_what_is_not_on_record_whatever_fails() {
    (0..10_000).for_each(survive);
}
