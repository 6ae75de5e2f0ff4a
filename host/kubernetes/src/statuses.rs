//! The statuses of the agent's pods, from one list and one watch for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::watch;

use crate::client::{Failure, asked};
use crate::fate::{Ending, Fate};
use crate::orphans::Orphans;

/// Pods per page of a list, and maximum number of pages.
const PAGE: u32 = 500;
const PAGES_MAX: u32 = 200;
/// Duration of a watch in seconds. The API server accepts less than 5 minutes.
const WATCH_S: u32 = 240;
/// First and longest pause before the list is requested again after a failure.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(15));
/// How long a watch may be silent beyond its duration.
const SILENCE_MAX: Duration = Duration::from_secs(WATCH_S as u64 + 30);

/// Minimum age of a pod that is deleted because it has no sandbox.
const ORPHAN_AGE: Duration = Duration::from_mins(1);

/// The statuses of pods, by name.
#[derive(Debug, Default)]
pub(crate) struct Statuses {
    /// Pods to be deleted.
    pub(crate) orphans: Orphans,
    followed: Mutex<BTreeMap<String, watch::Sender<Fate>>>,
}

impl Statuses {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, watch::Sender<Fate>>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Subscribes to a pod's status.
    pub(crate) fn follow(&self, name: &str) -> watch::Receiver<Fate> {
        let mut followed = self.lock();
        followed.entry(name.to_owned()).or_default().subscribe()
    }

    /// Removes a pod.
    pub(crate) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    /// Records a pod's state. An ended pod stays ended.
    pub(crate) fn tell(&self, name: &str, fate: Fate) {
        if let Some(told) = self.lock().get(name) {
            told.send_if_modified(|now| {
                let is_new = !matches!(now, Fate::Ended(_)) && *now != fate;
                if is_new {
                    *now = fate;
                }
                is_new
            });
        }
    }

    /// Records a pod's state unless one was recorded already, which is newer.
    pub(crate) fn tell_first(&self, name: &str, fate: Fate) {
        if let Some(told) = self.lock().get(name) {
            told.send_if_modified(|now| {
                let is_first = *now == Fate::Unheard;
                if is_first {
                    *now = fate;
                }
                is_first
            });
        }
    }

    fn take(&self, pod: &Pod) {
        if let Some(name) = &pod.metadata.name {
            self.tell(name, Fate::of(pod));
        }
    }

    /// Handles a pod that may be new. Each pod is registered before its creation: an unregistered
    /// one is an orphan.
    /// nobody's.
    fn found(&self, pod: &Pod) {
        let Some(name) = &pod.metadata.name else {
            return;
        };
        if !self.lock().contains_key(name) {
            let made = pod.metadata.creation_timestamp.as_ref();
            let now = Timestamp::now();
            let age = now.duration_since(made.map_or(now, |made| made.0));
            let age = Duration::try_from(age).unwrap_or_default();
            self.orphans.put(name, ORPHAN_AGE.saturating_sub(age));
        }
        self.take(pod);
    }

    /// Pods with a known status that have not ended.
    fn heard(&self) -> BTreeSet<String> {
        let followed = self.lock();
        let heard = followed
            .iter()
            .filter(|(_, told)| told.borrow().is_under_way());
        heard.map(|(name, _)| name.clone()).collect()
    }
}

/// All pods that match a selector, and the version of the list.
pub(crate) async fn list(api: &Api<Pod>, selector: &str) -> Result<(Vec<Pod>, String), Failure> {
    let mut params = ListParams::default().labels(selector).limit(PAGE);
    let mut pods = Vec::new();
    for _ in 0..PAGES_MAX {
        let page = asked(api.list(&params)).await?;
        let version = page.metadata.resource_version.unwrap_or_default();
        pods.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok((pods, version)),
        }
    }
    Err(Failure::Refused(
        "the list of pods has too many pages".to_owned(),
    ))
}

/// Watches all pods that match a selector, forever.
pub(crate) async fn watch(statuses: Arc<Statuses>, api: Api<Pod>, selector: String) {
    let mut pause = AGAIN.0;
    loop {
        let began = Instant::now();
        // The list is a snapshot: events that arrive while its pages are read are newer.
        let mut gone = statuses.heard();
        let failed = match list(&api, &selector).await {
            Ok((pods, version)) => {
                for pod in &pods {
                    statuses.found(pod);
                    gone.remove(pod.metadata.name.as_deref().unwrap_or_default());
                }
                for name in gone {
                    statuses.tell(&name, Fate::Ended(Ending::lost("it no longer exists")));
                }
                follow(&statuses, &api, &selector, version).await
            }
            Err(failure) => failure,
        };
        if began.elapsed() > AGAIN.1 {
            pause = AGAIN.0;
        }
        if !matches!(failed, Failure::Expired) {
            tracing::warn!(error = %failed, "could not watch the pods of sandboxes; trying again");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN.1);
    }
}

/// Follows changes from a version on, one watch after another. Returns why that failed.
async fn follow(
    statuses: &Statuses,
    api: &Api<Pod>,
    selector: &str,
    mut version: String,
) -> Failure {
    let params = WatchParams::default().labels(selector).timeout(WATCH_S);
    loop {
        let began = Instant::now();
        let events = match asked(api.watch(&params, &version)).await {
            Ok(events) => events,
            Err(failure) => return failure,
        };
        let mut events = pin!(events);
        loop {
            let Ok(event) = tokio::time::timeout(SILENCE_MAX, events.next()).await else {
                return Failure::Lost("the watch is silent".to_owned());
            };
            match event {
                None => break,
                Some(Err(error)) => return error.into(),
                Some(Ok(event)) => match taken(statuses, event) {
                    Ok(next) => version = next.unwrap_or(version),
                    Err(failure) => return failure,
                },
            }
        }
        // The next watch begins where this one ended; a pause prevents frequent requests if it
        // ended at once.
        if began.elapsed() < AGAIN.1 {
            tokio::time::sleep(AGAIN.0).await;
        }
    }
}

/// Handles an event. Returns the resulting version.
fn taken(statuses: &Statuses, event: WatchEvent<Pod>) -> Result<Option<String>, Failure> {
    match event {
        WatchEvent::Added(pod) => {
            statuses.found(&pod);
            Ok(pod.metadata.resource_version)
        }
        WatchEvent::Modified(pod) => {
            statuses.take(&pod);
            Ok(pod.metadata.resource_version)
        }
        WatchEvent::Deleted(pod) => {
            statuses.take(&pod);
            let ending = Ending::lost("it was deleted");
            statuses.tell(&pod.metadata.name.unwrap_or_default(), Fate::Ended(ending));
            Ok(pod.metadata.resource_version)
        }
        WatchEvent::Bookmark(mark) => Ok(Some(mark.metadata.resource_version)),
        WatchEvent::Error(status) => Err(kube::Error::Api(status).into()),
    }
}
