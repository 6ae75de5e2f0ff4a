//! Actions reported by tool runners.

use crate::scenario::Scenario;
use treadle_core::Event;
use treadle_core::estimates::ToolStatistics;
use treadle_core::programs::ACTIONS_MAX;
use treadle_core::programs::ProgramEvent;

fn started(program: &str, action: &str, tool: &str) -> Event {
    Event::Program(ProgramEvent::ActionStarted {
        program: program.into(),
        action: action.into(),
        tool: tool.into(),
    })
}

fn finished(program: &str, action: &str, ok: bool) -> Event {
    Event::Program(ProgramEvent::ActionFinished {
        program: program.into(),
        action: action.into(),
        ok,
    })
}

#[test]
fn times_of_tools_are_learnt_once_for_each_call() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 100).finish(1, 100, 0);
    s.handle(started("a", "x", "bash")).wait_s(2);
    s.handle(started("a", "x", "bash")).wait_s(1);
    s.handle(finished("a", "x", true));
    s.handle(finished("a", "x", true));
    s.handle(started("a", "y", "bash")).wait_s(1);
    s.handle(finished("a", "y", false));
    s.handle(finished("a", "never begun", true));
    s.handle(started("nobody", "x", "bash"));
    let job = &s.core.programs().program("a").expect("live").job;
    let expected = ToolStatistics {
        finished: 2,
        failed: 1,
        total_us: 4_000_000,
        longest_us: 3_000_000,
        times: s.core.programs().estimates.tools()[job]["bash"]
            .times
            .clone(),
    };
    assert_eq!(s.core.programs().estimates.tools()[job]["bash"], expected);
    assert!(!expected.times.is_empty());
    assert!(
        s.core
            .programs()
            .program("a")
            .expect("live")
            .actions
            .is_empty()
    );
}

#[test]
fn actions_of_a_program_are_bounded_and_go_with_it() {
    let mut s = Scenario::with_workers(&[1_000]);
    s.arrive("a", 1, 100).finish(1, 100, 0);
    for n in 0..2 * ACTIONS_MAX {
        s.handle(started("a", &n.to_string(), "bash"));
    }
    assert_eq!(
        s.core.programs().program("a").expect("live").actions.len(),
        ACTIONS_MAX
    );
    s.release("a");
    s.handle(finished("a", "1", true));
    assert!(s.core.programs().estimates.tools().is_empty());
}
