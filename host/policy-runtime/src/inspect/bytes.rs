//! Checks of an upload as bytes: size, validity, producers.

use wasm_metadata::Producers;
use wasmparser::{Encoding, Parser, Validator, WasmFeatures};

use super::Refused;
use crate::error::UploadRefusal;
use crate::guarded::cut;
use crate::limits::Limits;

const PRODUCERS_MAX: usize = 32;
const PRODUCER_BYTES_MAX: usize = 128;

pub(crate) fn check_size(limits: &Limits, bytes: &[u8]) -> Refused<()> {
    if bytes.is_empty() {
        return Err(UploadRefusal::new(
            "empty",
            "the upload has no bytes",
            "the whole file",
            "check the path of the file that was sent",
        ));
    }
    if bytes.len() > limits.upload_bytes_max {
        return Err(UploadRefusal::new(
            "too-large",
            format!(
                "{} bytes, at most {} are accepted",
                bytes.len(),
                limits.upload_bytes_max
            ),
            "the whole file",
            "build with the release profile and strip it (wasm-tools strip)",
        ));
    }
    if !bytes.starts_with(b"\0asm") {
        return Err(UploadRefusal::new(
            "not-wasm",
            "this is not a WebAssembly binary",
            "byte 0",
            "upload the .wasm file that the build made, neither text nor an archive",
        ));
    }
    Ok(())
}

/// Validates the bytes, and returns whether they are a module or a component.
pub(crate) fn check_valid(bytes: &[u8]) -> Refused<Encoding> {
    let mut features = WasmFeatures::default();
    features.remove(WasmFeatures::THREADS | WasmFeatures::MEMORY64);
    Validator::new_with_features(features)
        .validate_all(bytes)
        .map_err(|error| invalid(&error))?;
    // Validation has checked the header.
    let is_component = Parser::is_component(bytes);
    Ok(if is_component {
        Encoding::Component
    } else {
        Encoding::Module
    })
}

pub(crate) fn invalid(error: &wasmparser::BinaryReaderError) -> UploadRefusal {
    let is_cut = error.message().contains("unexpected end");
    let (code, remedy) = if is_cut {
        ("truncated", "the file ends early; upload it again")
    } else {
        (
            "invalid-wasm",
            "build it again; threads and 64-bit memories are not supported",
        )
    };
    UploadRefusal::new(
        code,
        error.message(),
        format!("byte {}", error.offset()),
        remedy,
    )
}

/// The tools named in the upload. Only for display, so damage is ignored.
pub(crate) fn producers(bytes: &[u8]) -> Vec<String> {
    let Ok(Some(producers)) = Producers::from_wasm(bytes) else {
        return Vec::new();
    };
    let mut told = Vec::new();
    for (field, tools) in producers.iter() {
        for (tool, version) in tools.iter().take(PRODUCERS_MAX) {
            let tool = format!("{field} {tool} {version}");
            told.push(cut(tool.trim_end().to_owned(), PRODUCER_BYTES_MAX));
        }
    }
    told.truncate(PRODUCERS_MAX);
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn producers_are_recognised_by_field() {
        let mut made_by = Producers::empty();
        made_by.add("language", "Rust", "");
        made_by.add("processed-by", "bindings", "1.0.0");
        let module = made_by.add_to_wasm(b"\0asm\x01\0\0\0").unwrap();
        assert_eq!(
            producers(&module),
            ["language Rust", "processed-by bindings 1.0.0"]
        );
        assert!(producers(b"\0asm").is_empty());
    }
}
