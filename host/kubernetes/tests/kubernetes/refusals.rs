//! Refusals of the API server, and invalid configurations.

use std::sync::Arc;

use treadle_kubernetes::{Kubernetes, KubernetesConfig};
use treadle_sandbox::{SandboxConfig, SandboxError, Sandboxes, State};

use crate::stage::{Stage, config, lists, pod, run, script, until};
use crate::stand_in::StandIn;

#[tokio::test]
async fn no_room_in_the_cluster_is_no_room_here() {
    let stage = Stage::new().await;
    for status in ["status_quota", "status_too_many_requests"] {
        stage.stand_in.state.refuse("POST", status);
        let refused = stage.create().await.expect_err(status);
        assert!(matches!(refused, SandboxError::NoRoom(_)), "{refused}");
        assert!(stage.sandboxes.list().is_empty(), "it is not on record");
    }
    let folder = stage.folder.path().join("sandboxes");
    until("nothing is left of them", || {
        std::fs::read_dir(&folder)
            .expect("a folder")
            .next()
            .is_none()
    })
    .await;
    run(&stage.sandbox().await, script("true"))
        .await
        .expect("there is room now");
}

#[tokio::test]
async fn forbidden_requests_name_the_remedy() {
    let stage = Stage::new().await;
    stage.stand_in.state.refuse("POST", "status_forbidden");
    let refused = stage.create().await.expect_err("no rights");
    let told = refused.to_string();
    assert!(matches!(refused, SandboxError::Preparation(_)), "{told}");
    assert!(
        told.contains("cannot create resource") && told.contains("docs/sandboxes.md"),
        "{told}"
    );
}

