//! Prompts given as text or as token ids: `prompt`, `text`, `token_ids`, `input_ids`.

use super::PrefixSegment;
use super::prefix_hasher::{TokenHasher, hashes_of_text};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// The digest of a prompt.
#[derive(Debug, Default)]
pub(super) struct PromptDraft {
    /// Number of token ids, if the prompt has ids.
    pub(super) tokens: Option<u64>,
    /// Bytes of text.
    pub(super) bytes: u64,
    pub(super) prefix: Vec<PrefixSegment>,
    pub(super) chain: Vec<u64>,
    /// The hash of the whole prompt; `None` for a batch.
    pub(super) whole: Option<u64>,
}

impl PromptDraft {
    fn of_text(text: &str) -> Self {
        let (prefix, chain, whole) = hashes_of_text(text);
        PromptDraft {
            tokens: None,
            bytes: text.len() as u64,
            prefix,
            chain,
            whole: Some(whole),
        }
    }

    fn of_ids(hasher: TokenHasher) -> Self {
        let tokens = Some(hasher.tokens);
        let (prefix, chain, whole) = hasher.finish();
        PromptDraft {
            tokens,
            bytes: 0,
            prefix,
            chain,
            whole: Some(whole),
        }
    }
}

/// The values that a field accepts, singly or in a list.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Accepts {
    Text,
    Ids,
    TextOrIds,
}

/// Reads one prompt field; `None` for `null`.
pub(super) struct PromptSeed(pub(super) Accepts);

impl<'de> DeserializeSeed<'de> for PromptSeed {
    type Value = Option<PromptDraft>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PromptSeed {
    type Value = Option<PromptDraft>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Accepts::Text => "a string or a list of strings",
            Accepts::Ids => "a list of token ids or a list of such lists",
            Accepts::TextOrIds => "a string, a list of token ids, or a list of either",
        })
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        if self.0 == Accepts::Ids {
            return Err(E::custom("expected a list of token ids, not a string"));
        }
        Ok(Some(PromptDraft::of_text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let first = match list.next_element_seed(PartSeed(self.0))? {
            None if self.0 == Accepts::Text => return Ok(Some(PromptDraft::default())),
            None => return Ok(Some(PromptDraft::of_ids(TokenHasher::new()))),
            Some(Part::Id(id)) if self.0 != Accepts::Text => {
                return rest_of_ids(id, list).map(Some);
            }
            Some(Part::Id(_)) => return Err(A::Error::custom("expected strings, not numbers")),
            Some(Part::Whole(prompt)) => prompt,
        };
        rest_of_batch(self.0, first, list).map(Some)
    }
}

fn rest_of_ids<'de, A: SeqAccess<'de>>(first: u64, mut list: A) -> Result<PromptDraft, A::Error> {
    let mut hasher = TokenHasher::new();
    hasher.push(first);
    while let Some(id) = list.next_element::<u64>()? {
        hasher.push(id);
    }
    Ok(PromptDraft::of_ids(hasher))
}

/// Adds up the sizes of a batch. Several prompts are not one program's history, so they have
/// neither prefix nor chain.
fn rest_of_batch<'de, A: SeqAccess<'de>>(
    accepts: Accepts,
    mut sum: PromptDraft,
    mut list: A,
) -> Result<PromptDraft, A::Error> {
    while let Some(part) = list.next_element_seed(PartSeed(accepts))? {
        let Part::Whole(next) = part else {
            return Err(A::Error::custom("a list mixes token ids with prompts"));
        };
        if next.tokens.is_some() != sum.tokens.is_some() {
            return Err(A::Error::custom("a batch mixes token ids with text"));
        }
        sum = PromptDraft {
            tokens: sum.tokens.zip(next.tokens).map(|(a, b)| a + b),
            bytes: sum.bytes + next.bytes,
            prefix: Vec::new(),
            chain: Vec::new(),
            whole: None,
        };
    }
    Ok(sum)
}

