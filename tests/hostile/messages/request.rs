//! Bodies of requests: their heads are read in one pass, and engines read the same bytes again.

use serde_json::Value;
use treadle_model::{ClientName, NAME_BYTES_MAX, TOKENS_MAX};
use treadle_wire::request::{
    CHAIN_BLOCKS_MAX, CHAIN_MESSAGES_MAX, PREFIX_MESSAGES_MAX, PREFIX_SEGMENTS_MAX,
};
use treadle_wire::{Endpoint, RequestError, RequestHead, insert_fields, remove_fields};

use super::{Target, cuts, ensure};

/// Longest message of a refusal: it quotes a complaint and a name, both of them cut.
const MESSAGE_BYTES_MAX: usize = 4_096;
/// A field that no engine has.
const UNKNOWN: &str = "steers_the_engine";

pub(super) const TARGET: Target = Target {
    name: "request",
    words: &[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"null",
        b"true",
        b"-1",
        b"1e3",
        b"1e999",
        b"64.0",
        b"\"messages\":[",
        b"\"role\":\"user\"",
        b"\"content\":",
        b"\"prompt\":",
        b"\"text\":",
        b"\"input_ids\":",
        b"\"token_ids\":",
        b"\"model\":\"m\",",
        b"\"stream\":true,",
        b"\"stream_options\":{\"include_usage\":true},",
        b"\"priority\":1,",
        b"\"cache_salt\":\"s\",",
        b"\"extra_key\":\"k\",",
        b"\"pri\\u006frity\":1,",
        b"\"sampling_params\":{",
        b"\"extra_body\":{",
        b"\"vllm_xargs\":{",
        b"\"program_id\":\"p\",",
        b"\"session_id\":7,",
        b"\"rid\":\"r\",",
        b"\"tools\":[",
        b"\"system\":\"s\",",
        b"\\u0000",
        b"\\ud800",
        b"\\u001f",
        b"\xff",
        b"\xc3\xa9",
        b" ",
        b"\n",
        b"\"max_tokens\":9,",
        b"\"kv_transfer_params\":{},",
        b"\"id_slot\":1,",
    ],
    check,
    accepts,
};

fn accepts(body: &[u8]) -> bool {
    let mut endpoints = Endpoint::ALL.into_iter();
    endpoints.any(|endpoint| RequestHead::parse(endpoint, body).is_ok())
}

fn check(body: &[u8]) -> Result<(), String> {
    for endpoint in Endpoint::ALL {
        match RequestHead::parse(endpoint, body) {
            Ok(head) => accepted(endpoint, body, &head)?,
            Err(refusal) => refused(&refusal)?,
        }
    }
    Ok(())
}

fn refused(refusal: &RequestError) -> Result<(), String> {
    let bytes = refusal.message.len();
    ensure((1..=MESSAGE_BYTES_MAX).contains(&bytes), || {
        format!("a message of {bytes} bytes")
    })
}

/// An accepted body is one JSON object, and engines read it in the same way.
fn accepted(endpoint: Endpoint, body: &[u8], head: &RequestHead) -> Result<(), String> {
    let tree: Value = match serde_json::from_slice(body) {
        Ok(tree) => tree,
        // Skipped values are not decoded: they may contain half a character, a deep list or a long
        // number. Engines differ in how they read these.
        Err(error) if is_of_decoding(&error) => return Ok(()),
        Err(error) => return Err(format!("accepted, and no JSON: {error}")),
    };
    ensure(tree.is_object(), || "accepted, and no object".to_owned())?;
    let told = [
        ("model", tree["model"].as_str() == head.model.as_deref()),
        (
            "stream",
            tree["stream"].as_bool().unwrap_or(false) == head.stream,
        ),
        ("include_usage", {
            let asked = tree["stream_options"]["include_usage"].as_bool();
            asked.unwrap_or(false) == head.include_usage
        }),
        ("priority", tree["priority"].is_null() != head.has_priority),
    ];
    for (field, is_same) in told {
        ensure(is_same, || {
            format!("{field} of {tree} is not that of {head:?}")
        })?;
    }
    bounded(head)?;
    owned(endpoint, body, head)?;
    foreign(endpoint, body)?;
    cut(endpoint, body)?;
    again(endpoint, &tree, head)
}

fn is_of_decoding(error: &serde_json::Error) -> bool {
    let text = error.to_string();
    let words = ["surrogate", "hex escape", "recursion limit", "out of range"];
    words.iter().any(|word| text.contains(word))
}

