//! How many members the groups of a training run sample, which are cut short and which are trained:
//! by the policy that is bound for the job, without canary or shadow.

use super::PolicyEvaluator;
use super::assignment::Assignee;
use std::iter::zip;
use std::time::Instant;
use treadle_core::training::{
    Curtailed, GroupSize, Selection, ShapedGroups, ShapingAnswer, ShapingPurpose, ShapingQuestion,
};
use treadle_model::{PolicyRef, World};
use treadle_policy_runtime::{
    CallContext, GroupColumns, MemberColumns, PolicyFault, ShapingInstance, Verdict,
};

impl PolicyEvaluator {
    /// Calls the policy bound for the job. `None` if it does not implement the function, or gave no
    /// answer: then the core decides.
    pub fn shape(
        &mut self,
        question: &ShapingQuestion,
        now_ms: u64,
    ) -> Option<(PolicyRef, ShapingAnswer)> {
        let started = Instant::now();
        let (scope, _) = self.bindings.world(World::Shaping).of_job(&question.job);
        let assignee = Assignee {
            world: World::Shaping,
            scope,
            canary: false,
        };
        let function = match question.purpose {
            ShapingPurpose::Size => "size",
            ShapingPurpose::Curtail => "curtail",
            ShapingPurpose::Select => "select",
        };
        if !self.describes(&assignee, function) {
            return None;
        }
        let rows = question
            .groups
            .key
            .len()
            .max(question.members.program.len());
        let asked = self.ask_slot(&assignee, now_ms, rows, |instance| {
            let instance = instance.as_shaping_mut();
            put_to(instance.ok_or(PolicyFault::NotSupported)?, question, now_ms)
        });
        self.record_time(started);
        asked
    }
}

fn put_to(
    instance: &mut ShapingInstance,
    question: &ShapingQuestion,
    now_ms: u64,
) -> Result<ShapingAnswer, PolicyFault> {
    let context = CallContext {
        seed: now_ms,
        ..CallContext::at(now_ms)
    };
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
        ShapingPurpose::Size => sizes(question, &instance.size(&context, &groups)?),
        ShapingPurpose::Curtail => curtailed(question, &instance.curtail(&context, &columns)?),
        ShapingPurpose::Select => selected(question, &instance.select(&context, &columns)?),
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
