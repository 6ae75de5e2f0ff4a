//! What a system sees before the agents come: some learn from their first requests how many bytes a
//! token has, and what a request costs.

use crate::bench::routers::front::Front;
use clap::ValueEnum;
use serde_json::Value;
use std::time::Duration;
use treadle_demo::exchange::{release, step};
use treadle_http::Upstream;

/// The program of the first request.
const PROGRAM: &str = "first-request";
/// For a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For an answer, in real time.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of the hostile text in UTF-8.
const HOSTILE_BYTES: usize = 64 << 10;
/// A sign of four bytes in UTF-8, one token, as clients escape it: twelve bytes in the body.
const HOSTILE_SIGN: &str = "\\ud808\\udc31";

/// The first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(super) enum First {
    /// None: the agents come at once.
    #[default]
    None,
    /// A word.
    Hi,
    /// Twelve kilobytes of words.
    Long,
    /// 64 KB of one rare sign, escaped, so that a token has three times as many bytes in the body as
    /// the agents' have.
    Hostile,
}

impl First {
    /// What is said, as it stands in JSON.
    fn content(self) -> Option<String> {
        match self {
            Self::None => None,
            Self::Hi => Some("hi".to_owned()),
            Self::Long => Some("long ".repeat(2_500)),
            Self::Hostile => Some(HOSTILE_SIGN.repeat(HOSTILE_BYTES / 4)),
        }
    }

    /// Sends it. The error is for people; a system may refuse what makes no sense.
    pub(super) async fn send(self, front: &Front, model: &str) -> Result<(), String> {
        let Some(content) = self.content() else {
            return Ok(());
        };
        let body = format!(
            r#"{{"model":{},"messages":[{{"role":"user","content":"{content}"}}],"max_tokens":4}}"#,
            Value::from(model)
        );
        let (upstream, naming) = (Upstream::new(CONNECT_TIMEOUT), &front.naming);
        let body = naming.body(body, PROGRAM.into(), true);
        let headers = naming.headers(PROGRAM.into());
        let sent = step(&upstream, &front.url, &headers, body);
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, sent).await;
        answer.map_err(|_| format!("no answer within {ANSWER_TIMEOUT:?}"))??;
        release(&upstream, &front.url, naming, PROGRAM.into()).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hostile_text_is_64_kb_of_one_sign() {
        let content = First::Hostile.content().unwrap();
        let text: String = serde_json::from_str(&format!("\"{content}\"")).unwrap();
        assert_eq!(text.len(), 64 << 10);
        assert!(text.chars().all(|sign| sign == '\u{12031}'));
        assert_eq!(First::None.content(), None);
    }
}
