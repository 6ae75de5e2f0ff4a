//! What others wrote is checked before it is used.

use crate::fixture::{Noise, Place, Weights};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use treadle_weight_store::{PublishOptions, StoreError};

/// What is done to a file, and its name.
type Lie<T> = (&'static str, fn(&mut T));

/// A store with a whole version and a delta.
fn place() -> Place {
    let (place, mut noise) = (Place::new(), Noise(29));
    let mut weights = Weights::new(&mut noise, 2_000, 2);
    for version in 1..=2 {
        weights.write(&place.saved());
        let options = PublishOptions::default();
        place
            .stream
            .publish(&place.saved(), version, options)
            .expect("published");
        weights.train(&mut noise);
    }
    place
}

fn in_version(place: &Place, version: u64, file: &str) -> PathBuf {
    let folder = place.stream.folder().join(format!("weight_v{version:06}"));
    folder.join(file)
}

fn edit(path: &Path, edit: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON");
    edit(&mut value);
    fs::write(path, value.to_string()).expect("writable");
}

fn assert_refused(place: &Place, what: &str) {
    let error = place.local.pull(&place.stream, 2, &[]).expect_err(what);
    let is_named = matches!(
        error,
        StoreError::Damaged { .. } | StoreError::Io { .. } | StoreError::Missing(_)
    );
    assert!(is_named, "{what}: {error}");
    assert!(!place.local.folder_of(2).exists(), "{what}");
    assert!(place.stream.verify(2).is_err(), "{what}");
}

const INDEX: &str = "model.safetensors.index.json";

#[test]
fn an_index_that_lies_is_refused() {
    let lies: [Lie<Value>; 9] = [
        ("a path out of the folder", |index| {
            index["weight_map"]["lm_head.weight"] = json!("../../../etc/passwd.safetensors");
        }),
        ("an absolute path", |index| {
            index["weight_map"]["x"] = json!("/etc/passwd.safetensors");
        }),
        ("a file that is not there", |index| {
            index["weight_map"]["x"] = json!("model-00009-of-00009.safetensors");
        }),
        ("a tensor that is not there", |index| {
            let file = index["weight_map"]
                .as_object()
                .expect("a map")
                .values()
                .next()
                .cloned();
            index["weight_map"]["x"] = file.expect("a file");
        }),
        ("a delta to itself", |index| {
            index["metadata"]["base_version"] = json!("000002");
        }),
        ("a delta to a later one", |index| {
            index["metadata"]["base_version"] = json!("000009");
        }),
        ("a word as a number", |index| {
            index["metadata"]["version"] = json!("two");
        }),
        ("another compression", |index| {
            index["metadata"]["compression_format"] = json!("lz4");
        }),
        ("another checksum", |index| {
            index["metadata"]["checksum_format"] = json!("none");
        }),
    ];
    for (what, lie) in lies {
        let place = place();
        edit(&in_version(&place, 2, INDEX), lie);
        assert_refused(&place, what);
    }
}

#[test]
fn a_link_in_the_store_is_not_followed() {
    let place = place();
    let secret = place.folder.path().join("secret");
    fs::write(&secret, "secret").expect("writable");
    symlink(&secret, in_version(&place, 1, "notes.txt")).expect("a link");
    let pulled = place.local.pull(&place.stream, 2, &[]).expect("pulled");
    assert!(!pulled.folder.join("notes.txt").exists());
    let shard = in_version(&place, 1, "model-00001-of-00002.safetensors");
    let elsewhere = place.folder.path().join("elsewhere");
    fs::rename(&shard, &elsewhere).expect("renamed");
    symlink(&elsewhere, &shard).expect("a link");
    fs::remove_dir_all(pulled.folder).expect("removed");
    assert_refused(&place, "a link as a shard");
}

#[test]
fn a_damaged_header_is_refused() {
    let damage: [Lie<Vec<u8>>; 6] = [
        ("nothing", Vec::clear),
        ("a long header", |bytes| {
            bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        }),
        ("a header past the end", |bytes| {
            bytes[..8].copy_from_slice(&99_000_000_u64.to_le_bytes());
        }),
        ("no JSON", |bytes| bytes[8..16].fill(b'{')),
        ("cut off", |bytes| bytes.truncate(bytes.len() - 1)),
        ("longer", |bytes| bytes.push(0)),
    ];
    for (what, damage) in damage {
        for (version, file) in [
            (1, "model-00001-of-00002.safetensors"),
            (2, "model-00000-of-"),
        ] {
            let place = place();
            let folder = in_version(&place, version, "");
            let found = fs::read_dir(folder)
                .expect("a folder")
                .flatten()
                .map(|entry| entry.path());
            let path = found.into_iter().find(|path| {
                path.file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(file))
            });
            let path = path.expect("a file");
            let mut bytes = fs::read(&path).expect("a file");
            damage(&mut bytes);
            fs::write(&path, bytes).expect("writable");
            assert_refused(&place, what);
        }
    }
}

