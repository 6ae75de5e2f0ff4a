//! Which hardware members prefer, by the domains of their groups.

use super::*;

fn affinity(text: &str) -> Result<Affinity, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn settings(affinity: Affinity) -> JobSettings {
    JobSettings {
        affinity: Some(affinity),
        ..Run::settings(1)
    }
}

fn run(text: &str) -> Run {
    let mut run = Run::new(settings(affinity(text).expect("it is valid")));
    for (group, domain) in [("m", Some("math")), ("c", Some("code")), ("n", None)] {
        run.event(&TrainingEvent::GroupSubmitted {
            job: "job".into(),
            group: group.into(),
            size: None,
            content: None,
            domain: domain.map(Box::from),
        });
    }
    run
}

impl Run {
    /// What a member of a group prefers when its program opens.
    fn preference(&mut self, group: &str) -> Preference {
        let program = self.open(group);
        self.notice(&Notice::ProgramOpened {
            program: program.clone(),
        });
        let (told, prefers) = self.preferences.pop().expect("it is a member");
        assert_eq!(told, program);
        prefers
    }
}

fn class(name: &str) -> Preference {
    Preference::Class(name.into())
}

#[test]
fn members_prefer_the_class_of_their_domain_and_others_that_of_default() {
    let mut both = run(r#"{"math": "h20", "default": "h800"}"#);
    assert_eq!(both.preference("m"), class("h20"));
    assert_eq!(both.preference("c"), class("h800"));
    assert_eq!(both.preference("n"), class("h800"));
    let mut one = run(r#"{"math": "h20"}"#);
    assert_eq!(one.preference("c"), Preference::Any);
    assert_eq!(run(r#""auto""#).preference("n"), Preference::Auto);
}

#[test]
fn programs_that_are_no_members_are_told_nothing() {
    let mut run = run(r#"{"default": "h800"}"#);
    run.notice(&Notice::ProgramOpened {
        program: "stranger".into(),
    });
    assert!(run.preferences.is_empty());
}

#[test]
fn new_settings_change_what_running_members_prefer() {
    let mut run = run(r#"{"math": "h20"}"#);
    run.preference("m");
    let mut declare = |text: &str| {
        run.event(&TrainingEvent::JobDeclared {
            job: "job".into(),
            settings: Box::new(settings(affinity(text).expect("it is valid"))),
        });
        std::mem::take(&mut run.preferences)
    };
    assert_eq!(declare(r#"{"math": "h20"}"#), [], "nothing changed");
    let told = declare(r#"{"math": "h800"}"#);
    assert_eq!(told, [("p1".into(), class("h800"))]);
}

#[test]
fn what_is_no_affinity_is_refused_with_the_remedy() {
    let wrong = affinity("3").expect_err("a number");
    assert!(wrong.contains("must be \"auto\", or an object"), "{wrong}");
    assert!(affinity(r#""fast""#).is_err());
    let problem = |text: &str| {
        let affinity = affinity(text).expect("it has the form");
        settings(affinity).problem()
    };
    assert_eq!(problem(r#"{"math": "h20", "default": "h800"}"#), None);
    let long = "h".repeat(65);
    let told = problem(&format!(r#"{{"math": "{long}"}}"#)).expect("too long");
    assert!(told.starts_with("`affinity` has 65 bytes; send"), "{told}");
    let told = problem(r#"{"": "h20"}"#).expect("empty");
    assert!(told.starts_with("`affinity` is empty; send"), "{told}");
    let many: Vec<String> = (0..65).map(|n| format!(r#""d{n}": "h20""#)).collect();
    let told = problem(&format!("{{{}}}", many.join(","))).expect("too many");
    assert!(told.contains("65 domains; name at most 64"), "{told}");
}

#[test]
fn settings_keep_their_form() {
    for text in [r#"{"default":"h800","math":"h20"}"#, r#""auto""#] {
        let read = affinity(text).expect("it is valid");
        assert_eq!(serde_json::to_string(&read).expect("it is written"), text);
    }
}
