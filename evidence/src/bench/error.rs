//! Why a benchmark gave no figures.

/// Why a benchmark gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A process of the benchmark did not come up.
    #[error("{what} did not start: {cause}; run `{command}` by hand to see more of what is wrong")]
    Process {
        /// Which.
        what: String,
        /// What was seen.
        cause: String,
        /// Its command line.
        command: String,
    },
    /// The list of other routers makes no sense.
    #[error("{path}: {cause}; run scripts/peers.sh to write it again")]
    Peers {
        /// The file.
        path: String,
        /// Which entry, which field, and what is wrong with it.
        cause: String,
    },
    /// No such system can be run.
    #[error("--systems has {name}, which is not one of {known}; {remedy}")]
    System {
        /// What was given.
        name: String,
        /// What can be run.
        known: String,
        /// How more can be.
        remedy: String,
    },
    /// The workload or the engines make no sense.
    #[error("{0}")]
    Demo(#[from] treadle_demo::DemoError),
    /// The system does not report what a process has used.
    #[error("{path} cannot be read: {cause}; the gateway can be measured on Linux only")]
    Usage {
        /// The file.
        path: String,
        /// What happened.
        cause: String,
    },
    /// Requests failed, so that figures would mean nothing.
    #[error(
        "{case}: {count} requests failed, the first with {first}; figures of such a run would mean nothing"
    )]
    Requests {
        /// In which case.
        case: String,
        /// How many.
        count: u64,
        /// What the first one ended with.
        first: String,
    },
    /// The embedded policy does not load.
    #[error("the embedded policy does not load: {0}; build it with `make guests`")]
    Policy(String),
    /// A built policy is not there.
    #[error(
        "{path} cannot be read: {cause}; run `make guests` in a checkout and start from its root, or name the folder with --guests"
    )]
    Guest {
        /// The file.
        path: String,
        /// What happened.
        cause: String,
    },
    /// A policy can't be measured.
    #[error(
        "{policy}: {cause}; build the policies and the program from one checkout, with `make build`"
    )]
    Comparison {
        /// Which.
        policy: String,
        /// What happened.
        cause: String,
    },
    /// The database does not do what it should.
    #[error("{0}")]
    Store(#[from] treadle_store::StoreError),
    /// The broker does not do what it should.
    #[error("{0}")]
    Broker(#[from] treadle_broker::BrokerError),
    /// The workload makes no sense.
    #[error("{0}")]
    Workload(#[from] treadle_simulator::workload::WorkloadError),
    /// A simulated rollout makes no sense.
    #[error("{0}")]
    Rollout(#[from] treadle_rollouts::comparison::ComparisonError),
    /// The measurement ended early.
    #[error("the measurement ended early: {0}")]
    Ended(String),
    /// The output is closed.
    #[error("the figures could not be written: {0}")]
    Output(#[from] std::io::Error),
}

impl BenchError {
    /// Whether the output was closed by its reader, which is how `head` ends a command.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Output(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Whether the command line makes no sense.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::System { .. })
    }
}
