//! Tests of the configuration.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::*;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn environment(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let own = |&(name, text): &(&str, &str)| (name.to_owned(), text.to_owned());
    pairs.iter().map(own).collect()
}

fn sets(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn load(text: &str, variables: &[(&str, &str)], list: &[&str]) -> Result<Config, ConfigError> {
    Config::load(Some(file(text).path()), environment(variables), &sets(list))
}

fn complaint(text: &str, variables: &[(&str, &str)], list: &[&str]) -> String {
    load(text, variables, list).unwrap_err().to_string()
}

#[test]
fn nothing_is_the_default() {
    let config = Config::load(None, [], &[]).unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8300");
}

#[test]
fn each_layer_covers_the_one_below() {
    let text = "[scheduler]\nstarvation_s_max = 1\nprograms_max = 1\nqueue_len_max = 1\n";
    let variables = [
        ("TREADLE_SCHEDULER__PROGRAMS_MAX", "2"),
        ("TREADLE_SCHEDULER__QUEUE_LEN_MAX", "2"),
        ("TREADLE_CONFIG", "not a key, it has no section"),
        ("HOME", "/"),
    ];
    let config = load(text, &variables, &["scheduler.queue_len_max = 3"]).unwrap();
    let scheduler = config.scheduler;
    assert_eq!(
        (
            scheduler.starvation_s_max,
            scheduler.programs_max,
            scheduler.queue_len_max
        ),
        (1, 2, 3)
    );
    assert_eq!(scheduler.queue_wait_s_max, 1800, "the default is below all");
}

#[test]
fn every_form_is_read_from_text() {
    let list = [
        "server.listen=[::1]:80",
        "scheduler.mode=least-load",
        "scheduler.time_scale=20",
        "server.body_bytes_max=1_048_576",
        "metrics.enabled=false",
        "logging.filter=info,treadle=debug",
        "engines.endpoints=http://a:1, http://b:2/",
        "cluster.shards=north, south",
    ];
    let config = load("", &[], &list).unwrap();
    assert_eq!(config.server.listen.to_string(), "[::1]:80");
    assert_eq!(config.scheduler.mode, treadle_core::Mode::LeastLoad);
    assert!((config.scheduler.time_scale - 20.0).abs() < f64::EPSILON);
    assert_eq!(config.server.body_bytes_max, 1 << 20);
    assert!(!config.metrics.enabled);
    assert_eq!(config.logging.filter, "info,treadle=debug");
    let urls: Vec<_> = config
        .engines
        .endpoints
        .iter()
        .map(|e| e.url.as_str())
        .collect();
    assert_eq!(urls, ["http://a:1", "http://b:2/"]);
    assert_eq!(config.cluster.shards, ["north", "south"]);
}

#[test]
fn engines_are_urls_or_tables() {
    let list = r#"["http://a:1", { url = "http://b:2", kind = "sglang", capacity_tokens = 400_000, class = "h20", role = "decode", profile = "b.json" }]"#;
    let expected = [
        Endpoint::at("http://a:1"),
        Endpoint {
            url: "http://b:2".into(),
            kind: Some(EngineChoice::Sglang),
            capacity_tokens: Some(400_000),
            class: Some("h20".into()),
            role: Some("decode".into()),
            profile: Some("b.json".into()),
        },
    ];
    let from_file = load(&format!("[engines]\nendpoints = {list}"), &[], &[]).unwrap();
    assert_eq!(from_file.engines.endpoints, expected);
    let from_variable = load("", &[("TREADLE_ENGINES__ENDPOINTS", list)], &[]).unwrap();
    assert_eq!(from_variable.engines.endpoints, expected);
    let tables = "[[engines.endpoints]]\nurl = \"http://a:1\"\n\
                  [[engines.endpoints]]\nurl = \"http://b:2\"\nkind = \"sglang\"\ncapacity_tokens = 400000\nclass = \"h20\"\nrole = \"decode\"\nprofile = \"b.json\"\n";
    assert_eq!(load(tables, &[], &[]).unwrap().engines.endpoints, expected);
    let long = tables.replace("h20", &"h".repeat(65));
    let error = load(&long, &[], &[]).unwrap_err().to_string();
    assert!(error.contains("`class` has 65 bytes"), "{error}");
}

#[test]
fn an_unknown_key_names_the_nearest() {
    for (text, variables, list, expected) in [
        (
            "[scheduler]\nquantm_share = 1",
            &[][..],
            &[][..],
            "no key `scheduler.quantm_share`; did you mean `scheduler.quantum_share`?",
        ),
        (
            "listen = 1",
            &[],
            &[],
            "no key `listen`; did you mean `server.listen`?",
        ),
        (
            "[servers]",
            &[],
            &[],
            "no key `servers`; did you mean `server`?",
        ),
        (
            "[engines]\nendpoints = [{ url = \"http://a\", capacity = 1 }]",
            &[],
            &[],
            "no key `engines.endpoints.capacity`",
        ),
        (
            "[engines]\nendpoints = [{ urk = \"http://a\" }]",
            &[],
            &[],
            "did you mean `engines.endpoints.url`?",
        ),
        (
            "",
            &[("TREADLE_SERVER__LISTN", "x")],
            &[],
            "environment variable TREADLE_SERVER__LISTN: there is no key `server.listn`; did you mean `server.listen`?",
        ),
        (
            "",
            &[],
            &["store.dir=x"],
            "--set: there is no key `store.dir`",
        ),
        (
            "[scheduler]\ntick_ms = 1",
            &[],
            &[],
            "there is no key `scheduler.tick_ms`; the value is fixed, leave it out",
        ),
        (
            "",
            &[],
            &["colour=red"],
            "no key `colour`; docs/configuration.md lists all keys",
        ),
    ] {
        let complaint = complaint(text, variables, list);
        assert!(complaint.contains(expected), "{complaint}");
    }
}

#[test]
fn a_value_of_the_wrong_form_names_key_and_remedy() {
    for (set, expected) in [
        (
            "server.listen=localhost",
            "`server.listen` is \"localhost\"; write an address and a port",
        ),
        (
            "scheduler.mode=fast",
            "write one of program-aware, sticky, least-load",
        ),
        (
            "scheduler.queue_wait_s_max=1s",
            "`scheduler.queue_wait_s_max` is \"1s\"; write a whole number",
        ),
        (
            "scheduler.queue_wait_s_max=1.5",
            "`scheduler.queue_wait_s_max` is 1.5; write a whole number",
        ),
        (
            "metrics.enabled=yes",
            "`metrics.enabled` is \"yes\"; write true or false",
        ),
        (
            "cluster.shards=[1]",
            "`cluster.shards` is [1]; write a list of texts",
        ),
        (
            "engines.endpoints=[1]",
            "`engines.endpoints` is 1; write a list of URLs",
        ),
        (
            "engines.endpoints=[{url='http://a', kind='fast'}]",
            "write a list of URLs",
        ),
        ("tick", "--set tick: write section.key=value"),
    ] {
        let complaint = complaint("", &[], &[set]);
        assert!(complaint.contains(expected), "{complaint}");
    }
}

#[test]
fn a_value_out_of_bounds_names_key_and_remedy() {
    for (set, expected) in [
        (
            "scheduler.queue_wait_s_max=0",
            "is 0; write a value from 1 to 604800 seconds",
        ),
        (
            "scheduler.queue_wait_s_max=-1",
            "`scheduler.queue_wait_s_max` is -1; write a value from 1",
        ),
        (
            "scheduler.time_scale=nan",
            "write a value from 0.001 to 10000 times",
        ),
        (
            "scheduler.low_watermark=1.5",
            "is 1.5, above scheduler.high_watermark",
        ),
        (
            "engines.endpoints=ftp://a",
            "has `ftp://a`: it is not an address",
        ),
        (
            "engines.endpoints=http://a,http://a/",
            "has http://a/ twice; list each engine once",
        ),
    ] {
        let complaint = complaint("", &[], &[set]);
        assert!(complaint.contains(expected), "{complaint}");
    }
}

#[test]
fn a_bad_file_is_named() {
    for (text, expected) in [
        (
            "[server]\nlisten = 8300",
            "`server.listen` is 8300; write an address and a port",
        ),
        ("server = 1", "there is no key `server`"),
        ("[server", "is not TOML"),
    ] {
        let complaint = complaint(text, &[], &[]);
        assert!(complaint.contains(expected), "{complaint}");
    }
    let missing = Config::load(Some(Path::new("/nowhere/treadle.toml")), [], &[]);
    let complaint = missing.unwrap_err().to_string();
    assert!(complaint.starts_with("can't read the configuration /nowhere/treadle.toml"));
}

#[test]
fn every_default_is_a_value_that_could_be_written() {
    let text = toml::to_string(&Config::default()).unwrap();
    let loaded = load(&text, &[], &[]).unwrap();
    assert_eq!(toml::to_string(&loaded).unwrap(), text);
    let written: toml::Table = toml::from_str(&text).unwrap();
    for section in SECTIONS {
        let mut names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
        let mut of_the_struct: Vec<&String> =
            written[section.name].as_table().unwrap().keys().collect();
        of_the_struct.sort();
        names.sort_unstable();
        assert_eq!(of_the_struct, names, "{}", section.name);
    }
    assert_eq!(written.len(), SECTIONS.len());
}

/// Each crate has defaults of its own for its tests; a daemon without a configuration has the same,
/// and keeps caches beyond that.
#[test]
fn the_defaults_are_those_of_the_crates() {
    let config = Config::default();
    let mut expected = treadle_core::CoreConfig::default();
    expected.kv.retention = true;
    assert_eq!(config.core(), expected);
    assert_eq!(
        config.plugins.limits(),
        treadle_policy_runtime::Limits::default()
    );
    assert_eq!(
        config.plugins.breaker(),
        treadle_policy_runtime::BreakerLimits::default()
    );
}

#[test]
fn the_core_gets_what_was_configured() {
    let list = [
        "scheduler.starvation_s_max=7",
        "scheduler.low_watermark=0.9",
        "engines.retry_max=0",
    ];
    let core = load("", &[], &list).unwrap().core();
    assert_eq!(core.deferral_max, treadle_model::Span::from_secs(7));
    assert_eq!(core.low_watermark_ppm, 900_000);
    assert_eq!(core.attempts_max, 1);
}

#[test]
fn the_store_is_a_file_or_memory() {
    let config = load("", &[], &["store.path=memory"]).unwrap();
    assert_eq!(config.store.location(), treadle_store::Location::Memory);
    let default = Config::default().store.location();
    assert_eq!(
        default,
        treadle_store::Location::File(".treadle/treadle.db".into())
    );
}

/// `UPDATE_DOCS=1` writes the page instead.
#[test]
fn the_reference_is_up_to_date() {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "../../docs/configuration.md"]
        .iter()
        .collect();
    let page = reference_markdown();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/configuration.md is stale; run `make docs`"
    );
}

