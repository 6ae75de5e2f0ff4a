//! The commands of the pages about sandboxes run as they are printed, in an empty folder.

use treadle_tests::support::terminal::Terminal;

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_sandboxes_works_as_it_is_printed() {
    Terminal::open("docs/sandboxes.md").follow().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_sandbox_clients_works_as_it_is_printed() {
    Terminal::open("docs/guides/sandbox-clients.md")
        .follow()
        .await;
}
