//! Beginnings and ends of actions, as tool runners report them and as treadle runs them.

use crate::actions::{Notice, NoticeKind};
use crate::programs::Programs;
use crate::programs::action::{self, ACTIONS_MAX, Action, OWN};

impl Programs {
    /// Records the beginning of an action. An action of a program that is not live is ignored.
    pub(crate) fn action_started(&mut self, program: &str, action: &str, tool: &str) {
        let now = self.state.now;
        let Some(id) = self.state.keys.get(program) else {
            return;
        };
        let Some(p) = self.state.live.get_mut(id) else {
            return;
        };
        if p.actions.len() < ACTIONS_MAX && !p.actions.contains_key(action) {
            let started = Action {
                tool: tool.into(),
                since: now,
                ends: None,
            };
            p.actions.insert(action.into(), started);
        }
    }

    /// Records a change of an action that treadle runs.
    pub(crate) fn action_noticed(&mut self, notice: &Notice) {
        let key = format!("{OWN}{}", notice.action);
        match notice.what {
            NoticeKind::Expected { begins, ends } => {
                self.action_started(&notice.program, &key, &notice.kind);
                if let Some(action) = self.known_action(&notice.program, &key) {
                    (action.since, action.ends) = (begins, ends);
                }
            }
            NoticeKind::Over { ok, ran_since } => {
                let Some(action) = self.known_action(&notice.program, &key) else {
                    return;
                };
                // An action that began while being stopped was expected to begin at another time.
                action.since = ran_since.unwrap_or(action.since);
                self.action_over(&notice.program, &key, ok, ran_since.is_some());
                self.put_off_idleness(&notice.program);
            }
        }
    }

    fn known_action(&mut self, program: &str, action: &str) -> Option<&mut Action> {
        let id = self.state.keys.get(program)?;
        self.state.live.get_mut(id)?.actions.get_mut(action)
    }

    /// Records the end of an action, only once however often it is reported.
    pub(crate) fn action_finished(&mut self, program: &str, action: &str, ok: bool) {
        self.action_over(program, action, ok, true);
    }

    fn action_over(&mut self, program: &str, action: &str, ok: bool, has_begun: bool) {
        let now = self.state.now;
        let Some(id) = self.state.keys.get(program) else {
            return;
        };
        let Some(p) = self.state.live.get_mut(id) else {
            return;
        };
        if let Some(ended) = p.actions.remove(action) {
            p.last_action_ok = Some(ok);
            p.actions_failed += u32::from(!ok);
            if has_begun {
                action::learn(&mut self.state.tools, &p.job, &ended, now, ok);
            }
        }
    }
}
