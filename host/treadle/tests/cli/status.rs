//! `treadle status`: each program is counted once.

use crate::cluster::{Cluster, step, until};

/// A count in the text of `treadle status`.
fn count(text: &str, name: &str) -> u64 {
    let mut lines = text.lines().map(str::trim);
    let count = lines.find_map(|line| line.strip_prefix(name));
    let count = count.unwrap_or_else(|| panic!("no {name}: {text}"));
    let parsed = count.trim().parse::<u64>();
    parsed.unwrap_or_else(|error| panic!("{name}, {error}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_program_is_counted_once() {
    let cluster = Cluster::start("memory").await;
    let url = cluster.daemon.url();
    for program in ["idle", "waits"] {
        step(&url, program).await;
    }
    // Programs of drained engines are paused, and new ones are not placed.
    for worker in 0..2 {
        cluster
            .run_printed(&format!("workers drain {worker}"))
            .await;
    }
    let mut asking = tokio::task::JoinSet::new();
    for program in ["waits", "new"] {
        let url = url.clone();
        asking.spawn(async move { step(&url, program).await });
    }
    let shown = until(|| async {
        let shown = cluster.run_printed("status").await;
        (count(&shown, "waiting steps") == 2).then_some(shown)
    })
    .await;
    let names = ["programs", "reasoning", "acting", "paused"];
    assert_eq!(
        names.map(|name| count(&shown, name)),
        [3, 1, 0, 2],
        "{shown}"
    );
    cluster.run_printed("workers activate 0").await;
    asking.join_all().await;
    cluster.stop().await;
}