#[test]
fn a_host_tier_without_what_it_needs_is_refused() {
    let whole = [
        "kv.host_bytes_max=1000",
        "kv.host_tokens_max=10",
        "kv.folder=/a",
        "kv.slots_folder=/b",
    ];
    let config = load("", &[], &whole).unwrap();
    let core = config.core().kv;
    assert_eq!((core.host_tokens_max, core.offload_link_ppm), (10, 500_000));
    assert_eq!(core.transfer_max, treadle_model::Span::from_secs(60));
    let without = |at: usize, more: &[&str]| {
        let mut list = whole.to_vec();
        list.remove(at);
        list.extend(more);
        complaint("", &[], &list)
    };
    assert!(without(1, &[]).starts_with("`kv.host_tokens_max` is 0"));
    assert!(
        load("", &[], &["kv.host_tokens_max=10"]).is_ok(),
        "engines may keep copies"
    );
    assert!(without(2, &[]).starts_with("`kv.folder` is empty"));
    assert!(without(3, &[]).starts_with("`kv.slots_folder` is empty"));
    assert!(without(3, &["kv.slots_folder=/a"]).starts_with("`kv.slots_folder` is the same"));
    let with = |more: &[&str]| complaint("", &[], &[&whole, more].concat());
    assert!(with(&["scheduler.mode=sticky"]).starts_with("`kv.host_tokens_max`"));
    assert!(with(&["kv.retention=true", "scheduler.mode=sticky"]).starts_with("`kv.retention`"));
    let moves = "kv.migration_tokens_per_s=10";
    let nothing_asked = complaint("", &[], &[moves, "kv.retention=false"]);
    assert!(nothing_asked.starts_with("`kv.migration_tokens_per_s` is set, but kv.retention"));
    assert!(load("", &[], &[moves]).is_ok());
}

