//! `size`, `curtail` and `select`.

use treadle_model::World;
use treadle_policy_runtime::{GroupColumns, MemberColumns, PolicyFault, PolicyInstance, Verdict};

use crate::fixture::CONTEXT;
use crate::scripted::{Reply, answering, list, refused, u8s, u32s};

/// A group of two of up to four, and one of one.
const GROUPS: GroupColumns<'_> = GroupColumns {
    prompt: &[7, 8],
    domain: &[0, 3],
    size: &[2, 1],
    size_max: &[4, 1],
    sampled: &[3, 1],
    postponed: &[0, 0],
};

const MEMBERS: MemberColumns<'_> = MemberColumns {
    group: &[0, 0, 0, 1],
    state: &[1, 2, 0, 1],
    tokens: &[10, 20, 30, 40],
    turns: &[1, 1, 1, 1],
    elapsed_ms: &[5, 6, 7, 8],
    lag: &[0, 0, 1, 0],
    batch_groups: 2,
    ready_groups: 0,
    groups: GROUPS,
};

fn size(policy: &mut PolicyInstance) -> Result<Vec<u32>, PolicyFault> {
    policy.as_shaping_mut().unwrap().size(&CONTEXT, &GROUPS)
}

fn curtail(policy: &mut PolicyInstance) -> Result<Vec<Verdict>, PolicyFault> {
    policy.as_shaping_mut().unwrap().curtail(&CONTEXT, &MEMBERS)
}

fn select(policy: &mut PolicyInstance) -> Result<Vec<bool>, PolicyFault> {
    policy.as_shaping_mut().unwrap().select(&CONTEXT, &MEMBERS)
}

#[test]
fn sizes_are_within_their_bounds() {
    let sizes = |sizes: &[u32]| answering(World::Shaping, "size", list(u32s(sizes)));
    assert_eq!(size(&mut sizes(&[4, 1])), Ok(vec![4, 1]));
    refused(sizes(&[5, 1]), "sizes: 5 in row 0", size);
    refused(sizes(&[1, 1]), "sizes: 1 in row 0", size);
    refused(sizes(&[4]), "1 values for 2 rows", size);
}

#[test]
fn every_member_gets_a_verdict() {
    use Verdict::{Again, End, GoOn};
    let verdicts = |codes: &[u8]| answering(World::Shaping, "curtail", list(u8s(codes)));
    let given = curtail(&mut verdicts(&[0, 2, 1, 0]));
    assert_eq!(given, Ok(vec![GoOn, Again, End, GoOn]));
    refused(verdicts(&[0, 0]), "2 values for 4 rows", curtail);
}

#[test]
fn as_many_of_each_group_are_trained_as_its_size() {
    let selects = |flags: &[u8]| answering(World::Shaping, "select", list(u8s(flags)));
    let given = select(&mut selects(&[1, 0, 1, 1]));
    assert_eq!(given, Ok(vec![true, false, true, true]));
    refused(selects(&[1, 1, 1, 1]), "3 members in group 0", select);
    refused(selects(&[1, 1, 0, 0]), "0 members in group 1", select);
    refused(selects(&[1]), "1 values for 4 rows", select);
}

#[test]
fn columns_are_checked_before_the_policy_is_asked() {
    let mut policy = answering(World::Shaping, "curtail", Reply::NotSupported);
    let policy = policy.as_shaping_mut().unwrap();
    let mixed = MemberColumns {
        group: &[0, 1, 0, 1],
        ..MEMBERS
    };
    let outside = MemberColumns {
        group: &[0, 0, 0, 2],
        ..MEMBERS
    };
    let unknown = MemberColumns {
        state: &[0, 1, 2, 3],
        ..MEMBERS
    };
    for (columns, word) in [(mixed, "group"), (outside, "group"), (unknown, "state")] {
        let Err(PolicyFault::BadInput { detail }) = policy.curtail(&CONTEXT, &columns) else {
            panic!("asked")
        };
        assert!(detail.contains(word), "{detail}");
    }
}
