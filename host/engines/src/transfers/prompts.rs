//! The last request of each program, for engines that find caches by tokens, and to compare caches
//! with.

use bytes::Bytes;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use treadle_transfer::Prompt;

/// The last requests of programs; the least recent are dropped first.
pub struct Prompts {
    requests: Mutex<Requests>,
    bytes_max: u64,
}

#[derive(Default)]
struct Requests {
    by_program: HashMap<Arc<str>, Request>,
    by_age: BTreeMap<u64, Arc<str>>,
    last: u64,
    bytes: u64,
}

struct Request {
    age: u64,
    path: Box<str>,
    body: Bytes,
}

impl Request {
    fn bytes(&self) -> u64 {
        (self.path.len() + self.body.len()) as u64
    }
}

impl Prompts {
    /// Keeps at most `bytes_max` bytes.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            requests: Mutex::default(),
            bytes_max,
        }
    }

    /// Stores a program's request, replacing its last one.
    pub fn remember(&self, program: &Arc<str>, path: &str, body: &Bytes) {
        let mut requests = self.requests();
        requests.forget(program);
        let request = Request {
            age: requests.last + 1,
            path: path.into(),
            body: body.clone(),
        };
        if request.bytes() > self.bytes_max {
            return;
        }
        requests.last = request.age;
        requests.bytes += request.bytes();
        requests.by_age.insert(request.age, program.clone());
        requests.by_program.insert(program.clone(), request);
        while requests.bytes > self.bytes_max {
            let Some((_, oldest)) = requests.by_age.first_key_value() else {
                break;
            };
            let oldest = oldest.clone();
            requests.forget(&oldest);
        }
    }

    /// A program's last request.
    pub(super) fn of(&self, program: &str) -> Option<Prompt> {
        let requests = self.requests();
        let request = requests.by_program.get(program)?;
        Some(Prompt::Body {
            path: request.path.clone(),
            body: request.body.clone(),
        })
    }

    /// Removes the request of an ended program.
    pub(super) fn forget(&self, program: &str) {
        self.requests().forget(program);
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Requests {
    fn forget(&mut self, program: &str) {
        if let Some(request) = self.by_program.remove(program) {
            self.by_age.remove(&request.age);
            self.bytes -= request.bytes();
        }
    }
}

/// The prompt, if it consists of token ids rather than text.
pub(super) fn named_tokens(prompt: &Prompt) -> Option<Prompt> {
    #[derive(Deserialize)]
    struct Named {
        prompt: Vec<u32>,
    }
    let Prompt::Body { body, .. } = prompt else {
        return Some(prompt.clone());
    };
    let named: Named = serde_json::from_slice(body).ok()?;
    (!named.prompt.is_empty()).then(|| Prompt::Ids(named.prompt.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_may_name_their_tokens() {
        let named = |body: &'static str| {
            named_tokens(&Prompt::Body {
                path: "/v1/completions".into(),
                body: Bytes::from_static(body.as_bytes()),
            })
        };
        let ids = Some(Prompt::Ids([5, 6].into()));
        assert_eq!(named(r#"{"prompt": [5, 6], "max_tokens": 1}"#), ids);
        for other in [
            r#"{"prompt": "text"}"#,
            r#"{"prompt": [[5, 6]]}"#,
            r#"{"prompt": []}"#,
            r#"{"messages": []}"#,
            "no JSON",
        ] {
            assert_eq!(named(other), None, "{other}");
        }
    }

    #[test]
    fn the_oldest_are_forgotten_at_the_bound() {
        let prompts = Prompts::new(30);
        let names: Vec<Arc<str>> = ["a", "b", "c"].into_iter().map(Arc::from).collect();
        let body = Bytes::from_static(b"0123456789");
        prompts.remember(&names[0], "/x", &body);
        prompts.remember(&names[1], "/x", &body);
        prompts.remember(&names[0], "/y", &body);
        prompts.remember(&names[2], "/x", &body);
        assert!(prompts.of("b").is_none());
        let Some(Prompt::Body { path, .. }) = prompts.of("a") else {
            panic!("a is remembered");
        };
        assert_eq!(&*path, "/y");
        prompts.forget("a");
        assert!(prompts.of("a").is_none());
        prompts.remember(&names[2], "/x", &Bytes::from(vec![0; 100]));
        assert!(prompts.of("c").is_none(), "too long to be kept");
        assert_eq!(prompts.requests().bytes, 0);
    }
}
