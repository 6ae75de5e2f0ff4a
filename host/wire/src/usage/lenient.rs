//! Lenient parsing: unexpected values become defaults and never fail the whole reply.

use super::Finish;
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;
use treadle_model::reported_tokens;

/// A type that can be read from any JSON value, with its default for unexpected ones.
pub(super) trait Lenient<'de>: Default {
    fn of_number(_: u64) -> Self {
        Self::default()
    }

    fn of_text(_: &str) -> Self {
        Self::default()
    }

    fn of_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_object<A: MapAccess<'de>>(mut object: A) -> Result<Self, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

struct Any<T>(PhantomData<T>);

impl<'de, T: Lenient<'de>> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        let is_count = number >= 0.0 && number.fract() == 0.0 && number < 1e15;
        Ok(if is_count {
            T::of_number(number as u64)
        } else {
            T::default()
        })
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Ok(T::of_number(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok(T::of_text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::of_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<T, A::Error> {
        T::of_object(object)
    }
}

pub(super) fn lenient<'de, T: Lenient<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_any(Any(PhantomData))
}

/// A whole number; implausible ones count as absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Count(pub(super) Option<u64>);

impl Lenient<'_> for Count {
    fn of_number(number: u64) -> Self {
        Count(reported_tokens(number))
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// Whether there is any text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HasText(pub(super) bool);

impl Lenient<'_> for HasText {
    fn of_text(text: &str) -> Self {
        HasText(!text.is_empty())
    }
}

impl<'de> Deserialize<'de> for HasText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// The kind of an object, as far as it matters here.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Kind {
    /// Some other.
    #[default]
    Other,
    /// The last event of Anthropic's streams.
    MessageStop,
    /// The last event of a stream of `/v1/responses`.
    ResponseOver(Finish),
    /// An error.
    Error,
}

impl Lenient<'_> for Kind {
    fn of_text(text: &str) -> Self {
        match text {
            "message_stop" => Kind::MessageStop,
            "response.completed" => Kind::ResponseOver(Finish::Stop),
            "response.incomplete" => Kind::ResponseOver(Finish::Length),
            "response.failed" | "response.cancelled" => Kind::ResponseOver(Finish::Abort),
            "error" => Kind::Error,
            _ => Kind::Other,
        }
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// How long a list is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListLength(pub(super) Option<u64>);

impl<'de> Lenient<'de> for ListLength {
    fn of_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut length = 0;
        while list.next_element::<IgnoredAny>()?.is_some() {
            length += 1;
        }
        Ok(ListLength(Some(length)))
    }
}

impl<'de> Deserialize<'de> for ListLength {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// Why an output ended: a text, or SGLang's object with a `type`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reason(pub(super) Option<Finish>);

#[derive(Default, Deserialize)]
#[serde(default)]
struct TypedReason {
    #[serde(rename = "type")]
    kind: TextReason,
}

#[derive(Default)]
struct TextReason(Option<Finish>);

impl Lenient<'_> for TextReason {
    fn of_text(text: &str) -> Self {
        TextReason(Some(Finish::of(text)))
    }
}

impl<'de> Deserialize<'de> for TextReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

impl<'de> Lenient<'de> for Reason {
    fn of_text(text: &str) -> Self {
        Reason(Some(Finish::of(text)))
    }

    fn of_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let typed = TypedReason::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Reason(typed.kind.0))
    }
}

impl<'de> Deserialize<'de> for Reason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// An object.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct One<T>(pub(super) T);

impl<'de, T: Deserialize<'de> + Default> Lenient<'de> for One<T> {
    fn of_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        T::deserialize(MapAccessDeserializer::new(object)).map(One)
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for One<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// A list of objects, or a single object.
#[derive(Clone, Debug)]
pub(super) struct Many<T>(pub(super) Vec<T>);

impl<T> Default for Many<T> {
    fn default() -> Self {
        Many(Vec::new())
    }
}

impl<'de, T: Deserialize<'de> + Default> Lenient<'de> for Many<T> {
    fn of_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut all = Vec::new();
        while let Some(One(one)) = list.next_element()? {
            all.push(one);
        }
        Ok(Many(all))
    }

    fn of_object<A: MapAccess<'de>>(object: A) -> Result<Self, A::Error> {
        let one = T::deserialize(MapAccessDeserializer::new(object))?;
        Ok(Many(vec![one]))
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Many<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}
