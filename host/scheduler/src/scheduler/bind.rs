//! Changes of bindings: the core handles them as events, and the policies follow.

use super::{Observer, Policies, Scheduler};
use treadle_core::Event;
use treadle_core::bindings::{BindingEvent, ChangeError};
use treadle_model::Timestamp;
use treadle_policy::evaluator::Changed;

/// A binding that was changed.
#[derive(Debug)]
pub struct Bound {
    /// The id of the new binding; 0 if none was made.
    pub id: u64,
    /// The change of the evaluator's binding, if the scheduler asks this world.
    pub changed: Option<Changed>,
}

impl<P: Policies, O: Observer> Scheduler<P, O> {
    /// Changes a binding between two decisions, and puts that on record. `loaded` is the policy
    /// that gets a role.
    ///
    /// # Errors
    /// [`ChangeError`] if the change is refused; nothing has changed then.
    pub fn bind(
        &mut self,
        now: Timestamp,
        event: &BindingEvent,
        loaded: Option<P::Loaded>,
    ) -> Result<Bound, ChangeError> {
        self.core.bindings().check(event)?;
        self.handle_event(now, Event::Binding(event.clone()), None);
        let id = self.core.bindings().made_by(event);
        let loaded = loaded.map(|policy| (id, policy));
        let changed = self.policies.follow(event, loaded, now.0 / 1_000);
        Ok(Bound { id, changed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recovery::Replay;
    use crate::scheduler::{Input, Options};
    use std::time::Instant;
    use treadle_core::programs::ProgramEvent;
    use treadle_core::programs::{Question, StepArrival};
    use treadle_core::{Core, CoreConfig};
    use treadle_model::{AskId, PolicyRef, Role, StepId, World};
    use treadle_policy::evaluator::{Notice, NoticeKind, Scope};

    /// Policies each of which fails permanently once it is asked.
    #[derive(Default)]
    struct Failing {
        bound: u64,
        notices: Vec<Notice>,
    }

    impl Policies for Failing {
        type Loaded = ();

        fn follow(
            &mut self,
            _: &BindingEvent,
            loaded: Option<(u64, ())>,
            _: u64,
        ) -> Option<Changed> {
            self.bound = loaded.map_or(0, |(id, ())| id);
            None
        }

        fn poll_notice(&mut self) -> Option<Notice> {
            self.notices.pop()
        }

        fn answer(&mut self, _: &Core, _: AskId, _: &Question, _: u64) -> Option<Event> {
            self.notices.push(Notice {
                kind: NoticeKind::RolledBack,
                world: World::Eviction,
                scope: Scope::Everyone,
                id: self.bound,
                policy: PolicyRef::default(),
                after: PolicyRef::default(),
                reason: "it trapped".into(),
            });
            None
        }
    }

    fn scheduler() -> Scheduler<Failing> {
        let options = Options {
            core: Core::new(CoreConfig::default()),
            seq: 0,
            snapshot_seq: 0,
            journals: true,
            snapshot_events: u64::MAX,
            moves_caches: false,
            started: Instant::now(),
        };
        Scheduler::new(options, Failing::default(), ())
    }

    fn bound(digest: &str) -> BindingEvent {
        BindingEvent::PolicyBound {
            world: World::Eviction,
            scope: "*".into(),
            role: Role::Active,
            policy: PolicyRef(digest.into()),
            digest: digest.into(),
            config: "{}".into(),
            share_ppm: 0,
            by_default: false,
        }
    }

    /// A new program, about whose placement a policy is asked.
    fn arrived() -> Input {
        Input::Event(Event::Program(ProgramEvent::StepArrived(StepArrival {
            step: StepId(1),
            program: "p".into(),
            job: "j".into(),
            prompt_tokens: 1,
            exact: true,
            prompt_bytes: 1,
            text: None,
            output_tokens_max: None,
            prefix: vec![],
            one_shot: false,
            inferred: false,
            parent: None,
            group: None,
            model: None,
        })))
    }

    /// A binding made between a failure and its record used to be undone by the record, and a
    /// restart brought the failed policy back.
    #[test]
    fn what_is_bound_after_a_failure_answers_after_a_restart() {
        let mut scheduler = scheduler();
        for digest in ["good", "faulty"] {
            scheduler
                .bind(Timestamp(1), &bound(digest), Some(()))
                .expect("it is bound");
        }
        let worker = Event::Program(ProgramEvent::WorkerAdded {
            worker: treadle_model::WorkerId(0),
            url: "http://w".into(),
            engine: treadle_model::EngineKind::Vllm,
            capacity: treadle_core::memory::Capacity::default(),
            role: None,
        });
        scheduler.handle(Timestamp(2), Input::Event(worker));
        scheduler.handle(Timestamp(3), arrived());
        scheduler
            .bind(Timestamp(4), &bound("next"), Some(()))
            .expect("it is bound");

        let records = scheduler.take_records().rows;
        let kinds: Vec<&str> = records.events.iter().map(|row| &*row.kind).collect();
        let failed = kinds.iter().position(|kind| *kind == "policy_failed");
        assert_eq!(failed, Some(kinds.len() - 2), "{kinds:?}");
        let mut replay = Replay::new(CoreConfig::default(), None).expect("nothing");
        for row in &records.events {
            replay.apply(row).expect("it replays");
        }
        let replayed = replay.finish().core;
        assert_eq!(replayed.state(), scheduler.core().state());
        let roles = replayed.bindings().roles(World::Eviction, "*");
        let digests = roles.expect("it is bound").iter();
        let digests: Vec<_> = digests
            .map(|(role, bound)| (*role, &*bound.digest))
            .collect();
        assert_eq!(digests, [(Role::Active, "next"), (Role::Previous, "good")]);
        let set = records.bindings.last().expect("it is projected");
        assert_eq!(set.roles.len(), 2);
    }
}
