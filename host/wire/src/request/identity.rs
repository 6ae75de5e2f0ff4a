//! The program and the request that a body names.

use super::body::Draft;
use super::fields::{flag, id, invalid, pick, text};
use crate::endpoint::Endpoint;
use crate::error::RequestError;
use serde_json::value::RawValue;
use treadle_model::ClientName;

/// The program that a request names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Named {
    /// Its name.
    pub program: ClientName,
    /// The program that started it, if it names that too.
    pub parent: Option<NamedParent>,
}

/// The parent of a request's program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NamedParent {
    /// Its name.
    pub program: ClientName,
    /// Whether it waits for its child to end.
    pub waits: bool,
}

impl NamedParent {
    /// A waiting parent, the default for agents.
    pub fn that_waits(program: ClientName) -> Self {
        let waits = true;
        Self { program, waits }
    }
}

/// The program, from the first of these that is present: `program_id`, `session_id`, the same two
/// within `extra_body`, `vllm_xargs.agentic_context`, and `agent_hint`. The same one may name its
/// parent.
pub(super) fn program_of(body: &Draft<'_>) -> Result<Option<Named>, RequestError> {
    let own = [
        (body.program_id, "program_id"),
        (body.session_id, "session_id"),
    ];
    if let Some(program) = first_id(own)? {
        let parent = optional_id(body.parent_program_id, "parent_program_id")?;
        return Ok(Some(named(program, parent)));
    }
    if let Some(extra) = body.extra_body {
        let names = ["program_id", "session_id", "parent_program_id"];
        let [program, session, parent] = pick(extra, names, "extra_body")?;
        if let Some(program) = first_id([
            (program, "extra_body.program_id"),
            (session, "extra_body.session_id"),
        ])? {
            let parent = optional_id(parent, "extra_body.parent_program_id")?;
            return Ok(Some(named(program, parent)));
        }
    }
    if let Some(arguments) = body.vllm_xargs {
        let [context] = pick(arguments, ["agentic_context"], "vllm_xargs")?;
        if let Some(named) = context.map_or(Ok(None), program_of_context)? {
            return Ok(Some(named));
        }
    }
    body.agent_hint.map_or(Ok(None), program_of_hint)
}

/// The program by `prompt_cache_key`, which Codex sets to the id of its thread: other clients use
/// one key for many programs, so only a UUID counts.
pub(super) fn program_of_cache_key(endpoint: Endpoint, body: &Draft<'_>) -> Option<Named> {
    if endpoint != Endpoint::Responses {
        return None;
    }
    let key = body.prompt_cache_key?.get();
    let key = key.strip_prefix('"')?.strip_suffix('"')?;
    let lengths = key.split('-').map(str::len);
    let is_hex = |byte: u8| byte == b'-' || byte.is_ascii_hexdigit();
    let is_uuid = lengths.eq([8, 4, 4, 4, 12]) && key.bytes().all(is_hex);
    let program = ClientName::parse("prompt_cache_key", key).ok();
    Some(named(program.filter(|_| is_uuid)?, None))
}

fn named(program: ClientName, parent: Option<ClientName>) -> Named {
    let parent = parent.map(NamedParent::that_waits);
    Named { program, parent }
}

fn program_of_hint(hint: &RawValue) -> Result<Option<Named>, RequestError> {
    let [session, parent] = pick(hint, ["session_id", "parent_session_id"], "agent_hint")?;
    let session = optional_id(session, "agent_hint.session_id")?;
    let parent = optional_id(parent, "agent_hint.parent_session_id")?;
    Ok(session.map(|session| named(session, parent)))
}

/// vLLM's extra arguments are scalars, so the context often is a JSON string.
fn program_of_context(context: &RawValue) -> Result<Option<Named>, RequestError> {
    if !context.get().starts_with('"') {
        return program_of_object(context);
    }
    let inner = text(context, CONTEXT)?;
    let object = serde_json::from_str::<&RawValue>(&inner)
        .map_err(|_| invalid(CONTEXT, "an object, or a string that holds one as JSON"))?;
    program_of_object(object)
}

const CONTEXT: &str = "vllm_xargs.agentic_context";

