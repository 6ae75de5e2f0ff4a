//! What must not reach an engine: KV of other programs, models and weights, and damaged files.

#[allow(dead_code, reason = "each test uses some of it")]
mod engines;

use engines::stand::stand;
use engines::{export, ids, import, tags};
use treadle_model::ProgramId;
use treadle_transfer::{KvExecutor, Tags};

#[tokio::test]
async fn what_is_not_the_programs_is_not_restored() {
    let stand = stand().await;
    let copy = stand.copy(1, 50).await;
    let held = ids(1, 50);
    let right = import(stand.worker(), &copy, &held);
    let tagged = |tags: Tags| treadle_transfer::Import {
        tags,
        ..right.clone()
    };
    let model = tagged(Tags {
        model: "other".into(),
        ..tags()
    });
    assert_eq!(stand.refused(model).await, "other-tags");
    let weights = tagged(Tags {
        weights: "2".into(),
        ..tags()
    });
    assert_eq!(stand.refused(weights).await, "other-tags");
    let program = treadle_transfer::Import {
        program: ProgramId(2),
        ..right.clone()
    };
    assert_eq!(stand.refused(program).await, "other-program");
    let prefix = import(stand.worker(), &copy, &ids(2, 60));
    assert_eq!(stand.refused(prefix).await, "other-prefix");
    let shorter = import(stand.worker(), &copy, &held[..49]);
    assert_eq!(stand.refused(shorter).await, "other-prefix");
    let mut forged = right.clone();
    forged.copy.tags.weights = "2".into();
    forged.tags.weights = "2".into();
    assert_eq!(stand.refused(forged).await, "wrong-handle");
    let mut unknown = right.clone();
    unknown.copy.id = treadle_transfer::CopyId::random().unwrap();
    assert_eq!(stand.refused(unknown).await, "gone");
    let mut slotless = right.clone();
    slotless.slot = None;
    assert_eq!(stand.refused(slotless).await, "incomplete");
    let mut beyond = right;
    beyond.slot = Some(4);
    assert_eq!(stand.refused(beyond).await, "unsupported");
    let asked = stand.slots.asked.lock().unwrap().clone();
    assert_eq!(asked, ["save"], "no restore was tried");
    stand.until_so_many(2).await;
}

#[tokio::test]
async fn a_server_that_has_another_model_by_now_is_found_out() {
    let stand = stand().await;
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    let back = import(stand.worker(), &copy, &held);
    // Who asks does not know of it yet: neither the name nor the file.
    for (name, file) in [("other", "tiny.gguf"), ("tiny", "other.gguf")] {
        stand.slots.become_another(name, file);
        assert_eq!(stand.refused(back.clone()).await, "other-tags");
    }
    stand.slots.become_another("other", "tiny.gguf");
    let out = export(stand.worker(), 1, &held);
    let error = stand.executors.export(out).await.unwrap_err();
    assert_eq!(
        error.code(),
        "other-tags",
        "who asks takes it for the first"
    );
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["save"], "nothing else");
    stand.slots.become_another("tiny", "tiny.gguf");
    stand.executors.import(back).await.unwrap();
}

#[tokio::test]
async fn a_server_that_becomes_another_in_mid_transfer_is_found_out() {
    let stand = stand().await;
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    let before = stand.tier.usage();
    for back in [true, false] {
        stand.slots.become_another("tiny", "tiny.gguf");
        stand.slots.asked.lock().unwrap().clear();
        stand.slots.free.forget_permits(usize::MAX);
        let swapped = async {
            stand.slots.until_asked(1).await;
            stand.slots.become_another("tiny", "other.gguf");
            stand.slots.free.add_permits(10);
        };
        let code = async {
            if back {
                stand.refused(import(stand.worker(), &copy, &held)).await
            } else {
                let asked = export(stand.worker(), 1, &held);
                stand.executors.export(asked).await.unwrap_err().code()
            }
        };
        let (code, ()) = tokio::join!(code, swapped);
        assert_eq!(code, "not-taken");
    }
    assert_eq!(stand.slots.get(1), Vec::<u32>::new(), "emptied again");
    // Nothing was kept.
    stand.until_bytes(before.bytes).await;
    assert_eq!(stand.tier.usage(), before);
    // One that changes while a transfer waits for its turn, too.
    stand.slots.become_another("tiny", "tiny.gguf");
    stand.slots.asked.lock().unwrap().clear();
    stand.slots.free.forget_permits(usize::MAX);
    let first = stand.refused(import(stand.worker(), &copy, &held));
    let second = stand.refused(import(stand.worker(), &copy, &held));
    let swapped = async {
        stand.slots.until_asked(1).await;
        stand.slots.become_another("other", "other.gguf");
        stand.slots.free.add_permits(10);
    };
    let (first, second, ()) = tokio::join!(first, second, swapped);
    assert_eq!([first, second], ["not-taken", "other-tags"]);
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["restore", "erase"]);
}

#[tokio::test]
async fn a_slot_of_another_program_is_no_copy() {
    let stand = stand().await;
    stand.slots.put(0, &ids(2, 50));
    let asked = export(stand.worker(), 1, &ids(1, 60));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "other-prefix");
    stand.slots.put(0, &[]);
    let asked = export(stand.worker(), 1, &ids(1, 60));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "not-taken");
    // Where its tokens are not known, their number is.
    for tokens in [29, 121] {
        stand.slots.put(0, &ids(2, tokens));
        let mut asked = export(stand.worker(), 1, &ids(1, 60));
        asked.prompt = None;
        let error = stand.executors.export(asked).await.unwrap_err();
        assert_eq!(error.code(), "other-prefix");
    }
    stand.until_files(&[]).await;
    stand.until_bytes(0).await;
}

#[tokio::test]
async fn damage_is_found_before_the_engine_sees_it() {
    let stand = stand().await;
    for damage in [
        (|bytes: &mut Vec<u8>| bytes[900] ^= 1) as fn(&mut Vec<u8>),
        |bytes| bytes.truncate(1_000),
        Vec::clear,
        |bytes| bytes.push(0),
    ] {
        let copy = stand.copy(1, 50).await;
        let path = stand.folder.path().join(format!("tier/{}.kv", copy.id));
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let asked = import(stand.worker(), &copy, &ids(1, 50));
        assert_eq!(stand.refused(asked.clone()).await, "damaged");
        assert_eq!(stand.refused(asked).await, "gone");
        stand.until_files(&[]).await;
    }
    assert_eq!(stand.slots.get(1), Vec::<u32>::new());
    assert!(
        !stand
            .slots
            .asked
            .lock()
            .unwrap()
            .contains(&"restore".into())
    );
}
