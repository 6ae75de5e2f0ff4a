//! What the events say of each batch, group and member, in the order of the journal.

use crate::event::{Event, Recorded, Settings};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A value that holds from an event on, until another one replaces it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Since<T> {
    /// Index of the event.
    pub(crate) at: usize,
    pub(crate) value: T,
}

/// Events between which something happened: after the first, before the second.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// A sample as it was recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'e> {
    pub(crate) sample: &'e str,
    pub(crate) version: Option<u64>,
}

/// What the events say of a member.
#[derive(Debug, Default)]
pub(crate) struct Facts<'e> {
    /// When it arrived. An arrival may repeat one, or begin the member anew after it was dropped.
    pub(crate) arrivals: Vec<usize>,
    /// How it ended; `reward_failed` if its reward did.
    pub(crate) ends: Vec<Since<&'e str>>,
    pub(crate) rewards: Vec<Since<f64>>,
    pub(crate) samples: Vec<Since<Stored<'e>>>,
    /// When steps of it were captured.
    pub(crate) captures: Vec<usize>,
    /// When a step of it was not, or no sample could be made of its steps.
    pub(crate) failures: Vec<usize>,
    /// When treadle left it out of training, and why.
    pub(crate) drops: Vec<Since<&'e str>>,
    /// What was stored of it was deleted at some time: it may be served without its sample.
    pub(crate) deleted: bool,
}

impl Facts<'_> {
    /// Whether an end of it is on record between two events.
    pub(crate) fn has_ended(&self, run: &Run<'_>, program: &str, from: usize, to: usize) -> bool {
        let mut ends = self.ends.iter().map(|end| end.at);
        let is_reported = ends.any(|at| at > from && at < to);
        is_reported || run.released(program, Window { from, to }).is_some()
    }

    /// Whether treadle assembled the sample that it had when its batch was cut. Its client reports
    /// a sample with its end, or because a step was not captured. One that it reported otherwise
    /// can't be told apart.
    pub(crate) fn is_assembled(&self, run: &Run<'_>, program: &str, window: Window) -> bool {
        let arrivals = self.arrivals.partition_point(|at| *at < window.to);
        let Some(last) = self.arrivals[..arrivals].last().copied() else {
            return false;
        };
        let mut samples = self.samples.iter().map(|sample| sample.at);
        let Some(sample) = samples.find(|at| *at > last && *at < window.to) else {
            return false;
        };
        let is_before = |at: &usize| *at > last && *at < sample;
        let captured = self.captures.iter().any(is_before);
        let failed = self.failures.iter().any(is_before);
        captured && !failed && self.has_ended(run, program, last, sample)
    }
}

/// The sizes that a group may have been given.
#[derive(Debug, Default)]
struct Sizes {
    /// It was submitted before any member arrived: no later event changes its size.
    submitted: bool,
    any: BTreeSet<u64>,
}

/// The events of a run, by what they are about.
#[derive(Debug, Default)]
pub(crate) struct Run<'e> {
    /// What was declared.
    pub(crate) settings: Vec<Since<&'e Settings>>,
    /// The version in service; after a rollback, the one that it went back to.
    pub(crate) versions: Vec<Since<u64>>,
    /// Rollbacks, with the batch that each went back to.
    pub(crate) rollbacks: Vec<Since<u64>>,
    /// The first request of each batch.
    requested: BTreeMap<u64, usize>,
    /// Ever later batches, each with the first event that proves it to exist.
    proofs: Vec<Since<u64>>,
    sizes: BTreeMap<&'e str, Sizes>,
    members: BTreeMap<&'e str, BTreeMap<&'e str, Facts<'e>>>,
    /// The last group of each program.
    places: BTreeMap<&'e str, &'e str>,
    /// When programs were released.
    released: BTreeMap<&'e str, Vec<usize>>,
    /// Number of events.
    events: usize,
}

/// The values that may have held at some point of a window: the one from before it, and each
/// that replaced it within.
pub(crate) fn held<T>(values: &[Since<T>], window: Window) -> &[Since<T>] {
    let before = values.partition_point(|value| value.at <= window.from);
    let until = values.partition_point(|value| value.at < window.to);
    let first = before.saturating_sub(1);
    &values[first..until.max(first)]
}

/// Whether nothing may have held at some point of a window, if what held before `start` may not
/// count any more.
pub(crate) fn may_lack<T>(values: &[Since<T>], window: Window, start: usize) -> bool {
    let mut counted = values.iter().filter(|value| value.at > start);
    counted.next().is_none_or(|value| value.at > window.from)
}

/// The events of the last run that a job declared: if it was removed, another may have begun.
pub(crate) fn last_run(events: &[Recorded], job: &str) -> Range<usize> {
    let (mut start, mut found) = (0, 0..events.len());
    let mut is_declared = false;
    for (at, recorded) in events.iter().enumerate() {
        match &recorded.event {
            Event::JobDeclared { job: of, .. } if of == job => {
                is_declared = true;
                found = start..events.len();
            }
            Event::JobRemoved { job: of } if of == job => {
                if is_declared {
                    found = start..at;
                }
                (start, is_declared) = (at + 1, false);
            }
            _ => {}
        }
    }
    found
}

