//! Headers that name a request's program, its parent and its job. The parent is only read from the
//! kind of header that names the program.

use axum::http::HeaderMap;
use treadle_model::ClientName;
use treadle_wire::{ErrorBody, ErrorCode, Named, NamedParent};

/// A header that names a program, and the one that names its parent, if any.
type Kind = (&'static str, Option<&'static str>);

/// Headers that clients or routers set deliberately; the first one present counts.
const BY_HAND: [Kind; 4] = [
    ("x-dynamo-session-id", Some("x-dynamo-parent-session-id")),
    SESSION,
    ("x-smg-routing-key", None),
    ("x-program-id", Some("x-parent-program-id")),
];
const SESSION: Kind = ("x-session-id", Some("x-parent-session-id"));
/// `true` in the last request of a program.
const LAST: &str = "x-dynamo-session-final";
/// Headers of Claude Code: an agent's id is unique within its session.
const CLAUDE_SESSION: &str = "x-claude-code-session-id";
const CLAUDE_AGENT: &str = "x-claude-code-agent-id";
const CLAUDE_PARENT: &str = "x-claude-code-parent-agent-id";
/// Headers of Codex: each agent has a thread, and a session has one or more.
const CODEX_THREAD: Kind = ("thread-id", Some("x-codex-parent-thread-id"));
const CODEX_SESSION: &str = "session-id";
/// The header with the program's group within its job: samples of one task.
const GROUP: &str = "x-treadle-group";
/// Headers that name the RL run; the first one present counts.
const JOBS: [&str; 2] = ["x-treadle-job", "x-fairness-id"];

/// All headers that name something by themselves.
#[cfg(test)]
pub(super) const ALL: [&str; 11] = [
    BY_HAND[0].0,
    BY_HAND[1].0,
    BY_HAND[2].0,
    BY_HAND[3].0,
    JOBS[0],
    JOBS[1],
    GROUP,
    CLAUDE_SESSION,
    CODEX_THREAD.0,
    CODEX_SESSION,
    LAST,
];

/// The job of a request.
pub(super) fn job_of(headers: &HeaderMap) -> Result<Option<ClientName>, ErrorBody> {
    first(headers, JOBS)
}

/// The group of a program, if the request names one.
pub(super) fn group_of(headers: &HeaderMap) -> Result<Option<ClientName>, ErrorBody> {
    name(headers, GROUP)
}

/// The program of a URL with a session.
pub(super) fn of_session(session: &str, headers: &HeaderMap) -> Result<Named, ErrorBody> {
    Ok(Named {
        program: ClientName::parse("session", session)?,
        parent: parent_of_kind(headers, SESSION)?,
    })
}

/// The program from headers that clients or routers set deliberately.
pub(super) fn set_by_hand(headers: &HeaderMap) -> Result<Option<Named>, ErrorBody> {
    for kind in BY_HAND {
        if let Some(named) = of_kind(headers, kind)? {
            return Ok(Some(named));
        }
    }
    Ok(None)
}

/// The program from headers that coding agents send by default.
pub(super) fn set_by_agents(headers: &HeaderMap) -> Result<Option<Named>, ErrorBody> {
    if let Some(session) = name(headers, CLAUDE_SESSION)? {
        return claude(session, headers).map(Some);
    }
    if let Some(named) = of_kind(headers, CODEX_THREAD)? {
        return Ok(Some(named));
    }
    let parent = None;
    Ok(name(headers, CODEX_SESSION)?.map(|program| Named { program, parent }))
}

/// Whether a request is the last of its program.
pub(super) fn is_last(headers: &HeaderMap) -> Result<bool, ErrorBody> {
    let Some(value) = headers.get(LAST) else {
        return Ok(false);
    };
    match value.as_bytes().to_ascii_lowercase().as_slice() {
        b"true" => Ok(true),
        b"false" | b"" => Ok(false),
        _ => {
            let message = format!("the header {LAST} must be `true` or `false`");
            Err(ErrorBody::new(ErrorCode::InvalidField, message).with_param(LAST))
        }
    }
}

fn of_kind(headers: &HeaderMap, kind: Kind) -> Result<Option<Named>, ErrorBody> {
    let Some(program) = name(headers, kind.0)? else {
        return Ok(None);
    };
    let parent = parent_of_kind(headers, kind)?;
    Ok(Some(Named { program, parent }))
}

fn parent_of_kind(headers: &HeaderMap, kind: Kind) -> Result<Option<NamedParent>, ErrorBody> {
    let Some(header) = kind.1 else {
        return Ok(None);
    };
    Ok(name(headers, header)?.map(NamedParent::that_waits))
}

