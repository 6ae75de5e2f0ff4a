//! Tool runners: they tell of what programs do between their steps.

use super::Cluster;
use treadle_core::Event;

impl Cluster<'_> {
    /// A step was answered: what its tools will tell is put down.
    pub(super) fn begin_actions(&mut self, agent: usize) {
        let (run, step) = (
            self.agents.run_index(agent),
            self.agents.steps_sent(agent) - 1,
        );
        let program: Box<str> = self.agents.key(agent).into();
        for (place, action) in self
            .surroundings
            .actions_after(run, step)
            .iter()
            .enumerate()
        {
            let id: Box<str> = format!("{step}.{place}").into();
            let begins = Event::ActionStarted {
                program: program.clone(),
                action: id.clone(),
                tool: action.tool.clone(),
            };
            self.telling
                .insert((self.now + action.begins_us, self.told), begins);
            self.told += 1;
            if let Some(ends_us) = action.ends_us {
                let ends = Event::ActionFinished {
                    program: program.clone(),
                    action: id,
                    ok: action.ok,
                };
                self.telling.insert((self.now + ends_us, self.told), ends);
                self.told += 1;
            }
        }
    }

    /// Tells what is due.
    pub(super) fn tell_of_actions(&mut self) {
        while let Some(next) = self.telling.first_entry() {
            if next.key().0 > self.now {
                return;
            }
            let event = next.remove();
            self.handle(&event);
        }
    }
}
