//! Writes runs as a trace.

use std::io::{self, Write};

use serde_json::json;

use crate::workload::{AgentRun, ToolResult};

/// Writes runs so that [`load_trace`](super::load_trace) with a divisor of 1 returns them, if no
/// tool exceeds its cap and no run drops only its last answer.
///
/// # Errors
/// The writer's error.
pub fn write_trace(runs: &[AgentRun], mut to: impl Write) -> io::Result<()> {
    for run in runs {
        let steps: Vec<_> = run
            .steps
            .iter()
            .map(|step| {
                let gap_s = step.tool_us as f64 / 1e6;
                let mut fields = vec![
                    json!(step.input_tokens),
                    json!(step.reused_tokens),
                    json!(step.output_tokens),
                    json!(gap_s),
                ];
                if step.tool_result != ToolResult::None {
                    fields.push(json!(step.tool_result.name()));
                }
                fields
            })
            .collect();
        let line = json!({
            "id": run.id,
            "group": run.group.to_string(),
            "system_tokens": run.system_tokens,
            "group_tokens": run.group_tokens,
            "steps": steps,
        });
        writeln!(to, "{line}")?;
    }
    Ok(())
}
