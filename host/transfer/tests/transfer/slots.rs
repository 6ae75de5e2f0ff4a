//! Slot files through a tier: what comes back is what went in, or nothing.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use crate::engines::fixture::{Fixture, fixture, fixture_with, limits, reopened, settings};
use crate::engines::{Slots, export, ids, import};
use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{
    Executors, KvCopy, KvExecutor, KvInterface, Limits, Settings, Tier, TierSettings,
};

#[tokio::test]
async fn a_copy_comes_back_as_it_went_out() {
    let fixture = fixture().await;
    let support = fixture.executors.support(fixture.worker()).await.unwrap();
    assert_eq!(support.interface, KvInterface::SlotFiles);
    assert!(support.offload && support.migrate);
    let held = ids(1, 50);
    fixture.slots.put(0, &held);
    let asked = export(fixture.worker(), 1, &held);
    let copy = fixture.executors.export(asked).await.unwrap();
    assert_eq!(copy.prefix.tokens, 50);
    // A caller that has cancelled the transfer meanwhile finds it where it was.
    assert_eq!(fixture.slots.get(0), held);
    assert_eq!(*fixture.slots.asked.lock().unwrap(), ["save"]);
    assert_eq!(fixture.tier.usage().bytes, copy.bytes);
    let handle = copy.to_handle().unwrap();
    let copy = KvCopy::from_handle(&handle).unwrap();
    let longer = [&held[..], &[5, 6, 7]].concat();
    let taken = fixture
        .executors
        .import(import(fixture.worker(), &copy, &longer));
    assert_eq!(taken.await.unwrap().tokens, 50);
    assert_eq!(fixture.slots.get(1), held);
    // One copy and its handle.
    fixture.until_so_many(2).await;
    fixture.executors.drop(copy.clone()).await.unwrap();
    fixture.executors.drop(copy.clone()).await.unwrap();
    fixture.until_files(&[]).await;
    fixture.until_bytes(0).await;
    let late = import(fixture.worker(), &copy, &held);
    assert_eq!(fixture.refused(late).await, "gone");
}

