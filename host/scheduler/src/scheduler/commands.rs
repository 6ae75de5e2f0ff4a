//! The core's commands, as outputs.

use super::observation::Observation;
use super::{Observer, Output, Policies, Scheduler, projection};
use crate::instruction::{Dispatch, Instruction, PrefillAt};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use treadle_core::actions::{ActionCommand, ActionEvent};
use treadle_core::programs::Program;
use treadle_core::programs::{Prefill, ProgramCommand, Refusal};
use treadle_core::training::{TrainingCommand, TrainingEvent};
use treadle_core::{Command, Event, Mode};
use treadle_model::{GatewayId, PolicyRef, StepId, Timestamp, WorkerId};

/// The name of the default that shares out the units of actions without a policy.
const BUILT_IN: &str = "core";

impl<P: Policies, O: Observer> Scheduler<P, O> {
    pub(super) fn carry_out(
        &mut self,
        command: Command,
        now: Timestamp,
        answers: &mut VecDeque<Event>,
    ) {
        match command {
            Command::Program(command) => self.carry_out_program(command, now, answers),
            Command::Action(command) => self.carry_out_action(command, now, answers),
            Command::Training(command) => self.carry_out_training(command, now, answers),
            Command::Weights(command) => self.outputs.push_back(Output::Weights(command)),
        }
    }

    fn carry_out_program(
        &mut self,
        command: ProgramCommand,
        now: Timestamp,
        answers: &mut VecDeque<Event>,
    ) {
        match command {
            ProgramCommand::DispatchStep {
                step,
                worker,
                slot,
                priority,
                prefill,
            } => {
                let prefill = prefill.and_then(|prefill| self.prefill_at(prefill));
                if let Some(dispatch) = self.dispatch(worker, slot, priority, prefill) {
                    self.instruct(step, Instruction::Dispatch(dispatch));
                }
            }
            ProgramCommand::PreemptStep { step } => self.instruct(step, Instruction::Preempt),
            ProgramCommand::AbortStep { step, cause } => self.abort(step, cause),
            ProgramCommand::RefuseStep { step, refusal, was } => {
                // Its program acts again, whatever the event was about.
                let program = was.as_ref().map(|was| &*was.program);
                let program = program.and_then(|key| self.core.programs().keys.get(key));
                self.dirty.extend(program);
                // A step that engines failed already has its row, from the event that reported it.
                let by_engines = matches!(refusal, Refusal::EngineFailed { .. });
                if let Some(was) = was.filter(|_| self.journals && !by_engines) {
                    let row = projection::refused_row(step, &refusal, *was, now);
                    self.rows.steps.push(row);
                }
                self.instruct(step, Instruction::Refuse(refusal));
                self.outputs.push_back(Output::StepOver(step));
            }
            ProgramCommand::MigrateProgram { .. }
            | ProgramCommand::OffloadProgram { .. }
            | ProgramCommand::LoadProgram { .. }
            | ProgramCommand::CancelTransfer { .. }
            | ProgramCommand::DropCopy { .. } => {
                let failed = self.transfers.order(&self.core, command, &mut self.outputs);
                answers.extend(failed);
            }
            ProgramCommand::AskPolicy { ask, question, .. } => {
                let now_ms = now.0 / 1_000;
                answers.extend(self.policies.answer(&self.core, ask, &question, now_ms));
            }
            ProgramCommand::ForgetProgram { program } => self.forget(&program, now),
        }
    }

    /// Tells a step's gateway to drop the engine's request.
    pub(super) fn abort(&mut self, step: StepId, cause: Box<str>) {
        let known = self.core.programs().steps.get(&step);
        let is_cut = known.is_some_and(|known| known.is_cut);
        let instruction = if is_cut {
            Instruction::Cut
        } else {
            Instruction::Abort(cause)
        };
        self.instruct(step, instruction);
    }

    fn carry_out_action(
        &mut self,
        command: ActionCommand,
        now: Timestamp,
        answers: &mut VecDeque<Event>,
    ) {
        match command {
            ActionCommand::AskElastic { ask, question, .. } => {
                let arranged = self.policies.arrange(&question, now.0 / 1_000);
                let by_default = || (PolicyRef(BUILT_IN.into()), question.least());
                let (policy, answer) = arranged.unwrap_or_else(by_default);
                let event = ActionEvent::ElasticAnswered {
                    ask,
                    policy,
                    answer,
                };
                answers.push_back(event.into());
            }
            command => self.outputs.push_back(Output::Action(command)),
        }
    }

    fn carry_out_training(
        &mut self,
        command: TrainingCommand,
        now: Timestamp,
        answers: &mut VecDeque<Event>,
    ) {
        match command {
            TrainingCommand::AskShaping { ask, question, .. } => {
                let shaped = self.policies.shape(&question, now.0 / 1_000);
                let by_default = || (PolicyRef(BUILT_IN.into()), question.by_default());
                let (policy, answer) = shaped.unwrap_or_else(by_default);
                let event = TrainingEvent::ShapingAnswered {
                    job: question.job.clone(),
                    ask,
                    policy,
                    answer,
                };
                answers.push_back(event.into());
            }
            TrainingCommand::Record { outcome } => answers.push_back((*outcome).into()),
            command => self.outputs.push_back(Output::Training(command)),
        }
    }

