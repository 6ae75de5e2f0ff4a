//! Limits on the length of a command: those of the kernel, and the memory of the sandbox's first
//! process. A longer command is refused before it is sent.

use super::Exec;

/// Maximum length of a word or variable in pages, including the terminating zero.
const WORD_PAGES: usize = 32;
/// The kernel's limit on the total, regardless of the stack size.
const ALL_BYTES_MAX: usize = 6 << 20;
/// Size of the pointer to a word or variable, which the kernel counts too.
const PLACE_BYTES: usize = 8;
/// The total may be this fraction of the sandbox's memory, because it is held several times while
/// it is read.
const MEMORY_PART: u64 = 4;
const REMEDY: &str = "write it to a file, or send it as the command's input";

/// Checks a command's length for a sandbox with this memory; returns the problem and the remedy.
pub(super) fn check(exec: &Exec, memory_bytes: u64) -> Result<(), String> {
    let word_max = WORD_PAGES * rustix::param::page_size() - 1;
    for (number, word) in exec.command.iter().enumerate() {
        if word.len() > word_max {
            let bytes = word.len();
            return Err(format!(
                "word {number} of the command has {bytes} bytes, the limit is {word_max}; {REMEDY}"
            ));
        }
    }
    let variables = exec
        .env
        .iter()
        .map(|(name, value)| (name, name.len() + 1 + value.len()));
    for (name, bytes) in variables.clone() {
        if bytes > word_max {
            let name: String = name.chars().take(64).collect();
            return Err(format!(
                "the variable `{name}` has {bytes} bytes with its name, the limit is {word_max}; \
                 {REMEDY}"
            ));
        }
    }
    let words = exec.command.iter().map(String::len);
    let all = words.chain(variables.map(|(_, bytes)| bytes));
    let all: usize = all.map(|bytes| bytes + 1 + PLACE_BYTES).sum();
    let memory_max = usize::try_from(memory_bytes / MEMORY_PART).unwrap_or(usize::MAX);
    let max = ALL_BYTES_MAX.min(memory_max);
    if all > max {
        return Err(format!(
            "the command and its variables have {all} bytes, the limit is {max} in a sandbox with \
             {memory_bytes} bytes of memory; {REMEDY}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_state_the_size_the_limit_and_the_remedy() {
        let max = WORD_PAGES * rustix::param::page_size() - 1;
        let words = |words: &[usize]| Exec::new(words.iter().map(|bytes| "x".repeat(*bytes)));
        let mut variable = Exec::new(["true"]);
        variable.env.insert("NAME".to_owned(), "x".repeat(max - 4));
        for (exec, memory, told) in [
            (words(&[4, max]), 2 << 30, None),
            (
                words(&[4, max + 1]),
                2 << 30,
                Some(format!("word 1 of the command has {}", max + 1)),
            ),
            (
                variable,
                2 << 30,
                Some(format!("the variable `NAME` has {}", max + 1)),
            ),
            (words(&vec![max; 40]), 2 << 30, None),
            (
                words(&vec![max; 50]),
                2 << 30,
                Some("the limit is 6291456".to_owned()),
            ),
            (words(&[4; 100]), 8 << 20, None),
            (
                words(&[100_000; 22]),
                8 << 20,
                Some("the limit is 2097152".to_owned()),
            ),
        ] {
            let checked = check(&exec, memory);
            match told {
                None => assert_eq!(checked, Ok(())),
                Some(told) => {
                    let problem = checked.unwrap_err();
                    assert!(
                        problem.contains(&told) && problem.ends_with(REMEDY),
                        "{problem}"
                    );
                }
            }
        }
    }
}
