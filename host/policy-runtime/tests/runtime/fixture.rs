//! Small policies written in WebAssembly's text form, each with one peculiarity.

use treadle_policy_runtime::{ActingColumns, EvictionInstance, Limits, PolicyEngine};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{Resolve, SourceMap};

const WIT: [&str; 4] = [
    include_str!("../../../../wit/types.wit"),
    include_str!("../../../../wit/host.wit"),
    include_str!("../../../../wit/plugin.wit"),
    include_str!("../../../../wit/eviction.wit"),
];

/// The number of rows at which the peculiarity shows.
pub(crate) const TRIGGER_ROWS: usize = 7;

/// A policy that answers 1 for every row. With [`TRIGGER_ROWS`] rows `weigh` runs
/// `peculiarity` first, instructions that may end with `(return (...))`; local 1 is
/// the number of rows.
pub(crate) fn policy(peculiarity: &str) -> Vec<u8> {
    policy_of(peculiarity, str::to_owned)
}

/// As [`policy`], with the WIT edited.
pub(crate) fn policy_of(peculiarity: &str, edit: impl Fn(&str) -> String) -> Vec<u8> {
    let wat = include_str!("policy.wat").replace("(;PECULIARITY;)", peculiarity);
    let mut module = wat::parse_str(wat).expect("the fixture is valid");
    let mut sources = SourceMap::new();
    for (index, wit) in WIT.iter().enumerate() {
        sources.push_str(&format!("{index}.wit"), edit(wit));
    }
    let group = sources
        .parse()
        .map_err(|(_, error)| error)
        .expect("WIT parses");
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).expect("WIT resolves");
    let world = resolve.packages[package].worlds["eviction"];
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8, false)
        .expect("WIT embeds");
    module
}

/// Longer than the default, so that a crowded machine stops no call that is fine.
pub(crate) const HOT_DEADLINE_MS: u64 = 50;

pub(crate) fn engine() -> PolicyEngine {
    PolicyEngine::new(Limits {
        hot_deadline_ms: HOT_DEADLINE_MS,
        ..Limits::default()
    })
    .expect("the engine starts")
}

/// Takes it through the inspection first, as production does.
pub(crate) fn load(engine: &PolicyEngine, upload: &[u8]) -> EvictionInstance {
    let inspection = engine.inspect(upload).expect("accepted");
    engine.load(&inspection.component, "{}").expect("loads")
}

/// Asks for weights of so many programs.
pub(crate) fn weigh(
    instance: &mut EvictionInstance,
    rows: usize,
) -> Result<Vec<f64>, treadle_policy_runtime::PolicyFault> {
    let zeros = vec![0; rows];
    instance.weigh(&ActingColumns {
        now_ms: 2_500,
        tokens: &zeros,
        phase_ms: &zeros,
        extra: &[],
    })
}
