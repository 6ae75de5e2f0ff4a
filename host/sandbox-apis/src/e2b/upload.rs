//! Writing files of a sandbox over HTTP: a form, or one file as the raw body.

use super::errors::refuse;
use super::filesystem::Place;
use super::transfer::{FileQuery, refuse_file, unreached};
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Json, Response};
use flate2::write::MultiGzDecoder;
use futures_util::StreamExt;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use treadle_auth::Caller;
use treadle_endpoints::arguments::Query;
use treadle_runs::sandboxes::SandboxApp;
use treadle_sandbox::{FileKind, Sandbox, UserIds};
use treadle_wire::ErrorCode;

/// Largest number of files in a form.
const FILES_MAX: usize = 10_000;
/// Bytes that are decompressed at once; they expand at most a thousandfold.
const PACKED_BYTES: usize = 4 << 10;
/// Permissions of new files.
const MODE: u32 = 0o644;

pub(super) async fn upload(
    State(app): State<SandboxApp>,
    caller: Caller,
    Query(query): Query<FileQuery>,
    request: Request,
) -> Result<Response, Response> {
    // Continues if the client disconnects, to remove partial files.
    let received = tokio::spawn(received(app, caller, query, request));
    let failed = |error: tokio::task::JoinError| {
        refuse_file(ErrorKind::Other, format!("the upload failed: {error}"))
    };
    received.await.unwrap_or_else(|error| Err(failed(error)))
}

async fn received(
    app: SandboxApp,
    caller: Caller,
    query: FileQuery,
    request: Request,
) -> Result<Response, Response> {
    let place = query
        .place(&app, &caller, request.headers(), "write")
        .await?;
    let kind = text(request.headers(), header::CONTENT_TYPE.as_str()).to_ascii_lowercase();
    let encoding = text(request.headers(), header::CONTENT_ENCODING.as_str());
    let is_packed = match encoding.to_ascii_lowercase().as_str() {
        "" | "identity" => false,
        "gzip" => true,
        other => {
            return Err(refuse(
                ErrorCode::InvalidField,
                format!("the body's encoding is {other}; send it uncompressed or as gzip"),
            ));
        }
    };
    let request = request.map(|body| paced(body, app.body_timeout));
    let path = query.path.as_deref();
    let written = if kind.starts_with("multipart/form-data") {
        if is_packed {
            return Err(refuse(
                ErrorCode::InvalidField,
                "the form is compressed; send it uncompressed",
            ));
        }
        form(&place, path, request).await?
    } else if kind.starts_with("application/octet-stream") {
        let path = path
            .ok_or_else(|| refuse(ErrorCode::InvalidField, "`path` is missing from the query"))?;
        let mut writer = Writer::begin(&place, path, is_packed).await?;
        let mut body = request.into_body().into_data_stream();
        let taken = async {
            while let Some(bytes) = body.next().await {
                writer.take(&bytes.map_err(io::Error::other)?).await?;
            }
            writer.end().await
        };
        let taken = taken.await;
        vec![writer.told(taken).await?]
    } else {
        let message = "send a form (multipart/form-data) or application/octet-stream";
        return Err(refuse(ErrorCode::InvalidField, message));
    };
    Ok(Json(written).into_response())
}

fn text<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().trim()
}

/// A body that fails if its client pauses for too long.
fn paced(body: Body, pause_max: Duration) -> Body {
    let body = Some(body.into_data_stream());
    Body::from_stream(unfold(body, move |body| async move {
        let mut body = body?;
        match timeout(pause_max, body.next()).await {
            Ok(Some(Ok(bytes))) => Some((Ok(bytes), Some(body))),
            Ok(Some(Err(error))) => Some((Err(io::Error::other(error)), None)),
            Ok(None) => None,
            Err(_) => Some((Err(io::Error::from(ErrorKind::TimedOut)), None)),
        }
    }))
}

