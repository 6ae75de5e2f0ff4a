//! The payload of a batch: its tensors are checked, and the sample of each member is hashed as
//! `docs/training.md` defines its digest, or read. Nothing in a payload is trusted.

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::Range;

/// What a payload has, without its tokens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Payload {
    /// Digest of the whole file.
    pub(crate) file: [u8; 32],
    pub(crate) job: String,
    pub(crate) batch: u64,
    /// Keys of its groups.
    pub(crate) groups: Vec<String>,
    /// Members by their programs.
    pub(crate) members: BTreeMap<String, Sampled>,
}

/// A member in a payload.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sampled {
    /// Key of the group that owns its sequences, if it has any.
    pub(crate) group: Option<String>,
    /// The digest that the payload names.
    pub(crate) sample: Option<String>,
    /// The digest of what the payload has, in hexadecimal digits.
    pub(crate) digest: String,
    /// The oldest version of any token.
    pub(crate) oldest: Option<u64>,
    /// NaN if it has none.
    pub(crate) reward: f64,
}

/// A sequence of a member.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sequence {
    pub(crate) ids: Vec<i32>,
    /// Trained positions, in order.
    pub(crate) sampled: Vec<Range<usize>>,
    /// Of the tokens of all trained ranges, one range after the other.
    pub(crate) logprobs: Vec<f32>,
    /// Versions of positions, in order.
    pub(crate) versions: Vec<Span>,
}

/// Positions of a sequence that have the same version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) positions: Range<usize>,
    pub(crate) version: u64,
    /// The newest version that may have sampled a token of them, if not only that one did.
    pub(crate) newest: u64,
}

/// The tensor `meta`.
#[derive(Deserialize)]
struct Meta {
    job: String,
    batch: u64,
    groups: Vec<String>,
    members: Vec<MetaMember>,
    versions: Vec<Value>,
}

#[derive(Deserialize)]
struct MetaMember {
    program: String,
    sample: Option<String>,
    /// Ranges that several versions may have sampled: sequence, first position, one past the last,
    /// the newest version.
    #[serde(default)]
    mixed: Vec<[u64; 4]>,
}

/// The tensors, as rows of numbers.
struct Columns<'p> {
    ids: &'p [u8],
    logprobs: &'p [u8],
    starts: Vec<[u64; 1]>,
    sampled: Vec<[u64; 3]>,
    versions: Vec<[u64; 4]>,
    owner: Vec<[u64; 3]>,
    rewards: Vec<f64>,
    meta: Meta,
}

/// What the tensors have of a sequence.
struct Part<'p> {
    /// Index of its member.
    member: usize,
    ids: &'p [u8],
    sampled: Vec<Range<usize>>,
    logprobs: &'p [u8],
    versions: Vec<Span>,
}

/// What `owner` says of a member.
#[derive(Clone, Default)]
struct Owner {
    group: Option<u64>,
    sequences: u64,
}

/// A member whose sequences are being hashed.
#[derive(Default)]
struct Hashed {
    oldest: Option<u64>,
    hasher: Sha256,
}

/// Reads a payload. What is wrong with it is told in words.
pub(crate) fn read_payload(bytes: &[u8]) -> Result<Payload, String> {
    let columns = Columns::of(bytes)?;
    let mut hashed = Vec::new();
    hashed.resize_with(columns.meta.members.len(), Hashed::default);
    let owners = columns.each(|part| {
        if let Some(member) = hashed.get_mut(part.member) {
            member.add(&part);
        }
    })?;
    let meta = columns.meta;
    let mut members = BTreeMap::new();
    let named = meta.members.into_iter().zip(hashed).zip(owners);
    for (((member, hashed), owner), reward) in named.zip(columns.rewards) {
        let group = owner.group.map(|index| item(&meta.groups, index));
        let sampled = Sampled {
            group: group.transpose()?.cloned(),
            sample: member.sample,
            digest: hexadecimal(&hashed.hasher.finalize()),
            oldest: hashed.oldest,
            reward,
        };
        let program = member.program;
        if members.insert(program.clone(), sampled).is_some() {
            return Err(format!("`meta` names the program `{program}` twice"));
        }
    }
    Ok(Payload {
        file: Sha256::digest(bytes).into(),
        job: meta.job,
        batch: meta.batch,
        groups: meta.groups,
        members,
    })
}

