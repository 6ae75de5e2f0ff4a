//! All hostile policies.

use treadle_policy_runtime::embed_contract;

use crate::Outcome::{Answered, Fault, Refused};
use crate::Source::{Bytes, Plain, Text};
use crate::{HostilePolicy, Outcome, Source, bomb, text};

const fn policy(
    name: &'static str,
    world: &'static str,
    comes_of_it: Outcome,
    source: Source,
) -> HostilePolicy {
    HostilePolicy {
        name,
        world,
        comes_of_it,
        source,
    }
}

/// A priority policy that misbehaves in its calls.
const fn calls(
    name: &'static str,
    comes_of_it: Outcome,
    places: &'static [(&'static str, &'static str)],
) -> HostilePolicy {
    policy(name, "priority", comes_of_it, Text(places))
}

/// An upload that is refused.
const fn upload(
    name: &'static str,
    codes: &'static [&'static str],
    source: Source,
) -> HostilePolicy {
    policy(name, "priority", Refused(codes), source)
}

/// All hostile policies, and a good one.
pub const POLICIES: &[HostilePolicy] = &[
    calls("tame", Answered, &[]),
    policy(
        "large-function",
        "priority",
        Answered,
        Bytes(bomb::large_function),
    ),
    // Policies that take time.
    calls(
        "endless-loop",
        Fault(&["timeout"]),
        &[("BEHAVIOUR", "(loop $forever (br $forever))")],
    ),
    calls(
        "bulk-memory-loop",
        Fault(&["timeout"]),
        &[(
            "BEHAVIOUR",
            "(loop $forever
               (memory.fill (i32.const 8192) (i32.const 0) (i32.const 2000000))
               (br $forever))",
        )],
    ),
    calls(
        "host-call-storm",
        Fault(&["timeout"]),
        &[(
            "BEHAVIOUR",
            "(loop $forever
               (drop (call $now_ms)) (drop (call $random)) (call $config (i32.const 600))
               (call $state_get (i32.const 1160) (i32.const 3) (i32.const 600))
               (call $state_set (i32.const 1160) (i32.const 3) (i32.const 1024)
                 (i32.const 64) (i32.const 600))
               (drop (call $state_delete (i32.const 1160) (i32.const 3)))
               (global.set $heap (i32.const 65536))
               (br $forever))",
        )],
    ),
    calls(
        "log-flood",
        Fault(&["timeout"]),
        &[(
            "BEHAVIOUR",
            "(loop $forever
               (call $log (i32.const 2) (i32.const 1170) (i32.const 38))
               (br $forever))",
        )],
    ),
    // Policies that take memory.
    calls(
        "memory-bomb",
        Fault(&["memory"]),
        &[(
            "BEHAVIOUR",
            "(loop $more
               (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
             (unreachable)",
        )],
    ),
    calls(
        "memory-grows",
        Answered,
        &[("BEHAVIOUR", "(drop (memory.grow (i32.const 64)))")],
    ),
    calls(
        "table-bomb",
        Fault(&["memory"]),
        &[(
            "BEHAVIOUR",
            "(loop $more (br_if $more (i32.ne
               (table.grow $table (ref.null func) (i32.const 5000)) (i32.const -1))))
             (unreachable)",
        )],
    ),
    calls(
        "deep-recursion",
        Fault(&["stack"]),
        &[("BEHAVIOUR", "(drop (call $recurse (i64.const 0)))")],
    ),
    calls(
        "state-grows",
        Answered,
        &[(
            "BEHAVIOUR",
            // Under a new key each time; what the host answers is ignored.
            "(i32.store8 (i32.const 700) (i32.add (i32.const 48)
               (i32.and (global.get $calls) (i32.const 63))))
             (i32.store8 (i32.const 701) (i32.add (i32.const 48)
               (i32.shr_u (global.get $calls) (i32.const 6))))
             (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (call $state_set (i32.const 700) (i32.const 2) (i32.const 8192)
               (i32.const 32768) (i32.const 600))",
        )],
    ),
    calls(
        "state-bomb",
        Fault(&["bad_output", "trap", "timeout"]),
        &[(
            "BEHAVIOUR",
            "(loop $forever
               (call $state_set (i32.const 1160) (i32.const 3) (i32.const 8192)
                 (i32.const 2000000) (i32.const 600))
               (global.set $heap (i32.const 65536))
               (br $forever))",
        )],
    ),
    // Policies with invalid answers.
    calls(
        "gigabyte-answer",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $list (i32.const 8192) (i32.const 134217728)))",
        )],
    ),
    calls(
        "megabyte-answer",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $list (i32.const 8192) (i32.const 131072)))",
        )],
    ),
    calls(
        "answer-too-long",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $answer (i32.add (local.get $rows) (i32.const 1)) (f64.const 1)))",
        )],
    ),
    calls(
        "answer-empty",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $list (i32.const 0) (i32.const 0)))",
        )],
    ),
    calls(
        "answer-outside",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $list (i32.const -16) (local.get $rows)))",
        )],
    ),
    calls(
        "answer-unaligned",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $list (i32.const 4097) (local.get $rows)))",
        )],
    ),
    calls(
        "answer-of-neither-kind",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(i32.store8 (i32.const 512) (i32.const 9)) (return (i32.const 512))",
        )],
    ),
    calls(
        "nan-scores",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $answer (local.get $rows) (f64.const nan)))",
        )],
    ),
    calls(
        "infinite-scores",
        Fault(&["bad_output"]),
        &[(
            "BEHAVIOUR",
            "(return (call $answer (local.get $rows) (f64.const inf)))",
        )],
    ),
    calls(
        "megabyte-error",
        Fault(&["bad_output"]),
        &[("BEHAVIOUR", "(return (call $error (i32.const 1048576)))")],
    ),
    calls(
        "megabyte-log-line",
        Answered,
        &[(
            "BEHAVIOUR",
            "(call $log (i32.const 4) (i32.const 8192) (i32.const 1048576))",
        )],
    ),
    calls(
        "log-without-text",
        Fault(&["bad_output", "trap"]),
        &[(
            "BEHAVIOUR",
            "(call $log (i32.const 4) (i32.const 1220) (i32.const 2))",
        )],
    ),
    calls(
        "allocation-outside",
        Fault(&["bad_output", "trap"]),
        &[(
            "ALLOCATION",
            "(if (i32.and (i32.ne (global.get $from_rows) (i32.const 0x7fffffff))
               (i32.ge_u (local.get 3) (i32.const 24)))
               (then (return (i32.const -8))))",
        )],
    ),
    policy(
        "stale-workers",
        "placement",
        Fault(&["bad_output"]),
        Text(&[(
            "BEHAVIOUR",
            "(return (call $workers (local.get $rows) (i32.const 200)))",
        )]),
    ),
    policy("tame-placement", "placement", Answered, Text(&[])),
    // Policies that fail.
    calls("trap", Fault(&["trap"]), &[("BEHAVIOUR", "(unreachable)")]),
    calls(
        "trap-afterwards",
        Fault(&["trap"]),
        &[
            ("BEHAVIOUR", "(global.set $calls (i32.const 1))"),
            (
                "AFTERWARDS",
                "(if (global.get $calls) (then (unreachable)))",
            ),
        ],
    ),
    calls(
        "trap-in-every-third-call",
        Fault(&["trap"]),
        &[(
            "BEHAVIOUR",
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
             (if (i32.eq (global.get $calls) (i32.const 3)) (then (unreachable)))",
        )],
    ),
    calls(
        "own-error",
        Fault(&["policy_error"]),
        &[("BEHAVIOUR", "(return (call $error (i32.const 38)))")],
    ),
    // Policies that are refused at upload.
    upload(
        "loop-at-start",
        &["smoke-timeout"],
        Text(&[(
            "MORE",
            "(func $start (loop $forever (br $forever))) (start $start)",
        )]),
    ),
    upload(
        "loop-in-describe",
        &["smoke-timeout"],
        Text(&[("DESCRIBE", "(loop $forever (br $forever))")]),
    ),
    upload(
        "trap-in-configure",
        &["smoke-trap"],
        Text(&[("CONFIGURE", "(unreachable)")]),
    ),
    upload(
        "error-in-configure",
        &["config-refused"],
        Text(&[("CONFIGURE", "(return (call $error (i32.const 38)))")]),
    ),
    upload(
        "memory-at-start",
        &["smoke-memory"],
        Text(&[(
            "MORE",
            "(func $start (if (i32.eq (memory.grow (i32.const 2000)) (i32.const -1))
               (then (unreachable)))) (start $start)",
        )]),
    ),
    upload(
        "name-with-a-path",
        &["bad-description"],
        Text(&[("NAME", "../../etc/x")]),
    ),
    upload(
        "version-of-two-numbers",
        &["bad-description"],
        Text(&[("VERSION", "1.0")]),
    ),
    upload(
        "compile-bomb",
        &["compile-timeout", "compile-memory"],
        Bytes(bomb::bomb),
    ),
    upload("no-bytes", &["empty"], Bytes(Vec::new)),
    upload(
        "archive",
        &["not-wasm"],
        Bytes(|| b"PK\x03\x04 an archive".to_vec()),
    ),
    upload(
        "garbage-after-the-head",
        &["invalid-wasm"],
        Bytes(|| b"\0asm\x01\0\0\0\x63\x01\0".to_vec()),
    ),
    upload("truncated", &["truncated"], Bytes(truncated)),
    upload("body-cut-short", &["invalid-wasm"], Bytes(body_cut_short)),
    upload(
        "no-contract",
        &["no-wit"],
        Bytes(|| text::module("priority", "no-contract", &[])),
    ),
    upload(
        "contract-again-and-again",
        &["contract-too-large"],
        Bytes(contracts),
    ),
    upload("names-without-end", &["contract-too-large"], Bytes(names)),
    upload("no-exports", &["not-a-component"], Bytes(no_exports)),
    upload("no-world", &["wrong-world"], Plain("(component)")),
    upload(
        "threads",
        &["invalid-wasm"],
        Plain("(module (memory 1 1 shared))"),
    ),
    upload(
        "memory-of-64-bits",
        &["invalid-wasm"],
        Plain("(module (memory i64 1))"),
    ),
    upload(
        "wasi-files",
        &["forbidden-import"],
        Plain(
            r#"(module (import "wasi_snapshot_preview1" "path_open"
                 (func (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32))))"#,
        ),
    ),
    upload(
        "sockets",
        &["forbidden-import"],
        Plain(r#"(component (import "wasi:sockets/tcp@0.2.0" (instance)))"#),
    ),
    upload(
        "wasi-in-a-policy",
        &["forbidden-import"],
        Text(&[(
            "MORE_IMPORTS",
            r#"(import "wasi_snapshot_preview1" "random_get" (func (param i32 i32) (result i32)))"#,
        )]),
    ),
    upload(
        "import-from-env",
        &["forbidden-import"],
        Text(&[(
            "MORE_IMPORTS",
            r#"(import "env" "system" (func (param i32) (result i32)))"#,
        )]),
    ),
    upload(
        "import-that-the-host-lacks",
        &["not-a-component", "forbidden-import"],
        Text(&[(
            "MORE_IMPORTS",
            r#"(import "treadle:policy/host@1.0.0" "spawn" (func (param i32 i32)))"#,
        )]),
    ),
    upload(
        "host-with-more-functions",
        &["world-mismatch", "wrong-world"],
        Plain(
            r#"(component (import "treadle:policy/host@1.0.0" (instance
                 (export "spawn" (func (param "command" string))))))"#,
        ),
    ),
    upload(
        "host-of-the-future",
        &["unknown-version"],
        Plain(
            r#"(component (import "treadle:policy/host@2.0.0" (instance
                 (export "now-ms" (func (result u64))))))"#,
        ),
    ),
    upload(
        "contract-of-another-world",
        &["not-a-component"],
        Bytes(contract_of_another_world),
    ),
];

