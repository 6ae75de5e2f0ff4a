//! What an operator does: back up and restore, migrate, look for what is wrong.

mod backup;
mod cordons;
mod database_tls;
mod doctor;
mod migrate;
mod pages;

use serde_json::json;
use treadle_tests::support::client::Client;
use treadle_tests::support::fixture::{COMPLETIONS, MODEL};

/// Some steps of some programs, one of which is released.
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
