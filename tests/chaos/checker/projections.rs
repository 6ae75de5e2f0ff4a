//! The projections beside the journal: what is asked for by name is what happened.

use std::collections::BTreeSet;

use treadle_services::Psql;

use super::check_result::CheckResult;
use super::journal::{Journal, ProgramTotals};
use super::number;
use crate::error::ChaosError;

/// Compares.
pub(super) fn check(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    programs(psql, schema, journal, check_result)?;
    steps(psql, schema, journal, check_result)
}

fn programs(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
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
        compare(program, stored, counted, check_result);
        if ended.is_empty() {
            check_result
                .stuck
                .add(1, format!("{program} has not ended"));
        }
    }
    for program in program_totals.keys().filter(|program| !program.is_empty()) {
        check_result
            .lost
            .add(1, format!("{program} is in the journal alone"));
    }
    Ok(())
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
    check_result: &mut CheckResult,
) -> Result<(), ChaosError> {
    let select = format!(
        "SELECT step, prompt_tokens, output_tokens FROM {schema}.steps \
         WHERE outcome NOT IN ('failed', 'cancelled', 'interrupted')"
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
        if !step.finishes.is_empty() && !stored.contains(id) {
            let what = format!(
                "step {id} of {} finished in the journal alone",
                step.program
            );
            check_result.lost.add(1, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
