//! Tests of groups and of prefixes of different tenants.

use super::*;
use treadle_model::ClientName;

#[test]
fn equal_prompts_of_two_tenants_have_no_prefix_in_common() {
    let text = "x".repeat(10_000);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let head = RequestHead::parse(Endpoint::ChatCompletions, body.as_bytes()).unwrap();
    let identity = Identity {
        program: "p".into(),
        job: "j".into(),
        inferred: false,
        one_shot: false,
        parent: None,
        group: None,
    };
    let of = |tenant: &str| {
        let arrival = arrival(StepId(1), &identity, &head, &Tenant::new(tenant));
        let hashes = arrival.prefix.iter().map(|segment| segment.hash);
        hashes.collect::<Vec<_>>()
    };
    let tenants = ["default", "acme", "beta"].map(of);
    assert!(!tenants[0].is_empty());
    let all: std::collections::BTreeSet<_> = tenants.iter().flatten().collect();
    assert_eq!(all.len(), 3 * tenants[0].len());
    assert_eq!(of("acme"), tenants[1]);
}

/// The number of the group of a request.
fn group(
    tenant: &str,
    job: &str,
    name: Option<&str>,
    endpoint: Endpoint,
    body: &str,
) -> Option<u64> {
    let head = RequestHead::parse(endpoint, body.as_bytes()).unwrap();
    let group = name.map(|name| ClientName::parse("group", name).unwrap());
    let identity = Identity {
        program: "p".into(),
        job: job.into(),
        inferred: false,
        one_shot: false,
        parent: None,
        group,
    };
    arrival(StepId(1), &identity, &head, &Tenant::new(tenant)).group
}

#[test]
fn tasks_behind_one_long_system_prompt_are_groups_of_their_own() {
    let of = |body: &str, endpoint| group("default", "j", None, endpoint, body);
    let ids = |task: u64, tail: usize| {
        let ids: Vec<u64> = (0..5_000).chain(std::iter::repeat_n(task, tail)).collect();
        let body = serde_json::json!({"model": "m", "token_ids": ids}).to_string();
        of(&body, Endpoint::VllmGenerate)
    };
    assert!(ids(7, 30).is_some());
    assert_eq!(ids(7, 30), ids(7, 30));
    // Less than a block of ids is enough of a difference, and so is one id.
    let apart = [ids(7, 30), ids(8, 30), ids(7, 31), ids(7, 0)];
    assert_eq!(std::collections::BTreeSet::from(apart).len(), 4);
    let chat = |task: &str| {
        let system = "be brief ".repeat(2_000);
        let body = serde_json::json!({"messages": [
            {"role": "system", "content": system},
            {"role": "user", "content": "1"}, {"role": "assistant", "content": "2"},
            {"role": "user", "content": "3"}, {"role": "user", "content": task},
        ]});
        of(&body.to_string(), Endpoint::ChatCompletions)
    };
    assert_eq!(chat("one"), chat("one"));
    assert_ne!(chat("one"), chat("other"));
    let text = |task: &str| {
        let body = serde_json::json!({"model": "m", "prompt": "x".repeat(9_000) + task});
        of(&body.to_string(), Endpoint::Completions)
    };
    assert_eq!(text("one"), text("one"));
    assert_ne!(text("one"), text("two"));
    let batch = r#"{"prompt": ["a", "b"]}"#;
    assert_eq!(of(batch, Endpoint::Completions), None);
}

#[test]
fn a_named_group_is_one_of_its_job() {
    let of = |tenant, job, name, prompt: &str| {
        let body = format!(r#"{{"prompt": "{prompt}"}}"#);
        group(tenant, job, name, Endpoint::Completions, &body)
    };
    let named = of("default", "j", Some("g"), "one");
    assert_eq!(of("default", "j", Some("g"), "other"), named);
    assert_ne!(of("default", "j", Some("h"), "one"), named);
    assert_ne!(of("default", "k", Some("g"), "one"), named);
    let unnamed = of("default", "j", None, "one");
    assert_ne!(of("acme", "j", None, "one"), unnamed);
}
