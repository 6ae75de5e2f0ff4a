//! Tests of RabbitMQ only: refusals, differing declarations, and inspection.

use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicPublishOptions};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Consumer};
use treadle_broker::rabbitmq::{BarePublisher, Check, Grade, inspect};
use treadle_broker::{Address, Broker, BrokerError, Queue, RabbitMq, Settings, Subscription};

use crate::fixture::{event, healthy, letter, next, next_ids, prefix, reply, server_url, settings};

/// The error of an unusable broker, as reported by an operation.
async fn refusal(settings: Settings, is_it: impl Fn(&BrokerError) -> bool) -> BrokerError {
    let broker = RabbitMq::start(Settings {
        timeout: Duration::from_secs(3),
        ..settings
    });
    healthy(&broker, |health| {
        health.cause().as_ref().is_some_and(&is_it)
    })
    .await;
    let error = broker
        .publish(&[event(1, "math", "p-1")])
        .await
        .unwrap_err();
    assert_eq!(broker.health().borrow().cause(), Some(error.clone()));
    let text = format!("{broker:?} {error}");
    assert!(!text.contains("s3cret"), "{text}");
    broker.close().await.unwrap();
    error
}

/// A URL with another user, password or virtual host.
fn changed(url: &str, user: &str, vhost: &str) -> String {
    let place = url.split_once('@').map_or(url, |(_, place)| place);
    let place = place.split_once('/').map_or(place, |(place, _)| place);
    format!("amqp://{user}@{place}/{vhost}")
}

#[tokio::test]
async fn refusals_name_their_remedy() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("refuse");
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let own_user = url.split_once("://").unwrap().1.split_once('@').unwrap().0;
    for (url, code, words) in [
        (
            format!("amqp://guest:s3cret@127.0.0.1:{closed}"),
            "broker-unreachable",
            "start RabbitMQ there",
        ),
        (
            changed(&url, "nobody:s3cret", "%2F"),
            "broker-credentials",
            "rabbitmqctl add_user",
        ),
        (
            changed(&url, own_user, "no-such-vhost"),
            "broker-virtual-host",
            "rabbitmqctl add_vhost",
        ),
        (
            changed(&url, own_user, "%2F").replace("amqp:", "amqps:"),
            "broker-tls",
            "cacertfile",
        ),
    ] {
        let error = refusal(settings(&url, &prefix), |error| error.code() == code).await;
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        let checks = inspect(&settings(&url, &prefix)).await;
        assert_eq!(checks.len(), 1, "{checks:?}");
        assert_eq!(checks[0].grade, Grade::Fail);
        assert!(checks[0].remedy.contains(words), "{checks:?}");
    }
}

#[tokio::test]
async fn another_server_at_the_port_is_recognised() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = b"HTTP/1.1 400 Bad Request\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer).await;
        }
    });
    let url = format!("amqp://guest:s3cret@127.0.0.1:{port}");
    let is_told = |error: &BrokerError| {
        matches!(
            error,
            BrokerError::Protocol { .. } | BrokerError::Unreachable { .. }
        )
    };
    let error = refusal(settings(&url, "t-nobody"), is_told).await;
    server.abort();
    assert!(is_told(&error), "{error}");
    assert!(error.to_string().contains("RabbitMQ"), "{error}");
}

#[tokio::test]
async fn a_queue_with_other_properties_is_named() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("differ");
    // The same name is a queue for events here and one for commands there.
    let other = RabbitMq::start(settings(&url, &format!("{prefix}-other")));
    let queue = format!("{prefix}.commands");
    drop(
        other
            .subscribe(&Subscription::new(&queue, ["#"]))
            .await
            .unwrap(),
    );

    let is_mismatch = |error: &BrokerError| matches!(error, BrokerError::Mismatch { .. });
    let error = refusal(settings(&url, &prefix), is_mismatch).await;
    let BrokerError::Mismatch { name, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*name, queue);
    assert!(error.to_string().contains("rabbitmqctl delete_queue"));

    other.unsubscribe(&queue).await.unwrap();
    let broker = RabbitMq::start(settings(&url, &prefix));
    broker.publish(&[event(1, "math", "p-1")]).await.unwrap();
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
    other.remove_topology().await.unwrap();
    other.close().await.unwrap();
}

fn graded(checks: &[Check], grade: Grade) -> Vec<&str> {
    let found = checks.iter().filter(|check| check.grade == grade);
    found.map(|check| check.check.as_str()).collect()
}

