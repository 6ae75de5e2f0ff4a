//! The fields of a request: read, replaced by those of a chat, and written.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use std::collections::BTreeMap;
use treadle_wire::error::{ErrorCode, RequestError};

/// The fields of a body; `null` counts as absent.
pub(crate) type Fields = BTreeMap<String, Box<RawValue>>;

/// Most characters of a refusal.
const MESSAGE_CHARS_MAX: usize = 500;

/// Reads a body, unless it has one of the fields in `unsupported`, each with its refusal.
pub(crate) fn read_fields(
    body: &[u8],
    unsupported: &[(&str, &str)],
) -> Result<Fields, RequestError> {
    let mut fields: Fields = serde_json::from_slice(body).map_err(|error| RequestError {
        code: ErrorCode::InvalidJson,
        param: None,
        message: format!("the body is not a JSON object: {error}"),
    })?;
    fields.retain(|_, value| value.get() != "null");
    for (name, message) in unsupported {
        let value = fields.get(*name).map(|value| value.get());
        if value.is_some_and(|value| !matches!(value, "false" | "[]")) {
            return Err(refused(name, message));
        }
    }
    Ok(fields)
}

pub(crate) fn put<T: Serialize + ?Sized>(
    chat: &mut Fields,
    name: &str,
    value: &T,
) -> Result<(), RequestError> {
    let value = to_raw_value(value).map_err(|error| unwritten(name, &error))?;
    chat.insert(name.to_owned(), value);
    Ok(())
}

pub(crate) fn put_text(chat: &mut Fields, name: &str, json: String) -> Result<(), RequestError> {
    let value = RawValue::from_string(json).map_err(|error| unwritten(name, &error))?;
    chat.insert(name.to_owned(), value);
    Ok(())
}

/// The body of a chat.
pub(crate) fn write_fields(chat: &Fields) -> Result<Vec<u8>, RequestError> {
    serde_json::to_vec(chat).map_err(|error| unwritten("messages", &error))
}

fn unwritten(name: &str, error: &serde_json::Error) -> RequestError {
    let message = format!("the request can't be written as a chat: {error}");
    refused(name, &message)
}

/// The refusal of a field. The message may include the client's text, so it is cut to a limit.
pub(crate) fn refused(param: &str, message: &str) -> RequestError {
    RequestError {
        code: ErrorCode::InvalidField,
        param: Some(param.to_owned()),
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}
