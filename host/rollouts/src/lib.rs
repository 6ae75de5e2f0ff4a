//! Rollouts in virtual time: one under any set of policies (`treadle sim`), and the comparison of
//! scheduling systems on the same programs.

pub mod comparison;
pub mod sim;
