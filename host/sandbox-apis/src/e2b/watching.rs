//! envd's folder watches: as a stream, or by polling.

use super::connect::{self, Code, Fault, Sender};
use super::filesystem::{FilesystemRequest, Place, user_of};
use super::routing::Reached;
use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use treadle_runs::sandboxes::{Change, Watch};

/// How often a folder is checked for a stream.
const LOOK: Duration = Duration::from_millis(200);

async fn begin(place: &Place, request: &FilesystemRequest) -> Result<Watch, Fault> {
    if request.include_entry == Some(true) {
        let message =
            "treadle does not support `includeEntry`; leave it out, and request the entries";
        return Err(Fault::new(Code::Unimplemented, message));
    }
    let path = place.path(request.path.as_deref())?;
    place.is_folder(&path).await?;
    let is_deep = request.recursive == Some(true);
    let watch = Watch::begin(&place.reached.sandbox, &path, is_deep).await;
    watch.map_err(|error| Fault::from(&error))
}

fn event(name: &str, change: Change) -> Value {
    let kind = match change {
        Change::Made => "EVENT_TYPE_CREATE",
        Change::Written => "EVENT_TYPE_WRITE",
        Change::Gone => "EVENT_TYPE_REMOVE",
        Change::Permitted => "EVENT_TYPE_CHMOD",
    };
    json!({"name": name, "type": kind})
}

/// A watch that ends with its stream. It counts towards the same limit as polled watches.
struct Open<'p> {
    place: &'p Place,
    name: String,
}

impl<'p> Open<'p> {
    fn of(place: &'p Place, watch: Watch) -> Result<Self, Fault> {
        let name = place.reached.host.watches.keep(watch);
        let name = name.map_err(|error| Fault::from(&error))?;
        Ok(Self { place, name })
    }

    async fn look(&self) -> Result<Vec<(String, Change)>, Fault> {
        let Reached { host, sandbox, .. } = &self.place.reached;
        let watch = host.watches.get(sandbox.id(), &self.name);
        let watch = watch.ok_or_else(Fault::gone)?;
        let mut watch = watch.lock().await;
        if watch.is_over() {
            return Err(Fault::gone());
        }
        watch.look().await.map_err(|error| Fault::from(&error))
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let Reached { host, sandbox, .. } = &self.place.reached;
        host.watches.remove(sandbox.id(), &self.name);
    }
}

/// Streams changes of a folder until its client or the sandbox is gone.
pub(super) async fn stream(
    reached: Reached,
    headers: HeaderMap,
    bytes: Bytes,
    sender: Sender,
) -> Result<(), Fault> {
    let request: FilesystemRequest = connect::only(&bytes)?;
    let place = Place::of(reached, &user_of(&headers)).await?;
    let until = connect::timeout(&headers).map(|max| Instant::now() + max);
    let keepalive = connect::keepalive(&headers);
    let watch = begin(&place, &request).await?;
    let open = Open::of(&place, watch)?;
    sender.send(&json!({"start": {}})).await;
    let mut sent = Instant::now();
    loop {
        sleep(LOOK).await;
        let changed = open.look().await?;
        if !changed.is_empty() {
            sent = Instant::now();
        }
        for (name, change) in changed {
            let event = event(&name, change);
            sender.send(&json!({"filesystem": event})).await;
        }
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err(connect::late());
        }
        if sent.elapsed() >= keepalive {
            sender.send(&json!({"keepalive": {}})).await;
            sent = Instant::now();
        }
    }
}

pub(super) async fn create(place: &Place, request: FilesystemRequest) -> Result<Value, Fault> {
    let watch = begin(place, &request).await?;
    let name = place.reached.host.watches.keep(watch);
    Ok(json!({"watcherId": name.map_err(|error| Fault::from(&error))?}))
}

pub(super) async fn events(place: &Place, request: FilesystemRequest) -> Result<Value, Fault> {
    let name = request.watcher_id.unwrap_or_default();
    let Reached { host, sandbox, .. } = &place.reached;
    let watch = host
        .watches
        .get(sandbox.id(), &name)
        .ok_or_else(|| unknown(&name))?;
    let changed = watch.lock().await.look().await;
    let changed = changed.map_err(|error| Fault::from(&error))?.into_iter();
    Ok(json!({"events": changed.map(|(name, change)| event(&name, change)).collect::<Vec<_>>()}))
}

pub(super) fn remove(place: &Place, request: &FilesystemRequest) -> Result<Value, Fault> {
    let name = request.watcher_id.as_deref().unwrap_or_default();
    let Reached { host, sandbox, .. } = &place.reached;
    if host.watches.remove(sandbox.id(), name) {
        return Ok(json!({}));
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> Fault {
    Fault::new(Code::NotFound, format!("no watch {name}"))
}
