//! Beginnings and ends of actions, as tool runners report them and as treadle runs them.

use crate::programs::Programs;
use crate::programs::action::{ACTIONS_MAX, Action, OWN};
use treadle_machine::{Notice, Notified};
use treadle_model::{ActionId, Timestamp};

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

    /// Records that an action that treadle runs began, or when it is expected to begin.
    fn action_expected(
        &mut self,
        program: &str,
        action: ActionId,
        kind: &str,
    ) -> Option<&mut Action> {
        let key = format!("{OWN}{action}");
        self.action_started(program, &key, kind);
        self.known_action(program, &key)
    }

    /// Records the end of an action that treadle runs.
    fn own_action_over(
        &mut self,
        program: &str,
        action: ActionId,
        ok: bool,
        ran_since: Option<Timestamp>,
    ) {
        let key = format!("{OWN}{action}");
        let Some(known) = self.known_action(program, &key) else {
            return;
        };
        // An action that began while being stopped was expected to begin at another time.
        known.since = ran_since.unwrap_or(known.since);
        self.action_over(program, &key, ok, ran_since.is_some());
        self.put_off_idleness(program);
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
                let took = now.since(ended.since);
                self.state
                    .estimates
                    .call_ended(&p.job, &ended.tool, took, ok);
            }
        }
    }
}

impl Notified for Programs {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn notice(&mut self, notice: &Notice) {
        match notice {
            Notice::PoliciesBound { ranked, placed, .. } => self.policies_bound(ranked, placed),
            Notice::ActionExpected {
                program,
                action,
                kind,
                begins,
                ends,
            } => {
                if let Some(action) = self.action_expected(program, *action, kind) {
                    (action.since, action.ends) = (*begins, *ends);
                }
            }
            Notice::ActionOver {
                program,
                action,
                ok,
                ran_since,
            } => self.own_action_over(program, *action, *ok, *ran_since),
            Notice::MemberOpened {
                program,
                domain,
                prefers,
            } => self.member_opened(program, domain, prefers),
            Notice::JobRemoved { job } => self.state.estimates.forget_profile(job),
            Notice::ProgramCut { program } => self.program_cut(program),
            Notice::WorkerFenced { worker, fenced } => self.worker_fenced(*worker, *fenced),
            Notice::WeightsChanged { worker, weights } => self.weights_changed(*worker, weights),
            _ => {}
        }
    }
}
