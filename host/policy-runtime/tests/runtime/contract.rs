//! How the contract grows: what was frozen stays, and the rules of `wit/README.md`
//! hold on small examples.

use std::collections::BTreeMap;
use std::path::PathBuf;

use treadle_policy_runtime::{PolicyFault, RetentionColumns};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, Store};
use wit_component::ComponentEncoder;
use wit_parser::{PackageId, Resolve, SourceMap};

use crate::fixture::{CONTEXT, WIT, embed, engine, load, policy, resolve, weigh};

fn parse(resolve: &mut Resolve, texts: &BTreeMap<String, String>) -> PackageId {
    let mut sources = SourceMap::new();
    for (name, text) in texts {
        sources.push_str(name, text.as_str());
    }
    let group = sources.parse().map_err(|(_, error)| error).unwrap();
    resolve.push_group(group).unwrap()
}

/// What breaks for policies of the old package, if anything does.
fn breakage(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Option<String> {
    let mut both = Resolve::default();
    let (old, new) = (parse(&mut both, old), parse(&mut both, new));
    let worlds = both.packages[old].worlds.clone();
    worlds.iter().find_map(|(name, &before)| {
        let Some(&after) = both.packages[new].worlds.get(name) else {
            return Some(format!("the world {name} is gone"));
        };
        let checked = wit_component::semver_check(both.clone(), before, after);
        checked.err().map(|error| format!("{name}: {error:#}"))
    })
}

#[test]
fn every_frozen_version_is_kept() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit/frozen");
    let current: BTreeMap<_, _> = WIT.map(|(name, text)| (name.into(), text.into())).into();
    let (parsed, package) = resolve(str::to_owned);
    let now = parsed.packages[package].name.version.clone().unwrap();
    let mut versions = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let version = entry.unwrap().file_name().into_string().unwrap();
        let frozen = frozen(&version);
        if version == now.to_string() {
            assert!(frozen == current, "wit/ differs from frozen {version}");
        } else if version.split('.').next() == Some(now.major.to_string().as_str()) {
            assert_eq!(breakage(&frozen, &current), None, "since {version}");
        }
        versions.push(version);
    }
    versions.sort();
    assert_eq!(versions, ["1.0.0", "1.1.0"]);
}

/// The package as it was frozen.
fn frozen(version: &str) -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../wit/frozen");
    let files = std::fs::read_dir(folder.join(version)).unwrap();
    let texts = files.map(|file| {
        let file = file.unwrap();
        let name = file.file_name().into_string().unwrap();
        (name, std::fs::read_to_string(file.path()).unwrap())
    });
    texts.collect()
}

#[test]
fn a_policy_of_1_0_runs_unchanged_and_leaves_caches_to_the_host() {
    let mut before = Resolve::default();
    let package = parse(&mut before, &frozen("1.0.0"));
    let wat = include_str!("policy.wat").replace("@1.1.0", "@1.0.0");
    let upload = embed(&wat, &before, package, "eviction");
    let engine = engine();
    let inspection = engine.inspect(&upload).unwrap();
    assert_eq!(inspection.world, "eviction");
    let is_of_1_0 = |export: &String| export.ends_with("@1.0.0");
    assert!(inspection.exports.iter().all(is_of_1_0));
    assert!(inspection.smoke.iter().all(|call| call.call != "retain"));

    let mut policy = load(&engine, &upload);
    assert_eq!(weigh(&mut policy, 3), Ok(vec![1.0; 3]));
    let eviction = policy.as_eviction_mut().unwrap();
    let nobody = RetentionColumns::default();
    let fates = eviction.retain(&CONTEXT, 3, -1, 1, &nobody);
    assert_eq!(fates, Err(PolicyFault::NotSupported));
    assert_eq!(policy.restarts(), 0);
}

/// The smallest package with all that matters.
const SMALL: &str = "
    interface shapes { record row { tokens: u64 } }
    interface host { now: func() -> u64; }
    interface policy { use shapes.{row}; ask: func(row: row) -> u64; }
    world asked { import host; export policy; }
";

fn small(version: &str, text: &str) -> BTreeMap<String, String> {
    let text = format!("package rules:growth@{version};\n{text}");
    BTreeMap::from([("small.wit".to_owned(), text)])
}

