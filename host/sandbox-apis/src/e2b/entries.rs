//! Files of a sandbox in envd's format.

use super::users::{Users, plain};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::sync::Arc;
use treadle_runs::rfc3339;
use treadle_sandbox::{Entry, FileKind, Sandbox, SandboxError};

/// Most links that are followed in a row.
const LINKS_MAX: usize = 16;

/// The entry at a path, or `None`.
pub(super) async fn at(sandbox: &Arc<Sandbox>, path: &str) -> Result<Option<Entry>, SandboxError> {
    match sandbox.stat(path).await {
        Ok(entry) => Ok(Some(entry)),
        Err(SandboxError::File { error, .. })
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The target of links, if it exists.
pub(super) async fn behind(sandbox: &Arc<Sandbox>, entry: &Entry) -> Option<Entry> {
    let mut entry = entry.clone();
    for _ in 0..LINKS_MAX {
        if entry.kind != FileKind::Link {
            return Some(entry);
        }
        let target = entry.target.clone()?;
        let path = if target.starts_with('/') {
            plain(&target)
        } else {
            plain(&format!("{}/../{target}", entry.path))
        };
        entry = at(sandbox, &path).await.ok().flatten()?;
    }
    None
}

/// An entry in envd's format. A link has the kind of its target.
pub(super) async fn told(sandbox: &Arc<Sandbox>, users: &Users, entry: Entry) -> Value {
    let target = entry.target.clone();
    let kind = match entry.kind {
        FileKind::Link => behind(sandbox, &entry).await.map(|entry| entry.kind),
        kind => Some(kind),
    };
    let mut told = plainly(users, &entry, kind);
    if let Some(target) = target {
        told["symlinkTarget"] = json!(target);
        told["isSymlink"] = json!(true);
    }
    told
}

fn plainly(users: &Users, entry: &Entry, kind: Option<FileKind>) -> Value {
    let (owner, group) = users.owner(entry.owner);
    let (seconds, nanos) = entry.modified;
    let modified_us = u64::try_from(seconds)
        .unwrap_or(0)
        .saturating_mul(1_000_000);
    json!({
        "name": entry.name,
        "type": match kind {
            Some(FileKind::File) => "FILE_TYPE_FILE",
            Some(FileKind::Folder) => "FILE_TYPE_DIRECTORY",
            Some(FileKind::Link) | None => "FILE_TYPE_SYMLINK",
            Some(FileKind::Other) => "FILE_TYPE_UNSPECIFIED",
        },
        "path": entry.path,
        // ProtoJSON encodes 64-bit integers as strings.
        "size": entry.size.to_string(),
        "mode": entry.mode,
        "permissions": permissions(entry.kind, entry.mode),
        "owner": owner,
        "group": group,
        "modifiedTime": rfc3339(modified_us.saturating_add(u64::from(nanos / 1_000))),
    })
}

/// `-rw-r--r--` and the like, as Go writes it.
fn permissions(kind: FileKind, mode: u32) -> String {
    let kind = match kind {
        FileKind::Folder => 'd',
        FileKind::Link => 'L',
        FileKind::File | FileKind::Other => '-',
    };
    let bits = (0..9).map(|place| {
        let letter = ['r', 'w', 'x'][place % 3];
        if mode >> (8 - place) & 1 == 1 {
            letter
        } else {
            '-'
        }
    });
    std::iter::once(kind).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_sandbox::UserIds;

    #[test]
    fn an_entry_is_told_in_protos_json() {
        let entry = Entry {
            name: "a".to_owned(),
            path: "/b/a".to_owned(),
            kind: FileKind::File,
            size: 5_000_000_000,
            mode: 0o640,
            owner: UserIds::new(7, 8),
            modified: (951_782_400, 500_000_000),
            target: None,
        };
        let told = plainly(&Users::default(), &entry, Some(FileKind::File));
        assert_eq!(
            (&told["size"], &told["permissions"]),
            (&json!("5000000000"), &json!("-rw-r-----"))
        );
        assert_eq!((&told["owner"], &told["group"]), (&json!("7"), &json!("8")));
        assert_eq!(told["modifiedTime"], "2000-02-29T00:00:00.500000Z");
        assert_eq!(permissions(FileKind::Folder, 0o1777), "drwxrwxrwx");
    }
}
