//! TLS, alarms and timeouts, on a separate server.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use treadle_broker::rabbitmq::{Grade, inspect};
use treadle_broker::{Broker, BrokerError, Health, Queue, RabbitMq, Settings};

use crate::fixture::{
    TIMEOUT, event, healthy, letter, next, prefix, publish_surely, server_url, settings,
};
use crate::server::Server;

/// Makes an authority and a certificate for `localhost`, and configures TLS with them.
fn tls(folder: &Path, port: u16) -> String {
    let openssl = |arguments: &str| {
        let status = Command::new("openssl")
            .current_dir(folder)
            .args(arguments.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("openssl is installed");
        assert!(status.success(), "openssl {arguments}");
    };
    let names = "subjectAltName=DNS:localhost,IP:127.0.0.1";
    std::fs::write(folder.join("names"), names).unwrap();
    openssl(
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test-authority -keyout ca.key -out \
         ca.pem",
    );
    openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names \
         -out server.pem",
    );
    let folder = folder.display();
    format!(
        "listeners.ssl.1 = 127.0.0.1:{port}\nssl_options.cacertfile = {folder}/ca.pem\n\
         ssl_options.certfile = {folder}/server.pem\nssl_options.keyfile = {folder}/server.key\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_alarms_and_timeouts() {
    if server_url().is_none() {
        return;
    }
    let server = tokio::task::spawn_blocking(|| Server::start(tls))
        .await
        .unwrap();
    by_tls(&server).await;
    alarms(&server).await;
    timeouts(&server).await;
    tokio::task::spawn_blocking(move || drop(server))
        .await
        .unwrap();
}

async fn by_tls(server: &Server) {
    let prefix = prefix("tls");
    let port = server.tls_port();
    let authority = server.folder().join("ca.pem");
    let url = format!(
        "amqps://guest:guest@localhost:{port}/%2F?cacertfile={}",
        authority.display()
    );
    let broker = RabbitMq::start(settings(&url, &prefix));
    broker.publish(&[event(1, "math", "p-1")]).await.unwrap();
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();

    let distrusted = format!("amqps://guest:guest@localhost:{port}/%2F");
    let broker = RabbitMq::start(Settings {
        timeout: Duration::from_secs(2),
        ..settings(&distrusted, &prefix)
    });
    let is_told = |cause: &BrokerError| matches!(cause, BrokerError::Tls { .. });
    healthy(&broker, |health| {
        health.cause().as_ref().is_some_and(is_told)
    })
    .await;
    let error = broker
        .publish(&[event(1, "math", "p-1")])
        .await
        .unwrap_err();
    assert!(matches!(error, BrokerError::Tls { .. }), "{error}");
    broker.close().await.unwrap();
}

async fn alarms(server: &Server) {
    let prefix = prefix("alarm");
    let settings = settings(&server.url(), &prefix);
    let broker = RabbitMq::start(Settings {
        // Timeout for a blocked broker.
        timeout: Duration::from_secs(3),
        ..settings.clone()
    });
    healthy(&broker, Health::is_connected).await;
    server.control(&["set_vm_memory_high_watermark", "0"]);
    // The server checks its memory only from time to time.
    let began = std::time::Instant::now();
    let alarm = loop {
        let alarm = inspect(&settings).await.pop().unwrap();
        if alarm.grade == Grade::Fail || began.elapsed() > TIMEOUT {
            break alarm;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(alarm.grade, Grade::Fail, "{alarm:?}");
    assert!(
        alarm.remedy.contains("vm_memory_high_watermark"),
        "{alarm:?}"
    );

    // The first message is in transit when the alarm is reported; the second is not sent.
    for _ in 0..2 {
        let error = broker
            .publish(&[event(1, "math", "p-1")])
            .await
            .unwrap_err();
        assert!(matches!(error, BrokerError::Blocked { .. }), "{error}");
    }
    let health = healthy(&broker, |health| !health.is_connected()).await;
    assert_eq!(health.word(), "blocked");
    server.control(&["set_vm_memory_high_watermark", "0.6"]);
    healthy(&broker, Health::is_connected).await;
    publish_surely(&broker, &[event(1, "math", "p-1")]).await;
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}

/// A delivery that exceeds the broker's timeout is delivered again, and its stream continues.
async fn timeouts(server: &Server) {
    let prefix = prefix("late");
    server.control(&[
        "eval",
        "ok = application:set_env(rabbit, consumer_timeout, 2000), \
         ok = application:set_env(rabbit, channel_tick_interval, 200).",
    ]);
    let broker = RabbitMq::start(settings(&server.url(), &prefix));
    broker.send(Queue::Commands, &letter("c-1")).await.unwrap();
    let mut commands = broker.consume(Queue::Commands, 1);
    let held = next(&mut commands).await;
    let again = next(&mut commands).await;
    assert!(again.redelivered);
    assert_eq!(held.ack().await, Err(BrokerError::DeliveryLost));
    assert_eq!(again.id.as_deref(), Some("c-1"));
    again.ack().await.unwrap();
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}
