//! Reading files of a sandbox over HTTP.

use super::errors::{refuse, told_as};
use super::filesystem::Place;
use super::routing::{Signature, reach};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::try_unfold;
use serde::Deserialize;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use treadle_auth::Caller;
use treadle_endpoints::arguments::Query;
use treadle_runs::sandboxes::{Host, SandboxApp};
use treadle_sandbox::{FileKind, Sandbox, SandboxError};
use treadle_wire::{ErrorBody, ErrorCode};

/// Bytes that are read at once.
const PIECE_BYTES: u64 = 64 << 10;

/// The file and the user of a request.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct FileQuery {
    pub(super) path: Option<String>,
    pub(super) username: String,
    signature: Option<String>,
    signature_expiration: Option<u64>,
}

impl FileQuery {
    /// The signature of the URL.
    fn signature(&self, operation: &str) -> Option<Signature> {
        let path = self.path.as_deref().unwrap_or_default();
        Some(Signature {
            signed: format!("{path}:{operation}:{}", self.username),
            // An unencoded plus was decoded as a space.
            proof: self.signature.as_ref()?.replace(' ', "+"),
            expiration: self.signature_expiration,
        })
    }

    /// Whether the URL was signed.
    pub(crate) fn is_signed(&self) -> bool {
        self.signature.is_some()
    }

    /// The sandbox whose secret a URL was signed with, for reading or writing.
    pub fn signed_for(&self, host: &Host, operation: &str) -> Option<String> {
        let signature = self.signature(operation)?;
        let sandbox = host
            .sandboxes
            .with_secret(|secret| signature.is_of(secret))?;
        Some(sandbox.id().to_owned())
    }

    /// The files that a request is about.
    pub(super) async fn place(
        &self,
        app: &SandboxApp,
        caller: &Caller,
        headers: &HeaderMap,
        operation: &str,
    ) -> Result<Place, Response> {
        let signature = self.signature(operation);
        let reached = reach(app, caller, headers, signature.as_ref()).await?;
        let place = Place::of(reached, &self.username).await;
        place.map_err(|fault| refuse(ErrorCode::TokenInvalid, fault.message))
    }
}

/// The refusal for a file that can't be opened.
pub(super) fn unreached(error: &SandboxError) -> Response {
    let SandboxError::File { error: cause, .. } = error else {
        return super::errors::told(&treadle_runs::sandboxes::refused(error));
    };
    refuse_file(cause.kind(), error.to_string())
}

/// Refuses with the status that E2B's clients expect for this kind of error.
pub(super) fn refuse_file(kind: ErrorKind, message: String) -> Response {
    let (status, code) = match kind {
        ErrorKind::NotFound => (404, ErrorCode::InvalidField),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (507, ErrorCode::BodyTooLarge),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => (403, ErrorCode::Forbidden),
        ErrorKind::TimedOut => (408, ErrorCode::ClientTimeout),
        _ => (400, ErrorCode::InvalidField),
    };
    told_as(status, &ErrorBody::new(code, message).with_param("path"))
}

pub(super) async fn download(
    State(app): State<SandboxApp>,
    caller: Caller,
    Query(query): Query<FileQuery>,
    request: Request,
) -> Result<Response, Response> {
    let place = query
        .place(&app, &caller, request.headers(), "read")
        .await?;
    let path = place
        .path(query.path.as_deref())
        .map_err(|fault| refuse(ErrorCode::InvalidField, fault.message))?;
    if matches!(place.kind(&path).await, Ok(Some(FileKind::Folder))) {
        return Err(refuse(
            ErrorCode::InvalidField,
            format!("{path} is a folder"),
        ));
    }
    let (file, length) = open(&place.reached.sandbox, &path)
        .await
        .map_err(|error| unreached(&error))?;
    let head = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, length.to_string()),
        // Browsers must not render files from a sandbox.
        (header::CONTENT_DISPOSITION, "attachment".to_owned()),
    ];
    Ok((head, bytes_of(file, length)).into_response())
}

async fn open(sandbox: &Arc<Sandbox>, path: &str) -> Result<(File, u64), SandboxError> {
    let file = File::from_std(sandbox.open(path).await?);
    let metadata = file.metadata().await.map_err(|error| SandboxError::File {
        path: path.to_owned(),
        error,
    })?;
    Ok((file, metadata.len()))
}

/// The first `length` bytes of a file; fails if the file has become shorter.
fn bytes_of(file: File, length: u64) -> Body {
    Body::from_stream(try_unfold((file, length), |(mut file, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let room = usize::try_from(left.min(PIECE_BYTES)).unwrap_or_default();
        let mut piece = vec![0; room];
        let read = file.read(&mut piece).await?;
        if read == 0 {
            return Err(io::Error::from(ErrorKind::UnexpectedEof));
        }
        piece.truncate(read);
        Ok(Some((Bytes::from(piece), (file, left - read as u64))))
    }))
}
