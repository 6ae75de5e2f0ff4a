//! Policies for uploads: the example from `plugins/`, and one that fails on request.

use std::path::{Path, PathBuf};

/// A policy by hand, in WebAssembly's text form; the runtime's own tests are written with it.
const BY_HAND: &str = include_str!("../../host/policy-runtime/tests/runtime/policy.wat");
/// How each of its orders answers.
const ORDER: &str = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)\n";

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A built plugin from `plugins/`.
pub fn guest(name: &str) -> Vec<u8> {
    let path = root().join(format!("target/guests/{}.wasm", name.replace('-', "_")));
    std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; run `make guests`", path.display()))
}

/// The built example.
pub fn lru_eviction() -> Vec<u8> {
    guest("lru-eviction")
}

/// A policy that runs `instructions` in each call of an order, but not in the trial run of its
/// upload, where the time is 1 ms.
pub fn failing(instructions: &str) -> Vec<u8> {
    failing_after(1_000_000, instructions)
}

/// As [`failing`], once the scheduler's clock is past `ms`.
pub fn failing_after(ms: u64, instructions: &str) -> Vec<u8> {
    let fault = format!(
        "{ORDER}    (if (i64.gt_u (call $now_ms) (i64.const {ms})) (then {instructions}))\n"
    );
    assert_eq!(BY_HAND.matches(ORDER).count(), 2, "the fixture has changed");
    let text = BY_HAND.replace(ORDER, &fault);
    let mut module = wat::parse_str(text).expect("the fixture is valid");
    // The world it is for is named by a section that bindings add to every guest.
    for section in contract_sections(&lru_eviction()) {
        module.extend_from_slice(&section);
    }
    module
}

/// The custom sections of a module that name its world, heads included.
fn contract_sections(module: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut at = 8;
    while at < module.len() {
        let (size, body) = number(module, at + 1);
        let end = body + size;
        let (name_length, name) = number(module, body);
        let is_custom = module[at] == 0;
        if is_custom && module[name..name + name_length].starts_with(b"component-type") {
            found.push(module[at..end].to_vec());
        }
        at = end;
    }
    assert!(!found.is_empty(), "the example does not name its world");
    found
}

/// A number in LEB128 and where the next thing begins.
fn number(bytes: &[u8], mut at: usize) -> (usize, usize) {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[at];
        value |= usize::from(byte & 0x7f) << shift;
        (at, shift) = (at + 1, shift + 7);
        if byte < 0x80 {
            return (value, at);
        }
    }
}
