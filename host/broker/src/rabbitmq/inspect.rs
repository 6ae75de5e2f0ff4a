//! Read-only checks of a broker, for `treadle doctor`.

use std::time::Duration;

use futures_util::StreamExt as _;
use lapin::options::{
    BasicPublishOptions, ConfirmSelectOptions, ExchangeDeclareOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{BasicProperties, Connection, Event, ExchangeKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{Settings, failure, link, topology};
use crate::{Address, BrokerError, COMMANDS_HELD_MAX, Queue};

/// Timeout of a single check.
const LOOK_WAIT: Duration = Duration::from_secs(5);
/// Maximum size of a broker's greeting.
const GREETING_BYTES_MAX: usize = 8_192;
/// The oldest RabbitMQ whose quorum queues support the dead letters.
const VERSION_MIN: (u32, u32) = (3, 10);

/// The severity of a check's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Works, but should be looked at.
    Warn,
    /// The daemon can't work with it.
    Fail,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Name of the check.
    pub check: String,
    /// Its severity.
    pub grade: Grade,
    /// Description of the result.
    pub finding: String,
    /// What to do; empty if nothing.
    pub remedy: String,
}

impl Check {
    fn new(check: impl Into<String>, grade: Grade, finding: impl Into<String>) -> Self {
        Self {
            check: check.into(),
            grade,
            finding: finding.into(),
            remedy: String::new(),
        }
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = remedy.into();
        self
    }
}

/// Checks a broker: reachability, version, exchanges and queues, waiting messages, consumers, and
/// alarms. Creates nothing there.
pub async fn inspect(settings: &Settings) -> Vec<Check> {
    let connecting = link::connect(settings, "treadle doctor");
    let connected = tokio::time::timeout(settings.connect_wait, connecting).await;
    let connection = match connected {
        Ok(Ok(connection)) => connection,
        Ok(Err(cause)) => return vec![refused(&settings.address, &cause)],
        Err(_) => {
            let cause = BrokerError::Unreachable {
                address: settings.address.to_string(),
                cause: format!("no answer within {} ms", settings.connect_wait.as_millis()),
            };
            return vec![refused(&settings.address, &cause)];
        }
    };
    let shown = settings.address.to_string();
    let mut checks = vec![Check::new("broker", Grade::Ok, format!("{shown} answers"))];
    checks.push(version(&settings.address).await);
    let names = &settings.names;
    for exchange in [names.events_exchange(), names.dead_exchange()] {
        checks.push(exchange_check(&connection, &exchange).await);
    }
    for queue in Queue::ALL {
        checks.push(queue_check(&connection, &names.queue(queue), queue).await);
    }
    checks.push(alarm_check(&connection).await);
    let _ = tokio::time::timeout(LOOK_WAIT, connection.close(200, "bye".into())).await;
    checks
}

/// In an error's text, the remedy follows the first semicolon.
fn refused(address: &Address, cause: &BrokerError) -> Check {
    let text = cause.to_string();
    let (finding, remedy) = text.split_once("; ").unwrap_or((&text, ""));
    let remedy = if remedy.is_empty() {
        format!("check the log of the broker at {address}")
    } else {
        remedy.to_owned()
    };
    Check::new("broker", Grade::Fail, finding).remedy(remedy)
}

async fn version(address: &Address) -> Check {
    let check = "broker version";
    if address.is_tls() {
        return Check::new(check, Grade::Ok, "not read over TLS");
    }
    let greeting = tokio::time::timeout(LOOK_WAIT, greeting(address)).await;
    let Ok(Ok(greeting)) = greeting else {
        return Check::new(check, Grade::Warn, "could not read the broker's greeting");
    };
    let product = property(&greeting, "product").unwrap_or_else(|| "unknown product".into());
    let version = property(&greeting, "version").unwrap_or_else(|| "unknown version".into());
    let finding = format!("{product} {version}");
    let mut numbers = version.split('.').map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) >= VERSION_MIN => {
            Check::new(check, Grade::Ok, finding)
        }
        _ => Check::new(check, Grade::Warn, finding)
            .remedy("treadle requires RabbitMQ 3.10 or later: upgrade"),
    }
}

/// Reads the broker's greeting, which it sends before authentication: a frame with its properties.
async fn greeting(address: &Address) -> std::io::Result<Vec<u8>> {
    let mut stream = tokio::net::TcpStream::connect(address.place()).await?;
    stream.write_all(b"AMQP\x00\x00\x09\x01").await?;
    // Type, channel and size of the frame.
    let mut head = [0; 7];
    stream.read_exact(&mut head).await?;
    let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]) as usize;
    let mut body = vec![0; size.min(GREETING_BYTES_MAX)];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

