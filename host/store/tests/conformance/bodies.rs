//! Bodies outside of the table, in a folder.

use std::sync::Arc;

use treadle_store::{BodyRow, Location, Options, PayloadLocation, Store, open_with};

use super::backends::file;
use super::cluster::bodies_come_back_as_they_were;

async fn opened(at: &Location, bodies: PayloadLocation) -> Arc<dyn Store> {
    let options = Options {
        bodies,
        ..Options::default()
    };
    open_with(at, &options).await.unwrap()
}

fn body(step: u64) -> BodyRow {
    BodyRow {
        program: "p".into(),
        step,
        kind: "prompt".into(),
        at_us: step,
        body: vec![step as u8; 100_000],
    }
}

#[tokio::test]
async fn bodies_are_files_of_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().join("new/bodies");
    let scratch = file();
    let store = opened(&scratch.at, PayloadLocation::Folder(at.clone())).await;
    bodies_come_back_as_they_were(&*store).await;
    let rows: Vec<BodyRow> = (0..20).map(body).collect();
    store.put_bodies(&rows).await.unwrap();
    assert_eq!(store.bodies("p", 7).await.unwrap(), [body(7)]);
    let files = || std::fs::read_dir(&at).unwrap().count();
    assert_eq!(files(), 21, "none is left over");
    assert_eq!(store.prune_bodies(100).await.unwrap(), 21);
    assert_eq!(files(), 0);

    store.put_bodies(&[body(1)]).await.unwrap();
    store.close().await.unwrap();
    let store = opened(&scratch.at, PayloadLocation::Table).await;
    let error = store.bodies("p", 1).await.unwrap_err();
    assert!(
        error.to_string().contains("other than the one configured"),
        "{error}"
    );
    store.put_bodies(&[body(2)]).await.unwrap();
    store.close().await.unwrap();
    let store = opened(&scratch.at, PayloadLocation::Folder(at)).await;
    for step in [1, 2] {
        let found = store.bodies("p", step).await.unwrap();
        assert_eq!(found, [body(step)], "those of the table are found too");
    }
}
