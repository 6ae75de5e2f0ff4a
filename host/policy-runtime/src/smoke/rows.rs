//! Generated columns for the trial run: programs, workers and texts like those of a busy cluster.

use treadle_plugin::Phase;
use treadle_plugin::random::SplitMix64;

/// One row each; every column has as many entries.
pub(super) struct Rows {
    pub(super) tokens: Vec<u64>,
    pub(super) output_tokens: Vec<u64>,
    pub(super) times_ms: Vec<u64>,
    pub(super) groups: Vec<u64>,
    pub(super) steps: Vec<u32>,
    pub(super) phases: Vec<Phase>,
    /// Predicted amounts, -1 without a prediction.
    pub(super) predicted: Vec<f64>,
    pub(super) rewards: Vec<f64>,
    /// Rows of three pools or workers.
    pub(super) thirds: Vec<u32>,
    /// 1 for the first eighth of the rows.
    pub(super) candidates: Vec<u8>,
    /// Zero to four options for each row, and one final entry with their number.
    pub(super) option_start: Vec<u32>,
    pub(super) option_units: Vec<u32>,
    /// The duration with each option, -1 if unknown.
    pub(super) option_us: Vec<f64>,
    pub(super) option_load_us: Vec<f64>,
    pub(super) answers: Vec<String>,
    pub(super) references: Vec<String>,
    /// As many columns as the policy requests, concatenated.
    pub(super) extra: Vec<f32>,
}

/// Options of actions.
#[derive(Default)]
struct Options {
    start: Vec<u32>,
    units: Vec<u32>,
    us: Vec<f64>,
}

impl Options {
    /// Generates this number of options for each row, each with twice the units of the previous
    /// one, from the duration with one unit.
    fn draw(&mut self, counts: &[u64], alone_us: &[u64]) {
        self.start.push(0);
        for (count, alone_us) in counts.iter().zip(alone_us) {
            for option in 0..*count as u32 {
                let units = 1 << option;
                self.units.push(units);
                self.us.push(match alone_us % 4 {
                    0 => -1.0,
                    _ => *alone_us as f64 / f64::from(units).powf(0.8),
                });
            }
            self.start.push(self.units.len() as u32);
        }
    }
}

fn phase_of(drawn: u64) -> Phase {
    match drawn {
        0 => Phase::Reasoning,
        _ => Phase::Acting,
    }
}

impl Rows {
    /// A fixed sequence, so that an upload is checked the same way every time: contexts from
    /// nothing to long, all phases, times from none to hours.
    pub(super) fn generate(rows: usize, columns: usize) -> Self {
        let mut stream = SplitMix64::new(1);
        let mut draw = |bound: u64| (stream.next_u64() >> 33) % bound;
        let mut column = |bound: u64| -> Vec<u64> { (0..rows).map(|_| draw(bound)).collect() };
        let small = |column: Vec<u64>| column.into_iter().map(|value| value as u32).collect();
        let mut tokens = column(200_000);
        if let Some(first) = tokens.first_mut() {
            *first = 0;
        }
        let magnitudes = column(8);
        let times = column(10_000_000);
        let predicted = column(50_000);
        let mut options = Options::default();
        options.draw(&column(5), &column(60_000_000));
        let texts = column(1_000);
        let extra = predicted.iter().cycle().take(rows * columns);
        Self {
            extra: extra.map(|&amount| amount as f32).collect(),
            output_tokens: tokens.iter().map(|tokens| tokens / 3).collect(),
            tokens,
            times_ms: magnitudes
                .into_iter()
                .zip(times)
                .map(|(magnitude, time)| time % 10_u64.pow(magnitude as u32))
                .collect(),
            groups: column(10),
            steps: small(column(100)),
            phases: column(2).into_iter().map(phase_of).collect(),
            predicted: predicted
                .iter()
                .map(|&amount| if amount % 4 == 0 { -1.0 } else { amount as f64 })
                .collect(),
            rewards: column(3)
                .iter()
                .map(|&reward| reward as f64 / 2.0)
                .collect(),
            thirds: small(column(3)),
            candidates: (0..rows).map(|row| u8::from(row < rows / 8)).collect(),
            option_start: options.start,
            option_load_us: options.us.iter().map(|us| (us / 8.0).max(0.0)).collect(),
            option_units: options.units,
            option_us: options.us,
            answers: texts
                .iter()
                .map(|text| format!("so it is {text}"))
                .collect(),
            references: texts
                .iter()
                .map(|text| match text % 3 {
                    0 => String::new(),
                    _ => (text / 2 * 2).to_string(),
                })
                .collect(),
        }
    }
}
