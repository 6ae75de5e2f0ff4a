//! Compares the SDKs for Python and TypeScript, their templates, the recorded inputs and the guide
//! with the contract in `wit/`. For the SDK for Rust the compiler does that.

use std::collections::BTreeSet;

use crate::none;
use crate::tree::{names, read};

/// Methods of a template that no interface of a world has.
const COMMON: &[&str] = &["snapshot", "restore"];

type Names = BTreeSet<String>;

/// The interface of a world.
struct Interface {
    world: String,
    functions: Vec<Function>,
    /// Names of records with the names of their fields.
    records: Vec<(String, Vec<String>)>,
}

/// A function with the names and types of its parameters.
struct Function {
    name: String,
    parameters: Vec<(String, String)>,
}

impl Interface {
    fn of(world: &str) -> Self {
        let text = read(&format!("wit/{world}.wit"));
        let (mut functions, mut records) = (Vec::new(), Vec::<(String, Vec<String>)>::new());
        let mut in_record = false;
        for line in text.lines().map(str::trim) {
            if let Some(rest) = line.strip_prefix("record ") {
                records.push((rest.trim_end_matches(" {").to_owned(), Vec::new()));
                in_record = true;
            } else if line == "}" {
                in_record = false;
            } else if let Some((name, rest)) = line.split_once(": func(") {
                let list = rest.split(')').next().unwrap_or_default().split(", ");
                let parameter = |text: &str| {
                    let (name, kind) = text.split_once(": ").expect("a parameter has a type");
                    (name.to_owned(), kind.to_owned())
                };
                functions.push(Function {
                    name: name.to_owned(),
                    parameters: list.map(parameter).collect(),
                });
            } else if let (true, Some((field, _))) = (in_record, line.split_once(": "))
                && !line.starts_with("//")
                && let Some((_, fields)) = records.last_mut()
            {
                fields.push(field.to_owned());
            }
        }
        assert!(!functions.is_empty(), "wit/{world}.wit has no functions");
        Self {
            world: world.to_owned(),
            functions,
            records,
        }
    }

    fn all() -> Vec<Self> {
        let worlds = names("sdk/inputs");
        let worlds = worlds.iter().filter_map(|name| name.strip_suffix(".jsonl"));
        let all: Vec<_> = worlds.map(Self::of).collect();
        assert!(all.len() > 5, "{} worlds", all.len());
        all
    }

    fn function_names(&self, style: fn(&str) -> String) -> Names {
        self.functions
            .iter()
            .map(|each| style(&each.name))
            .collect()
    }

    /// Functions with their parameters, such as `score(programs)`.
    fn signatures(&self, style: fn(&str) -> String) -> Names {
        let signature = |each: &Function| {
            let parameters = each.parameters.iter().map(|(name, _)| style(name));
            let parameters: Vec<_> = parameters.collect();
            format!("{}({})", style(&each.name), parameters.join(", "))
        };
        self.functions.iter().map(signature).collect()
    }

    /// Records that policies are given. An SDK adds the further parameters of a function to its
    /// first one.
    fn columns(&self, style: fn(&str) -> String) -> Vec<(String, Names)> {
        let given = self
            .records
            .iter()
            .filter(|(name, _)| name.ends_with("-columns"));
        let fields = |(record, fields): &(String, Vec<String>)| {
            let function = self
                .functions
                .iter()
                .find(|each| &each.parameters[0].1 == record);
            let beside = function.map_or(&[][..], |each| &each.parameters[1..]);
            let all = fields.iter().chain(beside.iter().map(|(name, _)| name));
            (pascal(record), all.map(|name| style(name)).collect())
        };
        given.map(fields).collect()
    }
}

fn kebab(name: &str) -> String {
    name.to_owned()
}

fn snake(name: &str) -> String {
    name.replace('-', "_")
}

fn pascal(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('-').map(word).collect()
}

fn camel(name: &str) -> String {
    let pascal = pascal(name);
    pascal[..1].to_lowercase() + &pascal[1..]
}

/// The lines from the one that contains a text up to the next one of the same or less indentation.
fn block<'t>(text: &'t str, opening: &str) -> Vec<&'t str> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| !line.contains(opening));
    let Some(first) = lines.next() else {
        return Vec::new();
    };
    let is_inside = |line: &&str| line.is_empty() || indent(line) > indent(first);
    lines.take_while(is_inside).collect()
}

/// The name that a line begins with after some text, and the line's rest.
fn named<'t>(line: &'t str, before: &str) -> Option<(&'t str, &'t str)> {
    let rest = line.strip_prefix(before)?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))?;
    (end > 0).then(|| rest.split_at(end))
}

