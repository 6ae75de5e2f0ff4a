//! The treadle daemon: gateway, driver, REST and command line.
//!
//! [`daemon::Daemon`] puts the parts together. The driver alone owns the core;
//! the gateway and REST talk to it through a handle.

pub mod app;
pub use treadle_auth as auth;
pub mod bench;
pub mod calibrate;
pub mod cli;
pub mod cluster;
pub use treadle_config as config;
pub mod daemon;
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
pub mod gateway;
pub mod lab;
mod leading;
pub mod link;
mod memory;
pub mod messaging;
pub mod metrics;
pub mod plots;
mod upkeep;
pub use treadle_registry as policies;
mod policy_metrics;
pub use treadle_scheduler::recovery;
mod rest;
mod sim;
pub use treadle_engines::transfers;
