//! Small policies written in WebAssembly's text form, each with one peculiarity.

use treadle_policy_runtime::{
    ActingColumns, CallContext, InstanceOptions, Limits, PolicyEngine, PolicyFault, PolicyInstance,
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{PackageId, Resolve, SourceMap};

/// The package, file by file.
pub(crate) const WIT: [(&str, &str); 10] = [
    ("types.wit", include_str!("../../../../wit/types.wit")),
    ("host.wit", include_str!("../../../../wit/host.wit")),
    ("plugin.wit", include_str!("../../../../wit/plugin.wit")),
    (
        "prediction.wit",
        include_str!("../../../../wit/prediction.wit"),
    ),
    ("priority.wit", include_str!("../../../../wit/priority.wit")),
    (
        "placement.wit",
        include_str!("../../../../wit/placement.wit"),
    ),
    (
        "allocation.wit",
        include_str!("../../../../wit/allocation.wit"),
    ),
    ("eviction.wit", include_str!("../../../../wit/eviction.wit")),
    ("reward.wit", include_str!("../../../../wit/reward.wit")),
    ("shaping.wit", include_str!("../../../../wit/shaping.wit")),
];

/// The number of rows at which the peculiarity shows.
pub(crate) const TRIGGER_ROWS: usize = 7;

/// The context of every call here.
pub(crate) const CONTEXT: CallContext = CallContext {
    now_ms: 2_500,
    seed: 3,
    deadline_ms: None,
};

/// A policy of the world `eviction` that answers 1 for every row. With
/// [`TRIGGER_ROWS`] rows `weigh` runs `peculiarity` first, instructions that may end
/// with `(return (...))`; local 1 is the number of rows.
pub(crate) fn policy(peculiarity: &str) -> Vec<u8> {
    policy_of(peculiarity, str::to_owned)
}

/// Like [`policy`], with the WIT edited.
pub(crate) fn policy_of(peculiarity: &str, edit: impl Fn(&str) -> String) -> Vec<u8> {
    let wat = include_str!("policy.wat").replace("(;PECULIARITY;)", peculiarity);
    let (resolve, package) = resolve(edit);
    embed(&wat, &resolve, package, "eviction")
}

/// The package, edited and parsed.
pub(crate) fn resolve(edit: impl Fn(&str) -> String) -> (Resolve, PackageId) {
    let mut sources = SourceMap::new();
    for (name, wit) in WIT {
        sources.push_str(name, edit(wit));
    }
    let group = sources
        .parse()
        .map_err(|(_, error)| error)
        .expect("WIT parses");
    let mut resolve = Resolve::default();
    let package = resolve.push_group(group).expect("WIT resolves");
    (resolve, package)
}

/// A module that names the world it targets.
pub(crate) fn embed(wat: &str, resolve: &Resolve, package: PackageId, world: &str) -> Vec<u8> {
    let mut module = wat::parse_str(wat).expect("the fixture is valid");
    let world = resolve.packages[package].worlds[world];
    embed_component_metadata(&mut module, resolve, world, StringEncoding::UTF8)
        .expect("WIT embeds");
    module
}

/// Longer than the default, so that a busy machine stops no valid call.
pub(crate) const HOT_DEADLINE_MS: u64 = 50;

pub(crate) fn limits() -> Limits {
    Limits {
        hot_deadline_ms: HOT_DEADLINE_MS,
        ..Limits::default()
    }
}

pub(crate) fn engine() -> PolicyEngine {
    PolicyEngine::new(limits()).expect("the engine starts")
}

/// Takes it through the inspection first, as production does.
pub(crate) fn load(engine: &PolicyEngine, upload: &[u8]) -> PolicyInstance {
    load_with(engine, upload, &InstanceOptions::default())
}

pub(crate) fn load_with(
    engine: &PolicyEngine,
    upload: &[u8],
    options: &InstanceOptions,
) -> PolicyInstance {
    let inspection = engine.inspect(upload).expect("accepted");
    engine.load(&inspection.component, options).expect("loads")
}

/// Calls `weigh` with this number of rows.
pub(crate) fn weigh(policy: &mut PolicyInstance, rows: usize) -> Result<Vec<f64>, PolicyFault> {
    weigh_in(policy, rows, &CONTEXT)
}

pub(crate) fn weigh_in(
    policy: &mut PolicyInstance,
    rows: usize,
    context: &CallContext,
) -> Result<Vec<f64>, PolicyFault> {
    let zeros = vec![0; rows];
    let programs = ActingColumns {
        tokens: &zeros,
        phase_ms: &zeros,
        extra: &[],
    };
    let policy = policy.as_eviction_mut().expect("of the world eviction");
    policy.weigh(context, &programs)
}
