//! The machine of actions that treadle runs: tool calls and rewards, which wait for cores, devices
//! and quotas and are given as much of them as shortens the sum of their times (`ARL-Tangram` §4).

mod command;
mod event;
mod question;
mod resource;
mod spec;

pub use command::{ActionCommand, Load};
pub use event::{ActionEvent, Outcome};
pub use question::{ElasticAnswer, ElasticQuestion};
pub use resource::{Chunk, Grant, NODE_DEVICES, RESOURCES_MAX, Resource, Supply};
pub use spec::{ActionSpec, DEMANDS_MAX, Demand, OPTIONS_MAX};
