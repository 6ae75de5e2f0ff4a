//! When runs begin: recorded arrivals in a form that can be replayed at other speeds.
//!
//! The clients of a job are a closed loop in two ways. A program may take the *slot* of one that
//! ended: it begins when the same number of runs of its wave have ended. And a whole *wave* of
//! programs may wait for all of the previous wave, as synchronous training does: its times count
//! from the end of that wave.

/// When a run begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Begin {
    /// A time after its wave's beginning.
    At {
        /// That time, in microseconds.
        offset_us: u64,
    },
    /// A time after a number of runs of its wave have ended.
    Slot {
        /// The number of ends, from 1.
        ends: u32,
        /// The time from that end to the beginning, in microseconds.
        lag_us: u64,
    },
}

/// The beginning of one run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RunStart {
    /// Index of its wave in [`Schedule::waves`].
    pub wave: usize,
    /// When it begins within the wave.
    pub begin: Begin,
}

/// Runs of one job that wait for the same event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Wave {
    /// Index of its job in [`Schedule::jobs`].
    pub job: usize,
    /// Time from the end of the job's previous wave, or from the start of the schedule, to the
    /// beginning of this one, in microseconds.
    pub gap_us: u64,
}

/// The beginnings of all runs of a workload.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Schedule {
    /// Names of the jobs.
    pub jobs: Vec<Box<str>>,
    /// Waves; those of a job in their order.
    pub waves: Vec<Wave>,
    /// One entry for each run, in the order of the runs.
    pub runs: Vec<RunStart>,
}

impl Schedule {
    /// The job of a run.
    pub fn job_of(&self, run: usize) -> &str {
        &self.jobs[self.waves[self.runs[run].wave].job]
    }
}

/// The progress of a wave.
#[derive(Clone, Debug, Default)]
struct WaveProgress {
    members: Vec<usize>,
    unfinished: usize,
    ends: u32,
}

/// The progress of a schedule.
pub(super) struct ScheduleCursor<'a> {
    schedule: &'a Schedule,
    waves: Vec<WaveProgress>,
}

impl<'a> ScheduleCursor<'a> {
    pub(super) fn new(schedule: &'a Schedule) -> Self {
        let mut waves = vec![WaveProgress::default(); schedule.waves.len()];
        for (run, start) in schedule.runs.iter().enumerate() {
            waves[start.wave].members.push(run);
            waves[start.wave].unfinished += 1;
        }
        Self { schedule, waves }
    }

    /// Runs of the first wave of each job, with the times at which they begin.
    pub(super) fn open(&mut self) -> Vec<(u64, usize)> {
        let jobs = 0..self.schedule.jobs.len();
        jobs.flat_map(|job| self.wave_after(job, None, 0)).collect()
    }

    /// Ends a run, and returns the runs that begin because of it, with their times.
    pub(super) fn ended(&mut self, run: usize, now: u64) -> Vec<(u64, usize)> {
        let wave = self.schedule.runs[run].wave;
        let progress = &mut self.waves[wave];
        progress.ends += 1;
        progress.unfinished -= 1;
        if progress.unfinished == 0 {
            return self.wave_after(self.schedule.waves[wave].job, Some(wave), now);
        }
        let (progress, runs) = (&self.waves[wave], &self.schedule.runs);
        let takers = progress
            .members
            .iter()
            .filter_map(|&run| match runs[run].begin {
                Begin::Slot { ends, lag_us } if ends == progress.ends => Some((now + lag_us, run)),
                _ => None,
            });
        takers.collect()
    }

    /// The runs of a job's next wave, relative to `now`.
    fn wave_after(&self, job: usize, wave: Option<usize>, now: u64) -> Vec<(u64, usize)> {
        let (mut origin, from) = (now, wave.map_or(0, |wave| wave + 1));
        for next in from..self.waves.len() {
            if self.schedule.waves[next].job != job {
                continue;
            }
            origin += self.schedule.waves[next].gap_us;
            let members = &self.waves[next].members;
            if !members.is_empty() {
                let timed = members.iter().filter_map(|&run| {
                    let begin = self.schedule.runs[run].begin;
                    let Begin::At { offset_us } = begin else {
                        return None;
                    };
                    Some((origin + offset_us, run))
                });
                return timed.collect();
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_follow_ends_and_waves_the_last_of_them() {
        let at = |wave, offset_us| RunStart {
            wave,
            begin: Begin::At { offset_us },
        };
        let slot = |ends, lag_us| RunStart {
            wave: 0,
            begin: Begin::Slot { ends, lag_us },
        };
        let schedule = Schedule {
            jobs: vec!["a".into(), "b".into()],
            waves: vec![
                Wave { job: 0, gap_us: 0 },
                Wave { job: 1, gap_us: 7 },
                Wave { job: 0, gap_us: 50 },
            ],
            runs: vec![
                at(0, 0),
                at(0, 5),
                slot(1, 3),
                at(1, 0),
                at(2, 1),
                slot(2, 0),
            ],
        };
        assert_eq!(schedule.job_of(4), "a");
        let mut cursor = ScheduleCursor::new(&schedule);
        assert_eq!(cursor.open(), [(0, 0), (5, 1), (7, 3)]);
        // The run that ends first passes its slot on, even if another one did in the recording.
        assert_eq!(cursor.ended(1, 100), [(103, 2)]);
        assert_eq!(cursor.ended(0, 110), [(110, 5)]);
        assert_eq!(cursor.ended(3, 120), []);
        assert_eq!(cursor.ended(2, 130), []);
        assert_eq!(cursor.ended(5, 140), [(191, 4)]);
        assert_eq!(cursor.ended(4, 200), []);
    }
}
