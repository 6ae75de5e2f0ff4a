//! The state that a server reports. It restores slots under any weights, so its state is queried
//! right before and right after each transfer. That detects a restart with another model in
//! between, even if the restart itself went unnoticed.

use serde_json::Value;

use super::count;
use crate::client::EngineClient;
use crate::{KvCopy, Tags, TransferError};

/// Fields of a model's entry in the list that describe its shape.
const SHAPE: [&str; 5] = ["n_vocab", "n_embd", "n_params", "size", "ftype"];

/// The current state of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct ServerState {
    /// Number of its slots.
    pub(super) slots: u64,
    /// The model's name.
    model: Box<str>,
    /// Distinguishes files with the same name, and builds that may write slots differently.
    shape: Box<str>,
}

impl ServerState {
    /// Queries a server.
    pub(super) async fn at(client: &EngineClient, url: &str) -> Result<Self, TransferError> {
        let props = page(client, url, "/props").await?;
        let models = page(client, url, "/v1/models").await?;
        let model = models["data"][0]["id"]
            .as_str()
            .ok_or_else(|| TransferError::unsupported(url, "it lists no model"))?;
        Ok(Self {
            slots: count(url, &props, "total_slots")?,
            model: model.into(),
            shape: shape(&props, &models["data"][0]["meta"]),
        })
    }

    /// The tags of this server, if it has the expected model.
    pub(super) fn tags(&self, expected: &Tags) -> Result<Tags, TransferError> {
        let now = Tags {
            model: self.model.clone(),
            shape: Some(self.shape.clone()),
            ..expected.clone()
        };
        let known = Tags {
            shape: now.shape.clone(),
            ..expected.clone()
        };
        known.check(&now)?;
        Ok(now)
    }

    /// Fails unless the copy was computed with the same model, weights and build as this server
    /// has.
    pub(super) fn computed(&self, copy: &KvCopy, expected: &Tags) -> Result<(), TransferError> {
        let now = self.tags(expected)?;
        copy.tags.check(&now)?;
        if copy.tags.shape.is_none() {
            return Err(TransferError::OtherTags {
                field: "shape",
                copy: "unknown".into(),
                worker: self.shape.clone(),
            });
        }
        Ok(())
    }

    /// Fails if the server has changed.
    pub(super) fn same(&self, url: &str, before: &Self) -> Result<(), TransferError> {
        if self == before {
            return Ok(());
        }
        let why = format!("the server changed during the transfer: {before:?}, now {self:?}");
        Err(TransferError::not_taken(url, why))
    }
}

async fn page(client: &EngineClient, url: &str, path: &str) -> Result<Value, TransferError> {
    let text = client.text(url, path).await?;
    serde_json::from_str(&text).map_err(|error| TransferError::unreachable(url, error))
}

/// The model file's name without its folder, which differs between nodes, and the reported
/// properties of its content.
fn shape(props: &Value, meta: &Value) -> Box<str> {
    let path = props["model_path"].as_str().unwrap_or_default();
    let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let build = props["build_info"].as_str().unwrap_or_default();
    let inside = SHAPE
        .iter()
        .map(|field| format!("{field}={}", meta[*field]));
    let known = [format!("file={file}"), format!("build={build}")];
    let all: Vec<String> = known.into_iter().chain(inside).collect();
    all.join(" ").into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_of_one_name_may_differ() {
        let props = |path: &str| json!({ "model_path": path, "build_info": "b1" });
        let meta = |size: u64| json!({ "n_params": 9, "size": size });
        let known = shape(&props("/a/m.gguf"), &meta(1));
        assert_eq!(known, shape(&props("/b/m.gguf"), &meta(1)));
        assert_ne!(known, shape(&props("/a/m.gguf"), &meta(2)));
        assert_ne!(known, shape(&props("/a/n.gguf"), &meta(1)));
        assert_ne!(known, shape(&json!({ "build_info": "b2" }), &meta(1)));
    }
}
