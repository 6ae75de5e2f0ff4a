//! Tests of the core through events and commands only.

mod accounts;
mod action_properties;
mod action_shares;
mod actions;
mod caches;
mod cordons;
mod executor;
mod fairness;
mod families;
mod faster;
mod headroom;
mod joint_actions;
mod models;
mod offloading_engines;
mod preemption;
mod properties;
mod rejected;
mod resting;
mod rewards;
mod rollout;
mod scenario;
mod scenarios;
mod speeds;
mod takeover;
mod tokens;
mod treadle_actions;
