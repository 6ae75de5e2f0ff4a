//! Training runs, as handlers of requests reach them.

use super::run::Driver;
use super::{DriverHandle, Input};
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use crate::scheduler;
use std::collections::HashMap;
use std::sync::PoisonError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{oneshot, watch};
use treadle_core::programs;
use treadle_core::training::{
    Begun, MemberRef, State, TrainingCommand, TrainingError, TrainingEvent,
};

/// What a client reported of a training run, and where to report the result.
pub(crate) struct Train {
    pub(super) event: TrainingEvent,
    /// Answered with the member that the event is about, if it is about one.
    pub(super) reply: oneshot::Sender<Result<Option<MemberRef>, TrainingError>>,
    pub(super) recorder: Recorder,
    /// For a member that arrives: notified once it may begin.
    pub(super) admitted: Option<oneshot::Sender<Begun>>,
    /// A member that arrives names no group: it gets the next one that needs it, or none.
    pub(super) any_group: bool,
}

/// What is to be computed of a member that ended.
#[derive(Clone, Debug)]
pub enum MemberWork {
    /// Its reward.
    Score(MemberRef),
    /// Its sample, from its captured steps.
    Assemble(MemberRef),
}

/// Handlers that wait for training runs.
pub(crate) struct Waiting {
    /// By the programs that may not begin yet.
    members: HashMap<Box<str>, Vec<oneshot::Sender<Begun>>>,
    changes: watch::Sender<u64>,
    work: UnboundedSender<MemberWork>,
}

impl Waiting {
    pub(super) fn new(changes: watch::Sender<u64>, work: UnboundedSender<MemberWork>) -> Self {
        Self {
            members: HashMap::new(),
            changes,
            work,
        }
    }

    pub(super) fn wait(&mut self, program: Box<str>, admitted: oneshot::Sender<Begun>) {
        self.members.entry(program).or_default().push(admitted);
    }

    /// Notifies those that a command is for.
    pub(super) fn commanded(&mut self, command: &TrainingCommand) {
        match command {
            TrainingCommand::AdmitMember { program, surplus } => {
                let admitted = if *surplus {
                    Begun::Surplus
                } else {
                    Begun::Member
                };
                for waiting in self.members.remove(program).into_iter().flatten() {
                    let _ = waiting.send(admitted);
                }
            }
            TrainingCommand::ScoreMember { member } => {
                // Without a receiver nothing is computed.
                let _ = self.work.send(MemberWork::Score(member.clone()));
            }
            TrainingCommand::AssembleMember { member } => {
                let _ = self.work.send(MemberWork::Assemble(member.clone()));
            }
            // The scheduler answers questions itself.
            TrainingCommand::AskShaping { .. }
            | TrainingCommand::Record { .. }
            | TrainingCommand::ServeBatch { .. }
            | TrainingCommand::DropMember { .. } => {}
        }
        self.changed();
    }

    /// Something happened to a training run.
    pub(super) fn changed(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Forgets the handlers of a program that have left. Returns whether others still wait.
    pub(super) fn left(&mut self, program: &str) -> bool {
        if let Some(waiting) = self.members.get_mut(program) {
            waiting.retain(|sender| !sender.is_closed());
            if waiting.is_empty() {
                self.members.remove(program);
            }
        }
        self.members.contains_key(program)
    }
}

impl Driver {
    /// Handles what a client reported of a training run, unless it is refused.
    pub(super) fn train(&mut self, input: Train) {
        let Train {
            mut event,
            reply,
            recorder,
            admitted,
            any_group,
        } = input;
        if any_group && let TrainingEvent::MemberArrived { member, .. } = &mut event {
            let training = self.scheduler.core().training();
            match training.place(&member.job, &member.program) {
                Ok(Some(group)) => member.group = group,
                found => {
                    self.committed.push((self.scheduler.seq(), recorder));
                    let _ = reply.send(found.map(|_| None));
                    return;
                }
            }
        }
        let checked = self.scheduler.core().check_training(&event);
        let checked = checked.map(|()| event.member().cloned());
        if let Ok(member) = &checked {
            let is_new = match member.as_ref().zip(admitted) {
                Some((member, sender)) => self.awaits(member, sender),
                None => true,
            };
            // Of several requests that wait for a program, one may leave.
            let stays = matches!(&event, TrainingEvent::MemberLeft { member }
                if self.training.left(&member.program));
            if is_new && !stays {
                self.handle(scheduler::Input::Event(event.into()));
                self.training.changed();
            }
            self.committed.push((self.scheduler.seq(), recorder));
        }
        let _ = reply.send(checked);
    }

