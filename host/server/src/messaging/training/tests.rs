//! Tests of commands to training runs, on a store in memory and a broker in the process.

use super::*;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use treadle_auth::Auth;
use treadle_broker::{Deliveries, InProcess, Letter, Names, Queue, Subscription};
use treadle_config::Config;
use treadle_core::{Core, CoreConfig};
use treadle_policy::evaluator::PolicyEvaluator;
use treadle_scheduler::{Clock, DriverOptions, spawn_driver};
use treadle_store::{Location, PayloadRoom, Store};

/// Timeout of all waits, generous for busy machines.
const TIMEOUT: Duration = Duration::from_mins(1);

struct Fixture {
    app: TrainingApp,
    broker: Arc<InProcess>,
    status: Arc<Status>,
    replies: Deliveries,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

async fn app() -> TrainingApp {
    let store = treadle_store::open(&Location::Memory).await;
    let store: Arc<dyn Store> = store.expect("a store");
    let core = Core::new(CoreConfig::default());
    let driver = spawn_driver(DriverOptions {
        clock: Clock::start(core.now(), 1.0),
        core,
        seq: 0,
        restarted: false,
        snapshot_seq: 0,
        replay_time: Duration::ZERO,
        policies: PolicyEvaluator::default(),
        journal: None,
        snapshot_events: u64::MAX,
        forecasts: None,
        transfers: None,
        actions: None,
        notices: None,
    });
    let auth = Auth::follow(&Config::default(), store.clone()).await;
    TrainingApp {
        driver: driver.expect("a thread can be started"),
        auth: auth.expect("a directory"),
        runs_actions: false,
        sandboxes_only: false,
        room: Arc::new(PayloadRoom::new(store.clone(), 1 << 30)),
        store,
        weights: None,
        large: Arc::default(),
        streams: Arc::default(),
        committed: watch::channel(0).1,
        declaring: Arc::default(),
        judges: Arc::default(),
    }
}

impl Fixture {
    async fn new() -> Self {
        let broker = Arc::new(InProcess::new(Names::default()));
        let none = Subscription::new("replies", ["none"]);
        let replies = broker.subscribe(&none).await.expect("a queue");
        let status = Arc::new(Status::new(broker.health(), 1_000));
        let (app, stop) = (app().await, watch::Sender::new(false));
        let consumer = Consumer {
            app: app.clone(),
            deliveries: broker.consume(Queue::Training, PREFETCH),
            status: status.clone(),
            stop: stop.subscribe(),
        };
        let task = tokio::spawn(run(consumer, broker.clone()));
        Self {
            app,
            broker,
            status,
            replies,
            stop,
            task,
        }
    }

    /// Sends a command about the job `j`.
    async fn send(&self, id: &str, command: &str, mut fields: Value, reply_to: Option<&str>) {
        fields["command"] = command.into();
        fields["job"] = "j".into();
        let letter = Letter {
            id: id.to_owned(),
            reply_to: reply_to.map(str::to_owned),
            correlation_id: Some(format!("of {id}")),
            body: fields.to_string().into_bytes(),
            ..Letter::default()
        };
        let sent = self.broker.send(Queue::Training, &letter).await;
        sent.expect("it is sent");
    }

    /// The next reply, which has to be to this command.
    async fn reply(&mut self, id: &str) -> Value {
        let delivery = tokio::time::timeout(TIMEOUT, self.replies.next());
        let delivery = delivery.await.expect("in time").expect("a reply");
        assert_eq!(delivery.correlation_id, Some(format!("of {id}")));
        let body = serde_json::from_slice(&delivery.body).expect("JSON");
        delivery.ack().await.expect("it is settled");
        body
    }

    async fn ask(&mut self, id: &str, command: &str, fields: Value) -> Value {
        self.send(id, command, fields, Some("replies")).await;
        self.reply(id).await
    }

    async fn end(self) {
        self.stop.send_replace(true);
        self.task.await.expect("it ends");
    }

