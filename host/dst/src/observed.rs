//! A core that is watched: the model follows it, and both must agree.

use super::database::Row;
use super::model::Model;
use super::outcome::{Checked, broken};
use super::sabotage::Sabotage;
use std::panic::{AssertUnwindSafe, catch_unwind};
use treadle_core::{Command, Core, CoreConfig, Event, State};

/// The core checks all its sums itself once in so many events.
const OWN_CHECK_EVENTS: u64 = 4;

/// A core and its model.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) core: Core,
    pub(crate) model: Model,
    events: u64,
    sabotage: Option<Sabotage>,
}

impl Observed {
    pub(crate) fn new(config: &CoreConfig, honest: bool, sabotage: Option<Sabotage>) -> Self {
        let tampered = Sabotage::config(sabotage, config);
        Self {
            core: Core::new(tampered),
            model: Model::new(config.clone(), honest),
            events: 0,
            sabotage,
        }
    }

    /// The same, without anybody who tampers with it as it runs.
    pub(crate) fn untampered(
        config: &CoreConfig,
        honest: bool,
        sabotage: Option<Sabotage>,
    ) -> Self {
        Self {
            sabotage: None,
            ..Self::new(config, honest, sabotage)
        }
    }

    /// Goes on from a state with the model of another one that had the same.
    pub(crate) fn recovered(
        config: &CoreConfig,
        state: State,
        model: Model,
        sabotage: Option<Sabotage>,
    ) -> Self {
        let tampered = Sabotage::config(sabotage, config);
        Self {
            core: Core::with_state(tampered, state),
            model,
            events: 0,
            sabotage,
        }
    }

    /// Handles an event; the core's panics are broken rules too.
    pub(crate) fn handle(&mut self, row: &Row, event: &Event) -> Checked<Vec<Command>> {
        let (at, sim_us) = (row.at, row.sim_us);
        self.events += 1;
        let own_check = self.events.is_multiple_of(OWN_CHECK_EVENTS);
        let core = &mut self.core;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            handle(core, row, event);
            if own_check {
                core.assert_invariants();
            }
        }));
        if let Err(panic) = handled {
            return broken("core", panic_text(panic.as_ref()));
        }
        let mut commands: Vec<Command> = std::iter::from_fn(|| self.core.poll_command()).collect();
        let decisions: Vec<_> = std::iter::from_fn(|| self.core.poll_decision()).collect();
        if let Some(sabotage) = self.sabotage {
            sabotage.tamper(&mut self.core, &mut commands, event, self.events);
        }
        self.model.hear_of_engines(&self.core)?;
        self.model.hear_of_sizes(&self.core, event);
        self.model
            .follow(&self.core, at, sim_us, event, &commands, &decisions)?;
        self.model.check(&self.core, event)?;
        Ok(commands)
    }

    /// Handles an event that was handled before: nothing is checked but that
    /// it can be done again.
    pub(crate) fn repeat(&mut self, row: &Row, event: &Event) -> Checked {
        let (at, sim_us) = (row.at, row.sim_us);
        handle(&mut self.core, row, event);
        let commands: Vec<Command> = std::iter::from_fn(|| self.core.poll_command()).collect();
        let decisions: Vec<_> = std::iter::from_fn(|| self.core.poll_decision()).collect();
        self.model.hear_of_engines(&self.core)?;
        self.model.hear_of_sizes(&self.core, event);
        self.model
            .follow(&self.core, at, sim_us, event, &commands, &decisions)?;
        self.model.check(&self.core, event)
    }

    /// The state as a snapshot holds it.
    pub(crate) fn bytes(&self) -> Checked<Vec<u8>> {
        serde_json::to_vec(self.core.state()).or_else(|error| broken("snapshot", error.to_string()))
    }
}

fn handle(core: &mut Core, row: &Row, event: &Event) {
    match row.origin {
        Some(origin) => {
            core.handle_relayed(row.at, origin, event);
        }
        None => core.handle(row.at, event),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let text = owned.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    text.unwrap_or_else(|| "the core panicked".to_owned())
}
