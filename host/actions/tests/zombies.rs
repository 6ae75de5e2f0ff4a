//! Actions leave no zombies behind. A separate test binary, because it checks all children of its
//! process.

use treadle_core::actions::ActionEvent;

#[path = "executor/stage.rs"]
#[expect(dead_code, reason = "the other tests use more of it")]
mod stage;

use stage::{Stage, shell};

fn children() -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = threads.map(|thread| std::fs::read_to_string(thread.path().join("children")));
    let lists: String = lists.map(Result::unwrap_or_default).collect();
    lists.split_whitespace().map(str::to_owned).collect()
}

#[tokio::test]
async fn no_child_is_left() {
    let mut stage = Stage::new().await;
    let scripts = [
        "true",
        "sleep 1000 & exit 3",
        "kill -9 $$",
        "kill -9 $PPID; sleep 1000",
    ];
    for script in scripts.iter().cycle().take(40) {
        stage.start(&shell(script));
    }
    let mut ended = 0;
    while ended < 40 {
        let report = stage.report().await;
        ended += usize::from(matches!(report, ActionEvent::ActionEnded { .. }));
    }
    stage.executor.shutdown().await;
    assert_eq!(children(), Vec::<String>::new());
}
