//! Name resolution inside a sandbox: `localhost` and the sandbox's own name resolve to itself,
//! whatever its image contains, as in container runtimes.

use std::io;

use crate::files::{Files, bytes_of};

/// The files for host names, and for the order of lookups.
const HOSTS: &str = "/etc/hosts";
const ORDER: &str = "/etc/nsswitch.conf";
/// Without that file, glibc queries the network first, which does not exist.
const FILES_FIRST: &[u8] = b"hosts: files dns\n";
/// Marks the line of the sandbox's own name, which copies must not keep.
const OWN: &[u8] = b"# treadle";
/// Largest file that is changed.
const BYTES_MAX: u64 = 1 << 20;
/// Permissions of new files.
const MODE: u32 = 0o644;

/// Adds the required names to the files.
pub(crate) fn settle(files: Files<'_>, name: &str) -> io::Result<()> {
    let text = match files.open(HOSTS, BYTES_MAX) {
        Ok(file) => bytes_of(file, BYTES_MAX)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    if let Some(text) = with(&text, name) {
        match write(files, HOSTS, &text) {
            // A dangling link.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files.remove(HOSTS)?;
                write(files, HOSTS, &text)?;
            }
            written => written?,
        }
    }
    match files.stat(ORDER) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => write(files, ORDER, FILES_FIRST),
        found => found.map(drop),
    }
}

fn write(files: Files<'_>, path: &str, text: &[u8]) -> io::Result<()> {
    io::Write::write_all(&mut files.create(path, MODE)?, text)
}

/// The text with the missing lines, and without those of a sandbox that this one was copied from;
/// `None` if nothing changes.
fn with(text: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut all: Vec<u8> = Vec::with_capacity(text.len() + 256);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let own = line.trim_ascii_end().ends_with(OWN);
        if !own || names(line).any(|one| one == name.as_bytes() || one == b"localhost") {
            all.extend(line);
        }
    }
    if !all.is_empty() && !all.ends_with(b"\n") {
        all.push(b'\n');
    }
    let known = |all: &[u8], name: &str| {
        let mut lines = all.split(|byte| *byte == b'\n');
        lines.any(|line| names(line).any(|one| one.eq_ignore_ascii_case(name.as_bytes())))
    };
    let wanted = [
        ("127.0.0.1", "localhost"),
        ("::1", "localhost"),
        ("127.0.0.1", name),
    ];
    let has_localhost = known(&all, "localhost");
    for (address, name) in wanted {
        let is_known = match name {
            "localhost" => has_localhost,
            name => known(&all, name),
        };
        if !is_known {
            all.extend(format!("{address}\t{name}\t").as_bytes());
            all.extend(OWN);
            all.push(b'\n');
        }
    }
    (all != text).then_some(all)
}

/// The names of a line.
fn names(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let said = line.split(|byte| *byte == b'#').next().unwrap_or_default();
    let words = said.split(u8::is_ascii_whitespace);
    words.filter(|word| !word.is_empty()).skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, name: &str) -> Option<String> {
        with(text.as_bytes(), name).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn missing_names_are_added_and_others_are_kept() {
        let own = "127.0.0.1\tlocalhost\t# treadle\n::1\tlocalhost\t# treadle\n\
                   127.0.0.1\ts1\t# treadle\n";
        for (text, expected) in [
            ("", own.to_owned()),
            ("# localhost s1\n", format!("# localhost s1\n{own}")),
            (
                "10.0.0.1 localhost.example",
                format!("10.0.0.1 localhost.example\n{own}"),
            ),
            (
                "127.0.0.1 LocalHost\n",
                "127.0.0.1 LocalHost\n127.0.0.1\ts1\t# treadle\n".to_owned(),
            ),
        ] {
            assert_eq!(told(text, "s1"), Some(expected.clone()), "{text}");
            assert_eq!(told(&expected, "s1"), None, "{expected}");
        }
        assert_eq!(told("::1 localhost\n127.0.1.1 x s1 # mine\n", "s1"), None);
    }

    #[test]
    fn a_copy_has_its_own_name() {
        let first = told("10.0.0.1 db # treadle's\n", "s1").unwrap();
        let copy = told(&first, "s2").unwrap();
        assert_eq!(copy, first.replace("\ts1\t", "\ts2\t"));
    }

    #[test]
    fn binary_content_is_unchanged() {
        let odd = b"\xff\xfe x\n\0\n";
        let all = with(odd, "s1").unwrap();
        assert!(all.starts_with(odd));
        assert!(with(&all, "s1").is_none());
    }
}
