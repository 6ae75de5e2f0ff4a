//! Groups as a shaping policy decides about them.

use super::*;
use crate::account::Tally;
use treadle_machine::EVERYONE;
use treadle_model::PolicyRef;

/// Groups of two of up to four, and batches of one.
fn shaped() -> Run {
    run(JobSettings {
        batch_groups: 1,
        starved_after: 2,
        redundancy_max: 2,
        ..Run::settings(1)
    })
}

fn run(settings: JobSettings) -> Run {
    let mut run = Run::new(settings);
    run.bind(true);
    run
}

impl Run {
    fn bind(&mut self, shapes: bool) {
        let mut jobs = BoundJobs::default();
        jobs.scopes.insert(EVERYONE.into(), shapes);
        self.notice(&Notice::PoliciesBound {
            ranked: BoundJobs::default(),
            placed: BoundJobs::default(),
            shaped: jobs,
        });
    }

    /// The open question, which is of this purpose.
    fn question(&mut self, purpose: ShapingPurpose) -> (AskId, ShapingQuestion) {
        let (ask, question) = self.asked.pop().expect("a policy was asked");
        assert_eq!(question.purpose, purpose);
        assert!(self.asked.is_empty(), "one question at a time");
        (ask, question)
    }

    fn answer(&mut self, ask: AskId, answer: ShapingAnswer) {
        self.event(&TrainingEvent::ShapingAnswered {
            job: "job".into(),
            ask,
            policy: PolicyRef("test".into()),
            answer,
        });
    }

    fn answer_size(&mut self, members: u16) {
        let (ask, question) = self.question(ShapingPurpose::Size);
        let sizes = question.groups.key.into_iter();
        let sizes = sizes.map(|group| GroupSize { group, members });
        self.answer(ask, ShapingAnswer::Sizes(sizes.collect()));
    }

    /// Ends members of a group, or puts them off.
    fn answer_curtail(&mut self, group: &str, programs: &[&str], again: bool) {
        let (ask, _) = self.question(ShapingPurpose::Curtail);
        let members = programs.iter().map(|program| Curtailed {
            group: group.into(),
            program: (*program).into(),
            tokens: 70,
            turns: 3,
            again,
        });
        self.answer(ask, ShapingAnswer::Curtailed(members.collect()));
    }

    fn answer_select(&mut self, group: &str, programs: &[&str]) {
        let (ask, _) = self.question(ShapingPurpose::Select);
        let selection = Selection {
            group: group.into(),
            programs: programs.iter().map(|program| (*program).into()).collect(),
        };
        self.answer(ask, ShapingAnswer::Selected(vec![selection]));
    }

    fn end(&mut self, group: &str, program: &str, end: End) {
        self.event(&Self::ended(group, program, end));
    }

    /// A group that samples this many members, which all run.
    fn begin_group(&mut self, group: &str, members: u16) {
        self.open(group);
        self.answer_size(members);
        for _ in 1..members {
            self.open(group);
        }
    }

    fn members(&self, group: &str) -> Vec<&str> {
        let members = self.job().groups[group].members.keys();
        members.map(|program| &**program).collect()
    }

    fn after(&mut self, seconds: u64) {
        let now = self.machine.now + Span::from_secs(seconds);
        self.machine.advance(now);
        self.settle();
    }

    fn lost(&self, end: End) -> Tally {
        let lost = self.job().account.all.lost.get(&end);
        lost.copied().unwrap_or_default()
    }
}

#[test]
fn programs_wait_until_the_policy_has_sized_their_group() {
    let mut run = shaped();
    run.open("a");
    assert!(run.admitted.is_empty());
    assert_eq!(run.job().wait("a"), Some(Wait::Policy));
    run.answer_size(100);
    assert_eq!(run.admitted.len(), 1, "within its bounds");
    for _ in 0..4 {
        run.open("a");
    }
    assert_eq!(run.admitted.len(), 5, "the last one is surplus");
    assert_eq!(run.members("a"), ["p1", "p2", "p3", "p4"]);
    assert!(run.asked.is_empty());
}