    /// Notifies a handler once a program may begin. Returns whether the program did not before.
    fn awaits(&mut self, member: &MemberRef, sender: oneshot::Sender<Begun>) -> bool {
        if let Some(begun) = self.scheduler.core().training().begun(member) {
            let _ = sender.send(begun);
            return false;
        }
        self.training.wait(member.program.clone(), sender);
        true
    }
}

/// A program that waits: its client left if this is dropped with it.
struct Leaving<'d> {
    driver: &'d DriverHandle,
    member: Option<MemberRef>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            let input = Train {
                event: TrainingEvent::MemberLeft { member },
                reply: oneshot::channel().0,
                recorder: Recording::new().0,
                admitted: None,
                any_group: false,
            };
            // A driver that stopped has nothing that waits.
            let _ = self.driver.send(Input::Train(Box::new(input)));
        }
    }
}

impl DriverHandle {
    /// Handles what a client reported of a training run. It is on record when this completes.
    ///
    /// # Errors
    /// It is not on record. The inner error means that it was refused, and nothing has changed.
    pub async fn train(
        &self,
        event: TrainingEvent,
    ) -> Result<Result<(), TrainingError>, NotRecorded> {
        let sent = self.send_training(event, None, false).await?;
        Ok(sent.map(|_| ()))
    }

    /// Waits until a program that names a group may begin; it begins with this. It leaves if this is
    /// dropped before. `direct`: its client samples it.
    ///
    /// # Errors
    /// As for [`DriverHandle::train`].
    pub async fn arrive(
        &self,
        member: MemberRef,
        direct: bool,
    ) -> Result<Result<Begun, TrainingError>, NotRecorded> {
        let event = TrainingEvent::MemberArrived { member, direct };
        let arrived = self.send_arrival(event, false).await?;
        // One that names its group is answered in any case.
        Ok(arrived.map(|arrived| arrived.map_or(Begun::Surplus, |(_, begun)| begun)))
    }

    /// As [`DriverHandle::arrive`], for a program that its client samples, in whichever group of the
    /// job needs it next; `None` if none does.
    ///
    /// # Errors
    /// As for [`DriverHandle::train`].
    pub async fn arrive_anywhere(
        &self,
        job: Box<str>,
        program: Box<str>,
    ) -> Result<Result<Option<(MemberRef, Begun)>, TrainingError>, NotRecorded> {
        let (group, direct) = (Box::default(), true);
        let member = MemberRef {
            job,
            group,
            program,
        };
        let event = TrainingEvent::MemberArrived { member, direct };
        self.send_arrival(event, true).await
    }

    async fn send_arrival(
        &self,
        event: TrainingEvent,
        any_group: bool,
    ) -> Result<Result<Option<(MemberRef, Begun)>, TrainingError>, NotRecorded> {
        let (sender, admitted) = oneshot::channel();
        let mut leaving = Leaving {
            driver: self,
            member: event.member().cloned(),
        };
        let sent = self.send_training(event, Some(sender), any_group).await;
        let member = match sent {
            Ok(Ok(Some(member))) => member,
            other => {
                leaving.member = None;
                return other.map(|other| other.map(|_| None));
            }
        };
        let admitted = admitted.await;
        leaving.member = None;
        let begun = admitted.map_err(|_| NotRecorded::Stopped)?;
        Ok(Ok(Some((member, begun))))
    }

    async fn send_training(
        &self,
        event: TrainingEvent,
        admitted: Option<oneshot::Sender<Begun>>,
        any_group: bool,
    ) -> Result<Result<Option<MemberRef>, TrainingError>, NotRecorded> {
        let (reply, checked) = oneshot::channel();
        let (recorder, done) = Recording::new();
        let input = Train {
            event,
            reply,
            recorder,
            admitted,
            any_group,
        };
        self.send(Input::Train(Box::new(input)))
            .map_err(|_| NotRecorded::Stopped)?;
        let checked = checked.await.map_err(|_| NotRecorded::Stopped)?;
        if checked.is_ok() {
            done.await?;
        }
        Ok(checked)
    }

