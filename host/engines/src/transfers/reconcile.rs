//! Compares the core's handles with the copies that exist when a scheduler starts.

use super::node::Node;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use treadle_core::Event;
use treadle_core::programs::ProgramEvent;
use treadle_model::ProgramId;
use treadle_scheduler::DriverHandle;
use treadle_transfer::{CopyId, CopyLocation, KvCopy, Tier};

/// A copy tracked by the core.
pub(super) struct Known {
    pub(super) id: CopyId,
    pub(super) program: ProgramId,
    pub(super) handle: Box<str>,
}

/// Reports missing copies, drops unknown ones, and returns the rest.
pub(super) async fn compare(node: &Node, driver: &DriverHandle, owner: &str) -> Vec<Known> {
    let Ok(held) = driver.held_copies().await else {
        return Vec::new();
    };
    let (known, gone) = split(held, node.tier.as_ref());
    for (program, copy) in gone {
        tracing::info!(%program, "the copy of a KV cache was lost since the last start");
        driver.event(Event::Program(ProgramEvent::CopyLost { program, copy }));
    }
    drop_orphans(node, owner, &known).await;
    known
}

/// Drops unknown copies, at other nodes too: all of them if only one scheduler has copies, else
/// those of `owner`. No copy of this term exists yet.
async fn drop_orphans(node: &Node, owner: &str, known: &[Known]) {
    let known: BTreeSet<CopyId> = known.iter().map(|known| known.id).collect();
    if let Some(tier) = &node.tier {
        let dropped = tier.keep_only((!node.alone).then_some(owner), &known).await;
        tracing::debug!(dropped, "unknown copies");
    }
    let asked = node.others.iter().map(|other| async {
        let kept = node.executors.keep_only(other, owner, &known);
        if let Err(error) = kept.await {
            tracing::info!(node = &**other, %error, "could not drop unknown copies at a node");
        }
    });
    join_all(asked).await;
}

type Handles = Vec<(ProgramId, Box<str>)>;

/// Splits handles into usable and lost ones. Copies at other nodes are checked when they are used.
fn split(held: Handles, tier: Option<&Tier>) -> (Vec<Known>, Handles) {
    let here: Vec<KvCopy> = tier.map(Tier::copies).unwrap_or_default();
    let (mut known, mut gone) = (Vec::new(), Vec::new());
    for (program, handle) in held {
        let copy = KvCopy::from_handle(&handle).ok();
        let copy = copy.filter(|copy| is_there(copy, tier, &here));
        match copy {
            Some(KvCopy { id, .. }) => known.push(Known {
                id,
                program,
                handle,
            }),
            None => gone.push((program, handle)),
        }
    }
    (known, gone)
}

fn is_there(copy: &KvCopy, tier: Option<&Tier>, here: &[KvCopy]) -> bool {
    match &copy.place {
        CopyLocation::Tier { node, .. } => match tier {
            Some(tier) if **node == *tier.node() => here.iter().any(|held| held.id == copy.id),
            Some(_) => true,
            None => false,
        },
        // The process that created it, which was allowed to use it, has ended.
        CopyLocation::Engine { .. } => false,
        CopyLocation::Storage { .. } | CopyLocation::Simulated { .. } => true,
    }
}

#[cfg(test)]
mod tests {
    use treadle_transfer::{Prefix, Tags, TierSettings};

    use super::*;

    fn copy(program: u64, node: &str) -> KvCopy {
        KvCopy {
            id: CopyId::random().unwrap(),
            program: ProgramId(program),
            tags: Tags {
                model: "m".into(),
                shape: None,
                block_tokens: None,
                dtype: None,
            },
            prefix: Prefix::of(&[1]),
            bytes: 2,
            checksum: None,
            place: CopyLocation::Tier {
                node: node.into(),
                owner: "".into(),
            },
        }
    }

    #[test]
    fn missing_copies_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let in_tier = folder.path().join("tier");
        std::fs::create_dir_all(&in_tier).unwrap();
        let (there, gone, elsewhere) = (copy(1, "here"), copy(2, "here"), copy(3, "other"));
        // The file format of a tier.
        std::fs::write(in_tier.join(format!("{}.kv", there.id)), "xx").unwrap();
        let handle = there.to_handle().unwrap();
        std::fs::write(in_tier.join(format!("{}.json", there.id)), &*handle).unwrap();
        let tier = Tier::open(&TierSettings {
            folder: in_tier,
            slots_folder: folder.path().join("slots"),
            bytes_max: 100,
            node: "here".into(),
        })
        .unwrap();
        let held: Handles = [&there, &gone, &elsewhere]
            .into_iter()
            .map(|copy| (copy.program, copy.to_handle().unwrap()))
            .chain([(ProgramId(4), "no handle".into())])
            .collect();
        let (known, lost) = split(held.clone(), Some(&tier));
        let programs: Vec<_> = known.iter().map(|known| known.program.0).collect();
        assert_eq!(programs, [1, 3]);
        let programs: Vec<_> = lost.iter().map(|(program, _)| program.0).collect();
        assert_eq!(programs, [2, 4]);
        let (known, lost) = split(held, None);
        assert_eq!(
            (known.len(), lost.len()),
            (0, 4),
            "there is no tier any more"
        );
    }
}
