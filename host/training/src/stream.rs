//! Captured tokens of members that still run, as server-sent events.
//!
//! A stream is a function of the journal: each message has its place there as its id, so that a
//! client that comes back gets what it had not seen, once and in the same order. Nothing is kept for
//! a client that is slow: the journal and the store are read when it takes more.

mod message;
mod offset;
mod programs;
mod reader;

use crate::app::{JobName, TrainingApp, store_failed};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::unfold;
use offset::Offset;
use reader::{Next, Reader};
use serde::Deserialize;
use std::convert::Infallible;
use std::time::Duration;
use tokio::time::Instant;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::{InPath, Query};
use treadle_endpoints::{Endpoint, get};
use treadle_http::{OpenStream, error_response, refuse};
use treadle_store::{EventPage, Order, SeqPage};
use treadle_wire::ErrorCode;
use utoipa::IntoParams;

/// Longest life of a stream. Its client reconnects with the last id and is authenticated again: its
/// token may have been revoked.
const LIFE_MAX: Duration = Duration::from_mins(15);
/// The header with the last id that a reconnecting client received.
const LAST_EVENT_ID: &str = "last-event-id";

pub(crate) fn endpoint() -> Endpoint<TrainingApp> {
    get("/api/v1/jobs/{job}/stream", VIEW, tokens)
        .summary("Captured tokens of members while they run, as server-sent events")
        .details(
            "The stream begins with the members whose tokens are stored, or after the message that \
             `Last-Event-ID` or `after` names, so that a client which reconnects sees every \
             message once. docs/training.md describes the messages. The daemon ends a stream after \
             15 minutes; event stream clients reconnect automatically.",
        )
        .answers_as(
            "text/event-stream",
            "Messages, with a comment every 15 s while there are none.",
        )
        .fails(&[
            ErrorCode::JobUnknown,
            ErrorCode::InvalidField,
            ErrorCode::StreamsFull,
            ErrorCode::StreamGone,
        ])
}

/// Where the stream begins.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct StreamQuery {
    /// The id of the last message that was seen; the header `Last-Event-ID` takes precedence.
    after: Option<String>,
}

async fn tokens(
    State(app): State<TrainingApp>,
    caller: Caller,
    InPath(job): InPath,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    let job = JobName::of(&caller, job);
    let last_seen = headers.get(LAST_EVENT_ID);
    let last_seen = last_seen.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let named = last_seen.or(query.after);
    let named = named.map(|text| offset_of(text.trim())).transpose()?;
    let beginning = beginning(&app, &job, named).await?;
    let tenant = &caller.principal.tenant.tenant;
    let open = app.streams.open(tenant.name(), caller.principal.tenants);
    let open = open.map_err(|error| error_response(&error))?;
    let reader = Reader::new(app, job, beginning.seen, beginning.since);
    let until = Instant::now() + LIFE_MAX;
    let events = unfold((reader, open), move |(mut reader, mut open)| async move {
        let event = event(&mut reader, &mut open, until).await?;
        Some((Ok::<Event, Infallible>(event), (reader, open)))
    });
    Ok(Sse::new(events).into_response())
}

/// The next event; `None` when the stream is over.
async fn event(reader: &mut Reader, open: &mut OpenStream, until: Instant) -> Option<Event> {
    let next = tokio::select! {
        biased;
        () = open.stopped() => return None,
        () = tokio::time::sleep_until(until) => return None,
        next = reader.next() => next,
    };
    let next = next.unwrap_or_else(|error| {
        tracing::warn!(%error, "a stream of tokens ended; its client may reconnect");
        None
    });
    let event = Event::default();
    Some(match next? {
        Next::Message(offset, said) => event
            .id(offset.to_string())
            .event(said.kind)
            .data(said.data),
        Next::Silence(offset) => event.id(offset.to_string()).comment("keep-alive"),
    })
}

fn offset_of(text: &str) -> Result<Offset, Response> {
    Offset::read(text).ok_or_else(|| {
        let text: String = text.chars().take(64).collect();
        let message = format!(
            "`{text}` is no offset of a stream; send the id of the last message, such as 17 or 17.2"
        );
        refuse(ErrorCode::InvalidField, message)
    })
}

/// Where a stream begins.
struct Beginning {
    /// What the client has seen.
    seen: Offset,
    /// The last event of an earlier job of the same name.
    since: u64,
}

/// Finds where a stream begins.
async fn beginning(
    app: &TrainingApp,
    job: &JobName,
    named: Option<Offset>,
) -> Result<Beginning, Response> {
    let failed = |error| store_failed(&error);
    let last = app.store.last_seq().await.map_err(failed)?;
    let begun = app.read_job(job, |job| {
        let served = job.batches.values().flat_map(|batch| batch.groups.values());
        let groups = job.groups.values().chain(served);
        let members = groups.flat_map(|group| group.members.values());
        members.map(|member| member.begun).min()
    });
    let begun = begun.await?;
    let of_job = |kind: Option<&str>, order, since_us| EventPage {
        job: Some(job.inside.to_string()),
        kind: kind.map(str::to_owned),
        range: SeqPage {
            since_us,
            order,
            limit: 1,
            ..SeqPage::default()
        },
        ..EventPage::default()
    };
    let removed = of_job(Some("job_removed"), Order::NewestFirst, None);
    let removed = app.store.events_page(&removed).await.map_err(failed)?;
    let since = removed.first().map_or(0, |row| row.seq);
    if let Some(seen) = named {
        let oldest = reader::oldest(app).await.map_err(failed)?;
        check(seen, since, oldest, last)?;
        return Ok(Beginning { seen, since });
    }
    let first = match begun {
        Some(begun) => {
            let first = of_job(None, Order::OldestFirst, Some(begun.0));
            app.store.events_page(&first).await.map_err(failed)?
        }
        None => Vec::new(),
    };
    let before = first.first().map_or(last, |row| row.seq - 1);
    let seen = Offset::whole(before.max(since));
    Ok(Beginning { seen, since })
}

/// Checks that what comes after an offset is in the journal.
fn check(seen: Offset, since: u64, oldest: u64, last: u64) -> Result<(), Response> {
    let remedy = "connect without an offset, and forget members that are not streamed again";
    if seen.seq > last {
        let message = format!(
            "offset {seen} is after the last event, {last}: it is of another daemon or store; {remedy}"
        );
        return Err(refuse(ErrorCode::InvalidField, message));
    }
    if seen.after() < since {
        let message = format!(
            "offset {seen} is of an earlier job of this name, which was forgotten with event \
             {since}; {remedy}"
        );
        return Err(refuse(ErrorCode::StreamGone, message));
    }
    if seen.after().saturating_add(1) < oldest {
        let message = format!(
            "events before {oldest} were removed from the journal (`store.keep_events`), and offset \
             {seen} is older; {remedy}"
        );
        return Err(refuse(ErrorCode::StreamGone, message));
    }
    Ok(())
}
