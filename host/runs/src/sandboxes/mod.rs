//! Sandboxes of programs: their owners, their ends, and commands in them as actions.

mod counts;
mod handler_state;
mod listed;
mod output_room;
mod processes;
mod shells;
mod singles;
mod start;
mod trial;
mod turns;
mod watches;
mod work;

pub use counts::state_name;
pub use handler_state::{LetIn, SandboxApp, Tenants};
pub use listed::{Listed, ListedSnapshot};
pub use processes::{
    CommandDescription, Finish, LogMessage, NotStarted, Order, Process, Processes, Reader, Way,
};
pub use shells::{Became, CommandAction, NoShell, PROMPT, SHELLS_MAX, Shell, Shells, is_typable};
pub use singles::Singles;
pub use start::{KEEP_SUBCOMMAND, look_at_cluster, start};
pub use trial::try_sandbox;
pub use turns::Turns;
pub use watches::{Change, Watch, Watches};
pub use work::{Task, WITHDRAWN, Work};

use crate::actions::Failure;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_model::{ClientName, Tenant};
use treadle_sandbox::{
    SYSTEM_IMAGE, Sandbox, SandboxError, SandboxSpec, Sandboxes, Shared, Status,
};
use treadle_wire::{ErrorBody, ErrorCode};

/// How often ended programs are checked for.
const LOOK: Duration = Duration::from_secs(1);
/// How long a sandbox may wait for its program's first step.
const PROGRAM_BEGINS_MAX: Duration = Duration::from_mins(10);

/// Concurrent requests with their own sandbox, per core.
const SINGLES_PER_CORE: usize = 4;

/// Sandboxes and their commands.
pub struct Host {
    /// The sandboxes.
    pub sandboxes: Sandboxes,
    /// Commands that outlive the request that started them.
    pub processes: Arc<Processes>,
    /// Watched folders.
    pub watches: Watches,
    /// Shells that outlive the requests that type into them.
    pub shells: Shells,
    /// Permits for requests with their own sandbox.
    pub singles: Singles,
    /// Held while a sandbox with a client's key is created, so that each key has one sandbox.
    pub naming: tokio::sync::Mutex<()>,
    /// The maximum and default memory of a sandbox.
    pub memory_bytes_max: u64,
    turns: Arc<dyn Turns>,
    /// Sandboxes whose programs have begun.
    begun: Mutex<BTreeSet<String>>,
}

/// The refusal for clients.
pub fn refused(error: &SandboxError) -> ErrorBody {
    let code = match error {
        SandboxError::Full(_)
        | SandboxError::NoRoom(_)
        | SandboxError::SnapshotsFull(_)
        | SandboxError::CopiesFull(..)
        | SandboxError::OutputsFull(..) => ErrorCode::Overloaded,
        // These end by themselves.
        SandboxError::BeyondShare {
            of: Shared::Sandboxes | Shared::OutputBytes,
            ..
        } => ErrorCode::TenantBusy,
        SandboxError::BeyondShare { .. } => ErrorCode::TenantLimit,
        SandboxError::Unsupported(_) => ErrorCode::Unserved,
        SandboxError::Unknown(_) => ErrorCode::SandboxUnknown,
        SandboxError::SnapshotUnknown(_) => ErrorCode::ImageUnknown,
        SandboxError::ImageUnknown(_)
        | SandboxError::Value(..)
        | SandboxError::File { .. }
        | SandboxError::Command(_) => ErrorCode::InvalidField,
        SandboxError::Machine(_)
        | SandboxError::Preparation(_)
        | SandboxError::Gone
        | SandboxError::System(..) => ErrorCode::SandboxFailed,
    };
    let told = ErrorBody::new(code, error.to_string());
    match error {
        SandboxError::Value(field, _) => told.with_param(*field),
        SandboxError::ImageUnknown(_) => told.with_param("image"),
        SandboxError::File { .. } => told.with_param("path"),
        SandboxError::Command(_) => told.with_param("command"),
        _ => told,
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        refused(&error).into()
    }
}

