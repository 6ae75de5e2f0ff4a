//! Bindings change as events say, within their bounds.

use super::*;

const WORLD: World = World::Priority;

fn bind(role: Role, digest: &str) -> BindingEvent {
    bind_to("run", role, digest)
}

fn bind_to(scope: &str, role: Role, digest: &str) -> BindingEvent {
    BindingEvent::PolicyBound {
        world: WORLD,
        scope: scope.into(),
        role,
        policy: PolicyRef(format!("p@1.0.0+{digest}")),
        digest: digest.into(),
        config: "{}".into(),
        share_ppm: 0,
        by_default: false,
    }
}

fn roll_back() -> BindingEvent {
    BindingEvent::PolicyRolledBack {
        world: WORLD,
        scope: "run".into(),
    }
}

fn unbind(role: Role) -> BindingEvent {
    BindingEvent::PolicyUnbound {
        world: WORLD,
        scope: "run".into(),
        role,
    }
}

fn fail(id: u64) -> BindingEvent {
    BindingEvent::PolicyFailed {
        world: WORLD,
        scope: "run".into(),
        id,
        reason: "it trapped".into(),
    }
}

fn after(events: &[BindingEvent]) -> Bindings {
    let mut bindings = Bindings::default();
    for event in events {
        bindings.apply(Timestamp(1), event);
    }
    bindings
}

fn digest(bindings: &Bindings, role: Role) -> Option<&str> {
    Some(&bindings.roles(WORLD, "run")?.get(&role)?.digest)
}

fn id(bindings: &Bindings, role: Role) -> u64 {
    bindings.roles(WORLD, "run").expect("it is bound")[&role].id
}

#[test]
fn rolling_back_twice_changes_nothing() {
    let none = Bindings::default();
    assert_eq!(none.check(&roll_back()), Err(ChangeError::NoPrevious));
    let mut bindings = after(&[bind(Role::Active, "a")]);
    assert_eq!(digest(&bindings, Role::Previous), Some(BUILT_IN));
    bindings.apply(Timestamp(2), &bind(Role::Active, "b"));
    bindings.apply(Timestamp(3), &roll_back());
    assert_eq!(digest(&bindings, Role::Active), Some("a"));
    bindings.apply(Timestamp(4), &roll_back());
    assert_eq!(digest(&bindings, Role::Active), Some("b"));
}

#[test]
fn a_canary_goes_first_and_with_the_policy_that_it_was_compared_with() {
    let mut bindings = after(&[
        bind(Role::Active, "a"),
        bind(Role::Canary, "b"),
        roll_back(),
    ]);
    assert_eq!(digest(&bindings, Role::Active), Some("a"));
    assert_eq!(digest(&bindings, Role::Canary), None);
    bindings.apply(Timestamp(1), &bind(Role::Canary, "b"));
    bindings.apply(Timestamp(1), &bind(Role::Active, "c"));
    assert_eq!(digest(&bindings, Role::Canary), None);
    let vacant = Err(ChangeError::Vacant(Role::Canary));
    assert_eq!(bindings.check(&unbind(Role::Canary)), vacant);
}

#[test]
fn the_built_in_default_is_not_withdrawn() {
    let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, BUILT_IN)]);
    let before = bindings.clone();
    let refused = bindings.check(&unbind(Role::Active));
    assert_eq!(refused, Err(ChangeError::Vacant(Role::Active)));
    bindings.apply(Timestamp(9), &unbind(Role::Active));
    assert_eq!(bindings, before);
}

#[test]
fn a_failed_policy_gives_way_for_good() {
    let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, "b")]);
    let failed = id(&bindings, Role::Active);
    bindings.apply(Timestamp(1), &fail(failed));
    assert_eq!(digest(&bindings, Role::Active), Some("a"));
    assert_eq!(bindings.check(&roll_back()), Err(ChangeError::NoPrevious));
}

