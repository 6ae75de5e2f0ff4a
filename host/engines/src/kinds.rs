//! The kind of the log-probabilities that each engine reports. Engines are asked once they answer,
//! as soon as tokens are captured at all; steps don't wait for it.

use super::adapter::fetch;
use http::{Method, StatusCode};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_wire::LogprobKind;

/// The first pause before an engine that does not answer is asked again, and the last.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Kinds of log-probabilities, by worker.
pub struct LogprobKinds {
    upstream: Upstream,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Whether tokens are captured.
    is_wanted: bool,
    /// Processes found so far: a worker may be another one later.
    found: u64,
    engines: HashMap<WorkerId, Engine>,
}

/// An engine that answers.
struct Engine {
    process: u64,
    url: Box<str>,
    api: EngineKind,
    is_asked: bool,
    /// `None` until it has answered.
    kind: Option<LogprobKind>,
}

impl LogprobKinds {
    /// Asks none yet.
    pub fn new(upstream: Upstream) -> Arc<Self> {
        let state = Mutex::default();
        Arc::new(Self { upstream, state })
    }

    /// The kind at a worker; `None` until it has answered.
    pub fn of(&self, worker: WorkerId) -> Option<LogprobKind> {
        self.state().engines.get(&worker)?.kind
    }

    /// Asks all engines from now on: tokens are captured.
    pub fn want(self: &Arc<Self>) {
        let mut state = self.state();
        if !std::mem::replace(&mut state.is_wanted, true) {
            for (worker, engine) in &mut state.engines {
                self.ask(*worker, engine);
            }
        }
    }

    /// An engine began to answer. It may be another process than before.
    pub(super) fn found(self: &Arc<Self>, worker: WorkerId, url: &str, engine: EngineKind) {
        let mut state = self.state();
        state.found += 1;
        let mut engine = Engine {
            process: state.found,
            url: url.into(),
            api: engine,
            is_asked: false,
            kind: None,
        };
        if state.is_wanted {
            self.ask(worker, &mut engine);
        }
        state.engines.insert(worker, engine);
    }

    /// Forgets a worker that was removed.
    pub(super) fn forget(&self, worker: WorkerId) {
        self.state().engines.remove(&worker);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(self: &Arc<Self>, worker: WorkerId, engine: &mut Engine) {
        if std::mem::replace(&mut engine.is_asked, true) {
            return;
        }
        let (kinds, process) = (self.clone(), engine.process);
        let (url, engine) = (engine.url.clone(), engine.api);
        tokio::spawn(async move {
            let mut pause = PAUSE;
            let kind = loop {
                match kind_of(&kinds.upstream, &url, engine).await {
                    Some(kind) => break kind,
                    None if pause > PAUSE_MAX => break LogprobKind::Unknown,
                    None => tokio::time::sleep(pause).await,
                }
                pause *= 2;
            };
            let mut state = kinds.state();
            if let Some(engine) = state.engines.get_mut(&worker)
                && engine.process == process
            {
                engine.kind = Some(kind);
            }
        });
    }
}

/// `None` if it does not answer now.
async fn kind_of(upstream: &Upstream, url: &str, engine: EngineKind) -> Option<LogprobKind> {
    let Some((path, [plain, colder, only])) = LogprobKind::questions(engine) else {
        return Some(LogprobKind::Unknown);
    };
    let ask = |request| fetch(upstream, Method::POST, url, path, Some(request));
    let answers = tokio::join!(ask(&plain), ask(&colder), ask(&only));
    let mut read = Vec::new();
    for answer in <[_; 3]>::from(answers) {
        let (status, answer) = answer.ok()?;
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return None;
        }
        read.push(answer);
    }
    Some(LogprobKind::of_answers(&read))
}
