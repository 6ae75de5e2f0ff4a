//! Snapshots of sandboxes on several machines.

use super::SANDBOXES;
use serde_json::{Value, json};
use treadle_tests::support::client::Client;

const SNAPSHOTS: &str = "/api/v1/snapshots";

/// Checks that sandboxes of a snapshot are on its node, however busy each machine is.
pub(super) async fn are_where_their_sandboxes_were(client: &Client, all: &[Value]) {
    for view in all {
        let path = format!(
            "{SANDBOXES}/{}/snapshot",
            view["id"].as_str().expect("an id")
        );
        let made = client.post(&path, &json!({})).await.ok();
        for _ in 0..2 {
            let again = json!({"image": made["id"]});
            let again = client.post(SANDBOXES, &again).await.ok();
            assert_eq!(again["node"], view["node"], "{again}");
        }
    }
    let listed = client.get(SNAPSHOTS).await.ok();
    let listed = listed["snapshots"].as_array().expect("a list").clone();
    let places = |views: &[Value]| -> Vec<Value> {
        let mut places: Vec<_> = views.iter().map(|view| view["node"].clone()).collect();
        places.sort_by_key(Value::to_string);
        places
    };
    assert_eq!(places(&listed), places(all));
    for snapshot in &listed {
        let path = format!("{SNAPSHOTS}/{}", snapshot["id"].as_str().expect("an id"));
        client.delete(&path).await.ok();
    }
    let left = client.get(SNAPSHOTS).await.ok();
    assert_eq!(left["snapshots"], json!([]));
}