fn truncated() -> Vec<u8> {
    let mut whole = text::build("priority", "truncated", &[]);
    whole.truncate(whole.len() / 2);
    whole
}

/// Removes the last instruction of the code and adjusts all lengths.
fn body_cut_short() -> Vec<u8> {
    // One type, one function, and a body of one byte that is not an end.
    b"\0asm\x01\0\0\0\x01\x04\x01\x60\0\0\x03\x02\x01\0\x0a\x04\x01\x02\0\x01".to_vec()
}

fn no_exports() -> Vec<u8> {
    let module = wat::parse_str("(module)").expect("the text is valid");
    embed_contract(&module, "priority").expect("the contract embeds")
}

fn contract_of_another_world() -> Vec<u8> {
    let module = text::module("priority", "contract-of-another-world", &[]);
    embed_contract(&module, "placement").expect("the contract embeds")
}

/// The sections of a contract, some hundred times.
fn contracts() -> Vec<u8> {
    let head = b"\0asm\x01\0\0\0".len();
    let mut module = no_exports();
    let sections = module[head..].to_vec();
    for _ in 0..200 {
        module.extend_from_slice(&sections);
    }
    module
}

fn names() -> Vec<u8> {
    let exports: Vec<String> = (0..20_000)
        .map(|index| format!("(export \"f{index}\" (func))"))
        .collect();
    let exports = exports.concat();
    let text = format!("(component (import \"treadle:policy/host@1.0.0\" (instance {exports})))");
    wat::parse_str(text).expect("the text is valid")
}
