//! Calls of the world `shaping`.

use serde::Deserialize;
use serde_json::json;
use treadle_policy_runtime::{CallContext, GroupColumns, MemberColumns, ShapingInstance, Verdict};

use super::{Answered, Columns, NoAnswer, unknown};

/// Groups of a training run.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Groups {
    prompt: Vec<u64>,
    domain: Vec<u64>,
    size: Vec<u32>,
    size_max: Vec<u32>,
    sampled: Vec<u32>,
    postponed: Vec<u32>,
}

impl Groups {
    fn columns(&self) -> GroupColumns<'_> {
        GroupColumns {
            prompt: &self.prompt,
            domain: &self.domain,
            size: &self.size,
            size_max: &self.size_max,
            sampled: &self.sampled,
            postponed: &self.postponed,
        }
    }
}

/// Members of groups.
struct Members {
    group: Vec<u32>,
    state: Vec<u8>,
    tokens: Vec<u64>,
    turns: Vec<u32>,
    elapsed_ms: Vec<u64>,
    lag: Vec<u32>,
    batch_groups: u32,
    ready_groups: u32,
    groups: Groups,
}

impl Members {
    fn read(given: &Columns<'_>) -> Result<Self, NoAnswer> {
        let members = Self {
            group: given.take("group")?,
            state: given.take("state")?,
            tokens: given.take("tokens")?,
            turns: given.take("turns")?,
            elapsed_ms: given.take("elapsed_ms")?,
            lag: given.take("lag")?,
            batch_groups: given.take("batch_groups")?,
            ready_groups: given.take("ready_groups")?,
            groups: given.take("groups")?,
        };
        given.all_taken()?;
        Ok(members)
    }

    fn columns(&self) -> MemberColumns<'_> {
        MemberColumns {
            group: &self.group,
            state: &self.state,
            tokens: &self.tokens,
            turns: &self.turns,
            elapsed_ms: &self.elapsed_ms,
            lag: &self.lag,
            batch_groups: self.batch_groups,
            ready_groups: self.ready_groups,
            groups: self.groups.columns(),
        }
    }
}

pub(super) fn ask(
    policy: &mut ShapingInstance,
    context: &CallContext,
    function: &str,
    given: &Columns<'_>,
) -> Answered {
    match function {
        "size" => {
            let groups: Groups = given.take("groups")?;
            given.all_taken()?;
            Ok(json!(policy.size(context, &groups.columns())?))
        }
        "curtail" => {
            let members = Members::read(given)?;
            let verdicts = policy.curtail(context, &members.columns())?;
            let names: Vec<&str> = verdicts.into_iter().map(Verdict::as_str).collect();
            Ok(json!(names))
        }
        "select" => {
            let members = Members::read(given)?;
            Ok(json!(policy.select(context, &members.columns())?))
        }
        _ => unknown(function, "size, curtail and select"),
    }
}
