//! Versions come back as they were published, and only what changed is moved.

use crate::fixture::{Noise, Place, Weights, assert_same, flip};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use treadle_weight_store::{
    Algorithm, CHAIN_MAX, Encoding, Local, PublishOptions, Published, StoreError,
};

fn publish(place: &Place, weights: &Weights, version: u64) -> Published {
    publish_as(place, weights, version, PublishOptions::default())
}

fn publish_as(
    place: &Place,
    weights: &Weights,
    version: u64,
    options: PublishOptions,
) -> Published {
    weights.write(&place.saved());
    let published = place.stream.publish(&place.saved(), version, options);
    published.expect("published")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_version_comes_back_as_it_was_published(
        seed in 1_u64..,
        elements in prop_oneof![Just(1_usize), 2..200_usize, Just(600_000)],
        shards in 1..4_usize,
        overwrite: bool,
        checksum in prop_oneof![
            Just(Algorithm::Xxh3), Just(Algorithm::Blake3), Just(Algorithm::Adler32)
        ],
        jumps in prop::collection::vec(prop::bool::weighted(0.15), 4),
    ) {
        let (place, mut noise) = (Place::new(), Noise(seed));
        let encoding = if overwrite { Encoding::Overwrite } else { Encoding::Xor };
        let options = PublishOptions { encoding, checksum };
        let mut weights = Weights::new(&mut noise, elements, shards);
        let mut version = 0;
        for jump in jumps {
            version += if jump { 2 } else { 1 };
            let published = publish_as(&place, &weights, version, options);
            prop_assert_eq!(published.is_full, version == 1 || jump);
            place.stream.verify(version).expect("whole");
            let keep = place.local.versions().expect("readable").last().copied();
            let keep: Vec<u64> = keep.into_iter().collect();
            let pulled = place.local.pull(&place.stream, version, &keep).expect("pulled");
            assert_same(&pulled.folder, &place.saved());
            place.local.verify(&place.stream, version).expect("as published");
            prop_assert!(place.local.versions().expect("readable").len() <= 2);
            weights.train(&mut noise);
        }
        // A host that comes late has it too.
        let late = Local::new(place.folder.path().join("late"));
        let pulled = late.pull(&place.stream, version, &[]).expect("pulled");
        assert_same(&pulled.folder, &place.saved());
    }
}

#[test]
fn only_tensors_that_changed_are_moved() {
    let (place, mut noise) = (Place::new(), Noise(7));
    let mut weights = Weights::new(&mut noise, 100_000, 2);
    publish(&place, &weights, 1);
    let first = place.local.pull(&place.stream, 1, &[]).expect("pulled");
    assert_eq!(first.made, first.tensors - 1, "one has no bytes");
    let changed = "model.layers.4.weight";
    let tensor = weights.tensors.get_mut(changed).expect("a tensor");
    tensor.bytes = noise.bytes(tensor.bytes.len());
    let bytes = tensor.bytes.len() as u64;
    let published = publish(&place, &weights, 2);
    assert_eq!((published.tensors, published.changed_bytes), (1, bytes));
    assert!(published.written_bytes < bytes + 1_000, "{published:?}");
    let second = place.local.pull(&place.stream, 2, &[]).expect("pulled");
    assert_eq!((second.made, second.written_bytes), (1, bytes));
    assert!(second.moved_bytes < bytes + 1_000, "{second:?}");
    // Beside a version that stays, what the host has is copied on the host.
    weights.train(&mut noise);
    let third = publish(&place, &weights, 3);
    let third_pulled = place.local.pull(&place.stream, 3, &[2]).expect("pulled");
    assert!(
        third_pulled.moved_bytes <= third.written_bytes,
        "{third_pulled:?}"
    );
    assert_eq!(
        place.local.versions().expect("readable"),
        BTreeSet::from([2, 3])
    );
    let again = place.local.pull(&place.stream, 3, &[2]).expect("there");
    assert_eq!((again.made, again.moved_bytes), (0, 0));
}

#[test]
fn the_same_weights_can_be_published_again_and_others_can_not() {
    let (place, mut noise) = (Place::new(), Noise(3));
    let mut weights = Weights::new(&mut noise, 1_000, 1);
    publish(&place, &weights, 1);
    let old = weights.clone();
    weights.train(&mut noise);
    publish(&place, &weights, 2);
    let again = publish(&place, &weights, 2);
    assert!(again.was_there && again.written_bytes == 0 && !again.is_full);
    old.write(&place.saved());
    let fails = |version| {
        let options = PublishOptions::default();
        place
            .stream
            .publish(&place.saved(), version, options)
            .expect_err("refused")
    };
    assert!(matches!(fails(2), StoreError::Other(2)));
    publish(&place, &old, 4);
    assert!(matches!(
        fails(3),
        StoreError::Older {
            version: 3,
            newest: 4
        }
    ));
    let all = place.stream.versions().expect("readable");
    assert_eq!(all, BTreeSet::from([1, 2, 4]), "nothing was replaced");
}

#[test]
fn a_version_is_whole_after_a_number_of_deltas_or_if_a_file_differs() {
    let (place, mut noise) = (Place::new(), Noise(5));
    let mut weights = Weights::new(&mut noise, 50, 1);
    let mut full = Vec::new();
    for version in 1..=CHAIN_MAX as u64 + 3 {
        if publish(&place, &weights, version).is_full {
            full.push(version);
        }
        weights.train(&mut noise);
    }
    assert_eq!(full, [1, CHAIN_MAX as u64 + 2]);
    weights.write(&place.saved());
    fs::write(place.saved().join("config.json"), b"{}").expect("writable");
    let next = CHAIN_MAX as u64 + 4;
    let options = PublishOptions::default();
    let published = place
        .stream
        .publish(&place.saved(), next, options)
        .expect("published");
    assert!(published.is_full);
    weights.shards = 2;
    assert!(
        publish(&place, &weights, next + 1).is_full,
        "another layout"
    );
    let history = place.stream.history().expect("readable");
    assert_eq!(history.len(), next as usize + 1);
    assert!(history.iter().all(|entry| entry.problem.is_none()));
}

