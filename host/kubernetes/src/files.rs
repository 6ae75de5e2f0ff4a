//! Files of a pod, by scripts that use only `cat`, `head`, `stat` and `find`. Paths are resolved
//! inside the pod, so links can't lead outside.

use std::fs::File;
use std::io::{self, Seek};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use treadle_sandbox::{Entry, FileKind, UserIds};

use crate::copies::{COPY_BYTES_MAX, too_long};
use crate::exec::{self, ScriptResult};
use crate::ready_pod::ReadyPod;
use crate::script::quoted;

/// Timeout for transferring a file.
const MOVE_MAX: Duration = Duration::from_mins(10);
/// Timeout of all other operations.
const MAX: Duration = Duration::from_mins(1);
/// Buffer size for transfers.
const PIECE_BYTES: usize = 64 << 10;
/// Maximum size and number of entries of a listing.
const LISTED_MAX: (u64, usize) = (24 << 20, 10_000);
/// Exit status of scripts for a missing file.
const NOT_FOUND: i32 = 44;
/// Exit status for something that is not a regular file.
const NO_FILE: i32 = 45;
/// Exit status for a folder.
const IS_FOLDER: i32 = 46;
/// Exit status for something that is not a folder.
const NO_FOLDER: i32 = 47;
/// Format of `stat`, without the name.
const FORMAT: &str = "%f %s %u %g %Y";

/// A path from the root.
fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

/// Splits a path to a file: its folder, and the path itself.
fn named(path: &str) -> io::Result<(String, String)> {
    let path = absolute(path.trim_end_matches('/'));
    match path.rsplit_once('/') {
        Some((above, name)) if !matches!(name, "" | "." | "..") => {
            Ok((absolute(above), path.clone()))
        }
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path does not name a file",
        )),
    }
}

async fn told(pod: &ReadyPod, text: &str, output_max: u64) -> io::Result<String> {
    let mut output = Vec::new();
    let done = carried(pod, text, None, &mut output, output_max, MAX).await;
    done?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

async fn carried(
    pod: &ReadyPod,
    text: &str,
    input: Option<File>,
    output: impl tokio::io::AsyncWrite + Send + Unpin,
    output_max: u64,
    max: Duration,
) -> io::Result<()> {
    let text = format!("export LC_ALL=C; {text}");
    let name = &pod.name;
    let done = exec::run(&pod.api, name, &text, input, output, output_max, max).await?;
    if done.code == 0 {
        Ok(())
    } else {
        Err(failed(&done))
    }
}

/// The error of a failed script.
fn failed(done: &ScriptResult) -> io::Error {
    let told = &done.errors;
    let known = [
        ("Permission denied", io::ErrorKind::PermissionDenied),
        ("No space left", io::ErrorKind::StorageFull),
        ("Disk quota exceeded", io::ErrorKind::QuotaExceeded),
        ("Read-only file system", io::ErrorKind::ReadOnlyFilesystem),
    ];
    let kind = match done.code {
        NOT_FOUND => return io::ErrorKind::NotFound.into(),
        NO_FILE => return io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"),
        IS_FOLDER => return io::ErrorKind::IsADirectory.into(),
        NO_FOLDER => return io::ErrorKind::NotADirectory.into(),
        _ => known.into_iter().find(|(text, _)| told.contains(text)),
    };
    let problem = format!("exit status {}: {told}", done.code);
    io::Error::new(kind.map_or(io::ErrorKind::Other, |(_, kind)| kind), problem)
}

/// Opens a local copy of a file.
pub(crate) async fn open(pod: &ReadyPod, path: &str, bytes_max: u64) -> io::Result<File> {
    let bytes_max = bytes_max.min(pod.file_bytes_max);
    let asked = bytes_max.saturating_add(1);
    let text = format!(
        "p={}; [ -e \"$p\" ] || exit {NOT_FOUND}; [ -f \"$p\" ] || exit {NO_FILE}; \
         exec head -c {asked} \"$p\"",
        quoted(&absolute(path))
    );
    let mut copy = tokio::fs::File::from_std(pod.copies.make(&pod.folder)?);
    let (mut from, to) = duplex(PIECE_BYTES);
    let copying = async {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let read = from.read(&mut piece).await?;
            if read == 0 {
                return copy.flush().await;
            }
            pod.copies.check()?;
            copy.write_all(&piece[..read]).await?;
        }
    };
    let carrying = carried(pod, &text, None, to, asked, MOVE_MAX);
    tokio::try_join!(carrying, copying)?;
    let mut copy = copy.into_std().await;
    if copy.metadata()?.len() > bytes_max {
        return Err(too_long(io::ErrorKind::FileTooLarge, bytes_max));
    }
    copy.rewind()?;
    Ok(copy)
}

