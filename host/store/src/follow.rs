//! Following the journal as it grows.

use crate::{EventPage, EventRow, Journal, SeqPage, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Events read at once, and so the buffer of a stream with a slow client.
const PAGE_EVENTS: u32 = 256;
/// Shortest pause between two reads of the journal.
const READ_PAUSE: Duration = Duration::from_millis(50);

/// Follows the journal, page by page.
pub struct Follower {
    store: Arc<dyn Journal>,
    /// Changes with each commit.
    committed: watch::Receiver<u64>,
    /// Filters of the events.
    page: EventPage,
    /// The last event that was read or skipped.
    after: u64,
}

impl Follower {
    /// Reads the events of a page's filters after this number; its range does not matter.
    pub fn new(
        store: Arc<dyn Journal>,
        committed: watch::Receiver<u64>,
        page: EventPage,
        after: u64,
    ) -> Self {
        Self {
            store,
            committed,
            page,
            after,
        }
    }

    /// The last event that was read or skipped: what comes next has a greater number.
    pub fn after(&self) -> u64 {
        self.after
    }

    /// The next events, at least one; `None` once nothing more is written.
    ///
    /// # Errors
    /// The store failed.
    pub async fn next(&mut self) -> Result<Option<Vec<EventRow>>, StoreError> {
        loop {
            self.committed.mark_unchanged();
            let rows = self.read().await?;
            if !rows.is_empty() {
                return Ok(Some(rows));
            }
            if self.committed.changed().await.is_err() {
                return Ok(None);
            }
            // Commits come every few milliseconds; they are read together.
            tokio::time::sleep(READ_PAUSE).await;
        }
    }

    async fn read(&mut self) -> Result<Vec<EventRow>, StoreError> {
        // Events that are committed while the page is read belong to the next one.
        let last = self.store.last_seq().await?;
        self.page.range = SeqPage {
            after: Some(self.after),
            before: Some(last.saturating_add(1)),
            limit: PAGE_EVENTS,
            ..SeqPage::default()
        };
        let rows = self.store.events_page(&self.page).await?;
        self.after = match rows.last() {
            Some(row) if rows.len() == PAGE_EVENTS as usize => row.seq,
            _ => self.after.max(last),
        };
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, Location, open};

    fn event(seq: u64) -> EventRow {
        EventRow {
            seq,
            at_us: seq,
            kind: "step_arrived".to_owned(),
            job: if seq.is_multiple_of(3) { "a" } else { "b" }.to_owned(),
            program: Some("p".to_owned()),
            body: "{}".to_owned(),
        }
    }

    async fn add(
        store: &dyn Journal,
        committed: &watch::Sender<u64>,
        events: std::ops::RangeInclusive<u64>,
    ) {
        let last = *events.end();
        let batch = Batch {
            events: events.map(event).collect(),
            ..Batch::default()
        };
        store.append(&batch).await.expect("it is stored");
        committed.send_replace(last);
    }

    async fn next(follower: &mut Follower) -> Option<Vec<EventRow>> {
        follower.next().await.expect("the store works")
    }

    #[tokio::test]
    async fn a_client_that_comes_back_misses_nothing_and_sees_nothing_twice() {
        let store = open(&Location::Memory).await.expect("it opens");
        let (committed, seen) = watch::channel(0);
        let reader = |job: Option<&str>, after| {
            let page = EventPage {
                job: job.map(str::to_owned),
                ..EventPage::default()
            };
            Follower::new(store.clone(), seen.clone(), page, after)
        };
        let (mut all, mut of_job) = (Vec::new(), Vec::new());
        let (mut last, mut last_of_job) = (0, 0);
        for round in 1..=6_u64 {
            add(&*store, &committed, (round - 1) * 200 + 1..=round * 200).await;
            // Breaks off after some events, somewhere within a page.
            let breaks_after = (round * 37) as usize;
            let mut whole = reader(None, last);
            let rows = next(&mut whole).await.expect("there are some");
            all.extend(rows.iter().take(breaks_after).map(|row| row.seq));
            last = all.last().copied().unwrap_or(0);
            let rows = next(&mut reader(Some("a"), last_of_job)).await;
            let rows = rows.expect("there are some");
            of_job.extend(rows.iter().take(breaks_after).map(|row| row.seq));
            last_of_job = of_job.last().copied().unwrap_or(0);
        }
        let mut rest = reader(None, last);
        while all.len() < 1_200 {
            all.extend(
                next(&mut rest)
                    .await
                    .expect("more")
                    .iter()
                    .map(|row| row.seq),
            );
        }
        assert_eq!(all, (1..=1_200).collect::<Vec<_>>());
        let mut rest = reader(Some("a"), last_of_job);
        while of_job.len() < 400 {
            of_job.extend(
                next(&mut rest)
                    .await
                    .expect("more")
                    .iter()
                    .map(|row| row.seq),
            );
        }
        assert_eq!(of_job, (1..=400).map(|n| n * 3).collect::<Vec<_>>());
        // What comes while the stream waits.
        let adding = add(&*store, &committed, 1_201..=1_203);
        let (more, ()) = tokio::join!(next(&mut rest), adding);
        let more: Vec<u64> = more.expect("one").iter().map(|row| row.seq).collect();
        assert_eq!(more, [1_203]);
        drop(committed);
        assert!(next(&mut rest).await.is_none());
    }
}