fn bounded(head: &RequestHead) -> Result<(), String> {
    let names = [program_of(head), parent_of(head), head.request_id.as_ref()];
    let longest = names.into_iter().flatten().map(|name| name.len()).max();
    let is_bounded = head.chain.len() <= CHAIN_MESSAGES_MAX.max(CHAIN_BLOCKS_MAX)
        && head.prefix.len() <= PREFIX_MESSAGES_MAX.max(PREFIX_SEGMENTS_MAX)
        && head
            .max_output_tokens
            .is_none_or(|tokens| tokens <= TOKENS_MAX)
        && longest.is_none_or(|bytes| bytes <= NAME_BYTES_MAX);
    ensure(is_bounded, || format!("without a bound: {head:?}"))
}

/// Removing the fields that treadle sets itself leaves none of them, in any spelling, and does not
/// change the rest.
fn owned(endpoint: Endpoint, body: &[u8], head: &RequestHead) -> Result<(), String> {
    let spans = head.owned.iter().map(|field| field.span.clone());
    let rest = remove_fields(body, spans);
    let Ok(left) = RequestHead::parse(endpoint, &rest) else {
        return Err(format!(
            "unreadable without its own fields: {}",
            String::from_utf8_lossy(&rest)
        ));
    };
    ensure(left.owned.is_empty(), || {
        format!("{:?} is left", left.owned)
    })?;
    let same = (&left.model, left.stream, &left.chain) == (&head.model, head.stream, &head.chain);
    ensure(same, || format!("{head:?} became {left:?}"))?;
    let set = [("priority", "7".to_owned())];
    let again = insert_fields(&rest, &set).ok_or("nothing can be put in")?;
    let head = match RequestHead::parse(endpoint, &again) {
        Ok(head) => head,
        // A name written with escapes can't be cut out, and would be a duplicate.
        Err(RequestError { message, .. }) => {
            return ensure(message.contains("twice"), || message.clone());
        }
    };
    let is_alone = head.has_priority || head.foreign.check(&[], true).is_err();
    ensure(is_alone, || format!("priority is not set in {head:?}"))
}

/// A field that no engine has is never forwarded.
fn foreign(endpoint: Endpoint, body: &[u8]) -> Result<(), String> {
    let added = insert_fields(body, &[(UNKNOWN, "1".to_owned())]).ok_or("nothing can be put in")?;
    let head = RequestHead::parse(endpoint, &added).map_err(|error| error.message)?;
    ensure(head.foreign.check(&[], true).is_err(), || {
        format!("{UNKNOWN} passes")
    })
}

/// No part of it is accepted.
fn cut(endpoint: Endpoint, body: &[u8]) -> Result<(), String> {
    let whole = body.trim_ascii_end().len();
    for at in cuts(whole) {
        ensure(RequestHead::parse(endpoint, &body[..at]).is_err(), || {
            format!("its first {at} bytes are accepted")
        })?;
    }
    Ok(())
}

/// A number counts as the name that it is written as, and may be written in two ways; with many
/// digits it is read with some error.
fn program_of(head: &RequestHead) -> Option<&ClientName> {
    head.named.as_ref().map(|named| &named.program)
}

fn parent_of(head: &RequestHead) -> Option<&ClientName> {
    let parent = head.named.as_ref()?.parent.as_ref()?;
    Some(&parent.program)
}

fn is_same_name(one: Option<&ClientName>, other: Option<&ClientName>) -> bool {
    let number = |name: Option<&ClientName>| name.and_then(|name| name.parse::<f64>().ok());
    let is_close = |one: f64, other: f64| (one - other).abs() <= one.abs() * 1e-9;
    one == other
        || number(one)
            .zip(number(other))
            .is_some_and(|(one, other)| is_close(one, other))
}

/// White space and the order of writing change nothing.
fn again(endpoint: Endpoint, tree: &Value, head: &RequestHead) -> Result<(), String> {
    let written = |text: Result<String, serde_json::Error>| {
        let text = text.map_err(|error| error.to_string())?;
        RequestHead::parse(endpoint, text.as_bytes()).map_err(|error| error.message)
    };
    let tight = written(serde_json::to_string(tree))?;
    let airy = written(serde_json::to_string_pretty(tree))?;
    let same = |one: &RequestHead, other: &RequestHead| {
        (
            &one.model,
            one.stream,
            one.include_usage,
            one.max_output_tokens,
        ) == (
            &other.model,
            other.stream,
            other.include_usage,
            other.max_output_tokens,
        ) && is_same_name(program_of(one), program_of(other))
            && is_same_name(parent_of(one), parent_of(other))
            && is_same_name(one.request_id.as_ref(), other.request_id.as_ref())
    };
    ensure(same(&tight, head) && same(&airy, head), || {
        format!("{head:?} is {tight:?} when it is written again")
    })?;
    ensure(
        (&tight.chain, &tight.prefix) == (&airy.chain, &airy.prefix),
        || format!("white space changes the prompt of {tree}"),
    )
}
