//! Rules that concern one member of a batch: what the events allow it to be.

use crate::batch::Member;
use crate::run::{Facts, Run, Since, Window, held, may_lack};
use std::cmp::Ordering;

/// A member of a batch, with what the events say of it before the batch was cut.
pub(crate) struct Attempt<'f, 'e> {
    pub(crate) facts: &'f Facts<'e>,
    pub(crate) member: &'f Member,
    /// When its batch was cut.
    pub(crate) window: Window,
    /// Its last arrival. What was recorded before may belong to an attempt that was dropped.
    pub(crate) last: usize,
    pub(crate) ends: &'f [Since<&'e str>],
}

impl Attempt<'_, '_> {
    /// What is wrong with how it ended. `released` says that its program ended between two steps,
    /// which completes it.
    pub(crate) fn end(&self, released: bool) -> Option<String> {
        let served = &*self.member.end;
        let is_trained = |end: &str| end == "completed" || end == "truncated";
        let last = self.ends.last().map(|end| end.value);
        let counted = self.ends.iter().filter(|end| end.at > self.last);
        let mut counted = counted.map(|end| end.value).chain(last).chain([served]);
        if let Some(failed) = counted.find(|end| !is_trained(end)) {
            return Some(format!("it ended as {failed}"));
        }
        match last {
            Some(end) if end != served => {
                Some(format!("it ended as {end}; the batch says {served}"))
            }
            None if !released => Some("no end of it is on record".to_owned()),
            _ => None,
        }
    }

    /// What is wrong with its version, if it was sampled within `span`. Its first token is after
    /// its arrival; a sample may name an older version than the one in service.
    pub(crate) fn version(&self, run: &Run<'_>, span: Window) -> Option<String> {
        let (samples, window) = (&self.facts.samples, self.window);
        let served = held(&run.versions, span).iter().map(|told| told.value);
        let before = samples.partition_point(|stored| stored.at < window.to);
        let named = samples[..before].iter();
        let named = named.filter_map(|stored| stored.value.version).min();
        let oldest = served.clone().chain(named).min().unwrap_or(0);
        let newest = served.max().unwrap_or(u64::MAX);
        // If the sample is certain, the version is not newer than what it names.
        let certain = match held(samples, window) {
            [only] if only.at > self.last && only.at <= window.from => only.value.version,
            _ => None,
        };
        let newest = certain.map_or(newest, |version| version.min(newest));
        let stated = self.member.version;
        let what = || format!("the batch says version {stated}; it may have {oldest} to {newest}");
        (!(oldest..=newest).contains(&stated)).then(what)
    }

    /// Whether it ended with a version that a rollback abandoned before the batch was requested.
    /// Its first end counts: what is reported later, such as its sample, samples nothing.
    pub(crate) fn abandoned(&self, run: &Run<'_>, released: Option<usize>) -> Option<String> {
        let ends = self.ends.iter().map(|end| end.at);
        let own = ends.chain(released).filter(|at| *at > self.last);
        let end = own.min().or(self.ends.last().map(|end| end.at))?;
        let version = run.version_before(end);
        let between = |back: &&Since<u64>| back.at > end && back.at < self.window.from;
        let mut rollbacks = run.rollbacks.iter().filter(between);
        let back = rollbacks.find(|back| back.value < version)?.value;
        Some(format!(
            "it ended with version {version}, which the rollback to batch {back} abandoned"
        ))
    }

    /// What is wrong with its reward.
    pub(crate) fn reward(&self, is_needed: bool) -> Option<String> {
        let rewards = &self.facts.rewards;
        let given = held(rewards, self.window);
        let may_lack = may_lack(rewards, self.window, self.last) && !is_needed;
        let is_given = |served| given.iter().any(|given| same(given.value, served));
        let last = given.last().map(|given| given.value);
        let what = || {
            let (served, last) = (shown(self.member.reward), shown(last));
            format!("the batch says reward {served}; the last one given is {last}")
        };
        (!self.member.reward.map_or(may_lack, is_given)).then(what)
    }

    /// Whether it was left out of training before its batch was cut.
    pub(crate) fn left_out(&self) -> Option<String> {
        let mut drops = self.facts.drops.iter();
        let drop = drops.rfind(|drop| drop.at > self.last && drop.at < self.window.to)?;
        Some(format!("it was left out as {}", drop.value))
    }

    /// Whether a step of it was not captured, and its client did not report its sample.
    pub(crate) fn capture(&self, run: &Run<'_>) -> Option<String> {
        let (last, cut) = (self.last, self.window.to);
        let mut failures = self.facts.failures.iter().copied();
        let failed = failures.rfind(|at| *at > last && *at < cut)?;
        let samples = self.facts.samples.iter().map(|sample| sample.at);
        let mut samples = samples.filter(|at| *at > last && *at < cut);
        // With a sample that only its client can have reported it needs no captured steps.
        let program = &self.member.program;
        let counts = |at: usize| at > failed || !self.facts.has_ended(run, program, last, at);
        let what = "a step of it was not captured, and its client reported no sample after that";
        (!samples.any(counts)).then(|| what.to_owned())
    }

    /// What is wrong with the digest of its sample.
    pub(crate) fn sample(&self, is_needed: bool) -> Option<String> {
        let samples = &self.facts.samples;
        let stored = held(samples, self.window);
        let may_lack = may_lack(samples, self.window, self.last) && !is_needed;
        let is_stored = |served: &str| {
            let mut stored = stored.iter().map(|stored| digits(stored.value.sample));
            stored.any(|sample| sample == digits(served))
        };
        let served = self.member.sample.as_deref();
        let last = stored.last().map_or("none", |stored| stored.value.sample);
        let what = || {
            let served = served.unwrap_or("none");
            format!("the batch says sample {served}; {last} is on record")
        };
        (!served.map_or(may_lack || self.facts.deleted, is_stored)).then(what)
    }
}

/// Whether two finite numbers are equal; NaN equals nothing.
pub(crate) fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b) == Some(Ordering::Equal)
}

/// A reward in words.
pub(crate) fn shown(reward: Option<f64>) -> String {
    reward.map_or("none".to_owned(), |reward| reward.to_string())
}

/// A digest without the name of its algorithm.
pub(crate) fn digits(digest: &str) -> &str {
    digest.strip_prefix("sha256:").unwrap_or(digest)
}
