//! Sandboxes as pods, against a stand-in for the API server. These tests have not been run on a
//! cluster.

mod commands;
mod ends;
mod files;
mod lifecycle;
mod orphans;
mod refusals;
mod stage;
mod stand_in;
