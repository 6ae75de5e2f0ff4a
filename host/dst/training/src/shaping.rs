//! A shaping policy: it answers at random, late, wrongly or never, and is bound and unbound.

use super::plan::SECOND_US;
use super::{Due, Simulation};
use treadle_core::bindings::BindingEvent;
use treadle_core::training::{
    Curtailed, GroupSize, Selection, ShapingAnswer, ShapingPurpose, ShapingQuestion, TrainingEvent,
};
use treadle_dst_outcome::Checked;
use treadle_dst_outcome::Stream;
use treadle_model::{AskId, PolicyRef, Role, World};

impl Simulation {
    /// Binds a job's policy, or unbinds it.
    pub(super) fn bind(&mut self, job: usize, binds: bool) -> Checked {
        let (world, role) = (World::Shaping, Role::Active);
        let scope = self.plan.jobs[job].name.clone();
        let event = if binds {
            BindingEvent::PolicyBound {
                world,
                scope,
                role,
                policy: PolicyRef("story".into()),
                digest: "story".into(),
                config: "{}".into(),
                share_ppm: 0,
                by_default: false,
            }
        } else {
            BindingEvent::PolicyUnbound { world, scope, role }
        };
        self.handle(event.into())
    }

    /// The policy is asked: it answers now, later, twice, or never.
    pub(super) fn asked(&mut self, ask: AskId, question: &ShapingQuestion) {
        self.counts.count("asked");
        let stream = &mut self.shaping;
        if stream.percent(10) {
            return;
        }
        let event = TrainingEvent::ShapingAnswered {
            job: question.job.clone(),
            ask,
            policy: PolicyRef("story".into()),
            answer: answer(question, stream),
        };
        let most = stream.pick(&[1, 10_000, 1_500_000]);
        let delay_us = stream.below(most);
        let comes_twice = stream.percent(10);
        self.after(delay_us, Due::Shape(Box::new(event.clone())));
        if comes_twice {
            self.after(delay_us + SECOND_US, Due::Shape(Box::new(event)));
        }
    }
}

fn answer(question: &ShapingQuestion, stream: &mut Stream) -> ShapingAnswer {
    let purposes = [
        ShapingPurpose::Size,
        ShapingPurpose::Curtail,
        ShapingPurpose::Select,
    ];
    let purpose = if stream.percent(5) {
        stream.pick(&purposes)
    } else {
        question.purpose
    };
    match purpose {
        ShapingPurpose::Size => sizes(question, stream),
        ShapingPurpose::Curtail => curtailed(question, stream),
        ShapingPurpose::Select => selected(question, stream),
    }
}

fn sizes(question: &ShapingQuestion, stream: &mut Stream) -> ShapingAnswer {
    let groups = question.groups.key.iter().zip(&question.groups.size_max);
    let mut sizes = Vec::new();
    for (group, most) in groups {
        if stream.percent(90) {
            let members = stream.below(u64::from(*most) + 2) as u16;
            let group = group.clone();
            sizes.push(GroupSize { group, members });
        }
    }
    ShapingAnswer::Sizes(sizes)
}

fn curtailed(question: &ShapingQuestion, stream: &mut Stream) -> ShapingAnswer {
    let members = &question.members;
    let mut ended = Vec::new();
    for (row, program) in members.program.iter().enumerate() {
        let group = &question.groups.key[members.group[row] as usize];
        if stream.percent(25) {
            ended.push(Curtailed {
                group: group.clone(),
                program: program.clone(),
                tokens: stream.below(1_000),
                turns: stream.below(9) as u32,
                again: stream.percent(25),
            });
        }
    }
    ShapingAnswer::Curtailed(ended)
}

fn selected(question: &ShapingQuestion, stream: &mut Stream) -> ShapingAnswer {
    let members = &question.members;
    let mut groups = Vec::new();
    for (row, group) in question.groups.key.iter().enumerate() {
        let rows = members.group.iter().zip(&members.program);
        let own = rows.filter(|(of, _)| **of as usize == row);
        let mut programs: Vec<Box<str>> = own.map(|(_, program)| program.clone()).collect();
        stream.shuffle(&mut programs);
        // Now and then one too few or too many.
        let wrong = stream.pick(&[0, 1, 1, 1, 1, 1, 1, 1, 1, 2]);
        programs.truncate((question.groups.size[row] as usize + wrong).saturating_sub(1));
        if stream.percent(95) {
            let group = group.clone();
            groups.push(Selection { group, programs });
        }
    }
    ShapingAnswer::Selected(groups)
}