#[test]
fn the_folder_of_a_tier_is_its_owners_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("tier");
    let settings = TierSettings {
        folder: folder.clone(),
        slots_folder: scratch.path().join("slots"),
        bytes_max: 1 << 20,
        node: "here".into(),
    };
    for _ in 0..2 {
        drop(Tier::open(&settings).unwrap());
        let seen = std::fs::metadata(&folder).unwrap().permissions();
        assert_eq!(seen.mode() & 0o777, 0o700);
        // As a daemon of before has left it.
        std::fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn a_busy_slot_is_waited_for_up_to_a_bound_and_nothing_is_left() {
    let fixture = fixture().await;
    let hasty = Executors::new(Settings {
        tier: Some(fixture.tier.clone()),
        limits: Limits {
            export: Duration::from_millis(100),
            import: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    });
    let held = ids(1, 50);
    let copy = fixture.copy(1, 50).await;
    fixture.slots.free.forget_permits(usize::MAX);
    let asked = export(fixture.worker(), 1, &held);
    let error = hasty.export(asked.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let back = import(fixture.worker(), &copy, &held);
    let error = hasty.import(back.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let (kv, handle) = (format!("{}.kv", copy.id), format!("{}.json", copy.id));
    // The copy stays, its stage goes.
    fixture.until_files(&[handle, kv]).await;
    assert_eq!(fixture.tier.usage().in_transfer, 0);
    fixture.slots.free.add_permits(10);
    fixture.executors.import(back).await.unwrap();
    fixture.executors.export(asked).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_caller_leaves_nothing() {
    let fixture = fixture().await;
    let held = ids(1, 50);
    fixture.slots.put(0, &held);
    fixture.executors.support(fixture.worker()).await.unwrap();
    fixture.slots.free.forget_permits(usize::MAX);
    {
        let mut export =
            std::pin::pin!(fixture.executors.export(export(fixture.worker(), 1, &held)));
        let asked = async {
            while fixture.slots.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = asked => {}
            copy = &mut export => panic!("{copy:?}"),
        }
    }
    // The engine may read it although the caller is gone: its file is swept up by the next
    // transfer.
    fixture.slots.free.add_permits(10);
    let copy = fixture.copy(2, 50).await;
    fixture.until_so_many(2).await;
    fixture.executors.drop(copy).await.unwrap();
    fixture.until_files(&[]).await;
}

#[tokio::test]
async fn the_tier_keeps_its_bound_and_reports_evictions() {
    let fixture = fixture_with(12_000).await;
    // 50 tokens have some 5,200 bytes, so two copies fit.
    let (first, second) = (fixture.copy(1, 50).await, fixture.copy(2, 50).await);
    let back = import(fixture.worker(), &first, &ids(1, 50));
    fixture.executors.import(back).await.unwrap();
    let third = fixture.copy(3, 50).await;
    let gone = fixture.tier.evictions().next().await;
    assert_eq!((gone.id, gone.program), (second.id, ProgramId(2)));
    assert_eq!(fixture.tier.evictions().take(9), []);
    assert_eq!(fixture.tier.copies(), [first.clone(), third.clone()]);
    fixture.until_so_many(4).await;
    // With one of them in transfer there is room for one more, not for two.
    fixture.slots.free.forget_permits(usize::MAX);
    let worker = fixture.worker();
    let beside = Slots::new(fixture.folder.path().join("slots"));
    let other = beside.serve().await;
    let asked = fixture
        .executors
        .import(import(worker, &first, &ids(1, 50)));
    let restoring = async {
        while fixture.tier.usage().in_transfer == 0 {
            tokio::task::yield_now().await;
        }
        let large = ids(4, 70);
        beside.put(0, &large);
        let worker = other.worker(EngineKind::Llamacpp);
        let error = fixture.executors.export(export(worker, 4, &large)).await;
        assert_eq!(error.unwrap_err().code(), "tier-full");
        let asked = beside.asked.lock().unwrap().clone();
        assert_eq!(asked, Vec::<String>::new(), "no file was written in vain");
        assert_eq!(
            fixture.tier.copies().len(),
            2,
            "nothing was evicted in vain"
        );
        fixture.slots.free.add_permits(10);
    };
    let (taken, ()) = tokio::join!(asked, restoring);
    taken.unwrap();
    assert!(fixture.tier.usage().bytes <= 12_000);
}

#[tokio::test]
async fn what_is_there_twice_has_room_for_two() {
    let (folder, shared) = (
        tempfile::tempdir().unwrap(),
        tempfile::tempdir_in("/dev/shm"),
    );
    let shared = shared.unwrap();
    let device = |path: &Path| std::fs::metadata(path).unwrap().dev();
    let crosses = device(folder.path()) != device(shared.path());
    for (bytes_max, fits) in [(6_000, !crosses), (12_000, true)] {
        let settings = TierSettings {
            slots_folder: shared.path().into(),
            ..settings(&folder.path().join(bytes_max.to_string()), bytes_max)
        };
        let tier = Tier::open(&settings).unwrap();
        let executors = Executors::new(Settings {
            tier: Some(tier.clone()),
            limits: limits(),
            ..Settings::default()
        });
        let slots = Slots::new(shared.path());
        let engine = slots.serve().await;
        let worker = engine.worker(EngineKind::Llamacpp);
        let held = ids(1, 50);
        slots.put(0, &held);
        let copied = executors.export(export(worker.clone(), 1, &held)).await;
        match copied {
            Ok(copy) => {
                let taken = executors.import(import(worker, &copy, &held)).await;
                assert_eq!(taken.unwrap().tokens, 50);
            }
            Err(error) => assert_eq!(error.code(), "tier-full"),
        }
        assert_eq!(tier.usage().copies, usize::from(fits));
    }
}

#[tokio::test]
async fn a_folder_that_is_not_the_engines_is_reported() {
    let fixture = fixture().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let slots = Slots::new(elsewhere.path());
    slots.put(0, &ids(1, 50));
    let engine = slots.serve().await;
    let asked = export(engine.worker(EngineKind::Llamacpp), 1, &ids(1, 50));
    let error = fixture.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "file");
    assert!(error.to_string().contains("--slot-save-path"), "{error}");
}

#[tokio::test]
async fn a_dead_engine_is_reported() {
    let fixture = fixture().await;
    let copy = fixture.copy(1, 50).await;
    let worker = fixture.worker();
    drop(fixture.engine);
    let asked = export(worker.clone(), 1, &ids(1, 50));
    let error = fixture.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    let asked = import(worker, &copy, &ids(1, 50));
    let error = fixture.executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    assert_eq!(fixture.tier.usage().in_transfer, 0);
}

#[tokio::test]
async fn the_next_process_takes_over_what_is_whole() {
    let fixture = fixture().await;
    let (first, second) = (fixture.copy(1, 50).await, fixture.copy(2, 60).await);
    let third = fixture.copy(3, 50).await;
    let settings = settings(fixture.folder.path(), 12_000);
    assert!(Tier::open(&settings).is_err(), "one process at a time");
    let Fixture {
        folder,
        tier,
        executors,
        slots: _slots,
        engine,
    } = fixture;
    drop((tier, executors, engine));
    let in_tier = |name: String| folder.path().join("tier").join(name);
    // What a killed process may leave: a copy that came in, one without its handle, a handle without
    // its copy, and half of a copy.
    let id = treadle_transfer::CopyId::random().unwrap();
    std::fs::write(in_tier(format!("{id}.part")), "x").unwrap();
    let id = treadle_transfer::CopyId::random().unwrap();
    std::fs::write(in_tier(format!("{id}.kv")), "x").unwrap();
    std::fs::write(in_tier("notes.txt".into()), "mine").unwrap();
    std::fs::write(in_tier(format!("{}.kv", third.id)), "half").unwrap();
    let tier = reopened(&settings).await;
    assert_eq!(tier.copies(), [first.clone(), second.clone()]);
    assert_eq!(tier.usage().bytes, first.bytes + second.bytes);
    let names = std::fs::read_dir(folder.path().join("tier")).unwrap();
    assert_eq!(
        names.count(),
        6,
        "two copies, the lock, and what is not ours"
    );
    drop(tier);
    let smaller = TierSettings {
        bytes_max: 8_000,
        ..settings
    };
    let tier = reopened(&smaller).await;
    assert_eq!(tier.copies(), [second]);
    assert_eq!(tier.evictions().next().await.id, first.id);
}
