//! The snapshot: a mark with the format's version, the job's figures, then for each group its
//! number and its figures, the oldest first. All numbers have 8 bytes, little-endian.

use treadle_plugin::PolicyError;

use crate::figures::Figures;
use crate::groups::Groups;

const MARK: &[u8; 8] = b"history1";

pub(crate) fn write(job: &Figures, groups: &Groups) -> Vec<u8> {
    let mut bytes = MARK.to_vec();
    let put = |bytes: &mut Vec<u8>, figures: &Figures| {
        let numbers = figures.numbers();
        bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    };
    put(&mut bytes, job);
    for (group, figures) in groups.oldest_first() {
        bytes.extend(group.to_le_bytes());
        put(&mut bytes, figures);
    }
    bytes
}

/// Parses a snapshot, keeping the newest `groups_max` groups.
pub(crate) fn read(bytes: &[u8], groups_max: usize) -> Result<(Figures, Groups), PolicyError> {
    let rest = bytes
        .strip_prefix(MARK)
        .ok_or_else(|| invalid("it does not begin with the mark of version 1"))?;
    let (words, beyond) = rest.as_chunks();
    let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (job, of_groups) = words
        .split_at_checked(4)
        .ok_or_else(|| invalid("it ends within the job's figures"))?;
    let of_groups = of_groups.chunks_exact(5);
    if !beyond.is_empty() || !of_groups.remainder().is_empty() {
        return Err(invalid("it ends within the figures of a group"));
    }
    let job = figures(job)?;
    let mut groups = Groups::default();
    for words in of_groups {
        *groups.touch(words[0], groups_max) = figures(&words[1..])?;
    }
    Ok((job, groups))
}

fn figures(words: &[u64]) -> Result<Figures, PolicyError> {
    let numbers = std::array::from_fn(|place| f64::from_bits(words[place]));
    Figures::from_numbers(numbers).ok_or_else(|| invalid("a figure is negative or not finite"))
}

fn invalid(why: &str) -> PolicyError {
    PolicyError::failed(format!(
        "the snapshot can't be read: {why}; start without it"
    ))
}
