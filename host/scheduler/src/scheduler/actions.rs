//! Journal rows of actions.

use super::projection::Subject;
use treadle_core::Core;
use treadle_core::actions::{Action, ActionCommand, ActionEvent, Grant, Stage};
use treadle_model::{ActionId, Timestamp};
use treadle_store::ActionRow;

/// The action that an event is about.
pub(crate) fn about(event: &ActionEvent) -> Option<ActionId> {
    match event {
        ActionEvent::ActionSubmitted { action, .. }
        | ActionEvent::ActionBegan { action, .. }
        | ActionEvent::ActionEnded { action, .. }
        | ActionEvent::ActionCancelled { action } => Some(*action),
        ActionEvent::QuotaRefused { action, .. } => action.map(|(action, _)| action),
        ActionEvent::ResourcesSet { .. }
        | ActionEvent::ResourcesLost { .. }
        | ActionEvent::ServiceDeclared { .. }
        | ActionEvent::SharesSet { .. }
        | ActionEvent::ElasticAnswered { .. }
        | ActionEvent::ActionsRecovered => None,
    }
}

/// The action that a command is about.
pub(crate) fn commanded(command: &ActionCommand) -> Option<ActionId> {
    match command {
        ActionCommand::StartAction { action, .. }
        | ActionCommand::StopAction { action, .. }
        | ActionCommand::AnswerAction { action } => Some(*action),
        ActionCommand::AskElastic { .. } => None,
    }
}

/// The subject of an event about an action.
pub(crate) fn subject(core: &Core, event: &ActionEvent) -> Subject {
    let spec = match event {
        ActionEvent::ActionSubmitted { spec, .. } => Some(&**spec),
        _ => about(event)
            .and_then(|action| core.actions().action(action))
            .map(|action| &*action.spec),
    };
    let Some(spec) = spec else {
        return Subject::default();
    };
    let program = spec.program.as_deref();
    let program = program.and_then(|key| core.programs().program(key));
    Subject {
        program: program.map(|program| program.id),
        key: spec.program.clone(),
        job: Some(spec.job.clone()),
        ..Subject::default()
    }
}

/// An action's row.
pub(crate) fn row(id: ActionId, action: &Action) -> ActionRow {
    let spec = &action.spec;
    let mut row = ActionRow {
        action: id.0,
        job: spec.job.to_string(),
        program: spec.program.as_deref().map(Into::into),
        kind: spec.kind.to_string(),
        status: "waiting".to_owned(),
        attempts: u64::from(action.attempt),
        spec: json(spec),
        submitted_at_us: action.submitted.0,
        ..ActionRow::default()
    };
    let us = |at: Option<Timestamp>| at.map(|at| at.0);
    match &action.stage {
        Stage::Waiting { .. } => {}
        Stage::Started(started) => {
            let status = match (&started.stopping, started.begun) {
                (Some(_), _) => "stopping",
                (None, Some(_)) => "running",
                (None, None) => "starting",
            };
            status.clone_into(&mut row.status);
            row.grants = Some(json(&started.grants));
            row.granted_at_us = Some(started.since.0);
            row.began_at_us = us(started.begun);
        }
        Stage::Ended(ended) => {
            "ended".clone_into(&mut row.status);
            if ended.units > 0 {
                let key = &spec.demands[spec.key_demand()];
                row.grants = Some(json(&[Grant {
                    resource: key.resource.clone(),
                    units: ended.units,
                    chunk: None,
                }]));
            }
            row.outcome = Some(json(&ended.outcome));
            row.output = ended.output.as_deref().map(Into::into);
            row.granted_at_us = us(ended.started);
            row.began_at_us = us(ended.begun);
            row.ended_at_us = Some(ended.at.0);
        }
    }
    row
}

/// Numbers and texts in maps with text keys, for which serialization can't fail.
fn json(value: &(impl serde::Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
