//! A scripted engine: a stand-in for vLLM or SGLang beneath the real drivers. It has weights in
//! truth, and any of its requests can go wrong in any way.

use super::protocols::{sglang, vllm};
use crate::engines::{EngineRequest, Exchange, NoAnswer};
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use treadle_model::EngineKind;

/// SGLang's words for an update that happened, although it answers an error.
const UPDATED: &str =
    "Weights were updated, but the cache was not flushed because there are pending requests.";

/// Weights, as they are in truth.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Content {
    /// Those of a version; 0 is what the engine comes with.
    Whole(u64),
    /// Half of one version and half of another. No two are the same.
    Torn(u64),
}

/// What goes wrong with one request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// The answer is an error, and nothing was done.
    Refuse,
    /// It was done, and the answer is an error all the same.
    Deny,
    /// Half of it was done, and the answer is an error.
    Tear,
    /// Half of it was done, and the answer says that all was.
    Lie,
    /// It was done, and the connection breaks before the answer.
    Lose,
    /// No answer ever comes. Nothing was done.
    Hang,
    /// No answer ever comes. It was done.
    HangDone,
    /// The process dies before it has done anything.
    DieBefore,
    /// The process dies before the answer.
    DieAfter,
    /// It is done and answered, and after the call another process takes the engine's place.
    Restart,
}

pub(super) const FAULTS: [Fault; 10] = [
    Fault::Refuse,
    Fault::Deny,
    Fault::Tear,
    Fault::Lie,
    Fault::Lose,
    Fault::Hang,
    Fault::HangDone,
    Fault::DieBefore,
    Fault::DieAfter,
    Fault::Restart,
];

/// How an engine is broken for good, in ways that no control plane can notice.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Broken {
    /// Not at all.
    No,
    /// Its caches are never cleared.
    KeepsCaches,
    /// It is never paused.
    NeverPauses,
    /// It names whatever version it was told, loads half of it, and has the checksum of the whole.
    Forges,
}

/// How much of a request is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Extent {
    Nothing,
    Half,
    All,
}

/// A token, as it was sampled.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) weights: Content,
    /// The weights that computed the caches before it.
    pub(super) caches: Content,
    /// The version that the engine names for it.
    pub(super) name: String,
}

/// A request for tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    caches: Option<Content>,
    pub(super) tokens: Vec<Token>,
}

/// How an engine was started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// It computes no checksums while it is paused.
    pub(super) hides_checksums: bool,
    /// It has a storage for caches behind it.
    pub(super) stores: bool,
    /// SGLang of an older version.
    pub(super) old: bool,
}

/// What comes of the requests of a call after it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct After {
    /// How long answers that never came were waited for.
    pub(super) waited: Duration,
    /// Another process takes the engine's place.
    pub(super) restarts: bool,
}

/// An engine's process.
#[derive(Clone, Debug)]
pub(super) struct Engine {
    pub(super) kind: EngineKind,
    pub(super) up: bool,
    pub(super) content: Content,
    pub(super) name: String,
    /// The weights that computed the caches of prompts.
    pub(super) prefixes: Option<Content>,
    pub(super) paused: bool,
    /// The weights that computed the caches in the storage behind it, which outlives the process.
    storage: Option<Content>,
    pub(super) settings: Settings,
    pub(super) broken: Broken,
    pub(super) running: BTreeMap<u64, Running>,
    /// What it was asked, if that is kept.
    pub(super) asked: Option<Vec<String>>,
    /// What goes wrong with the next requests; the last one first.
    pub(super) script: Vec<Option<Fault>>,
    /// What comes of the requests of a call after it.
    pub(super) after: After,
    /// The number of the next mixture.
    pub(super) mixture: u64,
}

impl Engine {
    pub(super) fn new(kind: EngineKind, number: u64) -> Self {
        Self {
            kind,
            up: true,
            content: Content::Whole(0),
            name: "default".to_owned(),
            prefixes: None,
            paused: false,
            storage: None,
            settings: Settings::default(),
            broken: Broken::No,
            running: BTreeMap::new(),
            asked: None,
            script: Vec::new(),
            after: After::default(),
            mixture: number << 32,
        }
    }

    /// The process dies, and its requests with it.
    pub(super) fn die(&mut self) {
        self.up = false;
        self.running.clear();
    }

    /// Another process takes its place, with the weights that the engine comes with.
    pub(super) fn restart(&mut self) {
        self.running.clear();
        (self.up, self.paused) = (true, false);
        (self.content, self.name) = (Content::Whole(0), "default".to_owned());
        self.prefixes = None;
    }

    pub(super) fn pause(&mut self) {
        if self.broken != Broken::NeverPauses {
            self.paused = true;
            self.drop_running();
        }
    }

    /// Requests that run compute their caches again.
    fn drop_running(&mut self) {
        let caches = self.running.values_mut();
        caches.for_each(|running| running.caches = None);
    }

