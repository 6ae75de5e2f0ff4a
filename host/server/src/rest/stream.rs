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
use std::time::Duration;
use tokio::time::Instant;
use treadle_auth::Caller;
use treadle_auth::permissions::VIEW;
use treadle_endpoints::arguments::Query;
use treadle_endpoints::get;
use treadle_http::OpenStream;
use treadle_http::error_response;
use treadle_store::{EventRow, Follower};
use treadle_wire::ErrorCode;
use utoipa::IntoParams;

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
    let follower = Follower::new(app.store.clone(), app.committed.clone(), page, after);
    let until = Instant::now() + LIFE_MAX;
    let pages = unfold(
        (follower, open),
        move |(mut follower, mut open)| async move {
            let rows = next(&mut follower, &mut open, until).await?;
            Some((iter(rows), (follower, open)))
        },
    );
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
async fn next(
    follower: &mut Follower,
    open: &mut OpenStream,
    until: Instant,
) -> Option<Vec<EventRow>> {
    tokio::select! {
        rows = follower.next() => rows.unwrap_or_else(|error| {
            tracing::warn!(%error, "an event stream ended; its client may reconnect");
            None
        }),
        () = open.stopped() => None,
        () = tokio::time::sleep_until(until) => None,
    }
}
