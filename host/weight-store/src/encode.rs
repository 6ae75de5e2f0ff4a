//! Writes a version's files: a delta, or a copy of a whole checkpoint with its checksums.

use crate::checkpoint::{Checkpoint, INDEX, Place};
use crate::checksum::{Algorithm, Digest, Hasher};
use crate::delta::Encoding;
use crate::error::{At, Result, damaged, not_whole};
use crate::files::{PIECE, copy_new, flushing, write_new};
use crate::version::{DeltaIndex, DeltaNotes, SUMS, Sums};
use crate::workers::{each, threads};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zstd::stream::write::Encoder;

/// The level that slime compresses with.
const LEVEL: i32 = 1;

/// A tensor that changed.
pub(crate) struct Changed<'c> {
    pub(crate) name: &'c str,
    pub(crate) place: &'c Place,
    pub(crate) old: Digest,
    pub(crate) new: Digest,
}

/// Two checkpoints with the same layout.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'c> {
    pub(crate) old: &'c Checkpoint,
    /// The version of the old one.
    pub(crate) version: u64,
    pub(crate) new: &'c Checkpoint,
}

/// Counts what is written.
struct Counted<W> {
    to: W,
    bytes: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes a delta into a folder. Returns its bytes.
pub(crate) fn write_delta(
    folder: &Path,
    pair: Pair<'_>,
    changed: &[Changed<'_>],
    notes: DeltaNotes,
) -> Result<u64> {
    let groups = in_groups(changed);
    let total = groups.len();
    let numbered: Vec<(usize, Vec<&Changed<'_>>)> = groups.into_iter().enumerate().collect();
    let encoding = notes.delta_encoding;
    let written = each(&numbered, |(at, group)| {
        let name = format!("model-{at:05}-of-{total:05}.safetensors");
        let bytes = write_group(&folder.join(&name), pair, group, encoding)?;
        Ok((name, bytes))
    })?;
    let mut weight_map = BTreeMap::new();
    for ((_, group), (file, _)) in numbered.iter().zip(&written) {
        for tensor in group {
            weight_map.insert(tensor.name.to_owned(), file.clone());
        }
    }
    let index = DeltaIndex {
        metadata: notes,
        weight_map,
    };
    write_new(&folder.join(INDEX), json!(index).to_string().as_bytes())?;
    Ok(written.iter().map(|(_, bytes)| bytes).sum())
}

/// Groups of about the same size, one for each file.
fn in_groups<'c, 'd>(changed: &'d [Changed<'c>]) -> Vec<Vec<&'d Changed<'c>>> {
    let mut groups: Vec<(u64, Vec<&Changed<'_>>)> = Vec::new();
    groups.resize_with(threads().min(changed.len()), Default::default);
    // The largest ones are first.
    for tensor in changed {
        if let Some(least) = groups.iter_mut().min_by_key(|(bytes, _)| *bytes) {
            least.0 += tensor.place.bytes;
            least.1.push(tensor);
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Writes a file of compressed changes: its header is as long as it can become, so that each change
/// is written as it is compressed.
fn write_group(
    path: &Path,
    pair: Pair<'_>,
    group: &[&Changed<'_>],
    encoding: Encoding,
) -> Result<u64> {
    let room = vec![[u64::MAX; 3]; group.len()];
    let room = header(group, &room).len().next_multiple_of(8);
    let mut file = File::create_new(path).at(path)?;
    file.seek(SeekFrom::Start(8 + room as u64)).at(path)?;
    let mut to = Counted {
        to: BufWriter::with_capacity(PIECE, &file),
        bytes: 0,
    };
    let ranges = flushing(&file, |flush| {
        let ranges = group.iter().map(|tensor| {
            let begin = to.bytes;
            write_change(&mut to, path, pair, tensor, encoding)?;
            flush.soon();
            Ok([to.bytes - begin, begin, to.bytes])
        });
        ranges.collect::<Result<Vec<[u64; 3]>>>()
    })?;
    to.flush().at(path)?;
    let bytes = 8 + room as u64 + to.bytes;
    let mut header = header(group, &ranges);
    header.resize(room, b' ');
    file.write_all_at(&(room as u64).to_le_bytes(), 0)
        .at(path)?;
    file.write_all_at(&header, 8).at(path)?;
    file.sync_all().at(path)?;
    Ok(bytes)
}

/// The header for tensors with these lengths, beginnings and ends.
fn header(group: &[&Changed<'_>], ranges: &[[u64; 3]]) -> Vec<u8> {
    let notes = group
        .iter()
        .map(|tensor| (tensor.name.to_owned(), json!(tensor.new.hex)));
    let mut header = Map::new();
    header.insert(
        "__metadata__".to_owned(),
        notes.collect::<Map<_, _>>().into(),
    );
    for (tensor, [length, begin, end]) in group.iter().zip(ranges) {
        let tensor_info: Value = json!({
            "dtype": "U8",
            "shape": [length],
            "data_offsets": [begin, end],
        });
        header.insert(tensor.name.to_owned(), tensor_info);
    }
    Value::Object(header).to_string().into_bytes()
}

fn write_change(
    to: &mut Counted<BufWriter<&File>>,
    path: &Path,
    pair: Pair<'_>,
    tensor: &Changed<'_>,
    encoding: Encoding,
) -> Result<()> {
    let bytes = match encoding {
        Encoding::Xor => tensor.place.bytes,
        Encoding::Overwrite => {
            let mut count = 0;
            each_change(pair, tensor, |_, _| {
                count += 1;
                Ok(())
            })?;
            4 + 5 * count
        }
    };
    let mut encoder = Encoder::new(to, LEVEL).at(path)?;
    // Readers in Python refuse a frame that does not say how long it becomes.
    encoder.set_pledged_src_size(Some(bytes)).at(path)?;
    encoder.include_contentsize(true).at(path)?;
    match encoding {
        Encoding::Xor => {
            let mut mask = vec![0; PIECE];
            both(pair, tensor, |_, old, new| {
                let mask = &mut mask[..new.len()];
                for ((mask, old), new) in mask.iter_mut().zip(old).zip(new) {
                    *mask = old ^ new;
                }
                encoder.write_all(mask)
            })?;
        }
        Encoding::Overwrite => {
            let count = u32::try_from((bytes - 4) / 5).map_err(io::Error::other);
            let count = count.at(path)?;
            encoder.write_all(&count.to_le_bytes()).at(path)?;
            let position = |at: u64| u32::try_from(at).map_err(io::Error::other);
            each_change(pair, tensor, |at, _| {
                encoder.write_all(&position(at)?.to_le_bytes())
            })?;
            each_change(pair, tensor, |_, value| encoder.write_all(&[value]))?;
        }
    }
    encoder.finish().at(path)?;
    Ok(())
}

/// Calls for each byte that changed, with its position and new value.
fn each_change(
    pair: Pair<'_>,
    tensor: &Changed<'_>,
    mut change: impl FnMut(u64, u8) -> io::Result<()>,
) -> Result<()> {
    both(pair, tensor, |at, old, new| {
        for (offset, (old, new)) in old.iter().zip(new).enumerate() {
            if old != new {
                change(at + offset as u64, *new)?;
            }
        }
        Ok(())
    })
}

/// Calls with old and new bytes of a tensor, piece by piece, and checks that they are those whose
/// checksums are known.
fn both(
    pair: Pair<'_>,
    tensor: &Changed<'_>,
    mut piece: impl FnMut(u64, &[u8], &[u8]) -> io::Result<()>,
) -> Result<()> {
    let place = tensor.place;
    let sides = [(pair.old, &tensor.old), (pair.new, &tensor.new)];
    let [old_path, new_path] = sides.map(|(checkpoint, _)| checkpoint.path_of(place));
    let files = [pair.old.open_shard(place)?, pair.new.open_shard(place)?];
    let mut hashers = sides.map(|(_, digest)| Hasher::new(digest.algorithm));
    let length = PIECE.min(place.bytes as usize);
    let mut pieces = [vec![0; length], vec![0; length]];
    let mut done = 0;
    while done < place.bytes {
        let length = length.min((place.bytes - done) as usize);
        let paths = [&old_path, &new_path];
        for (((file, bytes), hasher), path) in
            files.iter().zip(&mut pieces).zip(&mut hashers).zip(paths)
        {
            file.read_exact_at(&mut bytes[..length], place.at + done)
                .at(path)?;
            hasher.update(&bytes[..length]);
        }
        piece(done, &pieces[0][..length], &pieces[1][..length]).at(&new_path)?;
        done += length as u64;
    }
    let [old, new] = hashers.map(Hasher::finish);
    if old != tensor.old {
        let why = format!("tensor `{}` is not what it was", tensor.name);
        return Err(damaged(pair.version, why));
    }
    if new != tensor.new {
        let why = format!("tensor `{}` changed while it was published", tensor.name);
        return Err(not_whole(&new_path, why));
    }
    Ok(())
}

/// Copies a whole checkpoint into a folder, with its checksums. Returns its bytes.
pub(crate) fn write_full(folder: &Path, new: &Checkpoint, algorithm: Algorithm) -> Result<u64> {
    let shards: Vec<usize> = (0..new.shards.len()).collect();
    let sums = each(&shards, |shard| copy_shard(folder, new, *shard, algorithm))?;
    let mut bytes: u64 = new.shards.iter().map(|shard| shard.bytes).sum();
    let mut files = BTreeMap::new();
    for name in new.files.iter().filter(|name| *name != SUMS) {
        let (digest, length) = copy_new(&new.open_file(name)?, &folder.join(name), algorithm)?;
        files.insert(name.clone(), digest.hex.into());
        bytes += length;
    }
    let sums = Sums {
        checksum_format: algorithm,
        tensors: sums.into_iter().flatten().collect(),
        files,
    };
    write_new(&folder.join(SUMS), json!(sums).to_string().as_bytes())?;
    Ok(bytes)
}

fn copy_shard(
    folder: &Path,
    new: &Checkpoint,
    shard: usize,
    algorithm: Algorithm,
) -> Result<Vec<(String, String)>> {
    let of = &new.shards[shard];
    let path = folder.join(&of.name);
    let from = new.open_file(&of.name)?;
    let mut to = File::create_new(&path).at(&path)?;
    to.write_all(&of.header).at(&path)?;
    let tensors = new.tensors.iter();
    let mut tensors: Vec<_> = tensors.filter(|(_, place)| place.shard == shard).collect();
    tensors.sort_by_key(|(_, place)| (place.at, place.bytes));
    let mut piece = vec![0; PIECE];
    let mut sums = Vec::with_capacity(tensors.len());
    for (name, place) in tensors {
        let mut hasher = Hasher::new(algorithm);
        let mut done = 0;
        while done < place.bytes {
            let length = PIECE.min((place.bytes - done) as usize);
            let piece = &mut piece[..length];
            from.read_exact_at(piece, place.at + done).at(&path)?;
            hasher.update(piece);
            to.write_all(piece).at(&path)?;
            done += length as u64;
        }
        sums.push((name.clone(), hasher.finish().hex.into()));
    }
    to.sync_all().at(&path)?;
    Ok(sums)
}
