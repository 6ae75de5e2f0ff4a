//! What vLLM 0.32 and SGLang 0.5.23 do with the requests of their drivers. A request that differs
//! from these by a letter fails the test: their defaults abort requests or keep caches.

use super::engine::{Engine, Extent};
use serde_json::{Value, json};

fn failed() -> (u16, Value) {
    (500, json!({"error": {"message": "as scripted"}}))
}

fn text<'v>(body: &'v Value, field: &str) -> &'v str {
    body[field].as_str().expect("a text")
}

/// vLLM in its development mode.
pub(super) fn vllm(engine: &mut Engine, asked: &str, body: &Value, extent: Extent) -> (u16, Value) {
    let is_done = extent == Extent::All;
    match asked {
        "GET /weight_info" if is_done => (200, json!({"weight_version": engine.name})),
        "POST /pause?mode=keep&clear_cache=true" if is_done => {
            engine.pause();
            (200, json!({"status": "paused"}))
        }
        "POST /update_weight_version" if is_done => {
            engine.name = text(body, "new_version").to_owned();
            (200, json!({"success": true}))
        }
        "POST /collective_rpc" => {
            assert_eq!(body["method"], "reload_weights", "{body}");
            engine.load(text(&body["kwargs"], "weights_path"), extent);
            if !is_done {
                return failed();
            }
            (200, json!({"results": [null]}))
        }
        "POST /weight_checker" if is_done => {
            assert_eq!(*body, json!({"action": "checksum"}));
            if engine.paused && engine.settings.hides_checksums {
                return (409, json!({"error": {"message": "the engine is paused"}}));
            }
            (200, json!({"checksums": {"dp0:w": engine.checksum()}}))
        }
        "POST /reset_prefix_cache?reset_running_requests=true&reset_external=true" if is_done => {
            engine.clear();
            engine.clear_storage();
            (200, json!({"success": true}))
        }
        "POST /resume" if is_done => {
            engine.paused = false;
            (200, json!({"status": "resumed"}))
        }
        "GET /weight_info"
        | "POST /pause?mode=keep&clear_cache=true"
        | "POST /update_weight_version"
        | "POST /weight_checker"
        | "POST /reset_prefix_cache?reset_running_requests=true&reset_external=true"
        | "POST /resume" => failed(),
        other => panic!("no driver asks vLLM for `{other}`"),
    }
}

/// SGLang.
pub(super) fn sglang(
    engine: &mut Engine,
    asked: &str,
    body: &Value,
    extent: Extent,
) -> (u16, Value) {
    let is_done = extent == Extent::All;
    let ok = || (200, json!({"success": true, "message": "Succeeded"}));
    match asked {
        "GET /model_info" if is_done => (200, json!({"weight_version": engine.name})),
        "POST /pause_generation" if is_done => {
            assert_eq!(*body, json!({"mode": "retract"}));
            engine.pause();
            ok()
        }
        "POST /update_weights_from_disk" => {
            let folder = text(body, "model_path");
            let expected = json!({"model_path": folder, "weight_version": body["weight_version"],
                "flush_cache": false, "keep_pause": true, "abort_all_requests": false});
            assert_eq!(*body, expected);
            if extent != Extent::Nothing {
                // It takes the name over before it knows whether the load succeeded.
                engine.name = text(body, "weight_version").to_owned();
            }
            engine.load(folder, extent);
            if !is_done {
                let words = "Failed to update weights. The full weights of the ModelRunner are \
                             partially updated. Please discard the whole weights.";
                return (400, json!({"success": false, "message": words}));
            }
            ok()
        }
        "POST /weights_checker" if is_done => {
            assert_eq!(*body, json!({"action": "checksum"}));
            if engine.paused && engine.settings.hides_checksums {
                return (400, json!({"success": false, "message": "paused"}));
            }
            (
                200,
                json!({"success": true, "ranks": [{"checksums": {"w": engine.checksum()}}]}),
            )
        }
        "POST /flush_cache?timeout=30" if is_done => {
            engine.clear();
            ok()
        }
        "GET /server_info" if is_done && engine.settings.old => (404, json!({})),
        "GET /server_info" if is_done => {
            let storage = engine.settings.stores.then_some("file");
            (200, json!({"hicache_storage_backend": storage}))
        }
        "POST /hicache/storage-backend/clear" if is_done && engine.settings.stores => {
            engine.clear_storage();
            (200, json!("cleared"))
        }
        "POST /continue_generation" if is_done => {
            assert_eq!(*body, json!({}));
            engine.paused = false;
            ok()
        }
        "GET /model_info"
        | "POST /pause_generation"
        | "POST /weights_checker"
        | "POST /flush_cache?timeout=30"
        | "GET /server_info"
        | "POST /hicache/storage-backend/clear"
        | "POST /continue_generation" => failed(),
        other => panic!("no driver asks SGLang for `{other}`"),
    }
}
