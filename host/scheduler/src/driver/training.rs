//! Training runs, as handlers of requests reach them.

use super::{DriverHandle, Input};
use crate::recording::{DriverStopped, NotRecorded, Recorder, Recording};
use std::collections::HashMap;
use tokio::sync::{oneshot, watch};
use treadle_core::training::{MemberRef, State, TrainingCommand, TrainingError, TrainingEvent};

/// What a client reported of a training run, and where to report the result.
pub(crate) struct Train {
    pub(super) event: TrainingEvent,
    pub(super) reply: oneshot::Sender<Result<(), TrainingError>>,
    pub(super) recorder: Recorder,
    /// For a member that arrives: notified once it may begin.
    pub(super) admitted: Option<oneshot::Sender<Admitted>>,
}

/// A program that names a group may begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admitted {
    /// It is a member of the group, or was one already.
    Member,
    /// The group has all its members: it is not trained.
    Surplus,
}

/// Handlers that wait for training runs.
pub(crate) struct Waiting {
    /// By the programs that may not begin yet.
    members: HashMap<Box<str>, Vec<oneshot::Sender<Admitted>>>,
    batches_cut: watch::Sender<u64>,
}

impl Waiting {
    pub(super) fn new(batches_cut: watch::Sender<u64>) -> Self {
        Self {
            members: HashMap::new(),
            batches_cut,
        }
    }

    pub(super) fn wait(&mut self, program: Box<str>, admitted: oneshot::Sender<Admitted>) {
        self.members.entry(program).or_default().push(admitted);
    }

    /// Notifies those that a command is for.
    pub(super) fn commanded(&mut self, command: &TrainingCommand) {
        match command {
            TrainingCommand::AdmitMember { program, surplus } => {
                let admitted = if *surplus {
                    Admitted::Surplus
                } else {
                    Admitted::Member
                };
                for waiting in self.members.remove(program).into_iter().flatten() {
                    let _ = waiting.send(admitted);
                }
            }
            TrainingCommand::ServeBatch { .. } => {
                self.batches_cut.send_modify(|cut| *cut += 1);
            }
            TrainingCommand::DropMember { .. } => {}
        }
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

impl DriverHandle {
    /// Handles what a client reported of a training run. It is on record when this completes.
    ///
    /// # Errors
    /// It is not on record. The inner error means that it was refused, and nothing has changed.
    pub async fn train(
        &self,
        event: TrainingEvent,
    ) -> Result<Result<(), TrainingError>, NotRecorded> {
        self.send_training(event, None).await
    }

    /// Waits until a program that names a group may begin; it begins with this. Dropped before,
    /// it must be followed by [`TrainingEvent::MemberLeft`].
    ///
    /// # Errors
    /// As for [`DriverHandle::train`].
    pub async fn arrive(
        &self,
        member: MemberRef,
    ) -> Result<Result<Admitted, TrainingError>, NotRecorded> {
        let (sender, admitted) = oneshot::channel();
        let event = TrainingEvent::MemberArrived { member };
        if let Err(refused) = self.send_training(event, Some(sender)).await? {
            return Ok(Err(refused));
        }
        admitted.await.map(Ok).map_err(|_| NotRecorded::Stopped)
    }

    async fn send_training(
        &self,
        event: TrainingEvent,
        admitted: Option<oneshot::Sender<Admitted>>,
    ) -> Result<Result<(), TrainingError>, NotRecorded> {
        let (reply, checked) = oneshot::channel();
        let (recorder, done) = Recording::new();
        let input = Train {
            event,
            reply,
            recorder,
            admitted,
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
        let read = self.read(move |view| read(view.core.training())).await?;
        self.recorded().await?;
        Ok(read)
    }

    /// Changes whenever a batch was cut; [`DriverHandle::training`] waits until that is on record.
    pub fn batches_cut(&self) -> watch::Receiver<u64> {
        self.batches_cut.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Clock, DriverOptions, spawn_driver};
    use std::time::Duration;
    use treadle_core::training::{End, JobSettings};
    use treadle_core::{Core, CoreConfig};
    use treadle_policy::evaluator::{EvaluatorLimits, PolicyEvaluator};

    fn driver() -> DriverHandle {
        let core = Core::new(CoreConfig::default());
        let options = DriverOptions {
            clock: Clock::start(core.now(), 1.0),
            core,
            seq: 0,
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

    async fn arrive(driver: &DriverHandle, program: &str) -> Result<Admitted, TrainingError> {
        driver.arrive(member(program)).await.expect("it runs")
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
        assert_eq!(arrive(&driver, "p1").await, Ok(Admitted::Member));
        assert_eq!(
            arrive(&driver, "p1").await,
            Ok(Admitted::Member),
            "a later step"
        );
        assert_eq!(arrive(&driver, "p2").await, Ok(Admitted::Surplus));
        let mut cut = driver.batches_cut();
        let next = MemberRef {
            group: "next".into(),
            ..member("p3")
        };
        let waiting = tokio::spawn({
            let driver = driver.clone();
            async move { driver.arrive(next).await }
        });
        let ended = TrainingEvent::MemberEnded {
            member: member("p1"),
            end: End::Completed,
            tokens: 1,
            turns: 1,
        };
        assert_eq!(train(&driver, ended).await, Ok(()));
        let requested = TrainingEvent::BatchRequested { job, batch: 1 };
        assert_eq!(train(&driver, requested).await, Ok(()));
        cut.changed().await.expect("the driver runs");
        let admitted = waiting.await.expect("the task ends").expect("it runs");
        assert_eq!(admitted, Ok(Admitted::Member));
        let batches = driver.training(|state| state.jobs["job"].batches.len());
        assert_eq!(batches.await.ok(), Some(1));
    }
}
