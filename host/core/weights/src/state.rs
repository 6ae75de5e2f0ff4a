//! The state of the machine of weights.

use crate::Engines;
use crate::call::{Answer, Call};
use crate::command::WeightsCommand;
use crate::event::UpdatePlan;
use crate::holding::{Holding, Phase, Progress};
use crate::job::{JobWeights, Stage, Update, record};
use crate::version::{Checksums, Weights};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use treadle_model::{Timestamp, WorkerId};

/// The weights of all jobs, and what engines hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// Jobs whose engines treadle updates.
    pub jobs: BTreeMap<Box<str>, JobWeights>,
    /// What the engines of these jobs hold.
    pub holdings: BTreeMap<WorkerId, Holding>,
    /// Engines that get no steps because of their weights.
    pub fenced: BTreeSet<WorkerId>,
    /// Calls made.
    pub calls: u64,
    /// Jobs that were released while engines of them could not serve what they had.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub released: BTreeMap<Box<str>, JobWeights>,
    /// Engines whose record of what they have was dropped, each with a number that is higher every
    /// time.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub given_up: BTreeMap<WorkerId, u64>,
}

impl State {
    /// What a worker holds, if a job's weights.
    pub fn holding(&self, worker: WorkerId) -> Option<&Holding> {
        self.holdings.get(&worker)
    }

    /// Why an engine gets no steps because of its weights, in words; `None` if it gets them.
    pub fn why_fenced(&self, worker: WorkerId) -> Option<Box<str>> {
        let fenced = self.fenced.contains(&worker);
        let holding = self.holdings.get(&worker).filter(|_| fenced)?;
        let is_doubted = matches!(holding.phase, Phase::Torn | Phase::Unknown);
        if is_doubted || holding.cause.is_some() {
            return holding.cause.clone();
        }
        if holding.is_joining() {
            return Some("it joins a process group with its trainer".into());
        }
        let Some(job) = self.jobs.get(&holding.job) else {
            return Some(holding.why_let_go().into());
        };
        let update = job.update.as_ref();
        if let Some(update) = update.filter(|update| update.workers.contains(&worker)) {
            let version = update.weights.version;
            return Some(format!("it takes part in the update to version {version}").into());
        }
        if job.went_back {
            return Some("the run went back to a checkpoint; publish its version".into());
        }
        let serving = job.serving.as_ref().filter(|s| !holding.serves(Some(s)))?;
        let version = serving.version;
        Some(format!("version {version} is in service, which it has not loaded yet").into())
    }

    /// Tells the weights that an engine has loaded from those of others.
    pub(crate) fn label_of(&self, worker: WorkerId) -> Box<str> {
        let holding = self.holdings.get(&worker);
        let label = holding.and_then(|holding| {
            let loaded = holding.loading.as_ref().or(holding.held.as_ref())?;
            let (lineage, version) = (loaded.lineage, loaded.version);
            Some(format!("{lineage}.{version} of {}", holding.job))
        });
        label.unwrap_or_default().into()
    }

    /// Whether a job's trainer drives the updates of its engines.
    pub fn is_driven(&self, job: &str) -> bool {
        self.job(job).is_some_and(|job| job.driven)
    }

    /// Engines of a job.
    pub fn of_job(&self, job: &str) -> impl Iterator<Item = (WorkerId, &Holding)> {
        let own = self.holdings.iter();
        own.filter(move |(_, holding)| *holding.job == *job)
            .map(|(worker, holding)| (*worker, holding))
    }

    pub(crate) fn publish(
        &mut self,
        name: &str,
        weights: &Weights,
        workers: &[WorkerId],
        plan: UpdatePlan,
        engines: &dyn Engines,
        now: Timestamp,
    ) {
        self.begin_job(name, now);
        let job = self.jobs.entry(name.into()).or_insert_with(|| JobWeights {
            all: true,
            ..JobWeights::default()
        });
        let is_known = |known: &Weights| known == weights;
        let is_under_way = job.update.as_ref().is_some_and(|u| is_known(&u.weights));
        if is_under_way || job.serving.as_ref().is_some_and(is_known) {
            return;
        }
        if !workers.is_empty() {
            job.all = false;
        }
        let all = if job.all {
            engines.engines()
        } else {
            workers.to_vec()
        };
        for worker in all {
            self.take(name, worker, now);
        }
        let own: BTreeSet<WorkerId> = self.of_job(name).map(|(worker, _)| worker).collect();
        let (workers, lost) = own.into_iter().partition(|w| engines.answers(*w));
        let cause = || "it did not answer when the update began".into();
        let lost: BTreeSet<WorkerId> = lost;
        if let Some(job) = self.jobs.get_mut(name) {
            job.update = Some(Update {
                weights: weights.clone(),
                plan,
                began: now,
                calls_before: self.calls,
                stage: Stage::Preparing,
                fenced: None,
                workers,
                behind: lost.into_iter().map(|worker| (worker, cause())).collect(),
                checksums: Checksums::new(),
            });
        }
    }

