//! `/v1/models`, which every engine serves.

use serde::Deserialize;
use treadle_model::reported_tokens;

/// A model that an engine serves.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ModelInfo {
    /// Its name in requests.
    pub id: String,
    /// Tokens of prompt and output that one request may have.
    pub context_tokens_max: Option<u64>,
    /// Whether it is an adapter (LoRA) of another one.
    pub is_adapter: bool,
}

#[derive(Deserialize)]
struct List {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    /// Of an adapter, at vLLM and SGLang.
    parent: Option<serde::de::IgnoredAny>,
    /// vLLM's and SGLang's.
    max_model_len: Option<u64>,
    /// llama.cpp's.
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    n_ctx: Option<u64>,
}

/// The models in a body of `/v1/models`; none if the body is something else.
pub fn models_of(body: &[u8]) -> Vec<ModelInfo> {
    let Ok(list) = serde_json::from_slice::<List>(body) else {
        return Vec::new();
    };
    let info = |model: Model| ModelInfo {
        is_adapter: model.parent.is_some(),
        id: model.id,
        context_tokens_max: model
            .max_model_len
            .or_else(|| model.meta?.n_ctx)
            .and_then(reported_tokens),
    };
    list.data.into_iter().map(info).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_of_every_engine_are_read() {
        let body = br#"{"object":"list","models":[{"name":"c"}],"data":[
            {"id":"a","max_model_len":16384,"permission":[{}]},
            {"id":"b","max_model_len":null,"meta":{"n_ctx":512,"n_ctx_train":4096}},
            {"id":"c","meta":null,"parent":null},{"id":"d","root":"/x","parent":"a"}]}"#;
        let found: Vec<_> = models_of(body)
            .into_iter()
            .map(|model| (model.id, model.context_tokens_max, model.is_adapter))
            .collect();
        let expected = [
            ("a", Some(16_384), false),
            ("b", Some(512), false),
            ("c", None, false),
            ("d", None, true),
        ];
        assert_eq!(
            found,
            expected.map(|(id, max, adapter)| (id.to_owned(), max, adapter))
        );
        assert_eq!(models_of(b"{\"detail\":\"Not Found\"}"), []);
    }
}