#[test]
fn a_flipped_bit_on_a_host_is_found_and_only_its_tensor_fetched_again() {
    let (place, mut noise) = (Place::new(), Noise(11));
    let mut weights = Weights::new(&mut noise, 200_000, 1);
    publish(&place, &weights, 1);
    weights.train(&mut noise);
    publish(&place, &weights, 2);
    let whole = place.local.pull(&place.stream, 2, &[]).expect("pulled");
    flip(&whole.folder.join("model.safetensors"));
    let found = place.local.verify(&place.stream, 2).expect_err("found");
    assert!(found.to_string().contains("pull it again"), "{found}");
    let mended = place.local.pull(&place.stream, 2, &[]).expect("mended");
    assert_eq!(mended.made, 1);
    assert!(mended.moved_bytes < whole.moved_bytes / 2, "{mended:?}");
    assert_same(&mended.folder, &place.saved());
}

#[test]
fn a_flipped_bit_in_the_store_is_named_and_reaches_no_host() {
    let (place, mut noise) = (Place::new(), Noise(13));
    let mut weights = Weights::new(&mut noise, 50_000, 1);
    publish(&place, &weights, 1);
    weights.train(&mut noise);
    publish(&place, &weights, 2);
    weights.train(&mut noise);
    publish(&place, &weights, 3);
    let of = |version: u64| place.stream.folder().join(format!("weight_v{version:06}"));
    let delta = fs::read_dir(of(2)).expect("a folder").flatten();
    let delta = delta.map(|entry| entry.path());
    let delta = delta.filter(|path| path.extension().is_some_and(|e| e == "safetensors"));
    let delta = delta
        .max_by_key(|path| path.metadata().expect("a file").len())
        .expect("a file");
    let before = fs::read(&delta).expect("a file");
    flip(&delta);
    for version in [2, 3] {
        for error in [
            place.stream.verify(version).expect_err("damaged"),
            place
                .local
                .pull(&place.stream, version, &[1])
                .expect_err("damaged"),
        ] {
            assert!(
                matches!(error, StoreError::Damaged { version: 2, .. }),
                "{error}"
            );
        }
        assert!(!place.local.folder_of(version).exists());
    }
    fs::write(&delta, before).expect("writable");
    place.local.pull(&place.stream, 3, &[]).expect("mended");
    // The next publication is whole if what it would build on is damaged.
    flip(&of(1).join("model.safetensors"));
    let _ = fs::remove_dir_all(place.stream.folder().join(".head"));
    weights.train(&mut noise);
    assert!(publish(&place, &weights, 4).is_full);
    place.stream.verify(4).expect("whole");
}

#[test]
fn only_versions_that_nobody_needs_are_collected() {
    let (place, mut noise) = (Place::new(), Noise(17));
    let mut weights = Weights::new(&mut noise, 50, 1);
    for version in [1, 2, 3, 5, 6, 8, 9] {
        publish(&place, &weights, version);
        weights.train(&mut noise);
    }
    let collected = place
        .stream
        .collect(&BTreeSet::from([6, 77]))
        .expect("collected");
    assert_eq!(collected.deleted, [1, 2, 3]);
    assert_eq!(collected.kept, [5, 6, 8, 9]);
    place.stream.verify(6).expect("whole");
    let collected = place.stream.collect(&BTreeSet::new()).expect("collected");
    assert_eq!(collected.deleted, [5, 6]);
    place.local.pull(&place.stream, 9, &[]).expect("pulled");
    let missing = place.local.pull(&place.stream, 6, &[]).expect_err("gone");
    assert!(matches!(missing, StoreError::Missing(6)));
}

#[test]
fn hosts_pull_while_versions_are_published_and_collected() {
    let (place, mut noise) = (Place::new(), Noise(19));
    let mut weights = Weights::new(&mut noise, 20_000, 2);
    publish(&place, &weights, 1);
    let is_over = AtomicBool::new(false);
    let pulls = std::thread::scope(|scope| {
        let hosts: Vec<_> = (0..3)
            .map(|host| {
                let (place, is_over) = (&place, &is_over);
                scope.spawn(move || {
                    let local = Local::new(place.folder.path().join(format!("host-{host}")));
                    let mut pulls = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let newest = *place
                            .stream
                            .versions()
                            .expect("readable")
                            .last()
                            .expect("one");
                        match local.pull(&place.stream, newest, &[]) {
                            Ok(_) => pulls += 1,
                            // It was collected before the host had locked it.
                            Err(StoreError::Missing(_)) => {}
                            Err(error) => panic!("{error}"),
                        }
                    }
                    pulls
                })
            })
            .collect();
        for version in 2..20 {
            weights.train(&mut noise);
            publish(&place, &weights, version);
            place.stream.collect(&BTreeSet::new()).expect("collected");
        }
        is_over.store(true, Ordering::Relaxed);
        hosts
            .into_iter()
            .map(|host| host.join().expect("no panic"))
            .sum::<u64>()
    });
    assert!(pulls > 0);
    let pulled = place.local.pull(&place.stream, 19, &[]).expect("pulled");
    assert_same(&pulled.folder, &place.saved());
}
