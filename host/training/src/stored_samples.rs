//! Stored samples of the members of a batch, each checked against the digest that was recorded.

use crate::payloads::{damaged, digest_text, missing, of_sample};
use std::collections::BTreeMap;
use treadle_core::training::{Group, Member};
use treadle_samples::{Sample, digest, load};

/// Stored samples, by name.
pub(crate) type Samples = BTreeMap<String, Vec<u8>>;

/// A member of a batch with its sample.
pub(crate) struct Named<'b> {
    /// Index of its group.
    pub(crate) group: usize,
    pub(crate) program: &'b str,
    pub(crate) member: &'b Member,
    pub(crate) sample: Sample,
}

/// Members of groups in their order, each with its sample, which is empty if it has none.
pub(crate) fn named<'b>(
    groups: &'b [(Box<str>, Group)],
    samples: &'b Samples,
) -> impl Iterator<Item = Result<Named<'b>, String>> {
    let members = groups.iter().enumerate().flat_map(|(index, (_, group))| {
        let members = group.members.iter();
        members.map(move |(program, member)| (index, program, member))
    });
    members.map(|(group, program, member)| {
        let sample = match member.sample.as_deref() {
            Some(digest) => sample(program, digest, samples)?,
            None => Sample::default(),
        };
        Ok(Named {
            group,
            program,
            member,
            sample,
        })
    })
}

/// A stored sample, if it is the one that was recorded.
fn sample(program: &str, recorded: &str, samples: &Samples) -> Result<Sample, String> {
    let name = of_sample(program, recorded);
    let bytes = samples.get(&name);
    let bytes = bytes.ok_or_else(|| missing(&name))?;
    let sample = load(bytes).map_err(|error| format!("{name} is damaged: {error}"))?;
    if digest_text(&digest(&sample.sequences)) == recorded {
        Ok(sample)
    } else {
        Err(damaged(&name))
    }
}
