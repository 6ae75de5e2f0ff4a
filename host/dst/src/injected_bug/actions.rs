//! Injected bugs of actions.

use super::{Did, InjectedBug, replace};
use treadle_core::actions::{ActionCommand, ActionEvent, Ended, Rank, Stage};
use treadle_core::programs::Action;
use treadle_core::programs::ProgramCommand;
use treadle_core::{Command, Core, Event};
use treadle_model::{ActionId, Span};

impl InjectedBug {
    pub(super) fn tamper_with_actions(
        self,
        core: &mut Core,
        did: &mut Did,
        event: &Event,
        events: u64,
    ) {
        let commands = &mut did.commands;
        let starts = |c: &&Command| matches!(c, Command::Action(ActionCommand::StartAction { .. }));
        match self {
            Self::RunActionTwice if events.is_multiple_of(3) => {
                let again = commands.iter().find(starts).cloned();
                commands.extend(again);
            }
            Self::ForgetActionEnd if events.is_multiple_of(3) => {
                let answers =
                    |c: &Command| matches!(c, Command::Action(ActionCommand::AnswerAction { .. }));
                commands.retain(|command| !answers(command));
            }
            Self::KeepUnits if matches!(event, Event::Action(ActionEvent::ActionEnded { .. })) => {
                let mut state = core.state().into_owned();
                if let Some(pool) = state.actions.to_mut().pools.first_mut() {
                    pool.used += 1;
                }
                replace(core, state);
            }
            Self::OvertakeHead => {
                let started = commands.iter_mut().rev();
                let mut started = started.filter_map(|command| match command {
                    Command::Action(ActionCommand::StartAction {
                        action, attempt, ..
                    }) => Some((action, attempt)),
                    _ => None,
                });
                if let Some((action, attempt)) = started.next() {
                    let others = core.actions().waiting();
                    let other = others.filter(|(id, _)| id > action).last();
                    if let Some((id, other)) = other {
                        (*action, *attempt) = (id, other.attempt + 1);
                    }
                }
            }
            Self::ForgetProgramsActions => forget_programs_actions(core, did),
            Self::KeepProgramsAction => keep_programs_action(core, did),
            Self::LearnWithdrawn => learn_withdrawn(core, did),
            _ => {}
        }
    }
}

/// Actions that the present event has ended.
fn answered(did: &Did) -> Vec<ActionId> {
    let answers = did.commands.iter().filter_map(|command| match command {
        Command::Action(ActionCommand::AnswerAction { action }) => Some(*action),
        _ => None,
    });
    answers.collect()
}

/// What waited and ended with its program waits on.
fn forget_programs_actions(core: &mut Core, did: &mut Did) {
    let over = did.commands.iter().filter_map(|command| match command {
        Command::Program(ProgramCommand::ForgetProgram { program }) => Some(program.key.clone()),
        _ => None,
    });
    let over: Vec<_> = over.collect();
    let mut state = core.state().into_owned();
    let mut forgotten = Vec::new();
    for id in answered(did) {
        let actions = state.actions.to_mut();
        let is_forgotten = |action: &treadle_core::actions::Action| {
            let program = action.spec.program.as_ref();
            let waited = action.ended().is_some_and(|ended| ended.started.is_none());
            waited && program.is_some_and(|program| over.contains(program))
        };
        if !actions.ended.get(&id).is_some_and(is_forgotten) {
            continue;
        }
        if let Some(mut action) = actions.ended.remove(&id) {
            let rank = Rank::default();
            action.stage = Stage::Waiting { rank, work: 0 };
            actions.live.insert(id, action);
            actions.ended_order.retain(|ended| *ended != id);
            forgotten.push(id);
        }
    }
    let is_forgotten = |command: &Command| {
        let answers = |id: &ActionId| {
            *command == Command::Action(ActionCommand::AnswerAction { action: *id })
        };
        forgotten.iter().any(answers)
    };
    did.commands.retain(|command| !is_forgotten(command));
    if !forgotten.is_empty() {
        replace(core, state);
    }
}

/// A program goes on with an action that has ended.
fn keep_programs_action(core: &mut Core, did: &Did) {
    let mut state = core.state().into_owned();
    let now = state.now;
    let mut is_changed = false;
    for id in answered(did) {
        let spec = state.actions.action(id).map(|action| &action.spec);
        let key = spec.and_then(|spec| spec.program.as_ref());
        let tool = spec.map(|spec| spec.kind.clone());
        let program = key.and_then(|key| state.programs.keys.get(key)).copied();
        let programs = &mut state.programs.to_mut().live;
        let program = program.and_then(|program| programs.get_mut(&program));
        if let (Some(program), Some(tool)) = (program, tool) {
            let kept = Action {
                tool,
                since: now,
                ends: None,
            };
            let key = format!("treadle/{id}").into();
            is_changed = true;
            program.actions.insert(key, kept);
        }
    }
    if is_changed {
        replace(core, state);
    }
}

/// What was withdrawn before it began counts as a call.
fn learn_withdrawn(core: &mut Core, did: &Did) {
    let mut state = core.state().into_owned();
    let mut is_changed = false;
    for id in answered(did) {
        let action = state.actions.action(id);
        let is_unbegun = |ended: &Ended| ended.begun.is_none();
        let action = action.filter(|action| action.ended().is_some_and(is_unbegun));
        let Some(spec) = action.map(|action| action.spec.clone()) else {
            continue;
        };
        let key = spec.program.as_ref();
        let program = key.and_then(|key| state.programs.keys.get(key)).copied();
        let programs = state.programs.to_mut();
        let program = program.and_then(|program| programs.live.get(&program));
        if let Some(job) = program.map(|program| program.job.clone()) {
            let estimates = &mut programs.estimates;
            estimates.call_ended(&job, &spec.kind, Span(0), true);
            is_changed = true;
        }
    }
    if is_changed {
        replace(core, state);
    }
}