    /// A call ended. An answer to another call than the last one comes too late to matter. Returns
    /// whether caches were cleared.
    pub(crate) fn ended(
        &mut self,
        worker: WorkerId,
        number: u64,
        answer: &Answer,
        now: Timestamp,
    ) -> bool {
        let Some(holding) = self.holdings.get(&worker) else {
            return false;
        };
        let Some(pending) = holding.call.filter(|call| call.number == number) else {
            return false;
        };
        let none = Checksums::new();
        let (driven, name) = (self.is_driven(&holding.job), holding.job.clone());
        // Only treadle's own loads take the old name away before they begin.
        let believed = answer.believed_as_whole(!driven);
        if let (
            true,
            Answer::Reports {
                name: Some(reported),
                ..
            },
        ) = (driven, answer)
        {
            self.adopt_name(&name, reported);
        }
        let Some(holding) = self.holdings.get_mut(&worker) else {
            return false;
        };
        let job = record(&self.jobs, &self.released, &holding.job);
        let of_serving = job.filter(|job| job.serving == holding.loading);
        let of_update = job.and_then(|job| job.update.as_ref());
        let of_update = of_update.filter(|u| holding.loading.as_ref() == Some(&u.weights));
        let known = of_update.map(|update| &update.checksums);
        let known = known.or(of_serving.map(|job| &job.checksums));
        let progress = holding.ended(pending.call, &believed, known.unwrap_or(&none), now);
        let update = self
            .jobs
            .get(&holding.job)
            .and_then(|job| job.update.as_ref());
        let is_of_update = update.is_some_and(|update| number > update.calls_before);
        if progress == Progress::Out && is_of_update {
            let cause = holding.cause.clone().unwrap_or_default();
            let job = holding.job.clone();
            self.leave_behind(&job, worker, cause);
        }
        if (pending.call, answer) == (Call::Resume, &Answer::Done) {
            self.found(&name, worker);
        }
        pending.call == Call::Clear && *answer == Answer::Done
    }

    /// An engine takes no further part in an update.
    pub(crate) fn leave_behind(&mut self, job: &str, worker: WorkerId, cause: Box<str>) {
        let job = self.jobs.get_mut(job);
        let Some(update) = job.and_then(|job| job.update.as_mut()) else {
            return;
        };
        if update.workers.remove(&worker) {
            update.behind.insert(worker, cause);
        }
    }

    /// The answers of all calls were lost with the daemon that made them.
    pub(crate) fn lose_calls(&mut self, now: Timestamp) {
        let pending = self.holdings.iter();
        let pending = pending.filter_map(|(worker, h)| Some((*worker, h.call?.number)));
        let cause = "the daemon restarted before the engine answered";
        let pending = pending.collect::<Vec<_>>();
        self.lose_trainers(cause, now);
        for (worker, number) in pending {
            let cause = cause.into();
            self.ended(worker, number, &Answer::Failed { cause }, now);
        }
    }

    /// Notes which engines are there and answer. Returns jobs that this concerns.
    pub(crate) fn look(
        &mut self,
        present: &BTreeSet<WorkerId>,
        engines: &dyn Engines,
        now: Timestamp,
    ) -> BTreeSet<Box<str>> {
        let mut touched: BTreeSet<Box<str>> = self.jobs.keys().cloned().collect();
        // One that nobody loads is another process once it answers again.
        let gone = |worker: &WorkerId, holding: &mut Holding| {
            let is_loaded = self.jobs.contains_key(&holding.job);
            !present.contains(worker) || !is_loaded && !engines.answers(*worker)
        };
        let gone: Vec<(WorkerId, Holding)> = self.holdings.extract_if(.., gone).collect();
        for (worker, holding) in gone {
            self.leave_behind(&holding.job, worker, "it was removed".into());
            if let Some(job) = self.jobs.get_mut(&holding.job) {
                job.group.lose(worker, "was removed");
            }
            if holding.held.is_some() || !holding.sound {
                self.give_up(worker);
            }
            touched.insert(holding.job);
        }
        if let Some((name, job)) = self.jobs.iter().find(|(_, job)| job.all) {
            let is_first = job.serving.is_none() && !job.went_back;
            for worker in present {
                self.holdings.entry(*worker).or_insert_with(|| {
                    let mut holding = Holding::new(name, now);
                    if !is_first {
                        holding.doubt("it came after the last update", now);
                    }
                    holding
                });
            }
        }
        let mut lost = Vec::new();
        for (worker, holding) in &mut self.holdings {
            touched.insert(holding.job.clone());
            let job = self.jobs.get_mut(&holding.job);
            if let Some(job) = job.filter(|_| !engines.answers(*worker)) {
                job.group.lose(*worker, "did not answer since");
            }
            let is_doubted = holding.is_doubted(self.jobs.get(&holding.job));
            // One that was lost before may take part in an update by now.
            if engines.answers(*worker) || !is_doubted && holding.phase != Phase::Unknown {
                continue;
            }
            let cause = "it did not answer; it may be another process by now";
            if !is_doubted {
                (holding.call, holding.ready) = (None, false);
            } else if holding.is_touched() {
                holding.tear(cause, now);
            } else {
                holding.doubt(cause, now);
            }
            lost.push((*worker, holding.job.clone()));
        }
        for (worker, job) in lost {
            self.leave_behind(&job, worker, "it was lost during the update".into());
        }
        touched
    }

