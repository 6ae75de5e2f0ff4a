//! Rewards: what the core stores of them, and what they do not change.

use crate::scenario::Scenario;
use treadle_core::programs::ProgramCommand;
use treadle_core::{Command, Core, CoreConfig};

fn reward(s: &Scenario, program: &str) -> Option<i64> {
    let live = s.core.programs().program(program);
    live.and_then(|p| p.reward_millionths)
}

#[test]
fn the_latest_reward_of_a_live_program_is_its_reward() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 400).reward("a", 500_000).reward("a", -1);
    assert_eq!(reward(&s, "a"), Some(-1));
    s.finish(1, 400, 0).release("a");
    let ended = s.log.iter().find_map(|command| match command {
        Command::Program(ProgramCommand::ForgetProgram { program }) => program.reward_millionths,
        _ => None,
    });
    assert_eq!(ended, Some(-1), "it goes with what is told of its end");
    s.arrive("a", 2, 400);
    assert_eq!(reward(&s, "a"), None, "another program has its name");
}

#[test]
fn a_reward_decides_nothing() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600).arrive("b", 2, 600);
    let (commands, free) = (s.log.len(), s.status("b"));
    s.reward("b", 1).reward("a", 1).reward("nobody", 1);
    assert_eq!((s.log.len(), s.status("b")), (commands, free));
    assert_eq!(s.core.programs().live.len(), 2);
}

#[test]
fn a_reward_is_part_of_the_state_that_is_kept() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 600)
        .arrive("b", 2, 100)
        .reward("a", 700_000);
    let kept = treadle_core_json::write_state(&s.core.state()).expect("JSON");
    let state = treadle_core_json::read_state(&kept).expect("a state");
    let core = Core::with_state(CoreConfig::default(), state);
    let of = |program| {
        core.programs()
            .program(program)
            .map(|p| p.reward_millionths)
    };
    assert_eq!((of("a"), of("b")), (Some(Some(700_000)), Some(None)));
}
