//! The journal as it grows: server-sent events.

use super::Endpoint;
use super::events::{EventView, visible};
use super::refuse;
use crate::app::App;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use futures_util::stream::{iter, unfold};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::Query;
use treadle_endpoints::get;
use treadle_http::OpenStream;
use treadle_http::error_response;
use treadle_store::{EventPage, EventRow, Journal, SeqPage, StoreError};
use treadle_wire::ErrorCode;
use utoipa::IntoParams;

/// Events read at once, and so the buffer of a stream with a slow client.
const PAGE_EVENTS: u32 = 256;
/// Shortest pause between two reads of the journal.
const READ_PAUSE: Duration = Duration::from_millis(50);
/// Longest life of a stream. Its client reconnects with the last id and is authenticated again: its
/// token may have been revoked.
const LIFE_MAX: Duration = Duration::from_mins(15);
/// Longest silence of a stream: clients treat a longer one as a stuck daemon.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// The header with the last id that a reconnecting client received.
const LAST_EVENT_ID: &str = "last-event-id";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        get("/api/v1/stream", VIEW, stream)
            .summary("The journal as it grows, as server-sent events")
            .details(
                "Each message is an event as in `GET /api/v1/events`, with its `seq` as id. The \
                 stream begins with the next event, or after the event that `Last-Event-ID` or \
                 `after` names, so that a client which reconnects sees every event once. The \
                 daemon ends a stream after 15 minutes; event stream clients reconnect \
                 automatically.",
            )
            .answers_as(
                "text/event-stream",
                "Events, with a comment every 3 s while there are none.",
            )
            .fails(&[ErrorCode::StreamsFull, ErrorCode::InvalidField]),
    ]
}

/// Filters of the stream.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    /// Only those of this job.
    job: Option<String>,
    /// Only those of this program.
    program: Option<String>,
    /// Only those of this kind.
    kind: Option<String>,
    /// Only those with a greater `seq`; the header `Last-Event-ID` takes precedence.
    after: Option<u64>,
}

async fn stream(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let after = last_seen(&headers)?.or(query.after);
    let page = visible(&caller, query.job, query.program, query.kind)?;
    let tenant = caller.principal.tenant.tenant.clone();
    let open = app.streams.open(tenant.name(), caller.principal.tenants);
    let open = open.map_err(|error| error_response(&error))?;
    let after = if let Some(after) = after {
        after
    } else {
        let last = app.store.last_seq().await;
        last.map_err(|error| super::store_failed(&error))?
    };
    let reader = Reader {
        store: app.store.clone(),
        committed: app.committed.clone(),
        page,
        after,
    };
    let until = Instant::now() + LIFE_MAX;
    let pages = unfold((reader, open), move |(mut reader, mut open)| async move {
        let rows = next(&mut reader, &mut open, until).await?;
        Some((iter(rows), (reader, open)))
    });
    let events = pages.flatten().map(move |row| {
        let event = Event::default().id(row.seq.to_string());
        event.json_data(EventView::of(&tenant, row))
    });
    let signs_of_life = KeepAlive::new().interval(SILENCE_MAX);
    let events = Sse::new(events).keep_alive(signs_of_life);
    Ok(events.into_response())
}

/// The id of the last event that the client received.
fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Response> {
    let Some(value) = headers.get(LAST_EVENT_ID) else {
        return Ok(None);
    };
    let seq = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse().ok());
    seq.map(Some).ok_or_else(|| {
        let message = "`Last-Event-ID` is not a number; send the id of the last event received";
        refuse(ErrorCode::InvalidField, message)
    })
}

/// The next events of a stream; `None` when it is over.
async fn next(reader: &mut Reader, open: &mut OpenStream, until: Instant) -> Option<Vec<EventRow>> {
    tokio::select! {
        rows = reader.next() => rows,
        () = open.stopped() => None,
        () = tokio::time::sleep_until(until) => None,
    }
}

/// Follows the journal, page by page.
struct Reader {
    store: Arc<dyn Journal>,
    /// Changes with each commit.
    committed: watch::Receiver<u64>,
    /// Filters of the events.
    page: EventPage,
    /// The last event that was read or skipped.
    after: u64,
}

impl Reader {
    /// The next events, at least one; `None` at the end or when the store fails.
    async fn next(&mut self) -> Option<Vec<EventRow>> {
        loop {
            self.committed.mark_unchanged();
            match self.read().await {
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => return Some(rows),
                Err(error) => {
                    tracing::warn!(%error, "an event stream ended; its client may reconnect");
                    return None;
                }
            }
            self.committed.changed().await.ok()?;
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
    use treadle_store::{Batch, Location};

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

    #[tokio::test]
    async fn a_client_that_comes_back_misses_nothing_and_sees_nothing_twice() {
        let store = treadle_store::open(&Location::Memory)
            .await
            .expect("it opens");
        let (committed, seen) = watch::channel(0);
        let reader = |job: Option<&str>, after| Reader {
            store: store.clone(),
            committed: seen.clone(),
            page: EventPage {
                job: job.map(str::to_owned),
                ..EventPage::default()
            },
            after,
        };
        let (mut all, mut of_job) = (Vec::new(), Vec::new());
        let (mut last, mut last_of_job) = (0, 0);
        for round in 1..=6_u64 {
            add(&*store, &committed, (round - 1) * 200 + 1..=round * 200).await;
            // Breaks off after some events, somewhere within a page.
            let breaks_after = (round * 37) as usize;
            let mut whole = reader(None, last);
            let rows = whole.next().await.expect("there are some");
            all.extend(rows.iter().take(breaks_after).map(|row| row.seq));
            last = all.last().copied().unwrap_or(0);
            let rows = reader(Some("a"), last_of_job)
                .next()
                .await
                .expect("there are some");
            of_job.extend(rows.iter().take(breaks_after).map(|row| row.seq));
            last_of_job = of_job.last().copied().unwrap_or(0);
        }
        let mut rest = reader(None, last);
        while all.len() < 1_200 {
            all.extend(rest.next().await.expect("more").iter().map(|row| row.seq));
        }
        assert_eq!(all, (1..=1_200).collect::<Vec<_>>());
        let mut rest = reader(Some("a"), last_of_job);
        while of_job.len() < 400 {
            of_job.extend(rest.next().await.expect("more").iter().map(|row| row.seq));
        }
        assert_eq!(of_job, (1..=400).map(|n| n * 3).collect::<Vec<_>>());
        // What comes while the stream waits.
        let adding = add(&*store, &committed, 1_201..=1_203);
        let (more, ()) = tokio::join!(rest.next(), adding);
        let more: Vec<u64> = more.expect("one").iter().map(|row| row.seq).collect();
        assert_eq!(more, [1_203]);
        drop(committed);
        assert!(rest.next().await.is_none());
    }
}
