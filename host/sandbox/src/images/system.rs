//! The image of this machine's programs: `/usr` and what programs read in `/etc`, without data,
//! users' folders and secrets.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::Image;
use crate::layers;

/// Folders of programs and libraries. On most machines, all but the first are links into it.
const PROGRAMS: [&str; 6] = ["usr", "bin", "sbin", "lib", "lib32", "lib64"];
/// Files in `/etc` that programs need to find libraries, certificates and themselves.
const SETTINGS: [&str; 12] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "os-release",
    "profile",
    "ssl/certs",
];
/// Folders that are initially empty.
const EMPTY: [(&str, u32); 12] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("home/user", 0o755),
    ("opt", 0o755),
    ("proc", 0o555),
    ("root", 0o700),
    ("run", 0o755),
    ("srv", 0o755),
    ("sys", 0o555),
    ("tmp", 0o1777),
    ("var", 0o755),
];
/// Folders in `var` that programs expect.
const VAR: [(&str, u32); 4] = [
    ("var/cache", 0o755),
    ("var/lib", 0o755),
    ("var/log", 0o755),
    ("var/tmp", 0o1777),
];

/// Depth to which folders of `/usr` belong to root inside; all below `local` do.
const OWNED_DEPTH: usize = 3;
/// The image's parts: the root, and folders of `/usr`.
const PARTS: [&str; 2] = ["root", "usr"];

/// Makes the image in a folder.
pub(super) fn make(folder: &Path, uid: u32) -> io::Result<()> {
    fs::create_dir(folder)?;
    let [root, usr] = PARTS.map(|part| folder.join(part));
    make_root(&root, uid)?;
    layers::make_owned(&usr, uid)?;
    make_folders(Path::new("/usr"), &usr, uid, OWNED_DEPTH)
}

/// Copies the folder structure: the machine's files appear to belong to nobody inside, and root may
/// add files only to its own folders.
fn make_folders(from: &Path, to: &Path, uid: u32, depth: usize) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        let (name, is_local) = (entry.file_name(), entry.file_name() == "local");
        let made = to.join(&name);
        layers::make_owned(&made, uid)?;
        let depth = if is_local {
            usize::MAX
        } else {
            depth.saturating_sub(1)
        };
        if depth > 0 {
            make_folders(&entry.path(), &made, uid, depth)?;
        }
    }
    Ok(())
}

fn make_root(folder: &Path, uid: u32) -> io::Result<()> {
    layers::make_owned(folder, uid)?;
    for (name, mode) in EMPTY.into_iter().chain(VAR) {
        let path = folder.join(name);
        layers::make_owned(&path, uid)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    for name in PROGRAMS {
        let real = Path::new("/").join(name);
        match fs::symlink_metadata(&real) {
            Ok(metadata) if metadata.is_symlink() => {
                std::os::unix::fs::symlink(fs::read_link(&real)?, folder.join(name))?;
            }
            Ok(metadata) if metadata.is_dir() => layers::make_owned(&folder.join(name), uid)?,
            _ => {}
        }
    }
    for name in SETTINGS {
        let (from, to) = (Path::new("/etc").join(name), folder.join("etc").join(name));
        if from.exists() {
            fs::create_dir_all(to.parent().unwrap_or(folder))?;
            layers::copy(&from, &to)?;
        }
    }
    let files = [
        (
            "passwd",
            "root:x:0:0:root:/root:/bin/bash\nuser:x:1000:1000:user:/home/user:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        ("group", "root:x:0:\nuser:x:1000:\nnogroup:x:65534:\n"),
        ("hosts", "127.0.0.1 localhost\n::1 localhost\n"),
        ("hostname", "sandbox\n"),
    ];
    for (name, text) in files {
        fs::write(folder.join("etc").join(name), text)?;
    }
    own(&folder.join("etc"), uid)?;
    std::os::unix::fs::chown(
        folder.join("home/user"),
        Some(uid + 1_000),
        Some(uid + 1_000),
    )
}

/// The image's layers: `/usr` is writable as well, over the machine's.
pub(super) fn image(folder: &Path) -> Image {
    let [root, usr] = PARTS.map(|part| folder.join(part));
    let mut overlays = vec![(PathBuf::from("/"), vec![root])];
    let mut read_only = Vec::new();
    for name in PROGRAMS {
        let real = Path::new("/").join(name);
        if !fs::symlink_metadata(&real).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        if name == "usr" {
            overlays.push((real.clone(), vec![usr.clone(), real]));
        } else {
            read_only.push((real.clone(), real));
        }
    }
    Image {
        overlays,
        read_only,
    }
}

/// Makes root inside the owner of a folder and its contents.
fn own(path: &Path, uid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(uid))?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            own(&entry?.path(), uid)?;
        }
    }
    Ok(())
}
