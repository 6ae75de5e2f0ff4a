//! Tasks of a daemon that runs actions: they pass the driver's instructions to the executor once
//! they are on record, and the executor's reports to the driver.

use super::Actions;
use crate::nodes::{Start, node_of};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::task::JoinHandle;
use treadle_actions::{ActionBody, ActionOrder};
use treadle_core::actions::{ActionEvent, Outcome};
use treadle_model::ActionId;
use treadle_model::tenant::split;
use treadle_scheduler::{ActionInstruction, ActionStart, ActionWork, DriverHandle, NotRecorded};

/// How often new and changed tenants are checked for.
const SHARES_LOOK: Duration = Duration::from_secs(1);

/// The tasks that run actions.
pub struct Running {
    /// What handlers share.
    pub actions: Arc<Actions>,
    instructed: JoinHandle<()>,
    reported: JoinHandle<()>,
    shared: JoinHandle<()>,
}

impl Running {
    /// Starts the tasks.
    pub(super) fn new(
        actions: Arc<Actions>,
        instructions: UnboundedReceiver<ActionInstruction>,
        reports: Receiver<ActionEvent>,
    ) -> Self {
        let driver = actions.driver.clone();
        Self {
            instructed: tokio::spawn(instruct(actions.clone(), instructions)),
            reported: tokio::spawn(report(driver, reports)),
            shared: tokio::spawn(tell_shares(actions.clone())),
            actions,
        }
    }

    /// Ends running attempts and reports their ends to the driver.
    pub async fn stop(self) {
        self.actions.executor.shutdown().await;
        self.instructed.abort();
        self.reported.abort();
        self.shared.abort();
    }
}

async fn report(driver: DriverHandle, mut reports: Receiver<ActionEvent>) {
    while let Some(event) = reports.recv().await {
        driver.event(event.into());
    }
}

/// Updates shares repeatedly, so that waiting actions also respect those of new tenants.
async fn tell_shares(actions: Arc<Actions>) {
    loop {
        tokio::time::sleep(SHARES_LOOK).await;
        actions.shares.tell(&actions.driver);
    }
}

async fn instruct(actions: Arc<Actions>, mut instructions: UnboundedReceiver<ActionInstruction>) {
    while let Some(ActionInstruction { recorded, work }) = instructions.recv().await {
        match recorded.await {
            Ok(()) => actions.carry_out(work).await,
            Err(NotRecorded::Refused) => {
                if let ActionWork::Start(start) = work {
                    let cause = "the store can't record its start";
                    actions.failed(start.action, start.attempt, cause);
                }
            }
            // The next daemon continues from the journal.
            Err(NotRecorded::Stopped) => return,
        }
    }
}

impl Actions {
    async fn carry_out(&self, work: ActionWork) {
        match work {
            ActionWork::Start(start) => self.execute(*start).await,
            ActionWork::Stop { action, attempt } => {
                let nodes = self.nodes.as_ref();
                if !nodes.is_some_and(|nodes| nodes.stop((action, attempt))) {
                    self.executor.stop(action, attempt);
                }
            }
            ActionWork::Over {
                action,
                attempt,
                times,
            } => {
                let (queue, overhead, execution) = times;
                self.times.observe(queue, overhead, execution);
                self.waiters.over(action);
                if let Some(nodes) = &self.nodes {
                    nodes.over(action);
                }
                if attempt > 0 {
                    self.acknowledge(action, attempt);
                }
            }
        }
    }

    /// Runs an attempt whose start is on record.
    pub(super) async fn execute(&self, start: ActionStart) {
        let (action, attempt) = (start.action, start.attempt);
        if attempt > 1 {
            // The previous attempt has ended: its successor is on record.
            self.acknowledge(action, attempt - 1);
        }
        let body = match self.blobs.body(&start.spec).await {
            Ok(body) => body,
            Err(cause) => return self.failed(action, attempt, &cause),
        };
        // The action may be older than this setting.
        if self.sandboxes_only && matches!(*body, ActionBody::Process(_)) {
            let cause = "this daemon runs commands only in sandboxes (sandboxes.required)";
            return self.failed(action, attempt, cause);
        }
        if let (Some(nodes), Some(mark)) = (&self.nodes, node_of(&start.grants)) {
            let mark = mark.to_owned();
            return nodes.start(&mark, for_node(start, &body));
        }
        let (tenant, job) = split(&start.spec.job);
        self.executor.execute(ActionOrder {
            action,
            attempt,
            grants: start.grants,
            load: start.load,
            body,
            run_max: start.spec.run_max,
            idempotent: start.spec.idempotent,
            job: job.to_owned(),
            tenant: tenant.to_owned(),
        });
    }

    /// Handles that the end of an attempt is on record.
    fn acknowledge(&self, action: ActionId, attempt: u32) {
        let nodes = self.nodes.as_ref();
        if !nodes.is_some_and(|nodes| nodes.acknowledge((action, attempt))) {
            self.executor.acknowledge(action, attempt);
        }
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

pub(super) fn for_node(start: ActionStart, body: &ActionBody) -> Start {
    let (tenant, job) = split(&start.spec.job);
    Start {
        attempt: (start.action, start.attempt),
        grants: start.grants,
        body: body.clone(),
        run_max_us: start.spec.run_max.micros(),
        idempotent: start.spec.idempotent,
        job: job.to_owned(),
        tenant: tenant.to_owned(),
    }
}
