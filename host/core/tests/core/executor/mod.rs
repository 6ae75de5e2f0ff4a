//! An executor of actions that runs nothing: it keeps its own record of the starts it was told of,
//! and checks each command against it. Invariants are checked after each event.

use std::collections::{BTreeMap, BTreeSet};
use treadle_core::actions::{
    ActionCommand, ActionError, ActionEvent, ActionSpec, Admission, Demand, ElasticAnswer,
    ElasticQuestion, Grant, Outcome, Resource, Supply,
};
use treadle_core::programs::ProgramCommand;
use treadle_core::{Command, Core, CoreConfig, DaemonEvent, Event};
use treadle_model::{ActionId, AskId, PolicyRef, ProgramId, Span, Timestamp};

/// How the policy answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Answers {
    /// Like the built-in default.
    Least,
    /// Not at all.
    Never,
    /// The largest option of each row.
    Most,
    /// Only the last row.
    LastOnly,
    /// Anything, valid or not.
    Seeded(u64),
}

/// A running attempt.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) number: u32,
    pub(crate) grants: Vec<Grant>,
    pub(crate) begun: bool,
}

pub(crate) struct Executor {
    pub(crate) core: Core,
    pub(crate) now: Timestamp,
    pub(crate) journal: Vec<(Timestamp, Event)>,
    pub(crate) answers: Answers,
    /// Whether nothing may start behind an action that waits for the same resource.
    pub(crate) in_order: bool,
    pub(crate) resources: Vec<Resource>,
    pub(crate) waiting: BTreeMap<ActionId, ActionSpec>,
    pub(crate) running: BTreeMap<ActionId, Attempt>,
    pub(crate) stopped: BTreeSet<ActionId>,
    pub(crate) answered: BTreeMap<ActionId, Outcome>,
    pub(crate) asked: Vec<(AskId, ElasticQuestion)>,
    pub(crate) log: Vec<ActionCommand>,
    /// Expected idle time of each program in the last question to a policy.
    pub(crate) idle: BTreeMap<ProgramId, Span>,
    /// The specifications of all submitted actions.
    specs: BTreeMap<ActionId, ActionSpec>,
    attempts: BTreeMap<ActionId, u32>,
    /// When requests of quotas began.
    requests: BTreeMap<Box<str>, Vec<(Timestamp, u64)>>,
}

pub(crate) fn units(name: &str, total: u64) -> Resource {
    Resource {
        name: name.into(),
        supply: Supply::Units { total },
    }
}

pub(crate) fn devices(name: &str, nodes: &[u32]) -> Resource {
    Resource {
        name: name.into(),
        supply: Supply::Devices {
            nodes: nodes.to_vec(),
        },
    }
}

pub(crate) fn quota(name: &str, at_once: u64, requests: u64, period: Span) -> Resource {
    Resource {
        name: name.into(),
        supply: Supply::Quota {
            concurrent_max: Some(at_once),
            requests_max: Some(requests),
            period,
        },
    }
}

/// An action with these demands; a demand with several amounts accepts any of them.
pub(crate) fn action(demands: &[(&str, &[u64])]) -> ActionSpec {
    let demand = |(resource, options): &(&str, &[u64])| Demand {
        resource: (*resource).into(),
        options: options.to_vec(),
    };
    ActionSpec {
        program: None,
        job: "job".into(),
        kind: "tool".into(),
        demands: demands.iter().map(demand).collect(),
        durations: Vec::new(),
        service: None,
        run_max: Span::from_secs(100),
        start_by: None,
        idempotent: false,
        idempotency_key: None,
        body: "digest".into(),
    }
}

impl Executor {
    pub(crate) fn new(resources: &[Resource]) -> Self {
        Self::with(resources, |_| {})
    }

