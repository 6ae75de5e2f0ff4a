//! End-to-end tests over real sockets: a whole daemon, engines around it, clients of every kind.

mod actions;
mod bodies;
mod calibration;
mod cluster;
mod compatibility;
mod console;
mod conversation;
mod families;
mod faults;
mod guides;
mod llamacpp;
mod messaging;
mod offload;
mod operations;
mod plugins;
mod preemption;
mod restart;
mod rollouts;
mod sandboxes;
mod scheduling;
mod sglang;
mod steps;
mod tenancy;
mod tls;
mod vllm;
mod whatif;