/// Methods with the names of their parameters.
fn methods(lines: &[&str], before: &str) -> Names {
    let method = |line: &&str| {
        let (name, rest) = named(line, before)?;
        let list = rest
            .trim_start_matches('?')
            .strip_prefix('(')?
            .split(')')
            .next()?;
        let names = list.split(", ").filter_map(|each| each.split(':').next());
        let names: Vec<_> = names.filter(|name| *name != "self").collect();
        Some(format!("{name}({})", names.join(", ")))
    };
    lines.iter().filter_map(method).collect()
}

/// Methods without their parameters.
fn method_names(lines: &[&str], before: &str) -> Names {
    let all = methods(lines, before).into_iter();
    all.filter_map(|each| Some(each.split('(').next()?.to_owned()))
        .collect()
}

fn fields(lines: &[&str], before: &str) -> Names {
    let field = |line: &&str| {
        let (name, rest) = named(line, before)?;
        rest.starts_with(": ").then(|| name.to_owned())
    };
    lines.iter().filter_map(field).collect()
}

/// Adds a line if names differ from those of the contract.
fn compare(differ: &mut Vec<String>, place: &str, found: &Names, contract: &Names) {
    if found != contract {
        differ.push(format!("{place} has {found:?}, the contract {contract:?}"));
    }
}

#[test]
fn the_sdk_for_python_has_the_functions_and_columns_of_the_contract() {
    let mut differ = Vec::new();
    for interface in Interface::all() {
        let path = format!("sdk/python/treadle_plugin/{}.py", interface.world);
        let text = read(&path);
        let exported = format!("    class {}Policy:", pascal(&interface.world));
        let exported = methods(&block(&text, &exported), "        def ");
        compare(&mut differ, &path, &exported, &interface.signatures(snake));
        let written = method_names(&block(&text, "class Policy(policy.Policy):"), "    def ");
        compare(
            &mut differ,
            &path,
            &written,
            &interface.function_names(snake),
        );
        for (record, contract) in interface.columns(snake) {
            let found = fields(&block(&text, &format!("class {record}(Columns):")), "    ");
            compare(&mut differ, &format!("{path}: {record}"), &found, &contract);
        }
    }
    none("the SDK for Python differs from the contract", &differ);
}

#[test]
fn the_sdk_for_typescript_has_the_functions_and_columns_of_the_contract() {
    let mut differ = Vec::new();
    for interface in Interface::all() {
        let path = format!("sdk/typescript/src/{}.ts", interface.world);
        let text = read(&path);
        let name = pascal(&interface.world);
        let exported = methods(&block(&text, &format!("interface {name}Exports {{")), "  ");
        compare(&mut differ, &path, &exported, &interface.signatures(camel));
        let written = method_names(&block(&text, &format!("interface {name}Policy<")), "  ");
        compare(
            &mut differ,
            &path,
            &written,
            &interface.function_names(camel),
        );
        for (record, contract) in interface.columns(camel) {
            let lines = block(&text, &format!("interface {record} {{"));
            let found = fields(&lines, "  readonly ");
            compare(&mut differ, &format!("{path}: {record}"), &found, &contract);
        }
    }
    none("the SDK for TypeScript differs from the contract", &differ);
}

#[test]
fn templates_inputs_and_the_guide_name_the_functions_of_the_contract() {
    let mut differ = Vec::new();
    let guide = read("docs/guides/write-a-policy.md");
    for interface in Interface::all() {
        let world = &interface.world;
        let mut is_known = |path: &str, opening: &str, before: &str, style: fn(&str) -> String| {
            let mut known = interface.function_names(style);
            known.extend(COMMON.iter().map(|name| (*name).to_owned()));
            let written = method_names(&block(&read(path), opening), before);
            let unknown: Vec<_> = written.difference(&known).collect();
            if written.is_empty() || !unknown.is_empty() {
                differ.push(format!("{path} writes {written:?} of {known:?}"));
            }
        };
        let template = format!("sdk/python/template/policies/{world}.py");
        is_known(&template, &format!("({world}.Policy):"), "    def ", snake);
        let template = format!("sdk/typescript/template/policies/{world}.ts");
        is_known(&template, "export const { plugin, ", "  ", camel);

        let path = format!("sdk/inputs/{world}.jsonl");
        let functions = read(&path)
            .lines()
            .map(|line| {
                let call: serde_json::Value = serde_json::from_str(line).expect("a line is JSON");
                call["function"].as_str().unwrap_or_default().to_owned()
            })
            .collect();
        compare(
            &mut differ,
            &path,
            &functions,
            &interface.function_names(kebab),
        );

        let row = guide
            .lines()
            .find(|line| line.starts_with(&format!("| `{world}` |")));
        let cells = row
            .unwrap_or_default()
            .split('|')
            .skip(3)
            .collect::<String>();
        let named = cells
            .split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect();
        compare(
            &mut differ,
            "the guide",
            &named,
            &interface.function_names(kebab),
        );
    }
    none("what differs from the contract", &differ);
}
