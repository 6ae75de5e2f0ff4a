//! What the policy remembers of lengths: the spread within each prompt, each domain and all prompts,
//! and the snapshot of it. All numbers of a snapshot have 8 bytes, little-endian.

use treadle_plugin::PolicyError;
use treadle_plugin::recent::Recent;

use crate::budget::Spread;
use crate::config::Config;

/// Batches that the first averages are of.
const FIRST_BATCHES: u64 = 20;
/// Domains that are remembered.
const DOMAINS_MAX: usize = 1_024;
const MARK: &[u8; 8] = b"darts--1";

/// Mean and variance of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub(crate) fn of(lengths: impl Iterator<Item = u64>) -> Self {
        let mut moments = Self::default();
        for length in lengths {
            let length = length as f64;
            moments.count += 1.0;
            moments.sum += length;
            moments.squares += length * length;
        }
        moments
    }

    fn add(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    fn mean(self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    fn variance(self) -> f64 {
        let mean = self.mean();
        (self.squares / self.count.max(1.0) - mean * mean).max(0.0)
    }
}

/// The moving average of a variance, and how many values are in it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Average {
    count: u64,
    value: f64,
}

impl Average {
    fn add(&mut self, value: f64, weight: f64) {
        let weight = if self.count == 0 { 1.0 } else { weight };
        self.value += weight * (value - self.value);
        self.count += 1;
    }
}

/// The history of a job's lengths.
#[derive(Clone, Debug)]
pub(crate) struct History {
    prompts: Recent<u64, Average>,
    domains: Recent<u64, Average>,
    all: Average,
    /// What ended since sizes were last asked for.
    batch: Moments,
    rho: Average,
    /// The mean length stands for the time of one more member: by equation 4, with a time per token
    /// that grows linearly with the batch, they are proportional.
    k: Average,
    rho_first: Average,
    k_first: Average,
}

impl History {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            prompts: Recent::new(config.prompts_max as usize),
            domains: Recent::new(DOMAINS_MAX),
            all: Average::default(),
            batch: Moments::default(),
            rho: Average::default(),
            k: Average::default(),
            rho_first: Average::default(),
            k_first: Average::default(),
        }
    }

    /// Learns the lengths of a group that ended.
    pub(crate) fn learn(&mut self, prompt: u64, domain: u64, lengths: Moments, config: &Config) {
        let variance = lengths.variance();
        let average = self.prompts.touch(prompt);
        average.add(variance, config.prompt_weight);
        self.domains
            .touch(domain)
            .add(variance, config.prompt_weight);
        self.all.add(variance, config.prompt_weight);
        self.batch.add(lengths);
    }

    /// Closes a batch: what ended since the last call.
    pub(crate) fn close_batch(&mut self, config: &Config) {
        let batch = std::mem::take(&mut self.batch);
        let mean = batch.mean();
        if mean <= 0.0 {
            return;
        }
        let rho = batch.variance().sqrt() / mean;
        self.rho.add(rho, config.batch_weight);
        self.k.add(mean, config.batch_weight);
        if self.rho_first.count < FIRST_BATCHES {
            let weight = 1.0 / (self.rho_first.count + 1) as f64;
            self.rho_first.add(rho, weight);
            self.k_first.add(mean, weight);
        }
    }

    /// How lengths spread now and spread at first; `None` before anything ended.
    pub(crate) fn spread(&self) -> Option<Spread> {
        (self.rho.count > 0).then_some(Spread {
            rho: self.rho.value,
            k: self.k.value,
            rho_first: self.rho_first.value,
            k_first: self.k_first.value,
        })
    }

    /// The standard deviation of a prompt's lengths, drawn towards that of its domain the less is
    /// known of it; 0 if nothing is known at all.
    pub(crate) fn deviation(&self, prompt: u64, domain: u64) -> f64 {
        let of_domain = self.domains.get(&domain).unwrap_or(&self.all).value;
        let own = self.prompts.get(&prompt).copied().unwrap_or_default();
        let count = own.count as f64;
        ((count * own.value + of_domain) / (count + 1.0)).sqrt()
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = MARK.to_vec();
        let mut put = |average: &Average| {
            bytes.extend(average.count.to_le_bytes());
            bytes.extend(average.value.to_le_bytes());
        };
        let common = [
            &self.all,
            &self.rho,
            &self.k,
            &self.rho_first,
            &self.k_first,
        ];
        common.into_iter().for_each(&mut put);
        for number in [self.batch.count, self.batch.sum, self.batch.squares] {
            bytes.extend(number.to_le_bytes());
        }
        for known in [&self.domains, &self.prompts] {
            let known = known.oldest_first();
            bytes.extend((known.len() as u64).to_le_bytes());
            for (key, average) in known {
                bytes.extend(key.to_le_bytes());
                bytes.extend(average.count.to_le_bytes());
                bytes.extend(average.value.to_le_bytes());
            }
        }
        bytes
    }

    /// Reads what [`History::write`] wrote, of another version of the configuration too.
    pub(crate) fn read(bytes: &[u8], config: &Config) -> Result<Self, PolicyError> {
        let wrong = |what: &str| {
            PolicyError::failed(format!(
                "the snapshot can't be read: {what}; start without it"
            ))
        };
        let rest = bytes.strip_prefix(MARK);
        let rest = rest.ok_or_else(|| wrong("it does not begin with the mark of version 1"))?;
        let read = Self::read_from(&mut Numbers { rest }, config);
        read.ok_or_else(|| wrong("it ends early, or a figure is out of range"))
    }

    fn read_from(numbers: &mut Numbers<'_>, config: &Config) -> Option<Self> {
        let mut history = Self::new(config);
        history.all = numbers.average()?;
        history.rho = numbers.average()?;
        history.k = numbers.average()?;
        history.rho_first = numbers.average()?;
        history.k_first = numbers.average()?;
        history.batch = Moments {
            count: numbers.figure()?,
            sum: numbers.figure()?,
            squares: numbers.figure()?,
        };
        for known in [&mut history.domains, &mut history.prompts] {
            for _ in 0..numbers.word()? {
                let key = numbers.word()?;
                known.insert(key, numbers.average()?);
            }
        }
        numbers.rest.is_empty().then_some(history)
    }
}

