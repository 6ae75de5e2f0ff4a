//! The world `shaping`: how many members the groups of training runs sample, which are cut short, and
//! which are trained.

use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::{calls, record, world};
use crate::answers;
use crate::call::{CallContext, Urgency};
use crate::error::PolicyFault;
use crate::instance::{Answer, Check, Description};
use crate::sandbox::Sandbox;

pub use treadle_plugin::{GroupColumns, MemberColumns, Verdict};

world! {
    /// A running policy of the world `shaping`.
    ShapingInstance: "shaping", Shaping, ShapingPre
}

use raw::exports::treadle::policy::shaping_policy as given;

calls! { ShapingInstance, treadle_policy_shaping_policy:
    /// How many members each group samples.
    size(groups: GroupColumns) -> Vec<u32> {
        admit "size" [groups.len()] |_| groups.check();
        ask Hot call_size(record!(given::GroupColumns of groups {
            prompt, domain, size, size_max, sampled, postponed,
        }));
        check |sizes| check_sizes(sizes, groups);
    }

    /// A verdict for each member.
    curtail(members: MemberColumns) -> Vec<Verdict> {
        admit "curtail" [members.len(), members.groups.len()] |_| members.check();
        ask Hot call_curtail(
            record!(given::MemberColumns of members {
                group, state, tokens, turns, elapsed_ms, lag, batch_groups, ready_groups,
            }),
            record!(given::GroupColumns of (members.groups) {
                prompt, domain, size, size_max, sampled, postponed,
            }),
        );
        check |verdicts| answers::length("verdicts", verdicts.len(), members.len());
        into verdicts => verdicts.into_iter().map(Into::into).collect();
    }

    /// Which members are trained.
    select(members: MemberColumns) -> Vec<bool> {
        admit "select" [members.len(), members.groups.len()] |_| members.check();
        ask Hot call_select(
            record!(given::MemberColumns of members {
                group, state, tokens, turns, elapsed_ms, lag, batch_groups, ready_groups,
            }),
            record!(given::GroupColumns of (members.groups) {
                prompt, domain, size, size_max, sampled, postponed,
            }),
        );
        check |selected| check_selection(selected, members);
    }
}

impl From<given::Verdict> for Verdict {
    fn from(verdict: given::Verdict) -> Self {
        match verdict {
            given::Verdict::GoOn => Self::GoOn,
            given::Verdict::End => Self::End,
            given::Verdict::Again => Self::Again,
        }
    }
}

fn check_sizes(sizes: &[u32], groups: &GroupColumns<'_>) -> Check {
    let expected = "a number from the group's size to its `size-max`";
    answers::each("sizes", sizes, groups.len(), expected, |row, size| {
        (groups.size[row]..=groups.size_max[row]).contains(&size)
    })
}

fn check_selection(selected: &[bool], members: &MemberColumns<'_>) -> Check {
    answers::length("selected", selected.len(), members.len())?;
    for (group, size) in members.groups.size.iter().enumerate() {
        let rows = &selected[members.of_group(group)];
        let chosen = rows.iter().filter(|chosen| **chosen).count();
        if chosen != *size as usize {
            return Err(format!(
                "selected: {chosen} members in group {group}, expected its size {size}"
            ));
        }
    }
    Ok(())
}
