//! Images from hostile sources: nothing lands outside of them, and nothing outside gets in.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};
use treadle_sandbox::{FileKind, SandboxSpec};

use crate::stage::{Stage, config};

/// An entry: type, name, link target, mode. A file contains `out`.
type Line<'a> = (EntryType, &'a str, &'a str, u32);

/// Writes an archive that no tool would write.
fn archive(path: &Path, lines: &[Line<'_>]) {
    let mut builder = Builder::new(std::fs::File::create(path).unwrap());
    for (kind, name, target, mode) in lines {
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        let bytes: &[u8] = if kind.is_file() { b"out" } else { b"" };
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, bytes).unwrap();
    }
    builder.finish().unwrap();
}

/// A folder of the machine with a secret, and a description of its state.
struct Outside(tempfile::TempDir);

impl Outside {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn told(&self) -> Vec<(PathBuf, u32, u32, u64, u64)> {
        let mut told = Vec::new();
        let mut folders = vec![self.0.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let metadata = std::fs::symlink_metadata(&path).unwrap();
                if metadata.is_dir() {
                    folders.push(path.clone());
                }
                let mode = metadata.permissions().mode();
                told.push((
                    path,
                    mode,
                    metadata.uid(),
                    metadata.size(),
                    metadata.nlink(),
                ));
            }
        }
        told.sort();
        told
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_can_not_reach_outside() {
    use EntryType::{Block, Char, Directory, Link, Regular, Symlink};
    let (stage, outside) = (Stage::new().await, Outside::new());
    let before = outside.told();
    let (folder, secret) = (outside.at("folder"), outside.at("secret"));
    let (new, top) = (outside.at("new"), outside.at(""));
    let up = format!("{}{top}", "../".repeat(20));
    let (above, dots) = (format!("{up}new"), format!("a/{up}new"));
    let attacks: [&[Line<'_>]; 19] = [
        &[(Regular, &above, "", 0o644)],
        &[(Regular, &dots, "", 0o644)],
        &[(Regular, "..", "", 0o644)],
        &[(Symlink, "l", &top, 0o777), (Regular, "l/new", "", 0o644)],
        &[(Symlink, "l", &up, 0o777), (Regular, "l/new", "", 0o644)],
        &[(Symlink, "l", &secret, 0o777), (Regular, "l", "", 0o666)],
        &[(Symlink, "l", &new, 0o777), (Regular, "l", "", 0o666)],
        &[(Symlink, "l", &folder, 0o777), (Directory, "l", "", 0o777)],
        &[
            (Symlink, "l", &top, 0o777),
            (Directory, "l/folder", "", 0o777),
        ],
        &[(Symlink, "l", &top, 0o777), (Symlink, "l/new", "/", 0o777)],
        &[(Link, "l", &secret, 0o777)],
        &[(Symlink, "s", &secret, 0o777), (Link, "l", "s", 0o666)],
        &[(Symlink, "s", &top, 0o777), (Link, "l", "s/secret", 0o666)],
        &[(Symlink, "s", &top, 0o777), (Link, "s/new", "l", 0o666)],
        &[
            (Symlink, "l", &top, 0o777),
            (Regular, "l/.wh.secret", "", 0o644),
        ],
        &[
            (Symlink, "l", &top, 0o777),
            (Regular, "l/.wh..wh..opq", "", 0o644),
        ],
        &[
            (Symlink, "l", &folder, 0o777),
            (Regular, ".wh.l", "", 0o644),
        ],
        &[(Char, "d", "", 0o666)],
        &[(Block, "d", "", 0o666)],
    ];
    for (number, lines) in attacks.iter().enumerate() {
        let path = stage.folder.path().join("image.tar");
        archive(&path, lines);
        let name = format!("image{number}");
        let imported = stage.sandboxes.import(&name, &path).await;
        eprintln!("{lines:?}: {imported:?}");
        assert_eq!(outside.told(), before, "{lines:?}");
        // Accepted images contain nothing from outside.
        let image = stage.folder.path().join("agent/images").join(&name);
        for entry in std::fs::read_dir(image).into_iter().flatten() {
            let entry = entry.unwrap();
            let metadata = entry.metadata().unwrap();
            assert!(metadata.nlink() == 1 || metadata.is_dir(), "{lines:?}");
            let kind = metadata.file_type();
            assert!(
                kind.is_file() || kind.is_dir() || kind.is_symlink(),
                "{lines:?}"
            );
        }
    }
    // System tools would reach outside with such an archive.
    archive(&stage.folder.path().join("image.tar"), attacks[0]);
    let mut tar = std::process::Command::new("tar");
    tar.arg("-C").arg(stage.folder.path());
    let done = tar
        .args(["-x", "-P", "-f", "image.tar"])
        .current_dir(stage.folder.path());
    assert!(done.status().unwrap().success());
    assert_ne!(outside.told(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn whiteouts_remove_only_files_of_the_image() {
    let stage = Stage::new().await;
    let path = stage.folder.path().join("image.tar");
    archive(&path, &[(EntryType::Regular, "file", "", 0o644)]);
    stage.sandboxes.import("kept", &path).await.unwrap();
    for name in [
        ".wh...",
        ".wh..",
        ".wh.",
        "./.wh...",
        ".wh..wh...",
        ".wh..wh..",
        "a/.wh...",
        ".wh..wh..wh...",
    ] {
        let folder = (EntryType::Directory, "a", "", 0o755);
        archive(&path, &[folder, (EntryType::Regular, name, "", 0o644)]);
        let imported = stage.sandboxes.import("hostile", &path).await;
        eprintln!("{name}: {imported:?}");
        let images = stage.sandboxes.images();
        assert!(images.iter().any(|image| image == "kept"), "{name}");
        let _ = stage.sandboxes.remove_image("hostile").await;
    }
    let images = stage.folder.path().join("agent/images");
    assert_eq!(std::fs::read(images.join("kept/file")).unwrap(), b"out");
    assert!(images.join("system/root/etc").is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_are_users_of_sandboxes() {
    let stage = Stage::new().await;
    let path = stage.folder.path().join("image.tar");
    archive(
        &path,
        &[
            (EntryType::Regular, "program", "", 0o4755),
            (EntryType::Link, "same", "program", 0o4755),
            (EntryType::Symlink, "link", "/etc", 0o777),
        ],
    );
    stage.sandboxes.import("image", &path).await.unwrap();
    let image = stage.folder.path().join("agent/images/image");
    for entry in std::fs::read_dir(image).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert_eq!(metadata.uid(), config(stage.folder.path()).uid);
    }
    // Nor can any user of the machine access such a program.
    let agent = std::fs::metadata(stage.folder.path().join("agent")).unwrap();
    assert_eq!(agent.permissions().mode() & 0o77, 0);
}

/// A few bytes that announce many, which are missing or zero.
#[tokio::test(flavor = "multi_thread")]
async fn a_small_archive_can_not_fill_the_disk() {
    let stage = Stage::new().await;
    let path = stage.folder.path().join("image.tar");
    let mut header = Header::new_gnu();
    header.set_path("large").unwrap();
    header.set_size(1 << 40);
    header.set_cksum();
    std::fs::write(&path, header.as_bytes()).unwrap();
    let error = stage.sandboxes.import("image", &path).await.unwrap_err();
    assert!(error.to_string().contains("more than"), "{error}");
    assert_eq!(stage.sandboxes.images(), ["system"]);
}

/// Names are neither paths nor lists of folders.
#[tokio::test(flavor = "multi_thread")]
async fn names_of_images_lead_nowhere() {
    let stage = Stage::new().await;
    let path = stage.folder.path().join("image.tar");
    archive(&path, &[(EntryType::Directory, "own", "", 0o755)]);
    for name in [
        "..", ".", "a/b", "../a", "/etc", ".hidden", "a,b", "a\\b", "",
    ] {
        assert!(stage.sandboxes.import(name, &path).await.is_err(), "{name}");
        let image = name.to_owned();
        let spec = SandboxSpec {
            image,
            ..SandboxSpec::default()
        };
        let made = stage.sandboxes.create(spec).await;
        assert!(name.is_empty() || made.is_err(), "{name}");
    }
    stage.sandboxes.import("a", &path).await.unwrap();
    // The machine's `/etc` must not become part of it.
    stage.sandboxes.import("a:etc", &path).await.unwrap();
    let image = "a:etc".to_owned();
    let spec = SandboxSpec {
        image,
        ..SandboxSpec::default()
    };
    let sandbox = stage.sandboxes.create(spec).await.unwrap();
    let entries = sandbox.list("/", 1).await.unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["dev", "etc", "own", "proc"]);
    assert!(entries.iter().all(|entry| entry.kind == FileKind::Folder));
}

#[tokio::test(flavor = "multi_thread")]
async fn layouts_reference_only_their_own_blobs() {
    let (stage, outside) = (Stage::new().await, Outside::new());
    let layout = stage.folder.path().join("layout");
    std::fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
    std::fs::write(layout.join("oci-layout"), "{}").unwrap();
    let up = format!("sha256:{}{}", "../".repeat(20), outside.at("secret"));
    for digest in [up.as_str(), "sha256:", "sha256:..", "md5:00", ""] {
        let index = format!(
            r#"{{"manifests": [{{"digest": "{digest}", "mediaType": "application/vnd.oci.image.manifest.v1+json"}}]}}"#
        );
        std::fs::write(layout.join("index.json"), index).unwrap();
        let error = stage.sandboxes.import("image", &layout).await.unwrap_err();
        assert!(!error.to_string().contains("secret:"), "{error}");
    }
    assert_eq!(stage.sandboxes.images(), ["system"]);
}
