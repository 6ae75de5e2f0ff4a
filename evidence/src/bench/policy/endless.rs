//! A policy of the world `priority` that never answers, written byte by byte: no
//! toolchain has to build it.

use crate::bench::BenchError;
use treadle_policy_runtime::embed_contract;

const I32: u8 = 0x7f;
const END: u8 = 0x0b;
/// Where a result lies: 0 for a success, then an empty list.
const RESULT: u8 = 0x20;
/// What describes it, each an address and a length: three texts, one function, no columns and no
/// schema.
const DESCRIPTION: [u8; 48] = [
    0x70, 0, 0, 0, 7, 0, 0, 0, 0x77, 0, 0, 0, 5, 0, 0, 0, 0x70, 0, 0, 0, 7, 0, 0, 0, //
    0x84, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
/// Where that lies: 64, as a signed number of variable length.
const DESCRIPTION_AT: &[u8] = &[0xc0, 0x00];
/// The name, the version and the function, then where that lies and its length.
const TEXTS: &[u8] = b"endless1.0.0score\0\0\0\x7c\0\0\0\x05\0\0\0";
/// Where they lie: 112.
const TEXTS_AT: &[u8] = &[0xf0, 0x00];
/// Where arguments go: 1,024. They are never read, so they may overlap.
const ARGUMENTS_AT: &[u8] = &[0x80, 0x08];

/// The module, with its contract.
pub(super) fn endless() -> Result<Vec<u8>, BenchError> {
    embed_contract(&module(), "priority").map_err(|refusal| BenchError::Comparison {
        policy: "endless".to_owned(),
        cause: refusal.to_string(),
    })
}

/// Exported functions: name, parameters, what they do.
const FUNCTIONS: [(&str, u8, Body); 7] = [
    ("cabi_realloc", 4, Body::Constant(ARGUMENTS_AT)),
    (
        "treadle:policy/plugin@1.0.0#describe",
        0,
        Body::Constant(DESCRIPTION_AT),
    ),
    (
        "treadle:policy/plugin@1.0.0#configure",
        2,
        Body::Constant(&[RESULT]),
    ),
    (
        "treadle:policy/plugin@1.0.0#snapshot",
        0,
        Body::Constant(&[RESULT]),
    ),
    (
        "treadle:policy/plugin@1.0.0#restore",
        2,
        Body::Constant(&[RESULT]),
    ),
    (
        "treadle:policy/priority-policy@1.0.0#score",
        14,
        Body::Endless,
    ),
    (
        "treadle:policy/priority-policy@1.0.0#preempt",
        6,
        Body::Constant(&[RESULT]),
    ),
];

#[derive(Clone, Copy)]
enum Body {
    /// Gives this number, in its variable-length form.
    Constant(&'static [u8]),
    /// Goes round and round.
    Endless,
}

impl Body {
    fn bytes(self) -> Vec<u8> {
        // No local variables.
        let mut body = vec![0];
        match self {
            Self::Constant(number) => {
                body.push(0x41);
                body.extend_from_slice(number);
            }
            // loop, br 0, end, unreachable.
            Self::Endless => body.extend([0x03, 0x40, 0x0c, 0x00, END, 0x00]),
        }
        body.push(END);
        body
    }
}

fn module() -> Vec<u8> {
    let functions = FUNCTIONS.len() as u8;
    let types = FUNCTIONS.map(|(_, parameters, _)| {
        let mut ty = vec![0x60, parameters];
        ty.extend(vec![I32; parameters.into()]);
        ty.extend([1, I32]);
        ty
    });
    let exports = FUNCTIONS.iter().zip(0_u8..).map(|((name, ..), index)| {
        let mut export = sized(name.as_bytes());
        export.extend([0, index]);
        export
    });
    let mut memory_export = sized(b"memory");
    memory_export.extend([2, 0]);
    let exports = exports.chain([memory_export]);
    let bodies = FUNCTIONS.map(|(.., body)| sized(&body.bytes()));
    let data = [data(DESCRIPTION_AT, &DESCRIPTION), data(TEXTS_AT, TEXTS)];
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    module.extend(section(1, types));
    module.extend(section(3, (0..functions).map(|index| vec![index])));
    // Two pages, no more.
    module.extend(section(5, [vec![1, 2, 2]]));
    module.extend(section(7, exports));
    module.extend(section(10, bodies));
    module.extend(section(11, data));
    module
}

/// Bytes that lie at an address from the start on.
fn data(address: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut segment = vec![0, 0x41];
    segment.extend_from_slice(address);
    segment.push(END);
    segment.extend(sized(bytes));
    segment
}

fn section(id: u8, items: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let items: Vec<Vec<u8>> = items.into_iter().collect();
    let mut content = number(items.len());
    content.extend(items.concat());
    let mut section = vec![id];
    section.extend(sized(&content));
    section
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    let mut sized = number(bytes.len());
    sized.extend_from_slice(bytes);
    sized
}

/// A number in its variable-length form (LEB128).
fn number(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use treadle_plugin::harness::Queue;
    use treadle_policy_runtime::{CallContext, InstanceOptions, Limits, PolicyEngine, PolicyFault};

    #[test]
    fn it_describes_itself_and_never_answers() {
        let engine = PolicyEngine::new(Limits::default()).unwrap();
        let candidate = engine.examine(&endless().unwrap()).unwrap();
        assert_eq!(candidate.world, "priority");
        let options = InstanceOptions::default();
        let mut instance = engine.load(&candidate.component, &options).unwrap();
        assert_eq!(instance.description().name, "endless");
        assert_eq!(instance.description().version, "1.0.0");
        let queue = Queue::default();
        let policy = instance.as_priority_mut().unwrap();
        let answer = policy.score(&CallContext::default(), &queue.columns());
        let timeout = PolicyFault::Timeout { deadline_ms: 2 };
        assert_eq!(answer.unwrap_err().to_string(), timeout.to_string());
    }

    #[test]
    fn numbers_have_their_variable_length() {
        assert_eq!(number(5), [5]);
        assert_eq!(number(300), [0xac, 0x02]);
    }
}
