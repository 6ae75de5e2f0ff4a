//! A store with something in every table, to compare before and after.

use treadle_store::{
    Batch, BindingRow, EventRow, Order, PluginHead, ProgramPage, ProgramRow, Snapshot, StepPage,
    StepRow, Store, WorkerRow,
};

use super::rows::{self, ALL, range, snapshot};

/// Everything that `fill` put there.
#[derive(Debug, PartialEq)]
pub(crate) struct Dump {
    events: Vec<EventRow>,
    programs: Vec<ProgramRow>,
    steps: Vec<StepRow>,
    workers: Vec<WorkerRow>,
    decisions: usize,
    plugins: Vec<PluginHead>,
    component: Vec<u8>,
    bindings: Vec<BindingRow>,
    snapshot: Option<Snapshot>,
}

pub(crate) async fn fill(store: &dyn Store) {
    let batch = Batch {
        programs: vec![rows::program("p", 1)],
        steps: vec![rows::step("p", 1)],
        workers: vec![rows::worker("w")],
        decisions: vec![rows::decision(1, None, "pause")],
        bindings: vec![rows::bindings("a", vec![rows::binding("a", "sha256:a")])],
        ..rows::events(1..=300)
    };
    store.append(&batch).await.unwrap();
    store
        .put_plugin(&rows::plugin("sha256:a", 1))
        .await
        .unwrap();
    store.save_snapshot(&snapshot(200)).await.unwrap();
}

pub(crate) async fn dump(store: &dyn Store) -> Dump {
    let page = ProgramPage {
        limit: ALL,
        ..ProgramPage::default()
    };
    let steps = StepPage {
        after: None,
        limit: ALL,
    };
    let decisions = range(None, None, Order::OldestFirst, ALL);
    let dump = Dump {
        events: store.events_after(0, ALL).await.unwrap(),
        programs: store.programs(&page).await.unwrap(),
        steps: store.steps("p", &steps).await.unwrap(),
        workers: store.workers().await.unwrap(),
        decisions: store
            .decisions(&rows::decisions(&decisions))
            .await
            .unwrap()
            .len(),
        plugins: store.plugins().await.unwrap(),
        component: store.plugin("sha256:a").await.unwrap().unwrap().component,
        bindings: store.bindings().await.unwrap(),
        snapshot: store.latest_snapshot().await.unwrap(),
    };
    assert_eq!(dump.events.len(), 300);
    assert_eq!(dump.steps.len(), 1);
    dump
}

/// The journal continues where it ended.
pub(crate) async fn goes_on(store: &dyn Store) {
    assert!(store.append(&rows::events(300..=300)).await.is_err());
    assert_eq!(store.append(&rows::events(301..=301)).await.unwrap(), 301);
}
