//! Detects engines that are healthy but accept no steps. vLLM can be put to sleep, and the
//! generation of vLLM and SGLang can be paused: their health pages do not show that, and a step
//! would hang or fail.

use super::adapter::fetch;
use http::{Method, StatusCode};
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_core::programs::Rest;
use treadle_http::Upstream;
use treadle_model::{EngineKind, WorkerId};
use treadle_wire::engines::vllm;

/// The status pages of one engine. A missing page is requested only once: vLLM has them only in its
/// development mode.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RestPages {
    has_no: [bool; 3],
    last: Option<Rest>,
}

/// Tells the scheduler why an engine accepts no steps.
pub(super) fn rest_read(worker: WorkerId, rest: Option<Rest>) -> Event {
    Event::Program(ProgramEvent::WorkerRestRead { worker, rest })
}

/// One of the pages.
#[derive(Clone, Copy)]
enum Page {
    Sleeping,
    Paused,
    Ready,
}

impl Page {
    const fn path(self) -> &'static str {
        match self {
            Self::Sleeping => "/is_sleeping",
            Self::Paused => "/is_paused",
            Self::Ready => "/ready",
        }
    }

    /// The state that a response shows.
    fn read(self, status: StatusCode, body: &[u8]) -> Option<Rest> {
        let is_ok = status.is_success();
        match self {
            Self::Sleeping => (is_ok && vllm::is_sleeping(body)).then_some(Rest::Asleep),
            Self::Paused => (is_ok && vllm::is_paused(body)).then_some(Rest::Paused),
            // Only queried if the engine is otherwise healthy.
            Self::Ready => (status == StatusCode::SERVICE_UNAVAILABLE).then_some(Rest::Paused),
        }
    }
}

impl RestPages {
    /// Why a healthy engine accepts no steps, if it does not; the last state if it does not answer
    /// now.
    pub(super) async fn read(
        &mut self,
        upstream: &Upstream,
        url: &str,
        kind: EngineKind,
    ) -> Option<Rest> {
        let pages: &[Page] = match kind {
            EngineKind::Vllm => &[Page::Sleeping, Page::Paused],
            EngineKind::Sglang => &[Page::Ready],
            EngineKind::Llamacpp | EngineKind::Openai => &[],
        };
        let mut rest = None;
        for page in pages {
            if self.has_no[*page as usize] || rest.is_some() {
                continue;
            }
            match fetch(upstream, Method::GET, url, page.path(), None).await {
                Ok((StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _)) => {
                    self.has_no[*page as usize] = true;
                }
                Ok((status, body)) => {
                    rest = page.read(status, &body);
                    if rest == Some(Rest::Asleep) && is_awake(upstream, url).await {
                        rest = None;
                    }
                }
                Err(_) => return self.last,
            }
        }
        self.last = rest;
        rest
    }
}

/// Whether vLLM's metrics say that it is awake: in 0.32 its page says of an engine that is only
/// paused that it sleeps.
async fn is_awake(upstream: &Upstream, url: &str) -> bool {
    match fetch(upstream, Method::GET, url, "/metrics", None).await {
        Ok((status, body)) if status.is_success() => {
            vllm::is_awake(&String::from_utf8_lossy(&body))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// An engine's pages by path, and the requested paths.
    type Pages = Arc<Mutex<(Vec<(&'static str, &'static str, &'static str)>, Vec<String>)>>;

    /// Serves the pages, and 404 for others.
    async fn serve(pages: Pages) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1_024];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&request[..read]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let answer = {
                    let mut pages = pages.lock().unwrap();
                    pages.1.push(path.clone());
                    let known = pages.0.iter().find(|page| page.0 == path);
                    let (status, body) = known.map_or(("404 No", ""), |page| (page.1, page.2));
                    format!(
                        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                        body.len()
                    )
                };
                stream.write_all(answer.as_bytes()).await.ok();
            }
        });
        url
    }

    #[tokio::test]
    async fn sleeping_and_paused_engines_are_detected() {
        let asleep = ("/is_sleeping", "200 OK", r#"{"is_sleeping":true}"#);
        let awake = ("/is_sleeping", "200 OK", r#"{"is_sleeping":false}"#);
        let paused = ("/is_paused", "200 OK", r#"{"is_paused":true}"#);
        let not_ready = ("/ready", "503 No", "");
        let metrics = |text| ("/metrics", "200 OK", text);
        let resident = metrics("vllm:engine_sleep_state{sleep_state=\"awake\"} 1.0\n");
        let offloaded = metrics("vllm:engine_sleep_state{sleep_state=\"awake\"} 0.0\n");
        let upstream = Upstream::new(Duration::from_secs(3));
        for (kind, pages, expected) in [
            (EngineKind::Vllm, vec![asleep, paused], Some(Rest::Asleep)),
            (
                EngineKind::Vllm,
                vec![asleep, paused, offloaded],
                Some(Rest::Asleep),
            ),
            (
                EngineKind::Vllm,
                vec![asleep, paused, resident],
                Some(Rest::Paused),
            ),
            (EngineKind::Vllm, vec![awake, paused], Some(Rest::Paused)),
            (EngineKind::Vllm, vec![paused], Some(Rest::Paused)),
            (EngineKind::Vllm, vec![awake, not_ready], None),
            (EngineKind::Sglang, vec![not_ready], Some(Rest::Paused)),
            (
                EngineKind::Sglang,
                vec![("/ready", "200 OK", ""), asleep],
                None,
            ),
            (EngineKind::Llamacpp, vec![asleep, not_ready], None),
            (EngineKind::Openai, vec![asleep, not_ready], None),
        ] {
            let url = serve(Arc::new(Mutex::new((pages.clone(), Vec::new())))).await;
            let found = RestPages::default().read(&upstream, &url, kind).await;
            assert_eq!(found, expected, "{kind:?} {pages:?}");
        }
    }

    #[tokio::test]
    async fn a_missing_page_is_requested_once() {
        let pages = Pages::default();
        let url = serve(pages.clone()).await;
        let upstream = Upstream::new(Duration::from_secs(3));
        let mut read = RestPages::default();
        for _ in 0..3 {
            assert_eq!(read.read(&upstream, &url, EngineKind::Vllm).await, None);
        }
        assert_eq!(pages.lock().unwrap().1, ["/is_sleeping", "/is_paused"]);
    }
}
