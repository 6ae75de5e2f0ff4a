//! The policy as a whole: groups of several prompts over several batches.

use treadle_plugin::harness::Harness;

use super::*;

/// Groups of 4 of up to 8, each of a prompt of its own, and their members in the order of groups.
struct Table {
    prompt: Vec<u64>,
    sampled: Vec<u32>,
    group: Vec<u32>,
    state: Vec<u8>,
    tokens: Vec<u64>,
}

impl Table {
    fn of(groups: &[(u64, &[(u8, u64)])]) -> Self {
        let mut table = Self {
            prompt: Vec::new(),
            sampled: Vec::new(),
            group: Vec::new(),
            state: Vec::new(),
            tokens: Vec::new(),
        };
        for (row, (prompt, members)) in groups.iter().enumerate() {
            table.prompt.push(*prompt);
            table.sampled.push(members.len() as u32);
            for (state, tokens) in *members {
                table.group.push(row as u32);
                table.state.push(*state);
                table.tokens.push(*tokens);
            }
        }
        table
    }

    fn ask<T>(&self, ask: impl FnOnce(&MemberColumns<'_>) -> Result<T, PolicyError>) -> T {
        let (groups, rows) = (self.prompt.len(), self.group.len());
        let members = MemberColumns {
            group: &self.group,
            state: &self.state,
            tokens: &self.tokens,
            turns: &vec![1; rows],
            elapsed_ms: &vec![0; rows],
            lag: &vec![0; rows],
            batch_groups: 4,
            ready_groups: 0,
            groups: GroupColumns {
                prompt: &self.prompt,
                domain: &vec![0; groups],
                size: &vec![4; groups],
                size_max: &vec![8; groups],
                sampled: &self.sampled,
                postponed: &vec![0; groups],
            },
        };
        members.check().unwrap();
        ask(&members).unwrap()
    }
}

fn sizes(policy: &mut DartsShaping, prompts: &[u64]) -> Vec<u32> {
    let groups = prompts.iter().map(|prompt| (*prompt, &[] as &[(u8, u64)]));
    let groups: Vec<_> = groups.collect();
    Table::of(&groups).ask(|members| policy.size(&members.groups))
}

fn selected(policy: &mut DartsShaping, groups: &[(u64, &[(u8, u64)])]) -> Vec<usize> {
    let chosen = Table::of(groups).ask(|members| policy.select(members));
    (0..chosen.len()).filter(|row| chosen[*row]).collect()
}

#[test]
fn every_answer_is_valid() {
    Harness::new("{}").shaping::<DartsShaping>();
    let config = r#"{"ratio": 2, "long": 3, "early_stop": "first", "prompts_max": 1024}"#;
    Harness::new(config).shaping::<DartsShaping>();
}

#[test]
fn without_history_all_groups_sample_equally_many() {
    let mut policy = DartsShaping::default();
    assert_eq!(sizes(&mut policy, &[1, 2, 3, 4]), [6, 6, 6, 6]);
    assert!(sizes(&mut policy, &[]).is_empty());
}

#[test]
fn prompts_whose_lengths_spread_sample_more() {
    let mut policy = DartsShaping::default();
    let even: &[(u8, u64)] = &[(1, 100); 6];
    let spread: &[(u8, u64)] = &[(1, 10), (1, 20), (1, 30), (1, 40), (1, 500), (1, 900)];
    // Of a group below its most: the three shortest and the longest.
    let chosen = selected(&mut policy, &[(1, even), (2, spread)]);
    assert_eq!(chosen, [0, 1, 2, 3, 6, 7, 8, 11]);
    // 12 members for both, and the prompt with the spread gets all that it may have.
    assert_eq!(sizes(&mut policy, &[1, 2]), [4, 8]);
}

#[test]
fn a_group_that_samples_as_many_as_it_may_is_pruned() {
    let mut policy = DartsShaping::default();
    let running: &[(u8, u64)] = &[
        (1, 10),
        (1, 20),
        (1, 30),
        (1, 40),
        (0, 39),
        (0, 40),
        (0, 900),
        (2, 5),
    ];
    // The same, but of a group below its most: nothing is cut.
    let below = &running[..7];
    let table = Table::of(&[(1, running), (2, below)]);
    let verdicts = table.ask(|members| policy.curtail(members));
    let ended = verdicts.iter().enumerate();
    let ended: Vec<usize> = ended
        .filter(|(_, verdict)| **verdict == Verdict::End)
        .map(|(row, _)| row)
        .collect();
    assert_eq!(ended, [5, 6]);
    let over: Vec<(u8, u64)> = [50, 10, 20, 30, 40, 35, 60, 70].map(|of| (1, of)).into();
    assert_eq!(selected(&mut policy, &[(1, &over)]), [1, 2, 3, 5]);
}

#[test]
fn a_successor_knows_what_its_predecessor_learnt() {
    let mut policy = DartsShaping::default();
    let spread: &[(u8, u64)] = &[(1, 10), (1, 20), (1, 30), (1, 900)];
    selected(&mut policy, &[(2, spread), (1, &[(1, 50); 4])]);
    let mut successor = DartsShaping::default();
    successor.restore(&policy.snapshot().unwrap()).unwrap();
    assert_eq!(sizes(&mut successor, &[1, 2]), [4, 8]);
}
