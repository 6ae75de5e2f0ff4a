//! Services on devices: start, eviction, requests.

use serde_json::{Value, json};
use treadle_actions::ServiceSpec;
use treadle_core::actions::{Load, Outcome};

use crate::server::Server;
use crate::stage::{PROBE, Stage, cause, devices, exited, is_there, shell};

fn spec(name: &str, lifecycle: &Value) -> Value {
    json!({
        "name": name, "lifecycle": lifecycle, "ready_path": "/health", "ready_s_max": 30,
    })
}

fn process(name: &str) -> Value {
    spec(name, &json!({ "process": { "command": [PROBE, "serve"] } }))
}

async fn ask(stage: &mut Stage, service: &str, first: u32, size: u32) -> (Outcome, String) {
    let body = json!({ "service": { "name": service, "path": "/score" } });
    stage.start_with(&body, |order| order.grants = vec![devices(first, size)]);
    stage.end().await
}

/// The pid of the judge on some devices.
async fn pid(stage: &mut Stage, service: &str, first: u32, size: u32) -> String {
    let (outcome, output) = ask(stage, service, first, size).await;
    assert_eq!(outcome, exited(200), "{output}");
    let mut words = output.split(' ');
    let (name, on) = (words.next().unwrap(), words.next().unwrap());
    let wanted: Vec<String> = (first..first + size).map(|d| d.to_string()).collect();
    assert_eq!((name, on), (service, wanted.join(",").as_str()));
    words.next().unwrap().to_owned()
}

#[tokio::test]
async fn two_judges_share_devices_by_eviction() {
    let mut stage = Stage::new().await;
    stage.declare(&process("judge"));
    stage.declare(&process("critic"));
    let judge = pid(&mut stage, "judge", 0, 2).await;
    let critic = pid(&mut stage, "critic", 2, 2).await;
    assert_eq!(pid(&mut stage, "judge", 0, 2).await, judge, "it is there");
    assert!(is_there(&judge) && is_there(&critic));
    // On more devices it is another instance, which replaces everything there.
    let large = pid(&mut stage, "judge", 0, 4).await;
    assert!(!is_there(&judge) && !is_there(&critic) && is_there(&large));
    let critic = pid(&mut stage, "critic", 3, 1).await;
    assert!(!is_there(&large) && is_there(&critic));
    let elsewhere = pid(&mut stage, "judge", 0, 2).await;
    assert!(is_there(&critic) && is_there(&elsewhere));
    // A process with the devices to itself.
    stage.start_with(&shell("true"), |order| order.grants = vec![devices(2, 2)]);
    assert_eq!(stage.end().await.0, exited(0));
    assert!(!is_there(&critic) && is_there(&elsewhere));
    stage.executor.shutdown().await;
    assert!(!is_there(&elsewhere));
}