    /// Declares the job, with a group of one member that has ended.
    async fn with_member() -> Self {
        let mut fixture = Self::new().await;
        let settings = json!({"group_size": 1, "batch_groups": 1, "lag_max": 0});
        fixture.send("1", "declare_job", settings, None).await;
        let groups = json!({"groups": [{"group": "a", "content": {"q": 1}}, {"group": "b"}]});
        let submitted = fixture.ask("2", "submit_groups", groups).await;
        assert_eq!(submitted, json!({"new": 2, "known": 0}));
        let begun = fixture
            .ask("3", "begin_member", json!({"program": "p"}))
            .await;
        assert_eq!(begun["content"], json!({"q": 1}), "{begun}");
        let end = json!({"program": "p", "end": "completed"});
        let ended = fixture.ask("4", "end_member", end).await;
        assert_eq!(ended["group"], "a", "{ended}");
        fixture
    }
}

#[tokio::test]
async fn a_command_that_comes_again_changes_nothing_and_has_the_same_reply() {
    let mut fixture = Fixture::with_member().await;
    let rewarded = |reward: f64| json!({"program": "p", "reward": reward});
    let first = fixture.ask("r1", "reward_member", rewarded(0.5)).await;
    fixture.ask("r2", "reward_member", rewarded(1.0)).await;
    let again = fixture.ask("r1", "reward_member", rewarded(0.5)).await;
    assert_eq!(first, again);
    let batch = fixture
        .ask("b", "get_batch", json!({"batch": 1, "wait_s": 30}))
        .await;
    let member = &batch["groups"][0]["members"][0];
    assert_eq!(member["reward"], 1.0, "the last one counts: {batch}");
    let text = fixture.status.render();
    let repeated = "treadle_broker_commands_total{outcome=\"repeated\"} 1\n";
    assert!(text.contains(repeated), "{text}");

    // One that came before and has no answer yet is carried out.
    let row = CommandRow {
        command: "t".into(),
        kind: "report_trained".into(),
        at_us: 1,
        outcome: String::new(),
    };
    let noted = fixture.app.store.note_command(&row).await;
    assert!(noted.expect("it is noted"));
    fixture
        .ask("t", "report_trained", json!({"batch": 1}))
        .await;
    let batch = fixture.ask("b", "get_batch", json!({"batch": 1})).await;
    assert_eq!(batch["trained"], true, "{batch}");
    let taken = fixture
        .ask("t", "report_version", json!({"version": 1}))
        .await;
    assert_eq!(taken["error"]["code"], "idempotency_key_taken", "{taken}");

    let back = json!({"batch": 0, "lineage": 0});
    let resumed = fixture.ask("x", "resume_job", back.clone()).await;
    assert_eq!(resumed["lineage"], 1, "{resumed}");
    assert_eq!(fixture.ask("x", "resume_job", back.clone()).await, resumed);
    assert_eq!(fixture.ask("y", "resume_job", back).await, resumed);
    fixture.end().await;
}

#[tokio::test]
async fn a_command_that_waits_lets_others_pass() {
    let mut fixture = Fixture::with_member().await;
    // One group has begun, which is the limit.
    let waits = fixture
        .ask("5", "begin_member", json!({"program": "q"}))
        .await;
    assert_eq!(waits["program"], Value::Null);
    assert_eq!(waits["waits"][0]["waits_for"], "trainer", "{waits}");
    let wanted = json!({"program": "q", "wait_s": 60});
    fixture
        .send("6", "begin_member", wanted, Some("replies"))
        .await;
    let reward = json!({"program": "p", "reward": 1});
    fixture.ask("7", "reward_member", reward).await;
    let batch = fixture
        .ask("8", "get_batch", json!({"batch": 1, "wait_s": 30}))
        .await;
    let payload = &batch["payload"];
    assert_eq!(payload["path"], "/api/v1/jobs/j/batches/1/payload");
    let digest = payload["digest"].as_str().expect("a digest");
    assert_eq!(digest.len(), "sha256:".len() + 64, "{digest}");
    fixture
        .send("9", "report_trained", json!({"batch": 1}), None)
        .await;
    fixture
        .send("10", "report_version", json!({"version": 1}), None)
        .await;
    let begun = fixture.reply("6").await;
    assert_eq!(
        (&begun["group"], &begun["version"]),
        (&json!("b"), &json!(1))
    );
    fixture.end().await;
}

#[tokio::test]
async fn what_is_refused_has_the_code_of_http_or_becomes_a_dead_letter() {
    let mut fixture = Fixture::new().await;
    for (id, command, fields, code, param) in [
        ("1", "show_job", "{}", "job_unknown", ""),
        ("", "resume_job", "{}", "invalid_field", ""),
        (
            "2",
            "resume_job",
            r#"{"batch": 0}"#,
            "missing_field",
            "lineage",
        ),
        (
            "3",
            "declare_job",
            r#"{"group_size": 0}"#,
            "invalid_field",
            "",
        ),
        (
            "4",
            "declare_job",
            r#"{"tenant": "x"}"#,
            "invalid_field",
            "",
        ),
        ("5", "end_member", "{}", "missing_field", "program"),
        ("6", "show_job", r#"{"more": 1}"#, "invalid_field", "more"),
        (
            "7",
            "get_batch",
            r#"{"batch": "x"}"#,
            "invalid_field",
            "batch",
        ),
        ("8", "dance", "{}", "invalid_field", "command"),
    ] {
        let fields = serde_json::from_str(fields).expect("JSON");
        let refused = fixture.ask(id, command, fields).await;
        let error = &refused["error"];
        assert_eq!(error["code"], code, "{refused}");
        assert_eq!(
            error["param"].as_str().unwrap_or_default(),
            param,
            "{refused}"
        );
    }
    // A refusal is not kept: the same command may be sent again.
    let declared = fixture.ask("3", "declare_job", json!({})).await;
    assert_eq!(declared["settings"]["group_size"], 8, "{declared}");
    let program = json!({"program": "p"});
    fixture.send("9", "reward_member", program, None).await;
    let mut dead = fixture.broker.consume(Queue::DeadLetters, 1);
    let dead = tokio::time::timeout(TIMEOUT, dead.next()).await;
    let dead = dead.expect("in time").expect("a dead letter");
    let reason = dead.reason().unwrap_or_default().to_owned();
    assert!(reason.contains("is no member of job `j`"), "{reason}");
    dead.ack().await.expect("it is settled");
    fixture.end().await;
}

#[test]
fn an_answer_that_no_message_can_hold_is_an_error_with_a_remedy() {
    assert_eq!(sendable(vec![b'x'; 9]), vec![b'x'; 9]);
    let error = sendable(vec![b'x'; BODY_BYTES_MAX + 1]);
    let error: Value = serde_json::from_slice(&error).expect("JSON");
    assert_eq!(error["error"]["code"], "answer_too_large");
    assert!(reason_in(error.to_string().as_bytes()).contains("in slices"));
}
