//! Slot files through a tier: what comes back is what went in, or nothing.

#[allow(dead_code, reason = "each test uses some of it")]
mod engines;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use engines::stand::{Stand, limits, reopened, settings, stand, stand_with};
use engines::{Slots, export, ids, import};
use treadle_model::{EngineKind, ProgramId};
use treadle_transfer::{
    Executors, KvCopy, KvExecutor, Limits, Means, Settings, Tier, TierSettings,
};

#[tokio::test]
async fn a_copy_comes_back_as_it_went_out() {
    let stand = stand().await;
    let support = stand.executors.support(stand.worker()).await.unwrap();
    assert_eq!(support.means, Means::SlotFiles);
    assert!(support.offload && support.migrate);
    let held = ids(1, 50);
    stand.slots.put(0, &held);
    let asked = export(stand.worker(), 1, &held);
    let copy = stand.executors.export(asked).await.unwrap();
    assert_eq!(copy.prefix.tokens, 50);
    // Whoever has given the transfer up meanwhile finds it where it was.
    assert_eq!(stand.slots.get(0), held);
    assert_eq!(*stand.slots.asked.lock().unwrap(), ["save"]);
    assert_eq!(stand.tier.usage().bytes, copy.bytes);
    let handle = copy.to_handle().unwrap();
    let copy = KvCopy::from_handle(&handle).unwrap();
    let longer = [&held[..], &[5, 6, 7]].concat();
    let taken = stand
        .executors
        .import(import(stand.worker(), &copy, &longer));
    assert_eq!(taken.await.unwrap().tokens, 50);
    assert_eq!(stand.slots.get(1), held);
    // One copy and its handle.
    stand.until_so_many(2).await;
    stand.executors.drop(copy.clone()).await.unwrap();
    stand.executors.drop(copy.clone()).await.unwrap();
    stand.until_files(&[]).await;
    stand.until_bytes(0).await;
    let late = import(stand.worker(), &copy, &held);
    assert_eq!(stand.refused(late).await, "gone");
}

#[tokio::test]
async fn a_busy_slot_is_waited_for_up_to_a_bound_and_nothing_is_left() {
    let stand = stand().await;
    let hasty = Executors::new(Settings {
        tier: Some(stand.tier.clone()),
        limits: Limits {
            export: Duration::from_millis(100),
            import: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    });
    let held = ids(1, 50);
    let copy = stand.copy(1, 50).await;
    stand.slots.free.forget_permits(usize::MAX);
    let asked = export(stand.worker(), 1, &held);
    let error = hasty.export(asked.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let back = import(stand.worker(), &copy, &held);
    let error = hasty.import(back.clone()).await.unwrap_err();
    assert_eq!(error.code(), "timeout");
    let (kv, handle) = (format!("{}.kv", copy.id), format!("{}.json", copy.id));
    // The copy stays, its stage goes.
    stand.until_files(&[handle, kv]).await;
    assert_eq!(stand.tier.usage().in_transfer, 0);
    stand.slots.free.add_permits(10);
    stand.executors.import(back).await.unwrap();
    stand.executors.export(asked).await.unwrap();
}

#[tokio::test]
async fn whoever_stops_waiting_leaves_nothing() {
    let stand = stand().await;
    let held = ids(1, 50);
    stand.slots.put(0, &held);
    stand.executors.support(stand.worker()).await.unwrap();
    stand.slots.free.forget_permits(usize::MAX);
    {
        let mut export = std::pin::pin!(stand.executors.export(export(stand.worker(), 1, &held)));
        let asked = async {
            while stand.slots.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            () = asked => {}
            copy = &mut export => panic!("{copy:?}"),
        }
    }
    // The engine may come to it although nobody waits: its file is swept up by the next transfer.
    stand.slots.free.add_permits(10);
    let copy = stand.copy(2, 50).await;
    stand.until_so_many(2).await;
    stand.executors.drop(copy).await.unwrap();
    stand.until_files(&[]).await;
}

#[tokio::test]
async fn the_tier_keeps_its_bound_and_says_who_gave_way() {
    let stand = stand_with(12_000).await;
    // 50 tokens have some 5,200 bytes, so two copies fit.
    let (first, second) = (stand.copy(1, 50).await, stand.copy(2, 50).await);
    let back = import(stand.worker(), &first, &ids(1, 50));
    stand.executors.import(back).await.unwrap();
    let third = stand.copy(3, 50).await;
    let gone = stand.tier.evictions().next().await;
    assert_eq!((gone.id, gone.program), (second.id, ProgramId(2)));
    assert_eq!(stand.tier.evictions().take(9), []);
    assert_eq!(stand.tier.copies(), [first.clone(), third.clone()]);
    stand.until_so_many(4).await;
    // With one of them in transfer there is room for one more, not for two.
    stand.slots.free.forget_permits(usize::MAX);
    let worker = stand.worker();
    let beside = Slots::new(stand.folder.path().join("slots"));
    let other = beside.serve().await;
    let asked = stand.executors.import(import(worker, &first, &ids(1, 50)));
    let restoring = async {
        while stand.tier.usage().in_transfer == 0 {
            tokio::task::yield_now().await;
        }
        let large = ids(4, 70);
        beside.put(0, &large);
        let worker = other.worker(EngineKind::Llamacpp);
        let error = stand.executors.export(export(worker, 4, &large)).await;
        assert_eq!(error.unwrap_err().code(), "tier-full");
        let asked = beside.asked.lock().unwrap().clone();
        assert_eq!(asked, Vec::<String>::new(), "no file was written in vain");
        assert_eq!(stand.tier.copies().len(), 2, "nobody gave way in vain");
        stand.slots.free.add_permits(10);
    };
    let (taken, ()) = tokio::join!(asked, restoring);
    taken.unwrap();
    assert!(stand.tier.usage().bytes <= 12_000);
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
async fn a_folder_that_is_not_the_engines_is_told() {
    let stand = stand().await;
    let elsewhere = tempfile::tempdir().unwrap();
    let slots = Slots::new(elsewhere.path());
    slots.put(0, &ids(1, 50));
    let engine = slots.serve().await;
    let asked = export(engine.worker(EngineKind::Llamacpp), 1, &ids(1, 50));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "file");
    assert!(error.to_string().contains("--slot-save-path"), "{error}");
}

#[tokio::test]
async fn a_dead_engine_is_told() {
    let stand = stand().await;
    let copy = stand.copy(1, 50).await;
    let worker = stand.worker();
    drop(stand.engine);
    let asked = export(worker.clone(), 1, &ids(1, 50));
    let error = stand.executors.export(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    let asked = import(worker, &copy, &ids(1, 50));
    let error = stand.executors.import(asked).await.unwrap_err();
    assert_eq!(error.code(), "unreachable");
    assert_eq!(stand.tier.usage().in_transfer, 0);
}

#[tokio::test]
async fn the_next_process_takes_over_what_is_whole() {
    let stand = stand().await;
    let (first, second) = (stand.copy(1, 50).await, stand.copy(2, 60).await);
    let third = stand.copy(3, 50).await;
    let settings = settings(stand.folder.path(), 12_000);
    assert!(Tier::open(&settings).is_err(), "one process at a time");
    let Stand {
        folder,
        tier,
        executors,
        slots: _slots,
        engine,
    } = stand;
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