/// A text property of the greeting: length and text of its name, `S`, length and text of its value.
fn property(greeting: &[u8], name: &str) -> Option<String> {
    let mut field = vec![name.len() as u8];
    field.extend_from_slice(name.as_bytes());
    field.push(b'S');
    let at = greeting
        .windows(field.len())
        .position(|window| window == field)?;
    let rest = &greeting[at + field.len()..];
    let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
    let value = rest.get(4..)?.get(..length)?;
    String::from_utf8(value.to_vec()).ok()
}

async fn exchange_check(connection: &Connection, name: &str) -> Check {
    let check = format!("exchange {name}");
    let channel = match topology::channel(connection).await {
        Ok(channel) => channel,
        Err(cause) => return Check::new(check, Grade::Fail, cause.to_string()),
    };
    let options = ExchangeDeclareOptions {
        passive: true,
        ..ExchangeDeclareOptions::default()
    };
    let declared = channel
        .exchange_declare(
            name.into(),
            ExchangeKind::Topic,
            options,
            FieldTable::default(),
        )
        .await;
    match declared {
        Ok(()) => Check::new(check, Grade::Ok, "is there"),
        Err(error) => missing(check, &error),
    }
}

fn missing(check: String, error: &lapin::Error) -> Check {
    if failure::is_absent(error) {
        Check::new(check, Grade::Warn, "does not exist yet")
            .remedy("the daemon creates it when it connects; start the daemon, or check its log")
    } else {
        let cause = failure::lost(error).to_string();
        let (finding, remedy) = cause.split_once("; ").unwrap_or((&cause, ""));
        Check::new(check, Grade::Fail, finding).remedy(remedy)
    }
}

async fn queue_check(connection: &Connection, name: &str, queue: Queue) -> Check {
    let check = format!("queue {name}");
    let channel = match topology::channel(connection).await {
        Ok(channel) => channel,
        Err(cause) => return Check::new(check, Grade::Fail, cause.to_string()),
    };
    let options = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let declared = channel
        .queue_declare(name.into(), options, FieldTable::default())
        .await;
    let seen = match declared {
        Ok(seen) => seen,
        Err(error) => return missing(check, &error),
    };
    let (depth, consumers) = (seen.message_count(), seen.consumer_count());
    let finding = format!("{depth} messages wait, {consumers} consumers");
    if queue == Queue::DeadLetters {
        return if depth == 0 {
            Check::new(check, Grade::Ok, finding)
        } else {
            Check::new(check, Grade::Warn, finding).remedy(
                "read them: the header treadle-reason says why each failed; then \
                 remove them: rabbitmqctl purge_queue",
            )
        };
    }
    if consumers == 0 {
        return Check::new(check, Grade::Warn, finding)
            .remedy("no daemon consumes it; start one with broker.url set");
    }
    if depth > COMMANDS_HELD_MAX / 2 {
        return Check::new(check, Grade::Warn, finding)
            .remedy("senders are faster than the daemon; beyond the limit they are refused");
    }
    Check::new(check, Grade::Ok, finding)
}

/// Publishes a message without a queue, which the broker drops: a broker with an alarm reports it
/// then.
async fn alarm_check(connection: &Connection) -> Check {
    let check = "broker alarms";
    let mut events = Box::pin(connection.events_listener());
    let asked = async {
        let channel = topology::channel(connection).await?;
        let asked = async {
            channel
                .confirm_select(ConfirmSelectOptions::default())
                .await?;
            let publish = channel.basic_publish(
                "".into(),
                "treadle.doctor.nobody".into(),
                BasicPublishOptions::default(),
                b"",
                BasicProperties::default(),
            );
            publish.await?.await.map(drop)
        };
        asked.await.map_err(|error| failure::lost(&error))
    };
    let blocked = async {
        loop {
            match events.next().await {
                Some(Event::ConnectionBlocked(reason)) => return reason,
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    };
    let seen = tokio::select! {
        asked = asked => asked,
        reason = blocked => Err(BrokerError::Blocked { reason }),
        () = tokio::time::sleep(LOOK_WAIT) => Err(BrokerError::TimedOut {
            what: "the confirmation of a message",
            after_ms: LOOK_WAIT.as_millis() as u64,
        }),
    };
    match seen {
        Ok(()) => Check::new(check, Grade::Ok, "none"),
        Err(cause) => {
            let text = cause.to_string();
            let (finding, remedy) = text.split_once(": an alarm").unwrap_or((&text, ""));
            let remedy = remedy.split_once("; ").map_or(remedy, |(_, remedy)| remedy);
            Check::new(check, Grade::Fail, finding).remedy(remedy)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn properties_are_found_in_a_greeting() {
        let greeting = b"\x00\x0a\x00\x0a....\x07productS\x00\x00\x00\x08RabbitMQ\x07versionS\x00\x00\x00\x063.10.8";
        assert_eq!(property(greeting, "product").as_deref(), Some("RabbitMQ"));
        assert_eq!(property(greeting, "version").as_deref(), Some("3.10.8"));
        assert_eq!(property(greeting, "platform"), None);
        assert_eq!(property(b"\x07versionS\x00\x00\x00\xff", "version"), None);
    }
}
