//! The lifecycle of a sandbox: created, used, taken over by the next agent, removed.

use std::time::Duration;

use treadle_sandbox::{End, Input, OnExpiry, SandboxError, SandboxSpec, State};

use crate::stage::{LONG, Stage, agent, pod, run, script, spec, until};

#[tokio::test]
async fn a_sandbox_is_a_pod_from_its_making_to_its_end() {
    let stage = Stage::new().await;
    let made = stage.sandboxes.create(SandboxSpec {
        program: Some("rollout/17".to_owned()),
        ttl: Some(Duration::from_hours(3)),
        ..spec()
    });
    let sandbox = made.await.expect("a sandbox");
    let (output, _, end) = run(&sandbox, script("echo here")).await.expect("it runs");
    assert_eq!((output.as_str(), end), ("here\n", End::Exited(0)));
    assert_eq!(sandbox.status().state, State::Ready);

    let pod = stage.stand_in.state.pod(&pod(&sandbox));
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["app.kubernetes.io/managed-by"], "treadle");
    assert_eq!(labels["treadle.dev/sandbox"], sandbox.id());
    assert_eq!(labels["treadle.dev/tenant"], "acme");
    let program = labels["treadle.dev/program"].as_str().expect("a label");
    assert!(program.starts_with("sha256-"), "{program} has no slash");
    let spec = &pod["spec"];
    assert_eq!(spec["restartPolicy"], "Never");
    assert_eq!(spec["automountServiceAccountToken"], false);
    assert_eq!(spec["activeDeadlineSeconds"], 3 * 3_600);
    assert_eq!(
        spec["securityContext"]["seccompProfile"]["type"],
        "RuntimeDefault"
    );
    let container = &spec["containers"][0];
    assert_eq!(container["image"], "debian:13");
    let context = &container["securityContext"];
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    assert_eq!(
        context["capabilities"]["add"].as_array().map(Vec::len),
        Some(9)
    );
    assert_eq!(
        container["resources"]["limits"]["memory"],
        (512 << 20).to_string()
    );

    stage.sandboxes.remove(sandbox.id()).await;
    assert!(stage.stand_in.state.pods().is_empty());
    let gone = run(&sandbox, script("true")).await;
    assert!(matches!(gone, Err(SandboxError::Unknown(_))), "{gone:?}");
}

