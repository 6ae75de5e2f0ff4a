//! A small comparison suite, compared byte for byte with one that was reviewed.
//!
//! It changes with every change of a policy or of the simulator: `UPDATE_DOCS=1` writes the file
//! again, to be reviewed like code.

use std::path::Path;
use treadle_rollouts::comparison::{Part, Suite, SuiteOptions};
use treadle_simulator::workload::{AgentModel, AgentTask};

#[test]
fn the_small_suite_is_the_golden_one() {
    let options = SuiteOptions {
        tasks: vec![AgentTask::Search],
        models: vec![AgentModel::Qwen3Of14B],
        parts: vec![Part::Systems],
        gpus: 8,
        prompts: 20,
        ..SuiteOptions::default()
    };
    let suite = Suite::run(&options, &|_| ()).unwrap();
    let found = serde_json::to_string_pretty(&suite).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tournament.json");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(
        found == golden,
        "{} is stale; run with UPDATE_DOCS=1",
        path.display()
    );
}