/// Writes the files of a form, each to the path in its name, or a single one to `path`.
async fn form(place: &Place, path: Option<&str>, request: Request) -> Result<Vec<Value>, Response> {
    let broken = |error: &dyn std::fmt::Display| {
        refuse(
            ErrorCode::InvalidField,
            format!("the form can't be read: {error}"),
        )
    };
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|e| broken(&e))?;
    let mut written = Vec::new();
    while let Some(mut field) = form.next_field().await.map_err(|e| broken(&e))? {
        let named = field.file_name().map(unescaped);
        if field.name() != Some("file") || (named.is_none() && path.is_none()) {
            continue;
        }
        if written.len() >= FILES_MAX || (path.is_some() && !written.is_empty()) {
            let most = if path.is_some() { 1 } else { FILES_MAX };
            return Err(refuse(
                ErrorCode::InvalidField,
                format!("the form has more files than {most}; send fewer"),
            ));
        }
        let path = path.map(str::to_owned).or(named).unwrap_or_default();
        let mut writer = Writer::begin(place, &path, false).await?;
        let taken = async {
            while let Some(bytes) = field.chunk().await.map_err(io::Error::other)? {
                writer.take(&bytes).await?;
            }
            writer.end().await
        };
        let taken = taken.await;
        written.push(writer.told(taken).await?);
    }
    if written.is_empty() {
        return Err(refuse(
            ErrorCode::InvalidField,
            "the form has no file; name its field `file`",
        ));
    }
    Ok(written)
}

/// Undoes the escaping of names in forms.
fn unescaped(name: &str) -> String {
    name.replace("%22", "\"")
        .replace("%0D", "\r")
        .replace("%0A", "\n")
}

fn random() -> Result<u64, Response> {
    let mut bytes = [0; 8];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| refuse_file(ErrorKind::Other, error.to_string()))?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Writes a file within the disk limit of its sandbox.
struct Writer {
    path: String,
    /// Temporary path; an existing file is replaced once the upload is complete.
    spool: String,
    sandbox: Arc<Sandbox>,
    file: File,
    /// User and group of the file.
    owner: UserIds,
    mode: u32,
    /// Remaining bytes of the limit.
    left: u64,
    packed: Option<MultiGzDecoder<Vec<u8>>>,
}

impl Writer {
    async fn begin(place: &Place, path: &str, is_packed: bool) -> Result<Self, Response> {
        let path = place
            .path(Some(path))
            .map_err(|fault| refuse(ErrorCode::InvalidField, fault.message))?;
        let sandbox = place.reached.sandbox.clone();
        let (mut spool, mut owner, mut mode) = (path.clone(), place.owner(), MODE);
        if let Ok(there) = sandbox.stat(&path).await
            && there.kind == FileKind::File
        {
            spool = format!("{path}.treadle-upload-{:016x}", random()?);
            (owner, mode) = (there.owner, there.mode);
        }
        let file = sandbox.create_as(owner, &spool, mode).await;
        Ok(Self {
            path,
            spool,
            file: File::from_std(file.map_err(|error| unreached(&error))?),
            left: sandbox.room(),
            sandbox,
            owner,
            mode,
            packed: is_packed.then(|| MultiGzDecoder::new(Vec::new())),
        })
    }

    async fn take(&mut self, bytes: &Bytes) -> io::Result<()> {
        if self.packed.is_none() {
            return self.write(bytes).await;
        }
        for piece in bytes.chunks(PACKED_BYTES) {
            if let Some(packed) = &mut self.packed {
                packed.write_all(piece)?;
                let unpacked = std::mem::take(packed.get_mut());
                self.write(&unpacked).await?;
            }
        }
        Ok(())
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let left = self.left.checked_sub(bytes.len() as u64);
        self.left = left.ok_or(ErrorKind::StorageFull)?;
        // Other writers use the same disk, so the remaining space is checked repeatedly.
        if self.sandbox.room() == 0 {
            return Err(ErrorKind::StorageFull.into());
        }
        self.file.write_all(bytes).await
    }

    async fn end(&mut self) -> io::Result<()> {
        if let Some(packed) = self.packed.take() {
            let rest = packed.finish()?;
            self.write(&rest).await?;
        }
        self.file.flush().await
    }

    /// The response for the file. An incomplete file is removed.
    async fn told(self, taken: io::Result<()>) -> Result<Value, Response> {
        let (path, spool) = (&self.path, &self.spool);
        if let Err(error) = taken {
            let _ = self.sandbox.remove_file(spool).await;
            return Err(refuse_file(error.kind(), format!("{path}: {error}")));
        }
        let file = self.file.into_std().await;
        let finished = self
            .sandbox
            .finish(self.owner, spool, self.mode, file)
            .await;
        if let Err(error) = finished {
            let _ = self.sandbox.remove_file(spool).await;
            return Err(unreached(&error));
        }
        if spool != path {
            let placed = self.sandbox.rename(spool, path).await;
            placed.map_err(|error| unreached(&error))?;
        }
        let name = self.path.rsplit('/').next().unwrap_or_default();
        Ok(json!({"name": name, "path": self.path, "type": "file"}))
    }
}
