//! The grids have the paper's figures, and do not depend on threads.

use super::*;

fn small(jobs: u32) -> Vec<Spread> {
    let options = GridOptions {
        grids: Grid::ALL.to_vec(),
        seeds: vec![1, 2],
        jobs,
        config: Config::default(),
        small: true,
    };
    run(&options, &|_| ())
}

#[test]
fn figures_do_not_depend_on_threads() {
    let alone = small(1);
    assert_eq!(alone, small(2));
    for spread in &alone {
        assert!(spread.mean.is_finite(), "{}", spread.name);
        assert!(spread.min <= spread.mean + 1e-9 && spread.mean <= spread.max + 1e-9);
    }
    let with_paper = alone.iter().filter(|spread| spread.paper.is_some());
    assert!(with_paper.count() > 15);
}
