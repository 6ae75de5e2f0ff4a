//! Excerpts that a prediction service may read: prompts of the jobs that the operator named, only
//! in memory. Gateways store them here, the predictor reads them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Approximate size of an entry without its program's name and its excerpt.
const ENTRY_BYTES: usize = 200;
/// Limit on the bytes of all entries; beyond it the oldest are dropped.
const SUM_BYTES_MAX: usize = 64 << 20;

/// The beginning and the end of a program's newest prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Excerpt {
    /// A prompt that came as text or as messages.
    pub text: Option<String>,
    /// A prompt that came as token ids.
    pub token_ids: Option<Vec<u64>>,
}

impl Excerpt {
    /// Size of its entry; a program without a readable prompt takes some too.
    fn bytes(&self, program: &str) -> usize {
        let text = self.text.as_ref().map_or(0, String::len);
        let ids = self.token_ids.as_ref().map_or(0, |ids| ids.len() * 8);
        ENTRY_BYTES + 2 * program.len() + text + ids
    }
}

/// Excerpts by program.
#[derive(Debug, Default)]
pub struct Excerpts {
    jobs: BTreeSet<Box<str>>,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_program: HashMap<Box<str>, (u64, Arc<Excerpt>)>,
    by_age: BTreeMap<u64, Box<str>>,
    bytes: usize,
    clock: u64,
}

impl Excerpts {
    /// Creates a store that accepts only prompts of these jobs.
    pub fn of_jobs<'j>(jobs: impl IntoIterator<Item = &'j String>) -> Self {
        Self {
            jobs: jobs.into_iter().map(|job| job.as_str().into()).collect(),
            entries: Mutex::default(),
        }
    }

    /// Whether the prompts of a job may be read; `job` is its name in the core.
    pub fn permits(&self, job: &str) -> bool {
        self.jobs.contains(job)
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a program's excerpt, replacing an earlier one.
    pub fn put(&self, job: &str, program: &str, excerpt: Excerpt) {
        if !self.permits(job) {
            return;
        }
        let mut entries = self.entries();
        entries.remove(program);
        entries.clock += 1;
        let age = entries.clock;
        entries.bytes += excerpt.bytes(program);
        entries.by_age.insert(age, program.into());
        let entry = (age, Arc::new(excerpt));
        entries.by_program.insert(program.into(), entry);
        while entries.bytes > SUM_BYTES_MAX
            && let Some((_, oldest)) = entries.by_age.pop_first()
        {
            entries.remove(&oldest);
        }
    }

    /// A program's excerpt, if there is one.
    pub fn get(&self, program: &str) -> Option<Arc<Excerpt>> {
        let entries = self.entries();
        entries
            .by_program
            .get(program)
            .map(|(_, known)| known.clone())
    }

    /// Drops the excerpt of a program that is over.
    pub fn forget(&self, program: &str) {
        if !self.jobs.is_empty() {
            self.entries().remove(program);
        }
    }
}

impl Entries {
    fn remove(&mut self, program: &str) {
        if let Some((age, excerpt)) = self.by_program.remove(program) {
            self.by_age.remove(&age);
            self.bytes -= excerpt.bytes(program);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: usize) -> Excerpt {
        Excerpt {
            text: Some("x".repeat(bytes)),
            token_ids: None,
        }
    }

    #[test]
    fn only_what_is_permitted_is_kept() {
        let none = Excerpts::of_jobs(&[]);
        none.put("run", "p", text(3));
        assert_eq!(none.get("p"), None);
        let excerpts = Excerpts::of_jobs(&["run".to_owned()]);
        excerpts.put("other", "q", text(3));
        excerpts.put("run", "p", text(3));
        excerpts.put("run", "p", text(4));
        assert_eq!(excerpts.get("q"), None);
        assert_eq!(excerpts.get("p").as_deref(), Some(&text(4)));
        excerpts.forget("p");
        assert_eq!((excerpts.get("p"), excerpts.entries().bytes), (None, 0));
    }

    #[test]
    fn the_oldest_goes_where_all_are_too_large() {
        let excerpts = Excerpts::of_jobs(&["run".to_owned()]);
        for program in ["a", "b", "c"] {
            let of_two = SUM_BYTES_MAX / 2 - text(0).bytes(program);
            excerpts.put("run", program, text(of_two));
        }
        assert_eq!(excerpts.get("a"), None);
        assert!(excerpts.get("b").is_some() && excerpts.get("c").is_some());
        assert_eq!(excerpts.entries().by_age.len(), 2);
    }

    #[test]
    fn programs_without_prompts_are_bounded_too() {
        let excerpts = Excerpts::of_jobs(&["run".to_owned()]);
        let name = |number: usize| format!("{number:0>4096}");
        let most = SUM_BYTES_MAX / text(0).bytes(&name(0));
        for number in 0..=most {
            excerpts.put("run", &name(number), Excerpt::default());
        }
        assert_eq!(excerpts.entries().by_program.len(), most);
        assert_eq!(excerpts.get(&name(0)), None);
    }
}
