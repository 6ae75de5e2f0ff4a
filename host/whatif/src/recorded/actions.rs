//! Actions of tool runners in a window of the journal, assigned to the steps that they follow.

use super::recorder::RecordedStep;
use std::collections::BTreeMap;
use treadle_simulator::cluster::ToolAction;

/// The actions of one program in a window.
#[derive(Default)]
pub(super) struct RecordedActions {
    all: Vec<Action>,
    /// Indices of unfinished actions, by their ids.
    open: BTreeMap<Box<str>, usize>,
}

struct Action {
    tool: Box<str>,
    began_us: u64,
    ended: Option<(u64, bool)>,
}

impl RecordedActions {
    /// Records the start of an action; the next end with the same id belongs to it.
    pub(super) fn begun(&mut self, at_us: u64, id: &str, tool: &str) {
        if !self.open.contains_key(id) {
            self.open.insert(id.into(), self.all.len());
            self.all.push(Action {
                tool: tool.into(),
                began_us: at_us,
                ended: None,
            });
        }
    }

    /// Records the end of an action. One that began before the window is ignored.
    pub(super) fn ended(&mut self, at_us: u64, id: &str, ok: bool) {
        if let Some(index) = self.open.remove(id) {
            self.all[index].ended = Some((at_us, ok));
        }
    }

    /// The actions after each step, and the number of actions that began before the first answer.
    pub(super) fn by_step(&self, steps: &[RecordedStep]) -> (Vec<Vec<ToolAction>>, u64) {
        if self.all.is_empty() {
            return (Vec::new(), 0);
        }
        let mut by_step = vec![Vec::new(); steps.len()];
        let mut left_out = 0;
        for action in &self.all {
            let before = |step: &RecordedStep| step.finished_us <= action.began_us;
            let Some(place) = steps.iter().rposition(before) else {
                left_out += 1;
                continue;
            };
            let since = |at_us: u64| at_us - steps[place].finished_us;
            by_step[place].push(ToolAction {
                tool: action.tool.clone(),
                begins_us: since(action.began_us),
                ends_us: action.ended.map(|(at_us, _)| since(at_us)),
                ok: action.ended.is_none_or(|(_, ok)| ok),
            });
        }
        (by_step, left_out)
    }
}
