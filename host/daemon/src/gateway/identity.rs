//! Whose step it is: by URL, by header, by body, else by what it continues.

use axum::http::HeaderMap;
use std::sync::{Arc, Mutex};
use treadle_model::StepId;
use treadle_wire::{ErrorBody, ErrorCode, PrefixIndex, RequestHead};

/// Headers that carry a program's key, first come first served.
const KEY_HEADERS: [&str; 3] = ["x-session-id", "x-smg-routing-key", "x-program-id"];
/// Header that names the RL run.
const JOB_HEADER: &str = "x-treadle-job";
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 512;

/// Who a step belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Identity {
    pub(super) program: Arc<str>,
    pub(super) job: Arc<str>,
    /// Recognised by its prompt, not named.
    pub(super) unnamed: bool,
    /// Neither named nor recognisable: it ends with this step.
    pub(super) one_shot: bool,
}

/// Recognises programs that no client names, by the longest prompt that a new
/// one continues.
pub struct Identities {
    index: Mutex<PrefixIndex>,
}

impl Identities {
    /// Remembers up to `programs_max` unnamed programs.
    pub fn new(programs_max: usize) -> Self {
        Self {
            index: Mutex::new(PrefixIndex::new(programs_max)),
        }
    }

    pub(super) fn resolve(
        &self,
        session: Option<&str>,
        headers: &HeaderMap,
        head: &RequestHead,
        step: StepId,
    ) -> Result<Identity, ErrorBody> {
        let job = header(headers, JOB_HEADER)?.map_or_else(|| Arc::from("default"), Arc::from);
        let by_header = || {
            KEY_HEADERS
                .iter()
                .find_map(|name| header(headers, name).transpose())
                .transpose()
        };
        let named = match session {
            Some(session) => Some(session.to_owned()),
            None => by_header()?
                .map(ToOwned::to_owned)
                .or_else(|| head.program.clone()),
        };
        if let Some(key) = named {
            let program = checked(&key)?.into();
            return Ok(Identity {
                program,
                job,
                unnamed: false,
                one_shot: false,
            });
        }
        Ok(self.recognise(head, job, step))
    }

    fn recognise(&self, head: &RequestHead, job: Arc<str>, step: StepId) -> Identity {
        if head.chain.is_empty() {
            let program = format!("single-{}", step.0).into();
            return Identity {
                program,
                job,
                unnamed: true,
                one_shot: true,
            };
        }
        let fresh = || Arc::from(format!("auto-{}", step.0));
        let program = match self.index.lock() {
            Ok(mut index) => {
                let program = index.longest_match(&head.chain).unwrap_or_else(fresh);
                index.insert(&head.chain, program.clone());
                program
            }
            Err(_) => fresh(),
        };
        Identity {
            program,
            job,
            unnamed: true,
            one_shot: false,
        }
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, ErrorBody> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let value = value.to_str().map_err(|_| {
        let message = format!("the header {name} holds other than visible ASCII characters");
        ErrorBody::new(ErrorCode::InvalidField, message).with_param(name)
    })?;
    Ok((!value.is_empty()).then_some(value))
}

fn checked(key: &str) -> Result<&str, ErrorBody> {
    if key.len() <= KEY_BYTES_MAX && !key.is_empty() {
        return Ok(key);
    }
    let message = format!(
        "a program's key has {} bytes; send one of 1 to {KEY_BYTES_MAX}",
        key.len()
    );
    Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param("program_id"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_wire::Endpoint;

    fn resolve(
        identities: &Identities,
        session: Option<&str>,
        headers: &[(&'static str, &str)],
        body: &str,
        step: u64,
    ) -> Identity {
        let head = RequestHead::parse(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().unwrap());
        }
        identities
            .resolve(session, &map, &head, StepId(step))
            .unwrap()
    }

    #[test]
    fn url_goes_before_header_before_body() {
        let ids = Identities::new(10);
        let body = r#"{"model":"m","program_id":"b","messages":[{"role":"user","content":"x"}]}"#;
        let header = [("x-program-id", "h")];
        assert_eq!(&*resolve(&ids, Some("u"), &header, body, 1).program, "u");
        assert_eq!(&*resolve(&ids, None, &header, body, 1).program, "h");
        assert_eq!(&*resolve(&ids, None, &[], body, 1).program, "b");
    }

    #[test]
    fn a_longer_history_is_the_same_program() {
        let ids = Identities::new(10);
        let first = r#"{"messages":[{"role":"user","content":"x"}]}"#;
        let second = r#"{"messages":[{"role":"user","content":"x"},
            {"role":"assistant","content":"y"},{"role":"user","content":"z"}]}"#;
        let other = r#"{"messages":[{"role":"user","content":"other"}]}"#;
        let a = resolve(&ids, None, &[], first, 1);
        assert_eq!(&*a.program, "auto-1");
        assert!(a.unnamed && !a.one_shot);
        assert_eq!(resolve(&ids, None, &[], second, 2).program, a.program);
        assert_eq!(&*resolve(&ids, None, &[], other, 3).program, "auto-3");
    }

    #[test]
    fn too_long_a_key_is_refused_by_name() {
        let ids = Identities::new(10);
        let head = RequestHead::parse(
            Endpoint::ChatCompletions,
            br#"{"messages":[{"role":"user","content":"x"}]}"#,
        )
        .unwrap();
        let long = "k".repeat(600);
        let error = ids
            .resolve(Some(&long), &HeaderMap::new(), &head, StepId(1))
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidField);
    }
}
