//! The version of the weights under which an engine answered.

use super::lenient::{Lenient, Many, lenient};
use serde::Deserialize;
use serde::de::Deserializer;
use std::fmt;
use treadle_model::WEIGHTS_BYTES_MAX;

/// An engine's name for a version of its weights; empty if unknown. It is stored inline, so that
/// reading events needs no allocation.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct WeightVersion {
    length: usize,
    bytes: [u8; WEIGHTS_BYTES_MAX],
}

impl WeightVersion {
    /// The name, if there is one.
    pub fn name(&self) -> Option<&str> {
        let name = self.bytes.get(..self.length)?;
        std::str::from_utf8(name)
            .ok()
            .filter(|name| !name.is_empty())
    }

    /// This one, or else another.
    pub(super) fn or(self, other: Self) -> Self {
        if self.length > 0 { self } else { other }
    }
}

impl Default for WeightVersion {
    fn default() -> Self {
        Self {
            length: 0,
            bytes: [0; WEIGHTS_BYTES_MAX],
        }
    }
}

impl fmt::Debug for WeightVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(f)
    }
}

impl Lenient<'_> for WeightVersion {
    fn of_number(number: u64) -> Self {
        Self::of_text(&number.to_string())
    }

    fn of_text(text: &str) -> Self {
        let mut version = Self::default();
        if let Some(place) = version.bytes.get_mut(..text.len()) {
            place.copy_from_slice(text.as_bytes());
            version.length = text.len();
        }
        version
    }
}

impl<'de> Deserialize<'de> for WeightVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        lenient(deserializer)
    }
}

/// SGLang's metadata in responses in OpenAI's form.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) weight_version: WeightVersion,
}

/// vLLM's ranges of tokens, each with one version.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stretches {
    pub(super) last: WeightVersion,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Stretch {
    version: WeightVersion,
}

impl<'de> Deserialize<'de> for Stretches {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Many::<Stretch>::deserialize(deserializer)?;
        let last = all.0.last().map(|stretch| stretch.version);
        Ok(Self {
            last: last.unwrap_or_default(),
        })
    }
}