/// Writes a file, including missing folders.
pub(crate) async fn write(
    pod: &ReadyPod,
    path: &str,
    mode: u32,
    owner: UserIds,
    mut file: File,
) -> io::Result<()> {
    let (above, path) = named(path)?;
    let bytes = file.metadata()?.len();
    if bytes > COPY_BYTES_MAX {
        return Err(too_long(io::ErrorKind::StorageFull, COPY_BYTES_MAX));
    }
    file.rewind()?;
    let text = format!(
        "p={path}; d={above}; [ -d \"$p\" ] && exit {IS_FOLDER}; \
         [ -d \"$d\" ] || {{ mkdir -p \"$d\" || exit; {own_folder}}}
         n=; [ -e \"$p\" ] || n=1; head -c {bytes} >\"$p\" || exit
         [ \"$(wc -c <\"$p\")\" -eq {bytes} ] || {{ echo 'it was cut short' >&2; exit 1; }}
         [ -z \"$n\" ] || {{ chmod {mode:o} \"$p\" {own_file}; }}",
        path = quoted(&path),
        above = quoted(&above),
        own_folder = chown(owner, "d", "", "; "),
        own_file = chown(owner, "p", "&& ", ""),
        mode = mode & 0o777,
    );
    let input = (bytes > 0).then_some(file);
    let none = tokio::io::sink();
    carried(pod, &text, input, none, 0, MOVE_MAX).await
}

/// A command that changes the owner of the file in a variable, unless it already is the default.
fn chown(owner: UserIds, variable: &str, before: &str, after: &str) -> String {
    if owner == UserIds::ROOT {
        return String::new();
    }
    format!(
        "{before}chown {}:{} \"${variable}\"{after}",
        owner.user, owner.group
    )
}

/// The entry of a path.
pub(crate) async fn stat(pod: &ReadyPod, path: &str) -> io::Result<Entry> {
    let path = absolute(path);
    let text = format!(
        "p={}; [ -e \"$p\" ] || [ -L \"$p\" ] || exit {NOT_FOUND}; \
         stat -c '{FORMAT} /' \"$p\" && if [ -L \"$p\" ]; then readlink \"$p\"; fi",
        quoted(&path)
    );
    let told = told(pod, &text, LISTED_MAX.0).await?;
    let (line, rest) = told.split_once('\n').unwrap_or((&told, ""));
    let mut entry = entry(line).ok_or_else(|| io::Error::other("`stat` returned no entry"))?;
    let name = path.rsplit('/').next().unwrap_or_default();
    name.clone_into(&mut entry.name);
    entry.path = path;
    if entry.kind == FileKind::Link {
        entry.target = Some(rest.strip_suffix('\n').unwrap_or(rest).to_owned());
    }
    Ok(entry)
}

/// Lists a folder and `depth` levels of subfolders. Names with a line break are left out.
pub(crate) async fn list(pod: &ReadyPod, path: &str, depth: u32) -> io::Result<Vec<Entry>> {
    let path = absolute(path.trim_end_matches('/'));
    let text = format!(
        "p={}; [ -e \"$p\" ] || exit {NOT_FOUND}; [ -d \"$p\" ] || exit {NO_FOLDER}
         find \"$p/.\" -mindepth 1 -maxdepth {depth} -exec stat -c '{FORMAT} %n' {{}} +
         echo
         find \"$p/.\" -mindepth 1 -maxdepth {depth} -type l -exec sh -c \
         'for l do printf \"%s\\n\" \"$l\"; readlink \"$l\"; done' sh {{}} +
         :",
        quoted(&path),
        depth = depth.max(1),
    );
    let told = told(pod, &text, LISTED_MAX.0).await?;
    let (entries, links) = told.split_once("\n\n").unwrap_or((&told, ""));
    let mut found: Vec<Entry> = entries.lines().filter_map(entry).collect();
    if found.len() > LISTED_MAX.1 {
        let problem = format!(
            "there are more than {} files, which is the limit; list folders below it, or run `ls` \
             inside",
            LISTED_MAX.1
        );
        return Err(io::Error::other(problem));
    }
    let links: Vec<&str> = links.lines().collect();
    let targets: std::collections::BTreeMap<_, _> = links
        .chunks_exact(2)
        .map(|link| (link[0], link[1]))
        .collect();
    let (within, above) = (format!("{path}/./"), path.trim_end_matches('/'));
    for entry in &mut found {
        entry.target = targets
            .get(entry.path.as_str())
            .map(|target| (*target).to_owned());
        if let Some(inside) = entry.path.strip_prefix(&within) {
            entry.path = format!("{above}/{inside}");
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Parses a line of `stat`.
fn entry(line: &str) -> Option<Entry> {
    let (told, path) = line.split_once(" /")?;
    let mut told = told.split(' ');
    let mode = u32::from_str_radix(told.next()?, 16).ok()?;
    let mut number = || told.next()?.parse::<i64>().ok();
    let (size, user, group, modified) = (number()?, number()?, number()?, number()?);
    Some(Entry {
        name: path.rsplit('/').next().unwrap_or_default().to_owned(),
        path: format!("/{path}"),
        kind: match mode & 0o170_000 {
            0o100_000 => FileKind::File,
            0o040_000 => FileKind::Folder,
            0o120_000 => FileKind::Link,
            _ => FileKind::Other,
        },
        size: size.try_into().ok()?,
        mode: mode & 0o7777,
        owner: UserIds::new(user.try_into().ok()?, group.try_into().ok()?),
        modified: (modified, 0),
        target: None,
    })
}

/// Makes a folder and its missing parents. Returns whether it is new.
pub(crate) async fn make_folder(pod: &ReadyPod, path: &str, owner: UserIds) -> io::Result<bool> {
    let text = format!(
        "p={}; [ -d \"$p\" ] && exit; [ -e \"$p\" ] && exit {NO_FOLDER}; mkdir -p \"$p\" {}&& echo new",
        quoted(&absolute(path)),
        chown(owner, "p", "&& ", " "),
    );
    Ok(told(pod, &text, 1 << 10).await?.starts_with("new"))
}

/// Renames a file or folder.
pub(crate) async fn rename(pod: &ReadyPod, from: &str, to: &str) -> io::Result<()> {
    let ((_, from), (above, to)) = (named(from)?, named(to)?);
    let text = format!(
        "f={}; t={}; [ -e \"$f\" ] || [ -L \"$f\" ] || exit {NOT_FOUND}; \
         [ -d \"$t\" ] && exit {IS_FOLDER}; mkdir -p {} && mv -f \"$f\" \"$t\"",
        quoted(&from),
        quoted(&to),
        quoted(&above),
    );
    told(pod, &text, 1 << 10).await.map(drop)
}

/// Removes a file, or a folder with its contents.
pub(crate) async fn remove(pod: &ReadyPod, path: &str) -> io::Result<()> {
    let text = format!(
        "p={}; [ -e \"$p\" ] || [ -L \"$p\" ] || exit {NOT_FOUND}; rm -rf \"$p\"",
        quoted(&named(path)?.1)
    );
    told(pod, &text, 1 << 10).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_stat_are_entries() {
        let found = entry("81a4 12 1000 100 1700000000 /a/b c").expect("an entry");
        assert_eq!(
            (found.path.as_str(), found.name.as_str()),
            ("/a/b c", "b c")
        );
        assert_eq!(
            (found.kind, found.size, found.mode),
            (FileKind::File, 12, 0o644)
        );
        assert_eq!(
            (found.owner, found.modified),
            (UserIds::new(1000, 100), (1_700_000_000, 0))
        );
        for line in [
            "",
            "81a4 12 1000 100 1700000000",
            "x 1 1 1 1 /a",
            "81a4 -1 0 0 0 /a",
            "81a4 1 /a",
        ] {
            assert_eq!(entry(line), None, "{line}");
        }
    }

    #[test]
    fn only_paths_that_name_a_file_are_written_or_removed() {
        for path in ["", "/", "//", "/a/..", "."] {
            named(path).expect_err(path);
        }
        assert_eq!(
            named("a/b/").expect("a file"),
            ("/a".to_owned(), "/a/b".to_owned())
        );
        assert_eq!(
            named("/b").expect("a file"),
            ("/".to_owned(), "/b".to_owned())
        );
    }
}
