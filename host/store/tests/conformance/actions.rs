//! Actions that treadle runs.

use treadle_store::{ActionPage, ActionRow, Batch, Names, Retention, ServiceRow, Store};

use super::rows::ALL;

fn action(action: u64, job: &str, program: Option<&str>) -> ActionRow {
    ActionRow {
        action,
        job: job.into(),
        program: program.map(str::to_owned),
        kind: "pytest".into(),
        status: "waiting".into(),
        attempts: 0,
        spec: r#"{"kind":"pytest"}"#.into(),
        grants: None,
        outcome: None,
        output: None,
        submitted_at_us: action * 10,
        granted_at_us: None,
        began_at_us: None,
        ended_at_us: None,
    }
}

fn ended(at_us: u64, row: ActionRow) -> ActionRow {
    ActionRow {
        status: "ended".into(),
        attempts: 1,
        grants: Some(r#"[{"resource":"cpu","units":2}]"#.into()),
        outcome: Some(r#"{"outcome":"exited","code":0}"#.into()),
        output: Some("digest".into()),
        granted_at_us: Some(at_us - 2),
        began_at_us: Some(at_us - 1),
        ended_at_us: Some(at_us),
        ..row
    }
}

async fn put(store: &dyn Store, actions: Vec<ActionRow>) {
    let batch = Batch {
        actions,
        ..Batch::default()
    };
    store.append(&batch).await.unwrap();
}

async fn fill(store: &dyn Store) {
    let rows = vec![
        action(1, "one", Some("p-1")),
        action(2, "two", None),
        action(3, "one", Some("p-2")),
        action(4, "t~one", None),
    ];
    put(store, rows).await;
}

async fn found(store: &dyn Store, page: ActionPage) -> Vec<u64> {
    let page = ActionPage {
        limit: if page.limit == 0 { ALL } else { page.limit },
        ..page
    };
    let rows = store.actions(&page).await.unwrap();
    rows.iter().map(|row| row.action).collect()
}

pub(crate) async fn an_action_is_as_it_was_last_written(store: &dyn Store) {
    fill(store).await;
    let one = action(1, "one", Some("p-1"));
    assert_eq!(store.action(1).await.unwrap(), Some(one.clone()));
    let over = ended(100, one);
    put(store, vec![over.clone()]).await;
    assert_eq!(store.action(1).await.unwrap(), Some(over));
    assert_eq!(store.action(9).await.unwrap(), None);
}

pub(crate) async fn pages_of_actions_are_filtered_newest_first(store: &dyn Store) {
    fill(store).await;
    put(store, vec![ended(100, action(3, "one", Some("p-2")))]).await;
    let all = ActionPage::default;
    assert_eq!(found(store, all()).await, [4, 3, 2, 1]);
    let job = Some("one".into());
    assert_eq!(found(store, ActionPage { job, ..all() }).await, [3, 1]);
    let program = Some("p-2".into());
    assert_eq!(found(store, ActionPage { program, ..all() }).await, [3]);
    let status = Some("waiting".into());
    assert_eq!(
        found(store, ActionPage { status, ..all() }).await,
        [4, 2, 1]
    );
    let names = Names::With("t~".into());
    assert_eq!(found(store, ActionPage { names, ..all() }).await, [4]);
    let page = ActionPage {
        before: Some(4),
        limit: 2,
        ..all()
    };
    assert_eq!(found(store, page).await, [3, 2]);
}

pub(crate) async fn actions_that_ended_long_ago_go(store: &dyn Store) {
    fill(store).await;
    let rows = vec![
        ended(100, action(1, "one", Some("p-1"))),
        ended(200, action(3, "one", Some("p-2"))),
    ];
    put(store, rows).await;
    let keep = Retention {
        keep_events: 100,
        ended_before_us: 150,
        ..Retention::default()
    };
    store.prune(&keep).await.unwrap();
    assert_eq!(found(store, ActionPage::default()).await, [4, 3, 2]);
}

pub(crate) async fn services_are_replaced_by_name(store: &dyn Store) {
    let row = |service: &str, spec: &str| ServiceRow {
        service: service.into(),
        tenant: "default".into(),
        spec: spec.into(),
        load_us: 5,
        declared_at_us: 7,
    };
    for (service, spec) in [("b", "{}"), ("a", "{}"), ("b", r#"{"name":"b"}"#)] {
        store.put_service(&row(service, spec)).await.unwrap();
    }
    let expected = [row("a", "{}"), row("b", r#"{"name":"b"}"#)];
    assert_eq!(store.services().await.unwrap(), expected);
}
