//! What is stored, found again, and rejected.

use std::time::{Duration, SystemTime};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::TestRunner;
use wasmtime::Engine;

use super::artifact::Damage;
use super::*;

const MIB: usize = 1 << 20;

fn key(component: &str) -> ArtifactKey {
    ArtifactKey::of(&Engine::default(), component.as_bytes())
}

fn store(bytes_max: u64) -> (tempfile::TempDir, ArtifactStore) {
    let folder = tempfile::tempdir().unwrap();
    let store = ArtifactStore::open(&folder.path().join("artifacts"), bytes_max).unwrap();
    (folder, store)
}

/// Sets the last use to `ago_s` seconds ago.
fn age(store: &ArtifactStore, key: &ArtifactKey, ago_s: u64) {
    let file = File::open(store.path(key)).unwrap();
    let used = SystemTime::now() - Duration::from_secs(ago_s);
    file.set_modified(used).unwrap();
}

#[test]
fn what_was_put_is_got_by_another_process_too() {
    let (_folder, store) = store(1 << 20);
    let artifact = Artifact::seal(b"code", &key("a"));
    assert_eq!(store.get(&key("a")), None);
    store.put(&key("a"), &artifact);
    assert_eq!(store.get(&key("a")), Some(artifact.clone()));
    assert_eq!(store.get(&key("b")), None);
    let again = ArtifactStore::open(&store.folder, 1 << 20).unwrap();
    assert_eq!(again.get(&key("a")).unwrap().code(), b"code");
    assert_eq!(again.bytes().unwrap(), artifact.sealed().len() as u64);
}

#[test]
fn another_engine_finds_nothing() {
    let (_folder, store) = store(1 << 20);
    store.put(&key("a"), &Artifact::seal(b"code", &key("a")));
    let mut config = wasmtime::Config::new();
    config.consume_fuel(true);
    let other = ArtifactKey::of(&Engine::new(&config).unwrap(), b"a");
    assert_ne!(other.engine_hex(), key("a").engine_hex());
    assert_eq!(store.get(&other), None);
}

#[test]
fn the_folder_is_private() {
    let (_folder, store) = store(1 << 20);
    fs::set_permissions(&store.folder, Permissions::from_mode(0o777)).unwrap();
    ArtifactStore::open(&store.folder, 1 << 20).unwrap();
    let mode = fs::metadata(&store.folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_was_used_longest_ago_makes_room() {
    let (_folder, store) = store(4 * MIB as u64);
    let code = vec![7; MIB];
    for (name, ago_s) in [("a", 40), ("b", 30), ("c", 20)] {
        store.put(&key(name), &Artifact::seal(&code, &key(name)));
        age(&store, &key(name), ago_s);
    }
    // Uses it again, so that another is the oldest.
    assert!(store.get(&key("a")).is_some());
    store.put(&key("d"), &Artifact::seal(&code, &key("d")));
    let kept = ["a", "b", "c", "d"].map(|name| store.get(&key(name)).is_some());
    assert_eq!(kept, [true, false, true, true]);
    assert!(store.bytes().unwrap() <= 4 * MIB as u64);
    // A policy larger than the whole store is not stored, and evicts nothing.
    let large = Artifact::seal(&vec![7; 5 * MIB], &key("e"));
    store.put(&key("e"), &large);
    assert_eq!(store.files().unwrap().len(), 3);
}

#[test]
fn a_smaller_bound_holds_from_the_start() {
    let (_folder, store) = store(4 * MIB as u64);
    for name in ["a", "b", "c"] {
        store.put(&key(name), &Artifact::seal(&vec![7; MIB], &key(name)));
    }
    let smaller = ArtifactStore::open(&store.folder, 2 * MIB as u64).unwrap();
    assert_eq!(smaller.files().unwrap().len(), 1);
    assert!(matches!(
        ArtifactStore::open(&store.folder, 1),
        Err(ArtifactStoreError::Bound { .. })
    ));
}

#[test]
fn what_was_left_unfinished_is_removed_after_a_while() {
    let (_folder, store) = store(1 << 20);
    let unfinished = store.folder.join("x.1-2.part");
    let stranger = store.folder.join("notes.txt");
    for path in [&unfinished, &stranger] {
        let file = File::create(path).unwrap();
        file.set_modified(SystemTime::now() - 2 * UNFINISHED_AGE_MAX)
            .unwrap();
    }
    fs::write(store.folder.join("y.1-3.part"), "new").unwrap();
    store.make_room(0).unwrap();
    assert!(!unfinished.exists() && stranger.exists());
    assert!(store.folder.join("y.1-3.part").exists());
}

#[test]
fn a_damaged_file_is_found_and_removed() {
    let (_folder, store) = store(1 << 20);
    let artifact = Artifact::seal(&[7; 300], &key("a"));
    let mut runner = TestRunner::new(ProptestConfig::with_cases(200));
    let change = (any::<Index>(), 1..=u8::MAX, any::<bool>());
    let outcome = runner.run(&change, |(at, flip, is_cut)| {
        let mut damaged = artifact.sealed().to_vec();
        let at = at.index(damaged.len());
        if is_cut {
            damaged.truncate(at);
        } else {
            damaged[at] ^= flip;
        }
        fs::write(store.path(&key("a")), damaged).unwrap();
        prop_assert_eq!(store.get(&key("a")), None);
        prop_assert!(!store.path(&key("a")).exists());
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    // A file under another's name is rejected.
    let renamed = Artifact::parse(artifact.sealed().to_vec(), &key("b"));
    assert_eq!(renamed, Err(Damage::Key));
}

#[test]
fn a_folder_that_cannot_be_is_an_error_with_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ArtifactStore::open(&file.join("artifacts"), 1 << 20).unwrap_err();
    assert!(error.to_string().contains("file/artifacts"), "{error}");
}
