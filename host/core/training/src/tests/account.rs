//! The bias account by domain.

use super::*;

impl Run {
    /// A group of a domain.
    fn submit(&mut self, group: &str, domain: &str) -> Result<(), TrainingError> {
        self.try_event(&TrainingEvent::GroupSubmitted {
            job: "job".into(),
            group: group.into(),
            size: None,
            content: None,
            domain: Some(domain.into()),
        })
    }

    fn of_domain(&self, domain: &str) -> &Outcomes {
        &self.job().account.domains[domain]
    }
}

#[test]
fn the_account_is_kept_by_domain_too() {
    let mut run = Run::new(Run::settings(1));
    run.submit("a", "math").expect("it is new");
    let program = run.open("a");
    run.event(&Run::ended("a", &program, End::EngineFailed));
    run.complete("a");
    run.complete("b");
    run.request(1);

    let (math, all) = (run.of_domain("math"), &run.job().account.all);
    assert_eq!((math.begun, all.begun), (3, 5));
    assert_eq!((math.served.members, all.served.members), (2, 4));
    assert_eq!((math.finished.members, all.finished.members), (2, 4));
    assert_eq!(math.lost[&End::EngineFailed].members, 1);
    assert_eq!(run.job().account.domains.len(), 1, "`b` has none");
}

#[test]
fn members_of_a_group_that_is_dropped_count_in_its_domain() {
    let mut run = Run::new(JobSettings {
        stale: Stale::Finish,
        ..Run::settings(1)
    });
    run.submit("old", "code").expect("it is new");
    let old = run.open("old");
    for batch in 1..=2_u64 {
        run.complete(&format!("a{batch}"));
        run.complete(&format!("b{batch}"));
        run.request(batch);
        run.told(batch);
    }
    run.event(&Run::ended("old", &old, End::Completed));
    assert!(!run.job().groups.contains_key("old"));
    let code = run.of_domain("code");
    assert_eq!((code.begun, code.finished.members), (1, 1));
    assert_eq!(code.lost[&End::Cut].members, 1);
}

#[test]
fn domains_beyond_the_limit_are_counted_together() {
    let mut run = Run::new(JobSettings {
        lag_max: 1_000,
        pipeline: 1_000,
        ..Run::settings(1)
    });
    for number in 0..70 {
        let group = format!("g{number}");
        run.submit(&group, &format!("d{number}"))
            .expect("it is new");
        run.open(&group);
    }
    assert_eq!(run.job().account.domains.len(), 65);
    assert_eq!(run.of_domain(OTHER).begun, 6);
    assert_eq!(run.of_domain("d63").begun, 1);
    let refused = run.submit("long", &"x".repeat(65));
    assert_eq!(refused, Err(TrainingError::Domain(65)));
    assert!(!run.job().has_group("long"));
}
