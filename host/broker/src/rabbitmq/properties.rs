//! Ids and headers as AMQP properties.

use std::collections::BTreeMap;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::message::CONTENT_TYPE;
use crate::names::DIRECT_REPLIES;
use crate::{Letter, Message, Reply, SHORT_BYTES_MAX, header, shortened};

/// Delivery mode of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;
/// Header in which RabbitMQ reports the causes of a dead letter, latest first.
const DEATHS: &str = "x-death";

/// Properties of an event.
pub(super) fn of_message(message: &Message) -> BasicProperties {
    let headers = message.headers();
    let headers = headers.iter().map(|(name, value)| (*name, value.as_str()));
    properties(&message.seq.to_string(), headers)
}

/// Properties of a letter.
pub(super) fn of_letter(letter: &Letter) -> BasicProperties {
    let headers = letter
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let properties = properties(&letter.id, headers);
    let properties = match &letter.reply_to {
        Some(to) => properties.with_reply_to(short(to)),
        None => properties,
    };
    correlated(properties, letter.correlation_id.as_deref())
}

/// Properties of a reply.
pub(super) fn of_reply(reply: &Reply) -> BasicProperties {
    let properties = properties(&reply.id, std::iter::empty());
    correlated(properties, reply.correlation_id.as_deref())
}

fn correlated(properties: BasicProperties, id: Option<&str>) -> BasicProperties {
    match id {
        Some(id) => properties.with_correlation_id(short(id)),
        None => properties,
    }
}

/// The queue in which the sender waits for a reply. A direct-reply name that the broker has not
/// replaced can't be replied to.
pub(super) fn reply_to(properties: &BasicProperties) -> Option<String> {
    let to = properties.reply_to().as_ref()?.as_str();
    (!to.is_empty() && to != DIRECT_REPLIES).then(|| to.to_owned())
}

fn properties<'a>(id: &str, headers: impl Iterator<Item = (&'a str, &'a str)>) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in headers {
        table.insert(short(name), AMQPValue::LongString(value.into()));
    }
    let properties = BasicProperties::default()
        .with_delivery_mode(PERSISTENT)
        .with_content_type(CONTENT_TYPE.into())
        .with_headers(table);
    if id.is_empty() {
        properties
    } else {
        properties.with_message_id(short(id))
    }
}

/// A short string of AMQP, truncated to 255 bytes.
fn short(text: &str) -> ShortString {
    shortened(text, SHORT_BYTES_MAX).into()
}

/// Headers whose values are strings or numbers, and the first cause of a dead letter.
pub(super) fn headers(properties: &BasicProperties) -> BTreeMap<String, String> {
    let mut headers = BTreeMap::new();
    let Some(table) = properties.headers() else {
        return headers;
    };
    for (name, value) in table {
        if let Some(value) = scalar(value) {
            headers.insert(name.to_string(), value);
        }
    }
    if let Some(reason) = table.inner().get(DEATHS).and_then(death) {
        headers
            .entry(header::FIRST_DEATH_REASON.to_owned())
            .or_insert(reason);
    }
    headers
}

fn death(value: &AMQPValue) -> Option<String> {
    let AMQPValue::FieldArray(deaths) = value else {
        return None;
    };
    let AMQPValue::FieldTable(first) = deaths.as_slice().last()? else {
        return None;
    };
    first.inner().get("reason").and_then(scalar)
}

fn scalar(value: &AMQPValue) -> Option<String> {
    Some(match value {
        AMQPValue::Boolean(value) => value.to_string(),
        AMQPValue::ShortShortInt(value) => value.to_string(),
        AMQPValue::ShortShortUInt(value) => value.to_string(),
        AMQPValue::ShortInt(value) => value.to_string(),
        AMQPValue::ShortUInt(value) => value.to_string(),
        AMQPValue::LongInt(value) => value.to_string(),
        AMQPValue::LongUInt(value) => value.to_string(),
        AMQPValue::LongLongInt(value) => value.to_string(),
        AMQPValue::Timestamp(value) => value.to_string(),
        AMQPValue::Float(value) => value.to_string(),
        AMQPValue::Double(value) => value.to_string(),
        AMQPValue::ShortString(value) => value.to_string(),
        AMQPValue::LongString(value) => String::from_utf8_lossy(value.as_bytes()).into_owned(),
        _ => return None,
    })
}
