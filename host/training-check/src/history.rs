//! Rules that concern the events only: batches are asked for in order, and versions rise.

use crate::event::Event;
use crate::report::{Place, Report, Rule};
use std::collections::BTreeSet;

/// Batches that the trainer worked with.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// The last batch that was requested.
    requested: u64,
    lineage: u64,
    version: u64,
    checkpoint: u64,
    /// Batches that were trained.
    pub(crate) trained: BTreeSet<u64>,
    /// The last batch whose weights or checkpoint were reported.
    pub(crate) reached: u64,
}

impl History {
    /// Goes through the events of a run in order.
    pub(crate) fn check(events: &[&Event], report: &mut Report) -> Self {
        let mut history = Self::default();
        let is_training = |event: &&&Event| event.job().is_some();
        let first = events.iter().find(is_training);
        if !first.is_some_and(|event| matches!(event, Event::JobDeclared { .. })) {
            let what = "no `job_declared` comes first; give all events of the job".to_owned();
            report.add(Rule::Whole, Place::default(), what);
        }
        for event in events {
            history.step(event, report);
        }
        history
    }

    fn step(&mut self, event: &Event, report: &mut Report) {
        match event {
            Event::BatchRequested { batch, .. } => {
                let next = self.requested.saturating_add(1);
                if *batch == 0 || *batch > next {
                    let what = format!("it was requested when {next} was next");
                    report.add(Rule::Existing, Place::batch(*batch), what);
                }
                self.requested = self.requested.max(*batch);
            }
            Event::BatchTrained { batch, .. } => {
                if *batch == 0 {
                    let what = "it was trained, but batches begin with 1".to_owned();
                    report.add(Rule::Existing, Place::batch(0), what);
                }
                self.exists(*batch, "trained", report);
                self.trained.insert(*batch);
            }
            Event::Checkpointed { batch, .. } => {
                self.exists(*batch, "in a checkpoint", report);
                self.checkpoint = self.checkpoint.max(*batch);
                self.reached = self.reached.max(*batch);
            }
            Event::RolledBack { batch, lineage, .. } => {
                self.is_current(*lineage, "a rollback", report);
                self.exists(*batch, "gone back to", report);
                if *batch < self.checkpoint {
                    let checkpoint = self.checkpoint;
                    let what = format!("gone back to after a checkpoint at {checkpoint}");
                    report.add(Rule::Existing, Place::batch(*batch), what);
                }
                (self.lineage, self.version) = (lineage.saturating_add(1), *batch);
            }
            Event::VersionTold {
                version, lineage, ..
            } => {
                self.is_current(*lineage, &format!("version {version}"), report);
                let (current, last) = (self.version, self.requested);
                if *version < current || *version > last {
                    let what = format!(
                        "version {version} was told; {current} was in service, and {last} was the \
                         last batch"
                    );
                    report.add(Rule::Told, Place::default(), what);
                }
                self.version = *version;
                self.reached = self.reached.max(*version);
            }
            Event::VersionServed {
                version, lineage, ..
            } => {
                self.is_current(*lineage, &format!("version {version}"), report);
                if *version < self.version {
                    let current = self.version;
                    let what = format!("version {version} was served; {current} was in service");
                    report.add(Rule::Told, Place::default(), what);
                }
                self.version = *version;
            }
            _ => {}
        }
    }

    fn exists(&self, batch: u64, what: &str, report: &mut Report) {
        if batch > self.requested {
            let last = self.requested;
            let what = format!("{what}, but {last} is the last that was requested");
            report.add(Rule::Existing, Place::batch(batch), what);
        }
    }

    fn is_current(&self, lineage: u64, what: &str, report: &mut Report) {
        if lineage != self.lineage {
            let current = self.lineage;
            let what = format!("{what} names lineage {lineage} in lineage {current}");
            report.add(Rule::Told, Place::default(), what);
        }
    }
}
