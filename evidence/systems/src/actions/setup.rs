//! The set-up of the paper, as far as it is published, and its figures.

use treadle_simulator::actions::Pods;

/// Cores of a node (§6.1).
pub(super) const NODE_CORES: u32 = 256;
/// What starting an action takes, in seconds, for all systems: the overhead of Table 1 at batch
/// 1,280.
pub(super) const EXEC_S: f64 = 0.024;
/// What starting a container takes, in seconds: chosen.
pub(super) const CONTAINER_S: f64 = 1.0;
/// Time until a pod runs, in seconds: the service-level objective of Kubernetes for 99% of pods.
const POD_START_S: f64 = 5.0;
/// Pods that the control plane starts in a second: chosen; Kubernetes publishes no rate for a
/// cluster of five nodes.
const POD_STARTS_PER_S: f64 = 20.0;
/// Cores that a pod requests, in thousandths, and its limit (§6.1).
pub(super) const PAPER_POD: (u64, u32) = (500, 4);

/// Pods of a cluster.
pub(super) fn pods(nodes: u32, node_cores: u32, request_milli: u64, limit: u32) -> Pods {
    Pods {
        nodes,
        node_cores,
        request_milli,
        limit,
        start_s: POD_START_S,
        starts_per_s: POD_STARTS_PER_S,
        exec_s: EXEC_S,
    }
}

/// Pods that cost nothing to start.
pub(super) fn ready(pods: &Pods) -> Pods {
    Pods {
        start_s: 0.0,
        starts_per_s: 1e9,
        ..pods.clone()
    }
}

/// The unit of a figure, by its name.
pub(super) fn unit(name: &str) -> &'static str {
    if name.contains("steps_per_min") {
        "steps/min"
    } else if name.contains(".s.") {
        "s"
    } else if name.contains(".us.") {
        "us"
    } else if name.contains(".count.") {
        "count"
    } else {
        "ratio"
    }
}

/// The paper's figures, by the names of ours.
const PAPER: &[(&str, &str)] = &[
    (
        "coding.ratio.pods.batch0128",
        "3.1 at the least of batches 128 to 1536",
    ),
    (
        "coding.ratio.pods.batch1280",
        "4.3 (4.33 in Figure 8(a) right)",
    ),
    ("coding.ratio.pods.batch1536", "27.7, with queuing timeouts"),
    (
        "coding.ratio.pods.cores0768",
        "1.89 at the least of its cores",
    ),
    (
        "coding.ratio.pods.cores1280",
        "4.33 at the most of its cores",
    ),
    ("coding.ratio.fixed4.batch0256", "2.0 (Figure 9)"),
    ("coding.ratio.fixed16.batch1280", "3.0 (Figure 9)"),
    ("coding.ratio.fixed4.cores1280", "1.8 (Figure 9, 1x cores)"),
    ("coding.ratio.pods_commands.batch1280", "9.0 (Figure 7)"),
    ("coding.ratio.pods_tests.batch1280", "2.8 (Figure 7)"),
    ("coding.active.pods.batch1280", "0.47 (Figure 3(c))"),
    (
        "coding.s.queue.batch1280",
        "0.015 (Table 1, unit not given)",
    ),
    ("coding.s.overhead.batch1280", "0.024 (Table 1)"),
    ("coding.s.run.batch1280", "0.975 (Table 1)"),
    ("coding.s.queue.batch1536", "0.428 (Table 1)"),
    ("coding.s.overhead.batch1536", "0.036 (Table 1)"),
    ("coding.s.run.batch1536", "1.206 (Table 1)"),
    ("coding.ratio.batch1536_to_0128", "below 2 (Figure 8(a))"),
    ("services.ratio.always.batch1024", "3.4 (Figure 8(b))"),
    ("services.ratio.always.batch2048", "18.1 (Figure 8(b))"),
    ("services.ratio.always.batch0128", "below 1 (Figure 8(b))"),
    ("services.ratio.on_demand.batch1024", "101.8 (Figure 8(b))"),
    ("services.ratio.on_demand.batch2048", "fails (Figure 8(b))"),
    ("services.share.saved.batch1024", "0.712 (Figure 8(b))"),
    ("services.share.overhead.batch2048", "about 0.25 (Table 1)"),
    ("services.s.queue.batch2048", "0.081 (Table 1, MOPD)"),
    ("services.s.overhead.batch2048", "0.201 (Table 1, MOPD)"),
    ("services.s.run.batch2048", "0.621 (Table 1, MOPD)"),
];

/// The paper's figure beside ours.
pub(super) fn paper(name: &str) -> Option<&'static str> {
    let found = PAPER.iter().find(|(ours, _)| *ours == name);
    found.map(|(_, paper)| *paper)
}
