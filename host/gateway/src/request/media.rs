//! Digests of images and audio in a request: equal placeholder tokens stand for different contents.

use crate::captures::hex;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Fields of a part of a message that hold media, or where they are.
const FIELDS: [&str; 4] = ["image_url", "video_url", "audio_url", "input_audio"];
/// Fields of a request to SGLang's own API that hold media: one, or a list.
const LISTS: [&str; 3] = ["image_data", "video_data", "audio_data"];
/// The field of a request to vLLM's own API with digests of media.
const FEATURES: &str = "mm_hashes";

/// Digests of the media in a request, in their order, as hexadecimal text.
pub(super) fn media_of(body: &[u8]) -> Vec<String> {
    let has = |name: &str| memchr::memmem::find(body, name.as_bytes()).is_some();
    let fields = FIELDS.into_iter().chain(LISTS).chain([FEATURES]);
    if !fields.into_iter().any(has) {
        return Vec::new();
    }
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let messages = request["messages"].as_array().into_iter().flatten();
    let parts = messages
        .filter_map(|message| message["content"].as_array())
        .flatten();
    let media = parts.flat_map(|part| FIELDS.into_iter().filter_map(|name| part.get(name)));
    let lists = LISTS.into_iter().filter_map(|name| request.get(name));
    let hashes = request["features"][FEATURES].as_object();
    let hashes = hashes.into_iter().flat_map(|hashes| hashes.values());
    let lists = lists.chain(hashes).flat_map(|value| match value {
        Value::Null => &[][..],
        Value::Array(media) => &**media,
        one => std::slice::from_ref(one),
    });
    media.chain(lists).map(digest_of).collect()
}

fn digest_of(media: &Value) -> String {
    let content = ["url", "data"]
        .into_iter()
        .find_map(|name| media[name].as_str());
    let digest = match content.or(media.as_str()) {
        Some(text) => Sha256::digest(text),
        None => Sha256::digest(media.to_string()),
    };
    hex(&digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_image_has_a_digest_in_its_order() {
        let image = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
        let of = |parts: Value| {
            media_of(
                json!({"messages": [{"content": parts}]})
                    .to_string()
                    .as_bytes(),
            )
        };
        let (a, b) = (of(json!([image("a")])), of(json!([image("b")])));
        assert_eq!(a[0].len(), 64);
        assert_ne!(a, b);
        assert_eq!(
            of(json!([image("a"), {"text": "x"}, image("b")])),
            [a, b].concat()
        );
        let own = media_of(br#"{"input_ids": [1], "image_data": ["a", "b"]}"#);
        assert_eq!(own, of(json!([image("a"), image("b")])));
        assert_eq!(media_of(br#"{"image_data": "a"}"#), own[..1]);
        let hashed = media_of(br#"{"features": {"mm_hashes": {"image": ["a"]}}}"#);
        assert_eq!(hashed, own[..1]);
        assert!(media_of(b"{\"messages\": [{\"content\": \"x\"}]}").is_empty());
    }
}
