//! Whether an engine is still the process that it was. One that restarts between two probes answers
//! as before, with the weights that it comes with: the version that it names shows that.

use super::adapter::{check_health, fetch};
use http::Method;
use serde_json::Value;
use treadle_core::weights::{Phase, State};
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_scheduler::DriverHandle;

/// The engine that is probed.
#[derive(Clone, Copy)]
pub(super) struct Probed<'p> {
    pub(super) worker: WorkerId,
    pub(super) url: &'p str,
    pub(super) kind: EngineKind,
}

/// Probes an engine; an error says why it does not answer, or that it is another process.
pub(super) async fn probe(
    driver: &DriverHandle,
    upstream: &Upstream,
    engine: Probed<'_>,
) -> Result<(), String> {
    check_health(upstream, engine.url, engine.kind).await?;
    let worker = engine.worker;
    let held = driver.weights(move |state| held_by(state, worker)).await;
    match held.ok().flatten() {
        Some(held) => check_name(upstream, engine, &held).await,
        None => Ok(()),
    }
}

/// The name of the version that an engine serves, if treadle has a part in what it loads.
fn held_by(state: &State, worker: WorkerId) -> Option<Box<str>> {
    let holding = state.holding(worker)?;
    let serves = holding.phase == Phase::Held && holding.call.is_none();
    let held = holding.held.as_ref().filter(|_| serves)?;
    Some(held.name.clone()).filter(|name| !name.is_empty())
}

async fn check_name(upstream: &Upstream, engine: Probed<'_>, held: &str) -> Result<(), String> {
    let path = match engine.kind {
        EngineKind::Vllm => "/weight_info",
        EngineKind::Sglang => "/model_info",
        // The name of llama.cpp's model is watched anyway.
        EngineKind::Llamacpp | EngineKind::Openai => return Ok(()),
    };
    let page = fetch(upstream, Method::GET, engine.url, path, None).await;
    let page = page.ok().filter(|(status, _)| status.is_success());
    let page: Value = page.map_or(Value::Null, |(_, body)| {
        serde_json::from_slice(&body).unwrap_or_default()
    });
    match page["weight_version"].as_str() {
        Some(name) if name != held => Err(format!(
            "it names version `{name}` instead of `{held}`: it may be another process"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn an_engine_that_names_other_weights_is_another_process() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let engine = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1_024]).await;
                let page = r#"{"weight_version":"0.3"}"#;
                let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
                let answer = format!("{head}content-length: {}\r\n\r\n{page}", page.len());
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        let upstream = Upstream::new(Duration::from_secs(5));
        for kind in [EngineKind::Vllm, EngineKind::Sglang] {
            let (worker, url) = (WorkerId(0), &*url);
            let probed = Probed { worker, url, kind };
            assert_eq!(check_name(&upstream, probed, "0.3").await, Ok(()));
            let other = check_name(&upstream, probed, "0.4").await.unwrap_err();
            assert!(other.contains("`0.3` instead of `0.4`"), "{other}");
        }
        engine.abort();
    }
}
