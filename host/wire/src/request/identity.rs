//! The program and the request that a body names.

use super::body::Draft;
use super::fields::{id, invalid, pick, text};
use crate::error::RequestError;
use serde_json::value::RawValue;
use treadle_model::ClientName;

/// The program, from the first of these that names one: `program_id`, `session_id`, the same
/// two within `extra_body`, and `vllm_xargs.agentic_context`.
pub(super) fn program_of(body: &Draft<'_>) -> Result<Option<ClientName>, RequestError> {
    if let Some(program) = first_id([
        (body.program_id, "program_id"),
        (body.session_id, "session_id"),
    ])? {
        return Ok(Some(program));
    }
    if let Some(extra) = body.extra_body {
        let [program, session] = pick(extra, ["program_id", "session_id"], "extra_body")?;
        if let Some(program) = first_id([
            (program, "extra_body.program_id"),
            (session, "extra_body.session_id"),
        ])? {
            return Ok(Some(program));
        }
    }
    let Some(arguments) = body.vllm_xargs else {
        return Ok(None);
    };
    let [context] = pick(arguments, ["agentic_context"], "vllm_xargs")?;
    context.map_or(Ok(None), program_of_context)
}

/// vLLM's extra arguments hold scalars alone, so the context often comes as a string of JSON.
fn program_of_context(context: &RawValue) -> Result<Option<ClientName>, RequestError> {
    const PARAM: &str = "vllm_xargs.agentic_context";
    if !context.get().starts_with('"') {
        return program_of_object(context, PARAM);
    }
    let inner = text(context, PARAM)?;
    let object = serde_json::from_str::<&RawValue>(&inner)
        .map_err(|_| invalid(PARAM, "an object, or a string that holds one as JSON"))?;
    program_of_object(object, PARAM)
}

fn program_of_object(object: &RawValue, param: &str) -> Result<Option<ClientName>, RequestError> {
    let names = ["program_id", "task_id", "agent_id", "session_id"];
    let [program, task, agent, session] = pick(object, names, param)?;
    if let Some(program) = optional_id(program, "vllm_xargs.agentic_context.program_id")? {
        return Ok(Some(program));
    }
    let task = optional_id(task, "vllm_xargs.agentic_context.task_id")?;
    let agent = optional_id(agent, "vllm_xargs.agentic_context.agent_id")?;
    if let (Some(task), Some(agent)) = (task, agent) {
        return Ok(Some(ClientName::parse(param, format!("{task}/{agent}"))?));
    }
    optional_id(session, "vllm_xargs.agentic_context.session_id")
}

/// The request's own id: `rid`, else `request_id`. A batch may give a list of them; then one
/// alone counts, and several count as none.
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
        let program = head(fields).unwrap().program;
        program.map(|name| name.to_string())
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
        assert_eq!(
            program(r#""program_id":"x","program_id":"y""#).as_deref(),
            Some("y")
        );
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
}
