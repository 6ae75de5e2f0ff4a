//! The commands in the documentation: each block is run by a test or marked with the reason why
//! not, and blocks that are not run only use existing commands.

#[allow(unreachable_pub, reason = "a library has it too")]
#[path = "../../../../tests/support/pages.rs"]
mod blocks;

use blocks::{Block, FOLLOWED, Mark, blocks, pages};

use crate::cluster::repository;

/// Separators of commands.
const ENDS: [&str; 5] = ["&&", "||", "|", ";", "&"];

/// The commands of a program in a block, as words.
fn commands(block: &Block<'_>, program: &str) -> Vec<Vec<String>> {
    let path = format!("/{program}");
    let mut found = Vec::new();
    // A trailing backslash continues a line.
    for line in block.text.replace("\\\n", " ").lines() {
        let words = shlex::split(line).unwrap_or_default();
        let parts = words.split(|word| ENDS.contains(&&**word));
        let named = |words: &&[String]| {
            let first = words.first();
            first.is_some_and(|name| name == program || name.ends_with(&path))
        };
        found.extend(parts.filter(named).map(<[String]>::to_vec));
    }
    found
}

#[test]
fn every_block_is_run_or_says_why_not_and_names_commands_that_there_are() {
    let root = repository();
    let makefile = std::fs::read_to_string(root.join("Makefile")).expect("it is there");
    let (mut faults, mut checked) = (Vec::new(), 0);
    for path in pages(&root) {
        let text = std::fs::read_to_string(&path).expect("it can be read");
        let page = path
            .strip_prefix(&root)
            .expect("within")
            .display()
            .to_string();
        for block in blocks(&text) {
            let mut fault = |what: String| faults.push(format!("{page}:{}: {what}", block.line));
            if let Some(complaint) = block.complaint() {
                fault(complaint);
            }
            if !block.is_commands() {
                continue;
            }
            if !matches!(block.mark, Some(Mark::NotRun(_))) {
                if !FOLLOWED.contains(&&*page) {
                    fault("no test follows this page; add it to FOLLOWED, or a mark".to_owned());
                }
                continue;
            }
            for words in commands(&block, "make") {
                let target = words.get(1).map_or("", String::as_str);
                if !makefile.contains(&format!("\n{target}:")) {
                    fault(format!("`make {target}` is no target of the Makefile"));
                }
            }
            for words in commands(&block, "treadle") {
                checked += 1;
                // Three dots stand for an omission.
                let given = words.iter().filter(|word| *word != "…");
                if let Err(error) = treadle::cli::command().try_get_matches_from(given) {
                    fault(format!("`{}`: {error}", words.join(" ")));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(checked > 10, "{checked} commands are not run");
}

#[test]
fn the_readme_names_what_a_fresh_machine_needs_and_how_long_it_takes() {
    let readme = std::fs::read_to_string(repository().join("README.md")).expect("it is there");
    for command in ["make demo", "make test"] {
        let mut lines = readme.lines();
        let line = lines.find(|line| line.starts_with(command));
        let line = line.unwrap_or_else(|| panic!("{command} is not in README.md"));
        assert!(line.contains("minutes"), "{line}");
    }
}

#[test]
fn marks_and_languages_are_read() {
    let page = "a\n<!-- not run: gpu -->\n```\nx\n```\n<!-- file: t.toml -->\n```toml\ny = 1\n```\n\
                <!-- not run: mood -->\n```\n```\n```\nz\n```\n```klingon\n```\n\
                <!-- needs: services -->\n```\n```\n<!-- needs: luck -->\n```\n```\n\
                <!-- way: rust -->\n```\n```\n<!-- way: python -->\n```json\n```\n";
    let found = blocks(page);
    let marks: Vec<_> = found.iter().map(|block| block.mark).collect();
    let expected = [
        Some(Mark::NotRun("gpu")),
        Some(Mark::File("t.toml")),
        Some(Mark::NotRun("mood")),
        None,
        None,
        Some(Mark::Needs("services")),
        Some(Mark::Needs("luck")),
        Some(Mark::Way("rust")),
        Some(Mark::Way("python")),
    ];
    assert_eq!(marks, expected);
    let wrong: Vec<_> = found
        .iter()
        .map(|block| block.complaint().is_some())
        .collect();
    assert_eq!(
        wrong,
        [false, false, true, false, true, false, true, false, true]
    );
    let run: Vec<_> = found.iter().filter(|block| block.is_commands()).collect();
    assert_eq!((run[2].line, &*run[2].text), (13, "z\n"));
}
