//! Classes of engines: the same software, model, hardware and memory. Data about one engine substitutes
//! for what is not yet known of another.

use super::engine::Engine;
use super::pace::DecodeTime;
use serde::{Deserialize, Serialize};
use treadle_model::{EngineKind, Timestamp};

/// Maximum number of remembered classes; the one seen least recently is dropped.
pub const CLASSES_MAX: usize = 64;

/// The last data of engines that have left, by software, model, class of hardware and number of
/// GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineClass {
    /// Their software.
    pub engine: EngineKind,
    /// Their model, if they reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// Their class of hardware, if it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Box<str>>,
    /// GPUs of each, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Capacity of one, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tokens: Option<u64>,
    /// Its time per token.
    pub time: DecodeTime,
    /// Prompt tokens that it computed per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefill_tokens_per_s: Option<u64>,
    /// When it was last there.
    pub at: Timestamp,
}

impl EngineClass {
    fn is_of(&self, engine: &Engine<'_>) -> bool {
        let class = (self.engine, self.gpus);
        let names = (self.model.as_deref(), self.hardware.as_deref());
        class == (engine.kind, engine.gpus) && names == (engine.model, engine.hardware)
    }
}

/// The remembered classes, in the order in which they were last seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EngineClasses(Vec<EngineClass>);

impl EngineClasses {
    /// True if none is remembered.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All classes, the most recently seen first.
    pub fn iter(&self) -> impl Iterator<Item = &EngineClass> {
        self.0.iter().rev()
    }

    /// The last data of engines like this one.
    pub(super) fn of(&self, engine: &Engine<'_>) -> Option<&EngineClass> {
        // Without a model it is unknown whether they are alike.
        let told = engine.model.is_some();
        self.iter().find(|class| told && class.is_of(engine))
    }

    /// Records a leaving engine. Declared speeds do not replace measured ones.
    pub(super) fn see(&mut self, engine: &Engine<'_>, now: Timestamp) {
        let Some(time) = engine.speeds.decode_time() else {
            return;
        };
        let known = self.0.iter().position(|class| class.is_of(engine));
        if known.is_some() && !engine.speeds.pace().is_learnt() {
            return;
        }
        let before = known.map(|place| self.0.remove(place));
        let before = before.and_then(|class| class.prefill_tokens_per_s);
        if self.0.len() >= CLASSES_MAX {
            self.0.remove(0);
        }
        self.0.push(EngineClass {
            engine: engine.kind,
            model: engine.model.map(Box::from),
            hardware: engine.hardware.map(Box::from),
            gpus: engine.gpus,
            capacity_tokens: engine.capacity_tokens,
            time,
            prefill_tokens_per_s: engine.speeds.prefill_tokens_per_s().or(before),
            at: now,
        });
    }
}

/// The lower median: an engine that counts cached tokens as computed looks faster than any is, so
/// the faster of two is not used.
pub(super) fn lower_median(mut speeds: Vec<u64>) -> Option<u64> {
    let middle = speeds.len().checked_sub(1)? / 2;
    Some(*speeds.select_nth_unstable(middle).1)
}

#[cfg(test)]
mod tests {
    use super::lower_median;

    #[test]
    fn one_of_two_that_looks_fast_is_not_believed() {
        assert_eq!(lower_median(Vec::new()), None);
        assert_eq!(lower_median(vec![15_000]), Some(15_000));
        assert_eq!(lower_median(vec![900_000, 15_000]), Some(15_000));
        assert_eq!(lower_median(vec![14_000, 900_000, 15_000]), Some(15_000));
    }
}
