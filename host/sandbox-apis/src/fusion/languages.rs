//! Languages by their SandboxFusion names, with the programs that compile and run them. Which
//! programs exist depends on the image.

/// How a language is run.
#[derive(Debug)]
pub(super) struct Language {
    /// Its names.
    names: &'static [&'static str],
    /// The file for the code: a full name, or an extension.
    pub(super) file: &'static str,
    /// Its compiler command.
    pub(super) compile: Option<&'static [&'static str]>,
    /// Its run command. Of alternatives separated by a bar, the first that exists is used.
    pub(super) run: &'static [&'static str],
    /// Whether a limit on its address space limits its memory: other runtimes reserve far more than
    /// they use.
    pub(super) is_bounded: bool,
}

/// Placeholder for the file with the code.
pub(super) const FILE: &str = "{}";
/// The compiler's output.
const MADE: &[&str] = &["./test"];

const fn interpreted(
    names: &'static [&'static str],
    file: &'static str,
    run: &'static [&'static str],
) -> Language {
    Language {
        names,
        file,
        compile: None,
        run,
        is_bounded: true,
    }
}

const fn compiled(
    names: &'static [&'static str],
    file: &'static str,
    compile: &'static [&'static str],
) -> Language {
    Language {
        names,
        file,
        compile: Some(compile),
        run: MADE,
        is_bounded: true,
    }
}

const ALL: &[Language] = &[
    interpreted(&["python"], ".py", &["python|python3", FILE]),
    interpreted(&["python2"], ".py", &["python2", FILE]),
    interpreted(&["pytest"], ".py", &["pytest", FILE]),
    interpreted(&["bash"], ".sh", &["bash", FILE]),
    compiled(
        &["cpp"],
        ".cpp",
        &["g++", "-std=c++17", FILE, "-o", "test", "-lpthread"],
    ),
    compiled(
        &["c"],
        ".c",
        &["gcc", "-std=c17", FILE, "-o", "test", "-lm", "-lpthread"],
    ),
    compiled(&["rust"], ".rs", &["rustc", FILE, "-o", "test"]),
    compiled(&["swift"], ".swift", &["swiftc", FILE, "-o", "test"]),
    interpreted(&["php"], ".php", &["php", FILE]),
    interpreted(&["perl"], ".pl", &["perl", FILE]),
    interpreted(&["ruby"], ".rb", &["ruby", FILE]),
    interpreted(&["lua"], ".lua", &["lua|lua5.4|lua5.3", FILE]),
    interpreted(&["R"], ".R", &["Rscript", FILE]),
    Language {
        is_bounded: false,
        ..interpreted(&["nodejs", "javascript"], ".js", &["node", FILE])
    },
    Language {
        is_bounded: false,
        ..interpreted(&["typescript"], ".ts", &["tsx", FILE])
    },
    Language {
        is_bounded: false,
        ..interpreted(&["julia"], ".jl", &["julia", FILE])
    },
    Language {
        is_bounded: false,
        ..interpreted(&["racket"], ".rkt", &["racket", FILE])
    },
    Language {
        is_bounded: false,
        ..interpreted(&["scala"], ".scala", &["scala", FILE])
    },
    Language {
        is_bounded: false,
        ..interpreted(&["kotlin_script"], ".kts", &["kotlinc", "-script", FILE])
    },
    Language {
        is_bounded: false,
        ..compiled(&["go"], ".go", &["go", "build", "-o", "test", FILE])
    },
    Language {
        names: &["java"],
        file: "Main.java",
        compile: Some(&["javac", "-cp", ".", FILE]),
        run: &["java", "-cp", ".", "-ea", "Main"],
        is_bounded: false,
    },
];

/// Languages of `SandboxFusion` that treadle does not run.
const REFUSED: [&str; 12] = [
    "csharp",
    "cuda",
    "D_ut",
    "go_test",
    "gtest",
    "jest",
    "junit",
    "lean",
    "python_gpu",
    "react",
    "sql",
    "verilog",
];

/// The lookup of a language.
#[derive(Debug)]
pub(super) enum Known {
    /// A supported language.
    Run(&'static Language),
    /// A language that treadle does not run.
    Refused,
    /// Not a language.
    Unknown,
}

pub(super) fn of(name: &str) -> Known {
    match ALL.iter().find(|language| language.names.contains(&name)) {
        Some(language) => Known::Run(language),
        None if REFUSED.contains(&name) => Known::Refused,
        None => Known::Unknown,
    }
}

impl Language {
    /// The compiler command for this code.
    pub(super) fn compiler(&self, code: &str) -> Option<Vec<&'static str>> {
        let mut words = self.compile?.to_vec();
        if self.names == ["cpp"] && code.contains("<openssl/") {
            words.extend(["-lcrypto", "-lssl"]);
        }
        Some(words)
    }
}

/// Names of all languages, for error messages.
pub(super) fn names() -> String {
    let run = ALL
        .iter()
        .flat_map(|language| language.names.iter().copied());
    run.chain(REFUSED).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_languages_of_the_client_are_known_once() {
        let of_client = "python cpp nodejs go go_test java php csharp bash typescript sql rust cuda \
            lua R perl D_ut ruby scala julia pytest junit kotlin_script jest verilog python_gpu lean \
            swift racket python2 gtest react";
        for name in of_client.split_ascii_whitespace() {
            assert!(!matches!(of(name), Known::Unknown), "{name}");
        }
        let names = names();
        let all: Vec<_> = names.split(", ").collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert!(matches!(of("klingon"), Known::Unknown));
    }
}
