//! Unpacks a folder, an archive, or an OCI image layout. Sources are untrusted: no entry may land
//! outside, devices are refused, and owners are mapped to users of sandboxes.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use crate::digest::hex;
use crate::inside::IDS;

/// Maximum number of entries in an archive.
const ENTRIES_MAX: usize = 2_000_000;
/// Maximum size of the files in an archive, regardless of its compressed size.
const BYTES_MAX: u64 = 256 << 30;
/// Maximum size of an index or a manifest.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;
/// Prefix of a marker file for a deleted file.
const WHITEOUT: &str = ".wh.";
/// Name of the marker file for the deleted contents of a folder.
const OPAQUE: &str = ".wh..wh..opq";

/// Unpacks a source into an empty folder.
pub(super) fn into(folder: &Path, from: &Path, uid: u32) -> io::Result<()> {
    let metadata = fs::metadata(from)?;
    if metadata.is_file() {
        return archive(folder, File::open(from)?, uid);
    }
    if from.join("oci-layout").is_file() {
        return layout(folder, from, uid);
    }
    // A folder is piped through an archive, so that one place checks the entries.
    let (reader, writer) = io::pipe()?;
    std::thread::scope(|scope| {
        let packing = scope.spawn(move || {
            let mut builder = tar::Builder::new(writer);
            builder.follow_symlinks(false);
            builder.append_dir_all(".", from)?;
            builder.into_inner().map(drop)
        });
        let unpacked = archive(folder, reader, uid);
        let packed = packing
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("packing failed")));
        unpacked.and(packed)
    })
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    media_type: String,
}

/// An OCI image layout: `index.json`, and blobs by their digests.
fn layout(folder: &Path, from: &Path, uid: u32) -> io::Result<()> {
    let index: Index = document(from, Path::new("index.json"))?;
    let [manifest] = &index.manifests[..] else {
        let count = index.manifests.len();
        return Err(wrong(format!(
            "index.json has {count} manifests; keep only one"
        )));
    };
    let manifest: Manifest = document(from, &blob(manifest)?)?;
    for layer in &manifest.layers {
        let mut file = below(from, &blob(layer)?)?;
        let mut digest = Sha256::new();
        io::copy(&mut file, &mut digest)?;
        let found = hex(&digest.finalize());
        if layer.digest != format!("sha256:{found}") {
            return Err(wrong(format!(
                "{} is damaged: its digest does not match",
                layer.digest
            )));
        }
        // The same bytes are read again from the open file.
        file.rewind()?;
        match layer.media_type.rsplit_once("tar") {
            Some((_, "")) => archive(folder, file, uid)?,
            Some((_, "+gzip" | ".gzip")) => {
                archive(
                    folder,
                    flate2::read::MultiGzDecoder::new(BufReader::new(file)),
                    uid,
                )?;
            }
            _ => {
                return Err(wrong(format!(
                    "a layer is `{}`; use tar or gzip",
                    layer.media_type
                )));
            }
        }
    }
    Ok(())
}

/// Opens a file of a layout, without leaving the layout.
fn below(from: &Path, path: &Path) -> io::Result<File> {
    let folder = File::open(from)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let opened = openat2(&folder, path, flags, Mode::empty(), resolve);
    let file = File::from(opened.map_err(|error| {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    })?);
    if !file.metadata()?.is_file() {
        return Err(wrong(format!("{} is not a file", path.display())));
    }
    Ok(file)
}

fn document<T: for<'de> Deserialize<'de>>(from: &Path, path: &Path) -> io::Result<T> {
    let mut text = Vec::new();
    below(from, path)?
        .take(DOCUMENT_BYTES_MAX)
        .read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

fn blob(descriptor: &Descriptor) -> io::Result<PathBuf> {
    let digest = &descriptor.digest;
    let hex = digest
        .strip_prefix("sha256:")
        .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()));
    let hex = hex.ok_or_else(|| wrong(format!("the digest `{digest}` is not sha256")))?;
    Ok(Path::new("blobs/sha256").join(hex))
}

fn wrong(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

/// Unpacks an archive over the existing files.
fn archive(folder: &Path, from: impl Read, uid: u32) -> io::Result<()> {
    let mut archive = Archive::new(BufReader::new(from));
    archive.set_preserve_permissions(true);
    archive.set_preserve_mtime(true);
    archive.set_unpack_xattrs(false);
    let mut room = BYTES_MAX;
    for (count, entry) in archive.entries()?.enumerate() {
        if count >= ENTRIES_MAX {
            return Err(wrong(format!("it has more than {ENTRIES_MAX} files")));
        }
        let mut entry = entry?;
        room = room
            .checked_sub(entry.size())
            .ok_or_else(|| wrong(format!("its files have more than {BYTES_MAX} bytes")))?;
        let path = entry.path()?.into_owned();
        let kind = entry.header().entry_type();
        if path.components().any(|part| part == Component::ParentDir) {
            return Err(wrong(format!("`{}` is outside of it", path.display())));
        }
        if let Some(name) = path.file_name().and_then(|name| name.to_str())
            && name.starts_with(WHITEOUT)
        {
            whiteout(folder, &path, name)?;
            continue;
        }
        match kind {
            EntryType::Block | EntryType::Char => {
                return Err(wrong(format!("`{}` is a device", path.display())));
            }
            EntryType::Fifo | EntryType::XGlobalHeader => continue,
            _ => {}
        }
        // The crate refuses entries that would land outside, also through links.
        if !entry.unpack_in(folder)? {
            continue;
        }
        let owner = |id: u64| uid + (id.min(u64::from(IDS - 1)) as u32);
        let (user, group) = (entry.header().uid()?, entry.header().gid()?);
        let here = within(folder, &path);
        std::os::unix::fs::lchown(&here, Some(owner(user)), Some(owner(group)))?;
        if !fs::symlink_metadata(&here)?.is_symlink() {
            // Changing the owner clears some bits.
            let mode =
                std::os::unix::fs::PermissionsExt::from_mode(entry.header().mode()? & 0o7777);
            fs::set_permissions(&here, mode)?;
        }
    }
    Ok(())
}

/// Applies a whiteout of a layer.
fn whiteout(folder: &Path, path: &Path, name: &str) -> io::Result<()> {
    let above = within(folder, path.parent().unwrap_or(Path::new("")));
    // A link in the path would lead elsewhere.
    let (real, root) = (fs::canonicalize(&above), fs::canonicalize(folder)?);
    let Ok(real) = real else { return Ok(()) };
    if !real.starts_with(&root) {
        return Err(wrong(format!("`{}` is outside of it", path.display())));
    }
    if name == OPAQUE {
        for entry in fs::read_dir(&real)? {
            take(&entry?.path())?;
        }
        return Ok(());
    }
    match name.strip_prefix(WHITEOUT) {
        None | Some("" | "." | "..") => {
            Err(wrong(format!("`{}` does not name a file", path.display())))
        }
        Some(name) => take(&real.join(name)),
    }
}

fn take(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

fn within(folder: &Path, path: &Path) -> PathBuf {
    let mut whole = folder.to_owned();
    whole.extend(
        path.components()
            .filter(|part| matches!(part, Component::Normal(_))),
    );
    whole
}
