//! Samples that treadle assembled from captured steps, and their proof from these steps.

use crate::batch::Received;
use crate::check::own;
use crate::error::Error;
use crate::event::Recorded;
use crate::payload::{Sequence, read_sequences};
use crate::prove::prove;
use crate::report::{Place, Report};
use crate::run::Run;
use crate::steps::Steps;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// A batch with samples that treadle assembled.
#[derive(Clone, Debug)]
pub struct Assembled<'b> {
    batch: &'b Received,
    /// Digest of its payload.
    file: [u8; 32],
    programs: BTreeSet<&'b str>,
}

/// The assembled samples of a batch, with their tokens.
#[derive(Clone, Debug)]
pub struct Samples<'b> {
    batch: &'b Received,
    members: BTreeMap<String, Vec<Sequence>>,
}

/// The batches with samples that treadle assembled, each once, if their payloads are there.
pub fn assembled<'b>(events: &[Recorded], batches: &'b [Received]) -> Vec<Assembled<'b>> {
    let events = own(events, batches);
    let run = Run::of(&events);
    let mut found: Vec<Assembled<'b>> = Vec::new();
    for batch in batches {
        let last = found.last().map(|last| last.batch.number);
        let window = run.cut(batch.number);
        let (Some(window), Some(Ok(payload))) = (window, &batch.payload) else {
            continue;
        };
        if last == Some(batch.number) {
            continue;
        }
        let groups = batch.content.groups.iter();
        let members = groups.flat_map(|group| group.members.iter().map(|m| (&*group.key, m)));
        let own = members.filter(|(group, member)| {
            let facts = run.facts(group, &member.program);
            let is_there = payload.members.contains_key(&member.program);
            is_there && facts.is_some_and(|f| f.is_assembled(&run, &member.program, window))
        });
        let programs: BTreeSet<&str> = own.map(|(_, member)| &*member.program).collect();
        if !programs.is_empty() {
            let file = payload.file;
            found.push(Assembled {
                batch,
                file,
                programs,
            });
        }
    }
    found
}

impl<'b> Assembled<'b> {
    /// Number of the batch.
    pub fn number(&self) -> u64 {
        self.batch.number
    }

    /// Reads the tokens of these samples.
    ///
    /// # Errors
    /// [`Error`] if the payload can't be read any more, or is another one by now.
    pub fn read(&self) -> Result<Samples<'b>, Error> {
        let batch = self.batch;
        let changed = || Error::Changed {
            batch: batch.number,
        };
        let bytes = batch.read_payload()?;
        if self.file != *Sha256::digest(&bytes) {
            return Err(changed());
        }
        let wanted = |program: &str| self.programs.contains(program);
        let members = read_sequences(&bytes, wanted).map_err(|_| changed())?;
        Ok(Samples { batch, members })
    }
}

impl Samples<'_> {
    /// The programs that sampled them.
    pub fn programs(&self) -> impl Iterator<Item = &str> {
        self.members.keys().map(String::as_str)
    }

    /// Proves the sample of a program from its steps: `steps` is what
    /// `GET /api/v1/jobs/{job}/members/{program}/steps` answers. The report counts it, or has what
    /// is wrong with it.
    ///
    /// # Errors
    /// [`Error`] if `steps` is something else.
    pub fn prove(&self, program: &str, steps: &[u8], report: &mut Report) -> Result<(), Error> {
        let steps = Steps::parse(steps).map_err(|cause| Error::Json {
            place: format!("the steps of `{program}`"),
            cause,
        })?;
        let sequences = self.members.get(program).map_or(&[][..], Vec::as_slice);
        let mut groups = self.batch.content.groups.iter();
        let group = groups.find(|group| group.members.iter().any(|m| m.program == program));
        let place = Place {
            group: group.map(|group| &*group.key),
            program: Some(program),
            ..Place::batch(self.batch.number)
        };
        let found = prove(sequences, &steps);
        if found.list.is_empty() {
            report.samples_proven += 1;
        }
        for finding in found.list {
            report.add(finding.rule, place, finding.what);
        }
        report.left_out += found.left_out;
        Ok(())
    }
}