impl Host {
    /// Starts to manage sandboxes whose commands get their permits from `turns`.
    pub fn start(sandboxes: Sandboxes, turns: Arc<dyn Turns>, memory_bytes_max: u64) -> Arc<Self> {
        let cores = treadle_actions::cores().len().max(2);
        let host = Arc::new(Self {
            sandboxes,
            processes: Arc::default(),
            watches: Watches::default(),
            shells: Shells::default(),
            singles: Singles::new(SINGLES_PER_CORE * cores),
            naming: tokio::sync::Mutex::default(),
            memory_bytes_max,
            turns,
            begun: Mutex::default(),
        });
        let watched = Arc::downgrade(&host);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(LOOK).await;
                let Some(host) = watched.upgrade() else {
                    return;
                };
                host.end_with_programs().await;
            }
        });
        host
    }

    /// Ends all processes; files stay.
    pub async fn stop(&self) {
        self.sandboxes.stop().await;
    }

    /// Puts a tenant's sandbox on record.
    pub async fn create(
        &self,
        tenant: &Tenant,
        mut spec: SandboxSpec,
    ) -> Result<Arc<Sandbox>, Failure> {
        if let Some(program) = &spec.program {
            ClientName::parse("program_id", program).map_err(ErrorBody::from)?;
        }
        ClientName::parse("job", &spec.job).map_err(ErrorBody::from)?;
        let max = self.memory_bytes_max;
        if spec.memory_bytes.is_some_and(|bytes| bytes > max) {
            let message =
                format!("`memory_bytes` exceeds the limit of a sandbox; send at most {max}");
            let error = ErrorBody::new(ErrorCode::InvalidField, message);
            return Err(error.with_param("memory_bytes").into());
        }
        tenant.name().clone_into(&mut spec.tenant);
        if spec.image.is_empty() {
            SYSTEM_IMAGE.clone_into(&mut spec.image);
        }
        Ok(self.sandboxes.create(spec).await?)
    }

    /// A tenant's sandbox.
    pub fn own(&self, tenant: &Tenant, id: &str) -> Result<Arc<Sandbox>, SandboxError> {
        let sandbox = self.sandboxes.get(id)?;
        if sandbox.tenant() != tenant.name() {
            return Err(SandboxError::Unknown(id.to_owned()));
        }
        Ok(sandbox)
    }

    /// A tenant's sandboxes, oldest first.
    pub fn list(&self, tenant: &Tenant) -> Vec<Status> {
        let mut all = self.sandboxes.list();
        all.retain(|sandbox| sandbox.spec.tenant == tenant.name());
        all
    }

    /// Removes the sandboxes of a program that has just ended.
    pub fn program_ended(&self, tenant: &Tenant, program: &str) {
        let (sandboxes, tenant) = (self.sandboxes.clone(), tenant.name().to_owned());
        let program = program.to_owned();
        tokio::spawn(async move { sandboxes.remove_of(&tenant, &program).await });
    }

    /// Removes sandboxes of programs whose end was not reported.
    async fn end_with_programs(&self) {
        let all = self.sandboxes.list();
        self.shells.keep(&all);
        self.begun()
            .retain(|id| all.iter().any(|sandbox| sandbox.id == *id));
        let mut of_programs = all;
        of_programs.retain(|sandbox| sandbox.spec.program.is_some());
        if of_programs.is_empty() {
            return;
        }
        let program = |sandbox: &Status| {
            let spec = &sandbox.spec;
            (
                spec.tenant.clone(),
                spec.program.clone().unwrap_or_default(),
            )
        };
        let programs: Vec<_> = of_programs.iter().map(program).collect();
        let Ok(live) = self.turns.live(&programs).await else {
            return;
        };
        for (sandbox, is_live) in of_programs.into_iter().zip(live) {
            if is_live {
                self.begun().insert(sandbox.id);
                continue;
            }
            let has_begun = self.begun().contains(&sandbox.id);
            if has_begun || sandbox.age > PROGRAM_BEGINS_MAX {
                self.sandboxes.remove(&sandbox.id).await;
            }
        }
    }

    fn begun(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_is_told_as_such_and_what_can_not_be_done_as_unserved() {
        let no_room = SandboxError::NoRoom("exceeded quota".to_owned());
        for error in [SandboxError::Full(8), no_room] {
            assert_eq!(refused(&error).code, ErrorCode::Overloaded);
        }
        let unsupported = SandboxError::Unsupported("pods can't be paused".to_owned());
        let told = refused(&unsupported);
        assert_eq!(told.code, ErrorCode::Unserved);
        assert_eq!(told.message, "pods can't be paused");
    }
}
