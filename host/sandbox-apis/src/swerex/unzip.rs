//! Unpacking a folder that was sent as a zip archive. Names can't leave the target folder, and the
//! unpacked size is limited to the sandbox's disk space.

use super::errors::{BAD_ARCHIVE, Problem};
use super::{MODE, ROOT};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path};
use std::sync::Arc;
use treadle_sandbox::Sandbox;
use zip::ZipArchive;

/// Most files of an archive.
const ENTRIES_MAX: usize = 100_000;

/// Unpacks an archive on the sandbox's disk into a folder.
pub(super) async fn unzip(sandbox: &Arc<Sandbox>, from: &str, to: &str) -> Result<(), Problem> {
    sandbox.make_folder(to).await?;
    let file = sandbox.open(from).await?;
    let (sandbox, to) = (sandbox.clone(), to.trim_end_matches('/').to_owned());
    let runtime = tokio::runtime::Handle::current();
    let unpacked = tokio::task::spawn_blocking(move || {
        let make = |name: &str, is_folder: bool| {
            let path = format!("{to}/{name}");
            runtime.block_on(async {
                if is_folder {
                    sandbox.make_folder(&path).await?;
                    return Ok(None);
                }
                Ok(Some(sandbox.create(&path, MODE).await?))
            })
        };
        let finish = |name: &str, file| {
            let path = format!("{to}/{name}");
            Ok(runtime.block_on(sandbox.finish(ROOT, &path, MODE, file))?)
        };
        unpack(file, sandbox.room(), make, finish)
    });
    let unpacked = unpacked.await;
    unpacked.unwrap_or_else(|error| Err(Problem::plain(error.to_string())))
}

fn bad(error: impl std::fmt::Display) -> Problem {
    Problem::new(BAD_ARCHIVE, error.to_string())
}

/// Unpacks an archive: `make` creates a folder or opens a file for each name, and `finish` gets
/// each written file.
fn unpack(
    archive: File,
    room: u64,
    make: impl Fn(&str, bool) -> Result<Option<File>, Problem>,
    finish: impl Fn(&str, File) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut archive =
        ZipArchive::new(io::BufReader::new(archive)).map_err(|_| bad("File is not a zip file"))?;
    if archive.len() > ENTRIES_MAX {
        let message = format!("the archive has more than {ENTRIES_MAX} files; send fewer");
        return Err(bad(message));
    }
    let mut room = room;
    for number in 0..archive.len() {
        let mut entry = archive.by_index(number).map_err(bad)?;
        let name = inside(&entry.name().map_err(bad)?);
        if name.is_empty() {
            continue;
        }
        let Some(mut file) = make(&name, entry.is_dir())? else {
            continue;
        };
        let mut bounded = (&mut entry).take(room.saturating_add(1));
        let written =
            io::copy(&mut bounded, &mut file).map_err(|error| match error.raw_os_error() {
                Some(_) => Problem::of_file(&name, &error),
                None => bad(error),
            })?;
        room = room
            .checked_sub(written)
            .ok_or_else(|| Problem::of_file(&name, &io::ErrorKind::StorageFull.into()))?;
        finish(&name, file)?;
    }
    Ok(())
}

/// A name without absolute or parent parts, as in Python's `extractall`.
fn inside(name: &str) -> String {
    let parts = Path::new(name).components().filter_map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::io::{Seek, Write};

    fn archive(files: &[(&str, &[u8])]) -> File {
        let mut writer = zip::ZipWriter::new(tempfile::tempfile().expect("a file"));
        for (name, bytes) in files {
            let options = zip::write::SimpleFileOptions::default();
            writer.start_file(*name, options).expect("an entry");
            writer.write_all(bytes).expect("written");
        }
        let mut file = writer.finish().expect("an archive");
        file.rewind().expect("its beginning");
        file
    }

    #[test]
    fn names_stay_below_the_target_and_bytes_within_the_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let names = RefCell::new(Vec::new());
        let make = |name: &str, _| {
            names.borrow_mut().push(name.to_owned());
            let path = folder.path().join(name.replace('/', "_"));
            Ok(Some(File::create(path).expect("a file")))
        };
        let files: [(&str, &[u8]); 3] = [
            ("../../etc/passwd", b"x"),
            ("/abs/./f", b"y"),
            ("d/e", &[0; 4_000]),
        ];
        let finished = std::cell::Cell::new(0);
        let finish = |_: &str, _| {
            finished.set(finished.get() + 1);
            Ok(())
        };
        unpack(archive(&files), 4_002, make, finish).expect("unpacked");
        assert_eq!(finished.get(), 3);
        assert_eq!(*names.borrow(), ["etc/passwd", "abs/f", "d/e"]);
        let size = std::fs::metadata(folder.path().join("d_e"));
        assert_eq!(size.expect("a file").len(), 4_000);
        unpack(archive(&files), 4_001, make, finish).expect_err("too little room");
        let mut text = tempfile::tempfile().expect("a file");
        text.write_all(b"no archive").expect("written");
        unpack(text, 10, make, finish).expect_err("no archive");
    }
}
