//! The shaping policies, linked natively, behind the questions that the core's machine asks.

use darts_shaping::DartsShaping;
use keep_shortest_shaping::KeepShortestShaping;
use partial_rollout_shaping::PartialRolloutShaping;
use std::iter::zip;
use tail_batching_shaping::TailBatchingShaping;
use treadle_core::training::{
    Curtailed, GroupSize, Selection, ShapedGroups, ShapingAnswer, ShapingPurpose, ShapingQuestion,
};
use treadle_plugin::{GroupColumns, MemberColumns, Policy, PolicyError, ShapingPolicy, Verdict};
use uniform_shaping::UniformShaping;

/// Policies that a run can have.
pub(super) const PLUGINS: [&str; 5] = [
    "uniform",
    "tail_batching",
    "keep_shortest",
    "partial_rollout",
    "darts",
];

/// A policy with its configuration, as JSON; none if there is no name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Shaping {
    /// Its name, one of [`PLUGINS`].
    pub(super) plugin: Option<&'static str>,
    /// Its configuration.
    pub(super) config: String,
}

impl Shaping {
    /// A policy with its defaults.
    pub(super) fn of(plugin: &'static str) -> Self {
        Self::with(plugin, "{}")
    }

    /// A policy with this configuration.
    pub(super) fn with(plugin: &'static str, config: &str) -> Self {
        Self {
            plugin: Some(plugin),
            config: config.to_owned(),
        }
    }
}

/// What the functions of a policy are called with, without its type.
trait Shape {
    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError>;
    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError>;
    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError>;
}

impl<P: ShapingPolicy> Shape for P {
    fn size(&mut self, groups: &GroupColumns<'_>) -> Result<Vec<u32>, PolicyError> {
        ShapingPolicy::size(self, groups)
    }

    fn curtail(&mut self, members: &MemberColumns<'_>) -> Result<Vec<Verdict>, PolicyError> {
        ShapingPolicy::curtail(self, members)
    }

    fn select(&mut self, members: &MemberColumns<'_>) -> Result<Vec<bool>, PolicyError> {
        ShapingPolicy::select(self, members)
    }
}

/// A policy at work.
pub(super) struct Shaper {
    policy: Box<dyn Shape>,
}

impl Shaper {
    /// `None` without a policy.
    ///
    /// # Errors
    /// The configuration is not one of the policy, or no policy has this name.
    pub(super) fn new(shaping: &Shaping) -> Result<Option<Self>, PolicyError> {
        let config = &shaping.config;
        let policy: Box<dyn Shape> = match shaping.plugin {
            None => return Ok(None),
            Some("uniform") => Box::new(UniformShaping::configure(config)?),
            Some("tail_batching") => Box::new(TailBatchingShaping::configure(config)?),
            Some("keep_shortest") => Box::new(KeepShortestShaping::configure(config)?),
            Some("partial_rollout") => Box::new(PartialRolloutShaping::configure(config)?),
            Some("darts") => Box::new(DartsShaping::configure(config)?),
            Some(other) => {
                return Err(PolicyError::failed(format!(
                    "no shaping policy is called {other}"
                )));
            }
        };
        Ok(Some(Self { policy }))
    }

    /// The policy's answer, or the one that leaves all to the core.
    pub(super) fn answer(&mut self, question: &ShapingQuestion) -> ShapingAnswer {
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
        let answer = match question.purpose {
            ShapingPurpose::Size => self
                .policy
                .size(&groups)
                .map(|sizes| sized(question, &sizes)),
            ShapingPurpose::Curtail => {
                let verdicts = self.policy.curtail(&columns);
                verdicts.map(|verdicts| curtailed(question, &verdicts))
            }
            ShapingPurpose::Select => {
                let chosen = self.policy.select(&columns);
                chosen.map(|chosen| selected(question, &chosen))
            }
        };
        answer.unwrap_or_else(|_| question.by_default())
    }
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

fn sized(question: &ShapingQuestion, sizes: &[u32]) -> ShapingAnswer {
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
    let ended = rows.filter(|(_, verdict)| **verdict != Verdict::GoOn);
    let ended = ended.map(|(row, verdict)| Curtailed {
        group: question.groups.key[members.group[row] as usize].clone(),
        program: members.program[row].clone(),
        tokens: members.tokens[row],
        turns: members.turns[row],
        again: *verdict == Verdict::Again,
    });
    ShapingAnswer::Curtailed(ended.collect())
}

fn selected(question: &ShapingQuestion, chosen: &[bool]) -> ShapingAnswer {
    let members = &question.members;
    let groups = question.groups.key.iter().enumerate();
    let groups = groups.map(|(row, group)| {
        let own = |at: &usize| members.group[*at] as usize == row && chosen[*at];
        let programs = (0..chosen.len()).filter(own);
        Selection {
            group: group.clone(),
            programs: programs.map(|at| members.program[at].clone()).collect(),
        }
    });
    ShapingAnswer::Selected(groups.collect())
}
