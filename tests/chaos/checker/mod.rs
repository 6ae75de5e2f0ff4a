//! The checker. It trusts no process: it reads the database with psql, the consumer's record and
//! the clients' record, and compares them.

mod check_result;
mod clients;
mod journal;
mod messages;
mod projections;

use std::path::PathBuf;

use serde_json::Value;
use treadle_services::Psql;

use crate::error::ChaosError;
use crate::record;
pub(crate) use check_result::CheckResult;
use journal::Journal;

/// Where to look.
pub(crate) struct Evidence {
    /// The database.
    pub(crate) psql: Psql,
    /// The schema in it.
    pub(crate) schema: &'static str,
    /// What clients have seen.
    pub(crate) clients: PathBuf,
    /// What the consumer has seen, if there was one.
    pub(crate) messages: Option<PathBuf>,
    /// The end of the journal when everything had ended: the consumer has all up to it.
    pub(crate) seq: u64,
    /// Programs that were started.
    pub(crate) programs: u32,
    /// Programs that reported a good end.
    pub(crate) program_ends: u64,
    /// Steps that ran or waited after the end; `None` if not reported.
    pub(crate) steps_open: Option<u64>,
    /// Programs that were live after the end; `None` if not reported.
    pub(crate) programs_open: Option<u64>,
    /// Daemons that did not end in order.
    pub(crate) daemons_ended_badly: u64,
    /// The output of `treadle events replay`, from the snapshot and from the start.
    pub(crate) replays: Vec<Value>,
}

impl Default for Evidence {
    fn default() -> Self {
        Self {
            psql: Psql::new(""),
            schema: "",
            clients: PathBuf::new(),
            messages: None,
            seq: 0,
            programs: 0,
            program_ends: 0,
            steps_open: None,
            programs_open: None,
            daemons_ended_badly: 0,
            replays: Vec::new(),
        }
    }
}

/// Number of the last event.
pub(crate) fn last_seq(psql: &Psql, schema: &str) -> Result<u64, ChaosError> {
    let rows = psql.rows(&format!("SELECT last_seq FROM {schema}.journal_head"))?;
    number(rows.first().and_then(|row| row.first()))
}

/// Compares everything with everything.
pub(crate) fn check(evidence: &Evidence) -> Result<CheckResult, ChaosError> {
    let mut check_result = CheckResult::default();
    let journal = Journal::read(&evidence.psql, evidence.schema)?;
    journal.check(
        last_seq(&evidence.psql, evidence.schema)?,
        &mut check_result,
    );
    let seen = match &evidence.messages {
        Some(file) => {
            let messages = record::read(file)?;
            Some(messages::check(
                &messages,
                &journal,
                evidence.seq,
                &mut check_result,
            ))
        }
        None => None,
    };
    clients::check(
        &record::read(&evidence.clients)?,
        &journal,
        seen.as_ref(),
        &mut check_result,
    )?;
    projections::check(&evidence.psql, evidence.schema, &journal, &mut check_result)?;
    ends(evidence, &mut check_result);
    Ok(check_result)
}

/// Whether everything came to its end.
fn ends(evidence: &Evidence, check_result: &mut CheckResult) {
    let missing = u64::from(evidence.programs).saturating_sub(evidence.program_ends);
    if missing > 0 {
        check_result.stuck.add(
            missing,
            format!("{missing} clients did not come to their end"),
        );
    }
    for (what, open) in [
        ("steps", evidence.steps_open),
        ("programs", evidence.programs_open),
    ] {
        match open {
            Some(0) => {}
            Some(open) => check_result
                .stuck
                .add(open, format!("{open} {what} are open at the end")),
            None => check_result
                .stuck
                .add(1, format!("no daemon reports how many {what} are open")),
        }
    }
    if evidence.daemons_ended_badly > 0 {
        let bad = evidence.daemons_ended_badly;
        check_result
            .stuck
            .add(bad, format!("{bad} daemons did not stop in order"));
    }
    let checksums: Vec<&Value> = evidence.replays.iter().map(|r| &r["checksum"]).collect();
    check_result.checksum = checksums.first().map(|checksum| (*checksum).clone());
    if checksums.windows(2).any(|pair| pair[0] != pair[1]) {
        check_result.lost.add(
            1,
            format!("replays end in different states: {:?}", evidence.replays),
        );
    }
    for replay in &evidence.replays {
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