/// The numbers of a snapshot, one after the other.
struct Numbers<'b> {
    rest: &'b [u8],
}

impl Numbers<'_> {
    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn figure(&mut self) -> Option<f64> {
        let figure = f64::from_bits(self.word()?);
        // Sums of squares of lengths are finite and not negative.
        (0.0..1e150).contains(&figure).then_some(figure)
    }

    fn average(&mut self) -> Option<Average> {
        Some(Average {
            count: self.word()?,
            value: self.figure()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(of: &[u64]) -> Moments {
        Moments::of(of.iter().copied())
    }

    #[test]
    fn what_is_unknown_takes_after_its_domain_and_then_after_all() {
        let config = Config::default();
        let mut history = History::new(&config);
        assert!(history.deviation(1, 9).abs() < 1e-12);
        history.learn(1, 7, lengths(&[10, 30]), &config);
        assert!((history.deviation(2, 7) - 10.0).abs() < 1e-9);
        assert!((history.deviation(2, 8) - 10.0).abs() < 1e-9, "as all");
        history.learn(3, 8, lengths(&[0, 80]), &config);
        // Once seen: half its own variance, half its domain's.
        let expected = (1_600.0_f64).sqrt();
        assert!((history.deviation(3, 8) - expected).abs() < 1e-9);
        history.learn(1, 7, lengths(&[10, 10]), &config);
        // Its variance is 50 in the average, of two; its domain's too.
        assert!((history.deviation(1, 7) - (50.0_f64).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn the_first_batches_are_what_later_ones_are_compared_with() {
        let config = Config::default();
        let mut history = History::new(&config);
        assert_eq!(history.spread(), None);
        history.close_batch(&config);
        assert_eq!(history.spread(), None, "nothing ended");
        for _ in 0..FIRST_BATCHES {
            history.learn(1, 0, lengths(&[10, 30]), &config);
            history.close_batch(&config);
        }
        for _ in 0..200 {
            history.learn(1, 0, lengths(&[10, 90]), &config);
            history.close_batch(&config);
        }
        let spread = history.spread().unwrap();
        assert!((spread.rho_first - 0.5).abs() < 1e-9, "{spread:?}");
        assert!((spread.k_first - 20.0).abs() < 1e-9, "{spread:?}");
        assert!((spread.rho - 0.8).abs() < 1e-6, "{spread:?}");
        assert!((spread.k - 50.0).abs() < 1e-6, "{spread:?}");
    }

    #[test]
    fn a_snapshot_is_restored_and_a_damaged_one_refused() {
        let config = Config::default();
        let mut history = History::new(&config);
        for prompt in 0..5 {
            history.learn(prompt, prompt % 2, lengths(&[prompt, 30]), &config);
        }
        history.close_batch(&config);
        history.learn(9, 1, lengths(&[4, 30]), &config);
        let bytes = history.write();
        let read = History::read(&bytes, &config).unwrap();
        assert_eq!(read.write(), bytes);
        assert!(History::read(&bytes[..bytes.len() - 1], &config).is_err());
        assert!(History::read(&[0xff; 64], &config).is_err());
    }
}
