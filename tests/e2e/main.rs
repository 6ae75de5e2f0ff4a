//! End-to-end tests over real sockets: a whole daemon, engines around it, clients of every kind.

mod compatibility;
mod conversation;
mod faults;
mod llamacpp;
mod plugins;
mod restart;
mod scheduling;
mod tenancy;
mod vllm;
