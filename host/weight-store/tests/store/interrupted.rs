//! A process that is killed at any point leaves nothing half-written, and the next one goes on.

use crate::fixture::{Noise, Place, Weights, assert_same};
use std::env;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use treadle_weight_store::{Local, PublishOptions, StoreError, Stream};

/// Has this program do one thing to a folder instead of a test.
const CHILD: &str = "TREADLE_WEIGHT_STORE_CHILD";
const KILLS: u32 = 15;

/// What a child does. Without a parent it does nothing.
#[test]
fn a_child() {
    let Ok(folder) = env::var(CHILD) else { return };
    let folder = std::path::Path::new(&folder);
    let stream = Stream::new(folder.join("store"));
    if folder.join("saved").exists() {
        let options = PublishOptions::default();
        stream
            .publish(&folder.join("saved"), 3, options)
            .expect("published");
    } else {
        let local = Local::new(folder.join("host"));
        local.pull(&stream, 2, &[1]).expect("pulled");
    }
}

/// Runs a child, and kills it after a while. Returns whether it had ended by then.
fn run_child(place: &Place, kill_after: Option<Duration>) -> bool {
    let mut child = Command::new(env::current_exe().expect("a test"))
        .args(["interrupted::a_child", "--exact", "--test-threads=1"])
        .env(CHILD, place.folder.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("a child");
    let Some(kill_after) = kill_after else {
        return child.wait().expect("a child").success();
    };
    std::thread::sleep(kill_after);
    let has_ended = child.try_wait().expect("a child").is_some();
    let _ = child.kill();
    child.wait().expect("a child");
    has_ended
}

fn weights(place: &Place) -> (Weights, Noise) {
    let mut noise = Noise(23);
    let mut weights = Weights::new(&mut noise, 1_500_000, 2);
    for version in 1..=2 {
        weights.write(&place.saved());
        let options = PublishOptions::default();
        place
            .stream
            .publish(&place.saved(), version, options)
            .expect("published");
        if version == 1 {
            weights.train(&mut noise);
        }
    }
    (weights, noise)
}

#[test]
fn a_pull_that_is_killed_goes_on_where_it_was() {
    let place = Place::new();
    let (_, mut noise) = weights(&place);
    let expected = place.folder.path().join("expected");
    std::fs::rename(place.saved(), &expected).expect("renamed");
    place.local.pull(&place.stream, 1, &[]).expect("pulled");
    let began = Instant::now();
    let elsewhere = Local::new(place.folder.path().join("elsewhere"));
    elsewhere.pull(&place.stream, 2, &[]).expect("pulled");
    let whole = began.elapsed() * 2;
    let mut unfinished = 0;
    for _ in 0..KILLS {
        let after = whole.mul_f64((noise.next() % 1_000) as f64 / 1_000.0);
        run_child(&place, Some(after));
        let done = place.local.folder_of(2);
        if done.exists() {
            assert_same(&done, &expected);
            std::fs::rename(&done, place.folder.path().join("host/.pull")).expect("renamed");
            let _ = std::fs::remove_dir_all(place.folder.path().join("host/.pull"));
        } else {
            unfinished += 1;
        }
        place
            .local
            .verify(&place.stream, 1)
            .expect("the version in service is untouched");
    }
    assert!(
        unfinished > KILLS / 5,
        "only {unfinished} children died at work"
    );
    assert!(run_child(&place, None));
    assert_same(&place.local.folder_of(2), &expected);
}

#[test]
fn what_a_killed_pull_has_made_is_not_made_again() {
    let place = Place::new();
    weights(&place);
    let whole = place.local.pull(&place.stream, 2, &[]).expect("pulled");
    // As if it had been killed before it made the last tensors of one file.
    let unfinished = place.folder.path().join("host/.pull");
    std::fs::rename(&whole.folder, &unfinished).expect("renamed");
    let shard = unfinished.join("model-00002-of-00002.safetensors");
    let bytes = std::fs::read(&shard).expect("a shard");
    let zeros = vec![0; bytes.len() / 2];
    std::fs::write(
        &shard,
        [&bytes[..bytes.len() - zeros.len()], &zeros].concat(),
    )
    .expect("written");
    let rest = place.local.pull(&place.stream, 2, &[]).expect("pulled");
    assert!(rest.made > 0 && rest.made < whole.made, "{rest:?}");
    assert!(rest.moved_bytes < whole.moved_bytes / 2, "{rest:?}");
    assert_same(&rest.folder, &place.saved());
}

#[test]
fn a_publication_that_is_killed_is_not_there_and_can_be_repeated() {
    let place = Place::new();
    let (mut weights, mut noise) = weights(&place);
    weights.train(&mut noise);
    weights.write(&place.saved());
    let began = Instant::now();
    let elsewhere = Stream::new(place.folder.path().join("elsewhere"));
    elsewhere
        .publish(&place.saved(), 3, PublishOptions::default())
        .expect("published");
    let whole = began.elapsed() * 2;
    let mut unfinished = 0;
    for _ in 0..KILLS {
        let after = whole.mul_f64((noise.next() % 1_000) as f64 / 1_000.0);
        run_child(&place, Some(after));
        match place.stream.verify(3) {
            Ok(_) => std::fs::remove_dir_all(place.stream.folder().join("weight_v000003"))
                .expect("removed"),
            Err(StoreError::Missing(3)) => unfinished += 1,
            Err(error) => panic!("half a version is visible: {error}"),
        }
        place.stream.verify(2).expect("untouched");
    }
    assert!(
        unfinished > KILLS / 5,
        "only {unfinished} children died at work"
    );
    assert!(run_child(&place, None));
    let pulled = place.local.pull(&place.stream, 3, &[]).expect("pulled");
    assert_same(&pulled.folder, &place.saved());
}