#[test]
fn caches_are_retained_unless_the_mode_or_a_setting_says_otherwise() {
    let retains = |sets: &[&str]| {
        let config = load("", &[], sets).unwrap();
        assert_eq!(config.core().kv.retention, config.kv.retention);
        config.kv.retention
    };
    assert!(retains(&[]));
    assert!(!retains(&["kv.retention=false"]));
    for mode in ["sticky", "least-load"] {
        let mode = format!("scheduler.mode={mode}");
        assert!(!retains(&[&mode]), "{mode} starts, without it");
        assert!(!retains(&[&mode, "kv.retention=false"]));
        let asked = complaint("", &[], &[&mode, "kv.retention=true"]);
        assert!(asked.starts_with("`kv.retention` is set"), "{asked}");
    }
    let mut by_hand = Config::default();
    assert!(by_hand.core().kv.retention);
    by_hand.scheduler.mode = treadle_core::Mode::Sticky;
    assert!(!by_hand.core().kv.retention);
}

#[test]
fn a_host_tier_for_several_nodes_without_what_it_needs_is_refused() {
    let whole = [
        "server.plaintext=true",
        "kv.host_bytes_max=1000",
        "kv.host_tokens_max=10",
        "kv.folder=/a",
        "kv.slots_folder=/b",
        "cluster.role=all",
        "cluster.secret=0123456789abcdef",
        "store.path=/c",
    ];
    let with = |more: &[&str]| complaint("", &[], &[&whole, more].concat());
    for (key, value) in [("kv.tier_listen", "10.0.0.5:8310"), ("kv.nodes", "a=b:1")] {
        let value = format!("{key}={value}");
        let single = with(&[value.as_str(), "cluster.role=single"]);
        let start = format!("`{key}` is set, but cluster.role is single");
        assert!(single.starts_with(&start), "{single}");
    }
    assert!(with(&["kv.tier_listen=here"]).starts_with("`kv.tier_listen` is `here`"));
    assert!(with(&["kv.tier_listen=0.0.0.0:8310"]).starts_with("`kv.tier_advertise`"));
    assert!(with(&["kv.nodes=10.0.0.6"]).starts_with("`kv.nodes` has `10.0.0.6`"));
    let unheard = with(&["kv.tier_advertise=10.0.0.5:8310"]);
    assert!(
        unheard.starts_with("`kv.tier_advertise` is set, but kv.tier_listen"),
        "{unheard}"
    );
    for wrong in [
        "http://10.0.0.5:8310",
        "10.0.0.5",
        ":8310",
        "a b:8310",
        "10.0.0.5:0",
    ] {
        let advertised = format!("kv.tier_advertise={wrong}");
        let said = with(&["kv.tier_listen=0.0.0.0:8310", &advertised]);
        let start = format!("`kv.tier_advertise` is `{wrong}`");
        assert!(said.starts_with(&start), "{said}");
    }
    let tierless = [&whole[5..], &["kv.nodes=a=b:1"]].concat();
    let tierless = complaint("", &[], &tierless);
    assert!(
        tierless.starts_with("`kv.host_bytes_max` is 0"),
        "{tierless}"
    );
    let nodes = [
        "kv.tier_listen=0.0.0.0:8310",
        "kv.tier_advertise=10.0.0.5:8310",
        "kv.nodes=a=b:1",
    ];
    assert_eq!(
        load("", &[], &[&whole[..], &nodes].concat())
            .unwrap()
            .kv
            .node_name(),
        "10.0.0.5:8310"
    );
}

