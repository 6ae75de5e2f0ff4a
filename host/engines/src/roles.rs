//! Roles that engines report themselves.

use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::WorkerRole;
use treadle_model::WorkerId;
use treadle_scheduler::DriverHandle;
use treadle_wire::engines::EngineFacts;

/// The role that an engine names.
pub(super) fn reported_role(facts: &EngineFacts) -> Option<WorkerRole> {
    facts.role.as_deref().and_then(WorkerRole::from_name)
}

/// Reports an engine's role, if it names one that is not on record. What it can do is decided when
/// it is started, so this counts more than what its operator declared.
pub(super) async fn report_role(driver: &DriverHandle, worker: WorkerId, facts: &EngineFacts) {
    let Some(role) = reported_role(facts) else {
        return;
    };
    let bootstrap_port = facts.bootstrap_port;
    let known = driver.worker(worker).await.ok().flatten();
    if known.is_none_or(|w| (w.role, w.bootstrap_port) != (role, bootstrap_port)) {
        driver.event(Event::Program(ProgramEvent::WorkerRoleSet {
            worker,
            role,
            bootstrap_port,
        }));
    }
}
