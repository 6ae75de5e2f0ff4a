//! Compares the projections with the journal.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use treadle_services::Psql;

use super::check_result::CheckResult;
use super::journal::{Journal, ProgramTotals};
use super::number;
use crate::error::ChaosError;

/// Compares both. Programs that ended more than `ended_s` seconds ago may be gone with their steps.
pub(super) fn check(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    ended_s: Option<u64>,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let before_us = ended_s.map(|ended_s| {
        let kept = Duration::from_secs(ended_s);
        now.saturating_sub(kept).as_micros() as u64
    });
    let gone = programs(psql, schema, journal, before_us, check_result)?;
    check_result.programs_removed += gone.len() as u64;
    steps(psql, schema, journal, &gone, check_result)
}

/// Returns the programs that were rightly removed.
fn programs<'j>(
    psql: &Psql,
    schema: &str,
    journal: &'j Journal,
    before_us: Option<u64>,
    check_result: &mut CheckResult,
) -> Result<BTreeSet<&'j str>, ChaosError> {
    let mut program_totals = journal.program_totals();
    let select =
        format!("SELECT program, steps, tokens_total, coalesce(ended, '') FROM {schema}.programs");
    for row in psql.rows(&select)? {
        let [program, steps, tokens, ended] = row.as_slice() else {
            return Err(ChaosError::Nonsense(format!("a row of programs: {row:?}")));
        };
        let stored = ProgramTotals {
            steps: number(Some(steps))?,
            tokens: number(Some(tokens))?,
        };
        let counted = program_totals.remove(program.as_str()).unwrap_or_default();
        if stored != counted && journal.began_again(program, stored) {
            let again = check_result.counted.entry("cut_and_begun_again".to_owned());
            *again.or_default() += 1;
        } else {
            compare(program, stored, counted, check_result);
        }
        if ended.is_empty() {
            check_result
                .stuck
                .add(1, format!("{program} has not ended"));
        }
    }
    let missing = program_totals.into_keys().filter(|name| !name.is_empty());
    let (gone, lost): (BTreeSet<&str>, _) =
        missing.partition(|program| may_be_gone(journal, program, before_us));
    for program in lost {
        let what = format!("{program} is only in the journal");
        check_result.lost.add(1, what);
    }
    Ok(gone)
}

/// Whether a program was released before a time.
fn may_be_gone(journal: &Journal, program: &str, before_us: Option<u64>) -> bool {
    let released = journal.released.get(program);
    released.is_some_and(|at_us| before_us.is_some_and(|before_us| *at_us < before_us))
}

fn compare(
    program: &str,
    stored: ProgramTotals,
    counted: ProgramTotals,
    check_result: &mut CheckResult,
) {
    if stored == counted {
        return;
    }
    let what = format!("{program}: {stored:?} are stored, the journal has {counted:?}");
    if stored.steps > counted.steps || stored.tokens > counted.tokens {
        check_result.double_counted.add(1, what);
    } else {
        check_result.lost.add(1, what);
    }
}

fn steps(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    gone: &BTreeSet<&str>,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let select = format!(
        "SELECT step, prompt_tokens, output_tokens FROM {schema}.steps \
         WHERE outcome NOT IN ('failed', 'refused', 'cancelled', 'interrupted')"
    );
    let mut stored = BTreeSet::new();
    for row in psql.rows(&select)? {
        let id = number(row.first())?;
        let tokens = (number(row.get(1))?, number(row.get(2))?);
        let finish = journal
            .steps
            .get(&id)
            .and_then(|step| step.finishes.first());
        if finish.map(|finish| (finish.prompt, finish.output)) != Some(tokens) {
            let what = format!("step {id} is stored with {tokens:?}, the journal has {finish:?}");
            check_result.double_counted.add(1, what);
        }
        stored.insert(id);
    }
    for (id, step) in &journal.steps {
        let is_gone = gone.contains(step.program.as_str());
        if !step.finishes.is_empty() && !stored.contains(id) && !is_gone {
            let what = format!("step {id} of {} finished only in the journal", step.program);
            check_result.lost.add(1, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::journal::tests::journal;
    use super::*;

    #[test]
    fn only_what_ended_long_ago_may_be_gone() {
        let released = serde_json::json!({"event": "program_released", "program": "p"});
        // All events of this journal are of the thousandth microsecond.
        let journal = journal(&[("p", released)]);
        assert!(may_be_gone(&journal, "p", Some(1_001)));
        assert!(!may_be_gone(&journal, "p", Some(1_000)), "too early");
        assert!(!may_be_gone(&journal, "p", None), "nothing is removed");
        assert!(!may_be_gone(&journal, "q", Some(1_001)), "it is not over");
    }

    #[test]
    fn more_is_counted_twice_and_less_is_lost() {
        let of = |steps, tokens| ProgramTotals { steps, tokens };
        let counts = |stored, counted| {
            let mut check_result = CheckResult::default();
            compare("p", stored, counted, &mut check_result);
            (check_result.lost.count, check_result.double_counted.count)
        };
        assert_eq!(counts(of(2, 20), of(2, 20)), (0, 0));
        assert_eq!(counts(of(3, 30), of(2, 20)), (0, 1));
        assert_eq!(counts(of(1, 10), of(2, 20)), (1, 0));
    }
}
