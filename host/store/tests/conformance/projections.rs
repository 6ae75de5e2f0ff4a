//! Tests of rows with names. Each check starts with an empty store.

use treadle_store::{
    Batch, BindingRow, PLUGINS_BYTES_MAX, POLICY_STATE_BYTES_MAX, PolicyStateRow, ProgramCursor,
    ProgramPage, ProgramRow, Retention, RewardRow, StepPage, StepRow, Store, StoreError, WorkerRow,
};

use super::rows::{self, ALL};

pub(crate) async fn a_later_row_replaces_an_earlier_one(store: &dyn Store) {
    let first = Batch {
        programs: vec![rows::program("p", 1), rows::ended("p", 1)],
        steps: vec![rows::step("p", 1)],
        workers: vec![rows::worker("w")],
        ..Batch::default()
    };
    store.append(&first).await.unwrap();
    let got = store.program("p").await.unwrap();
    assert_eq!(
        got,
        Some(rows::ended("p", 1)),
        "of two in one batch the later stays"
    );

    let finished = StepRow {
        finished_at_us: Some(99),
        outcome: "done".into(),
        ..rows::step("p", 1)
    };
    let gone = WorkerRow {
        status: "gone".into(),
        capacity_tokens: None,
        ..rows::worker("w")
    };
    let second = Batch {
        programs: vec![rows::program("p", 2)],
        steps: vec![finished.clone()],
        workers: vec![gone.clone()],
        ..Batch::default()
    };
    store.append(&second).await.unwrap();
    assert_eq!(
        store.program("p").await.unwrap(),
        Some(rows::program("p", 2))
    );
    assert_eq!(store.workers().await.unwrap(), [gone]);
    let page = StepPage {
        after: None,
        limit: ALL,
    };
    assert_eq!(store.steps("p", &page).await.unwrap(), [finished]);
}