/// Replaces the compressed change of the first tensor of a delta by another one.
fn replace_change(place: &Place, encoding: &str, change: &[u8]) {
    edit(&in_version(place, 2, INDEX), |index| {
        index["metadata"]["delta_encoding"] = json!(encoding);
    });
    let packed = zstd::encode_all(change, 1).expect("packed");
    let index = fs::read(in_version(place, 2, INDEX)).expect("an index");
    let index: Value = serde_json::from_slice(&index).expect("JSON");
    let map = index["weight_map"].as_object().expect("a map");
    let files: std::collections::BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
    for file in files {
        let own = map
            .iter()
            .filter(|(_, of)| **of == json!(file))
            .map(|(name, _)| name);
        let (mut header, mut body) = (json!({"__metadata__": {}}), Vec::new());
        for name in own {
            header["__metadata__"][name] = json!("00");
            let begin = body.len();
            body.extend_from_slice(&packed);
            header[name] = json!({"dtype": "U8", "shape": [packed.len()], "data_offsets": [begin, body.len()]});
        }
        let header = header.to_string();
        let length = (header.len() as u64).to_le_bytes();
        let bytes = [&length[..], header.as_bytes(), &body].concat();
        fs::write(in_version(place, 2, file), bytes).expect("writable");
    }
}

#[test]
fn a_change_that_lies_about_its_length_is_refused() {
    let u32s = |numbers: &[u32]| {
        numbers
            .iter()
            .flat_map(|n| n.to_le_bytes())
            .collect::<Vec<u8>>()
    };
    // A gigabyte of zeros, in a few kilobytes.
    let bomb = vec![0; 1 << 30];
    let lies: [(&str, &str, Vec<u8>); 7] = [
        ("a bomb", "xor", bomb.clone()),
        (
            "a bomb of positions",
            "overwrite",
            [u32s(&[u32::MAX]), bomb].concat(),
        ),
        ("nothing", "xor", Vec::new()),
        ("no count", "overwrite", vec![1]),
        (
            "positions that fall",
            "overwrite",
            [u32s(&[2, 5, 4]), vec![1, 2]].concat(),
        ),
        (
            "a position past the end",
            "overwrite",
            [u32s(&[1, u32::MAX]), vec![1]].concat(),
        ),
        ("values that lack", "overwrite", u32s(&[1, 0])),
    ];
    let place = place();
    for (what, encoding, change) in lies {
        replace_change(&place, encoding, &change);
        assert_refused(&place, what);
    }
}

#[test]
fn what_is_no_checkpoint_is_not_published() {
    let place = place();
    let publish = |folder: &Path| {
        let error = place.stream.publish(folder, 3, PublishOptions::default());
        error.expect_err("refused").to_string()
    };
    let empty = place.folder.path().join("empty");
    fs::create_dir(&empty).expect("a folder");
    assert!(publish(&empty).contains("no .safetensors file"));
    assert!(publish(&in_version(&place, 2, "")).contains("it is a delta"));
    let versions = place.stream.versions().expect("readable");
    assert_eq!(versions.len(), 2, "and nothing is there of it");
}
