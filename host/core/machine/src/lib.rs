//! The contract of a machine, and what machines tell each other.
//!
//! A further machine is a crate with its state, events and commands that implements [`Machine`], and
//! a variant of `Event` and of `Command` and a field of `Core` in treadle-core.

mod bound_jobs;
mod config;
mod daemon;
mod timers;

pub use bound_jobs::{BoundJobs, EVERYONE};
pub use config::{ActionsConfig, CoreConfig, KvConfig, Mode, RolloutConfig};
pub use daemon::DaemonEvent;
pub use timers::Timers;

use treadle_model::{ActionId, Timestamp, WorkerId};

/// A state machine that is a part of the core.
pub trait Machine: Notified {
    /// What happens to this machine only.
    type Event;
    /// What it asks the environment to do.
    type Command;
    /// What it reads of the machines before it.
    type View: ?Sized;

    /// Sets the time of the event that is handled next.
    fn advance(&mut self, now: Timestamp);

    /// Handles an event of its own.
    fn apply(&mut self, event: &Self::Event, view: &Self::View);

    /// Handles an event of the daemon.
    fn daemon(&mut self, event: &DaemonEvent);

    /// Handles everything that an event may have made possible or necessary.
    fn settle(&mut self, view: &Self::View);

    /// The next command to carry out, if any.
    fn poll_command(&mut self) -> Option<Self::Command>;

    /// When it wants [`DaemonEvent::TimerFired`].
    fn next_deadline(&self) -> Option<Timestamp>;

    /// Panics with the first invariant that does not hold.
    fn assert_invariants(&self);
}

/// A machine as the others see it: it sends and receives notices.
pub trait Notified {
    /// The next notice to the others, if any.
    fn poll_notice(&mut self) -> Option<Notice>;

    /// Takes note of what happened in another machine, if it concerns this one.
    fn notice(&mut self, notice: &Notice);
}

/// Which class of hardware a program prefers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Preference {
    /// None.
    Any,
    /// This one.
    Class(Box<str>),
    /// What is learnt of its domain decides.
    Auto,
}

/// What happened in one machine and concerns others.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// Policies were bound or unbound: the jobs that have one.
    PoliciesBound {
        /// Those whose steps a policy ranks.
        ranked: BoundJobs,
        /// Those whose programs a policy places.
        placed: BoundJobs,
        /// Those whose training runs a policy shapes.
        shaped: BoundJobs,
    },
    /// A program began.
    ProgramOpened {
        /// Its key.
        program: Box<str>,
    },
    /// A program is a member of a group.
    MemberOpened {
        /// Its key.
        program: Box<str>,
        /// The group's domain.
        domain: Box<str>,
        /// The hardware that it prefers.
        prefers: Preference,
    },
    /// The first token of a step of a program was sampled.
    FirstToken {
        /// Its key.
        program: Box<str>,
    },
    /// A program will not be trained and has no other purpose: it ends.
    ProgramCut {
        /// Its key.
        program: Box<str>,
    },
    /// A client reported a program's reward.
    ProgramRewarded {
        /// Its key.
        program: Box<str>,
        /// The reward, in millionths.
        millionths: i64,
    },
    /// A program is over.
    ProgramOver {
        /// Its key.
        program: Box<str>,
        /// It was released, and its last step was answered.
        whole: bool,
        /// Tokens that it sampled.
        tokens: u64,
        /// Its finished steps.
        steps: u32,
    },
    /// An engine came, went, was lost or answers again.
    WorkersChanged,
    /// A step's answer named the version of the weights.
    WeightsNamed {
        /// Its engine.
        worker: WorkerId,
        /// When it was sent there.
        sent: Timestamp,
        /// The version's name.
        name: Box<str>,
    },
    /// An engine gets steps, or gets none because of its weights.
    WorkerFenced {
        /// The engine.
        worker: WorkerId,
        /// Whether it gets none.
        fenced: bool,
    },
    /// An engine has other weights: its caches and all copies of them are useless.
    WeightsChanged {
        /// The engine.
        worker: WorkerId,
        /// Tells its weights from those of other engines.
        weights: Box<str>,
    },
    /// Engines serve a version of a job's weights.
    VersionServed {
        /// The job.
        job: Box<str>,
        /// The version's lineage.
        lineage: u32,
        /// The version.
        version: u64,
    },
    /// A run went back to a checkpoint.
    RunWentBack {
        /// The job.
        job: Box<str>,
    },
    /// A job was removed.
    JobRemoved {
        /// The job.
        job: Box<str>,
    },
    /// An action of a program began, or is expected to begin at this time.
    ActionExpected {
        /// Key of the program.
        program: Box<str>,
        /// The action.
        action: ActionId,
        /// Its kind.
        kind: Box<str>,
        /// When it begins.
        begins: Timestamp,
        /// Its expected end, if its client gave a duration.
        ends: Option<Timestamp>,
    },
    /// An action of a program is over.
    ActionOver {
        /// Key of the program.
        program: Box<str>,
        /// The action.
        action: ActionId,
        /// Whether it succeeded.
        ok: bool,
        /// Since when it ran, if it did: without its wait, or with it if waits are not expected.
        ran_since: Option<Timestamp>,
    },
}

/// Passes notices on until no machine has one. Returns whether any had.
pub fn deliver(machines: &mut [&mut dyn Notified]) -> bool {
    let mut any = false;
    while let Some(notice) = machines.iter_mut().find_map(|sender| sender.poll_notice()) {
        any = true;
        for machine in machines.iter_mut() {
            machine.notice(&notice);
        }
    }
    any
}
