//! Actions that really run: processes, requests, services, and what a crash leaves.

mod ends;
mod overhead;
mod processes;
mod recovery;
mod requests;
mod server;
mod services;
mod stage;
