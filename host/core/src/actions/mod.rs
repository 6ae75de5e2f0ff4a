//! The machine of actions that treadle runs: tool calls and rewards, which wait for cores, devices
//! and quotas and are given as much of them as shortens the sum of their times (`ARL-Tangram` §4).
//!
//! # Order
//!
//! There is a queue for each key resource: the one that more of makes an action faster. Queues are
//! served in one order: as actions came, unless programs that hold up memory go first
//! ([`crate::ActionsConfig::joint_order`]). An action starts when the least that it can do with is
//! free of all that it draws from, it is the first of its queue, and no first of another queue that
//! came before it waits for any of these: nobody overtakes the first of a queue on anything that it
//! needs. Actions of other queues that draw on other resources are not held up. A pass looks at no
//! action beyond the first of each queue that can't start, so its cost does not grow with what waits.
//!
//! # Shares
//!
//! Where groups of jobs share ([`Shares`]), each has a queue of its own for each key resource, they take
//! turns, and what started actions of one hold is bounded. The first of a group's queue holds up its
//! own group where it waits for its share, and everybody where it waits for what there is.
//!
//! # Units
//!
//! Where a candidate has a choice, the allocation policy is asked for the candidates of its key
//! resource, in place; it may give more to some and leave out the last. Of each key resource the
//! first candidate starts in any case, and so does one that has waited for too long. What an answer
//! leaves open or gets wrong is decided by the built-in default, which gives the least to each.
//!
//! # Ends
//!
//! Each action is answered once. An attempt is told to begin once and only after its start is on
//! record; of one whose fate nobody knows the end is unknown, or it is made again if the client said
//! that this does no harm. After a restart of the daemon its driver reports what the executor
//! found ([`ActionEvent::ActionBegan`] for what still runs, [`ActionEvent::ActionEnded`] for what
//! does not), then [`ActionEvent::ActionsRecovered`].

mod action;
mod admission;
mod answers;
mod ask;
mod bounds;
mod check;
mod command;
mod devices;
mod event;
mod index;
mod invariants;
mod joint;
mod pool;
mod profiles;
mod question;
mod quota;
mod resource;
mod restarts;
mod shares;
mod spec;
mod starts;
mod state;
mod timeouts;
mod transitions;
mod trial;

pub use action::{Action, Ended, Rank, Stage, Started};
pub use check::{ActionError, Admission};
pub use command::{ActionCommand, Load};
pub use devices::{Devices, FreeDevices, Held};
pub use event::{ActionEvent, Outcome};
pub use pool::Pool;
pub use profiles::{Profile, Profiles};
pub use question::{ElasticAnswer, ElasticQuestion};
pub use quota::Quota;
pub use resource::{Chunk, Grant, Instance, NODE_DEVICES, RESOURCES_MAX, Resource, Supply};
pub use shares::Shares;
pub use spec::{ActionSpec, DEMANDS_MAX, Demand, OPTIONS_MAX};
pub use state::{Ask, Counters, SERVICES_MAX, Service, State, Timer};

pub(crate) use action::{Notice, Noticed, Standing};

use crate::config::ActionsConfig;
use index::Index;
use std::collections::VecDeque;
use treadle_model::{ActionId, Timestamp};

/// The machine of actions.
#[derive(Clone, Debug)]
pub(crate) struct Actions {
    config: ActionsConfig,
    state: State,
    index: Index,
    commands: VecDeque<ActionCommand>,
    notices: VecDeque<Notice>,
    /// Actions whose wait began with this event.
    unranked: Vec<ActionId>,
}

impl Actions {
    pub(crate) fn with_state(config: ActionsConfig, state: State) -> Self {
        Self {
            config,
            index: Index::of(&state),
            state,
            commands: VecDeque::new(),
            notices: VecDeque::new(),
            unranked: Vec::new(),
        }
    }

    /// Sets the time of the event that is handled next.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.state.now = now;
    }

    pub(crate) fn configured(&mut self, config: ActionsConfig) {
        self.config = config;
        self.forget_oldest();
        self.look_again();
    }

    pub(crate) fn poll_command(&mut self) -> Option<ActionCommand> {
        self.commands.pop_front()
    }

    pub(crate) fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    pub(crate) fn next_deadline(&self) -> Option<Timestamp> {
        self.state.timers.next()
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    fn command(&mut self, command: ActionCommand) {
        self.commands.push_back(command);
    }
}
