//! The field `kv_transfer_params` of requests, as vLLM's `NixlConnector` has it.

use serde::Deserialize;

/// What a request has to do with another engine's part of it. Unknown fields are ignored.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KvTransferParams {
    /// Another engine will generate from this prompt's cache.
    pub(super) do_remote_decode: bool,
    /// Another engine has this prompt's cache.
    pub(super) do_remote_prefill: bool,
    /// The name of that cache, and the engine that has it.
    pub(super) remote_request_id: Option<String>,
    pub(super) remote_host: Option<String>,
    pub(super) remote_port: Option<u16>,
}
