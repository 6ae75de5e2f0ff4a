//! The interface of the store: a trait for each kind of data, and [`Store`], which has all of them.
//!
//! A function takes the trait of the data that it uses: `&dyn Journal`, not `&dyn Store`.

mod access;
mod actions;
mod bindings;
mod bodies;
mod cluster;
mod journal;
mod messages;
mod metrics;
mod plugins;
mod programs;
mod training;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

pub use access::{Access, Audit};
pub use actions::Actions;
pub use bindings::Bindings;
pub use bodies::Bodies;
pub use cluster::Cluster;
pub use journal::Journal;
pub use messages::{Commands, Sinks};
pub use metrics::MetricHistory;
pub use plugins::Plugins;
pub use programs::Programs;
pub use training::Training;

use crate::{Condition, StoreError, StoreInfo};

/// The journal, its projections, and everything else that is durable.
///
/// All sequence numbers start at 1 and have no gaps; 0 means "nothing yet".
///
/// If several daemons share a store, one leads ([`Cluster::campaign`]). Writes of any other handle
/// fail with [`StoreError::Fenced`], except those of [`Cluster::gateway_id`] and, from handles that
/// never led, of [`Bodies::put_bodies`], [`Access::touch_tokens`] and [`Audit::add_audit`]. Until a
/// store has had a leader, all handles may write.
#[async_trait]
pub trait Store:
    Access
    + Actions
    + Audit
    + Bindings
    + Bodies
    + Cluster
    + Commands
    + Journal
    + MetricHistory
    + Plugins
    + Programs
    + Sinks
    + Training
{
    /// The health of the store as seen by this handle.
    fn condition(&self) -> Condition;

    /// Notifies with the reason when the store is lost: its database file was deleted, replaced or
    /// truncated. Nothing is read or written from then on.
    fn lost(&self) -> watch::Receiver<Option<Arc<str>>>;

    /// Kind, version, location and size of the store.
    async fn info(&self) -> Result<StoreInfo, StoreError>;

    /// Resigns, writes what is pending and closes; later calls fail. Dropping loses nothing either.
    async fn close(&self) -> Result<(), StoreError>;
}
