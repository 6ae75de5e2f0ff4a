//! A newcomer's path: every command of README, of the quickstart and of the guides runs as it is
//! printed, from top to bottom, in an empty folder. `sandboxes/guides.rs` follows the pages about
//! sandboxes; `host/treadle/tests/cli/pages.rs` checks blocks that are marked as not run.

use treadle_tests::support::client::Client;
use treadle_tests::support::terminal::Terminal;

/// Follows a page; returns the terminal, whose daemon still runs.
async fn follow(page: &'static str) -> Terminal {
    let mut terminal = Terminal::open(page);
    terminal.follow().await;
    terminal
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readme_works_as_it_is_printed() {
    follow("README.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_works_as_it_is_printed() {
    let terminal = follow("docs/quickstart.md").await;
    let client = Client::new(terminal.url().expect("it starts a daemon"));
    let program = client.get("/api/v1/programs/first").await.ok();
    assert_eq!(program["ended"], "released");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_clients_works_as_it_is_printed() {
    follow("docs/guides/connect.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_operation_works_as_it_is_printed() {
    let terminal = follow("docs/guides/operate.md").await;
    assert!(terminal.folder().join(".treadle/treadle.db").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_policies_works_as_it_is_printed() {
    follow("docs/guides/write-a-policy.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_policy_is_made_as_the_guide_prints_it() {
    let mut terminal = Terminal::open("docs/guides/write-a-policy.md");
    terminal.follow_to("python").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_typescript_policy_is_made_as_the_guide_prints_it() {
    let mut terminal = Terminal::open("docs/guides/write-a-policy.md");
    terminal.follow_to("typescript").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_actions_works_as_it_is_printed() {
    follow("docs/actions.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_training_runs_works_as_it_is_printed() {
    let terminal = follow("docs/training.md").await;
    let token = std::fs::read_to_string(terminal.folder().join(".treadle/admin-token"));
    let token = token.expect("it is beside the store");
    let client = Client::new(terminal.url().expect("it starts a daemon"));
    let job = client
        .with_token(token.trim())
        .get("/api/v1/jobs/math")
        .await;
    assert_eq!(job.ok()["version"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_what_if_replay_works_as_it_is_printed() {
    follow("docs/what-if.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_rollouts_works_as_it_is_printed() {
    let terminal = follow("docs/rollouts.md").await;
    let token = std::fs::read_to_string(terminal.folder().join(".treadle/admin-token"));
    let token = token.expect("it is beside the store");
    let url = terminal.url().expect("it starts a daemon");
    let client = Client::new(url).with_token(token.trim());
    let bindings = client.get("/api/v1/bindings").await.ok();
    let bound = bindings["bindings"].as_array().expect("a list").iter();
    let policies: Vec<&str> = bound.filter_map(|each| each["policy"].as_str()).collect();
    for world in ["prediction", "priority", "placement", "allocation"] {
        let name = format!("heddle-{world}@");
        let is_bound = policies.iter().any(|policy| policy.starts_with(&name));
        assert!(is_bound, "{name}: {policies:?}");
    }
}