#[test]
fn one_tenant_does_not_take_all_bindings() {
    let bind = |scope: String| BindingEvent::PolicyBound {
        world: WORLD,
        scope: scope.into(),
        role: Role::Active,
        policy: PolicyRef("p".into()),
        digest: "a".into(),
        config: "{}".into(),
        share_ppm: 0,
        by_default: false,
    };
    let own = |number: usize| bind(format!("\u{1f}acme\u{1f}{number}"));
    let mut bindings = after(&(0..TENANT_SCOPES_MAX).map(own).collect::<Vec<_>>());
    let more = own(TENANT_SCOPES_MAX);
    assert_eq!(bindings.check(&more), Err(ChangeError::TooManyOfTenant));
    assert_eq!(bindings.check(&own(0)), Ok(()), "it is bound already");
    for of_others in ["run".to_owned(), "\u{1f}b\u{1f}run".to_owned()] {
        assert_eq!(bindings.check(&bind(of_others)), Ok(()));
    }
    bindings.apply(Timestamp(1), &more);
    assert_eq!(bindings.iter().count(), TENANT_SCOPES_MAX);
}

#[test]
fn what_was_bound_before_the_news_of_a_failure_stays() {
    let mut bindings = after(&[bind(Role::Active, "a"), bind(Role::Active, "faulty")]);
    let failed = id(&bindings, Role::Active);
    // The evaluator asks it no more by now; the news is on its way.
    bindings.apply(Timestamp(1), &bind(Role::Active, "c"));
    bindings.apply(Timestamp(1), &bind(Role::Canary, "d"));
    bindings.apply(Timestamp(1), &fail(failed));
    assert_eq!(digest(&bindings, Role::Active), Some("c"));
    assert_eq!(digest(&bindings, Role::Canary), Some("d"));
    assert_eq!(
        digest(&bindings, Role::Previous),
        None,
        "it must not come back"
    );
    let canary = id(&bindings, Role::Canary);
    bindings.apply(Timestamp(1), &fail(canary));
    assert_eq!(digest(&bindings, Role::Canary), None);
}

#[test]
fn the_same_upload_bound_again_is_another_binding() {
    let mut bindings = after(&[bind(Role::Active, "a")]);
    let failed = id(&bindings, Role::Active);
    bindings.apply(Timestamp(1), &bind(Role::Active, "a"));
    bindings.apply(Timestamp(1), &fail(failed));
    assert_eq!(digest(&bindings, Role::Active), Some("a"));
}

#[test]
fn bindings_have_bounds() {
    let mut bindings = Bindings::default();
    let mut event = bind(Role::Active, "a");
    for n in 0..SCOPES_MAX {
        if let BindingEvent::PolicyBound { scope, .. } = &mut event {
            *scope = format!("\u{1f}team-{}\u{1f}job-{n}", n % 5).into();
        }
        assert_eq!(bindings.check(&event), Ok(()));
        bindings.apply(Timestamp(1), &event);
    }
    let one_more = bind(Role::Active, "a");
    assert_eq!(bindings.check(&one_more), Err(ChangeError::TooMany));
    if let BindingEvent::PolicyBound { config, .. } = &mut event {
        *config = "x".repeat(CONFIG_BYTES_MAX + 1).into();
    }
    assert_eq!(bindings.check(&event), Err(ChangeError::ConfigTooLarge));
}

#[test]
fn the_binding_of_a_job_goes_before_that_of_its_tenant_and_that_before_everyones() {
    let scopes = ["*", "\u{1f}acme\u{1f}*", "\u{1f}acme\u{1f}run"];
    let mut bindings = Bindings::default();
    for (scope, digest) in scopes.into_iter().zip(["a", "b", BUILT_IN]) {
        bindings.apply(Timestamp(1), &bind_to(scope, Role::Active, digest));
    }
    let holding = |job| {
        let (scope, bound) = bindings.active_of(WORLD, job)?;
        Some((scope, &*bound.digest))
    };
    assert_eq!(holding("run"), Some((scopes[0], "a")));
    assert_eq!(holding("\u{1f}acme\u{1f}other"), Some((scopes[1], "b")));
    assert_eq!(holding(scopes[2]), Some((scopes[2], BUILT_IN)));
    assert_eq!(bindings.active_of(World::Reward, "run"), None);
}
