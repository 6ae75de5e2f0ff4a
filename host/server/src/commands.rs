//! What clients may tell the daemon over REST and over the broker alike.

use serde::Deserialize;
use treadle_core::Event;
use treadle_core::worker::Worker;
use treadle_model::{ClientName, Tenant};
use treadle_wire::{ErrorBody, ErrorCode};
use utoipa::ToSchema;

/// Workers at once.
pub(crate) const WORKERS_MAX: usize = 4_096;

/// What became of an action.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ActionStage {
    /// It has begun.
    Started,
    /// It is over.
    Finished,
}

/// A tool runner's report about an action.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ActionReport {
    /// Whose action.
    pub(crate) program_id: String,
    /// Distinguishes it from other actions of the program.
    pub(crate) action_id: String,
    /// What became of it.
    pub(crate) event: ActionStage,
    /// Which tool; needed when it has started.
    #[serde(default)]
    pub(crate) tool: Option<String>,
    /// Whether it went well, once it has finished; true without it.
    #[serde(default)]
    pub(crate) ok: Option<bool>,
}

impl ActionReport {
    /// The event of a tenant's report.
    ///
    /// # Errors
    /// The field that is empty, or holds no name.
    pub(crate) fn event(&self, tenant: &Tenant) -> Result<Event, ErrorBody> {
        let program = tenant.inside(&name("program_id", &self.program_id)?).into();
        let action = name("action_id", &self.action_id)?.to_string().into();
        match self.event {
            ActionStage::Started => Ok(Event::ActionStarted {
                program,
                action,
                tool: name("tool", self.tool.as_deref().unwrap_or_default())?
                    .to_string()
                    .into(),
            }),
            ActionStage::Finished => Ok(Event::ActionFinished {
                program,
                action,
                ok: self.ok.unwrap_or(true),
            }),
        }
    }
}

/// The worker that is registered at a URL.
pub(crate) fn worker_at<'w>(workers: &'w [Worker], url: &str) -> Option<&'w Worker> {
    workers
        .iter()
        .find(|worker| *worker.url == *url && !worker.leaving)
}

/// The registered worker with an id or a URL.
pub(crate) fn worker_named<'w>(workers: &'w [Worker], reference: &str) -> Option<&'w Worker> {
    let bare = reference.trim_end_matches('/');
    workers.iter().find(|worker| {
        let is_named = worker.id.0.to_string() == reference;
        !worker.leaving && (is_named || worker.url.trim_end_matches('/') == bare)
    })
}

/// The name in a field of a body that needs it; an empty one is as absent.
fn name(field: &str, text: &str) -> Result<ClientName, ErrorBody> {
    if text.is_empty() {
        let problem = format!("`{field}` is missing; it is a text");
        return Err(ErrorBody::new(ErrorCode::MissingField, problem).with_param(field));
    }
    Ok(ClientName::parse(field, text)?)
}
