//! Sandboxes as pods of a Kubernetes cluster: a pod for each, behind the traits of `treadle-sandbox`.
//!
//! ```text
//! let cluster = Kubernetes::open(config).await?;                  // a client, and whose pods are ours
//! let sandboxes = Sandboxes::start_on(Arc::new(cluster), sandboxes).await?;
//! ```
//!
//! Commands and files go only through the API server, by the `exec` subresource over WebSockets: a
//! shell in the pod reads scripts from its standard input ([`script`]). So images need no part of
//! treadle, and commands do not appear in the API server's audit log.
//!
//! The tests of this crate run against a stand-in of the API server (`tests/kubernetes/stand_in`),
//! which implements the public API reference and runs real shells on this machine. They have not
//! been run on a cluster.

mod client;
mod cluster;
mod commands;
mod config;
mod connection;
mod copies;
mod environment;
mod exec;
mod fate;
mod files;
mod manifest;
mod orphans;
mod place;
mod platform;
mod ready_pod;
mod script;
mod statuses;

pub use config::KubernetesConfig;
pub use platform::Kubernetes;