    fn forget(&mut self, program: &Program, now: Timestamp) {
        if self.predicts {
            let observed = Observation::last(program, now);
            self.outputs.push_back(Output::Observed(Box::new(observed)));
        }
        self.returned.forget(program.id);
        self.annotations.forget(program.id);
        self.profiles.forget(&program.key);
        self.transfers.forget(program, &mut self.outputs);
        self.policies.forget(program.id);
        self.dirty.remove(&program.id);
        if self.journals {
            let row = projection::program_row(program, &self.core, now, Some(program.end()));
            self.rows.programs.push(row);
        }
    }

    pub(super) fn instruct(&mut self, step: StepId, instruction: Instruction) {
        if step.gateway() == GatewayId::LOCAL {
            self.outputs.push_back(Output::Instruct(step, instruction));
        } else {
            self.outputs.extend(self.links.instruct(step, instruction));
        }
    }

    pub(super) fn dispatch(
        &mut self,
        worker: WorkerId,
        slot: Option<u32>,
        priority: i32,
        prefill: Option<PrefillAt>,
    ) -> Option<Dispatch> {
        let config = self.core.config();
        let is_aware = config.mode == Mode::ProgramAware;
        let has_queues = is_aware && config.rollout.engine_steps_max > 0;
        let url = self.url_of(worker)?;
        let w = self.core.programs().workers.get(&worker)?;
        Some(Dispatch {
            worker,
            url,
            engine: w.engine,
            slot,
            priority: is_aware.then_some(priority),
            interruptible: has_queues && w.resumes_steps(),
            prefill,
        })
    }

    pub(super) fn prefill_at(&mut self, prefill: Prefill) -> Option<PrefillAt> {
        let url = self.url_of(prefill.worker)?;
        let w = self.core.programs().workers.get(&prefill.worker)?;
        Some(PrefillAt {
            worker: prefill.worker,
            url,
            bootstrap_port: w.bootstrap_port,
            within: Duration::from_micros(prefill.within.micros()),
        })
    }

