//! The snapshot: a mark with the format's version, the job's figures, then for each group its
//! number and its figures, the oldest first. All numbers have 8 bytes, little-endian.

use treadle_plugin::PolicyError;

use crate::groups::Groups;
use crate::running::{Running, STAGES, Stages};

const MARK: &[u8; 8] = b"treadle1";
const STAGES_BYTES: usize = STAGES * 4 * 8;
const GROUP_BYTES: usize = 8 + STAGES_BYTES;

pub(crate) fn write(job: &Stages, groups: &Groups) -> Vec<u8> {
    let groups = groups.oldest_first();
    let mut bytes = Vec::with_capacity(MARK.len() + STAGES_BYTES + groups.len() * GROUP_BYTES);
    bytes.extend(MARK);
    write_stages(&mut bytes, job);
    for (group, stages) in groups {
        bytes.extend(group.to_le_bytes());
        write_stages(&mut bytes, stages);
    }
    bytes
}

fn write_stages(bytes: &mut Vec<u8>, stages: &Stages) {
    for number in stages.iter().flat_map(Running::numbers) {
        bytes.extend(number.to_le_bytes());
    }
}

/// Parses a snapshot, keeping the newest `groups_max` groups.
pub(crate) fn read(bytes: &[u8], groups_max: usize) -> Result<(Stages, Groups), PolicyError> {
    let rest = bytes
        .strip_prefix(MARK)
        .ok_or_else(|| invalid("it does not begin with the mark of version 1"))?;
    let (job, rest) = rest
        .split_at_checked(STAGES_BYTES)
        .ok_or_else(|| invalid("it ends within the job's figures"))?;
    let job = read_stages(job)?;
    let chunks = rest.chunks_exact(GROUP_BYTES);
    if !chunks.remainder().is_empty() {
        return Err(invalid("it ends within the figures of a group"));
    }
    let mut groups = Groups::default();
    for chunk in chunks {
        let (group, stages) = chunk.split_at(8);
        let group = group
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        *groups.touch(group, groups_max) = read_stages(stages)?;
    }
    Ok((job, groups))
}

fn read_stages(bytes: &[u8]) -> Result<Stages, PolicyError> {
    let mut stages = Stages::default();
    for (stage, bytes) in stages.iter_mut().zip(bytes.chunks_exact(4 * 8)) {
        let mut numbers = [0.0; 4];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks().0) {
            *number = f64::from_le_bytes(*bytes);
        }
        *stage = Running::from_numbers(numbers)
            .ok_or_else(|| invalid("a figure is negative or not finite"))?;
    }
    Ok(stages)
}

fn invalid(why: &str) -> PolicyError {
    PolicyError::failed(format!(
        "the snapshot can't be read: {why}; start without it"
    ))
}