    /// An executor that serves actions in order of arrival, unless `change` changes that.
    pub(crate) fn with(resources: &[Resource], change: impl FnOnce(&mut CoreConfig)) -> Self {
        let mut config = CoreConfig::default();
        config.actions.joint_order = false;
        change(&mut config);
        let mut executor = Self {
            in_order: !config.actions.joint_order,
            core: Core::new(config),
            now: Timestamp(0),
            journal: Vec::new(),
            answers: Answers::Least,
            resources: Vec::new(),
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            stopped: BTreeSet::new(),
            answered: BTreeMap::new(),
            asked: Vec::new(),
            log: Vec::new(),
            idle: BTreeMap::new(),
            specs: BTreeMap::new(),
            attempts: BTreeMap::new(),
            requests: BTreeMap::new(),
        };
        executor.set(resources);
        executor
    }

    pub(crate) fn set(&mut self, resources: &[Resource]) -> &mut Self {
        self.resources = resources.to_vec();
        self.handle(ActionEvent::ResourcesSet {
            resources: resources.to_vec(),
        })
    }

    pub(crate) fn declare(&mut self, service: &str, load_s: u64) -> &mut Self {
        self.handle(ActionEvent::ServiceDeclared {
            service: service.into(),
            load: Span::from_secs(load_s),
        })
    }

    pub(crate) fn check(&self, spec: &ActionSpec) -> Result<Admission, ActionError> {
        self.core.check_action(spec)
    }

    /// Submits an action that passes the check.
    pub(crate) fn submit(&mut self, spec: ActionSpec) -> ActionId {
        let id = match self.check(&spec).expect("it is a good one") {
            Admission::Known(id) => return id,
            Admission::New(id) => id,
        };
        self.waiting.insert(id, spec.clone());
        self.specs.insert(id, spec.clone());
        self.handle(ActionEvent::ActionSubmitted {
            action: id,
            spec: Box::new(spec),
        });
        id
    }

    pub(crate) fn begin(&mut self, id: ActionId) -> &mut Self {
        let attempt = self.running.get_mut(&id).expect("it was started");
        attempt.begun = true;
        let attempt = attempt.number;
        self.handle(ActionEvent::ActionBegan {
            action: id,
            attempt,
        })
    }

    pub(crate) fn end(&mut self, id: ActionId, outcome: Outcome) -> &mut Self {
        let attempt = self.running.remove(&id).expect("it was started").number;
        let stops = self.stopped.remove(&id);
        let spec = &self.specs[&id];
        if outcome == Outcome::Unknown && spec.idempotent && !stops {
            self.waiting.insert(id, spec.clone());
        }
        self.handle(ActionEvent::ActionEnded {
            action: id,
            attempt,
            outcome,
            output: None,
        })
    }

    pub(crate) fn exit(&mut self, id: ActionId) -> &mut Self {
        self.end(id, Outcome::Exited { code: 0 })
    }

    pub(crate) fn cancel(&mut self, id: ActionId) -> &mut Self {
        self.handle(ActionEvent::ActionCancelled { action: id })
    }

    pub(crate) fn refuse(&mut self, id: ActionId, resource: &str, after: Span) -> &mut Self {
        let attempt = self.running.remove(&id).expect("it was started").number;
        self.stopped.remove(&id);
        self.waiting.insert(id, self.specs[&id].clone());
        self.handle(ActionEvent::QuotaRefused {
            resource: resource.into(),
            retry_after: after,
            action: Some((id, attempt)),
        })
    }

