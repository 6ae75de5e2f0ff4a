//! Reads an upload: the component as the raw body, or as the first file of a form.

use super::refuse;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use bytes::Bytes;
use treadle_registry::Upload;
use treadle_wire::ErrorCode;

/// The header with the signature of a raw upload.
const SIGNATURE: &str = "x-treadle-signature";

/// The upload in a request.
pub(super) async fn upload(request: Request) -> Result<Upload, Response> {
    let kind = header_text(request.headers(), header::CONTENT_TYPE.as_str());
    let signature = header_text(request.headers(), SIGNATURE);
    let broken = |error: &dyn std::fmt::Display| {
        refuse(
            ErrorCode::PluginInvalid,
            format!("the upload can't be read: {error}"),
        )
    };
    let mut upload = Upload {
        signature,
        ..Upload::default()
    };
    if !kind.is_some_and(|kind| kind.starts_with("multipart/form-data")) {
        let body = Bytes::from_request(request, &()).await;
        upload.bytes = body.map_err(|e| broken(&e))?.into();
        return Ok(upload);
    }
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|e| broken(&e))?;
    let mut found = false;
    while let Some(field) = form.next_field().await.map_err(|e| broken(&e))? {
        if field.name() == Some("signature") {
            upload.signature = Some(field.text().await.map_err(|e| broken(&e))?);
        } else if !found
            && (field.file_name().is_some() || matches!(field.name(), Some("file" | "plugin")))
        {
            upload.bytes = field.bytes().await.map_err(|e| broken(&e))?.into();
            found = true;
        }
    }
    if found {
        return Ok(upload);
    }
    Err(refuse(
        ErrorCode::MissingField,
        "the form has no file; name its field `file`",
    ))
}

fn header_text(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?;
    value.to_str().ok().map(str::to_owned)
}