#[test]
fn groups_that_are_next_are_sized_together() {
    let mut run = run(JobSettings {
        batch_groups: 3,
        ..Run::settings(1)
    });
    for group in ["a", "b", "c", "d"] {
        run.event(&TrainingEvent::GroupSubmitted {
            job: "job".into(),
            group: group.into(),
            size: None,
            content: Some("same".into()),
            domain: (group == "b").then(|| "math".into()),
        });
    }
    run.open("c");
    let (_, question) = run.question(ShapingPurpose::Size);
    let groups = question.groups;
    assert_eq!(groups.key, ["c".into(), "a".into(), "b".into()]);
    assert_eq!(groups.prompt[0], groups.prompt[1], "the same content");
    assert_eq!((groups.domain[0], groups.domain[2] != 0), (0, true));
    assert_eq!((groups.size[0], groups.size_max[0]), (2, 4));
}

#[test]
fn a_policy_that_is_late_holds_nobody_up() {
    let mut run = shaped();
    run.open("a");
    let (late, question) = run.question(ShapingPurpose::Size);
    assert!(run.machine.next_deadline().is_some());
    run.after(1);
    assert_eq!(run.admitted.len(), 1);
    let group = GroupSize {
        group: question.groups.key[0].clone(),
        members: 4,
    };
    run.answer(late, ShapingAnswer::Sizes(vec![group]));
    assert_eq!(run.job().groups["a"].shape.sampled, 2, "it has begun");
    let program = run.open("a");
    run.end("a", "p1", End::Completed);
    run.end("a", &program, End::Completed);
    run.question(ShapingPurpose::Select);
    run.after(1);
    assert_eq!(run.job().ready.len(), 1);
}

#[test]
fn an_unbound_policy_is_asked_no_more() {
    let mut run = shaped();
    run.open("a");
    run.bind(false);
    assert_eq!(run.admitted.len(), 1);
    run.open("b");
    assert_eq!(run.admitted.len(), 2);
    run.complete("b");
    assert_eq!(run.job().groups["b"].shape.sampled, 2);
}

#[test]
fn what_is_sampled_beyond_the_size_is_the_budget_for_failures() {
    let mut run = shaped();
    run.begin_group("a", 4);
    run.end("a", "p1", End::EnvironmentFailed);
    run.end("a", "p2", End::EnvironmentFailed);
    assert_eq!(run.job().groups["a"].missing(), 0);
    run.end("a", "p3", End::EnvironmentFailed);
    assert_eq!(run.job().groups["a"].missing(), 1, "less than its size");
    run.open("a");
    assert_eq!(run.members("a"), ["p4", "p5"]);
}

#[test]
fn members_end_early_but_never_below_the_size() {
    let mut run = shaped();
    run.begin_group("a", 4);
    run.end("a", "p1", End::Completed);
    assert!(run.asked.is_empty());
    run.end("a", "p3", End::Completed);
    // An answer about one that has ended counts as little as one about a stranger.
    run.answer_curtail("a", &["p4", "p3", "p9", "p2"], false);
    assert_eq!(run.cut, ["p4".into(), "p2".into()]);
    assert_eq!(run.members("a"), ["p1", "p3"]);
    let tally = run.lost(End::Curtailed);
    assert_eq!((tally.members, tally.tokens, tally.turns), (2, 140, 6));
    assert_eq!(run.open("a"), "p5".into());
    assert_eq!(run.members("a"), ["p1", "p3"], "they are not replaced");
    run.answer_select("a", &["p1", "p3"]);
    assert_eq!(run.job().ready.len(), 1);
}

#[test]
fn running_members_are_looked_at_each_second() {
    let mut run = shaped();
    run.begin_group("a", 3);
    for program in ["p1", "p2"] {
        run.end("a", program, End::Completed);
    }
    for _ in 0..3 {
        let (_, question) = run.question(ShapingPurpose::Curtail);
        assert_eq!(question.members.state, [1, 1, 0]);
        assert_eq!(question.members.batch_groups, 1);
        let ask = run.job().shaping.ask.clone().expect("it is open").ask;
        run.answer(ask, ShapingAnswer::Curtailed(Vec::new()));
        assert!(run.asked.is_empty());
        run.after(1);
    }
    run.answer_curtail("a", &["p3"], false);
    run.answer_select("a", &["p1", "p2"]);
    run.event(&TrainingEvent::BatchRequested {
        job: "job".into(),
        batch: 1,
    });
    run.after(1);
    assert!(run.asked.is_empty());
    assert_eq!(run.job().shaping.look_at, None);
}

