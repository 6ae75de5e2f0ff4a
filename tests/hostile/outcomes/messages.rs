//! Untrusted messages: the corpus, with every message that broke a parser, and mutations of it.

use treadle_hostile::messages::{TARGETS, Target};
use treadle_hostile::mutation::{Draws, mutate_message};

const SEED: u64 = 20_260_101;
/// Damaged messages of each target; `make fuzz` tries as many as there is time for.
const DAMAGED: usize = 3_000;

fn run(name: &str) {
    let target = Target::of(name).expect("a target");
    let corpus = target.corpus().expect("its corpus");
    assert!(corpus.len() >= 2, "{name}: {} messages", corpus.len());
    for (file, message) in &corpus {
        (target.check)(message).unwrap_or_else(|wrong| panic!("{name}/{file}: {wrong}"));
    }
    let in_order = corpus
        .iter()
        .filter(|(_, message)| (target.accepts)(message));
    let (in_order, all) = (in_order.count(), corpus.len());
    assert!(in_order * 2 > all, "{name}: {in_order} of {all} in order");
    let corpus: Vec<Vec<u8>> = corpus.into_iter().map(|(_, message)| message).collect();
    let mut draws = Draws::new(SEED);
    for number in 1..=DAMAGED {
        let message = mutate_message(&corpus, target.words, &mut draws);
        (target.check)(&message).unwrap_or_else(|wrong| {
            let shown = String::from_utf8_lossy(&message);
            panic!("{name}, message {number} of seed {SEED}: {wrong}\n{shown}")
        });
    }
}

macro_rules! targets {
    ($($name:ident),+) => {
        $(#[test]
        fn $name() {
            run(stringify!($name));
        })+

        #[test]
        fn each_target_is_run() {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(names, [$(stringify!($name)),+]);
        }
    };
}

targets!(sse, usage, request, pages, link, frames);
