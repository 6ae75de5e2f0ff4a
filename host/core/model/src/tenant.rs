//! Tenants, and how their names keep out of each other's way.
//!
//! The core knows programs and jobs by name and knows no tenants. So what a tenant's client calls
//! `p` is `MARK acme MARK p` from the gateway's edge inwards, and `p` again on the way out. Names of
//! the default tenant have no mark and are the same on both sides. A [`ClientName`] never holds the
//! mark, and nothing else gets a tenant in front, so no name of one tenant is a name of another.

use crate::ClientName;
use std::borrow::Cow;

/// Surrounds the tenant in names inside the daemon; clients may not send it.
pub const MARK: char = '\u{1f}';
/// The tenant of tokens and plugins of the whole daemon.
pub const WHOLE_DAEMON: &str = "*";
/// The tenant that is always there.
pub const DEFAULT_TENANT: &str = "default";
/// Longest name of a tenant, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// A tenant's name, and what its names begin with inside the daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Tenant {
    name: Box<str>,
    prefix: Box<str>,
}

impl Tenant {
    /// The tenant of this name.
    pub fn new(name: &str) -> Self {
        let prefix = if name == DEFAULT_TENANT {
            String::new()
        } else {
            format!("{MARK}{name}{MARK}")
        };
        Self {
            name: name.into(),
            prefix: prefix.into(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a tenant can have this name: lower-case letters, digits and dashes.
    pub fn is_name(name: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = name.as_bytes();
        bytes.first().is_some_and(|first| is_plain(*first))
            && bytes.len() <= NAME_BYTES_MAX
            && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
    }

    /// What its names begin with inside the daemon; nothing for the default tenant.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A client's name for a program or a job as the core knows it.
    pub fn inside<'n>(&self, name: &'n ClientName) -> Cow<'n, str> {
        if self.prefix.is_empty() {
            Cow::Borrowed(name.as_str())
        } else {
            Cow::Owned(format!("{}{name}", self.prefix))
        }
    }

    /// A name that the core knows as the client knows it; `None` if it is another tenant's.
    pub fn outside<'n>(&self, inside: &'n str) -> Option<&'n str> {
        if self.prefix.is_empty() {
            (!inside.starts_with(MARK)).then_some(inside)
        } else {
            inside.strip_prefix(&*self.prefix)
        }
    }
}

/// The prefix of the tenant that a name inside the daemon belongs to; empty for the default tenant.
pub fn prefix_of(inside: &str) -> &str {
    let marked = inside.strip_prefix(MARK).and_then(|rest| rest.find(MARK));
    marked.map_or("", |name| &inside[..name + 2 * MARK.len_utf8()])
}

/// Tenant and name of what the core knows by one name.
pub fn split(inside: &str) -> (&str, &str) {
    inside
        .strip_prefix(MARK)
        .and_then(|rest| rest.split_once(MARK))
        .unwrap_or((DEFAULT_TENANT, inside))
}

/// The name under which all jobs of a job's tenant are bound, as the core knows names: `*` with the
/// tenant in front. `None` for the default tenant, whose `*` means everyone.
pub fn all_jobs_of(job: &str) -> Option<String> {
    let (tenant, _) = job.strip_prefix(MARK)?.split_once(MARK)?;
    Some(format!("{MARK}{tenant}{MARK}*"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_those_of_others_do_not() {
        let names = ["default", "a", "a-b"].map(Tenant::new);
        for tenant in &names {
            let name = ClientName::literal("task/7 ü");
            let inside = tenant.inside(&name);
            assert_eq!(tenant.outside(&inside), Some("task/7 ü"));
            assert_eq!(prefix_of(&inside), tenant.prefix());
            for other in names.iter().filter(|other| *other != tenant) {
                assert_eq!(other.outside(&inside), None, "{inside:?}");
            }
        }
        let p = ClientName::literal("p");
        assert_eq!(names[0].inside(&p), "p");
        assert!(ClientName::parse("program", names[1].inside(&p)).is_err());
    }

    #[test]
    fn all_jobs_of_a_tenant_have_one_name() {
        let tenant = Tenant::new("acme");
        let [all, math] = ["*", "team/math"].map(ClientName::literal);
        let all = tenant.inside(&all).into_owned();
        assert_eq!(all_jobs_of(&tenant.inside(&math)), Some(all));
        assert_eq!(all_jobs_of("team/math"), None);
    }

    #[test]
    fn names_of_tenants_are_plain() {
        for good in ["a", "acme", "team-7", "0"] {
            assert!(Tenant::is_name(good), "{good}");
        }
        for bad in ["", "-a", "A", "a_b", "a/b", "*", "ü", &"a".repeat(64)] {
            assert!(!Tenant::is_name(bad), "{bad}");
        }
    }
}
