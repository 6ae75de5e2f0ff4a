//! Text files of a sandbox.

use super::errors::Problem;
use super::text::{self, Undecodable};
use super::{Empty, JsonBody, absolute, own};
use axum::extract::State;
use axum::response::Json;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_endpoints::signature::Answer;
use treadle_runs::sandboxes::SandboxApp;
use treadle_sandbox::{FileKind, Sandbox, SandboxError};
use utoipa::ToSchema;

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// A file to be read.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexReadFile {
    /// Where it is.
    path: String,
    /// Its encoding; default UTF-8.
    #[serde(default)]
    encoding: Option<String>,
    /// Python's handler for invalid bytes; default an error.
    #[serde(default)]
    errors: Option<String>,
}

/// The content of a file.
#[derive(Serialize, ToSchema)]
pub(super) struct SwerexContent {
    /// The text.
    content: String,
}

pub(super) async fn read(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(request): JsonBody<SwerexReadFile>,
) -> Answer<SwerexContent> {
    let (_, sandbox) = own(&app, &caller, &id)?;
    let path = absolute(&request.path);
    let bytes = match sandbox.read(&path, FILE_BYTES_MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return Err(unreadable(&sandbox, &request.path, error).await.into()),
    };
    let (encoding, errors) = (request.encoding.as_deref(), request.errors.as_deref());
    let text = text::read(&bytes, encoding, errors).map_err(undecodable)?;
    let content = text::universal_newlines(&text);
    Ok(Json(SwerexContent { content }))
}

fn undecodable(problem: Undecodable) -> Problem {
    match problem {
        Undecodable::Bytes(message) => Problem::new("builtins.UnicodeDecodeError", message),
        Undecodable::Encoding(name) => {
            let message =
                format!("unknown encoding: {name}; treadle reads utf-8, latin-1 and ascii");
            Problem::new("builtins.LookupError", message)
        }
        Undecodable::Errors(name) => {
            let message = format!("unknown error handler name '{name}'");
            Problem::new("builtins.LookupError", message)
        }
    }
}

/// The error for a file that can't be read, with the path as the client wrote it.
async fn unreadable(sandbox: &Arc<Sandbox>, path: &str, error: SandboxError) -> Problem {
    let SandboxError::File { error, .. } = error else {
        return error.into();
    };
    let is_odd = error.kind() == io::ErrorKind::InvalidInput;
    if is_odd && is_folder(sandbox, &absolute(path)).await {
        return Problem::of_file(path, &io::ErrorKind::IsADirectory.into());
    }
    Problem::of_file(path, &error)
}

/// Whether a path is a folder, after following links.
pub(super) async fn is_folder(sandbox: &Arc<Sandbox>, path: &str) -> bool {
    let below = format!("{}/.", path.trim_end_matches('/'));
    match sandbox.stat(path).await {
        Ok(entry) if entry.kind == FileKind::Link => sandbox.list(&below, 1).await.is_ok(),
        Ok(entry) => entry.kind == FileKind::Folder,
        Err(_) => false,
    }
}

/// A file to be written.
#[derive(Deserialize, ToSchema)]
pub(super) struct SwerexWriteFile {
    /// Where it is.
    path: String,
    /// Its new content.
    content: String,
}

pub(super) async fn write(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    JsonBody(request): JsonBody<SwerexWriteFile>,
) -> Answer<Empty> {
    let (_, sandbox) = own(&app, &caller, &id)?;
    let path = absolute(&request.path);
    let written = sandbox.write(&path, request.content.into_bytes()).await;
    if let Err(error) = written {
        return Err(unreadable(&sandbox, &request.path, error).await.into());
    }
    Ok(Json(Empty {}))
}
