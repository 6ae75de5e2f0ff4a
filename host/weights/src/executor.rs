//! Makes the calls that the core wants, one after the other for each engine.

use crate::engines::Engine;
use crate::hosts::{Host, Hosts, StoredWeights};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use treadle_core::programs::Worker;
use treadle_core::weights::{Answer, Call, Weights, WeightsCommand, WeightsEvent};
use treadle_http::Upstream;
use treadle_model::{WorkerId, endpoint_of};
use treadle_scheduler::DriverHandle;

/// Makes calls until this is dropped. At most one per engine is under way.
pub async fn make_calls(
    driver: DriverHandle,
    upstream: Upstream,
    hosts: Arc<dyn Hosts>,
    mut calls: UnboundedReceiver<WeightsCommand>,
) {
    let mut engines: HashMap<WorkerId, UnboundedSender<WeightsCommand>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(command) = calls.recv().await {
        let WeightsCommand::Call { worker, .. } = &command;
        let queue = engines.entry(*worker).or_insert_with(|| {
            let (sender, queue) = unbounded_channel();
            let caller = Caller {
                driver: driver.clone(),
                upstream: upstream.clone(),
                host: Host::new(hosts.clone()),
            };
            tasks.spawn(caller.call_one(queue));
            sender
        });
        // Its task runs as long as this does.
        let _ = queue.send(command);
    }
}

/// Makes the calls to one engine.
struct Caller {
    driver: DriverHandle,
    upstream: Upstream,
    host: Host,
}

impl Caller {
    async fn call_one(mut self, mut calls: UnboundedReceiver<WeightsCommand>) {
        while let Some(WeightsCommand::Call {
            job,
            worker,
            number,
            call,
            weights,
        }) = calls.recv().await
        {
            // A daemon that dies here must find on record that the call may have been made.
            if self.driver.recorded().await.is_err() {
                return;
            }
            // It waited for another one, and the engine may be another process by now, or its job
            // released.
            let is_wanted = self.driver.weights(move |state| {
                let pending = state.holding(worker).and_then(|holding| holding.call);
                pending.is_some_and(|pending| pending.number == number)
            });
            match is_wanted.await {
                Ok(true) => {}
                Ok(false) => continue,
                Err(_) => return,
            }
            let Ok(found) = self.driver.worker(worker).await else {
                return;
            };
            let answer = match found {
                Some(found) => self.call(&found, call, &job, &weights).await,
                None => Answer::Refused {
                    cause: "the engine was removed".into(),
                },
            };
            let call = call.as_str();
            match &answer {
                Answer::Refused { cause } | Answer::Failed { cause } => {
                    tracing::warn!(%job, %worker, call, version = weights.version, %cause,
                        "an engine's weights");
                }
                Answer::Done | Answer::Reports { .. } => {
                    tracing::info!(%job, %worker, call, version = weights.version,
                        "an engine's weights");
                }
            }
            let ended = WeightsEvent::WeightsCallEnded {
                job,
                worker,
                number,
                answer,
            };
            self.driver.event(ended.into());
        }
    }

    async fn call(&mut self, found: &Worker, call: Call, job: &str, weights: &Weights) -> Answer {
        let engine = Engine {
            upstream: &self.upstream,
            url: endpoint_of(&found.url).0,
            kind: found.engine,
        };
        let (name, lineage) = (job.to_owned(), weights.lineage);
        let serving = self.driver.weights(move |state| {
            let serving = state.jobs.get(&*name)?.serving.as_ref()?;
            (serving.lineage == lineage).then_some(serving.version)
        });
        let stored = StoredWeights {
            job,
            weights,
            serving: serving.await.ok().flatten(),
        };
        self.host.call(engine, call, stored).await
    }
}
