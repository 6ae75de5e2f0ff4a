//! Timing an engine: first tokens of prompts of several lengths, tokens of several batches at
//! several contexts, and what a prompt does to a sequence that decodes beside it.
//!
//! All of it is repeated, one round after another, so that a disturbance falls on one repetition
//! of everything and not on all repetitions of one thing; medians are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::CalibrateError;
use super::client::{Answer, Request, Stamps, Target, micros};
use super::prompts::Prompts;
use super::sample::{Measured, Sample, median};

/// Prompt of sequences that are to decode at a short context.
const SHORT_TOKENS: u32 = 64;
/// Tokens after a cached prompt.
const CONTINUATION_TOKENS: u32 = 64;
/// Prompts from this length are continued.
const CONTINUED_TOKENS_MIN: u32 = 256;
/// Tokens that a batch must have decoded together to be counted.
const TOGETHER_MIN: usize = 4;
/// Tokens of the sequence that decodes beside a prompt before that prompt is sent.
const SETTLED_TOKENS: usize = 4;
/// How often the stamps of an answer are looked at.
const LOOK: Duration = Duration::from_millis(1);

/// What to measure.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Lengths of prompts, ascending, in tokens.
    pub(super) prompts: Vec<u32>,
    /// Sequences at once.
    pub(super) batches: Vec<u32>,
    /// Longest context of batches, in tokens.
    pub(super) context_tokens_max: u32,
    /// Prompt tokens of a batch at most, so that the engine holds it.
    pub(super) batch_tokens_max: u64,
    /// Tokens that each sequence decodes.
    pub(super) output_tokens: u32,
    /// Rounds.
    pub(super) repeats: u32,
}

impl Plan {
    /// Prompt lengths of a batch's sequences.
    fn contexts(&self, sequences: u32) -> Vec<u32> {
        let longest = (self.batch_tokens_max / u64::from(sequences.max(1))).saturating_sub(u64::from(self.output_tokens));
        let longest = self.context_tokens_max.min(u32::try_from(longest).unwrap_or(u32::MAX));
        let mut contexts = vec![SHORT_TOKENS.min(longest), longest / 4, longest];
        contexts.retain(|tokens| *tokens > 0);
        contexts.dedup_by(|next, before| *next < 2 * *before);
        contexts
    }
}

/// What was measured.
pub(super) struct Measurements {
    /// Medians, in a fixed order.
    pub(super) samples: Vec<Sample>,
    /// Tokens that one iteration computes at most, where a prompt was cut.
    pub(super) batched_tokens_max: Option<u32>,
}

/// Measures all of the plan; `tell` hears of each round.
pub(super) async fn measure(
    target: &Target,
    plan: &Plan,
    tell: &mut dyn FnMut(String),
) -> Result<Measurements, CalibrateError> {
    let mut bench = Bench {
        target,
        plan,
        prompts: Prompts::fresh(),
        times: BTreeMap::new(),
        longest_output_tokens: 0,
        cuts: Vec::new(),
    };
    tell("warming up".to_owned());
    bench.warm_up().await?;
    for round in 0..plan.repeats {
        tell(format!("round {} of {}: prompts", round + 1, plan.repeats));
        for tokens in plan.prompts.clone() {
            bench.prompt(tokens).await?;
        }
        tell(format!("round {} of {}: batches", round + 1, plan.repeats));
        for sequences in plan.batches.clone() {
            for tokens in plan.contexts(sequences) {
                bench.batch(sequences, tokens).await?;
            }
        }
        if plan.batches.len() > 1 {
            tell(format!("round {} of {}: prompts beside a sequence", round + 1, plan.repeats));
            for tokens in plan.prompts.clone() {
                bench.beside(tokens).await?;
            }
        }
    }
    bench.finish()
}

struct Bench<'a> {
    target: &'a Target,
    plan: &'a Plan,
    prompts: Prompts,
    times: BTreeMap<Measured, Vec<f64>>,
    longest_output_tokens: u64,
    /// What prompts beside a sequence say of the tokens of one iteration.
    cuts: Vec<f64>,
}

