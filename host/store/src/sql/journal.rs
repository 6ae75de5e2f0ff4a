//! The journal: what is read and written of it, and what is kept.

use async_trait::async_trait;

use super::doubts::Appended;
use super::{
    DecisionRow, Engine, EventRow, Snapshot, SqlStore, Work as _, append, events, retention,
    snapshots,
};
use crate::condition::JOURNAL;
use crate::{
    Batch, DecisionPage, EventPage, Journal, Placeholder, Pruned, RefusedRow, Retention, SeqPage,
    StoreError,
};

#[async_trait]
impl<E: Engine> Journal for SqlStore<E> {
    async fn append(&self, batch: &Batch) -> Result<u64, StoreError> {
        Ok(append(self, batch, None).await?.last_seq)
    }

    async fn append_what_fits(
        &self,
        batch: &Batch,
        placeholder: Placeholder,
    ) -> Result<Vec<RefusedRow>, StoreError> {
        Ok(append(self, batch, Some(placeholder)).await?.refused)
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        events::last_seq(&*self.engine).await
    }

    async fn events_after(&self, seq: u64, limit: u32) -> Result<Vec<EventRow>, StoreError> {
        let page = EventPage {
            range: SeqPage {
                after: Some(seq),
                limit,
                ..SeqPage::default()
            },
            ..EventPage::default()
        };
        self.events_page(&page).await
    }

    async fn events_page(&self, page: &EventPage) -> Result<Vec<EventRow>, StoreError> {
        self.engine.read_rows(events::page(page)).await
    }

    async fn decisions(&self, page: &DecisionPage) -> Result<Vec<DecisionRow>, StoreError> {
        if !events::has_programs(&*self.engine, page).await? {
            // Otherwise every row would be scanned.
            return Ok(Vec::new());
        }
        self.engine.read_rows(events::decisions(page)).await
    }

    async fn decisions_reach(
        &self,
        page: &DecisionPage,
        rows: u32,
    ) -> Result<Option<u64>, StoreError> {
        events::decisions_reach(&*self.engine, page, rows).await
    }

    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        self.watched("snapshots", async {
            let packed = snapshots::pack(snapshot).await?;
            let (mut work, head) = self.begin_at_head().await?;
            snapshots::save(&mut work, head.last_seq, &packed).await?;
            work.commit().await
        })
        .await
    }

    async fn latest_snapshot(&self) -> Result<Option<Snapshot>, StoreError> {
        snapshots::latest(&*self.engine).await
    }

    async fn prune(&self, retention: &Retention) -> Result<Pruned, StoreError> {
        self.watched("old rows", async {
            // Measured first, because the first time takes long.
            let engine = &*self.engine;
            let beyond = retention::beyond_bytes(engine, &self.journal_sizes, retention).await?;
            let (mut work, head) = self.begin_at_head().await?;
            let pruned = retention::prune(engine, &mut work, &head, retention, beyond).await?;
            work.commit().await?;
            Ok(pruned)
        })
        .await
    }
}

async fn append<E: Engine>(
    store: &SqlStore<E>,
    batch: &Batch,
    placeholder: Option<Placeholder>,
) -> Result<Appended, StoreError> {
    let append = append::append(
        &*store.engine,
        &store.term,
        &store.doubts,
        batch,
        placeholder,
    );
    store.watched(JOURNAL, append).await
}
