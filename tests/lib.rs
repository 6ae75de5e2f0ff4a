//! Fixtures of end-to-end tests: a daemon with engines, a client, hand-written misbehaving engines,
//! and the checks at the end of every test.

pub mod support {
    //! The parts.

    pub mod broker;
    pub mod certificates;
    pub mod client;
    pub mod cluster;
    pub mod command_line;
    pub mod fixture;
    pub mod hostile;
    pub mod llama_server;
    pub mod metrics;
    pub mod pages;
    pub mod policy;
    pub mod process;
    pub mod raw_client;
    pub mod raw_engine;
    pub mod services;
    pub mod terminal;
    pub mod vllm_server;
}
