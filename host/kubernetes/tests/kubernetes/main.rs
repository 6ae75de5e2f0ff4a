//! Sandboxes as pods, against a stand-in of the API server: no cluster has run these tests.

mod commands;
mod course;
mod ends;
mod files;
mod orphans;
mod refusals;
mod stage;
mod stand_in;