    /// Lets time pass, firing timers when they are due.
    pub(crate) fn wait(&mut self, span: Span) -> &mut Self {
        let until = self.now + span;
        while let Some(at) = self.core.next_deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.handle(Event::Daemon(DaemonEvent::TimerFired));
        }
        self.now = until;
        self
    }

    pub(crate) fn wait_s(&mut self, seconds: u64) -> &mut Self {
        self.wait(Span::from_secs(seconds))
    }

    pub(crate) fn handle(&mut self, event: impl Into<Event>) -> &mut Self {
        let mut events = vec![event.into()];
        let mut started = Vec::new();
        while let Some(event) = events.pop() {
            self.core.handle(self.now, &event);
            self.journal.push((self.now, event));
            while let Some(command) = self.core.poll_command() {
                match command {
                    Command::Action(command) => {
                        self.log.push(command.clone());
                        events.extend(self.carry_out(command, &mut started));
                    }
                    Command::Program(ProgramCommand::AskPolicy { question, .. }) => {
                        let columns = &question.programs;
                        let rows = columns.program.iter().zip(&columns.costs.idle);
                        self.idle
                            .extend(rows.map(|(program, idle)| (*program, *idle)));
                    }
                    Command::Program(_) | Command::Training(_) | Command::Weights(_) => {}
                }
            }
            while self.core.poll_decision().is_some() {}
            self.core.assert_invariants();
        }
        self.find_who_waits_again();
        self.check_order(&started);
        self
    }

    fn carry_out(
        &mut self,
        command: ActionCommand,
        started: &mut Vec<(ActionId, ActionSpec)>,
    ) -> Option<Event> {
        match command {
            ActionCommand::StartAction {
                action,
                attempt,
                grants,
                ..
            } => {
                // A refused action may start again at once.
                self.find_who_waits_again();
                let spec = self.waiting.remove(&action).expect("it waits");
                let before = self.attempts.insert(action, attempt).unwrap_or(0);
                assert_eq!(attempt, before + 1, "{action}: attempts are counted");
                started.push((action, spec));
                self.count_requests(&grants);
                let attempt = Attempt {
                    number: attempt,
                    grants,
                    begun: false,
                };
                let twice = self.running.insert(action, attempt);
                assert!(twice.is_none(), "{action} runs once at a time");
                self.check_sums();
            }
            ActionCommand::StopAction { action, attempt } => {
                let runs = self.running.get(&action);
                assert_eq!(runs.map(|r| r.number), Some(attempt), "{action} runs");
                self.stopped.insert(action);
            }
            ActionCommand::AnswerAction { action } => {
                let known = self.core.actions().action(action);
                let ended = known.and_then(|a| a.ended()).expect("it is over");
                let twice = self.answered.insert(action, ended.outcome.clone());
                assert!(twice.is_none(), "{action} is answered once");
                self.waiting.remove(&action);
                self.running.remove(&action);
                self.stopped.remove(&action);
            }
            ActionCommand::AskElastic { ask, question, .. } => {
                let answer = self.answer(&question);
                self.asked.push((ask, *question));
                return answer.map(|answer| {
                    ActionEvent::ElasticAnswered {
                        ask,
                        policy: PolicyRef("test".into()),
                        answer,
                    }
                    .into()
                });
            }
        }
        None
    }

    fn answer(&mut self, question: &ElasticQuestion) -> Option<ElasticAnswer> {
        let rows = question.action.len();
        let options = |row: usize| {
            let (from, to) = (question.option_start[row], question.option_start[row + 1]);
            &question.option_units[from as usize..to as usize]
        };
        let mut answer = ElasticAnswer::default();
        match &mut self.answers {
            Answers::Never => return None,
            Answers::Least => return Some(question.least()),
            Answers::Most => {
                let start =
                    (0..rows).map(|row| (question.action[row], *options(row).last().unwrap()));
                answer.start = start.collect();
            }
            Answers::LastOnly => {
                let row = question.candidate.iter().rposition(|c| *c == 1).unwrap();
                answer.start.push((question.action[row], options(row)[0]));
            }
            Answers::Seeded(seed) => {
                for row in 0..rows {
                    *seed = seed
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (pick, id) = ((*seed >> 33) as usize, question.action[row]);
                    match pick % 8 {
                        0 => {}
                        1 => answer.start.push((ActionId(id.0 ^ 5), 1)),
                        2 => answer.start.push((id, 3)),
                        _ => {
                            let options = options(row);
                            answer.start.push((id, options[pick / 8 % options.len()]));
                        }
                    }
                }
            }
        }
        Some(answer)
    }

    /// Lost attempts are repeated if that does no harm, and those whose resources are gone hold
    /// less.
    fn find_who_waits_again(&mut self) {
        let mut lost = Vec::new();
        for (id, attempt) in &mut self.running {
            let Some(known) = self.core.actions().live.get(id) else {
                continue;
            };
            match known.started().filter(|_| known.attempt == attempt.number) {
                Some(started) => attempt.grants.retain(|g| started.grants.contains(g)),
                None => lost.push(*id),
            }
        }
        for id in lost {
            let spec = self.specs[&id].clone();
            assert!(spec.idempotent, "{id} runs once at most");
            self.running.remove(&id);
            self.stopped.remove(&id);
            self.waiting.insert(id, spec);
        }
    }

    fn check_sums(&self) {
        for resource in &self.resources {
            let grants = self.running.values().flat_map(|a| &a.grants);
            let of_it: Vec<&Grant> = grants.filter(|g| g.resource == resource.name).collect();
            let sum: u64 = of_it.iter().map(|g| g.units).sum();
            match &resource.supply {
                Supply::Units { total } => assert!(sum <= *total, "{sum} of {resource:?}"),
                Supply::Devices { nodes } => check_chunks(nodes, &of_it),
                Supply::Quota { concurrent_max, .. } => {
                    assert!(sum <= concurrent_max.unwrap_or(u64::MAX), "{sum} at once");
                }
            }
        }
    }

    fn count_requests(&mut self, grants: &[Grant]) {
        for resource in &self.resources {
            let Supply::Quota {
                requests_max: Some(most),
                period,
                ..
            } = resource.supply
            else {
                continue;
            };
            let requests = self.requests.entry(resource.name.clone()).or_default();
            let new = grants.iter().filter(|g| g.resource == resource.name);
            requests.extend(new.map(|g| (self.now, g.units)));
            let recent = requests.iter().filter(|(at, _)| *at + period > self.now);
            let recent: u64 = recent.map(|(_, n)| n).sum();
            assert!(recent <= most, "{recent} requests in a period");
        }
    }

    /// No head of a queue was overtaken on a resource that it needs.
    fn check_order(&self, started: &[(ActionId, ActionSpec)]) {
        if !self.in_order || self.answers != Answers::Least {
            return;
        }
        let mut queues = BTreeSet::new();
        let key = |spec: &ActionSpec| spec.demands[spec.key_demand()].resource.clone();
        let mut firsts = self.waiting.iter().collect::<Vec<_>>();
        firsts.retain(|(_, spec)| queues.insert(key(spec)));
        for (later, spec) in started {
            for (earlier, waits) in firsts.iter().filter(|(id, _)| *id < later) {
                let shared = |d: &&Demand| spec.demands.iter().any(|o| o.resource == d.resource);
                let shared = waits.demands.iter().find(shared);
                assert!(shared.is_none(), "{later} overtook {earlier} on {shared:?}");
            }
        }
    }

    /// Ends all running actions until none is left.
    pub(crate) fn run_out(&mut self) {
        // An earlier question may be answered late.
        self.in_order &= self.answers == Answers::Least;
        self.answers = Answers::Least;
        for _ in 0..10_000 {
            if let Some(id) = self.running.keys().next().copied() {
                if !self.running[&id].begun {
                    self.begin(id);
                }
                self.exit(id);
            } else if self.waiting.is_empty() {
                break;
            } else {
                self.wait_s(1);
            }
        }
        assert!(self.waiting.is_empty(), "{:?} wait for ever", self.waiting);
        assert!(self.core.actions().live.is_empty());
        for pool in &self.core.actions().pools {
            assert_eq!(pool.used, 0, "all of {} is free", pool.resource.name);
        }
    }
}

fn check_chunks(nodes: &[u32], grants: &[&Grant]) {
    let mut taken = BTreeSet::new();
    for grant in grants {
        let chunk = grant.chunk.expect("devices are named");
        assert_eq!(u64::from(chunk.size), grant.units);
        assert!(chunk.size.is_power_of_two() && chunk.first % chunk.size == 0);
        assert!(chunk.first + chunk.size <= nodes[chunk.node as usize]);
        for device in chunk.devices() {
            let is_free = taken.insert((chunk.node, device));
            assert!(is_free, "{chunk:?} is given once");
        }
    }
}
