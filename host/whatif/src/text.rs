//! A report as text. It is made from a daemon's JSON, so that both forms of what-if replay look the
//! same.

use serde_json::Value;
use std::fmt::Write;
use treadle_report::table::table;

/// Columns: head, position in a set, digits after the point.
const FIGURES: [(&str, &str, usize); 13] = [
    ("makespan s", "makespan_s", 1),
    ("steps/min", "steps_per_min", 1),
    ("hit rate", "hit_rate", 3),
    ("p50 s", "step_p50_s", 2),
    ("p95 s", "step_p95_s", 2),
    ("p99 s", "step_p99_s", 2),
    ("fairness", "fairness", 3),
    ("jobs' fairness", "job_fairness", 3),
    ("pauses", "pauses", 0),
    ("moves", "moves", 0),
    ("preempted", "preemptions", 0),
    ("offloaded", "offloads", 0),
    ("migrated", "migrations", 0),
];
/// Columns that are omitted if they are 0 for all sets.
const RARE: [&str; 2] = ["offloads", "migrations"];
/// What the replay may leave out or change.
const CUTS: [(&str, &str); 11] = [
    (
        "programs_begun_before",
        "programs had begun before the window",
    ),
    ("programs_open_at_end", "programs were open at its end"),
    (
        "programs_left",
        "programs were abandoned by their clients: they end with their last answer",
    ),
    (
        "programs_without_answer",
        "programs without an answer are left out",
    ),
    ("steps_open_at_end", "steps running at its end are left out"),
    (
        "steps_unheard_of",
        "steps without further events, such as refused ones, are left out",
    ),
    (
        "steps_without_answer",
        "steps that failed or were withdrawn are left out",
    ),
    (
        "steps_overlapping",
        "steps overlapped others of their program, and are replayed after them",
    ),
    (
        "steps_compacted",
        "prompts had shrunk: the reused part is a guess",
    ),
    (
        "actions_left_out",
        "actions of tools that began before their program's first answer are left out",
    ),
    ("worker_changes", "changes of engines are not replayed"),
];

/// The whole report.
pub fn text(report: &Value) -> String {
    let mut text = String::new();
    let count = |name: &str| report[name].as_u64().unwrap_or(0);
    let _ = writeln!(
        text,
        "{} programs with {} steps ({} took the slot of another, {} waves) on {} like {}, {} seeds",
        count("programs"),
        count("steps"),
        count("seat_takers"),
        count("waves"),
        engines(report),
        report["profile"].as_str().unwrap_or("?"),
        count("seeds"),
    );
    if let Some(scenario) = report["scenario"].as_str() {
        let _ = writeln!(text, "{scenario}");
    }
    let cut = &report["cut_short"];
    if cut.is_object() {
        let number = |name: &str| cut[name].as_u64().unwrap_or(0);
        let _ = writeln!(
            text,
            "CUT SHORT after {} s: {} of {} replays could be made, and the others are not in this.",
            number("limit_s"),
            number("replays"),
            number("replays_asked"),
        );
    }
    let _ = writeln!(text, "\n{}", figures(report));
    for (name, meaning) in CUTS {
        let cut = report["cuts"][name].as_u64().unwrap_or(0);
        if cut > 0 {
            let _ = writeln!(text, "{cut} {meaning}.");
        }
    }
    let sets = report["sets"].as_array().map_or(&[][..], Vec::as_slice);
    let first = sets.first().and_then(|set| set["name"].as_str());
    for set in sets {
        unfinished(&mut text, set);
        against_first(&mut text, set, first.unwrap_or("?"));
    }
    let (took, speed) = (&report["took_s"], &report["speed"]);
    let _ = writeln!(
        text,
        "\nreplayed in {:.1} s, {:.0} times as fast as the recorded clock",
        took.as_f64().unwrap_or(0.0),
        speed.as_f64().unwrap_or(0.0)
    );
    text
}

/// The number of engines, and their sizes.
fn engines(report: &Value) -> String {
    let kv = report["kv_tokens"].as_array().into_iter().flatten();
    let kv: Vec<u64> = kv.filter_map(Value::as_u64).collect();
    let (least, most) = (kv.iter().min().unwrap_or(&0), kv.iter().max().unwrap_or(&0));
    let sizes = if least == most {
        format!("{least}")
    } else {
        format!("{least} to {most}")
    };
    format!("{} engines with {sizes} tokens of KV memory each", kv.len())
}

fn figures(report: &Value) -> String {
    let sets = || report["sets"].as_array().into_iter().flatten();
    let is_there = |name: &str| {
        let any = || sets().any(|set| set[name]["mean"].as_f64() > Some(0.0));
        !RARE.contains(&name) || any()
    };
    let shown: Vec<_> = FIGURES
        .into_iter()
        .filter(|(_, name, _)| is_there(name))
        .collect();
    let mut heads = vec!["set"];
    heads.extend(shown.iter().map(|(head, _, _)| *head));
    let mut rows = Vec::new();
    if report["recorded"].is_object() {
        let recorded = &report["recorded"];
        let mut row = vec!["(recorded)".to_owned()];
        row.extend(shown.iter().map(|&(_, name, digits)| {
            let value = recorded[name].as_f64();
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        }));
        rows.push(row);
    }
    for set in sets() {
        let mut row = vec![set["name"].as_str().unwrap_or("?").to_owned()];
        let figures = shown.iter();
        row.extend(figures.map(|&(_, name, digits)| estimate(&set[name], digits)));
        rows.push(row);
    }
    table(&heads, &rows)
}

