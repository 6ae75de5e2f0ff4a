//! Files of a store are accessible only to their owner, even if they existed before.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use treadle_store::{Location, Options, PayloadLocation, StoreError, open_with};

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn files_and_folders_are_their_owners_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let new = scratch.path().join("new");
    let (file, bodies) = (new.join("treadle.db"), scratch.path().join("bodies"));
    let options = Options {
        bodies: PayloadLocation::Folder(bodies.clone()),
        ..Options::default()
    };
    let at = Location::File(file.clone());
    let beside = |ending: &str| new.join(format!("treadle.db{ending}"));
    for round in 0..2 {
        let store = open_with(&at, &options).await.unwrap();
        let files = [file.clone(), beside("-wal"), beside("-shm")];
        for path in &files {
            assert_eq!(mode(path), 0o600, "{round} {}", path.display());
        }
        assert_eq!((mode(&new), mode(&bodies)), (0o700, 0o700));
        store.close().await.unwrap();
        // Left like this by an older daemon; the folder may contain other files too.
        set(&file, 0o644);
        set(&bodies, 0o755);
    }
    set(&new, 0o755);
    open_with(&at, &options)
        .await
        .unwrap()
        .close()
        .await
        .unwrap();
    assert_eq!(mode(&new), 0o755);
}

#[tokio::test]
async fn what_is_not_a_database_stays_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let (notes, folder) = (scratch.path().join("notes.md"), scratch.path().join("dir"));
    std::fs::write(&notes, "hello ".repeat(100)).unwrap();
    std::fs::create_dir(&folder).unwrap();
    set(&notes, 0o644);
    set(&folder, 0o755);
    let there = || {
        let names = std::fs::read_dir(scratch.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    for path in [&notes, &folder] {
        let error = open_with(&Location::File(path.clone()), &Options::default()).await;
        let error = error.err().unwrap();
        assert!(matches!(error, StoreError::NotADatabase { .. }), "{error}");
    }
    assert_eq!((mode(&notes), mode(&folder)), (0o644, 0o755));
    assert_eq!(there(), ["dir", "notes.md"]);
    // Its lock was left by a store that was here before.
    std::fs::write(scratch.path().join("notes.md.opening"), "").unwrap();
    let error = open_with(&Location::File(notes.clone()), &Options::default()).await;
    assert!(matches!(error.err().unwrap(), StoreError::Open { .. }));
    assert_eq!(mode(&notes), 0o644);
}