#[tokio::test]
async fn a_namespace_that_is_not_there_is_named() {
    let stage = Stage::new().await;
    stage.stand_in.state.refuse("POST", "status_not_found");
    let refused = stage.create().await.expect_err("no namespace");
    assert!(
        refused.to_string().contains("kubernetes.namespace"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_quota_conflict_is_retried_and_a_foreign_pod_is_kept() {
    let stage = Stage::new().await;
    stage.stand_in.state.refuse("POST", "status_quota_conflict");
    stage.stand_in.state.refuse("POST", "status_quota_conflict");
    let sandbox = stage.sandbox().await;
    run(&sandbox, script("true")).await.expect("it was made");
    for _ in 0..3 {
        stage.stand_in.state.refuse("POST", "status_quota_conflict");
    }
    stage.create().await.expect_err("three in a row");
    // The name is taken, but the pod does not exist or belongs to another agent.
    stage.stand_in.state.refuse("POST", "status_already_exists");
    stage.create().await.expect_err("it is not there");
    assert_eq!(stage.stand_in.state.pods(), [pod(&sandbox)]);
}

#[tokio::test]
async fn a_pod_that_never_becomes_ready_fails_with_the_clusters_reason() {
    let stage = Stage::new().await;
    stage
        .stand_in
        .state
        .next_become(&["pod_unschedulable", "pod_image_pull_back_off"]);
    let (unscheduled, without_image) = (stage.sandbox().await, stage.sandbox().await);
    let late = run(&unscheduled, script("true"))
        .await
        .expect_err("never ready");
    let told = late.to_string();
    assert!(
        told.contains("Insufficient memory") && told.contains("ready_s_max"),
        "{told}"
    );
    let none = run(&without_image, script("true"))
        .await
        .expect_err("no image");
    assert!(none.to_string().contains("ImagePullBackOff"), "{none}");
    assert!(matches!(unscheduled.status().state, State::Failed(_)));
    until("failed pods take no room", || {
        stage.stand_in.state.pods().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_command_that_the_api_server_can_not_start_is_no_fault_of_the_client() {
    let stage = Stage::new().await;
    let sandbox = stage.sandbox().await;
    run(&sandbox, script("true")).await.expect("it runs");
    // The next refused request is the start of a command.
    until("it watches", || lists(&stage, true) > 0).await;
    let refused = async |status| {
        stage.stand_in.state.refuse("GET", status);
        run(&sandbox, script("true")).await.expect_err(status)
    };
    let busy = refused("status_unavailable").await;
    assert!(matches!(busy, SandboxError::System(..)), "{busy}");
    let forbidden = refused("status_forbidden").await;
    assert!(
        matches!(&forbidden, SandboxError::Command(told) if told.contains("docs/sandboxes.md")),
        "{forbidden}"
    );
    let gone = refused("status_not_found").await;
    assert!(matches!(gone, SandboxError::Gone), "{gone}");
}

async fn refused(change: impl FnOnce(&mut KubernetesConfig)) -> String {
    let stand_in = StandIn::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(&stand_in, folder.path());
    change(&mut config);
    let opened = Kubernetes::open(config).await;
    opened.expect_err("it can't be opened").to_string()
}

#[tokio::test]
async fn a_wrong_kubeconfig_is_named_with_the_remedy() {
    let missing = refused(|config| config.kubeconfig = Some("/no/such/file".into())).await;
    assert!(
        missing.contains("`kubernetes.kubeconfig` names /no/such/file"),
        "{missing}"
    );
    assert!(missing.contains("name a readable kubeconfig"), "{missing}");

    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "clusters: {").expect("written");
    let broken = refused(|config| config.kubeconfig = Some(path.clone())).await;
    assert!(
        broken.contains("`kubernetes.kubeconfig`") && broken.contains("not a kubeconfig"),
        "{broken}"
    );
    std::fs::write(&path, "apiVersion: v1\nkind: Config\n").expect("written");
    let empty = refused(|config| config.kubeconfig = Some(path)).await;
    assert!(
        empty.contains("`kubernetes.kubeconfig`") && empty.contains("lacks"),
        "{empty}"
    );

    let context = refused(|config| config.context = Some("elsewhere".to_owned())).await;
    assert!(
        context.contains("`kubernetes.context` is elsewhere"),
        "{context}"
    );
    let images = refused(|config| config.images.clear()).await;
    assert!(
        images.contains("`kubernetes.images` has no `system=`"),
        "{images}"
    );
}

#[tokio::test]
async fn a_daemon_that_may_not_list_its_pods_does_not_start() {
    let stand_in = StandIn::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    // The watch of the pods sends requests too.
    for _ in 0..5 {
        stand_in.state.refuse("GET", "status_forbidden");
    }
    let cluster = Kubernetes::open(config(&stand_in, folder.path())).await;
    let none = std::path::PathBuf::new();
    let settings = SandboxConfig::new(none, Vec::new(), folder.path().to_owned(), vec![0]);
    let started = Sandboxes::start_on(Arc::new(cluster.expect("a client")), settings).await;
    let told = started.expect_err("no rights").to_string();
    assert!(told.contains("the pods of the cluster"), "{told}");
    assert!(told.contains("docs/sandboxes.md"), "{told}");
}

#[tokio::test]
async fn doctor_reports_whether_the_cluster_answers() {
    let stand_in = StandIn::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(&stand_in, folder.path());
    let found = Kubernetes::look(&config).await.expect("it answers");
    assert!(found.contains("pods may be listed"), "{found}");
    stand_in.state.refuse("GET", "status_forbidden");
    let told = Kubernetes::look(&config)
        .await
        .expect_err("no rights")
        .to_string();
    assert!(told.contains("docs/sandboxes.md"), "{told}");
    let kubeconfig = stand_in.kubeconfig();
    drop(stand_in);
    let gone = Kubernetes::look(&KubernetesConfig {
        kubeconfig: Some(kubeconfig),
        ..config
    })
    .await;
    assert!(gone.is_err(), "nobody is there");
    assert!(
        !folder.path().join("kubernetes-owner").exists(),
        "nothing is changed"
    );
}