/// An agent without an explicit parent was started by the session's main agent.
fn claude(session: ClientName, headers: &HeaderMap) -> Result<Named, ErrorBody> {
    let within = |header, agent| ClientName::parse(header, format!("{session}/{agent}"));
    let Some(agent) = name(headers, CLAUDE_AGENT)? else {
        let parent = None;
        return Ok(Named {
            program: session,
            parent,
        });
    };
    let program = within(CLAUDE_AGENT, agent)?;
    let parent = match name(headers, CLAUDE_PARENT)? {
        Some(parent) => within(CLAUDE_PARENT, parent)?,
        None => session.clone(),
    };
    let parent = Some(NamedParent::that_waits(parent));
    Ok(Named { program, parent })
}

fn first<const N: usize>(
    headers: &HeaderMap,
    names: [&str; N],
) -> Result<Option<ClientName>, ErrorBody> {
    let mut found = names.iter().map(|header| name(headers, header));
    found.find_map(Result::transpose).transpose()
}

/// The name in a header; an empty one counts as absent.
fn name(headers: &HeaderMap, name: &str) -> Result<Option<ClientName>, ErrorBody> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let value = value.to_str().map_err(|_| {
        let message = format!("the header {name} has characters other than visible ASCII");
        ErrorBody::new(ErrorCode::InvalidField, message).with_param(name)
    })?;
    if value.is_empty() {
        return Ok(None);
    }
    Ok(Some(ClientName::parse(name, value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        headers
    }

    fn shown(named: Option<Named>) -> Option<(String, Option<String>)> {
        let named = named?;
        let parent = named.parent.map(|parent| parent.program.to_string());
        Some((named.program.to_string(), parent))
    }

    fn pair(program: &str, parent: Option<&str>) -> (String, Option<String>) {
        (program.to_owned(), parent.map(str::to_owned))
    }

    #[test]
    fn the_kind_that_names_a_program_names_its_parent() {
        let of = |pairs: &[(&'static str, &str)]| shown(set_by_hand(&headers(pairs)).unwrap());
        for (index, (header, parent)) in BY_HAND.into_iter().enumerate() {
            let later = BY_HAND[index + 1..].iter().map(|kind| (kind.0, "later"));
            let mut all: Vec<_> = later.chain([(header, "p")]).collect();
            all.extend(parent.map(|parent| (parent, "q")));
            assert_eq!(of(&all), Some(pair("p", parent.map(|_| "q"))));
            let others = BY_HAND.iter().filter(|kind| kind.0 != header);
            let others = others.filter_map(|kind| Some((kind.1?, "q")));
            let mixed: Vec<_> = others.chain([(header, "p")]).collect();
            assert_eq!(of(&mixed), Some(pair("p", None)));
        }
        assert_eq!(of(&[("x-parent-session-id", "q")]), None);
    }

    #[test]
    fn coding_agents_are_known_by_what_they_send() {
        let of = |pairs: &[(&'static str, &str)]| shown(set_by_agents(&headers(pairs)).unwrap());
        let session = (CLAUDE_SESSION, "s");
        assert_eq!(of(&[session]), Some(pair("s", None)));
        assert_eq!(
            of(&[session, (CLAUDE_AGENT, "a")]),
            Some(pair("s/a", Some("s")))
        );
        let nested = [session, (CLAUDE_AGENT, "a"), (CLAUDE_PARENT, "b")];
        assert_eq!(of(&nested), Some(pair("s/a", Some("s/b"))));
        assert_eq!(of(&[(CLAUDE_AGENT, "a")]), None);
        assert_eq!(of(&[(CODEX_SESSION, "s")]), Some(pair("s", None)));
        let thread = [(CODEX_SESSION, "s"), (CODEX_THREAD.0, "t")];
        assert_eq!(of(&thread), Some(pair("t", None)));
        let child = [(CODEX_THREAD.0, "t"), ("x-codex-parent-thread-id", "u")];
        assert_eq!(of(&child), Some(pair("t", Some("u"))));
    }

    #[test]
    fn a_last_request_says_so() {
        for (value, expected) in [
            ("true", true),
            ("True", true),
            ("false", false),
            ("", false),
        ] {
            assert_eq!(is_last(&headers(&[(LAST, value)])).unwrap(), expected);
        }
        let refused = is_last(&headers(&[(LAST, "1")])).unwrap_err();
        assert_eq!(refused.param.as_deref(), Some(LAST));
    }

    #[test]
    fn a_job_has_two_headers() {
        let both = headers(&[("x-fairness-id", "f"), ("x-treadle-job", "j")]);
        assert_eq!(job_of(&both).unwrap().as_deref(), Some("j"));
        let one = headers(&[("x-fairness-id", "f")]);
        assert_eq!(job_of(&one).unwrap().as_deref(), Some("f"));
    }
}
