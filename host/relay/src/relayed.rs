//! A call of a trainer, as it is passed on.

use crate::Sent;
use crate::paths::{Does, PATHS};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use serde_json::{Value, json};
use treadle_core::weights::TrainerCall;
use treadle_wire::{ErrorBody, ErrorCode};

/// A call, as the trainer made it.
#[derive(Clone, Debug)]
pub(crate) struct Relayed {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) does: Does,
    /// The call as the core sees it, if it concerns the weights.
    pub(crate) call: Option<TrainerCall>,
    pub(crate) query: Option<String>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Relayed {
    /// A call of a path that is relayed.
    pub(crate) fn new(path: &str, query: Option<String>, sent: Sent) -> Result<Self, ErrorBody> {
        let path = path.trim_start_matches('/');
        let of_path = PATHS.iter().filter(|(_, known, _)| &known[1..] == path);
        let mut of_path = of_path.peekable();
        if of_path.peek().is_none() {
            let message = "the path is not relayed; docs/weights.md lists those that are";
            return Err(ErrorBody::new(ErrorCode::UnknownPath, message));
        }
        let found = of_path.find(|(method, _, _)| *method == sent.method);
        let Some((method, path, does)) = found else {
            let message = format!("{path} has another method than {}", sent.method);
            return Err(ErrorBody::new(ErrorCode::MethodNotAllowed, message));
        };
        let mut relayed = Self {
            method: method.clone(),
            path,
            does: *does,
            call: None,
            query,
            headers: HeaderMap::new(),
            body: sent.body,
        };
        for name in [CONTENT_TYPE, AUTHORIZATION] {
            if let Some(value) = sent.headers.get(&name) {
                relayed.headers.insert(name, value.clone());
            }
        }
        if *does != Does::Nothing {
            // It may be large, and is not kept while engines are called.
            let page = relayed.page()?;
            relayed.does = does.with(&page);
            relayed.call = relayed.does.call(&page);
            relayed = relayed.recomputing(&page);
        }
        Ok(relayed)
    }

    /// A call of treadle's own, without a body.
    pub(crate) fn own(method: Method, path: &'static str) -> Self {
        Self {
            method,
            path,
            does: Does::Nothing,
            call: None,
            query: None,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
    }

    /// Ends an update in parts of SGLang, which wants a body.
    pub(crate) fn end_of_session() -> Self {
        Self::own(Method::POST, "/end_weight_update").with(&json!({}))
    }

    /// The body; nothing is an empty object.
    pub(crate) fn page(&self) -> Result<Value, ErrorBody> {
        if self.body.is_empty() {
            return Ok(json!({}));
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let message = format!("the body is not JSON: {error}");
            ErrorBody::new(ErrorCode::InvalidJson, message)
        })
    }

    /// The same call with another body.
    pub(crate) fn with(&self, page: &Value) -> Self {
        let mut relayed = self.clone();
        relayed.body = page.to_string().into();
        let json = HeaderValue::from_static("application/json");
        relayed.headers.insert(CONTENT_TYPE, json);
        relayed
    }

    /// SGLang's pause `in_place` keeps caches of the old weights, which can't be cleared then.
    fn recomputing(self, page: &Value) -> Self {
        if self.path == "/pause_generation" && page["mode"] == "in_place" {
            let mut page = page.clone();
            page["mode"] = "retract".into();
            return self.with(&page);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relayed(method: Method, path: &str, body: &str) -> Result<Relayed, ErrorBody> {
        let sent = Sent {
            method,
            headers: HeaderMap::new(),
            body: body.to_owned().into(),
        };
        Relayed::new(path, None, sent)
    }

    #[test]
    fn only_listed_paths_are_relayed() {
        let code = |method, path, body| relayed(method, path, body).expect_err("is refused").code;
        let post = || Method::POST;
        assert_eq!(code(post(), "generate", ""), ErrorCode::UnknownPath);
        assert_eq!(code(post(), "pause/..", ""), ErrorCode::UnknownPath);
        assert_eq!(code(post(), "", ""), ErrorCode::UnknownPath);
        assert_eq!(code(Method::PUT, "pause", ""), ErrorCode::MethodNotAllowed);
        assert_eq!(code(post(), "update_weights", "{"), ErrorCode::InvalidJson);
        let pause = relayed(Method::POST, "pause", "").expect("is listed");
        assert_eq!((pause.path, pause.does), ("/pause", Does::Pauses));
        let get = relayed(Method::GET, "flush_cache", "").expect("has two methods");
        assert_eq!(get.method, Method::GET);
        let null = relayed(Method::POST, "resume", "null").expect("is JSON");
        assert_eq!(null.does, Does::Resumes);
    }

    #[test]
    fn a_pause_that_keeps_caches_recomputes_them() {
        let body = r#"{"mode": "in_place"}"#;
        let sent = |body: &str| {
            let pause = relayed(Method::POST, "pause_generation", body).expect("is listed");
            pause.page().expect("is JSON")
        };
        assert_eq!(sent(body), json!({"mode": "retract"}));
        let other = r#"{"mode": "abort"}"#;
        assert_eq!(sent(other), json!({"mode": "abort"}));
    }
}
