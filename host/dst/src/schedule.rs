//! Faults, and their times.

use treadle_dst_outcome::Stream;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $name:literal),+ $(,)?) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum FaultKind {
            $($(#[$doc])* $kind),+
        }

        impl FaultKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }
        }
    };
}

kinds! {
    /// Messages of a gateway are lost, and sent again after a while.
    MessagesLost => "messages-lost",
    /// Messages of a gateway arrive twice.
    MessagesDuplicated => "messages-duplicated",
    /// Messages of a gateway are late, and overtake one another.
    MessagesDelayed => "messages-delayed",
    /// A gateway in doubt submits a step again.
    ArrivalRepeated => "arrival-repeated",
    /// An engine answers 503.
    EngineFailing => "engine-failing",
    /// An engine accepts requests and never answers.
    EngineHanging => "engine-hanging",
    /// An engine dies, and comes back with an empty cache.
    EngineCrash => "engine-crash",
    /// The connections to an engine break.
    ConnectionsBroken => "connections-broken",
    /// An engine is restarted and holds more or less than before.
    CapacityChanged => "capacity-changed",
    /// The owner takes an engine out, and brings it back later.
    WorkerRemoved => "worker-removed",
    /// The daemon considers a healthy engine lost.
    FalseAlarm => "false-alarm",
    /// The database does not answer.
    DatabaseDown => "database-down",
    /// A transaction is committed, but its answer is lost.
    CommitAnswerLost => "commit-answer-lost",
    /// A gateway in a process of its own dies; another process takes over
    /// its clients.
    GatewayCrash => "gateway-crash",
    /// The connection between a gateway and the daemon breaks.
    GatewayCutOff => "gateway-cut-off",
    /// The daemon is killed.
    DaemonKilled => "daemon-killed",
    /// The broker does not answer.
    BrokerDown => "broker-down",
    /// Messages are published, but not confirmed.
    ConfirmLost => "confirm-lost",
    /// Policies answer after their deadline.
    PolicySlow => "policy-slow",
    /// Policies do not answer.
    PolicyMute => "policy-mute",
    /// Policies omit programs, duplicate some, or use a bad order.
    PolicyWrong => "policy-wrong",
    /// Policies answer with unknown ids, or another kind of answer.
    PolicyNonsense => "policy-nonsense",
    /// Policies answer twice.
    PolicyRepeats => "policy-repeats",
    /// The clock jumps forward.
    ClockForward => "clock-forward",
    /// The clock jumps backward.
    ClockBackward => "clock-backward",
    /// A transfer of a cache fails on its way.
    TransferFails => "transfer-fails",
    /// Nothing is reported of a transfer.
    TransferHangs => "transfer-hangs",
    /// The result of a transfer is reported twice.
    TransferToldTwice => "transfer-told-twice",
    /// The result of a transfer is reported late, perhaps after it was cancelled.
    TransferToldLate => "transfer-told-late",
    /// A copy has fewer tokens, or more, than were requested.
    CopyDiffers => "copy-differs",
    /// A copy in host memory is lost, or damaged silently.
    CopyLost => "copy-lost",
    /// The daemon's machine restarts: its host memory is empty.
    HostLost => "host-lost",
    /// No engine is found to support offloading any more, so that no host memory is planned with.
    NoOffloads => "no-offloads",
    /// No engine is found to support moves to another one any more.
    NoMoves => "no-moves",
    /// An operator cordons an engine, and takes it back later.
    WorkerCordoned => "worker-cordoned",
    /// An operator drains an engine, and takes it back later.
    WorkerDrained => "worker-drained",
}

impl FaultKind {
    /// Faults of transfers.
    pub(crate) const OF_TRANSFERS: &'static [Self] = &[
        Self::TransferFails,
        Self::TransferHangs,
        Self::TransferToldTwice,
        Self::TransferToldLate,
        Self::CopyDiffers,
        Self::CopyLost,
        Self::HostLost,
    ];

    /// Faults of engines' detected capabilities.
    pub(crate) const OF_MEANS: &'static [Self] = &[Self::NoOffloads, Self::NoMoves];

    /// Faults by operators.
    pub(crate) const OF_OPERATORS: &'static [Self] = &[Self::WorkerCordoned, Self::WorkerDrained];

    /// Faults that apply to every simulation.
    pub(crate) fn ordinary() -> Vec<Self> {
        let apart = [Self::OF_TRANSFERS, Self::OF_MEANS, Self::OF_OPERATORS].concat();
        let all = Self::ALL.iter().copied();
        all.filter(|kind| !apart.contains(kind)).collect()
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}

/// One fault of the schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// When it begins.
    pub(crate) at_us: u64,
    /// When it ends.
    pub(crate) until_us: u64,
    /// The engine or gateway that it affects, modulo their number.
    pub(crate) target: usize,
    /// Strength, in percent.
    pub(crate) strength: u64,
}

/// Maximum number of faults of one simulation.
const FAULTS_MAX: u64 = 24;
/// Maximum duration of an outage, in virtual microseconds.
const OUTAGE_US_MAX: u64 = 30_000_000;

/// Draws a schedule of some of these kinds that ends by `end_us`. Each simulation only has some
/// kinds: many faults of few kinds find other bugs than a few of every kind.
pub(crate) fn draw(stream: &mut Stream, of: &[FaultKind], end_us: u64) -> Vec<Fault> {
    let share = stream.pick(&[15, 30, 50, 100]);
    let kinds: Vec<FaultKind> = of
        .iter()
        .copied()
        .filter(|_| stream.percent(share))
        .collect();
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut faults: Vec<Fault> = (0..stream.between(1, FAULTS_MAX))
        .map(|_| {
            let at_us = stream.below(end_us);
            let lasts = stream.between_low(1_000, OUTAGE_US_MAX);
            Fault {
                kind: stream.pick(&kinds),
                at_us,
                until_us: (at_us + lasts).min(end_us),
                target: stream.below(64) as usize,
                strength: stream.between(10, 90),
            }
        })
        .collect();
    faults.sort_by_key(|fault| fault.at_us);
    faults
}

/// The active faults.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults {
    active: Vec<(usize, Fault)>,
}

impl ActiveFaults {
    pub(crate) fn begin(&mut self, index: usize, fault: Fault) {
        self.active.push((index, fault));
    }

    pub(crate) fn end(&mut self, index: usize) {
        self.active.retain(|(other, _)| *other != index);
    }

    /// The strength of an active fault.
    pub(crate) fn strength(&self, kind: FaultKind) -> Option<u64> {
        let found = self.active.iter().find(|(_, fault)| fault.kind == kind);
        found.map(|(_, fault)| fault.strength)
    }

    /// The strength of an active fault that affects this target, out of `of`.
    pub(crate) fn strikes(&self, kind: FaultKind, target: usize, of: usize) -> Option<u64> {
        let mut active = self.active.iter();
        let found = active.find(|(_, fault)| fault.kind == kind && fault.target % of == target);
        found.map(|(_, fault)| fault.strength)
    }

    /// The latest end of the active faults of a kind.
    pub(crate) fn until(&self, kind: FaultKind) -> Option<u64> {
        let of_kind = self.active.iter().filter(|(_, fault)| fault.kind == kind);
        of_kind.map(|(_, fault)| fault.until_us).max()
    }
}