/// The sequences of those members of a payload that are wanted.
pub(crate) fn read_sequences(
    bytes: &[u8],
    wanted: impl Fn(&str) -> bool,
) -> Result<BTreeMap<String, Vec<Sequence>>, String> {
    let columns = Columns::of(bytes)?;
    let programs = columns.meta.members.iter().map(|member| &member.program);
    let own = programs.filter(|program| wanted(program));
    let mut members: BTreeMap<String, Vec<Sequence>> =
        own.map(|program| (program.clone(), Vec::new())).collect();
    columns.each(|part| {
        let program = &columns.meta.members[part.member].program;
        if let Some(sequences) = members.get_mut(program) {
            sequences.push(part.into());
        }
    })?;
    Ok(members)
}

impl<'p> Columns<'p> {
    fn of(bytes: &'p [u8]) -> Result<Self, String> {
        let file = SafeTensors::deserialize(bytes).map_err(|error| error.to_string())?;
        let meta = tensor(&file, "meta", Dtype::U8, 1)?;
        let meta = serde_json::from_slice(meta).map_err(|error| format!("`meta`: {error}"))?;
        let reward = tensor(&file, "reward", Dtype::F64, 1)?.as_chunks().0;
        let columns = Self {
            ids: tensor(&file, "ids", Dtype::I32, 1)?,
            logprobs: tensor(&file, "logprobs", Dtype::F32, 1)?,
            starts: rows(&file, "sequence_start")?,
            sampled: rows(&file, "sampled")?,
            versions: rows(&file, "versions")?,
            owner: rows(&file, "owner")?,
            rewards: reward
                .iter()
                .map(|value| f64::from_le_bytes(*value))
                .collect(),
            meta,
        };
        let (rewards, members) = (columns.rewards.len(), columns.meta.members.len());
        if rewards != members {
            return Err(format!("`reward` has {rewards} rows for {members} members"));
        }
        let (starts, owners) = (columns.starts.len(), columns.owner.len());
        if starts != owners + 1 || columns.starts.first() != Some(&[0]) {
            return Err(format!(
                "`sequence_start` has {starts} rows from {:?} for {owners} sequences; it needs one \
                 more, from 0",
                columns.starts.first()
            ));
        }
        Ok(columns)
    }

    /// Visits each sequence. Answers what owns them, by member.
    fn each(&self, mut visit: impl FnMut(Part<'p>)) -> Result<Vec<Owner>, String> {
        let mut owners = vec![Owner::default(); self.meta.members.len()];
        let (mut sampled, mut versions) = (&self.sampled[..], &self.versions[..]);
        let (mut ids, mut logprobs) = (self.ids, self.logprobs);
        let members = self.meta.members.iter();
        let mut mixed: Vec<&[[u64; 4]]> = members.map(|member| &member.mixed[..]).collect();
        for (number, (bounds, owner)) in (0..).zip(self.starts.windows(2).zip(&self.owner)) {
            let [group, member, within] = *owner;
            let index = usize::try_from(member).ok();
            let known = index.and_then(|index| Some((index, owners.get_mut(index)?)));
            let (index, known) = known.ok_or_else(|| format!("`owner` names member {member}"))?;
            if within != known.sequences || *known.group.get_or_insert(group) != group {
                let expected = known.sequences;
                return Err(format!(
                    "`owner` gives member {member} sequence {within} of group {group}; {expected} \
                     of one group was next"
                ));
            }
            known.sequences += 1;
            let length = bounds[1][0].checked_sub(bounds[0][0]);
            let length =
                length.ok_or_else(|| format!("sequence {number} ends before it begins"))?;
            let own = ranges(&mut sampled, number, length)?;
            let tokens = own.iter().map(|range| range.len() as u64).sum();
            let ids = items(&mut ids, length, "ids")?;
            let logprobs = items(&mut logprobs, tokens, "logprobs")?;
            let rows = versions;
            let spans = ranges(&mut versions, number, length)?.into_iter().zip(rows);
            let mixed = &mut mixed[index];
            let spans = spans.map(|(positions, row)| {
                let version = version_of(item(&self.meta.versions, row[3])?)?;
                let newest = newest_of(mixed, [within, row[1], row[2]]).unwrap_or(version);
                Ok(Span {
                    positions,
                    version,
                    newest,
                })
            });
            visit(Part {
                member: index,
                ids,
                sampled: own,
                logprobs,
                versions: spans.collect::<Result<_, String>>()?,
            });
        }
        if let Some([sequence, start, end, _]) = mixed.iter().find_map(|rest| rest.first()) {
            return Err(format!(
                "`mixed` has the range {start} to {end} of sequence {sequence} of a member, which \
                 `versions` does not have there"
            ));
        }
        let left = [ids.len(), logprobs.len(), sampled.len(), versions.len()];
        if left == [0; 4] {
            return Ok(owners);
        }
        Err("tensors have rows after those of the last sequence".to_owned())
    }
}

impl Hashed {
    fn add(&mut self, part: &Part<'_>) {
        self.number((part.ids.len() / 4) as u64);
        self.hasher.update(part.ids);
        self.number(part.sampled.len() as u64);
        for range in &part.sampled {
            self.number(range.start as u64);
            self.number(range.end as u64);
        }
        self.hasher.update(part.logprobs);
        self.number(part.versions.len() as u64);
        for span in &part.versions {
            let oldest = self.oldest.unwrap_or(span.version);
            self.oldest = Some(oldest.min(span.version));
            self.number(span.positions.start as u64);
            self.number(span.positions.end as u64);
            self.number(span.version);
        }
    }