    /// An answer named a version. One that was sent while the engine served another one shows that
    /// somebody else changed its weights. Returns the job that this concerns.
    pub(crate) fn contradict(
        &mut self,
        worker: WorkerId,
        sent: Timestamp,
        name: &str,
        now: Timestamp,
    ) -> Option<Box<str>> {
        let holding = self.holdings.get_mut(&worker)?;
        let held = holding.held.as_ref()?;
        let is_other = !held.name.is_empty() && *held.name != *name;
        let is_other = is_other && holding.phase == Phase::Held && sent >= holding.since;
        if !is_other {
            return None;
        }
        let cause = format!(
            "an answer names version `{name}` instead of `{}`",
            held.name
        );
        let job = holding.job.clone();
        holding.doubt(&cause, now);
        self.leave_behind(&job, worker, cause.into());
        if let Some(job) = self.jobs.get_mut(&job) {
            job.group.lose(worker, "is another process since");
        }
        Some(job)
    }

    /// The run went back to a checkpoint: what engines have belongs to a lineage that is over.
    pub(crate) fn go_back(&mut self, name: &str, now: Timestamp) {
        let Some(job) = self.jobs.get_mut(name) else {
            return;
        };
        (job.update, job.serving, job.went_back) = (None, None, true);
        job.checksums.clear();
        for holding in self.holdings.values_mut().filter(|h| *h.job == *name) {
            holding.doubt(
                "the run went back to a checkpoint; publish its version",
                now,
            );
        }
    }

    /// Jobs whose updates or engines wait for steps that were cut.
    pub(crate) fn cutting(&self) -> impl Iterator<Item = Box<str>> {
        let cutting = self.jobs.iter().filter(|(_, job)| {
            let update = job.update.as_ref();
            update.is_some_and(|update| update.stage == Stage::Cutting)
        });
        let pausing = self.holdings.values();
        let pausing = pausing.filter(|holding| holding.cuts_until.is_some());
        let pausing = pausing.map(|holding| holding.job.clone());
        cutting.map(|(name, _)| name.clone()).chain(pausing)
    }

    /// Engines that begin or cease to get steps.
    pub(crate) fn fences(&mut self) -> Vec<(WorkerId, bool)> {
        self.prune();
        let held = self.holdings.iter();
        let fenced = held.filter(|(worker, holding)| {
            let job = self.jobs.get(&holding.job);
            job.is_none_or(|job| !job.admits(**worker, holding))
        });
        let fenced: BTreeSet<WorkerId> = fenced.map(|(worker, _)| *worker).collect();
        let before = std::mem::replace(&mut self.fenced, fenced);
        let changed = before.symmetric_difference(&self.fenced);
        changed
            .map(|worker| (*worker, self.fenced.contains(worker)))
            .collect()
    }

    /// The calls of a job that are due.
    pub(crate) fn calls(
        &mut self,
        name: &str,
        engines: &dyn Engines,
        now: Timestamp,
    ) -> Vec<WeightsCommand> {
        let Some(job) = record(&self.jobs, &self.released, name) else {
            return Vec::new();
        };
        let (is_released, proves) = (!self.jobs.contains_key(name), self.is_proving(name));
        let own = self.holdings.iter_mut().filter(|(_, h)| *h.job == *name);
        let mut commands = Vec::new();
        for (worker, holding) in own {
            let is_free = holding.call.is_none() && !holding.is_called();
            let is_free = is_free && holding.rests_until <= now;
            if !is_free || !engines.answers(*worker) {
                continue;
            }
            let next = if is_released {
                job.finishes(holding, proves)
            } else {
                job.next_call(*worker, holding)
            };
            let Some((call, weights)) = next else {
                continue;
            };
            if call == Call::Pause && !holding.may_pause(engines.ends_steps(*worker), now) {
                continue;
            }
            self.calls += 1;
            commands.push(holding.begin(call, weights, name, *worker, self.calls, now));
        }
        commands
    }

    /// When something is due: an engine is tried again, or an update waits no longer.
    pub(crate) fn next_deadline(&self, now: Timestamp) -> Option<Timestamp> {
        let updates = self.jobs.values().filter_map(|job| job.update.as_ref());
        let waits = updates.filter_map(Update::waits_until);
        let rests = self.holdings.values().map(|holding| holding.rests_until);
        let cuts = self
            .holdings
            .values()
            .filter_map(|holding| holding.cuts_until);
        waits.chain(rests).chain(cuts).filter(|at| *at > now).min()
    }
}