#[tokio::test]
async fn inspecting_a_broker_changes_nothing() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("inspect");
    let settings = settings(&url, &prefix);
    for _ in 0..2 {
        // The second inspection would find anything that the first one had made.
        let checks = inspect(&settings).await;
        assert_eq!(graded(&checks, Grade::Warn).len(), 7, "{checks:?}");
        assert!(graded(&checks, Grade::Fail).is_empty(), "{checks:?}");
    }
    let broker = RabbitMq::start(settings.clone());
    broker.send(Queue::Commands, &letter("c-1")).await.unwrap();
    let checks = inspect(&settings).await;
    let version = &checks[1];
    assert!(version.finding.starts_with("RabbitMQ "), "{version:?}");
    let commands = checks
        .iter()
        .find(|check| check.check == format!("queue {prefix}.commands"))
        .unwrap();
    assert_eq!(commands.finding, "1 messages wait, 0 consumers");
    assert_eq!(commands.grade, Grade::Warn);

    let queues = [
        Queue::Commands,
        Queue::Actions,
        Queue::Runs,
        Queue::Training,
    ];
    let mut streams = queues.map(|queue| broker.consume(queue, 1));
    assert_eq!(next_ids(&mut streams[0], 1).await, ["c-1"]);
    broker.send(Queue::Actions, &letter("a-1")).await.unwrap();
    assert_eq!(next_ids(&mut streams[1], 1).await, ["a-1"]);
    broker.send(Queue::Runs, &letter("r-1")).await.unwrap();
    assert_eq!(next_ids(&mut streams[2], 1).await, ["r-1"]);
    let checks = inspect(&settings).await;
    assert_eq!(graded(&checks, Grade::Ok).len(), checks.len(), "{checks:?}");
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}

#[tokio::test]
async fn a_removed_exchange_is_recreated() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("remake");
    let broker = RabbitMq::start(settings(&url, &prefix));
    broker.publish(&[event(1, "math", "p-1")]).await.unwrap();
    broker.remove_topology().await.unwrap();
    let error = broker
        .publish(&[event(2, "math", "p-1")])
        .await
        .unwrap_err();
    assert!(error.passes_by_itself(), "{error}");
    assert_eq!(broker.publish(&[event(2, "math", "p-1")]).await.unwrap(), 2);
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}

/// The consumer for direct replies to a client without a queue.
async fn direct_replies(channel: &Channel) -> Consumer {
    let options = BasicConsumeOptions {
        no_ack: true,
        ..BasicConsumeOptions::default()
    };
    let consuming = channel.basic_consume(
        "amq.rabbitmq.reply-to".into(),
        "".into(),
        options,
        FieldTable::default(),
    );
    consuming.await.unwrap()
}

#[tokio::test]
async fn a_client_without_a_queue_is_answered() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("direct");
    let broker = RabbitMq::start(settings(&url, &prefix));
    let mut runs = broker.consume(Queue::Runs, 1);
    healthy(&broker, treadle_broker::Health::is_connected).await;
    let client = Connection::connect(&url, ConnectionProperties::default());
    let client = client.await.unwrap();
    let channel = client.create_channel().await.unwrap();
    let mut replies = direct_replies(&channel).await;
    let properties = BasicProperties::default()
        .with_reply_to("amq.rabbitmq.reply-to".into())
        .with_correlation_id("call-7".into());
    let publishing = channel.basic_publish(
        "".into(),
        format!("{prefix}.runs").into(),
        BasicPublishOptions::default(),
        b"{}",
        properties,
    );
    publishing.await.unwrap();

    let asked = next(&mut runs).await;
    let to = asked.reply_to.clone().unwrap();
    assert!(to.starts_with("amq.rabbitmq.reply-to."), "{to}");
    assert_eq!(broker.answer(&reply(&to)).await, Ok(true));
    let answered = replies.next().await.unwrap().unwrap();
    assert_eq!(answered.data, b"{\"ok\":true}");
    let id = answered.properties.correlation_id().clone().unwrap();
    assert_eq!(id.as_str(), "call-7");

    // The broker silently drops a reply to a client that is gone.
    client.close(200, "bye".into()).await.unwrap();
    assert_eq!(broker.answer(&reply(&to)).await, Ok(true));
    asked.ack().await.unwrap();
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}

#[tokio::test]
async fn the_bare_publisher_does_the_same_for_the_benchmark() {
    let Some(url) = server_url() else {
        return;
    };
    let prefix = prefix("bare");
    let settings = settings(&url, &prefix);
    let broker = RabbitMq::start(settings.clone());
    let queue = format!("{prefix}.all");
    let all = Subscription::new(&queue, ["#"]);
    let mut deliveries = broker.subscribe(&all).await.unwrap();
    let bare = BarePublisher::connect(&settings).await.unwrap();
    let messages = (0..2_500).map(|_| ("acme.math.step.finished", b"{}".as_slice()));
    assert_eq!(bare.publish(messages).await.unwrap(), 2_500);
    bare.close().await;
    assert_eq!(next_ids(&mut deliveries, 2_500).await.len(), 2_500);
    broker.unsubscribe(&queue).await.unwrap();
    broker.remove_topology().await.unwrap();
    broker.close().await.unwrap();
}

#[test]
fn the_address_of_a_test_is_an_address() {
    assert!(Address::parse(&changed("amqp://a:b@h:1/x", "c:d", "y")).is_ok());
}
