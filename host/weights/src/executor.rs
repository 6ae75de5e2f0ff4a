//! Makes the calls that the core wants, one after the other for each engine.

use crate::engines::{Engine, call};
use std::collections::HashMap;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use treadle_core::weights::{Answer, WeightsCommand, WeightsEvent};
use treadle_http::Upstream;
use treadle_model::{WorkerId, endpoint_of};
use treadle_scheduler::DriverHandle;

/// Makes calls until this is dropped. At most one per engine is under way.
pub async fn make_calls(
    driver: DriverHandle,
    upstream: Upstream,
    mut calls: UnboundedReceiver<WeightsCommand>,
) {
    let mut engines: HashMap<WorkerId, UnboundedSender<WeightsCommand>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(command) = calls.recv().await {
        let WeightsCommand::Call { worker, .. } = &command;
        let queue = engines.entry(*worker).or_insert_with(|| {
            let (sender, queue) = unbounded_channel();
            tasks.spawn(call_one(driver.clone(), upstream.clone(), queue));
            sender
        });
        // Its task runs as long as this does.
        let _ = queue.send(command);
    }
}

async fn call_one(
    driver: DriverHandle,
    upstream: Upstream,
    mut calls: UnboundedReceiver<WeightsCommand>,
) {
    while let Some(WeightsCommand::Call {
        job,
        worker,
        number,
        call: kind,
        weights,
    }) = calls.recv().await
    {
        // A daemon that dies here must find on record that the call may have been made.
        if driver.recorded().await.is_err() {
            return;
        }
        let Ok(found) = driver.worker(worker).await else {
            return;
        };
        let answer = match found {
            Some(found) => {
                let engine = Engine {
                    upstream: &upstream,
                    url: endpoint_of(&found.url).0,
                    kind: found.engine,
                };
                call(engine, kind, &weights).await
            }
            None => Answer::Refused {
                cause: "the engine was removed".into(),
            },
        };
        let kind = kind.as_str();
        match &answer {
            Answer::Refused { cause } | Answer::Failed { cause } => {
                tracing::warn!(%job, %worker, call = kind, version = weights.version, %cause,
                    "an engine's weights");
            }
            Answer::Done | Answer::Reports { .. } => {
                tracing::info!(%job, %worker, call = kind, version = weights.version,
                    "an engine's weights");
            }
        }
        let ended = WeightsEvent::WeightsCallEnded {
            job,
            worker,
            number,
            answer,
        };
        driver.event(ended.into());
    }
}
