//! Tool calls: a chat that offers tools is sometimes answered by a call of one, with arguments that
//! fit its schema. The prompt determines whether and which. After a few results the answer is
//! always text, so that every agent finishes. A user who writes "Rehearse `COMMAND`" determines
//! the calls: each command once, in this order, then text.

mod arguments;

use serde::Deserialize;
use serde_json::Value;

/// Number of results in a conversation after which no tool is called, unless the request requires
/// one.
const RESULTS_MAX: usize = 3;
/// One in this many answers is text although tools are offered.
const TEXT_EVERY: u64 = 4;
/// Parts of the names of tools that run a command or read. They are preferred because they have no
/// side effects in rehearsals.
const PREFERRED: [&str; 6] = ["bash", "command", "exec", "python", "read", "shell"];
/// Precedes a command that a user wants to be run, up to the next backquote.
const REHEARSED: &str = "Rehearse `";

#[derive(Deserialize)]
pub(super) struct Tool {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    parameters: Value,
}

/// A call of a tool.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Call {
    /// The call's id as JSON, with quotes.
    pub(super) id: String,
    /// The tool's name as JSON, with quotes.
    pub(super) name: String,
    /// A JSON object in ASCII.
    pub(super) arguments: String,
}

/// The commands that a user's message wants to be run.
pub(super) fn commands_in(message: &str) -> Vec<String> {
    let parts = message.split(REHEARSED).skip(1);
    let commands = parts.filter_map(|part| part.split_once('`'));
    commands.map(|(command, _)| command.to_owned()).collect()
}

/// The tool call that answers a conversation, or `None` for text. `number` is the same for the same
/// prompt; `commands` are those that its users want to be run.
pub(super) fn call_for(
    tools: &[Tool],
    choice: &Value,
    results: usize,
    number: u64,
    commands: &[String],
) -> Option<Call> {
    let named = choice["function"]["name"].as_str();
    let is_wanted = named.is_some() || choice == "required";
    if choice == "none" {
        return None;
    }
    if !is_wanted && !commands.is_empty() {
        let command = commands.get(results)?;
        return tools.iter().find_map(|tool| {
            let arguments = arguments::running(&tool.function.parameters, number, command)?;
            Some(call_of(tool, number, arguments))
        });
    }
    if !(is_wanted || wants_one(results, number)) {
        return None;
    }
    let is_named = |tool: &&Tool| named.is_none_or(|name| tool.function.name == name);
    let mut fitting: Vec<&Tool> = tools.iter().filter(is_named).collect();
    let is_preferred = |tool: &&Tool| {
        let name = tool.function.name.to_ascii_lowercase();
        PREFERRED.iter().any(|part| name.contains(part))
    };
    // A stable sort: preferred tools first, each group in the request's order.
    fitting.sort_by_key(|tool| !is_preferred(tool));
    let preferred = fitting.iter().filter(|tool| is_preferred(tool)).count();
    let among = if preferred > 0 {
        preferred
    } else {
        fitting.len()
    };
    fitting[..among].rotate_left((number >> 8) as usize % among.max(1));
    fitting.into_iter().find_map(|tool| {
        let arguments = arguments::fitting(&tool.function.parameters, number)?;
        Some(call_of(tool, number, arguments))
    })
}

fn wants_one(results: usize, number: u64) -> bool {
    results < RESULTS_MAX && !number.is_multiple_of(TEXT_EVERY)
}

fn call_of(tool: &Tool, number: u64, arguments: String) -> Call {
    Call {
        id: format!("\"call_{number:016x}\""),
        name: super::frames::json_string(&tool.function.name),
        arguments,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn tools(names: &[&str]) -> Vec<Tool> {
        let tool = |name: &&str| json!({"type": "function", "function": {"name": name}});
        serde_json::from_value(names.iter().map(tool).collect()).expect("tools")
    }

    fn name(tools: &[Tool], choice: &Value, results: usize, number: u64) -> Option<String> {
        Some(call_for(tools, choice, results, number, &[])?.name)
    }

    #[test]
    fn commands_of_users_are_called_once_each_and_in_their_order() {
        let command = json!({
            "type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"],
        });
        let tools = json!([
            {"type": "function", "function": {"name": "read_file"}},
            {"type": "function", "function": {"name": "exec", "parameters": command}},
        ]);
        let tools: Vec<Tool> = serde_json::from_value(tools).expect("tools");
        let commands = commands_in("Rehearse `touch \"a b\"`, then Rehearse `ls`. Rehearse `cut");
        assert_eq!(commands, ["touch \"a b\"", "ls"]);
        for number in 0..20 {
            let call =
                |results, choice: &Value| call_for(&tools, choice, results, number, &commands);
            for (results, command) in commands.iter().enumerate() {
                let call = call(results, &json!("auto")).expect("a call");
                assert_eq!(call.name, "\"exec\"");
                let arguments: Value = serde_json::from_str(&call.arguments).expect("JSON");
                assert_eq!(arguments, json!({"cmd": command}));
            }
            assert_eq!(call(2, &json!("auto")), None);
            assert_eq!(call(0, &json!("none")), None);
        }
        assert_eq!(commands_in("Rehearse it: `ls`"), [""; 0]);
    }

    #[test]
    fn the_choice_is_followed_and_results_end_it() {
        let tools = tools(&["write", "read_file", "Bash"]);
        let (auto, none) = (json!("auto"), json!("none"));
        let required = json!("required");
        let named = json!({"type": "function", "function": {"name": "write"}});
        for number in 0..200 {
            let called = name(&tools, &auto, 0, number);
            assert_eq!(called, name(&tools, &auto, 0, number), "the same again");
            assert_eq!(called.is_none(), number.is_multiple_of(TEXT_EVERY));
            assert!(called.is_none_or(|name| name != "\"write\""));
            assert_eq!(name(&tools, &auto, RESULTS_MAX, number), None);
            assert_eq!(name(&tools, &none, 0, number), None);
            assert!(name(&tools, &required, 99, number).is_some());
            let write = name(&tools, &named, 0, number);
            assert_eq!(write.as_deref(), Some("\"write\""));
        }
        assert_eq!(name(&[], &required, 0, 1), None);
    }
}
