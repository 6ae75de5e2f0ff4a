//! Users of a sandbox, and resolving the paths that they write.

use base64::Engine;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use base64::{alphabet, engine::DecodePaddingMode};
use std::sync::Arc;
use treadle_sandbox::{Sandbox, UserIds};

/// The default user of commands.
const DEFAULT: &str = "user";
/// Largest part of `/etc/passwd` that is read.
const PASSWD_BYTES_MAX: u64 = 1 << 20;
/// Longest path.
const PATH_BYTES_MAX: usize = 4_096;
/// Accepts input with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A user of a sandbox.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct User {
    pub(super) name: String,
    /// User and group.
    pub(super) ids: UserIds,
    pub(super) home: String,
}

/// The users and groups of a sandbox.
#[derive(Clone, Debug, Default)]
pub(super) struct Users {
    users: Vec<User>,
    groups: Vec<(u32, String)>,
}

impl Users {
    /// Reads the users and groups from the sandbox's files.
    pub(super) async fn of(sandbox: &Arc<Sandbox>) -> Self {
        let users = sandbox.read("/etc/passwd", PASSWD_BYTES_MAX).await;
        let groups = sandbox.read("/etc/group", PASSWD_BYTES_MAX).await;
        Self::parse(&users.unwrap_or_default(), &groups.unwrap_or_default())
    }

    fn parse(users: &[u8], groups: &[u8]) -> Self {
        let (users, groups) = (
            String::from_utf8_lossy(users),
            String::from_utf8_lossy(groups),
        );
        let user = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, user, group, _, home, ..] = fields[..] else {
                return None;
            };
            Some(User {
                name: name.to_owned(),
                ids: UserIds::new(user.parse().ok()?, group.parse().ok()?),
                home: if home.starts_with('/') { home } else { "/" }.to_owned(),
            })
        };
        let group = |line: &str| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            Some((fields.nth(1)?.parse().ok()?, name.to_owned()))
        };
        Self {
            users: users.lines().filter_map(user).collect(),
            groups: groups.lines().filter_map(group).collect(),
        }
    }

    /// The user with this name, or the default user if it is empty. Root and the default user
    /// always exist.
    pub(super) fn find(&self, name: &str) -> Option<User> {
        let name = if name.is_empty() { DEFAULT } else { name };
        let found = self.users.iter().find(|user| user.name == name).cloned();
        let (ids, home) = match name {
            "root" => (UserIds::ROOT, "/root"),
            DEFAULT => (UserIds::new(1_000, 1_000), "/home/user"),
            _ => return found,
        };
        found.or_else(|| {
            let (name, home) = (name.to_owned(), home.to_owned());
            Some(User { name, ids, home })
        })
    }

    /// The names of a file's user and group.
    pub(super) fn owner(&self, ids: UserIds) -> (String, String) {
        let UserIds { user, group } = ids;
        let name = self.users.iter().find(|known| known.ids.user == user);
        let group_name = self.groups.iter().find(|(known, _)| *known == group);
        (
            name.map_or_else(|| user.to_string(), |known| known.name.clone()),
            group_name.map_or_else(|| group.to_string(), |(_, name)| name.clone()),
        )
    }
}

impl User {
    /// The absolute path that this user means.
    pub(super) fn path(&self, written: &str) -> Result<String, String> {
        if written.len() > PATH_BYTES_MAX || written.contains('\0') {
            let problem =
                format!("the path has a NUL character or more than {PATH_BYTES_MAX} bytes");
            return Err(problem);
        }
        let whole = match written.strip_prefix('~') {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                format!("{}/{rest}", self.home)
            }
            _ if written.starts_with('/') => written.to_owned(),
            _ => format!("{}/{written}", self.home),
        };
        Ok(plain(&whole))
    }
}

/// The absolute path without `.`, `..` and empty parts.
pub(super) fn plain(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The user in an `Authorization` header: `Basic` with a name and no password.
pub(super) fn named_user(authorization: Option<&str>) -> String {
    let encoded = authorization.and_then(|value| {
        let (scheme, encoded) = value.trim().split_once(' ')?;
        scheme.eq_ignore_ascii_case("basic").then_some(encoded)
    });
    let decoded = encoded.and_then(|encoded| bytes_of(encoded.trim()));
    let text = decoded
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .unwrap_or_default();
    text.split(':').next().unwrap_or_default().to_owned()
}

/// Encodes bytes as Base64.
pub(super) fn base64_of(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes Base64 in either alphabet.
pub(super) fn bytes_of(text: &str) -> Option<Vec<u8>> {
    LENIENT
        .decode(text.replace('-', "+").replace('_', "/"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_in_their_file() {
        let passwd =
            b"root:x:0:0:root:/root:/bin/bash\nann:x:7:8::/srv/ann:\nbad\nworse:x:y:z::/:\n";
        let users = Users::parse(passwd, b"root:x:0:\nstaff:x:8:ann\nbad\n");
        let ann = users.find("ann").expect("she is there");
        let ids = UserIds::new(7, 8);
        assert_eq!((ann.ids, ann.home.as_str()), (ids, "/srv/ann"));
        let default = users.find("").expect("always there");
        assert_eq!(default.ids, UserIds::new(1_000, 1_000));
        assert_eq!(
            Users::default().find("root").expect("always there").home,
            "/root"
        );
        assert_eq!(users.find("bob"), None);
        assert_eq!(users.owner(ids), ("ann".to_owned(), "staff".to_owned()));
        let unknown = users.owner(UserIds::new(9, 9));
        assert_eq!(unknown, ("9".to_owned(), "9".to_owned()));
    }

    #[test]
    fn paths_are_a_users() {
        let user = Users::default().find("").expect("always there");
        for (written, path) in [
            ("", "/home/user"),
            ("a/./b//c", "/home/user/a/b/c"),
            ("~", "/home/user"),
            ("~/x", "/home/user/x"),
            ("~x", "/home/user/~x"),
            ("/a/../../b/", "/b"),
            ("/", "/"),
        ] {
            assert_eq!(user.path(written).as_deref(), Ok(path), "{written}");
        }
        assert!(user.path("a\0").is_err() && user.path(&"x".repeat(5_000)).is_err());
    }

    #[test]
    fn a_head_names_a_user() {
        assert_eq!(named_user(Some("Basic cm9vdDo=")), "root");
        assert_eq!(named_user(Some("basic dXNlcjo")), "user");
        for nobody in [None, Some("Bearer x"), Some("Basic !"), Some("Basic")] {
            assert_eq!(named_user(nobody), "");
        }
        assert_eq!(bytes_of("_-8"), bytes_of("/+8="));
    }
}
