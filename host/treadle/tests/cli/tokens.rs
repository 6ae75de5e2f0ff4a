//! Which token is sent, and the message without one.

use std::fs;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use treadle_server::start::Daemon;

use crate::identity::Home;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_found_from_the_folders_within_that_of_its_daemon() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let url = daemon.url();
    let inner = home.folder.path().join("my-priority/src");
    fs::create_dir_all(&inner).expect("a folder");
    let ended = home
        .run_within("my-priority/src", &url, "access tokens")
        .await;
    assert!(ended.success, "{}", ended.stderr);
    // Another daemon's token is nearer.
    fs::create_dir_all(inner.join(".treadle")).expect("a folder");
    fs::write(inner.join(".treadle/admin-token"), "tr_other").expect("a file");
    let ended = home
        .run_within("my-priority/src", &url, "access tokens")
        .await;
    assert!(ended.success, "{}", ended.stderr);
    assert!(ended.stdout.contains("first admin"), "{}", ended.stdout);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_can_be_named_beside_a_token_that_lies_here() {
    let home = Home::new();
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    for (line, told) in [
        ("access tenants create acme", "acme"),
        (
            "access tokens create ci --scope job --tenant acme",
            "in tenant acme",
        ),
        ("access tokens --tenant acme", "ci"),
    ] {
        let ended = home.run(&daemon.url(), line).await;
        assert!(ended.success, "{line}: {}", ended.stderr);
        assert!(ended.stdout.contains(told), "{line}: {}", ended.stdout);
    }
    daemon.stop().await;
}

/// Responds to a request after reading its head, and closes the connection.
async fn hasty() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 1_024];
            let _ = stream.read(&mut head).await;
            let body = r#"{"error": {"code": "token_missing", "message": "a token, please"}}"#;
            let answer = format!(
                "HTTP/1.1 401 Unauthorized\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_upload_without_a_token_is_refused_for_want_of_one() {
    let (home, stranger) = (Home::new(), Home::new());
    let daemon = Daemon::start(&home.config).await.expect("it starts");
    let file = stranger.folder.path().join("large.wasm");
    fs::write(file, vec![b'x'; 24 << 20]).expect("a file");
    // A daemon reads the body of a refused request; other servers may not.
    for url in [daemon.url(), hasty().await] {
        let ended = stranger.run(&url, "plugin push large.wasm").await;
        assert!(!ended.success, "{}", ended.stdout);
        assert!(ended.stderr.contains("[token_missing]"), "{}", ended.stderr);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_server_that_ends_a_connection_is_not_told_as_one_that_is_not_there() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    let ended = Home::new().run(&url, "workers").await;
    assert!(!ended.success, "{}", ended.stdout);
    assert!(
        ended.stderr.contains("closed the connection"),
        "{}",
        ended.stderr
    );
}
