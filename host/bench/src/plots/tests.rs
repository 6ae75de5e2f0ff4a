//! Plots name what they show, and are the same for the same rollouts.

use super::*;

fn moments() -> Vec<Moment> {
    let moment = |second: u32| Moment {
        at_s: f64::from(second),
        active: 320 - 10 * second,
        kv_used: vec![second as f32 / 30.0, 0.5, 0.0],
    };
    (0..30).map(moment).collect()
}

fn scenario(timeline: &[Moment]) -> Scenario<'_> {
    let last = TimeSpent {
        placing_us: 1_000_000,
        queue_and_prefill_us: 4_000_000,
        decode_us: 15_000_000,
        interference_us: 8_000_000,
        tool_us: 3_000_000,
    };
    let course = |system, makespan_s| Course {
        system,
        makespan_s,
        last,
        timeline,
    };
    Scenario {
        title: "search, qwen3-14b, 8 H100".to_owned(),
        file: "search.qwen3-14b".to_owned(),
        bound_s: 20.0,
        courses: vec![course("treadle", 31.0), course("verl & co, <x>", 45.0)],
    }
}

#[test]
fn every_plot_has_a_title_axes_with_units_and_a_legend() {
    let timeline = moments();
    let scenario = scenario(&timeline);
    let folder = tempfile::tempdir().unwrap();
    let paths = write(&folder.path().join("made"), &scenario).unwrap();
    let names: Vec<_> = paths
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    assert_eq!(
        names,
        [
            "search.qwen3-14b.active.svg",
            "search.qwen3-14b.breakdown.svg",
            "search.qwen3-14b.kv.treadle.svg",
            "search.qwen3-14b.kv.verl-co-x.svg",
        ]
    );
    let texts: Vec<String> = paths
        .iter()
        .map(|p| std::fs::read_to_string(p).unwrap())
        .collect();
    for text in &texts {
        assert!(text.starts_with("<svg") && text.contains("search, qwen3-14b, 8 H100"));
        assert!(!text.contains("<x>"), "names are escaped");
    }
    for (text, words) in texts.iter().zip([
        &[
            "in seconds",
            "programs that have not ended",
            "treadle: 31 s",
        ][..],
        &[
            "time, in seconds",
            "interference",
            "queue and prefill",
            "bound: 20 s",
        ],
        &["in seconds", "worker", "% of KV memory"],
        &["in seconds", "worker", "% of KV memory"],
    ]) {
        for word in words {
            assert!(text.contains(word), "{word}");
        }
    }
    let again = write(folder.path(), &scenario).unwrap();
    for (path, text) in again.iter().zip(&texts) {
        assert_eq!(&std::fs::read_to_string(path).unwrap(), text);
    }
}

#[test]
fn a_rollout_without_a_timeline_draws_too() {
    let scenario = scenario(&[]);
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(write(folder.path(), &scenario).unwrap().len(), 4);
}

#[test]
fn a_folder_that_cannot_be_created_is_an_error() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = write(file.path(), &scenario(&[])).unwrap_err().to_string();
    assert!(
        error.starts_with("--plots ") && error.ends_with("can be written"),
        "{error}"
    );
}
