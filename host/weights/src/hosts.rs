//! The machines that engines run on.

use crate::engines::{self, Engine};
use async_trait::async_trait;
use std::sync::Arc;
use treadle_core::weights::{Answer, Call, Weights};

/// A version that an engine is about to load.
#[derive(Clone, Copy, Debug)]
pub struct StoredWeights<'w> {
    /// The job, as the core knows it.
    pub job: &'w str,
    /// The version.
    pub weights: &'w Weights,
    /// The version of the same lineage that is in service.
    pub serving: Option<u64>,
}

/// Brings versions to the machines of engines.
#[async_trait]
pub trait Hosts: Send + Sync {
    /// Has the machine of an engine get a version from the store, if it is one of the store, and
    /// prove all of it. The version in service stays there.
    ///
    /// # Errors
    /// Why it is not there; the engine is not called then.
    async fn pull(&self, engine: &str, stored: StoredWeights<'_>) -> Result<(), String>;
}

/// The machine of one engine.
pub(crate) struct Host {
    hosts: Arc<dyn Hosts>,
    /// The version that it has.
    ready: Option<Weights>,
}

impl Host {
    pub(crate) fn new(hosts: Arc<dyn Hosts>) -> Self {
        Self { hosts, ready: None }
    }

    /// Makes a call to the engine. Its machine has the version before the engine loads it.
    pub(crate) async fn call(
        &mut self,
        engine: Engine<'_>,
        call: Call,
        stored: StoredWeights<'_>,
    ) -> Answer {
        match call {
            // While it serves.
            Call::Prepare => match engines::call(engine, call, stored.weights).await {
                Answer::Done => self.pull(engine.url, stored).await,
                other => other,
            },
            // One that was left behind loads without having been prepared.
            Call::Apply if self.ready.as_ref() != Some(stored.weights) => {
                match self.pull(engine.url, stored).await {
                    Answer::Done => engines::call(engine, call, stored.weights).await,
                    other => other,
                }
            }
            _ => engines::call(engine, call, stored.weights).await,
        }
    }

    /// Has the machine get a version. If it can't, nothing has changed at the engine.
    async fn pull(&mut self, url: &str, stored: StoredWeights<'_>) -> Answer {
        self.ready = None;
        match self.hosts.pull(url, stored).await {
            Ok(()) => {
                self.ready = Some(stored.weights.clone());
                Answer::Done
            }
            Err(cause) => Answer::Refused {
                cause: cause.into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::tests::{Server, weights};
    use serde_json::json;
    use std::sync::Mutex;
    use std::time::Duration;
    use treadle_http::Upstream;
    use treadle_model::EngineKind;

    /// Answers with what it is given, and notes what it was asked.
    #[derive(Default)]
    struct Scripted {
        answers: Mutex<Vec<Result<(), String>>>,
        asked: Mutex<Vec<(String, u64, Option<u64>)>>,
    }

    #[async_trait]
    impl Hosts for Scripted {
        async fn pull(&self, engine: &str, stored: StoredWeights<'_>) -> Result<(), String> {
            let asked = (engine.to_owned(), stored.weights.version, stored.serving);
            self.asked.lock().expect("unpoisoned").push(asked);
            self.answers.lock().expect("unpoisoned").remove(0)
        }
    }

    #[tokio::test]
    async fn an_engine_is_not_called_before_its_machine_has_the_version() {
        let server = Server::start(vec![
            ("/weight_info", 200, json!({})),
            ("/weight_info", 200, json!({})),
            ("/update_weight_version", 200, json!({"success": true})),
            ("/collective_rpc", 200, json!({"results": [null]})),
            ("/update_weight_version", 200, json!({"success": true})),
        ])
        .await;
        let upstream = Upstream::new(Duration::from_secs(1));
        let engine = Engine {
            upstream: &upstream,
            url: server.url(),
            kind: EngineKind::Vllm,
        };
        let hosts = Arc::new(Scripted::default());
        let fails = || Err("its disk is full".to_owned());
        *hosts.answers.lock().expect("unpoisoned") = vec![fails(), fails(), Ok(())];
        let (weights, mut host) = (weights(), Host::new(hosts.clone()));
        let stored = StoredWeights {
            job: "math",
            weights: &weights,
            serving: Some(2),
        };
        let refused = Answer::Refused {
            cause: "its disk is full".into(),
        };
        assert_eq!(host.call(engine, Call::Prepare, stored).await, refused);
        assert_eq!(host.call(engine, Call::Apply, stored).await, refused);
        assert_eq!(server.seen().len(), 1, "it was only asked whether it can");
        assert_eq!(host.call(engine, Call::Prepare, stored).await, Answer::Done);
        assert_eq!(host.call(engine, Call::Apply, stored).await, Answer::Done);
        assert_eq!(server.seen()[3].1["kwargs"]["weights_path"], "/weights/3");
        let asked = hosts.asked.lock().expect("unpoisoned");
        assert_eq!(*asked, vec![(server.url().to_owned(), 3, Some(2)); 3]);
    }
}