/// An element of the outermost list.
enum Part {
    Id(u64),
    Whole(PromptDraft),
}

struct PartSeed(Accepts);

impl<'de> DeserializeSeed<'de> for PartSeed {
    type Value = Part;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Part, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PartSeed {
    type Value = Part;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        PromptSeed(self.0).expecting(f)
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Part, E> {
        Ok(Part::Id(id))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Part, E> {
        if self.0 == Accepts::Ids {
            return Err(E::custom("expected token ids, not strings"));
        }
        Ok(Part::Whole(PromptDraft::of_text(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Part, A::Error> {
        if self.0 == Accepts::Text {
            return Err(A::Error::custom("expected strings, not lists"));
        }
        let mut hasher = TokenHasher::new();
        while let Some(id) = list.next_element::<u64>()? {
            hasher.push(id);
        }
        Ok(Part::Whole(PromptDraft::of_ids(hasher)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(accepts: Accepts, json: &str) -> Result<Option<PromptDraft>, serde_json::Error> {
        let mut parser = serde_json::Deserializer::from_str(json);
        PromptSeed(accepts).deserialize(&mut parser)
    }

    fn size(accepts: Accepts, json: &str) -> (Option<u64>, u64) {
        let draft = read(accepts, json).unwrap().unwrap();
        (draft.tokens, draft.bytes)
    }

    #[test]
    fn every_shape_has_its_size() {
        assert_eq!(size(Accepts::TextOrIds, r#""h\u00e9""#), (None, 3));
        assert_eq!(size(Accepts::TextOrIds, "[1, 2,3]"), (Some(3), 0));
        assert_eq!(size(Accepts::TextOrIds, r#"["ab","c"]"#), (None, 3));
        assert_eq!(size(Accepts::TextOrIds, "[[1],[],[2,3]]"), (Some(3), 0));
        assert_eq!(size(Accepts::Ids, "[]"), (Some(0), 0));
        assert_eq!(size(Accepts::Text, "[]"), (None, 0));
        assert!(read(Accepts::Ids, "null").unwrap().is_none());
    }

    #[test]
    fn wrong_shapes_are_data_errors() {
        let wrong = [
            (Accepts::Ids, r#""text""#),
            (Accepts::Ids, r#"["text"]"#),
            (Accepts::Ids, "[1,\"a\"]"),
            (Accepts::Ids, "[[1],2]"),
            (Accepts::Ids, "[-1]"),
            (Accepts::Ids, "[1.5]"),
            (Accepts::Ids, "[1,null]"),
            (Accepts::Ids, "[[[1]]]"),
            (Accepts::Ids, "{}"),
            (Accepts::Text, "[1]"),
            (Accepts::Text, "[[1]]"),
            (Accepts::Text, "1"),
            (Accepts::TextOrIds, r#"["a",[1]]"#),
            (Accepts::TextOrIds, r#"[[1],"a"]"#),
            (Accepts::TextOrIds, "[99999999999999999999]"),
            (Accepts::TextOrIds, "true"),
        ];
        for (accepts, json) in wrong {
            let error = read(accepts, json).expect_err(json);
            assert!(error.is_data(), "{json}: {error}");
        }
    }

    #[test]
    fn a_batch_of_one_is_that_one() {
        let ids: Vec<u64> = (0..200).collect();
        let flat = serde_json::to_string(&ids).unwrap();
        let one = read(Accepts::Ids, &flat).unwrap().unwrap();
        let nested = read(Accepts::Ids, &format!("[{flat}]")).unwrap().unwrap();
        assert_eq!((one.chain.len(), &one.chain), (3, &nested.chain));
        let two = read(Accepts::Ids, &format!("[{flat},{flat}]"))
            .unwrap()
            .unwrap();
        assert_eq!(
            (two.tokens, two.chain.len(), two.prefix.len()),
            (Some(400), 0, 0)
        );
    }
}