    fn url_of(&mut self, worker: WorkerId) -> Option<Arc<str>> {
        let w = self.core.programs().workers.get(&worker)?;
        let url = self.urls.entry(worker);
        let url = url.or_insert_with(|| Arc::from(w.url.trim_end_matches('/')));
        Some(url.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::{Input, Options};
    use std::time::Instant;
    use treadle_core::actions::{
        ActionSpec, Demand, ElasticAnswer, ElasticQuestion, Resource, Supply,
    };
    use treadle_core::bindings::BindingEvent;
    use treadle_core::programs::Question;
    use treadle_core::training::{End, JobSettings, MemberRef, Report};
    use treadle_core::{Core, CoreConfig};
    use treadle_model::{ActionId, AskId, Role, Span, World};
    use treadle_policy::evaluator::Changed;

    /// If it arranges, it gives every action the largest amount that it accepts.
    struct Generous {
        arranges: bool,
    }

    impl Policies for Generous {
        type Loaded = ();

        fn follow(&mut self, _: &BindingEvent, _: Option<(u64, ())>, _: u64) -> Option<Changed> {
            None
        }

        fn answer(&mut self, _: &Core, _: AskId, _: &Question, _: u64) -> Option<Event> {
            None
        }

        fn arrange(
            &mut self,
            question: &ElasticQuestion,
            now_ms: u64,
        ) -> Option<(PolicyRef, ElasticAnswer)> {
            assert_eq!(now_ms, 2);
            let most = question.option_start[1..].iter();
            let most = most.map(|end| question.option_units[*end as usize - 1]);
            let start = question.action.iter().copied().zip(most).collect();
            self.arranges
                .then(|| (PolicyRef("generous".into()), ElasticAnswer { start }))
        }
    }

    /// The units with which an action starts that accepts 1 or 3 of 4, and the policy named in the
    /// journal.
    fn units_and_policy(arranges: bool) -> (u64, String) {
        let options = Options {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            snapshot_seq: 0,
            journals: true,
            snapshot_events: u64::MAX,
            moves_caches: false,
            started: Instant::now(),
        };
        let mut scheduler = Scheduler::new(options, Generous { arranges }, ());
        let cpu = Resource {
            name: "cpu".into(),
            supply: Supply::Units { total: 4 },
        };
        let set = ActionEvent::ResourcesSet {
            resources: vec![cpu],
        };
        let spec = ActionSpec {
            program: None,
            job: "job".into(),
            kind: "tool".into(),
            demands: vec![Demand {
                resource: "cpu".into(),
                options: vec![1, 3],
            }],
            durations: Vec::new(),
            service: None,
            run_max: Span::from_secs(100),
            start_by: None,
            idempotent: false,
            idempotency_key: None,
            body: "digest".into(),
        };
        let submitted = ActionEvent::ActionSubmitted {
            action: ActionId(1),
            spec: Box::new(spec),
        };
        scheduler.handle(Timestamp(1_000), Input::Event(set.into()));
        scheduler.handle(Timestamp(2_000), Input::Event(submitted.into()));
        let outputs = std::iter::from_fn(|| scheduler.poll_output());
        let started = outputs.filter_map(|output| match output {
            Output::Action(ActionCommand::StartAction { grants, .. }) => Some(grants[0].units),
            _ => None,
        });
        let units: Vec<u64> = started.collect();
        let events = scheduler.take_records().rows.events;
        let answered = events.iter().find(|row| row.kind == "elastic_answered");
        let body = &answered.expect("it is on record").body;
        let body: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
        (units[0], body["policy"].as_str().unwrap_or_default().into())
    }

    #[test]
    fn units_of_actions_are_shared_out_by_the_policy_and_the_journal_names_it() {
        assert_eq!(units_and_policy(true), (3, "generous".into()));
        assert_eq!(units_and_policy(false), (1, BUILT_IN.into()));
    }

    /// Where a policy is bound and says nothing, the core's own answer is on record.
    #[test]
    fn groups_are_shaped_by_the_core_without_an_answer() {
        let options = Options {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            snapshot_seq: 0,
            journals: true,
            snapshot_events: u64::MAX,
            moves_caches: false,
            started: Instant::now(),
        };
        let mut scheduler = Scheduler::new(options, Generous { arranges: false }, ());
        let bound = BindingEvent::PolicyBound {
            world: World::Shaping,
            scope: "*".into(),
            role: Role::Active,
            policy: PolicyRef("silent".into()),
            digest: "digest".into(),
            config: "{}".into(),
            share_ppm: 0,
            by_default: false,
        };
        let declared = TrainingEvent::JobDeclared {
            job: "job".into(),
            settings: Box::default(),
        };
        let arrived = TrainingEvent::MemberArrived {
            member: MemberRef {
                job: "job".into(),
                group: "group".into(),
                program: "program".into(),
            },
            direct: true,
        };
        for event in [bound.into(), declared.into(), arrived.into()] {
            scheduler.handle(Timestamp(1_000), Input::Event(event));
        }
        let outputs = std::iter::from_fn(|| scheduler.poll_output());
        let admitted = |output: &Output| {
            matches!(
                output,
                Output::Training(TrainingCommand::AdmitMember { .. })
            )
        };
        assert_eq!(outputs.filter(admitted).count(), 1);
        let events = scheduler.take_records().rows.events;
        let answered = events.iter().find(|row| row.kind == "shaping_answered");
        let body = &answered.expect("it is on record").body;
        let body: serde_json::Value = serde_json::from_str(body).expect("it is JSON");
        assert_eq!(body["policy"], BUILT_IN);
    }

    /// What the core decides about members is on record right after what led to it.
    #[test]
    fn members_that_are_dropped_and_batches_are_on_record() {
        let options = Options {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            snapshot_seq: 0,
            journals: true,
            snapshot_events: u64::MAX,
            moves_caches: false,
            started: Instant::now(),
        };
        let mut scheduler = Scheduler::new(options, Generous { arranges: false }, ());
        let job: Box<str> = "job".into();
        let settings = Box::new(JobSettings {
            group_size: 1,
            batch_groups: 1,
            rewarded: false,
            ..JobSettings::default()
        });
        let declared = TrainingEvent::JobDeclared {
            job: job.clone(),
            settings,
        };
        scheduler.handle(Timestamp(1), Input::Event(declared.into()));
        for (program, end) in [("a", End::EngineFailed), ("b", End::Completed)] {
            let member = MemberRef {
                job: job.clone(),
                group: "group".into(),
                program: program.into(),
            };
            let arrived = TrainingEvent::MemberArrived {
                member: member.clone(),
                direct: true,
            };
            let report = Report::of(end, 1, 1);
            let ended = TrainingEvent::MemberEnded { member, report };
            for event in [arrived, ended] {
                scheduler.handle(Timestamp(2), Input::Event(event.into()));
            }
        }
        let requested = TrainingEvent::BatchRequested { job, batch: 1 };
        scheduler.handle(Timestamp(3), Input::Event(requested.into()));
        let events = scheduler.take_records().rows.events;
        let led_to = |kind: &str| {
            let at = events.iter().position(|row| row.kind == kind);
            let [before, row] = &events[at.expect("it is on record") - 1..][..2] else {
                panic!("{kind} is the first");
            };
            let body: serde_json::Value = serde_json::from_str(&row.body).expect("it is JSON");
            (&*before.kind, row.program.as_deref(), &*row.job, body)
        };
        let (before, program, of, dropped) = led_to("member_dropped");
        assert_eq!((before, program, of), ("member_ended", Some("a"), "job"));
        assert_eq!(dropped["end"], "engine_failed");
        let (before, program, of, cut) = led_to("batch_cut");
        assert_eq!((before, program, of), ("batch_requested", None, "job"));
        assert_eq!(cut["batch"], 1);
    }
}
