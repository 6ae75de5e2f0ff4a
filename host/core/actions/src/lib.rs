//! The machine of actions that treadle runs: tool calls and rewards, which wait for cores, devices
//! and quotas and get the amounts that minimize the sum of their times (`ARL-Tangram` §4).
//!
//! # Order
//!
//! There is a queue for each key resource: more units of it make an action faster.
//! Queues are served in order of arrival, unless programs that hold memory which others need go
//! first ([`crate::ActionsConfig::joint_order`]). An action starts when its minimum of every
//! resource is free, it is the head of its queue, and no earlier head of another queue waits for
//! any of these resources: nothing overtakes the head of a queue on a resource that it needs.
//! Actions of other queues that need other resources are not held up. A pass examines each queue
//! only up to its first action that can't start, so its cost does not grow with the queues.
//!
//! # Shares
//!
//! If groups of jobs share resources ([`Shares`]), each has its own queue for each key resource,
//! they take turns, and what the started actions of one hold is limited. The head of a group's
//! queue holds up only its own group while it waits for its share, and everybody while it waits
//! for a free resource.
//!
//! # Units
//!
//! If a candidate has a choice of amounts, the allocation policy is asked about the candidates for
//! its key resource; it may give more to some and leave out the last. The first candidate for each
//! key resource starts in any case, and so does one that has waited beyond the starvation bound.
//! The built-in default, which gives each its minimum, decides what an answer leaves open or gets
//! wrong.
//!
//! # Ends
//!
//! Each action gets one result. An attempt begins at most once and only after its start is on
//! record. If it is unknown whether it ran, it ends as unknown, or is repeated if the client said
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

pub use action::{Action, Ended, Rank, RankInputs, Stage, Started};
pub use check::{ActionError, Admission};
pub use command::{ActionCommand, Load};
pub use devices::{Devices, FreeDevices, LoadedService};
pub use event::{ActionEvent, Outcome};
pub use pool::Pool;
pub use profiles::{Profile, Profiles};
pub use question::{ElasticAnswer, ElasticQuestion};
pub use quota::Quota;
pub use resource::{Chunk, Grant, Instance, NODE_DEVICES, RESOURCES_MAX, Resource, Supply};
pub use shares::Shares;
pub use spec::{ActionSpec, DEMANDS_MAX, Demand, OPTIONS_MAX};
pub use state::{Ask, Counters, SERVICES_MAX, Service, State, Timer};

use index::Index;
use std::collections::VecDeque;
use treadle_machine::ActionsConfig;
use treadle_machine::DaemonEvent;
use treadle_machine::{Machine, Notice, Notified};
use treadle_model::{ActionId, Timestamp};

/// The machine of actions.
#[derive(Clone, Debug)]
pub struct Actions {
    config: ActionsConfig,
    state: State,
    index: Index,
    commands: VecDeque<ActionCommand>,
    notices: VecDeque<Notice>,
    /// Actions whose wait began with this event.
    unranked: Vec<ActionId>,
}

impl Actions {
    /// The machine as a snapshot has it.
    pub fn with_state(config: ActionsConfig, state: State) -> Self {
        Self {
            config,
            index: Index::of(&state),
            state,
            commands: VecDeque::new(),
            notices: VecDeque::new(),
            unranked: Vec::new(),
        }
    }

    /// Its state, as a snapshot has it.
    pub fn state(&self) -> &State {
        &self.state
    }

    fn command(&mut self, command: ActionCommand) {
        self.commands.push_back(command);
    }
}

/// What actions read of the programs that they belong to.
pub trait ProgramsView {
    /// Whether this program is live.
    fn is_live(&self, program: &str) -> bool;

    /// Whether any program waits for placement.
    fn any_unplaced(&self) -> bool;

    /// The memory that a program holds and others need, and its remaining length; `unplaced` is
    /// [`any_unplaced`](Self::any_unplaced).
    fn rank_inputs(&self, program: &str, unplaced: bool) -> RankInputs;
}

impl Machine for Actions {
    type Event = ActionEvent;
    type Command = ActionCommand;
    type View = dyn ProgramsView;

    fn advance(&mut self, now: Timestamp) {
        self.state.now = now;
    }

    fn apply(&mut self, event: &ActionEvent, programs: &Self::View) {
        self.transition(event);
        // The program may have ended after the action was checked.
        if let ActionEvent::ActionSubmitted { spec, .. } = event
            && let Some(program) = &spec.program
            && !programs.is_live(program)
        {
            self.program_over(program);
        }
        // Before programs look at their caches: how long these are idle depends on it.
        self.rank_newcomers(programs);
    }

    fn daemon(&mut self, event: &DaemonEvent) {
        match event {
            DaemonEvent::TimerFired => self.timer_fired(),
            DaemonEvent::Configured { config } => {
                self.config.clone_from(&config.actions);
                self.forget_oldest();
                self.look_again();
            }
            DaemonEvent::DaemonRestarted => self.daemon_restarted(),
            DaemonEvent::GatewayLost { .. } | DaemonEvent::RecordRefused { .. } => {}
        }
    }

    fn settle(&mut self, programs: &Self::View) {
        self.rank_waiting(programs);
        self.start_waiting();
    }

    fn poll_command(&mut self) -> Option<ActionCommand> {
        self.commands.pop_front()
    }

    fn next_deadline(&self) -> Option<Timestamp> {
        self.state.timers.next()
    }

    fn assert_invariants(&self) {
        self.check_invariants();
    }
}

impl Notified for Actions {
    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn notice(&mut self, notice: &Notice) {
        if let Notice::ProgramOver { program, .. } = notice {
            self.program_over(program);
        }
    }
}