pub(crate) async fn a_reward_reaches_the_program_that_has_ended(store: &dyn Store) {
    let rewards = |names: &[&str]| -> Vec<RewardRow> {
        let row = |name: &&str| RewardRow {
            program: (*name).to_owned(),
            reward_millionths: -700_000,
        };
        names.iter().map(row).collect()
    };
    let of = async |name: &str| {
        let row = store.program(name).await.unwrap();
        row.and_then(|row| row.reward_millionths)
    };
    let live = ProgramRow {
        reward_millionths: Some(250_000),
        ..rows::program("live", 1)
    };
    let batch = Batch {
        programs: vec![live, rows::ended("ends", 1), rows::ended("ended", 1)],
        // The program's end is in the same batch; no program has the last name.
        rewards: rewards(&["ends", "live", "nobody"]),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    assert_eq!(of("ends").await, Some(-700_000));
    assert_eq!(of("live").await, Some(250_000), "its own row has it");
    assert_eq!(of("nobody").await, None);
    let later = Batch {
        rewards: rewards(&["ended"]),
        ..Batch::default()
    };
    store.append(&later).await.unwrap();
    assert_eq!(of("ended").await, Some(-700_000));
    let again = Batch {
        programs: vec![rows::program("ended", 2)],
        ..Batch::default()
    };
    store.append(&again).await.unwrap();
    assert_eq!(of("ended").await, None, "another program has its name");
}

pub(crate) async fn programs_are_paged_newest_first(store: &dyn Store) {
    // Two at each time, so that the cursor needs both of its parts.
    let programs: Vec<ProgramRow> = (0..20)
        .map(|n| rows::program(&format!("p-{n:02}"), n / 2))
        .collect();
    let batch = Batch {
        programs: programs.clone(),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    let mut found = Vec::new();
    let mut page = ProgramPage {
        job: Some("odd".into()),
        status: Some("active".into()),
        limit: 3,
        ..ProgramPage::default()
    };
    loop {
        let rows = store.programs(&page).await.unwrap();
        let Some(last) = rows.last() else { break };
        page.after = Some(ProgramCursor {
            value: last.created_at_us.cast_signed(),
            program: last.program.clone(),
        });
        found.extend(rows);
    }
    let expected: Vec<_> = programs
        .into_iter()
        .rev()
        .filter(|row| row.job == "odd")
        .collect();
    assert_eq!(found, expected);
    page.status = Some("paused".into());
    page.after = None;
    assert!(store.programs(&page).await.unwrap().is_empty());
}

pub(crate) async fn steps_are_paged_by_number(store: &dyn Store) {
    let batch = Batch {
        programs: vec![rows::program("p", 1), rows::program("q", 1)],
        steps: [0, 2, 10, 1].map(|n| rows::step("p", n)).to_vec(),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    let numbers = async |program: &str, after, limit| -> Vec<u64> {
        let steps = store
            .steps(program, &StepPage { after, limit })
            .await
            .unwrap();
        steps.iter().map(|step| step.step).collect()
    };
    assert_eq!(numbers("p", None, ALL).await, [0, 1, 2, 10]);
    assert_eq!(numbers("p", Some(0), 2).await, [1, 2]);
    assert!(numbers("q", None, ALL).await.is_empty());
}

pub(crate) async fn plugins_never_change(store: &dyn Store) {
    let plugin = rows::plugin("sha256:a", 1);
    assert!(store.put_plugin(&plugin).await.unwrap());
    let mut again = plugin.clone();
    again.head.uploaded_at_us = 7;
    assert!(!store.put_plugin(&again).await.unwrap());
    assert_eq!(
        store.plugin("sha256:a").await.unwrap(),
        Some(plugin.clone())
    );
    again.component.push(0);
    let error = store.put_plugin(&again).await.unwrap_err();
    assert!(matches!(error, StoreError::Immutable { .. }), "{error}");

    let newer = rows::plugin("sha256:bb", 2);
    assert!(store.put_plugin(&newer).await.unwrap());
    assert_eq!(store.plugins().await.unwrap(), [newer.head, plugin.head]);
    assert!(store.plugin("sha256:c").await.unwrap().is_none());
}

pub(crate) async fn the_plugins_of_all_tenants_are_bounded_in_bytes(store: &dyn Store) {
    let mut large = rows::plugin("sha256:a", 1);
    large.head.size_bytes = PLUGINS_BYTES_MAX - 1;
    assert!(store.put_plugin(&large).await.unwrap());
    let error = store.put_plugin(&rows::plugin("sha256:bb", 2)).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, StoreError::PluginsFull { plugins: 1, .. }),
        "{error}"
    );
    assert!(
        !store.put_plugin(&large).await.unwrap(),
        "a stored one takes no more room"
    );
}

async fn bind(store: &dyn Store, job: &str, roles: Vec<BindingRow>) {
    let batch = Batch {
        bindings: vec![rows::bindings(job, roles)],
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
}

pub(crate) async fn bindings_replace_each_other(store: &dyn Store) {
    let canary = BindingRow {
        role: "canary".into(),
        share_ppm: 100_000,
        ..rows::binding("b", "sha256:c")
    };
    for (job, roles) in [
        ("b", vec![rows::binding("b", "sha256:a"), canary.clone()]),
        ("a", vec![rows::binding("a", "built-in")]),
        ("b", vec![rows::binding("b", "sha256:b")]),
    ] {
        bind(store, job, roles).await;
    }
    let expected = [
        rows::binding("a", "built-in"),
        rows::binding("b", "sha256:b"),
    ];
    assert_eq!(store.bindings().await.unwrap(), expected);
    let both = [rows::binding("a", "built-in"), canary];
    let renamed = both.clone().map(|row| BindingRow {
        job: "a".into(),
        ..row
    });
    bind(store, "a", renamed.to_vec()).await;
    assert_eq!(store.bindings().await.unwrap()[..2], renamed);
}

pub(crate) async fn what_a_policy_stored_goes_with_its_binding(store: &dyn Store) {
    let state = |job: &str, entries: &[u8]| PolicyStateRow {
        job: job.into(),
        world: "eviction".into(),
        entries: entries.to_vec(),
        snapshot: vec![7; 3],
        saved_at_us: 5,
    };
    for (job, entries) in [("a", b"old"), ("b", b"abc"), ("a", b"new")] {
        store.put_policy_state(&state(job, entries)).await.unwrap();
    }
    let expected = [state("a", b"new"), state("b", b"abc")];
    assert_eq!(store.policy_states().await.unwrap(), expected);
    bind(store, "a", vec![]).await;
    assert_eq!(store.policy_states().await.unwrap(), expected[1..]);
    let huge = state("c", &vec![0; POLICY_STATE_BYTES_MAX]);
    let refused = store.put_policy_state(&huge).await.unwrap_err();
    assert!(refused.to_string().contains("in bytes"), "{refused}");
}

pub(crate) async fn pruning_takes_ended_programs_with_their_steps(store: &dyn Store) {
    let batch = Batch {
        programs: vec![
            rows::ended("old", 10),
            rows::ended("new", 20),
            rows::program("running", 1),
        ],
        steps: ["old", "new", "running"]
            .map(|name| rows::step(name, 1))
            .to_vec(),
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
    let keep = Retention {
        keep_events: 0,
        ended_before_us: 20,
        sink_lag_events_max: 0,
    };
    assert_eq!(store.prune(&keep).await.unwrap().programs, 1);
    assert!(store.program("old").await.unwrap().is_none());
    for (name, steps) in [("old", 0), ("new", 1), ("running", 1)] {
        let page = StepPage {
            after: None,
            limit: ALL,
        };
        assert_eq!(
            store.steps(name, &page).await.unwrap().len(),
            steps,
            "{name}"
        );
    }
}
