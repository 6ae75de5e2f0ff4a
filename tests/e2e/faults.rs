//! What goes wrong: with requests, with engines, with whole machines. Every fault has a clear end
//! for the client, and nothing is left of it in the daemon.

mod answers;
mod clients;
mod engines;
mod numbers;
mod outages;
mod requests;
mod storms;
