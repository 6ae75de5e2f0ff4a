//! What others wrote is checked before it is used.

use crate::fixture::{Noise, Place, Weights};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
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

/// Replaces the changes of a delta by another one.
fn replace_change(place: &Place, encoding: &str, change: &[u8]) {
    let packed = zstd::encode_all(change, 1).expect("packed");
    pack_change(place, encoding, &packed);
}

/// Replaces the compressed changes of a delta by another one.
fn pack_change(place: &Place, encoding: &str, packed: &[u8]) {
    edit(&in_version(place, 2, INDEX), |index| {
        index["metadata"]["delta_encoding"] = json!(encoding);
    });
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
            body.extend_from_slice(packed);
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

#[test]
fn a_version_that_is_a_link_or_has_a_pipe_is_refused() {
    let place = place();
    let (own, elsewhere) = (in_version(&place, 2, ""), place.folder.path().join("other"));
    fs::rename(&own, &elsewhere).expect("renamed");
    symlink(
        &elsewhere,
        own.parent().expect("a folder").join("weight_v000002"),
    )
    .expect("a link");
    assert_refused(&place, "a link as a version");
    let place = self::place();
    let index = in_version(&place, 2, INDEX);
    fs::remove_file(&index).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&index).status();
    assert!(made.expect("it runs").success());
    // Whoever opens a pipe waits for its other end.
    assert_refused(&place, "a pipe as an index");
}

#[test]
fn locks_that_are_links_are_not_followed() {
    let outside = |place: &Place| place.folder.path().join("outside");
    let lock_of = |place: &Place| place.stream.folder().join(".locks/weight_v000002");
    let place = place();
    fs::remove_file(lock_of(&place)).expect("removed");
    symlink(outside(&place), lock_of(&place)).expect("a link");
    assert!(place.local.pull(&place.stream, 2, &[]).is_err());
    assert!(!outside(&place).exists(), "no file is made elsewhere");
    let place = self::place();
    fs::remove_dir_all(place.stream.folder().join(".locks")).expect("removed");
    fs::create_dir(outside(&place)).expect("a folder");
    symlink(outside(&place), place.stream.folder().join(".locks")).expect("a link");
    let _ = place.local.pull(&place.stream, 2, &[]);
    let made = fs::read_dir(outside(&place)).expect("a folder").count();
    assert_eq!(made, 0, "no file is made elsewhere");
}

#[test]
fn memory_for_what_others_wrote_is_bounded() {
    let place = place();
    // A frame that needs 128 MiB, of each delta and in each thread.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("an encoder");
    encoder.window_log(27).expect("a window");
    encoder.write_all(&vec![0; 1 << 20]).expect("written");
    pack_change(&place, "xor", &encoder.finish().expect("packed"));
    let error = place.stream.verify(2).expect_err("refused").to_string();
    assert!(error.contains("too much memory"), "{error}");
    // Headers of spaces: a file of 99 MB by many names.
    let header = [
        &99_000_000_u64.to_le_bytes()[..],
        b"{",
        &vec![b' '; 98_999_998],
        b"}",
    ]
    .concat();
    fs::remove_file(in_version(&place, 1, INDEX)).expect("removed");
    let first = in_version(&place, 1, "a0.safetensors");
    fs::write(&first, header).expect("written");
    for number in 1..3 {
        let other = in_version(&place, 1, &format!("a{number}.safetensors"));
        fs::hard_link(&first, other).expect("a link");
    }
    let error = place.stream.verify(1).expect_err("refused").to_string();
    assert!(error.contains("the headers of its files"), "{error}");
}

#[test]
fn a_version_that_builds_on_too_many_is_refused() {
    let place = place();
    for version in 3..=131_u64 {
        let metadata = json!({"version": format!("{version:06}"), "delta_encoding": "xor",
            "base_version": format!("{:06}", version - 1), "compression_format": "zstd",
            "checksum_format": "xxh3-128"});
        let index = in_version(&place, version, INDEX);
        fs::create_dir(in_version(&place, version, "")).expect("a folder");
        let text = json!({"metadata": metadata, "weight_map": {}}).to_string();
        fs::write(index, text).expect("written");
    }
    place.stream.verify(129).expect("it builds on 128 deltas");
    let error = place.stream.verify(131).expect_err("refused").to_string();
    assert!(error.contains("more than 128 deltas"), "{error}");
}

#[test]
fn a_version_that_can_not_be_read_is_listed_with_its_problem() {
    let place = place();
    fs::write(place.stream.folder().join("weight_v000009"), "no folder").expect("written");
    let history = place.stream.history().expect("the others can be read");
    let problems = history.iter().map(|entry| entry.problem.is_some());
    assert_eq!(problems.collect::<Vec<bool>>(), [false, false, true]);
}

#[test]
fn a_disk_without_room_is_not_filled() {
    let place = place();
    let bytes = 8_u64 << 40;
    let header = json!({"w": {"dtype": "U8", "shape": [bytes], "data_offsets": [0, bytes]}});
    let header = header.to_string();
    fs::create_dir(in_version(&place, 3, "")).expect("a folder");
    let file = fs::File::create(in_version(&place, 3, "model.safetensors")).expect("a file");
    // Almost all of it is a hole.
    file.set_len(8 + header.len() as u64 + bytes)
        .expect("a hole");
    let begin = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    (&file).write_all(&begin).expect("written");
    let sums = json!({"checksum_format": "xxh3-128", "tensors": {"w": "00"}, "files": {}});
    let path = in_version(&place, 3, "treadle-checksums.json");
    fs::write(path, sums.to_string()).expect("written");
    let error = place
        .local
        .pull(&place.stream, 3, &[])
        .expect_err("refused");
    assert!(matches!(error, StoreError::NoRoom { .. }), "{error}");
}
