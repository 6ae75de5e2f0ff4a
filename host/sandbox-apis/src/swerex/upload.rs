//! Uploads of files and folders. A file is written to the sandbox's disk as it arrives, because its
//! target follows in a later field.

use super::errors::{Problem, VALUE};
use super::files::is_folder;
use super::{Empty, MODE, ROOT, absolute, own, unzip};
use axum::extract::multipart::{Field, MultipartError};
use axum::extract::{FromRequest, Multipart, Request, State};
use axum::response::{IntoResponse, Json, Response};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use treadle_auth::Caller;
use treadle_endpoints::arguments::InPath;
use treadle_runs::sandboxes::SandboxApp;
use treadle_sandbox::{Sandbox, SandboxError};

/// Longest pause within an upload.
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// Largest field that is not a file.
const FIELD_BYTES_MAX: usize = 16 << 10;
/// Most fields of a form.
const FIELDS_MAX: usize = 16;

/// The fields of a form.
#[derive(Default)]
struct Form {
    /// The name of the uploaded file.
    name: String,
    target: Option<String>,
    unzip: bool,
    has_file: bool,
}

pub(super) async fn upload(
    State(app): State<SandboxApp>,
    caller: Caller,
    InPath(id): InPath<String>,
    request: Request,
) -> Response {
    // Continues if the client disconnects, to remove partial files.
    let received = tokio::spawn(async move { received(&app, &caller, &id, request).await }).await;
    match received.unwrap_or_else(|error| Err(Problem::plain(error.to_string()))) {
        Ok(()) => Json(Empty {}).into_response(),
        Err(problem) => problem.into_response(),
    }
}

async fn received(
    app: &SandboxApp,
    caller: &Caller,
    id: &str,
    request: Request,
) -> Result<(), Problem> {
    let (_, sandbox) = own(app, caller, id)?;
    let form = Multipart::from_request(request, &())
        .await
        .map_err(|error| Problem::new(VALUE, error.body_text()))?;
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| Problem::plain(error.to_string()))?;
    let spool = format!("/tmp/.treadle-upload-{:016x}", u64::from_ne_bytes(bytes));
    let placed = match spooled(&sandbox, form, &spool).await {
        Ok(form) => place(&sandbox, &form, &spool).await,
        Err(problem) => Err(problem),
    };
    // The temporary file still exists unless it was moved.
    let _ = sandbox.remove_file(&spool).await;
    placed
}

fn broken(error: &MultipartError) -> Problem {
    Problem::new(
        VALUE,
        format!("the form can't be read: {}", error.body_text()),
    )
}

fn paused<E>(_: E) -> Problem {
    Problem::new(VALUE, "the form stopped arriving")
}

/// Reads a form; the file goes to the sandbox's disk.
async fn spooled(
    sandbox: &Arc<Sandbox>,
    mut fields: Multipart,
    spool: &str,
) -> Result<Form, Problem> {
    let mut form = Form::default();
    for _ in 0..FIELDS_MAX {
        let next = tokio::time::timeout(PAUSE_MAX, fields.next_field()).await;
        let Some(field) = next.map_err(paused)?.map_err(|error| broken(&error))? else {
            break;
        };
        match field.name().unwrap_or_default() {
            "file" => {
                field
                    .file_name()
                    .unwrap_or_default()
                    .clone_into(&mut form.name);
                store(sandbox, field, spool).await?;
                form.has_file = true;
            }
            "target_path" => form.target = Some(text(field).await?),
            "unzip" => {
                let value = text(field).await?;
                form.unzip = ["true", "1", "on", "yes"].contains(&value.to_lowercase().as_str());
            }
            _ => {}
        }
    }
    if !form.has_file || form.target.is_none() {
        let message = "the form needs the fields `file` and `target_path`";
        return Err(Problem::new(VALUE, message));
    }
    Ok(form)
}

async fn text(mut field: Field<'_>) -> Result<String, Problem> {
    let mut bytes = Vec::new();
    while let Some(chunk) = chunk(&mut field).await? {
        bytes.extend(chunk);
        if bytes.len() > FIELD_BYTES_MAX {
            let message = format!("a field has more than {FIELD_BYTES_MAX} bytes; send less");
            return Err(Problem::new(VALUE, message));
        }
    }
    String::from_utf8(bytes).map_err(|_| Problem::new(VALUE, "a field is not UTF-8"))
}

async fn chunk(field: &mut Field<'_>) -> Result<Option<bytes::Bytes>, Problem> {
    let chunk = tokio::time::timeout(PAUSE_MAX, field.chunk()).await;
    chunk.map_err(paused)?.map_err(|error| broken(&error))
}

/// Writes a file as it arrives, within the sandbox's disk space.
async fn store(sandbox: &Arc<Sandbox>, mut field: Field<'_>, spool: &str) -> Result<(), Problem> {
    let mut file = tokio::fs::File::from_std(sandbox.create(spool, MODE).await?);
    let room = sandbox.room();
    let mut written = 0;
    while let Some(chunk) = chunk(&mut field).await? {
        written += chunk.len() as u64;
        // Other writers use the same disk, so the remaining space is checked repeatedly.
        if written > room || sandbox.room() == 0 {
            return Err(Problem::of_file(spool, &io::ErrorKind::StorageFull.into()));
        }
        let stored = file.write_all(&chunk).await;
        stored.map_err(|error| Problem::of_file(spool, &error))?;
    }
    let flushed = file.flush().await;
    flushed.map_err(|error| Problem::of_file(spool, &error))?;
    let file = file.into_std().await;
    Ok(sandbox.finish(ROOT, spool, MODE, file).await?)
}

/// Moves or unpacks the upload to its target.
async fn place(sandbox: &Arc<Sandbox>, form: &Form, spool: &str) -> Result<(), Problem> {
    let target = absolute(form.target.as_deref().unwrap_or_default());
    if form.unzip {
        return unzip::unzip(sandbox, spool, &target).await;
    }
    let into = if is_folder(sandbox, &target).await {
        let name = form.name.rsplit('/').next().unwrap_or_default();
        format!("{}/{name}", target.trim_end_matches('/'))
    } else {
        target
    };
    match sandbox.rename(spool, &into).await {
        Err(SandboxError::File { error, .. }) if error.kind() == io::ErrorKind::CrossesDevices => {
            copy(sandbox, spool, &into).await
        }
        moved => Ok(moved?),
    }
}

/// Copies a file, because a rename across an image's overlays fails.
async fn copy(sandbox: &Arc<Sandbox>, from: &str, to: &str) -> Result<(), Problem> {
    let mut source: File = sandbox.open(from).await?;
    let mut target: File = sandbox.create(to, MODE).await?;
    let copied = tokio::task::spawn_blocking(move || {
        io::copy(&mut source, &mut target)?;
        Ok(target)
    });
    let copied = copied
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)));
    let target = copied.map_err(|error| Problem::of_file(to, &error))?;
    Ok(sandbox.finish(ROOT, to, MODE, target).await?)
}