#[test]
fn members_are_looked_at_when_weights_change_and_a_batch_could_be_cut() {
    let mut run = shaped();
    run.begin_group("a", 2);
    run.begin_group("b", 2);
    run.end("a", "p1", End::Completed);
    run.end("a", "p2", End::Completed);
    run.answer_select("a", &["p1", "p2"]);
    run.after(1);
    let (ask, question) = run.question(ShapingPurpose::Curtail);
    assert_eq!(question.groups.key, ["b".into()]);
    assert_eq!(question.members.ready_groups, 1);
    run.answer(ask, ShapingAnswer::Curtailed(Vec::new()));
    run.event(&TrainingEvent::BatchRequested {
        job: "job".into(),
        batch: 1,
    });
    run.event(&TrainingEvent::VersionTold {
        job: "job".into(),
        lineage: 0,
        version: 1,
        digest: None,
    });
    let (_, question) = run.question(ShapingPurpose::Curtail);
    assert_eq!(question.members.lag, [1, 1]);
}

/// Puts all members of the group off, as the policy of one that has taken too long.
fn put_off(run: &mut Run, group: &str) {
    run.job_mut().look_at_all();
    run.machine.touched.insert("job".into());
    run.settle();
    let programs: Vec<Box<str>> = run.job().groups[group].members.keys().cloned().collect();
    let programs: Vec<&str> = programs.iter().map(|program| &**program).collect();
    run.answer_curtail(group, &programs, true);
}

impl Run {
    fn job_mut(&mut self) -> &mut Job {
        self.machine.state.jobs.get_mut("job").expect("it exists")
    }
}

#[test]
fn a_group_that_was_put_off_goes_to_the_end_of_the_queue_and_does_not_starve() {
    let mut run = shaped();
    run.begin_group("a", 3);
    run.event(&TrainingEvent::GroupSubmitted {
        job: "job".into(),
        group: "b".into(),
        size: None,
        content: None,
        domain: None,
    });
    run.end("a", "p1", End::Completed);
    put_off(&mut run, "a");
    assert_eq!(
        run.lost(End::Postponed).members,
        3,
        "also the one that ended"
    );
    assert_eq!(run.cut.len(), 2, "those that ran");
    let order: Vec<&str> = run.job().open.iter().map(|(_, _, key)| &**key).collect();
    assert_eq!(order, ["b", "a"]);
    run.begin_group("a", 2);
    put_off(&mut run, "a");
    assert_eq!(run.job().groups["a"].shape.postponed, 2);
    run.begin_group("a", 2);
    put_off(&mut run, "a");
    assert_eq!(run.members("a").len(), 2, "it was put off often enough");
}

#[test]
fn a_member_that_was_put_off_is_replaced() {
    let mut run = shaped();
    run.begin_group("a", 3);
    run.job_mut().look_at_all();
    run.machine.touched.insert("job".into());
    run.settle();
    run.answer_curtail("a", &["p2"], true);
    assert_eq!(run.job().groups["a"].missing(), 1);
    run.open("a");
    assert_eq!(run.members("a"), ["p1", "p3", "p4"]);
    assert_eq!(run.job().groups["a"].failures, 0);
}