#[test]
fn secrets_come_from_files_and_are_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let url = file("url", "postgres://u:hunter2@h/d\n");
    let secret = file("secret", "hunter2hunter2hunter2\r\n");
    let text = format!("[store]\nurl_file = \"{url}\"\n[broker]\nurl = \"amqp://u:hunter2@h\"");
    let variable = ("TREADLE_CLUSTER__SECRET_FILE", secret.as_str());
    let config = load(&text, &[variable], &[]).unwrap();
    assert_eq!(config.store.url.reveal(), "postgres://u:hunter2@h/d");
    assert_eq!(config.cluster.secret.reveal(), "hunter2hunter2hunter2");
    let shown = [
        toml::to_string(&config).unwrap(),
        format!("{config:?} {config:#?}"),
    ];
    for shown in shown {
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("postgres://u:[redacted]@h/d"), "{shown}");
    }
    // The value of a secret is in no error, and only secrets have files.
    let wrong = complaint("[cluster]\nsecret = [\"hunter2\"]", &[], &[]);
    assert!(
        wrong.contains("`cluster.secret`") && !wrong.contains("hunter2"),
        "{wrong}"
    );
    let absent = complaint("", &[], &["cluster.secret_file=/nowhere"]);
    assert!(
        absent.starts_with("`cluster.secret_file` names /nowhere"),
        "{absent}"
    );
    let other = complaint("", &[], &["store.path_file=x"]);
    assert!(other.contains("store.path_file"), "{other}");
}
