//! Two judges, real processes, share declared GPUs: each is loaded onto the devices of an action
//! that requests it, and unloaded when the other needs them.

use super::{ended, fixture, submit, used};
use crate::tenancy::{client_of, make_tenant};
use serde_json::{Value, json};
use treadle_tests::support::client::Client;

/// A service that answers with its name, devices and process id.
const JUDGE: &str = r#"
import http.server, os
class Judge(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = f"{os.environ['TREADLE_SERVICE']} {os.environ['TREADLE_DEVICES']} {os.getpid()}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said.encode())
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["TREADLE_PORT"])), Judge).serve_forever()
"#;

async fn declare(client: &Client, name: &str) {
    let service = json!({
        "load_ms": 200, "ready_path": "/", "ready_s_max": 30,
        "lifecycle": {"process": {"command": ["python3", "-c", JUDGE]}},
    });
    let path = format!("/api/v1/services/{name}");
    client
        .send(http::Method::PUT, &path, &[], service.to_string())
        .await
        .ok();
}

fn judged(name: &str, gpus: u64) -> Value {
    let run = json!({"service": {"name": name, "path": "/"}});
    json!({"kind": "judge", "cost": {"gpu": gpus}, "run": run})
}

/// The answering service, its devices and its process id.
async fn answered(client: &Client, name: &str, gpus: u64) -> [String; 3] {
    let action = submit(client, &judged(name, gpus)).await;
    let view = ended(client, action).await;
    let outcome = json!({"outcome": "exited", "code": 200});
    assert_eq!(view["outcome"], outcome, "{view}");
    let text = view["output"]["text"].as_str().expect("text").to_owned();
    let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    words.try_into().expect("three words")
}

fn runs(process: &str) -> bool {
    std::path::Path::new(&format!("/proc/{process}")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn judges_share_gpus_and_evict_one_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 1, |config| {
        config.actions.gpus = ["0", "1"].map(str::to_owned).to_vec();
    })
    .await;
    let client = &fixture.client;
    for name in ["one", "two"] {
        declare(client, name).await;
    }
    // Both fit, and are reused on the same devices.
    let [_, first_devices, first] = answered(client, "one", 1).await;
    let [name, devices, second] = answered(client, "two", 1).await;
    assert_eq!(name, "two");
    assert_ne!((&first_devices, &first), (&devices, &second));
    let again = answered(client, "one", 1).await;
    assert_eq!(again, ["one".to_owned(), first_devices, first.clone()]);

    // On two devices it is another instance, and both others are unloaded.
    let [name, devices, third] = answered(client, "one", 2).await;
    assert_eq!((name.as_str(), devices.as_str()), ("one", "0,1"));
    assert!(runs(&third) && !runs(&first) && !runs(&second));
    assert_eq!(used(client, "gpu").await, 0);
    let resources = client.get("/api/v1/resources").await.ok();
    let loads = &resources["services"][0]["loads_ms"];
    assert!(loads["1"].is_u64() && loads["2"].is_u64(), "{resources}");
    fixture.stop().await;
    assert!(!runs(&third), "it ends with the daemon");
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_use_the_same_names_for_services_of_their_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let fixture = fixture(folder.path(), 1, |config| {
        config.actions.gpus = ["0", "1"].map(str::to_owned).to_vec();
    })
    .await;
    let mut processes = Vec::new();
    for tenant in ["red", "blue"] {
        make_tenant(&fixture, tenant, json!({})).await;
        let client = client_of(&fixture, tenant, "job").await;
        let resources = client.get("/api/v1/resources").await.ok();
        assert_eq!(resources["services"], json!([]), "another's are not shown");
        declare(&client, "judge").await;
        let [name, _, process] = answered(&client, "judge", 1).await;
        assert_eq!(name, "judge");
        processes.push(process);
        let resources = client.get("/api/v1/resources").await.ok();
        assert_eq!(resources["services"][0]["name"], "judge");
    }
    assert_ne!(processes[0], processes[1]);
    fixture.stop().await;
}
