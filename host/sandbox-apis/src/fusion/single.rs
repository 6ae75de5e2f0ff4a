//! A sandbox for one request, removed in any case at its end.

use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use treadle_model::Tenant;
use treadle_runs::actions::Failure;
use treadle_runs::sandboxes::Host;
use treadle_sandbox::{Sandbox, SandboxSpec};
use treadle_wire::ErrorCode;

/// How long a request waits while the sandbox limit is reached.
const WAIT_MAX: Duration = Duration::from_mins(2);
/// How often it retries.
const LOOK: Duration = Duration::from_millis(100);

/// A sandbox for one request.
pub(super) struct Single {
    host: Arc<Host>,
    pub(super) sandbox: Arc<Sandbox>,
}

impl Single {
    /// Creates a sandbox, and waits while the limit is reached.
    pub(super) async fn new(
        host: &Arc<Host>,
        tenant: &Tenant,
        spec: SandboxSpec,
    ) -> Result<Self, Failure> {
        let (host, tenant) = (host.clone(), tenant.clone());
        // Runs in its own task, so that a client that disconnects leaves no sandbox behind:
        // creation finishes, and dropping the unclaimed result removes the sandbox.
        let made = tokio::spawn(async move {
            let sandbox = made(&host, &tenant, spec).await?;
            Ok(Self { host, sandbox })
        });
        made.await.unwrap_or(Err(Failure::Stopped))
    }
}

async fn made(
    host: &Arc<Host>,
    tenant: &Tenant,
    spec: SandboxSpec,
) -> Result<Arc<Sandbox>, Failure> {
    let until = Instant::now() + WAIT_MAX;
    loop {
        match host.create(tenant, spec.clone()).await {
            Err(Failure::Refused(error))
                if matches!(error.code, ErrorCode::Overloaded | ErrorCode::TenantBusy)
                    && Instant::now() < until =>
            {
                sleep(LOOK).await;
            }
            made => return made,
        }
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        let (host, sandbox) = (self.host.clone(), self.sandbox.clone());
        tokio::spawn(async move { host.sandboxes.remove(sandbox.id()).await });
    }
}
