//! Faults of requests, engines and whole machines. Every fault ends clearly for the client and
//! leaves no state in the daemon.

mod answers;
mod clients;
mod engines;
mod numbers;
mod outages;
mod requests;
mod storms;
