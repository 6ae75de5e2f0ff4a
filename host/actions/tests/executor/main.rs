//! Actions with real processes, requests and services, and recovery after a crash.

mod ends;
mod overhead;
mod processes;
mod recovery;
mod requests;
mod server;
mod services;
mod stage;