    fn number(&mut self, number: u64) {
        self.hasher.update(number.to_le_bytes());
    }
}

impl From<Part<'_>> for Sequence {
    fn from(part: Part<'_>) -> Self {
        let ids = part.ids.as_chunks().0.iter();
        let logprobs = part.logprobs.as_chunks().0.iter();
        Self {
            ids: ids.map(|id| i32::from_le_bytes(*id)).collect(),
            sampled: part.sampled,
            logprobs: logprobs.map(|p| f32::from_le_bytes(*p)).collect(),
            versions: part.versions,
        }
    }
}

/// Takes the rows of a sequence from the front: ranges of it, in order.
fn ranges<const N: usize>(
    rows: &mut &[[u64; N]],
    sequence: u64,
    length: u64,
) -> Result<Vec<Range<usize>>, String> {
    let own = rows.iter().take_while(|row| row[0] == sequence).count();
    let (own, rest) = rows.split_at(own);
    *rows = rest;
    let mut last = 0;
    let range = |row: &[u64; N]| {
        let (start, end) = (row[1], row[2]);
        if start < last || end < start || end > length {
            return Err(format!(
                "the range {start} to {end} of sequence {sequence} is not in order within {length} \
                 tokens"
            ));
        }
        last = end;
        Ok(start as usize..end as usize)
    };
    own.iter().map(range).collect()
}

/// Takes what a member's list has of a range from the front: it is in the order of the ranges.
fn newest_of(mixed: &mut &[[u64; 4]], range: [u64; 3]) -> Option<u64> {
    let (first, rest) = mixed.split_first()?;
    if first[..3] != range {
        return None;
    }
    *mixed = rest;
    Some(first[3])
}

/// Takes a number of values of four bytes from the front.
fn items<'p>(bytes: &mut &'p [u8], count: u64, name: &str) -> Result<&'p [u8], String> {
    let wanted = usize::try_from(count)
        .ok()
        .and_then(|count| count.checked_mul(4));
    let split = wanted.and_then(|wanted| bytes.split_at_checked(wanted));
    let (own, rest) = split.ok_or_else(|| format!("`{name}` is too short"))?;
    *bytes = rest;
    Ok(own)
}

fn item<T>(list: &[T], index: u64) -> Result<&T, String> {
    let found = usize::try_from(index)
        .ok()
        .and_then(|index| list.get(index));
    found.ok_or_else(|| format!("index {index} is beyond a list of {} in `meta`", list.len()))
}

fn version_of(value: &Value) -> Result<u64, String> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    let version = value.as_u64().or(text);
    version.ok_or_else(|| format!("`meta` has the version {value}, which is no number"))
}

/// The bytes of a tensor, if it has this type and number of columns.
fn tensor<'p>(
    file: &SafeTensors<'p>,
    name: &str,
    dtype: Dtype,
    columns: usize,
) -> Result<&'p [u8], String> {
    let found = file.tensor(name).map_err(|error| error.to_string())?;
    let shape = found.shape();
    let is_expected = match shape {
        [_] => columns == 1,
        [_, width] => columns > 1 && *width == columns,
        _ => false,
    };
    if found.dtype() == dtype && is_expected {
        return Ok(found.data());
    }
    let is = found.dtype();
    Err(format!(
        "`{name}` is {is:?} of shape {shape:?}, not {dtype:?} with {columns} columns"
    ))
}

/// A tensor of integers; a negative one is a fault.
fn rows<const N: usize>(file: &SafeTensors<'_>, name: &str) -> Result<Vec<[u64; N]>, String> {
    let numbers = tensor(file, name, Dtype::I64, N)?.as_chunks().0.iter();
    let numbers = numbers.map(|number| u64::try_from(i64::from_le_bytes(*number)));
    let numbers: Result<Vec<u64>, _> = numbers.collect();
    let numbers = numbers.map_err(|_| format!("`{name}` has a negative number"))?;
    Ok(numbers.as_chunks().0.to_vec())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
