//! Tool runners, which report the actions of programs between their steps.

use super::Cluster;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;

impl Cluster<'_> {
    /// Schedules the reports of the tools after a step was answered.
    pub(super) fn begin_actions(&mut self, agent: usize) {
        let (run, step) = (
            self.agents.run_index(agent),
            self.agents.steps_sent(agent) - 1,
        );
        let program: Box<str> = self.agents.key(agent).into();
        for (place, action) in self.environment.actions_after(run, step).iter().enumerate() {
            let id: Box<str> = format!("{step}.{place}").into();
            let begins = Event::Program(ProgramEvent::ActionStarted {
                program: program.clone(),
                action: id.clone(),
                tool: action.tool.clone(),
            });
            self.pending_reports
                .insert((self.now + action.begins_us, self.told), begins);
            self.told += 1;
            if let Some(ends_us) = action.ends_us {
                let ends = Event::Program(ProgramEvent::ActionFinished {
                    program: program.clone(),
                    action: id,
                    ok: action.ok,
                });
                self.pending_reports
                    .insert((self.now + ends_us, self.told), ends);
                self.told += 1;
            }
        }
    }

    /// Sends the reports that are due.
    pub(super) fn report_actions(&mut self) {
        while let Some(next) = self.pending_reports.first_entry() {
            if next.key().0 > self.now {
                return;
            }
            let event = next.remove();
            self.handle(&event);
        }
    }
}
