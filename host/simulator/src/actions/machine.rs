//! The action scheduler of a batch: the daemon's core. Programs, steps and engines are not
//! involved: the actions belong to no program.

use treadle_core::actions::{ActionCommand, ActionEvent, ElasticAnswer, ElasticQuestion};
use treadle_core::{ActionsConfig, Command, Core, CoreConfig, DaemonEvent, Event};
use treadle_model::Timestamp;

/// An action scheduler.
pub trait Machine {
    /// Handles an event.
    fn handle(&mut self, now: Timestamp, event: ActionEvent);

    /// The next command, if any.
    fn poll(&mut self) -> Option<ActionCommand>;

    /// The time at which [`Machine::wake`] is due.
    fn deadline(&self) -> Option<Timestamp>;

    /// Handles a deadline that has passed.
    fn wake(&mut self, now: Timestamp);
}

/// The daemon's core, used only for actions.
#[derive(Clone, Debug)]
pub struct Treadle {
    core: Core,
}

impl Treadle {
    /// A core with these settings.
    pub fn new(actions: ActionsConfig) -> Self {
        let config = CoreConfig {
            actions,
            ..CoreConfig::default()
        };
        Self {
            core: Core::new(config),
        }
    }

    /// The core.
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
        self.core
            .handle(now, &Event::Daemon(DaemonEvent::TimerFired));
    }
}

/// An allocation policy.
pub trait Allocator {
    /// Which of the waiting actions start, and with how many units.
    fn allocate(&mut self, question: &ElasticQuestion) -> ElasticAnswer;
}
