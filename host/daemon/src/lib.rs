//! The treadle daemon: gateway, driver, REST and command line.
//!
//! [`daemon::Daemon`] puts the parts together. The driver alone owns the core;
//! the gateway and REST talk to it through a handle.

pub mod app;
pub mod auth;
pub mod bench;
pub mod calibrate;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod demo;
mod doctor;
pub mod driver;
pub mod engine_sim;
pub mod engines;
pub mod gateway;
pub mod lab;
mod leading;
pub mod link;
mod memory;
pub mod messaging;
pub mod metrics;
pub mod plots;
pub mod policies;
mod policy_metrics;
pub mod recovery;
mod rest;
mod sim;
pub mod transfers;
