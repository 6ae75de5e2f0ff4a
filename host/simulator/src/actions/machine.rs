//! What gives actions what they draw from: the daemon's core. Programs, steps and engines are not
//! part of this: its actions belong to no program.

use treadle_core::actions::{ActionCommand, ActionEvent, ElasticAnswer, ElasticQuestion};
use treadle_core::{ActionsConfig, Command, Core, CoreConfig, Event};
use treadle_model::Timestamp;

/// A machine of actions.
pub trait Machine {
    /// Handles an event.
    fn handle(&mut self, now: Timestamp, event: ActionEvent);

    /// The next thing to do, if any.
    fn poll(&mut self) -> Option<ActionCommand>;

    /// When [`Machine::wake`] is due.
    fn deadline(&self) -> Option<Timestamp>;

    /// A deadline has passed.
    fn wake(&mut self, now: Timestamp);
}

/// The daemon's core, with nothing in it but actions.
#[derive(Clone, Debug)]
pub struct Treadle {
    core: Core,
}

impl Treadle {
    /// One with these settings.
    pub fn new(actions: ActionsConfig) -> Self {
        let config = CoreConfig {
            actions,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config),
        }
    }

    /// The core as it stands.
    pub fn core(&self) -> &Core {
        &self.core
    }
}

impl Default for Treadle {
    fn default() -> Self {
        Self::new(ActionsConfig::default())
    }
}

impl Machine for Treadle {
    fn handle(&mut self, now: Timestamp, event: ActionEvent) {
        self.core.handle(now, &Event::Action(event));
    }

    fn poll(&mut self) -> Option<ActionCommand> {
        while let Some(command) = self.core.poll_command() {
            if let Command::Action(command) = command {
                return Some(command);
            }
        }
        None
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.core.next_deadline()
    }

    fn wake(&mut self, now: Timestamp) {
        self.core.handle(now, &Event::TimerFired);
    }
}

/// An allocation policy.
pub trait Allocator {
    /// Which of the waiting actions start, and with how much.
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer;
}