/// What an edit of the small package breaks.
fn edited(from: &str, to: &str) -> Option<String> {
    assert!(SMALL.contains(from), "nothing to edit at {from}");
    let new = SMALL.replace(from, to);
    breakage(&small("1.0.0", SMALL), &small("1.1.0", &new))
}

#[test]
fn growth_by_interfaces_breaks_nothing() {
    assert_eq!(edited("u64 }", "u64 }"), None);
    let import = "interface more { later: func() -> u64; }
        world asked { import more; import host;";
    assert_eq!(edited("world asked { import host;", import), None);
    let world = "world asked-more { include asked; export more; }
        interface more { again: func() -> u64; }
        world asked {";
    assert_eq!(edited("world asked {", world), None);
}

#[test]
fn what_the_rules_forbid_breaks() {
    for (from, to) in [
        ("tokens: u64 }", "tokens: u64, steps: u32 }"),
        (
            "-> u64; }\n    world",
            "-> u64; again: func() -> u64; }\n    world",
        ),
        ("func(row: row) -> u64", "func(row: row) -> u32"),
        ("now: func() -> u64;", ""),
        (
            "export policy; }",
            "export policy; export more; }
             interface more { again: func() -> u64; }",
        ),
    ] {
        assert!(edited(from, to).is_some(), "{to} breaks nothing");
    }
}

#[test]
fn an_upload_of_an_older_version_fits_a_world_that_imports_more() {
    let component = ComponentEncoder::default()
        .module(&policy(""))
        .and_then(ComponentEncoder::encode)
        .unwrap();
    let grown = |edit: fn(&str) -> String| {
        let (resolve, package) =
            resolve(|text| edit(&text.replace("policy@1.1.0", "policy@1.2.0")));
        let world = resolve.packages[package].worlds["eviction"];
        wit_component::targets(&resolve, world, &component, true)
    };
    let more = |text: &str| {
        text.replace(
            "world eviction {",
            "interface more { later: func() -> u64; }
             world eviction { import more;",
        )
    };
    assert!(grown(more).is_ok());
    let field = |text: &str| text.replace("summary: string,", "summary: string, more: u32,");
    let error = grown(field).unwrap_err();
    assert!(format!("{error:#}").contains("description"), "{error:#}");
}

mod grown {
    wasmtime::component::bindgen!({
        inline: "
            package rules:growth@1.1.0;
            interface host { now: func() -> u64; }
            interface more { later: func() -> u64; }
            interface policy { ask: func() -> u64; }
            world asked { import host; import more; export policy; }
        ",
    });
}

struct Clock(u64);

impl grown::rules::growth::host::Host for Clock {
    fn now(&mut self) -> u64 {
        self.0
    }
}

impl grown::rules::growth::more::Host for Clock {
    fn later(&mut self) -> u64 {
        self.0 + 1
    }
}

#[test]
fn a_guest_of_1_0_runs_on_a_host_of_1_1() {
    let mut before = Resolve::default();
    let package = parse(
        &mut before,
        &small(
            "1.0.0",
            "interface host { now: func() -> u64; }
             interface policy { ask: func() -> u64; }
             world asked { import host; export policy; }",
        ),
    );
    let module = embed(
        r#"(module
            (import "rules:growth/host@1.0.0" "now" (func $now (result i64)))
            (memory (export "memory") 1)
            (func (export "rules:growth/policy@1.0.0#ask") (result i64)
              (i64.mul (call $now) (i64.const 2))))"#,
        &before,
        package,
        "asked",
    );
    let component = ComponentEncoder::default()
        .module(&module)
        .and_then(ComponentEncoder::encode)
        .unwrap();

    let mut config = Config::new();
    config.concurrency_support(false);
    let engine = Engine::new(&config).unwrap();
    let component = Component::from_binary(&engine, &component).unwrap();
    let mut linker = Linker::new(&engine);
    grown::Asked::add_to_linker::<_, HasSelf<_>>(&mut linker, |clock: &mut Clock| clock).unwrap();
    let mut store = Store::new(&engine, Clock(21));
    let asked = grown::Asked::instantiate(&mut store, &component, &linker).unwrap();
    let answer = asked.rules_growth_policy().call_ask(&mut store);
    assert_eq!(answer.unwrap(), 42);
}