#[test]
fn the_selected_members_are_trained_and_the_others_are_on_the_account() {
    let mut run = shaped();
    run.begin_group("a", 4);
    for program in ["p1", "p2", "p3"] {
        run.end("a", program, End::Completed);
    }
    run.asked.clear();
    run.end("a", "p4", End::Truncated);
    run.after(1);
    let (_, question) = run.question(ShapingPurpose::Select);
    assert_eq!(question.members.state, [1, 1, 1, 2]);
    let ask = run.job().shaping.ask.clone().expect("it is open").ask;
    run.asked.push((ask, question));
    run.answer_select("a", &["p2", "p4"]);
    run.event(&TrainingEvent::BatchRequested {
        job: "job".into(),
        batch: 1,
    });
    assert_eq!(run.served, [(1, vec!["a".into()])]);
    let batch = &run.job().batches[&1].groups["a"];
    let trained: Vec<&str> = batch.members.keys().map(|program| &**program).collect();
    assert_eq!(trained, ["p2", "p4"]);
    let account = &run.job().account.all;
    assert_eq!(account.finished.members, 4, "all that were sampled");
    assert_eq!(account.served.members, 2);
    assert_eq!(run.lost(End::Unselected).tokens, 20);
    assert!(run.cut.is_empty());
}

#[test]
fn spares_that_do_not_begin_are_not_waited_for() {
    let mut run = shaped();
    run.open("a");
    run.answer_size(4);
    run.open("a");
    run.end("a", "p1", End::Completed);
    assert!(run.asked.is_empty());
    run.end("a", "p2", End::Completed);
    run.answer_select("a", &["p1", "p2"]);
    assert_eq!(run.job().ready.len(), 1);
    run.open("a");
    assert_eq!(run.members("a"), ["p1", "p2"], "it comes too late");
}

#[test]
fn a_wrong_selection_is_replaced_by_those_that_began_first() {
    for wrong in [
        &["p3"][..],
        &["p3", "p3"],
        &["p3", "p9"],
        &["p1", "p2", "p3"],
    ] {
        let mut run = shaped();
        run.begin_group("a", 3);
        run.end("a", "p3", End::Completed);
        run.end("a", "p2", End::Completed);
        run.asked.clear();
        run.end("a", "p1", End::Completed);
        run.after(1);
        run.answer_select("a", wrong);
        assert_eq!(run.members("a"), ["p1", "p2"]);
        assert_eq!(run.job().ready.len(), 1);
    }
}

#[test]
fn a_member_that_is_lost_after_the_selection_is_replaced() {
    let mut run = shaped();
    run.begin_group("a", 2);
    run.end("a", "p1", End::Completed);
    run.end("a", "p2", End::Completed);
    run.answer_select("a", &["p1", "p2"]);
    run.event(&TrainingEvent::RewardFailed {
        member: Run::member("a", "p2"),
        cause: "the judge is gone".into(),
    });
    assert!(run.job().ready.is_empty());
    let program = run.open("a");
    run.end("a", &program, End::Completed);
    run.answer_select("a", &["p1", &program]);
    assert_eq!(run.job().ready.len(), 1);
}

#[test]
fn a_group_that_is_judged_together_is_judged_once_the_rest_is_cut() {
    let mut run = run(JobSettings {
        rewarded: true,
        judged_together: true,
        reward: Some("{}".into()),
        ..Run::settings(1)
    });
    run.begin_group("a", 3);
    run.end("a", "p1", End::Completed);
    run.end("a", "p2", End::Completed);
    assert!(run.scored.is_empty());
    run.answer_curtail("a", &["p3"], false);
    assert_eq!(run.scored, ["p1".into()]);
}

#[test]
fn groups_begin_anew_after_the_trainer_went_back() {
    let mut run = shaped();
    run.begin_group("a", 2);
    run.end("a", "p1", End::Completed);
    run.end("a", "p2", End::Completed);
    run.answer_select("a", &["p1", "p2"]);
    for batch in [1, 2] {
        run.event(&TrainingEvent::BatchRequested {
            job: "job".into(),
            batch,
        });
    }
    run.event(&TrainingEvent::VersionTold {
        job: "job".into(),
        lineage: 0,
        version: 1,
        digest: None,
    });
    run.begin_group("b", 4);
    run.event(&TrainingEvent::RolledBack {
        job: "job".into(),
        lineage: 0,
        batch: 0,
    });
    let group = &run.job().groups["b"];
    assert_eq!((group.shape.sampled, group.missing()), (0, 2));
}