#[tokio::test]
async fn the_api_server_logs_nothing_of_a_command() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    let mut exec = script("cat; echo $SECRET");
    exec.env
        .insert("SECRET".to_owned(), "token-of-mine".to_owned());
    exec.input = Input::Bytes(b"word-of-mine".to_vec());
    let (output, ..) = run(&sandbox, exec).await.expect("it runs");
    assert_eq!(output, "word-of-minetoken-of-mine\n");
    let requests = stage.stand_in.state.requests();
    assert!(requests.iter().any(|request| request.contains("/exec?")));
    assert!(
        !requests.iter().any(|request| request.contains("of-mine")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn the_next_agent_keeps_recorded_pods_and_removes_its_others() {
    let stage = Stage::new().await;
    let (kept, other) = (stage.sandbox().await, stage.sandbox().await);
    let file = format!("{}/left", stage.stand_in.inside());
    let left = format!("setsid sleep 300 >/dev/null 2>&1 & echo $! >{file}; echo kept");
    run(&kept, script(&left)).await.expect("it runs");
    run(&other, script("true")).await.expect("it runs");
    let owner =
        stage.stand_in.state.pod(&pod(&kept))["metadata"]["labels"]["treadle.dev/owner"].clone();
    // A crash: nothing was stopped, one record is lost, and there is a pod of somebody else.
    let (stand_in, folder) = (stage.stand_in, stage.folder);
    let ids = (kept.id().to_owned(), pod(&kept));
    let record = folder.path().join("sandboxes").join(other.id());
    drop((kept, other, stage.sandboxes));
    until("the first agent is gone", || {
        let lock = std::fs::File::open(folder.path().join("lock")).expect("a lock");
        lock.try_lock().is_ok()
    })
    .await;
    std::fs::remove_dir_all(record).expect("a record");
    stand_in.state.put(
        "somebody-elses",
        &serde_json::json!({"treadle.dev/owner": "them"}),
    );
    stand_in.state.put(
        "treadle-orphan",
        &serde_json::json!({
            "treadle.dev/owner": owner, "treadle.dev/sandbox": "orphan",
        }),
    );

    let sandboxes = agent(&stand_in, folder.path()).await;
    until("its others are removed", || {
        stand_in.state.pods() == ["somebody-elses", &ids.1]
    })
    .await;
    let sandbox = sandboxes.get(&ids.0).expect("it is on record");
    assert_eq!(sandbox.status().state, State::Stopped);
    let (pid, ..) = run(&sandbox, script(&format!("cat {file}")))
        .await
        .expect("it has its files");
    let process = format!("/proc/{}", pid.trim());
    until("what was left runs no longer", || {
        let told = std::fs::read_to_string(format!("{process}/stat"));
        told.map_or(true, |told| told.contains(") Z "))
    })
    .await;
}

#[tokio::test]
async fn unsupported_operations_are_named() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    run(&sandbox, script("true")).await.expect("it runs");
    let path = std::path::Path::new("/tmp");
    for (what, failed) in [
        ("pause", sandbox.pause().await),
        (
            "fork",
            stage.sandboxes.fork(&sandbox, 1, |_| {}).await.map(drop),
        ),
        ("pause at the end", {
            let on_expiry = OnExpiry::Pause;
            stage
                .sandboxes
                .create(SandboxSpec {
                    on_expiry,
                    ..spec()
                })
                .await
                .map(drop)
        }),
        ("import", stage.sandboxes.import("mine", path).await),
    ] {
        let error = failed.expect_err(what);
        assert!(
            matches!(error, SandboxError::Unsupported(_)),
            "{what}: {error}"
        );
        let told = error.to_string();
        assert!(
            told.contains("Kubernetes") && told.contains("kubernetes."),
            "{told}"
        );
    }
    assert_eq!(sandbox.status().state, State::Ready);
    assert_eq!(stage.stand_in.state.pods().len(), 1);
}

#[tokio::test]
async fn images_are_configured_names_or_references() {
    let stage = Stage::new().await;
    let image = |image: &str| SandboxSpec {
        image: image.to_owned(),
        ..spec()
    };
    let sandbox = stage
        .sandboxes
        .create(image("registry.example/swe:7"))
        .await
        .expect("one");
    let pod = stage.stand_in.state.pod(&pod(&sandbox));
    assert_eq!(
        pod["spec"]["containers"][0]["image"],
        "registry.example/swe:7"
    );
    for name in ["unknown", "a/b c", "x:$(y)"] {
        let refused = stage.sandboxes.create(image(name)).await.expect_err(name);
        assert!(
            matches!(refused, SandboxError::ImageUnknown(_)),
            "{refused}"
        );
    }
    assert_eq!(stage.sandboxes.images(), ["system"]);
}

#[tokio::test]
async fn a_removal_does_not_wait_and_is_retried() {
    let stage = Stage::new().await;
    stage.stand_in.state.next_become(&["pod_unschedulable"]);
    let waiting = stage.sandbox().await;
    // All immediate attempts fail; a later one succeeds.
    for _ in 0..3 {
        stage.stand_in.state.refuse("DELETE", "status_unavailable");
    }
    let removed = tokio::time::timeout(LONG, stage.sandboxes.remove(waiting.id())).await;
    removed.expect("it is at once");
    assert!(stage.sandboxes.list().is_empty());
    until("the pod is deleted", || {
        stage.stand_in.state.pods().is_empty()
    })
    .await;
}
