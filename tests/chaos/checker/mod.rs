//! The checker. It trusts no process: it reads the database with psql, the consumer's record and
//! the clients' record, and compares them.

mod actions;
mod check_result;
mod clients;
mod journal;
mod messages;
mod projections;
mod training;

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use treadle_services::Psql;

use crate::error::ChaosError;
use crate::record;
use crate::training::Ended;
pub(crate) use actions::{actions_by_job, orphans};
pub(crate) use check_result::CheckResult;
use journal::Journal;

/// Inputs of the checker.
pub(crate) struct Evidence {
    /// The database.
    pub(crate) psql: Psql,
    /// The parts of the jobs.
    pub(crate) shards: Vec<ShardEvidence>,
    /// The clients' record.
    pub(crate) clients: PathBuf,
    /// The actions' own files, if any ran.
    pub(crate) ran: Option<PathBuf>,
    /// The training run, in the form that is one.
    pub(crate) training: Option<Ended>,
    /// Newest events that had to stay, and seconds for which ended programs had to stay; `None` if
    /// nothing was to be removed.
    pub(crate) keeps: Option<(u64, u64)>,
    /// Programs that were started.
    pub(crate) programs: u32,
    /// Programs that reported success.
    pub(crate) program_ends: u64,
    /// Daemons that did not exit cleanly.
    pub(crate) daemons_ended_badly: u64,
    /// Processes of sandboxes that were left when all daemons had ended.
    pub(crate) orphans: Vec<String>,
}

/// Inputs for one shard.
#[derive(Default)]
pub(crate) struct ShardEvidence {
    /// The schema in the database.
    pub(crate) schema: &'static str,
    /// The consumer's record, if there was one.
    pub(crate) messages: Option<PathBuf>,
    /// The end of the journal when everything had ended: the consumer has all up to it.
    pub(crate) seq: u64,
    /// Counts of open work after the end; `None` if not reported.
    pub(crate) open: Vec<(&'static str, Option<u64>)>,
    /// Counters of the form's effects; `None` if not reported.
    pub(crate) counted: Vec<(&'static str, Option<u64>)>,
    /// The output of `treadle events replay`, from the snapshot and, if all events are still there,
    /// from the start.
    pub(crate) replays: Vec<Value>,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            psql: Psql::new(""),
            shards: Vec::new(),
            clients: PathBuf::new(),
            ran: None,
            training: None,
            keeps: None,
            programs: 0,
            program_ends: 0,
            daemons_ended_badly: 0,
            orphans: Vec::new(),
        }
    }
}

/// Number of the last event.
pub(crate) fn last_seq(psql: &Psql, schema: &str) -> Result<u64, ChaosError> {
    let rows = psql.rows(&format!("SELECT last_seq FROM {schema}.journal_head"))?;
    number(rows.first().and_then(|row| row.first()))
}

/// A shard's journal, and the numbers of it that the consumer has, if there was one.
struct ShardJournal {
    journal: Journal,
    seen: Option<BTreeSet<u64>>,
}

/// Runs all comparisons.
pub(crate) fn check(evidence: &Evidence) -> Result<CheckResult, ChaosError> {
    let mut check_result = CheckResult::default();
    let mut shards = Vec::new();
    for shard in &evidence.shards {
        shards.push(check_shard(evidence, shard, &mut check_result)?);
    }
    let record = record::read(&evidence.clients)?;
    match (&evidence.training, shards.first()) {
        (Some(run), Some(shard)) => {
            training::check(&record, &shard.journal, run, &mut check_result)?;
        }
        _ => clients::check(&record, &shards, &mut check_result)?,
    }
    if let (Some(ran), Some(shard)) = (&evidence.ran, evidence.shards.first()) {
        let journals: Vec<&Journal> = shards.iter().map(|shard| &shard.journal).collect();
        let found = (shard.schema, ran.as_path());
        actions::check(&record, &journals, &evidence.psql, found, &mut check_result)?;
    }
    if evidence.keeps.is_some() {
        for (what, removed) in [
            ("events", check_result.events_removed),
            ("programs", check_result.programs_removed),
        ] {
            if removed == 0 {
                let what = format!("no {what} were removed");
                check_result.not_exercised.add(1, what);
            }
        }
    }
    ends(evidence, &mut check_result);
    Ok(check_result)
}

fn check_shard(
    evidence: &Evidence,
    shard: &ShardEvidence,
    check_result: &mut CheckResult,
) -> Result<ShardJournal, ChaosError> {
    let mut journal = Journal::read(&evidence.psql, shard.schema)?;
    let messages = shard.messages.as_deref().map(record::read).transpose()?;
    if let Some((events, _)) = evidence.keeps {
        journal.check_kept(events, check_result);
        for message in messages.iter().flatten() {
            journal.take_back(message)?;
        }
    }
    let last_seq = last_seq(&evidence.psql, shard.schema)?;
    journal.check(last_seq, check_result);
    let seen =
        messages.map(|messages| messages::check(&messages, &journal, shard.seq, check_result));
    let ended_s = evidence.keeps.map(|(_, ended_s)| ended_s);
    projections::check(
        &evidence.psql,
        shard.schema,
        &journal,
        ended_s,
        check_result,
    )?;
    shard_ends(shard, check_result);
    Ok(ShardJournal { journal, seen })
}

/// Checks that everything ended.
fn ends(evidence: &Evidence, check_result: &mut CheckResult) {
    let missing = u64::from(evidence.programs).saturating_sub(evidence.program_ends);
    if missing > 0 {
        check_result.stuck.add(
            missing,
            format!("{missing} clients did not come to their end"),
        );
    }
    for orphan in &evidence.orphans {
        let what = format!("{orphan} of a sandbox is there without a daemon");
        check_result.stuck.add(1, what);
    }
    if evidence.daemons_ended_badly > 0 {
        let bad = evidence.daemons_ended_badly;
        check_result
            .stuck
            .add(bad, format!("{bad} daemons did not stop in order"));
    }
}

/// Checks that a shard ended, and that the form's effects occurred.
fn shard_ends(shard: &ShardEvidence, check_result: &mut CheckResult) {
    for (what, open) in &shard.open {
        match open {
            Some(0) => {}
            Some(open) => check_result
                .stuck
                .add(*open, format!("{open} {what} are open at the end")),
            None => check_result
                .stuck
                .add(1, format!("no daemon reports how many {what} are open")),
        }
    }
    for (counter, count) in &shard.counted {
        let count = count.unwrap_or(0);
        let sum = check_result.counted.entry((*counter).to_owned());
        *sum.or_default() += count;
        if count == 0 {
            let what = format!("{counter} is 0 in {}", shard.schema);
            check_result.not_exercised.add(1, what);
        }
    }
    let checksums: Vec<&Value> = shard.replays.iter().map(|r| &r["checksum"]).collect();
    check_result
        .checksums
        .extend(checksums.first().map(|checksum| (*checksum).clone()));
    if checksums.windows(2).any(|pair| pair[0] != pair[1]) {
        check_result.lost.add(
            1,
            format!("replays end in different states: {:?}", shard.replays),
        );
    }
    for replay in &shard.replays {
        if replay["programs"] != 0 {
            check_result
                .stuck
                .add(1, format!("programs are live after a replay: {replay}"));
        }
    }
}

/// A number in a cell.
fn number(cell: Option<&String>) -> Result<u64, ChaosError> {
    let parsed = cell.and_then(|cell| cell.parse().ok());
    parsed.ok_or_else(|| ChaosError::Nonsense(format!("{cell:?} is not a number")))
}