fn estimate(value: &Value, digits: usize) -> String {
    let mean = value["mean"].as_f64().unwrap_or(f64::NAN);
    match value["half_width"].as_f64() {
        Some(half) => format!("{mean:.digits$} ±{half:.digits$}"),
        None => format!("{mean:.digits$}"),
    }
}

fn unfinished(text: &mut String, set: &Value) {
    let name = set["name"].as_str().unwrap_or("?");
    let count = |field: &str| set[field].as_u64().unwrap_or(0);
    if count("given_up") > 0 {
        let _ = writeln!(
            text,
            "{name} was cancelled under {} seeds: some programs would hardly ever have ended.",
            count("given_up")
        );
    }
    policies(text, name, &set["policies"]);
    if count("refused") > 0 {
        let _ = writeln!(text, "{name} refused {} steps.", count("refused"));
    }
}

/// Warns if the built-in default answered for policies of the set.
fn policies(text: &mut String, name: &str, told: &Value) {
    let count = |field: &str| told[field].as_u64().unwrap_or(0);
    let (faults, fallbacks) = (count("faults"), count("fallbacks"));
    let questions = count("answered") + fallbacks;
    let latest = told["latest_fault"].as_str().unwrap_or("?");
    if count("given_up") > 0 {
        let _ = writeln!(
            text,
            "THE POLICIES OF {name} WERE ROLLED BACK, AND THESE FIGURES ARE NOT THEIRS: the built-in default answered {fallbacks} of {questions} questions, and all later ones. {faults} failed, the latest: {latest}"
        );
    } else if faults > 0 {
        let _ = writeln!(
            text,
            "THE POLICIES OF {name} FAILED in {faults} of {questions} questions, which the built-in default answered; the latest: {latest}"
        );
    } else if questions > 0 && count("answered") == 0 {
        let _ = writeln!(
            text,
            "The policies of {name} left all {questions} questions to the built-in default."
        );
    }
}

fn against_first(text: &mut String, set: &Value, first: &str) {
    let change = &set["against_first"];
    if !change.is_object() {
        return;
    }
    let name = set["name"].as_str().unwrap_or("?");
    let _ = writeln!(
        text,
        "\n{name} against {first}: makespan x{}, steps/min x{}, p99 x{}; {} programs with different decisions",
        estimate(&change["makespan_ratio"], 3),
        estimate(&change["steps_per_min_ratio"], 3),
        estimate(&change["step_p99_ratio"], 3),
        change["programs_decided_otherwise"].as_u64().unwrap_or(0),
    );
    let differences = change["differences"].as_array();
    for difference in differences.into_iter().flatten() {
        let program = difference["program"].as_str().unwrap_or("?");
        let _ = writeln!(text, "  {program}");
        for (set, side) in [(first, "ours"), (name, "theirs")] {
            let _ = writeln!(text, "    {set}: {}", choice(&difference[side]));
        }
    }
}

fn choice(choice: &Value) -> String {
    if !choice.is_object() {
        return "no further decision".to_owned();
    }
    let word = |name: &str| choice[name].as_str().unwrap_or("?").replace('_', " ");
    let number = |name: &str| choice[name].as_f64().unwrap_or(f64::NAN);
    let capacity = choice["capacity_tokens"].as_u64();
    let mut text = format!(
        "{:.1} s  {} on engine {} by {}: {} (needs {}, {} of {} tokens used, waited {:.1} s",
        number("at_s"),
        word("kind"),
        choice["worker"].as_u64().unwrap_or(0),
        choice["policy"].as_str().unwrap_or("?"),
        word("because"),
        choice["need_tokens"].as_u64().unwrap_or(0),
        choice["used_tokens"].as_u64().unwrap_or(0),
        capacity.map_or_else(|| "?".to_owned(), |tokens| tokens.to_string()),
        number("waited_s"),
    );
    if let Some(score) = choice["score"].as_f64() {
        let _ = write!(text, ", score {score:.4}");
    }
    text.push(')');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(set: &Value) -> Value {
        json!({"programs": 3, "steps": 9, "kv_tokens": [10, 20], "sets": [set]})
    }

    #[test]
    fn a_set_whose_policies_failed_is_marked_in_capitals() {
        let told = |policies: Value| text(&report(&json!({"name": "mine", "policies": policies})));
        let given_up = told(json!({
            "answered": 1, "fallbacks": 8, "faults": 5, "given_up": 1, "latest_fault": "no column",
        }));
        let wanted = "THE POLICIES OF mine WERE ROLLED BACK";
        assert!(
            given_up.contains(wanted) && given_up.contains("8 of 9 questions"),
            "{given_up}"
        );
        assert!(given_up.contains("the latest: no column"));
        let failed = told(json!({"answered": 8, "fallbacks": 1, "faults": 1}));
        assert!(failed.contains("FAILED in 1 of 9 questions"), "{failed}");
        let fine = told(json!({"answered": 9, "fallbacks": 2, "faults": 0}));
        assert!(!fine.contains("POLICIES"), "{fine}");
    }

    #[test]
    fn the_report_names_the_replayed_window_and_engines() {
        let mut report = report(&json!({"name": "mine", "offloads": {"mean": 2.0}}));
        report["scenario"] = json!("a trace divided by 4");
        report["cut_short"] = json!({"limit_s": 9, "replays": 2, "replays_asked": 6});
        let told = text(&report);
        for wanted in [
            "2 engines with 10 to 20 tokens of KV memory each",
            "a trace divided by 4",
            "CUT SHORT after 9 s: 2 of 6 replays",
            "offloaded",
        ] {
            assert!(told.contains(wanted), "{wanted}: {told}");
        }
        assert!(!told.contains("migrated"));
    }
}
