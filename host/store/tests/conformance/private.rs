//! Files of a store are accessible only to their owner, even if they existed before.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use treadle_store::{Location, Options, PayloadLocation, open_with};

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