impl Bench<'_> {
    async fn complete(&self, prompt: Vec<u32>, output_tokens: u32) -> Result<Answer, CalibrateError> {
        let request = Request { prompt, output_tokens, seat: None };
        self.target.complete(request).await
    }

    async fn warm_up(&mut self) -> Result<(), CalibrateError> {
        let prompt = self.prompts.ids(SHORT_TOKENS);
        self.complete(prompt, self.plan.output_tokens).await?;
        let widest = self.plan.batches.last().copied().unwrap_or(1);
        self.together(widest, SHORT_TOKENS).await?;
        Ok(())
    }

    fn note(&mut self, what: Measured, us: f64) {
        if us.is_finite() && us > 0.0 {
            self.times.entry(what).or_default().push(us);
        }
    }

    /// The first token of a prompt, and of the same with a few tokens more.
    async fn prompt(&mut self, tokens: u32) -> Result<(), CalibrateError> {
        let mut prompt = self.prompts.ids(tokens);
        self.first_token(prompt.clone()).await?;
        if tokens >= CONTINUED_TOKENS_MIN {
            prompt.extend(self.prompts.ids(CONTINUATION_TOKENS));
            self.first_token(prompt).await?;
        }
        Ok(())
    }

    async fn first_token(&mut self, prompt: Vec<u32>) -> Result<(), CalibrateError> {
        let answer = self.complete(prompt, 1).await?;
        let what = Measured::Prefill {
            cached_tokens: answer.cached_tokens.unwrap_or(0),
            prompt_tokens: answer.prompt_tokens,
        };
        // Some engines send no event for a single token whose text is empty.
        let us = answer.first_token_us();
        self.note(what, us.unwrap_or_else(|| micros(answer.ended_at - answer.sent_at)));
        Ok(())
    }

    /// So many sequences at once, each with a prompt of its own.
    async fn together(&mut self, sequences: u32, tokens: u32) -> Result<Vec<Answer>, CalibrateError> {
        let mut asked = JoinSet::new();
        for _ in 0..sequences {
            let request = Request {
                prompt: self.prompts.ids(tokens),
                output_tokens: self.plan.output_tokens,
                seat: None,
            };
            let target = self.target.clone();
            asked.spawn(async move { target.complete(request).await });
        }
        let mut answers = Vec::new();
        while let Some(answer) = asked.join_next().await {
            let broken = |error: tokio::task::JoinError| CalibrateError::Broken(error.to_string());
            answers.push(answer.map_err(broken)??);
        }
        Ok(answers)
    }

    async fn batch(&mut self, sequences: u32, tokens: u32) -> Result<(), CalibrateError> {
        let answers = self.together(sequences, tokens).await?;
        let longest = answers.iter().map(|answer| answer.output_tokens).max();
        self.longest_output_tokens = self.longest_output_tokens.max(longest.unwrap_or(0));
        let context_tokens = answers
            .iter()
            .map(|answer| answer.prompt_tokens + answer.output_tokens / 2)
            .sum();
        if let Some(us) = decoded_together(&answers) {
            let sequences = u64::from(sequences);
            self.note(Measured::Decode { sequences, context_tokens }, us);
        }
        Ok(())
    }

    /// What a prompt does to a sequence that decodes.
    async fn beside(&mut self, tokens: u32) -> Result<(), CalibrateError> {
        let stamps = Stamps::default();
        let decoding = Request {
            prompt: self.prompts.ids(SHORT_TOKENS),
            output_tokens: 2 * self.plan.output_tokens,
            seat: None,
        };
        let prompt = Request {
            prompt: self.prompts.ids(tokens),
            output_tokens: 1,
            seat: None,
        };
        let beside = async {
            while stamps.all().len() < SETTLED_TOKENS {
                tokio::time::sleep(LOOK).await;
            }
            self.target.complete(prompt).await
        };
        let decoded = self.target.complete_into(decoding, stamps.clone());
        tokio::pin!(decoded);
        let (decoded, beside) = tokio::select! {
            // It ended before the other was sent.
            decoded = &mut decoded => return decoded.map(drop),
            beside = beside => (decoded.await?, beside?),
        };
        let gaps = gaps_us(&decoded.tokens_at, beside.sent_at, beside.ended_at);
        let Some(longest) = gaps.iter().copied().max_by(f64::total_cmp) else {
            return Ok(());
        };
        let what = Measured::Mixed {
            prompt_tokens: beside.prompt_tokens,
            context_tokens: decoded.prompt_tokens + SETTLED_TOKENS as u64,
        };
        self.note(what, longest);
        if Some(&tokens) == self.plan.prompts.last() {
            let cut = gaps.iter().filter(|gap| **gap > longest / 2.0);
            let pieces = cut.sum::<f64>() / longest;
            self.cuts.push(f64::from(tokens) / pieces.max(1.0));
        }
        Ok(())
    }

    fn finish(self) -> Result<Measurements, CalibrateError> {
        let tells_batches = self.times.keys().any(|what| matches!(what, Measured::Decode { .. }));
        if !tells_batches {
            let tokens = self.longest_output_tokens;
            return Err(CalibrateError::EndsEarly { tokens });
        }
        let longest = f64::from(self.plan.prompts.last().copied().unwrap_or(0));
        let cut = median(self.cuts).filter(|tokens| *tokens < longest * 0.75);
        let sample = |(what, times)| median(times).map(|us| Sample { what, us });
        Ok(Measurements {
            samples: self.times.into_iter().filter_map(sample).collect(),
            batched_tokens_max: cut.map(nearest_power),
        })
    }
}