impl<'e> Run<'e> {
    /// Sorts the events of a job by what they are about.
    pub(crate) fn of(events: &[&'e Event]) -> Self {
        let mut run = Self {
            versions: vec![Since { at: 0, value: 0 }],
            events: events.len(),
            ..Self::default()
        };
        for (at, event) in events.iter().enumerate() {
            run.add(at, event);
        }
        run
    }

    fn add(&mut self, at: usize, event: &'e Event) {
        match event {
            Event::JobDeclared { settings, .. } => {
                let value = settings;
                self.settings.push(Since { at, value });
            }
            Event::GroupSubmitted { group, size, .. } => {
                let size = size.or(self.settings.last().map(|held| held.value.group_size));
                let is_new = !self.sizes.contains_key(&**group);
                self.may_have_size(group, size);
                if is_new && let Some(sizes) = self.sizes.get_mut(&**group) {
                    sizes.submitted = true;
                }
            }
            Event::BatchRequested { batch, .. } => {
                self.requested.entry(*batch).or_insert(at);
                self.prove(at, batch.saturating_sub(1));
            }
            Event::BatchTrained { batch, .. } | Event::Checkpointed { batch, .. } => {
                self.prove(at, *batch);
            }
            Event::VersionTold { version, .. } => {
                let value = *version;
                self.versions.push(Since { at, value });
                self.prove(at, value);
            }
            Event::VersionServed { version, .. } => {
                let value = *version;
                self.versions.push(Since { at, value });
            }
            Event::RolledBack { batch, .. } => {
                let value = *batch;
                self.versions.push(Since { at, value });
                self.rollbacks.push(Since { at, value });
                self.prove(at, value);
            }
            Event::ProgramReleased { program, aborted } => {
                if !aborted {
                    self.released.entry(program).or_default().push(at);
                }
            }
            Event::ProgramRewarded {
                program,
                reward_millionths,
            } => {
                if let Some(group) = self.places.get(&**program)
                    && let Some(facts) = self
                        .members
                        .get_mut(*group)
                        .and_then(|g| g.get_mut(&**program))
                {
                    let value = *reward_millionths as f64 / 1e6;
                    facts.rewards.push(Since { at, value });
                }
            }
            _ => self.add_to_member(at, event),
        }
    }

    fn add_to_member(&mut self, at: usize, event: &'e Event) {
        let (Event::MemberArrived { member }
        | Event::MemberEnded { member, .. }
        | Event::StepCaptured { member }
        | Event::CaptureFailed { member }
        | Event::RewardGiven { member, .. }
        | Event::RewardFailed { member }
        | Event::MemberDeleted { member }
        | Event::MemberDropped { member, .. }) = event
        else {
            return;
        };
        let group = self.members.entry(&member.group).or_default();
        let facts = group.entry(&member.program).or_default();
        match event {
            Event::MemberEnded {
                end,
                reward,
                sample,
                version,
                ..
            } => {
                facts.ends.push(Since { at, value: end });
                let version = *version;
                let stored = sample.as_ref().map(|sample| Stored { sample, version });
                facts
                    .samples
                    .extend(stored.map(|value| Since { at, value }));
                facts
                    .rewards
                    .extend(reward.map(|value| Since { at, value }));
            }
            Event::StepCaptured { .. } => facts.captures.push(at),
            Event::CaptureFailed { .. } => facts.failures.push(at),
            Event::MemberDeleted { .. } => facts.deleted = true,
            Event::MemberDropped { end, .. } => facts.drops.push(Since { at, value: end }),
            Event::RewardGiven { reward, .. } => {
                let value = *reward;
                facts.rewards.push(Since { at, value });
            }
            Event::RewardFailed { .. } => {
                let value = "reward_failed";
                facts.ends.push(Since { at, value });
            }
            _ => {
                facts.arrivals.push(at);
                self.places.insert(&member.program, &member.group);
                let size = self.settings.last().map(|held| held.value.group_size);
                self.may_have_size(&member.group, size);
            }
        }
    }

    fn may_have_size(&mut self, group: &'e str, size: Option<u64>) {
        let sizes = self.sizes.entry(group).or_default();
        if !sizes.submitted {
            sizes.any.extend(size);
        }
    }

    fn prove(&mut self, at: usize, batch: u64) {
        if self.proofs.last().is_none_or(|last| last.value < batch) {
            self.proofs.push(Since { at, value: batch });
        }
    }

    /// When a batch was cut: after its first request, before the first event that proves it to
    /// exist. `None` if it was never requested.
    pub(crate) fn cut(&self, batch: u64) -> Option<Window> {
        let from = *self.requested.get(&batch)?;
        let proof = self.proofs.partition_point(|proof| proof.value < batch);
        let to = self.proofs.get(proof).map_or(self.events, |proof| proof.at);
        let to = if to > from { to } else { self.events };
        Some(Window { from, to })
    }

    /// All events.
    pub(crate) fn all(&self) -> Window {
        let to = self.events;
        Window { from: 0, to }
    }

    /// The sizes that a group may have.
    pub(crate) fn sizes(&self, group: &str) -> impl Iterator<Item = u64> {
        let sizes = self.sizes.get(group).into_iter();
        sizes.flat_map(|sizes| sizes.any.iter().copied())
    }

    /// What the events say of a member.
    pub(crate) fn facts(&self, group: &str, program: &str) -> Option<&Facts<'e>> {
        self.members.get(group)?.get(program)
    }

    /// The last time that a program was released in a window.
    pub(crate) fn released(&self, program: &str, window: Window) -> Option<usize> {
        let times = self.released.get(program)?;
        let within = |at: &&usize| **at > window.from && **at < window.to;
        times.iter().rev().find(within).copied()
    }

    /// The version in service just before an event.
    pub(crate) fn version_before(&self, at: usize) -> u64 {
        let told = self.versions.partition_point(|told| told.at < at);
        let told = self.versions.get(told.saturating_sub(1));
        told.map_or(0, |told| told.value)
    }
}
