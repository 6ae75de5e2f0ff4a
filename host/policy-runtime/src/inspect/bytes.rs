//! Checks of an upload as bytes: size, validity, what it says about its making.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use wasm_metadata::Producers;
use wasmparser::{Encoding, Parser, Payload, Validator, WasmFeatures};

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
            "this is no WebAssembly binary",
            "byte 0",
            "upload the .wasm file that the build made, neither text nor an archive",
        ));
    }
    Ok(())
}

/// Validates everything and looks for functions that would take long to compile.
pub(crate) fn check_valid(limits: &Limits, bytes: &[u8]) -> Refused<Encoding> {
    let mut features = WasmFeatures::default();
    features.remove(WasmFeatures::THREADS | WasmFeatures::MEMORY64);
    Validator::new_with_features(features)
        .validate_all(bytes)
        .map_err(|error| invalid(&error))?;
    let mut encoding = None;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(|error| invalid(&error))? {
            Payload::Version { encoding: of, .. } => encoding = encoding.or(Some(of)),
            Payload::CodeSectionEntry(body) => {
                let range = body.range();
                let size = range.end - range.start;
                if size > limits.function_bytes_max as _ {
                    return Err(UploadRefusal::new(
                        "function-too-large",
                        format!(
                            "a function has {size} bytes, at most {} are accepted",
                            limits.function_bytes_max
                        ),
                        format!("byte {}", range.start),
                        "split the function, or build with less inlining",
                    ));
                }
            }
            _ => {}
        }
    }
    // Validation has seen a version, so there is one.
    Ok(encoding.unwrap_or(Encoding::Module))
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

/// SHA-256 in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a string cannot fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The tools named in the upload. Only told, never relied on, so damage is ignored.
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
    fn the_digest_is_sha256_in_hexadecimal() {
        assert_eq!(
            digest(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn producers_are_told_by_field() {
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
