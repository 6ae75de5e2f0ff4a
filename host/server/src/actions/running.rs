//! What runs while this daemon runs actions: it passes the driver's instructions to the executor
//! once they are on record, and the executor's reports to the driver.

use super::Actions;
use std::sync::Arc;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::task::JoinHandle;
use treadle_actions::ActionOrder;
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;
use treadle_model::tenant::split;
use treadle_scheduler::{ActionInstruction, ActionStart, ActionWork, DriverHandle, NotRecorded};

/// Actions at work.
pub(crate) struct Running {
    /// What handlers share.
    pub(crate) actions: Arc<Actions>,
    instructed: JoinHandle<()>,
    reported: JoinHandle<()>,
}

impl Running {
    /// Goes on until stopped.
    pub(super) fn new(
        actions: Arc<Actions>,
        instructions: UnboundedReceiver<ActionInstruction>,
        reports: Receiver<ActionEvent>,
    ) -> Self {
        let driver = actions.driver.clone();
        Self {
            instructed: tokio::spawn(instruct(actions.clone(), instructions)),
            reported: tokio::spawn(report(driver, reports)),
            actions,
        }
    }

    /// Ends what runs; how it ended is handed to the driver.
    pub(crate) async fn stop(self) {
        self.actions.executor.shutdown().await;
        self.instructed.abort();
        self.reported.abort();
    }
}

async fn report(driver: DriverHandle, mut reports: Receiver<ActionEvent>) {
    while let Some(event) = reports.recv().await {
        driver.event(event.into());
    }
}

async fn instruct(actions: Arc<Actions>, mut instructions: UnboundedReceiver<ActionInstruction>) {
    while let Some(ActionInstruction { recorded, work }) = instructions.recv().await {
        match recorded.await {
            Ok(()) => actions.carry_out(work).await,
            Err(NotRecorded::Refused) => {
                if let ActionWork::Start(start) = work {
                    let cause = "the store can't hold the record of its start";
                    actions.failed(start.action, start.attempt, cause);
                }
            }
            // Whoever goes on from the journal knows what to do.
            Err(NotRecorded::Stopped) => return,
        }
    }
}

impl Actions {
    async fn carry_out(&self, work: ActionWork) {
        match work {
            ActionWork::Start(start) => self.execute(*start).await,
            ActionWork::Stop { action, attempt } => self.executor.stop(action, attempt),
            ActionWork::Over {
                action,
                attempt,
                times,
            } => {
                self.times.observe(times);
                self.waiters.over(action);
                if attempt > 0 {
                    self.executor.acknowledge(action, attempt);
                }
            }
        }
    }

    /// Runs an attempt whose start is on record.
    pub(super) async fn execute(&self, start: ActionStart) {
        let ActionStart {
            action,
            attempt,
            grants,
            load,
            spec,
        } = start;
        if attempt > 1 {
            // That one is over: its successor is on record.
            self.executor.acknowledge(action, attempt - 1);
        }
        let body = match self.blobs.body(&spec.body).await {
            Ok(body) => body,
            Err(cause) => return self.failed(action, attempt, &cause),
        };
        let (tenant, job) = split(&spec.job);
        self.executor.execute(ActionOrder {
            action,
            attempt,
            grants,
            load,
            body,
            run_max: spec.run_max,
            job: job.to_owned(),
            tenant: tenant.to_owned(),
        });
    }

    fn failed(&self, action: ActionId, attempt: u32, cause: &str) {
        let outcome = Outcome::InfrastructureFailure {
            cause: cause.into(),
        };
        let event = ActionEvent::ActionEnded {
            action,
            attempt,
            outcome,
            output: None,
        };
        self.driver.event(event.into());
    }
}
