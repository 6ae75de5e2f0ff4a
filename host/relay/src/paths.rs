//! The paths of vLLM and SGLang that are relayed, and what each does to an engine's weights.

use axum::http::Method;
use serde_json::Value;
use treadle_core::weights::TrainerCall;

/// What a path does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Does {
    /// Nothing to the weights.
    Nothing,
    /// It takes memory away or gives it back, which no engine that generates survives.
    Memory,
    /// What the action in its body says.
    Checks,
    /// What the method in its body says.
    Asks,
    /// It prepares a process group; the engines' ranks in it follow each other.
    Joins,
    /// It pauses generation.
    Pauses,
    /// It begins an update that comes in parts.
    Begins,
    /// It has a part of the weights, or their name.
    Parts,
    /// It ends an update that came in parts.
    Ends,
    /// It has whole weights.
    Loads,
    /// It resumes generation.
    Resumes,
}

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// All relayed paths.
pub(crate) const PATHS: &[(Method, &str, Does)] = &[
    // Both.
    (GET, "/health", Does::Nothing),
    (GET, "/v1/models", Does::Nothing),
    (POST, "/abort_request", Does::Nothing),
    (POST, "/abort_requests", Does::Nothing),
    // vLLM.
    (GET, "/version", Does::Nothing),
    (GET, "/is_paused", Does::Nothing),
    (GET, "/is_sleeping", Does::Nothing),
    (GET, "/get_world_size", Does::Nothing),
    (GET, "/weight_info", Does::Nothing),
    (POST, "/weight_checker", Does::Checks),
    (POST, "/pause", Does::Pauses),
    (POST, "/resume", Does::Resumes),
    (POST, "/sleep", Does::Memory),
    (POST, "/wake_up", Does::Memory),
    (POST, "/reset_prefix_cache", Does::Nothing),
    (POST, "/collective_rpc", Does::Asks),
    (POST, "/init_weight_transfer_engine", Does::Joins),
    (POST, "/shutdown_weight_transfer_engine", Does::Nothing),
    (POST, "/start_weight_update", Does::Begins),
    (POST, "/start_draft_weight_update", Does::Begins),
    (POST, "/update_weights", Does::Parts),
    (POST, "/finish_weight_update", Does::Ends),
    (POST, "/update_weight_version", Does::Parts),
    // Of SkyRL's and prime-rl's servers.
    (POST, "/fetch_weights", Does::Nothing),
    (POST, "/init_broadcaster", Does::Joins),
    // SGLang.
    (GET, "/health_generate", Does::Nothing),
    (GET, "/server_info", Does::Nothing),
    (GET, "/get_server_info", Does::Nothing),
    (GET, "/model_info", Does::Nothing),
    (GET, "/get_model_info", Does::Nothing),
    (GET, "/get_weight_version", Does::Nothing),
    (GET, "/v1/loads", Does::Nothing),
    (GET, "/get_load", Does::Nothing),
    (GET, "/flush_cache", Does::Nothing),
    (POST, "/flush_cache", Does::Nothing),
    (POST, "/weights_checker", Does::Checks),
    (POST, "/pause_generation", Does::Pauses),
    (POST, "/continue_generation", Does::Resumes),
    (POST, "/release_memory_occupation", Does::Memory),
    (POST, "/resume_memory_occupation", Does::Memory),
    (POST, "/init_weights_update_group", Does::Joins),
    (POST, "/destroy_weights_update_group", Does::Nothing),
    (POST, "/begin_weight_update", Does::Begins),
    (POST, "/update_weights_from_distributed", Does::Parts),
    (POST, "/update_weights_from_tensor", Does::Parts),
    (POST, "/update_weights_from_ipc", Does::Parts),
    (POST, "/end_weight_update", Does::Ends),
    (POST, "/update_weights_from_disk", Does::Loads),
    (POST, "/post_process_weights", Does::Parts),
    // Of slime's servers.
    (POST, "/pull_weights", Does::Nothing),
];