#[tokio::test]
async fn a_judge_that_died_or_changed_is_restarted() {
    let mut stage = Stage::new().await;
    stage.declare(&process("judge"));
    let first = pid(&mut stage, "judge", 0, 1).await;
    let killed = std::process::Command::new("kill")
        .args(["-9", &first])
        .status();
    assert!(killed.unwrap().success());
    while is_there(&first) {
        tokio::task::yield_now().await;
    }
    let second = loop {
        // Its end may not have been reported yet.
        if let (Outcome::Exited { code: 200 }, output) = ask(&mut stage, "judge", 0, 1).await {
            break output.rsplit_once(' ').unwrap().1.to_owned();
        }
    };
    let mut changed = process("judge");
    changed["env"] = json!({ "WEIGHTS": "2" });
    stage.declare(&changed);
    let third = pid(&mut stage, "judge", 0, 1).await;
    assert!(!is_there(&second) && is_there(&third));
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn a_process_on_the_devices_gets_the_address_of_its_service() {
    let mut stage = Stage::new().await;
    stage.declare(&process("judge"));
    stage.start_with(&shell("echo $TREADLE_SERVICE_URL"), |order| {
        order.grants = vec![devices(0, 1)];
        order.load = Some(Load {
            service: Some("judge".into()),
            evicted: Vec::new(),
        });
    });
    let (outcome, output) = stage.end().await;
    assert_eq!(outcome, exited(0));
    assert!(output.starts_with("http://127.0.0.1:"), "{output}");
    stage.executor.shutdown().await;
}

#[tokio::test]
async fn a_service_that_does_not_start_is_an_infrastructure_failure() {
    let broken = |command: Value| spec("broken", &json!({ "process": { "command": command } }));
    let ends = broken(json!(["sh", "-c", "echo no weights >&2; exit 3"]));
    let mut silent = broken(json!(["sleep", "1000"]));
    silent["ready_s_max"] = json!(1);
    for (service, told) in [
        (ends, "it exited with 3: no weights"),
        (silent, "did not get ready"),
        (broken(json!(["absent"])), "absent: not found"),
    ] {
        let mut stage = Stage::new().await;
        stage.declare(&service);
        let (outcome, _) = ask(&mut stage, "broken", 0, 2).await;
        assert!(cause(&outcome).contains(told), "{outcome:?}");
    }
    let mut stage = Stage::new().await;
    let (outcome, _) = ask(&mut stage, "absent", 0, 2).await;
    assert_eq!(cause(&outcome), "there is no service absent; declare it");
}

#[tokio::test]
async fn services_of_others_are_started_stopped_and_restored() {
    let answers = Server::answering("200 OK", "", "score").await;
    let controls = Server::answering("200 OK", "", "").await;
    let both = [&answers, &controls].map(|server| server.address.to_string());
    let mut stage = Stage::with(|config| {
        config.egress.insert("default".to_owned(), both.to_vec());
    })
    .await;
    for name in ["judge", "critic"] {
        let mut remote = spec(name, &json!({ "control": { "url": controls.url("") } }));
        remote["url"] = json!(answers.url(""));
        stage.declare(&remote);
    }
    for service in ["judge", "critic", "judge"] {
        let ended = ask(&mut stage, service, 0, 2).await;
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
    let body: Value = serde_json::from_str(body).unwrap();
    let text = |field: &str| body[field].as_str().unwrap().to_owned();
    format!("{path} {} {}", text("service"), text("devices"))
}

#[tokio::test]
async fn a_declaration_is_valid_only_for_its_tenant() {
    let answers = Server::answering("200 OK", "", "score").await;
    let mut stage = Stage::new().await;
    let remote = spec("judge", &json!({ "control": { "url": answers.url("") } }));
    let remote = ServiceSpec::parse(remote.to_string().as_bytes()).unwrap();
    assert!(stage.executor.declare("another", remote.clone(), 2));
    let body = json!({ "service": { "name": "judge", "path": "/score" } });
    for (tenant, told) in [
        ("default", "there is no service judge"),
        ("another", "tenant another may not reach any server"),
    ] {
        stage.start_with(&body, |order| order.tenant = tenant.to_owned());
        let (outcome, _) = stage.end().await;
        assert!(cause(&outcome).contains(told), "{tenant}: {outcome:?}");
    }
    assert!(answers.asked().is_empty());
    // The name is free for every tenant, and one's declaration leaves the other's as it was.
    let own = ServiceSpec::parse(process("judge").to_string().as_bytes()).unwrap();
    assert!(stage.executor.declare("default", own.clone(), 2));
    let declared = |tenant| stage.executor.declared(tenant, "judge");
    assert_eq!(declared("default"), Some(own));
    assert_eq!(declared("another"), Some(remote));
}

#[tokio::test]
async fn commands_start_and_stop_a_service() {
    let answers = Server::answering("200 OK", "", "score").await;
    let list = vec![answers.address.to_string()];
    let mut stage = Stage::with(|config| {
        config.egress.insert("default".to_owned(), list);
    })
    .await;
    let command = |what: &str| {
        let script = format!("echo {what} $TREADLE_DEVICES >> log");
        json!(["sh", "-c", script])
    };
    let lifecycle = json!({ "commands": {
        "start": command("start"), "stop": command("stop"), "restore": command("restore"),
    } });
    let mut judge = spec("judge", &lifecycle);
    judge["url"] = json!(answers.url(""));
    stage.declare(&judge);
    stage.declare(&process("critic"));
    for service in ["judge", "critic", "judge"] {
        assert_eq!(ask(&mut stage, service, 0, 2).await.0, exited(200));
    }
    stage.executor.shutdown().await;
    let log = std::fs::read_to_string(stage.path().join("log")).unwrap();
    assert_eq!(log, "start 0,1\nstop 0,1\nrestore 0,1\nstop 0,1\n");
}

#[tokio::test]
async fn a_tenant_with_many_services_leaves_room_for_others() {
    let stage = Stage::new().await;
    let declare = |tenant: &str, number: usize, tenants| {
        let remote = spec(
            &format!("{tenant}-{number}"),
            &json!({ "control": { "url": "http://127.0.0.1:1" } }),
        );
        let remote = ServiceSpec::parse(remote.to_string().as_bytes()).unwrap();
        stage.executor.declare(tenant, remote, tenants)
    };
    // 1,024 services for 40 tenants.
    let own = (0..1_000)
        .take_while(|number| declare("red", *number, 40))
        .count();
    assert_eq!(own, 25);
    assert!(declare("red", 0, 40), "what is there may be declared anew");
    assert!(declare("blue", 0, 40));
    let own = (1..1_000)
        .take_while(|number| declare("blue", *number, 2))
        .count();
    assert_eq!(own, 255, "no tenant has more");
}
