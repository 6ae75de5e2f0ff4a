//! The comparison in small, with a router of a dozen lines.

use super::*;
use clap::Parser;
use serde_json::json;
use treadle_demo::engines;
use treadle_engine_sim::{EngineSimHandle, EngineSimOptions};

#[derive(Parser)]
struct CommandLine {
    #[command(flatten)]
    args: PeersArgs,
}

/// Passes requests to the engines in turn, and refuses those that name no program.
const ROUTER: &str = r#"
import http.server, itertools, json, sys, urllib.request
engines = itertools.cycle(sys.argv[2:])

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(200, b"{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/over":
            return self.answer(200, b"{}")
        program = json.loads(body).get("agent", {}).get("program")
        if not program or program != self.headers["x-program"]:
            return self.answer(400, b"no program")
        to = urllib.request.Request(next(engines) + self.path, body, {"Content-Type": "application/json"})
        self.answer(200, urllib.request.urlopen(to).read())

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

fn router(name: &str, program: &str) -> serde_json::Value {
    json!({
        "name": name, "version": "1",
        "command": [program, "-c", ROUTER, "{port}", "{engines}"],
        "ready": "/health", "header": "X-Program", "parent_header": null,
        "body_field": "agent.program", "parent_field": "agent.parent", "waits_field": null,
        "last_field": ["agent.more", false], "release": "/over",
    })
}

fn args(line: &str) -> PeersArgs {
    CommandLine::try_parse_from(line.split(' ')).unwrap().args
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_of_others_is_measured_and_one_that_does_not_start_is_noted() {
    let list = tempfile::NamedTempFile::new().unwrap();
    let routers = json!([
        router("small", "python3"),
        router("broken", "/nowhere/at/all")
    ]);
    std::fs::write(list.path(), routers.to_string()).unwrap();
    let line = format!(
        "x --peers {} --systems small,broken --kv 0.5 --host 1 --seeds 1 --live 6 --minutes 1 \
         --warmup-minutes 0.2 --time-scale 60 --first hi --template-tokens 8",
        list.path().display()
    );
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let comparison = args(&line).compare().await.unwrap();
    let json = comparison.report().to_json();
    let value = |name: &str| json["figures"][format!("{name}.kv0.5.host1")]["value"].as_f64();
    assert!(value("steps_per_min.small") > Some(5.0), "{json}");
    assert_eq!(value("failures.small"), Some(0.0), "{json}");
    assert!(value("hit_rate.small") > Some(0.0), "{json}");
    assert!(value("cpu_s_per_1000.small") > Some(0.0), "{json}");
    assert_eq!(value("vs_best.small"), Some(1.0));
    assert_eq!(value("vs_sticky.small"), None);
    assert_eq!(value("steps_per_min.broken"), None);
    let outcome = &json["details"]["outcomes"][0];
    assert!(outcome["first_refused"].is_null(), "{outcome}");
    let text = comparison.text();
    assert!(
        text.contains("SIMULATED") && text.contains("small"),
        "{text}"
    );
    assert!(text.contains("broken is missing in 1 runs"), "{text}");
}

#[tokio::test]
async fn a_list_that_is_wrong_is_refused() {
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), "[{}]").unwrap();
    let line = format!("x --peers {}", list.path().display());
    let error = args(&line).compare().await.err().unwrap().to_string();
    assert!(
        error.contains("entry 0") && error.contains("scripts/peers.sh"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn engines_that_run_already_get_agents_of_their_size() {
    let options = EngineSimOptions {
        time_scale: 60.0,
        template_tokens: 0,
        ..EngineSimOptions::default()
    };
    let engines = engines::start(2, &options).await.unwrap();
    let urls: Vec<String> = engines.iter().map(EngineSimHandle::url).collect();
    let list = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(list.path(), json!([router("small", "python3")]).to_string()).unwrap();
    let line = format!(
        "x --peers {} --systems small --kv 0.5 --host 0,1 --seeds 1 --live 6 --minutes 1 \
         --warmup-minutes 0.2 --time-scale 60 --engines {} --engine-tokens 9000 \
         --engine-context 4000 --workload sessions",
        list.path().display(),
        urls.join(",")
    );
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    let comparison = args(&line).compare().await.unwrap();
    let json = comparison.report().to_json();
    let settings = &json["settings"];
    assert_eq!(settings["engines_simulated"], false);
    // The simulated engines' own tokenizer is the agents'.
    let ratio = settings["tokens_per_planned"].as_f64().unwrap();
    assert!((ratio - 1.0).abs() < 0.02, "{settings}");
    let outcomes = json["details"]["outcomes"].as_array().unwrap();
    assert_eq!(outcomes.len(), 1, "the host memory is theirs: {json}");
    assert!(outcomes[0]["steps_per_min"].as_f64() > Some(5.0), "{json}");
    assert_eq!(outcomes[0]["failures"], 0, "{json}");
    // Six agents' peak is twice what two caches of 9,000 tokens hold.
    for engine in engines {
        let counters = engine.snapshot().await.counters;
        assert!(counters.prefix_queries_tokens > 0);
        engine.shutdown().await;
    }
}

#[test]
fn engines_that_run_already_need_their_size() {
    for line in [
        "x --engines http://a:1",
        "x --engine-tokens 500",
        "x --engines http://a:1 --engine-tokens 500 --template-tokens 9",
        "x --engines http://a:1 --engine-tokens 500 --engine-context 1",
        "x --trace t --workload coding",
    ] {
        assert!(
            CommandLine::try_parse_from(line.split(' ')).is_err(),
            "{line}"
        );
    }
}
