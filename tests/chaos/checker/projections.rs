//! The projections beside the journal: what is asked for by name is what happened.

use std::collections::BTreeSet;

use treadle_services::Psql;

use super::journal::{Journal, Tally};
use super::number;
use super::verdict::Verdict;
use crate::error::ChaosError;

/// Compares.
pub(super) fn check(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    verdict: &mut Verdict,
) -> Result<(), ChaosError> {
    programs(psql, schema, journal, verdict)?;
    steps(psql, schema, journal, verdict)
}

fn programs(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    verdict: &mut Verdict,
) -> Result<(), ChaosError> {
    let mut tallies = journal.tallies();
    let select =
        format!("SELECT program, steps, tokens_total, coalesce(ended, '') FROM {schema}.programs");
    for row in psql.rows(&select)? {
        let [program, steps, tokens, ended] = row.as_slice() else {
            return Err(ChaosError::Nonsense(format!("a row of programs: {row:?}")));
        };
        let stored = Tally {
            steps: number(Some(steps))?,
            tokens: number(Some(tokens))?,
        };
        let counted = tallies.remove(program.as_str()).unwrap_or_default();
        compare(program, stored, counted, verdict);
        if ended.is_empty() {
            verdict.stuck.add(1, format!("{program} has not ended"));
        }
    }
    for program in tallies.keys().filter(|program| !program.is_empty()) {
        verdict
            .lost
            .add(1, format!("{program} is in the journal alone"));
    }
    Ok(())
}

fn compare(program: &str, stored: Tally, counted: Tally, verdict: &mut Verdict) {
    if stored == counted {
        return;
    }
    let what = format!("{program}: {stored:?} are stored, the journal has {counted:?}");
    if stored.steps > counted.steps || stored.tokens > counted.tokens {
        verdict.double_counted.add(1, what);
    } else {
        verdict.lost.add(1, what);
    }
}

fn steps(
    psql: &Psql,
    schema: &str,
    journal: &Journal,
    verdict: &mut Verdict,
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
            verdict.double_counted.add(1, what);
        }
        stored.insert(id);
    }
    for (id, step) in &journal.steps {
        if !step.finishes.is_empty() && !stored.contains(id) {
            let what = format!(
                "step {id} of {} finished in the journal alone",
                step.program
            );
            verdict.lost.add(1, what);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_is_counted_twice_and_less_is_lost() {
        let of = |steps, tokens| Tally { steps, tokens };
        let counts = |stored, counted| {
            let mut verdict = Verdict::default();
            compare("p", stored, counted, &mut verdict);
            (verdict.lost.count, verdict.double_counted.count)
        };
        assert_eq!(counts(of(2, 20), of(2, 20)), (0, 0));
        assert_eq!(counts(of(3, 30), of(2, 20)), (0, 1));
        assert_eq!(counts(of(1, 10), of(2, 20)), (1, 0));
    }
}
