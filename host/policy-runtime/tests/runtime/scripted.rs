//! Policies of any world that answer by a script, so that answers of every kind can be checked.

use std::fmt::Write as _;

use treadle_model::World;
use treadle_policy_runtime::{InstanceOptions, PolicyFault, PolicyInstance};
use wit_component::ComponentEncoder;
use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, WorldItem};

use crate::fixture::{embed, engine, resolve};

/// What a function answers, whatever its input.
pub(crate) enum Reply {
    /// Success without a value.
    Done,
    /// One or more lists.
    Lists(Vec<List>),
    /// The error `not-supported`.
    NotSupported,
}

/// A list of numbers or texts, in its memory layout.
pub(crate) enum List {
    Numbers { bytes: Vec<u8>, entries: usize },
    Texts(Vec<&'static str>),
}

pub(crate) fn f64s(numbers: &[f64]) -> List {
    List::Numbers {
        bytes: numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        entries: numbers.len(),
    }
}

pub(crate) fn u32s(numbers: &[u32]) -> List {
    List::Numbers {
        bytes: numbers.iter().flat_map(|n| n.to_le_bytes()).collect(),
        entries: numbers.len(),
    }
}

pub(crate) fn u8s(numbers: &[u8]) -> List {
    List::Numbers {
        bytes: numbers.to_vec(),
        entries: numbers.len(),
    }
}

pub(crate) fn texts(texts: &[&'static str]) -> List {
    List::Texts(texts.to_vec())
}

/// An answer of one list.
pub(crate) fn list(list: List) -> Reply {
    Reply::Lists(vec![list])
}

/// Address of the data; the host's arguments come after it.
const DATA: usize = 1 << 12;
const HEAP: usize = 1 << 16;
/// Address of results.
const RESULT: usize = 512;

/// The data segment.
#[derive(Default)]
struct Data(Vec<u8>);

impl Data {
    fn place(&mut self, bytes: &[u8]) -> usize {
        let at = DATA + self.0.len();
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        assert!(self.0.len() < HEAP - DATA, "the script is too long");
        at
    }

    /// Address and number of entries.
    fn list(&mut self, list: &List) -> (usize, usize) {
        match list {
            List::Numbers { bytes, entries } => (self.place(bytes), *entries),
            List::Texts(texts) => {
                let mut table = Vec::new();
                for text in texts {
                    let at = self.place(text.as_bytes());
                    table.extend_from_slice(&(at as u32).to_le_bytes());
                    table.extend_from_slice(&(text.len() as u32).to_le_bytes());
                }
                (self.place(&table), texts.len())
            }
        }
    }
}

/// Instructions that write a result: one list after another from `at` on.
fn body(data: &mut Data, at: usize, lists: &[List]) -> String {
    let mut body = String::new();
    for (index, list) in lists.iter().enumerate() {
        let (address, entries) = data.list(list);
        let at = at + 8 * index;
        writeln!(
            body,
            "(i32.store (i32.const {at}) (i32.const {address}))
             (i32.store (i32.const {}) (i32.const {entries}))",
            at + 4
        )
        .unwrap();
    }
    body
}

fn reply(data: &mut Data, reply: &Reply) -> String {
    let (code, lists) = match reply {
        Reply::Done => (0, String::new()),
        Reply::Lists(lists) => (0, body(data, RESULT + 4, lists)),
        Reply::NotSupported => {
            let error = ["not-supported", "not here"].map(|text| u8s(text.as_bytes()));
            (1, body(data, RESULT + 4, &error))
        }
    };
    format!("(i32.store8 (i32.const {RESULT}) (i32.const {code})) {lists}")
}

fn function(resolve: &Resolve, interface: &str, function: &Function, body: &str) -> String {
    let signature = resolve.wasm_signature(AbiVariant::GuestExport, function);
    let params: Vec<_> = signature
        .params
        .iter()
        .map(|param| match param {
            WasmType::I64 => "i64",
            WasmType::F64 => "f64",
            _ => "i32",
        })
        .collect();
    format!(
        "(func (export \"{interface}#{name}\") (param {}) (result i32) {body} (i32.const {RESULT}))
         (func (export \"cabi_post_{interface}#{name}\") (param i32)
           (global.set $heap (i32.const {HEAP})))",
        params.join(" "),
        name = function.name,
    )
}

/// A module's description besides its name.
#[derive(Default)]
pub(crate) struct Described {
    /// Functions that it names; if empty, those with a reply.
    pub(crate) functions: Vec<&'static str>,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) schema: &'static str,
}

/// A module of `world` that names and answers the functions that have a reply.
pub(crate) fn scripted(world: World, replies: &[(&'static str, Reply)]) -> Vec<u8> {
    scripted_as(world, &Described::default(), replies)
}

/// Like [`scripted`], with more of a description.
pub(crate) fn scripted_as(
    world: World,
    described: &Described,
    replies: &[(&'static str, Reply)],
) -> Vec<u8> {
    let (resolve, package) = resolve(str::to_owned);
    let (resolve, world) = (&resolve, world.as_str());
    let mut functions_said = described.functions.clone();
    if functions_said.is_empty() {
        functions_said.extend(replies.iter().map(|(of, _)| *of));
    }
    let exports = &resolve.worlds[resolve.packages[package].worlds[world]].exports;
    let (mut functions, mut data) = (String::new(), Data::default());
    for (key, item) in exports {
        let WorldItem::Interface { id, .. } = item else {
            panic!("worlds export interfaces")
        };
        let interface = resolve.name_world_key(key);
        for (name, known) in &resolve.interfaces[*id].functions {
            let scripted = replies.iter().find(|(of, _)| of == name);
            let body = match (name.as_str(), scripted) {
                (_, Some((_, scripted))) => reply(&mut data, scripted),
                ("describe", None) => {
                    let said = ["scripted", "1.0.0", "answers by a script"];
                    let mut lists = said
                        .map(|text| u8s(text.as_bytes()))
                        .into_iter()
                        .collect::<Vec<_>>();
                    lists.push(texts(&functions_said));
                    lists.push(texts(&described.columns));
                    lists.push(u8s(described.schema.as_bytes()));
                    body(&mut data, RESULT, &lists)
                }
                ("configure" | "restore", None) => reply(&mut data, &Reply::Done),
                ("snapshot", None) => reply(&mut data, &list(u8s(&[]))),
                (_, None) => reply(&mut data, &Reply::NotSupported),
            };
            functions += &function(resolve, &interface, known, &body);
        }
    }
    let bytes = data.0.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:02x}").unwrap();
        text
    });
    let wat = format!(
        "(module
           (memory (export \"memory\") 16)
           (global $heap (mut i32) (i32.const {HEAP}))
           (data (i32.const {DATA}) \"{bytes}\")
           (func (export \"cabi_realloc\") (param i32 i32 i32 i32) (result i32)
             (local $start i32)
             (local.set $start
               (i32.and (i32.add (global.get $heap) (i32.const 7)) (i32.const -8)))
             (global.set $heap (i32.add (local.get $start) (local.get 3)))
             (local.get $start))
           {functions})"
    );
    embed(&wat, resolve, package, world)
}

/// A running policy that answers `function` with `reply`. The trial run of an
/// inspection would refuse most of them.
pub(crate) fn answering(world: World, function: &'static str, reply: Reply) -> PolicyInstance {
    running(world, &scripted(world, &[(function, reply)]))
}

/// A running policy of a world that is not inspected.
pub(crate) fn running(world: World, module: &[u8]) -> PolicyInstance {
    let component = ComponentEncoder::default()
        .module(module)
        .and_then(|encoder| encoder.validate(true).encode())
        .expect("a component");
    let options = InstanceOptions::default();
    let policy = engine().load(&component, &options).expect("loads");
    assert_eq!(policy.world(), world);
    policy
}

/// Calls twice: the answer is invalid, for the reason `told`, each time from a fresh instance.
pub(crate) fn refused<T: std::fmt::Debug>(
    mut policy: PolicyInstance,
    told: &str,
    mut ask: impl FnMut(&mut PolicyInstance) -> Result<T, PolicyFault>,
) {
    for restarts in 1..=2 {
        let Err(PolicyFault::BadOutput { detail }) = ask(&mut policy) else {
            panic!("accepted what should be refused with {told:?}")
        };
        assert!(
            detail.contains(told),
            "{detail:?} does not mention {told:?}"
        );
        assert_eq!(policy.restarts(), restarts);
    }
}