    /// Reads the state of training runs. What was read is on record when this completes.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn training<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State) -> T + Send + 'static,
    ) -> Result<T, DriverStopped> {
        self.training_and_programs(move |state, _| read(state))
            .await
    }

    /// Reads the state of training runs and that of programs. What was read is on record when this
    /// completes.
    ///
    /// # Errors
    /// The driver has stopped.
    pub async fn training_and_programs<T: Send + 'static>(
        &self,
        read: impl FnOnce(&State, &programs::State) -> T + Send + 'static,
    ) -> Result<T, DriverStopped> {
        let read = self
            .read(move |view| read(view.core.training(), view.core.programs()))
            .await?;
        self.recorded().await?;
        Ok(read)
    }

    /// What is to be computed of members, of each as it ends, and again after a restart. Only the
    /// first call has it.
    pub fn take_member_work(&self) -> Option<UnboundedReceiver<MemberWork>> {
        let mut work = self
            .member_work
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        work.take()
    }

    /// Changes whenever something happened to a training run; [`DriverHandle::training`] waits until
    /// that is on record.
    pub fn training_changes(&self) -> watch::Receiver<u64> {
        self.training_changes.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Clock, DriverOptions, spawn_driver};
    use crate::instruction::Instruction;
    use std::time::Duration;
    use treadle_core::programs::Refusal;
    use treadle_core::training::{End, JobSettings, Report};
    use treadle_core::{Core, CoreConfig};
    use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};

    fn driver() -> DriverHandle {
        let core = Core::new(CoreConfig::default());
        let options = DriverOptions {
            clock: Clock::start(core.now(), 1.0),
            core,
            seq: 0,
            restarted: false,
            snapshot_seq: 0,
            replay_time: Duration::ZERO,
            policies: PolicyEvaluator::new(EvaluatorLimits::default()),
            journal: None,
            snapshot_events: u64::MAX,
            forecasts: None,
            transfers: None,
            actions: None,
            notices: None,
        };
        spawn_driver(options).expect("a thread can be started")
    }

    fn member(program: &str) -> MemberRef {
        MemberRef {
            job: "job".into(),
            group: "group".into(),
            program: program.into(),
        }
    }

    async fn arrive(driver: &DriverHandle, program: &str) -> Result<Begun, TrainingError> {
        driver
            .arrive(member(program), false)
            .await
            .expect("it runs")
    }

    async fn train(driver: &DriverHandle, event: TrainingEvent) -> Result<(), TrainingError> {
        driver.train(event).await.expect("it runs")
    }

    #[tokio::test]
    async fn programs_begin_when_the_trainer_has_taken_a_batch() {
        let driver = driver();
        let job: Box<str> = "job".into();
        let unknown = arrive(&driver, "p1").await;
        assert_eq!(unknown, Err(TrainingError::UnknownJob(job.clone())));
        let settings = Box::new(JobSettings {
            group_size: 1,
            batch_groups: 1,
            pipeline: 0,
            rewarded: false,
            ..JobSettings::default()
        });
        let declared = TrainingEvent::JobDeclared {
            job: job.clone(),
            settings,
        };
        assert_eq!(train(&driver, declared).await, Ok(()));
        assert_eq!(arrive(&driver, "p1").await, Ok(Begun::Member));
        assert_eq!(
            arrive(&driver, "p1").await,
            Ok(Begun::Member),
            "a later step"
        );
        assert_eq!(arrive(&driver, "p2").await, Ok(Begun::Surplus));
        let mut cut = driver.training_changes();
        let next = MemberRef {
            group: "next".into(),
            ..member("p3")
        };
        let waiting = tokio::spawn({
            let driver = driver.clone();
            async move { driver.arrive(next, false).await }
        });
        let ended = TrainingEvent::MemberEnded {
            member: member("p1"),
            report: Report::of(End::Completed, 1, 1),
        };
        assert_eq!(train(&driver, ended).await, Ok(()));
        let requested = TrainingEvent::BatchRequested { job, batch: 1 };
        assert_eq!(train(&driver, requested).await, Ok(()));
        cut.changed().await.expect("the driver runs");
        let admitted = waiting.await.expect("the task ends").expect("it runs");
        assert_eq!(admitted, Ok(Begun::Member));
        let batches = driver.training(|state| state.jobs["job"].batches.len());
        assert_eq!(batches.await.ok(), Some(1));
    }

    /// A member may be cut between its arrival and its step.
    #[tokio::test]
    async fn a_step_of_a_member_that_was_cut_opens_no_program() {
        let driver = driver();
        let job: Box<str> = "job".into();
        let settings = Box::new(JobSettings {
            group_size: 1,
            rewarded: false,
            ..JobSettings::default()
        });
        let declared = TrainingEvent::JobDeclared { job, settings };
        assert_eq!(train(&driver, declared).await, Ok(()));
        for program in ["cut", "kept"] {
            assert!(arrive(&driver, program).await.is_ok(), "{program}");
        }
        let ended = TrainingEvent::MemberEnded {
            member: member("cut"),
            report: Report::of(End::ClientFailed, 0, 0),
        };
        assert_eq!(train(&driver, ended).await, Ok(()));
        let step = driver.step_id();
        let arrival = treadle_core::programs::StepArrival {
            step,
            program: "cut".into(),
            job: "job".into(),
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
        };
        let mut told = driver.submit(arrival, None).expect("it runs");
        let told = told.recv().await;
        let is_refused = matches!(told, Some(Instruction::Refuse(Refusal::ProgramReleased)));
        assert!(is_refused, "{told:?}");
    }
}
