//! Sandboxes as pods, against a stand-in of the API server: no cluster has run these tests.

mod commands;
mod ends;
mod files;
mod lifecycle;
mod orphans;
mod refusals;
mod stage;
mod stand_in;
