//! Services on devices: who comes, who goes, and who asks them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use treadle_actions::{Lifecycle, ServiceSpec};
use treadle_core::actions::{Load, Outcome};
use treadle_model::ActionId;

use crate::server::Server;
use crate::stage::{PROBE, Stage, cause, devices, exited, is_there, request};

fn spec(name: &str, lifecycle: Lifecycle) -> ServiceSpec {
    // A port that nobody else has: the system gives each out once in a while only.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    ServiceSpec {
        name: name.to_owned(),
        lifecycle,
        url: "http://127.0.0.1:{port}".to_owned(),
        port_first: free.local_addr().unwrap().port(),
        ready_path: "/health".to_owned(),
        ready_max: Duration::from_secs(30),
        env: BTreeMap::new(),
    }
}

fn process(name: &str) -> ServiceSpec {
    let command = vec![PROBE.to_owned(), "serve".to_owned()];
    spec(name, Lifecycle::Process { command })
}

async fn ask(stage: &mut Stage, action: u64, service: &str) -> (Outcome, String) {
    let body = json!({ "service": service, "http": { "url": "/score" } });
    let mut request = request(ActionId(action), &body);
    request.grants = vec![devices(0, 2)];
    request.load = Some(Load {
        service: service.into(),
        evicted: Vec::new(),
    });
    stage.executor.start(request).unwrap();
    stage.end().await
}

#[tokio::test]
async fn one_process_serves_until_another_takes_its_devices() {
    let services = vec![process("judge"), process("critic")];
    let mut stage = Stage::with(|config| config.services = services);
    let (outcome, first) = ask(&mut stage, 1, "judge").await;
    assert_eq!(outcome, exited(200), "{first}");
    let judge = first.strip_prefix("judge 0,1 ").unwrap().to_owned();
    assert!(is_there(&judge));
    assert_eq!(
        ask(&mut stage, 2, "judge").await.1,
        first,
        "it is there already"
    );
    let (_, second) = ask(&mut stage, 3, "critic").await;
    let critic = second.strip_prefix("critic 0,1 ").unwrap().to_owned();
    assert!(!is_there(&judge) && is_there(&critic));
    stage.executor.shutdown().await;
    assert!(!is_there(&critic));
}

#[tokio::test]
async fn a_process_on_the_devices_is_told_where_its_service_is() {
    let judge = process("judge");
    let url = format!("http://127.0.0.1:{}", judge.port_first);
    let mut stage = Stage::with(|config| config.services = vec![judge]);
    let mut request = request(
        ActionId(1),
        &json!({ "shell": "echo $TREADLE_SERVICE_URL" }),
    );
    request.grants = vec![devices(0, 1)];
    request.load = Some(Load {
        service: "judge".into(),
        evicted: Vec::new(),
    });
    stage.executor.start(request).unwrap();
    assert_eq!(stage.end().await, (exited(0), format!("{url}\n")));
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn a_service_that_does_not_come_is_no_fault_of_the_action() {
    let broken = |command: &[&str]| {
        let command = command.iter().map(ToString::to_string).collect();
        spec("broken", Lifecycle::Process { command })
    };
    let ends = broken(&["sh", "-c", "echo no weights >&2; exit 3"]);
    let mut silent = broken(&["sleep", "1000"]);
    silent.ready_max = Duration::from_millis(200);
    for (service, told) in [
        (ends, "it exited with 3: no weights"),
        (silent, "did not get ready"),
    ] {
        let mut stage = Stage::with(|config| config.services = vec![service]);
        let (outcome, _) = ask(&mut stage, 1, "broken").await;
        assert!(cause(&outcome).contains(told), "{outcome:?}");
    }
    let mut stage = Stage::new();
    let (outcome, _) = ask(&mut stage, 1, "absent").await;
    assert_eq!(cause(&outcome), "there is no service absent; declare it");
}

#[tokio::test]
async fn services_of_others_are_started_stopped_and_restored() {
    let answers = Server::answering("200 OK", "", "score").await;
    let controls = Server::answering("200 OK", "", "").await;
    let url = controls.url("");
    let of_control = |name: &str| ServiceSpec {
        url: answers.url(""),
        ..spec(name, Lifecycle::Control { url: url.clone() })
    };
    let services = vec![of_control("judge"), of_control("critic")];
    let mut stage = Stage::with(|config| config.services = services);
    for (action, service) in [(1, "judge"), (2, "critic"), (3, "judge")] {
        let ended = ask(&mut stage, action, service).await;
        assert_eq!(ended, (exited(200), "score".to_owned()));
    }
    stage.executor.shutdown().await;
    let asked = controls.asked();
    let told: Vec<String> = asked.iter().map(|request| summary(request)).collect();
    let wanted = [
        "/start judge 0,1",
        "/stop judge 0,1",
        "/start critic 0,1",
        "/stop critic 0,1",
        "/restore judge 0,1",
        "/stop judge 0,1",
    ];
    assert_eq!(told, wanted);
}

fn summary(request: &str) -> String {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let text = |field: &str| body[field].as_str().unwrap().to_owned();
    format!("{path} {} {}", text("service"), text("devices"))
}

#[tokio::test]
async fn commands_bring_a_service_and_take_it_away() {
    let answers = Server::answering("200 OK", "", "score").await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let command = |what: &str| {
        let script = format!("echo {what} $TREADLE_DEVICES >> {}", log.display());
        vec!["sh".to_owned(), "-c".to_owned(), script]
    };
    let lifecycle = Lifecycle::Commands {
        start: command("start"),
        stop: command("stop"),
        restore: Some(command("restore")),
    };
    let judge = ServiceSpec {
        url: answers.url(""),
        ..spec("judge", lifecycle)
    };
    let mut stage = Stage::with(|config| config.services = vec![judge, process("critic")]);
    for (action, service) in [(1, "judge"), (2, "critic"), (3, "judge")] {
        assert_eq!(ask(&mut stage, action, service).await.0, exited(200));
    }
    stage.executor.shutdown().await;
    let log = std::fs::read_to_string(log).unwrap();
    assert_eq!(log, "start 0,1\nstop 0,1\nrestore 0,1\nstop 0,1\n");
}
