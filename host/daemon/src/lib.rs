//! The treadle daemon: gateway, driver, REST and command line.
//!
//! [`daemon::Daemon`] puts the parts together. The driver alone owns the core;
//! the gateway and REST talk to it through a handle.

pub use treadle_auth as auth;
pub mod bench;
pub mod calibrate;
pub mod cli;
pub use treadle_config as config;
pub mod demo;
mod doctor;
/// The scheduler's and the evaluator's parts, where the daemon looks for them.
pub mod driver {
    pub use treadle_policy::evaluator::{
        Answer, BindingView, BoundPolicy, CanaryView, Change, ChangeError, Changed, Comparison,
        DeskLimits, EVERYONE, Forecast, KeptState, LATENCY_BOUNDS_US, Notice, NoticeKind,
        OUTLOOK_COLUMNS, PolicyDesk, PolicyStatistics, Role, Scope, ShadowReport, Spread, Trial,
        TrialLimits, VersionEntry, VersionStatistics, native_policy,
    };
    pub use treadle_scheduler::*;
}
pub use treadle_engine_sim as engine_sim;
pub use treadle_engines as engines;
pub use treadle_whatif as lab;
pub mod plots;
pub use treadle_registry as policies;
pub use treadle_scheduler::recovery;
mod sim;
pub use treadle_engines::transfers;
pub use treadle_server::{app, cluster, daemon, messaging, metrics};
