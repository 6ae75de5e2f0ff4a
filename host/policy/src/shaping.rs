//! How a shaping policy is asked about groups of training runs, and what its answers mean: of policies
//! in the sandbox, and of those that comparisons call natively.

use std::iter::zip;
use treadle_core::training::{
    Curtailed, GroupSize, Selection, ShapedGroups, ShapingAnswer, ShapingPurpose, ShapingQuestion,
};
use treadle_policy_runtime::{GroupColumns, MemberColumns, Verdict};

/// The functions of a shaping policy, whose answers have a row for each row of the question.
pub trait Shape {
    /// Why there is no answer.
    type Error;

    /// How many members each group samples.
    ///
    /// # Errors
    /// The policy failed.
    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, Self::Error>;

    /// A verdict for each member.
    ///
    /// # Errors
    /// The policy failed.
    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, Self::Error>;

    /// Which members are trained.
    ///
    /// # Errors
    /// The policy failed.
    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, Self::Error>;
}

/// Asks a policy.
///
/// # Errors
/// The policy failed.
pub fn ask<S: Shape + ?Sized>(
    policy: &mut S,
    question: &ShapingQuestion,
) -> Result<ShapingAnswer, S::Error> {
    let groups = columns_of(&question.groups);
    let members = &question.members;
    let columns = MemberColumns {
        group: &members.group,
        state: &members.state,
        tokens: &members.tokens,
        turns: &members.turns,
        elapsed_ms: &members.elapsed_ms,
        lag: &members.lag,
        batch_groups: members.batch_groups,
        ready_groups: members.ready_groups,
        groups,
    };
    Ok(match question.purpose {
        ShapingPurpose::Size => sizes(question, &policy.size(&groups)?),
        ShapingPurpose::Curtail => curtailed(question, &policy.curtail(&columns)?),
        ShapingPurpose::Select => selected(question, &policy.select(&columns)?),
    })
}

fn columns_of(groups: &ShapedGroups) -> GroupColumns<'_> {
    GroupColumns {
        prompt: &groups.prompt,
        domain: &groups.domain,
        size: &groups.size,
        size_max: &groups.size_max,
        sampled: &groups.sampled,
        postponed: &groups.postponed,
    }
}

fn sizes(question: &ShapingQuestion, sizes: &[u32]) -> ShapingAnswer {
    let rows = zip(&question.groups.key, sizes);
    let sizes = rows.map(|(group, members)| GroupSize {
        group: group.clone(),
        members: u16::try_from(*members).unwrap_or(u16::MAX),
    });
    ShapingAnswer::Sizes(sizes.collect())
}

fn curtailed(question: &ShapingQuestion, verdicts: &[Verdict]) -> ShapingAnswer {
    let members = &question.members;
    let rows = verdicts.iter().enumerate();
    // What would not count is not put on record.
    let counts = |(row, verdict): &(usize, &Verdict)| match verdict {
        Verdict::GoOn => false,
        Verdict::End => members.state[*row] == 0,
        Verdict::Again => true,
    };
    let ended = rows.filter(counts).map(|(row, verdict)| Curtailed {
        group: question.groups.key[members.group[row] as usize].clone(),
        program: members.program[row].clone(),
        tokens: members.tokens[row],
        turns: members.turns[row],
        again: *verdict == Verdict::Again,
    });
    ShapingAnswer::Curtailed(ended.collect())
}

fn selected(question: &ShapingQuestion, selected: &[bool]) -> ShapingAnswer {
    let members = &question.members;
    let mut groups: Vec<Selection> = question
        .groups
        .key
        .iter()
        .map(|group| Selection {
            group: group.clone(),
            programs: Vec::new(),
        })
        .collect();
    for (row, _) in selected.iter().enumerate().filter(|(_, chosen)| **chosen) {
        let program = members.program[row].clone();
        groups[members.group[row] as usize].programs.push(program);
    }
    ShapingAnswer::Selected(groups)
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_core::training::ShapedMembers;

    /// Ends each member.
    struct Ends;

    impl Shape for Ends {
        type Error = ();

        fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, ()> {
            Ok(groups.size_max.to_vec())
        }

        fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, ()> {
            Ok(vec![Verdict::End; members.len()])
        }

        fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, ()> {
            Ok(members.tokens.iter().map(|tokens| *tokens > 10).collect())
        }
    }

    fn question(purpose: ShapingPurpose) -> ShapingQuestion {
        ShapingQuestion {
            job: "math".into(),
            purpose,
            groups: ShapedGroups {
                key: vec!["g".into()],
                size_max: vec![3],
                ..ShapedGroups::default()
            },
            members: ShapedMembers {
                program: vec!["runs".into(), "ended".into()],
                group: vec![0, 0],
                state: vec![0, 1],
                tokens: vec![5, 50],
                turns: vec![1, 2],
                elapsed_ms: vec![1, 2],
                lag: vec![0, 0],
                ..ShapedMembers::default()
            },
        }
    }

    #[test]
    fn only_what_counts_is_in_an_answer() {
        let answer = |purpose| ask(&mut Ends, &question(purpose)).expect("it answers");
        let ShapingAnswer::Curtailed(ended) = answer(ShapingPurpose::Curtail) else {
            panic!("members are asked about");
        };
        let programs: Vec<&str> = ended.iter().map(|member| &*member.program).collect();
        assert_eq!(programs, ["runs"], "one that has ended can't end early");
        let ShapingAnswer::Selected(groups) = answer(ShapingPurpose::Select) else {
            panic!("members are selected");
        };
        assert_eq!(groups[0].programs, vec![Box::from("ended")]);
    }
}