/// The power of two nearest by ratio: what budgets of iterations are.
fn nearest_power(tokens: f64) -> u32 {
    let exponent = tokens.max(1.0).log2().round().clamp(0.0, 30.0);
    1 << exponent as u32
}

/// Microseconds per token while all sequences decoded: the median over them. `None` if that was
/// too short.
fn decoded_together(answers: &[Answer]) -> Option<f64> {
    // The first token of each belongs to its prompt.
    let from = answers.iter().map(|a| a.tokens_at.get(1)).max()??;
    let to = answers.iter().map(|a| a.tokens_at.last()).min()??;
    let per_token = |answer: &Answer| {
        let inside: Vec<&Instant> = answer
            .tokens_at
            .iter()
            .filter(|at| *from <= **at && **at <= *to)
            .collect();
        if inside.len() < TOGETHER_MIN {
            return None;
        }
        let lasted = **inside.last()? - **inside.first()?;
        // An event may have several tokens.
        let per_event = answer.output_tokens as f64 / answer.tokens_at.len() as f64;
        Some(micros(lasted) / ((inside.len() - 1) as f64 * per_event))
    };
    let each: Vec<f64> = answers.iter().filter_map(per_token).collect();
    (each.len() == answers.len()).then(|| median(each))?
}

/// Times between the tokens of a sequence while something else was under way, in microseconds.
fn gaps_us(tokens_at: &[Instant], from: Instant, to: Instant) -> Vec<f64> {
    tokens_at
        .windows(2)
        .filter(|pair| pair[1] > from && pair[0] < to)
        .map(|pair| micros(pair[1] - pair[0]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(start: Instant, from_ms: u64, each_ms: u64, count: u64) -> Answer {
        let at = |token: u64| start + Duration::from_millis(from_ms + token * each_ms);
        Answer {
            sent_at: start,
            tokens_at: (0..count).map(at).collect(),
            ended_at: at(count),
            prompt_tokens: 10,
            output_tokens: count,
            cached_tokens: None,
        }
    }

    #[test]
    fn only_time_in_which_all_decode_counts() {
        let start = Instant::now();
        let mut first = answer(start, 0, 10, 20);
        // Alone it was faster.
        first.tokens_at.splice(0..0, (0..5).map(|ms| start + Duration::from_millis(ms)));
        first.output_tokens = 25;
        let both = [first, answer(start, 50, 10, 20)];
        assert!((decoded_together(&both).unwrap() - 10_000.0).abs() < 1.0);
        let apart = [answer(start, 0, 10, 5), answer(start, 60, 10, 5)];
        assert_eq!(decoded_together(&apart), None);
        assert_eq!(decoded_together(&[]), None);
    }

    #[test]
    fn events_of_several_tokens_are_told_by_the_usage() {
        let mut one = answer(Instant::now(), 0, 40, 20);
        one.output_tokens = 80;
        assert!((decoded_together(&[one]).unwrap() - 10_000.0).abs() < 1.0);
    }

    #[test]
    fn gaps_are_those_beside_the_prompt() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let tokens = [at(0), at(10), at(110), at(120)];
        let gaps = gaps_us(&tokens, at(12), at(105));
        assert_eq!(gaps, vec![100_000.0]);
        assert_eq!((nearest_power(1_900.0), nearest_power(513.0)), (2_048, 512));
    }

    #[test]
    fn batches_fit_into_the_engine() {
        let plan = Plan {
            prompts: vec![32, 64],
            batches: vec![1, 16],
            context_tokens_max: 4_096,
            batch_tokens_max: 8_192,
            output_tokens: 48,
            repeats: 1,
        };
        assert_eq!(plan.contexts(1), [64, 1_024, 4_096]);
        assert_eq!(plan.contexts(16), [64, 464]);
    }
}
