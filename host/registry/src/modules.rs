//! Recently bound compiled policies, so that binding one again takes a fraction of a millisecond.

use super::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use treadle_policy_runtime::PolicyModule;

/// Maximum number of compiled policies; the one bound least recently is dropped.
const MODULES_MAX: usize = 16;

/// Compiled policies by the digests of their uploads.
#[derive(Default)]
pub(super) struct Modules {
    kept: Mutex<VecDeque<(String, PolicyModule)>>,
}

impl Modules {
    pub(super) fn get(&self, digest: &str) -> Option<PolicyModule> {
        let kept = lock(&self.kept);
        let found = kept.iter().find(|(known, _)| known == digest);
        found.map(|(_, module)| module.clone())
    }

    pub(super) fn keep(&self, digest: &str, module: PolicyModule) {
        let mut kept = lock(&self.kept);
        kept.retain(|(known, _)| known != digest);
        if kept.len() == MODULES_MAX {
            kept.pop_front();
        }
        kept.push_back((digest.to_owned(), module));
    }
}
