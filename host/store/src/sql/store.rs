//! A store handle for any [`Engine`]. Its methods are in the files of the tables that they use.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::doubts::{Doubts, Unsure};
use super::sizes::Sizes;
use super::{Engine, head};
use crate::bodies::BlobBackend;
use crate::leadership::Term;
use crate::{Condition, Store, StoreError, StoreInfo};

/// A store handle.
pub(crate) struct SqlStore<E> {
    pub(super) engine: Arc<E>,
    pub(super) term: Term,
    pub(super) doubts: Doubts,
    pub(super) unsure: Unsure,
    pub(super) blobs: BlobBackend,
    pub(super) journal_sizes: Sizes,
    pub(super) audit_sizes: Sizes,
}

/// Runs a transaction of a handle that may write, and commits it; `$what` names the operation.
macro_rules! writing {
    ($store:ident, $what:literal, |$work:ident| $answer:expr) => {
        $store
            .watched($what, async {
                let mut $work = $store.begin().await?;
                let answer = $answer;
                $work.commit().await?;
                Ok(answer)
            })
            .await
    };
}

pub(super) use writing;

impl<E: Engine> SqlStore<E> {
    /// A store handle that does not hold leadership.
    pub(crate) fn new(engine: E, blobs: BlobBackend) -> Self {
        Self {
            engine: Arc::new(engine),
            term: Term::new(),
            doubts: Doubts::default(),
            unsure: Unsure::default(),
            blobs,
            journal_sizes: Sizes::of_journal(),
            audit_sizes: Sizes::of_audit(),
        }
    }

    /// Runs a write, and records whether it succeeded.
    pub(super) async fn watched<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.engine.conditions().watch(what, work).await
    }

    /// Begins a transaction, unless another handle leads.
    pub(super) async fn begin(&self) -> Result<E::Work, StoreError> {
        let mut work = self.engine.begin().await?;
        let epoch = head::epoch::<E>(&mut work).await?;
        self.term.admit(epoch)?;
        Ok(work)
    }

    /// Begins a transaction for data that daemons without leadership write: allowed if this handle
    /// never led, refused if it led and was superseded.
    pub(super) async fn begin_beside(&self) -> Result<E::Work, StoreError> {
        if self.term.held() > 0 {
            return self.begin().await;
        }
        self.engine.begin().await
    }

    /// Begins a transaction that changes the journal or depends on its end, unless another handle
    /// leads.
    pub(super) async fn begin_at_head(&self) -> Result<(E::Work, head::Head), StoreError> {
        let mut work = self.engine.begin().await?;
        let head = head::hold::<E>(&mut work).await?;
        self.term.admit(head.epoch)?;
        Ok((work, head))
    }
}

#[async_trait]
impl<E: Engine> Store for SqlStore<E> {
    fn condition(&self) -> Condition {
        self.engine.conditions().now()
    }

    fn lost(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.engine.conditions().lost()
    }

    async fn info(&self) -> Result<StoreInfo, StoreError> {
        self.engine.info().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.term.leading().is_some() {
            // If this fails, its missing heartbeats are noticed.
            let _ = self.engine.resign(&self.term).await;
        }
        self.engine.close().await;
        Ok(())
    }
}
