//! No process of an action stays behind as a zombie. A test binary of its own, because it looks at
//! all children of its process.

use std::net::SocketAddr;
use std::sync::Arc;

use treadle_actions::{
    ActionBody, Executor, ExecutorConfig, ExecutorEvent, MemoryOutputs, StartRequest,
    SupervisorCommand,
};
use treadle_model::{ActionId, Span};

const PROBE: &str = env!("CARGO_BIN_EXE_treadle-actions-probe");

fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let lists: String = lists.map(Result::unwrap_or_default).collect();
    lists.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn no_child_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = SupervisorCommand {
        program: PROBE.into(),
        args: vec!["supervise".into()],
    };
    let own = SocketAddr::from(([127, 0, 0, 1], 1));
    let config = ExecutorConfig::new(supervisor, folder.path().to_owned(), own);
    let outputs = Arc::new(MemoryOutputs::default());
    let (executor, mut events) = Executor::new(config, outputs).unwrap();
    let scripts = [
        "true",
        "sleep 1000 & exit 3",
        "kill -9 $$",
        "kill -9 $PPID; sleep 1000",
    ];
    for (action, script) in scripts.iter().cycle().take(40).enumerate() {
        let json = serde_json::json!({ "shell": script }).to_string();
        let request = StartRequest {
            action: ActionId(action as u64),
            attempt: 1,
            grants: Vec::new(),
            load: None,
            body: Arc::new(ActionBody::parse(json.as_bytes()).unwrap()),
            run_max: Span::from_secs(60),
            tenant: "default".to_owned(),
        };
        executor.start(request).unwrap();
    }
    let mut ended = 0;
    while ended < 40 {
        let event = events.recv().await.unwrap();
        ended += usize::from(matches!(event, ExecutorEvent::Ended { .. }));
    }
    assert_eq!(children(), Vec::<String>::new());
}