/// An agent belongs to its task or session; the program of the task or session itself is its main
/// agent.
fn program_of_object(object: &RawValue) -> Result<Option<Named>, RequestError> {
    let names = [
        "program_id",
        "task_id",
        "session_id",
        "agent_id",
        "parent_program_id",
        "parent_agent_id",
        "blocks_parent",
    ];
    let fields = pick(object, names, CONTEXT)?;
    let name = |at: usize| optional_id(fields[at], &format!("{CONTEXT}.{}", names[at]));
    let waits = match fields[6] {
        None => true,
        raw => flag(raw, "vllm_xargs.agentic_context.blocks_parent")?,
    };
    let of = |program, parent: Option<ClientName>| {
        let parent = parent.map(|program| NamedParent { program, waits });
        Ok(Some(Named { program, parent }))
    };
    let parent = name(4)?;
    if let Some(program) = name(0)? {
        return of(program, parent);
    }
    let (task, session, agent) = (name(1)?, name(2)?, name(3)?);
    let scope = task.as_ref().or(session.as_ref());
    let within = |agent| match scope {
        Some(scope) => ClientName::parse(CONTEXT, format!("{scope}/{agent}")).map(Some),
        None => Ok(None),
    };
    let program = agent.map_or(Ok(None), within)?;
    let parent_agent = name(5)?.map_or(Ok(None), within)?;
    let parent = parent.or(parent_agent);
    match program {
        Some(program) => of(program, parent.or_else(|| session.clone().or(task.clone()))),
        // A single task may have many programs.
        None => session.map_or(Ok(None), |session| of(session, parent)),
    }
}

