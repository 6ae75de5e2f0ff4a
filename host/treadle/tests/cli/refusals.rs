//! Input is interpreted as intended, or refused with a correction.

use crate::cluster::{Served, TIMEOUT, binary, failure};

/// Exit code and output of a command in a folder.
async fn ended(folder: &std::path::Path, line: &str) -> (Option<i32>, String) {
    let mut command = binary("http://127.0.0.1:1", line);
    let output = tokio::time::timeout(TIMEOUT, command.current_dir(folder).output()).await;
    let output = output.expect("it ends").expect("it starts");
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.code(), format!("{out}{err}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_may_have_a_bare_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let (code, text) = ended(folder, "store migrate --set store.path=x.db").await;
    assert_eq!(code, Some(0), "{text}");
    let line = "serve --listen 127.0.0.1:0 --set store.path=x.db";
    let mut served = Served::start(line, folder);
    let line = served.line().await;
    let url = line.strip_prefix("treadle listens on ").expect("its line");
    let (url, _) = url.split_once(',').expect("its engines");
    // The token is beside the store, in this folder.
    let (code, text) = ended(folder, &format!("access tokens --url {url}")).await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("[token_missing]"), "{text}");
    let mut command = binary(url, "access tokens");
    let command = command
        .current_dir(folder)
        .env("TREADLE_STORE__PATH", "x.db");
    let output = command.output().await.expect("it starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(served.stop("-TERM").await, Some(0));
    let (code, text) = ended(folder, "events replay --store x.db").await;
    assert_eq!(code, Some(0), "{text}");
    let (code, text) = ended(folder, "what-if compare --store x.db --policies sticky").await;
    // The store is read, but has nothing to replay.
    assert!(code == Some(1) && !text.contains("folder"), "{text}");
}

#[tokio::test]
async fn an_address_without_a_scheme_is_shown_with_one() {
    let nobody = "http://127.0.0.1:1";
    for (line, key) in [
        ("serve --engine gpu-1:8000", "engines.endpoints"),
        (
            "serve --set engines.endpoints=http://a:1,gpu-1:8000",
            "engines.endpoints",
        ),
        (
            "serve --set cluster.role=all --set cluster.secret=0123456789abcdef \
             --set cluster.advertise=gpu-1:8000",
            "cluster.advertise",
        ),
        ("serve --set traces.url=gpu-1:8000", "traces.url"),
        (
            "node-agent --daemon gpu-1:8000 --set cluster.secret=0123456789abcdef",
            "nodes.daemons",
        ),
        ("status --url gpu-1:8000", "--url"),
    ] {
        let (code, text) = failure(nobody, line).await;
        assert!(matches!(code, Some(1 | 2)), "{line}: {text}");
        for part in [key, "gpu-1:8000", "http://gpu-1:8000"] {
            assert!(text.contains(part), "{line}: {text}");
        }
    }
    // Passwords are not shown, wherever they are.
    for typed in ["u:hunter2@gpu-1:8000", "http://u:hunter2@gpu-1:8000"] {
        let (code, text) = failure(nobody, &format!("serve --engine {typed}")).await;
        assert_eq!(code, Some(2), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