/// How names of workers' methods begin that change no weights. Any other may: trainers bring
/// methods of their own.
const HARMLESS: &[&str] = &["check_", "destroy_", "get_", "init_", "is_", "list_"];

impl Does {
    /// What a call with this body does. Each path has a field of its own that says it: an engine
    /// ignores that of the other one.
    pub(crate) fn with(self, body: &Value) -> Self {
        let is_harmless = |method: &str| HARMLESS.iter().any(|start| method.starts_with(start));
        match self {
            Self::Checks => match body["action"].as_str() {
                None | Some("checksum" | "compare" | "snapshot") => Self::Nothing,
                Some(_) => Self::Parts,
            },
            Self::Asks => match body["method"].as_str() {
                Some("reload_weights") => Self::Loads,
                Some(method) if !is_harmless(method) => Self::Parts,
                _ => Self::Nothing,
            },
            other => other,
        }
    }

    /// The call as the core sees it, if it concerns the weights.
    pub(crate) fn call(self, body: &Value) -> Option<TrainerCall> {
        let name = body["weight_version"].as_str();
        let name = name.or(body["new_version"].as_str()).map(Into::into);
        Some(match self {
            Self::Joins if has_ranks(body) => TrainerCall::Join,
            Self::Nothing | Self::Memory | Self::Joins | Self::Checks | Self::Asks => return None,
            Self::Pauses => TrainerCall::Pause { own: false },
            Self::Begins => TrainerCall::Begin,
            Self::Parts => TrainerCall::Part { name },
            Self::Ends => TrainerCall::End { name },
            Self::Loads => TrainerCall::Load { name },
            Self::Resumes => TrainerCall::Resume,
        })
    }
}

/// Whether what an engine joins is a group with ranks, whose members wait for each other.
fn has_ranks(body: &Value) -> bool {
    let info = match &body["init_info"] {
        Value::Object(_) => &body["init_info"],
        _ => body,
    };
    !info["rank_offset"].is_null()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeSet;

    #[test]
    fn paths_are_listed_once() {
        let all: BTreeSet<String> = PATHS
            .iter()
            .map(|(method, path, _)| format!("{method} {path}"))
            .collect();
        assert_eq!(all.len(), PATHS.len());
    }

    #[test]
    fn what_a_body_asks_for_decides() {
        let checks = |body: Value| Does::Checks.with(&body);
        assert_eq!(checks(json!({"action": "checksum"})), Does::Nothing);
        assert_eq!(
            checks(json!({"action": "reset", "method": "get_rank"})),
            Does::Parts
        );
        let does = |body: Value| Does::Asks.with(&body);
        // The engine looks at the method, whatever else there is.
        let disguised = json!({"action": "checksum", "method": "load_weights"});
        assert_eq!(does(disguised), Does::Parts);
        assert_eq!(does(json!({"method": "reload_weights"})), Does::Loads);
        assert_eq!(
            does(json!({"method": "update_weights_from_ipc"})),
            Does::Parts
        );
        assert_eq!(does(json!({"method": "receive_from_trainer"})), Does::Parts);
        assert_eq!(does(json!({"method": "get_rank"})), Does::Nothing);
        assert_eq!(does(Value::Null), Does::Nothing);
        let call = Does::Ends.call(&json!({"weight_version": "7"}));
        assert_eq!(call.as_ref().and_then(TrainerCall::name), Some("7"));
        assert_eq!(Does::Joins.call(&Value::Null), None);
        let shared = json!({"init_info": {"backend": "ipc"}});
        assert_eq!(Does::Joins.call(&shared), None);
        for info in [
            json!({"rank_offset": 1}),
            json!({"init_info": {"rank_offset": 1}}),
        ] {
            assert_eq!(Does::Joins.call(&info), Some(TrainerCall::Join));
        }
    }
}