/// The request's own id: `rid`, else `request_id`. For a batch with a list of ids, a single one
/// counts, and several count as none.
pub(super) fn request_id_of(body: &Draft<'_>) -> Result<Option<ClientName>, RequestError> {
    for (raw, param) in [(body.rid, "rid"), (body.request_id, "request_id")] {
        let Some(raw) = raw else { continue };
        let found = if raw.get().starts_with('[') {
            match serde_json::from_str::<Vec<&RawValue>>(raw.get()).as_deref() {
                Ok([one]) if one.get() != "null" => id(one, param)?,
                _ => None,
            }
        } else {
            id(raw, param)?
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

fn first_id<const N: usize>(
    candidates: [(Option<&RawValue>, &str); N],
) -> Result<Option<ClientName>, RequestError> {
    for (raw, param) in candidates {
        if let Some(found) = optional_id(raw, param)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn optional_id(raw: Option<&RawValue>, param: &str) -> Result<Option<ClientName>, RequestError> {
    raw.map_or(Ok(None), |raw| id(raw, param))
}

#[cfg(test)]
mod tests {
    use crate::{Endpoint, RequestError, RequestHead};

    fn head(fields: &str) -> Result<RequestHead, RequestError> {
        let body = format!(r#"{{"prompt":"x",{fields}}}"#);
        RequestHead::parse(Endpoint::Completions, body.as_bytes())
    }

    fn program(fields: &str) -> Option<String> {
        let named = head(fields).unwrap().named;
        named.map(|named| named.program.to_string())
    }

    /// The program, its parent, and whether that waits.
    fn family(fields: &str) -> Option<(String, Option<(String, bool)>)> {
        let named = head(fields).unwrap().named?;
        let parent = named.parent.map(|p| (p.program.to_string(), p.waits));
        Some((named.program.to_string(), parent))
    }

    #[test]
    fn the_source_that_names_a_program_names_its_parent() {
        let family_of = |program: &str, parent: &str, waits| {
            Some((program.to_owned(), Some((parent.to_owned(), waits))))
        };
        let waits = true;
        assert_eq!(
            family(r#""program_id":"a","parent_program_id":"p","agent_hint":{"session_id":"s"}"#),
            family_of("a", "p", waits)
        );
        assert_eq!(
            family(r#""extra_body":{"session_id":"a","parent_program_id":"p"}"#),
            family_of("a", "p", waits)
        );
        assert_eq!(
            family(r#""agent_hint":{"session_id":"a","parent_session_id":"p","cache_control":{}}"#),
            family_of("a", "p", waits)
        );
        let alone = family(r#""parent_program_id":"p","agent_hint":{"session_id":"a"}"#);
        assert_eq!(alone, Some(("a".to_owned(), None)));
        assert_eq!(family(r#""agent_hint":{"parent_session_id":"p"}"#), None);
        let context = |fields: &str| {
            family(&format!(
                r#""vllm_xargs":{{"agentic_context":{{{fields}}}}}"#
            ))
        };
        let of_task = r#""task_id":"t","agent_id":"a""#;
        assert_eq!(context(of_task), family_of("t/a", "t", waits));
        assert_eq!(
            context(&format!(
                r#"{of_task},"parent_agent_id":"b","blocks_parent":false"#
            )),
            family_of("t/a", "t/b", false)
        );
        assert_eq!(
            context(&format!(
                r#"{of_task},"parent_program_id":"p","blocks_parent":true"#
            )),
            family_of("t/a", "p", waits)
        );
        assert_eq!(context(r#""task_id":"t""#), None);
        assert_eq!(
            context(r#""session_id":"s","agent_id":"a""#),
            family_of("s/a", "s", waits)
        );
        let own = context(r#""program_id":"p","session_id":"s""#);
        assert_eq!(own, Some(("p".to_owned(), None)));
    }

    #[test]
    fn the_first_source_wins() {
        let sources = [
            r#""program_id":"a""#,
            r#""session_id":"b""#,
            r#""extra_body":{"program_id":"c"}"#,
            r#""vllm_xargs":{"agentic_context":{"program_id":"d"}}"#,
        ];
        for (index, expected) in ["a", "b", "c", "d"].iter().enumerate() {
            let mut fields: Vec<&str> = sources[index..].to_vec();
            fields.reverse();
            assert_eq!(program(&fields.join(",")).as_deref(), Some(*expected));
        }
        assert_eq!(
            program(r#""extra_body":{"session_id":7}"#).as_deref(),
            Some("7")
        );
        assert_eq!(
            program(r#""program_id":null,"session_id":"s""#).as_deref(),
            Some("s")
        );
        assert_eq!(program(r#""program_id":"","extra_body":null"#), None);
    }

    #[test]
    fn the_agentic_context_is_an_object_or_a_string_of_one() {
        let context = |json: &str| {
            let as_text = serde_json::to_string(json).unwrap();
            let one = program(&format!(r#""vllm_xargs":{{"agentic_context":{json}}}"#));
            let other = program(&format!(r#""vllm_xargs":{{"agentic_context":{as_text}}}"#));
            assert_eq!(one, other);
            one
        };
        assert_eq!(
            context(r#"{"task_id":"t","agent_id":3}"#).as_deref(),
            Some("t/3")
        );
        assert_eq!(
            context(r#"{"task_id":"t","session_id":"s"}"#).as_deref(),
            Some("s")
        );
        let all = r#"{"task_id":"t","agent_id":"a","program_id":"p","session_id":"s"}"#;
        assert_eq!(context(all).as_deref(), Some("p"));
        assert_eq!(context("{}"), None);
    }

    #[test]
    fn a_wrong_id_is_named() {
        let long = "x".repeat(300);
        let pair = format!(
            r#""vllm_xargs":{{"agentic_context":{{"task_id":"{long}","agent_id":"{long}"}}}}"#
        );
        let wrong = [
            (r#""program_id":true"#, "program_id"),
            (r#""session_id":[]"#, "session_id"),
            (r#""extra_body":[]"#, "extra_body"),
            (r#""extra_body":{"program_id":{}}"#, "extra_body.program_id"),
            (r#""vllm_xargs":"x""#, "vllm_xargs"),
            (
                r#""vllm_xargs":{"agentic_context":"x"}"#,
                "vllm_xargs.agentic_context",
            ),
            (
                r#""vllm_xargs":{"agentic_context":1}"#,
                "vllm_xargs.agentic_context",
            ),
            (pair.as_str(), "vllm_xargs.agentic_context"),
            (
                r#""vllm_xargs":{"agentic_context":{"task_id":"t","blocks_parent":1}}"#,
                "vllm_xargs.agentic_context.blocks_parent",
            ),
            (r#""agent_hint":7"#, "agent_hint"),
            (
                r#""program_id":"p","parent_program_id":[]"#,
                "parent_program_id",
            ),
            (
                r#""extra_body":{"session_id":"\u001facme\u001fp"}"#,
                "extra_body.session_id",
            ),
            (r#""rid":{}"#, "rid"),
            (r#""rid":["\u0000"]"#, "rid"),
        ];
        for (fields, param) in wrong {
            assert_eq!(
                head(fields).expect_err(fields).param.as_deref(),
                Some(param)
            );
        }
    }

    #[test]
    fn a_request_id_may_be_a_list_or_a_number() {
        let request_id = |fields: &str| head(fields).unwrap().request_id;
        assert_eq!(request_id(r#""rid":"r""#).as_deref(), Some("r"));
        assert_eq!(request_id(r#""request_id":12"#).as_deref(), Some("12"));
        assert_eq!(request_id(r#""rid":["r"]"#).as_deref(), Some("r"));
        assert_eq!(request_id(r#""rid":["r","s"]"#), None);
        assert_eq!(
            request_id(r#""rid":[null],"request_id":"q""#).as_deref(),
            Some("q")
        );
    }

    #[test]
    fn a_key_of_a_cache_names_a_program_only_if_it_is_unique() {
        let uuid = "01a22413-7a9e-7851-9857-2cf91cbf99fe";
        for (endpoint, key, names) in [
            (Endpoint::Responses, uuid, true),
            (Endpoint::Responses, "my-app", false),
            (
                Endpoint::Responses,
                "01a22413-7a9e-7851-9857-2cf91cbf99fx",
                false,
            ),
            (Endpoint::ChatCompletions, uuid, false),
        ] {
            let messages = r#"[{"role":"user","content":"x"}]"#;
            let body = format!(
                r#"{{"input":{messages},"messages":{messages},"prompt_cache_key":"{key}"}}"#
            );
            let head = RequestHead::parse(endpoint, body.as_bytes()).unwrap();
            let program = head.named_by_cache_key.map(|named| named.program);
            assert_eq!(program.as_deref(), names.then_some(uuid), "{key}");
        }
    }
}
