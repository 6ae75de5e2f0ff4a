//! What must not reach an engine: KV of other programs and models, and damaged files.

use crate::engines::fixture::fixture;
use crate::engines::{export, ids, import, tags};
use treadle_model::ProgramId;
use treadle_transfer::{KvExecutor, Tags};

#[tokio::test]
async fn what_is_not_the_programs_is_not_restored() {
    let fixture = fixture().await;
    let copy = fixture.copy(1, 50).await;
    let held = ids(1, 50);
    let right = import(fixture.worker(), &copy, &held);
    let tagged = |tags: Tags| treadle_transfer::Import {
        tags,
        ..right.clone()
    };
    let model = tagged(Tags {
        model: "other".into(),
        ..tags()
    });
    assert_eq!(fixture.refused(model).await, "other-tags");
    let program = treadle_transfer::Import {
        program: ProgramId(2),
        ..right.clone()
    };
    assert_eq!(fixture.refused(program).await, "other-program");
    let prefix = import(fixture.worker(), &copy, &ids(2, 60));
    assert_eq!(fixture.refused(prefix).await, "other-prefix");
    let shorter = import(fixture.worker(), &copy, &held[..49]);
    assert_eq!(fixture.refused(shorter).await, "other-prefix");
    let mut forged = right.clone();
    forged.copy.tags.dtype = Some("f32".into());
    forged.tags.dtype = Some("f32".into());
    assert_eq!(fixture.refused(forged).await, "wrong-handle");
    let mut unknown = right.clone();
    unknown.copy.id = treadle_transfer::CopyId::random().unwrap();
    assert_eq!(fixture.refused(unknown).await, "gone");
    let mut slotless = right.clone();
    slotless.slot = None;
    assert_eq!(fixture.refused(slotless).await, "incomplete");
    let mut beyond = right;
    beyond.slot = Some(4);
    assert_eq!(fixture.refused(beyond).await, "unsupported");
    let asked = fixture.slots.asked.lock().unwrap().clone();
    assert_eq!(asked, ["save"], "no restore was tried");
    fixture.until_so_many(2).await;
}

#[tokio::test]
async fn a_server_that_has_another_model_by_now_is_found_out() {
    let fixture = fixture().await;
    let held = ids(1, 50);
    let copy = fixture.copy(1, 50).await;
    let back = import(fixture.worker(), &copy, &held);
    // The caller does not know of it yet: neither the name nor the file.
    for (name, file) in [("other", "tiny.gguf"), ("tiny", "other.gguf")] {
        fixture.slots.become_another(name, file);
        assert_eq!(fixture.refused(back.clone()).await, "other-tags");
    }
    fixture.slots.become_another("other", "tiny.gguf");
    let out = export(fixture.worker(), 1, &held);
    let error = fixture.executors.export(out).await.unwrap_err();
    assert_eq!(
        error.code(),
        "other-tags",
        "who asks takes it for the first"
    );
    assert_eq!(
        *fixture.slots.asked.lock().unwrap(),
        ["save"],
        "nothing else"
    );
    fixture.slots.become_another("tiny", "tiny.gguf");
    fixture.executors.import(back).await.unwrap();
}

#[tokio::test]
async fn a_server_that_becomes_another_in_mid_transfer_is_found_out() {
    let fixture = fixture().await;
    let held = ids(1, 50);
    let copy = fixture.copy(1, 50).await;
    let before = fixture.tier.usage();
    for back in [true, false] {
        fixture.slots.become_another("tiny", "tiny.gguf");
        fixture.slots.asked.lock().unwrap().clear();
        fixture.slots.free.forget_permits(usize::MAX);
        let swapped = async {
            fixture.slots.until_asked(1).await;
            fixture.slots.become_another("tiny", "other.gguf");
            fixture.slots.free.add_permits(10);
        };
        let code = async {
            if back {
                fixture
                    .refused(import(fixture.worker(), &copy, &held))
                    .await
            } else {
                let asked = export(fixture.worker(), 1, &held);
                fixture.executors.export(asked).await.unwrap_err().code()
            }
        };
        let (code, ()) = tokio::join!(code, swapped);
        assert_eq!(code, "not-taken");
    }
    assert_eq!(fixture.slots.get(1), Vec::<u32>::new(), "emptied again");
    // Nothing was kept.
    fixture.until_bytes(before.bytes).await;
    assert_eq!(fixture.tier.usage(), before);
    // One that changes while a transfer waits for its turn, too.
    fixture.slots.become_another("tiny", "tiny.gguf");
    fixture.slots.asked.lock().unwrap().clear();
    fixture.slots.free.forget_permits(usize::MAX);
    let first = fixture.refused(import(fixture.worker(), &copy, &held));
    let second = fixture.refused(import(fixture.worker(), &copy, &held));
    let swapped = async {
        fixture.slots.until_asked(1).await;
        fixture.slots.become_another("other", "other.gguf");
        fixture.slots.free.add_permits(10);
    };
    let (first, second, ()) = tokio::join!(first, second, swapped);
    assert_eq!([first, second], ["not-taken", "other-tags"]);
    assert_eq!(*fixture.slots.asked.lock().unwrap(), ["restore", "erase"]);
}

#[tokio::test]
async fn a_slot_of_another_program_is_no_copy() {
    let fixture = fixture().await;
    fixture.slots.put(0, &ids(2, 50));
    let asked = export(fixture.worker(), 1, &ids(1, 60));
    let error = fixture.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "other-prefix");
    fixture.slots.put(0, &[]);
    let asked = export(fixture.worker(), 1, &ids(1, 60));
    let error = fixture.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "not-taken");
    // Where its tokens are not known, their number is.
    for tokens in [29, 121] {
        fixture.slots.put(0, &ids(2, tokens));
        let mut asked = export(fixture.worker(), 1, &ids(1, 60));
        asked.prompt = None;
        let error = fixture.executors.export(asked).await.unwrap_err();
        assert_eq!(error.code(), "other-prefix");
    }
    fixture.until_files(&[]).await;
    fixture.until_bytes(0).await;
}

#[tokio::test]
async fn damage_is_found_before_the_engine_sees_it() {
    let fixture = fixture().await;
    for damage in [
        (|bytes: &mut Vec<u8>| bytes[900] ^= 1) as fn(&mut Vec<u8>),
        |bytes| bytes.truncate(1_000),
        Vec::clear,
        |bytes| bytes.push(0),
    ] {
        let copy = fixture.copy(1, 50).await;
        let path = fixture.folder.path().join(format!("tier/{}.kv", copy.id));
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let asked = import(fixture.worker(), &copy, &ids(1, 50));
        assert_eq!(fixture.refused(asked.clone()).await, "damaged");
        assert_eq!(fixture.refused(asked).await, "gone");
        fixture.until_files(&[]).await;
    }
    assert_eq!(fixture.slots.get(1), Vec::<u32>::new());
    assert!(
        !fixture
            .slots
            .asked
            .lock()
            .unwrap()
            .contains(&"restore".into())
    );
}
