//! Infers which prefixes of their first prompts programs share.

use super::recorder::RecordedProgram;
use std::collections::BTreeMap;

/// The shared parts of a program's first prompt.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct SharedPrefix {
    pub(super) system_tokens: u32,
    pub(super) group_tokens: u32,
    pub(super) group: u32,
}

/// The shared prefix of each program. Segments are hashes of everything before them, so two
/// programs that share a segment share all before it. The most common first segment is the system
/// prompt; what follows, up to the last segment that another program also has, belongs to the
/// group. For a program with another first segment, all of it belongs to the group.
pub(super) fn shared_prefixes(programs: &[RecordedProgram]) -> Vec<SharedPrefix> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    let mut firsts: BTreeMap<u64, usize> = BTreeMap::new();
    for program in programs {
        for segment in &program.prefix {
            *counts.entry(segment.hash).or_default() += 1;
        }
        if let Some(first) = program.prefix.first() {
            *firsts.entry(first.hash).or_default() += 1;
        }
    }
    let common = firsts.into_iter().filter(|(_, count)| *count > 1);
    let system = common.max_by_key(|(hash, count)| (*count, u64::MAX - hash));
    let system = system.map(|(hash, _)| hash);

    let mut groups: BTreeMap<Option<u64>, u32> = BTreeMap::new();
    let mut alone = 0;
    let mut shared = Vec::with_capacity(programs.len());
    for program in programs {
        let prefix = &program.prefix;
        let depth = prefix
            .iter()
            .take_while(|segment| counts[&segment.hash] > 1)
            .count();
        let has_system = prefix.first().map(|first| first.hash) == system && depth > 0;
        let tokens = |range: &[treadle_core::memory::PrefixSegment]| {
            let sum: u64 = range.iter().map(|segment| segment.tokens).sum();
            u32::try_from(sum).unwrap_or(u32::MAX / 4)
        };
        let own_from = usize::from(has_system);
        let group_tokens = tokens(&prefix[own_from..depth.max(own_from)]);
        // A program without a group gets one of its own, so that it shares nothing by accident.
        let name = (depth > own_from).then(|| prefix[depth - 1].hash);
        let next = groups.len() as u32 + alone;
        let group = if name.is_some() {
            *groups.entry(name).or_insert(next)
        } else {
            alone += 1;
            next
        };
        shared.push(SharedPrefix {
            system_tokens: if has_system { tokens(&prefix[..1]) } else { 0 },
            group_tokens,
            group,
        });
    }
    shared
}
