//! Glue between the bindings of the world `shaping` and [`ShapingPolicy`].

use std::marker::PhantomData;

use super::plugin::Failure;
use super::{Exported, lent};
use crate::{GroupColumns, MemberColumns, ShapingPolicy, Verdict};

super::bindings!("guest-shaping", "treadle_plugin::guest::shaping::raw");

use raw::exports::treadle::policy::shaping_policy as world;

/// Exports `shaping-policy` for a policy.
pub struct Guest<P>(PhantomData<P>);

impl<P: Exported + ShapingPolicy> world::Guest for Guest<P> {
    fn size(given: world::GroupColumns) -> Result<Vec<u32>, Failure> {
        let columns = groups_of(&given);
        P::ask(columns.check(), |policy| policy.size(&columns))
    }

    fn curtail(
        given: world::MemberColumns,
        groups: world::GroupColumns,
    ) -> Result<Vec<world::Verdict>, Failure> {
        let columns = members_of(&given, &groups);
        let verdicts = P::ask(columns.check(), |policy| policy.curtail(&columns))?;
        Ok(verdicts.into_iter().map(Into::into).collect())
    }

    fn select(
        given: world::MemberColumns,
        groups: world::GroupColumns,
    ) -> Result<Vec<bool>, Failure> {
        let columns = members_of(&given, &groups);
        P::ask(columns.check(), |policy| policy.select(&columns))
    }
}

fn groups_of(given: &world::GroupColumns) -> GroupColumns<'_> {
    lent!(GroupColumns of given { prompt, domain, size, size_max, sampled, postponed })
}

fn members_of<'a>(
    given: &'a world::MemberColumns,
    groups: &'a world::GroupColumns,
) -> MemberColumns<'a> {
    MemberColumns {
        group: &given.group,
        state: &given.state,
        tokens: &given.tokens,
        turns: &given.turns,
        elapsed_ms: &given.elapsed_ms,
        lag: &given.lag,
        batch_groups: given.batch_groups,
        ready_groups: given.ready_groups,
        groups: groups_of(groups),
    }
}

impl From<Verdict> for world::Verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::GoOn => Self::GoOn,
            Verdict::End => Self::End,
            Verdict::Again => Self::Again,
        }
    }
}
