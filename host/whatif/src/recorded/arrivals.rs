//! Infers dependencies between arrivals, as slots and waves, from the times at which programs
//! opened and ended.
//!
//! Within a job, in order of time:
//! - a program that opens within a short lag after another one's end takes its slot;
//! - one that opens while no program of the job is live begins the next wave;
//! - any other opens at its own time, relative to its wave's beginning.
//!
//! Slots follow the number of ends in the wave, not which program ended: a client with N slots
//! gives the next program to whichever is free first.

use std::collections::{BTreeMap, VecDeque};
use treadle_simulator::cluster::{Begin, RunStart, Schedule, Wave};

/// When a program was live in the window, in microseconds of the journal's clock.
pub(super) struct Life {
    pub(super) job: Box<str>,
    pub(super) opened_us: u64,
    /// Absent if it was live at the window's end.
    pub(super) ended_us: Option<u64>,
}

/// The state of a job while its programs are processed in order of time.
struct JobCourse {
    job: usize,
    wave: usize,
    wave_began_us: u64,
    live: u64,
    /// Number of ends in the wave so far.
    ends: u32,
    /// Slots that no program has taken yet, with the times at which they became free.
    free: VecDeque<(u32, u64)>,
    last_end_us: u64,
}

/// The schedule of programs, in order of their opening.
pub(super) fn infer(lives: &[Life], slot_lag_us: u64) -> Schedule {
    let start_us = lives.first().map_or(0, |life| life.opened_us);
    // At equal times ends come first, or no program could take a slot at once.
    let openings = lives
        .iter()
        .enumerate()
        .map(|(run, life)| (life.opened_us, 1, run));
    let ends = lives
        .iter()
        .enumerate()
        .filter_map(|(run, life)| Some((life.ended_us?.max(life.opened_us), 0, run)));
    let mut moments: Vec<(u64, u8, usize)> = openings.chain(ends).collect();
    // A program of zero length ends after it has opened.
    moments.sort_by_key(|(at, kind, run)| {
        let is_own_end = *kind == 0 && lives[*run].opened_us == *at;
        (*at, if is_own_end { 2 } else { *kind }, *run)
    });

    let mut schedule = Schedule::default();
    let mut jobs: BTreeMap<&str, JobCourse> = BTreeMap::new();
    let mut starts: Vec<Option<RunStart>> = vec![None; lives.len()];
    for (at, kind, run) in moments {
        let name = &*lives[run].job;
        if kind == 0 {
            if let Some(job) = jobs.get_mut(name) {
                job.live -= 1;
                job.ends += 1;
                job.free.push_back((job.ends, at));
                job.last_end_us = at;
            }
            continue;
        }
        let start = if let Some(job) = jobs.get_mut(name) {
            job.open(at, slot_lag_us, &mut schedule)
        } else {
            let job = JobCourse::begin(name, at, start_us, &mut schedule);
            let wave = job.wave;
            jobs.insert(name, job);
            RunStart {
                wave,
                begin: Begin::At { offset_us: 0 },
            }
        };
        starts[run] = Some(start);
    }
    // Every program opens exactly once.
    schedule.runs = starts.into_iter().flatten().collect();
    schedule
}

impl JobCourse {
    fn begin(name: &str, at: u64, start_us: u64, schedule: &mut Schedule) -> Self {
        let job = schedule.jobs.len();
        schedule.jobs.push(name.into());
        schedule.waves.push(Wave {
            job,
            gap_us: at - start_us,
        });
        Self {
            job,
            wave: schedule.waves.len() - 1,
            wave_began_us: at,
            live: 1,
            ends: 0,
            free: VecDeque::new(),
            last_end_us: at,
        }
    }

    fn open(&mut self, at: u64, slot_lag_us: u64, schedule: &mut Schedule) -> RunStart {
        self.live += 1;
        while let Some((_, ended)) = self.free.front()
            && at - ended > slot_lag_us
        {
            self.free.pop_front();
        }
        if let Some((ends, ended)) = self.free.pop_front() {
            let lag_us = at - ended;
            return RunStart {
                wave: self.wave,
                begin: Begin::Slot { ends, lag_us },
            };
        }
        if self.live == 1 {
            let gap_us = at - self.last_end_us;
            schedule.waves.push(Wave {
                job: self.job,
                gap_us,
            });
            self.wave = schedule.waves.len() - 1;
            self.wave_began_us = at;
            self.ends = 0;
        }
        let offset_us = at - self.wave_began_us;
        RunStart {
            wave: self.wave,
            begin: Begin::At { offset_us },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(job: &str, opened_us: u64, ended_us: u64) -> Life {
        Life {
            job: job.into(),
            opened_us,
            ended_us: (ended_us > 0).then_some(ended_us),
        }
    }

    #[test]
    fn slots_waves_and_own_times_are_distinguished() {
        let lives = [
            life("a", 100, 200),
            life("a", 130, 400),
            life("b", 150, 160),
            // Takes the slot of the first; that of the one at 300 stays free.
            life("a", 205, 300),
            life("a", 340, 410),
            // No program of the job is live: the next wave, and one that joins it.
            life("a", 500, 600),
            life("a", 530, 0),
        ];
        let schedule = infer(&lives, 10);
        let at = |wave, offset_us| RunStart {
            wave,
            begin: Begin::At { offset_us },
        };
        let slot = RunStart {
            wave: 0,
            begin: Begin::Slot { ends: 1, lag_us: 5 },
        };
        assert_eq!(
            schedule.runs,
            [
                at(0, 0),
                at(0, 30),
                at(1, 0),
                slot,
                at(0, 240),
                at(2, 0),
                at(2, 30)
            ]
        );
        let wave = |job, gap_us| Wave { job, gap_us };
        assert_eq!(schedule.waves, [wave(0, 0), wave(1, 50), wave(0, 90)]);
        assert_eq!(schedule.jobs, ["a".into(), "b".into()]);
    }

    #[test]
    fn programs_of_no_length_take_slots_one_after_another() {
        let lives = [life("a", 5, 5), life("a", 5, 5), life("a", 6, 9)];
        let schedule = infer(&lives, 0);
        let starts: Vec<Begin> = schedule.runs.iter().map(|start| start.begin).collect();
        assert_eq!(starts[0], Begin::At { offset_us: 0 });
        assert_eq!(starts[1], Begin::At { offset_us: 0 });
        assert_eq!((schedule.waves.len(), schedule.waves[1].gap_us), (2, 1));
    }
}