    pub(super) fn clear(&mut self) {
        if self.broken != Broken::KeepsCaches {
            self.prefixes = None;
            self.drop_running();
        }
    }

    pub(super) fn clear_storage(&mut self) {
        self.storage = None;
    }

    /// Loads a version from its folder.
    pub(super) fn load(&mut self, folder: &str, extent: Extent) {
        let number = folder.strip_prefix("/weights/");
        let number = number.and_then(|number| number.parse().ok());
        let whole = Content::Whole(number.expect("a folder of a version"));
        let forges = self.broken == Broken::Forges;
        match extent {
            Extent::Nothing => {}
            Extent::All if !forges => self.content = whole,
            Extent::Half | Extent::All => {
                self.mixture += 1;
                self.content = Content::Torn(self.mixture);
            }
        }
    }

    pub(super) fn checksum(&self) -> String {
        match &self.content {
            Content::Torn(_) if self.broken == Broken::Forges => {
                let number = self.name.trim_start_matches("0.");
                format!("sum of {number}")
            }
            Content::Whole(number) => format!("sum of {number}"),
            Content::Torn(mixture) => format!("mixture {mixture}"),
        }
    }

    /// Each request that runs gets a token.
    pub(super) fn generate(&mut self) {
        if !self.up || self.paused {
            return;
        }
        for running in self.running.values_mut() {
            let prefix = self.prefixes.as_ref().or(self.storage.as_ref());
            let prefix = prefix.unwrap_or(&self.content);
            let caches = running.caches.get_or_insert_with(|| prefix.clone());
            self.prefixes.get_or_insert_with(|| caches.clone());
            if self.settings.stores {
                self.storage.get_or_insert_with(|| caches.clone());
            }
            running.tokens.push(Token {
                weights: self.content.clone(),
                caches: caches.clone(),
                name: self.name.clone(),
            });
        }
    }

    fn answer(&mut self, asked: &str, body: &Value, extent: Extent) -> (u16, Value) {
        match self.kind {
            EngineKind::Sglang => sglang(self, asked, body, extent),
            _ => vllm(self, asked, body, extent),
        }
    }

    fn exchange(&mut self, request: &EngineRequest<'_>) -> Result<(u16, Value), NoAnswer> {
        let lost = || Err(NoAnswer::Lost("the connection broke".to_owned()));
        if !self.up {
            return Err(NoAnswer::NotSent("no connection".to_owned()));
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let asked = format!("{} {}", request.method, request.path);
        if let Some(all) = &mut self.asked {
            let has_body = request.method == Method::POST;
            all.push(if has_body {
                format!("{asked} {body}")
            } else {
                asked.clone()
            });
        }
        let fault = self.script.pop().flatten();
        match fault {
            None => Ok(self.answer(&asked, &body, Extent::All)),
            Some(Fault::Refuse) => Ok(self.answer(&asked, &body, Extent::Nothing)),
            Some(Fault::Tear) => Ok(self.answer(&asked, &body, Extent::Half)),
            Some(Fault::Deny) => {
                self.answer(&asked, &body, Extent::All);
                let is_load = asked == "POST /update_weights_from_disk";
                let words = if is_load { UPDATED } else { "as scripted" };
                Ok((400, json!({"success": false, "message": words})))
            }
            Some(Fault::Lie) => {
                let (_, said) = self.clone().answer(&asked, &body, Extent::All);
                self.answer(&asked, &body, Extent::Half);
                Ok((200, said))
            }
            Some(Fault::Lose) => {
                self.answer(&asked, &body, Extent::All);
                lost()
            }
            Some(Fault::Hang | Fault::HangDone) => {
                if fault == Some(Fault::HangDone) {
                    self.answer(&asked, &body, Extent::All);
                }
                self.after.waited += request.timeout;
                Err(NoAnswer::late(request.timeout))
            }
            Some(Fault::DieBefore | Fault::DieAfter) => {
                if fault == Some(Fault::DieAfter) {
                    self.answer(&asked, &body, Extent::All);
                }
                self.die();
                lost()
            }
            Some(Fault::Restart) => {
                self.after.restarts = true;
                Ok(self.answer(&asked, &body, Extent::All))
            }
        }
    }
}

/// An engine that drivers can call.
pub(super) struct Scripted(Mutex<Engine>);

impl Scripted {
    pub(super) fn new(engine: Engine) -> Self {
        Self(Mutex::new(engine))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Engine> {
        self.0.lock().expect("unpoisoned")
    }
}

#[async_trait]
impl Exchange for Scripted {
    async fn exchange(&self, asked: EngineRequest<'_>) -> Result<(StatusCode, Bytes), NoAnswer> {
        let (status, page) = self.lock().exchange(&asked)?;
        let status = StatusCode::from_u16(status).expect("a status");
        Ok((status, page.to_string().into()))
    }
}
