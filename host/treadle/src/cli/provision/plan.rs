//! A plan: the number of workers of each degree of parallelism.

use std::str::FromStr;

use serde_json::{Value, json};

use super::super::error::CliError;

/// Maximum number of workers in a plan.
const WORKERS_MAX: u64 = 1_024;
/// Maximum degree.
const DEGREE_MAX: u32 = 1_024;

/// Degrees and their numbers of workers, as given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Plan(Vec<(u32, u32)>);

impl Plan {
    fn checked(plan: Vec<(u32, u32)>) -> Result<Self, String> {
        if plan
            .iter()
            .any(|(degree, _)| !(1..=DEGREE_MAX).contains(degree))
        {
            return Err(format!("a degree is a number from 1 to {DEGREE_MAX}"));
        }
        let workers: u64 = plan.iter().map(|(_, count)| u64::from(*count)).sum();
        if workers > WORKERS_MAX {
            return Err(format!(
                "it has {workers} workers; give at most {WORKERS_MAX}"
            ));
        }
        Ok(Self(plan))
    }

    /// Parses the allocation policy's answer to these columns.
    pub(super) fn of_answer(columns: &Value, answer: &Value) -> Result<Self, CliError> {
        let numbers = |list: &Value| -> Option<Vec<u32>> {
            let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
            list.as_array()?.iter().map(number).collect()
        };
        let degrees = match &columns["degree"] {
            Value::Null => &answer["filled"]["columns"]["degree"],
            given => given,
        };
        let (degrees, counts) = (numbers(degrees), numbers(&answer["answer"]));
        let (Some(degrees), Some(counts)) = (degrees, counts) else {
            let what = format!("{answer} instead of a count for each degree");
            return Err(CliError::Failed(format!(
                "the allocation policy answered {what}"
            )));
        };
        let mut plan: Vec<(u32, u32)> = degrees.into_iter().zip(counts).collect();
        // Greatest degrees first, so that each engine's GPUs are adjacent.
        plan.sort_by_key(|(degree, _)| std::cmp::Reverse(*degree));
        Self::checked(plan).map_err(CliError::Failed)
    }

    /// Number of GPUs in use.
    pub(super) fn gpus(&self) -> u64 {
        let gpus = |(degree, count): &(u32, u32)| u64::from(*degree) * u64::from(*count);
        self.0.iter().map(gpus).sum()
    }

    /// The degree of each worker.
    pub(super) fn workers(&self) -> impl Iterator<Item = u32> + '_ {
        let of = |(degree, count): &(u32, u32)| std::iter::repeat_n(*degree, *count as usize);
        self.0.iter().flat_map(of)
    }

    /// Rows for people and for other programs.
    pub(super) fn rows(&self) -> Vec<Value> {
        let row = |(degree, count): &(u32, u32)| json!({"degree": degree, "workers": count});
        self.0
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(row)
            .collect()
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let pair = |part: &str| {
            let (degree, count) = part.split_once('x')?;
            Some((degree.parse().ok()?, count.parse().ok()?))
        };
        let pairs: Option<Vec<(u32, u32)>> = text.split(',').map(pair).collect();
        let pairs = pairs.ok_or("write it as degree x workers, such as 4x1,1x4")?;
        Self::checked(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read_and_bounded() {
        let plan: Plan = "4x1,1x2".parse().expect("a plan");
        assert_eq!(plan.workers().collect::<Vec<_>>(), [4, 1, 1]);
        assert_eq!(plan.gpus(), 6);
        for bad in ["", "4", "x", "0x1", "1x2000", "1x1,"] {
            assert!(bad.parse::<Plan>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_answer_is_counts_for_the_degrees_that_were_asked_about() {
        let columns = json!({"degree": [1, 2, 4]});
        let plan = Plan::of_answer(&columns, &json!({"answer": [2, 0, 1]})).expect("a plan");
        assert_eq!(plan.workers().collect::<Vec<_>>(), [4, 1, 1]);
        let filled = json!({"answer": [0, 1], "filled": {"columns": {"degree": [1, 2]}}});
        let filled = Plan::of_answer(&json!({}), &filled).expect("a plan");
        assert_eq!(filled.workers().collect::<Vec<_>>(), [2]);
        assert_eq!(plan.rows().len(), 2);
        assert!(Plan::of_answer(&columns, &json!({"answer": null})).is_err());
    }
}
