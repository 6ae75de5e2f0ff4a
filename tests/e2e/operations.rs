//! An operator's tasks: back up and restore, migrate, diagnose.

mod backup;
mod cordons;
mod database_tls;
mod doctor;
mod migrate;
mod pages;
mod traces;

use serde_json::json;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, MODEL};

/// Runs some steps of some programs and releases one program.
async fn work(client: &Client, start: u32) {
    for program in start..start + 4 {
        for round in 0..5 {
            let prompt: Vec<u32> = (0..50 + 10 * round).collect();
            let program = format!("p{program}");
            let body = json!({
                "model": MODEL, "prompt": prompt, "max_tokens": 5, "program_id": program,
            });
            client.post(COMPLETIONS, &body).await.ok();
        }
    }
    let release = json!({"program_id": format!("p{start}")});
    client.post("/programs/release", &release).await.ok();
}
