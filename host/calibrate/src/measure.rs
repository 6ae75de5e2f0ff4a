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
/// A gap below this share of the longest is not a piece of a prompt.
const PIECE_MIN: f64 = 0.2;
/// Prompts beside a sequence have this length at least: shorter ones drown in what a request costs.
const BESIDE_TOKENS_MIN: u32 = 128;
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
    /// Numbered slots that requests can be pinned to; 0 if there are none.
    pub(super) slots: u32,
}

impl Plan {
    /// Prompt lengths of a batch's sequences.
    fn contexts(&self, sequences: u32) -> Vec<u32> {
        let longest = (self.batch_tokens_max / u64::from(sequences.max(1)))
            .saturating_sub(u64::from(self.output_tokens));
        let longest = self
            .context_tokens_max
            .min(u32::try_from(longest).unwrap_or(u32::MAX));
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

/// Measures all of the plan; `tell` is called with each round.
pub(super) async fn measure(
    target: &Target,
    plan: &Plan,
    report_progress: &mut dyn FnMut(String),
) -> Result<Measurements, CalibrateError> {
    let mut bench = Bench {
        target,
        plan,
        prompts: Prompts::fresh(),
        times: BTreeMap::new(),
        longest_output_tokens: 0,
        pieces: Vec::new(),
    };
    report_progress("warming up".to_owned());
    bench.warm_up().await?;
    for round in 0..plan.repeats {
        report_progress(format!("round {} of {}: prompts", round + 1, plan.repeats));
        for tokens in &plan.prompts {
            bench.prompt(*tokens).await?;
        }
        report_progress(format!("round {} of {}: batches", round + 1, plan.repeats));
        for sequences in &plan.batches {
            bench.batches(*sequences).await?;
        }
        if plan.batches.len() > 1 {
            report_progress(format!(
                "round {} of {}: prompts beside a sequence",
                round + 1,
                plan.repeats
            ));
            let long = |tokens: &&u32| **tokens >= BESIDE_TOKENS_MIN;
            for tokens in plan.prompts.iter().filter(long) {
                bench.beside(*tokens).await?;
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
    /// In how many iterations the longest prompt was computed.
    pieces: Vec<f64>,
}

impl Bench<'_> {
    async fn complete(
        &self,
        prompt: Vec<u32>,
        output_tokens: u32,
    ) -> Result<Answer, CalibrateError> {
        let request = Request {
            prompt,
            output_tokens,
            slot: Some(0),
        };
        self.target.complete(request).await
    }

    async fn warm_up(&mut self) -> Result<(), CalibrateError> {
        let prompt = self.prompts.ids(SHORT_TOKENS);
        self.complete(prompt, self.plan.output_tokens).await?;
        let widest = self.plan.batches.last().copied().unwrap_or(1);
        self.together(&vec![SHORT_TOKENS; widest as usize], 1)
            .await?;
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
        self.note(
            what,
            us.unwrap_or_else(|| micros(answer.ended_at - answer.sent_at)),
        );
        Ok(())
    }

    /// Sequences at once, with prompts of these lengths and of their own, each in the next slot but
    /// `apart - 1`.
    async fn together(
        &mut self,
        prompts: &[u32],
        apart: u32,
    ) -> Result<Vec<Answer>, CalibrateError> {
        let mut asked = JoinSet::new();
        for (slot, tokens) in (0..).step_by(apart.max(1) as usize).zip(prompts) {
            let request = Request {
                prompt: self.prompts.ids(*tokens),
                output_tokens: self.plan.output_tokens,
                slot: Some(slot),
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

    /// Batches of `sequences` sequences: all of one length, and one long among short ones, which
    /// shows whether the engine pads its batches.
    async fn batches(&mut self, sequences: u32) -> Result<(), CalibrateError> {
        let contexts = self.plan.contexts(sequences);
        for tokens in &contexts {
            let prompts = vec![*tokens; sequences as usize];
            self.batch(&prompts, 1).await?;
            if sequences > 1 && 2 * sequences - 1 <= self.plan.slots {
                self.batch(&prompts, 2).await?;
            }
        }
        if let [shortest, .., longest] = contexts[..]
            && sequences > 1
        {
            let mut uneven = vec![shortest; sequences as usize];
            uneven[0] = longest;
            self.batch(&uneven, 1).await?;
        }
        Ok(())
    }

    async fn batch(&mut self, prompts: &[u32], apart: u32) -> Result<(), CalibrateError> {
        let answers = self.together(prompts, apart).await?;
        let longest = answers.iter().map(|answer| answer.output_tokens).max();
        self.longest_output_tokens = self.longest_output_tokens.max(longest.unwrap_or(0));
        let contexts = || {
            let half = |answer: &Answer| answer.prompt_tokens + answer.output_tokens / 2;
            answers.iter().map(half)
        };
        if let Some(us) = decoded_together(&answers) {
            let what = Measured::Decode {
                sequences: answers.len() as u64,
                context_tokens: contexts().sum(),
                longest_tokens: contexts().max().unwrap_or(0),
                rows: if apart > 1 { answers.len() as u64 } else { 1 },
            };
            self.note(what, us);
        }
        Ok(())
    }

    /// What a prompt does to a sequence that decodes.
    async fn beside(&mut self, tokens: u32) -> Result<(), CalibrateError> {
        let stamps = Stamps::default();
        let decoding = Request {
            prompt: self.prompts.ids(SHORT_TOKENS),
            output_tokens: 2 * self.plan.output_tokens,
            slot: Some(0),
        };
        let prompt = Request {
            prompt: self.prompts.ids(tokens),
            output_tokens: 1,
            slot: Some(1),
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
        let pieces = pieces_us(&gaps);
        let what = Measured::Mixed {
            prompt_tokens: beside.prompt_tokens,
            context_tokens: decoded.prompt_tokens + SETTLED_TOKENS as u64,
        };
        self.note(what, pieces.iter().sum());
        if Some(&tokens) == self.plan.prompts.last() {
            self.pieces.push(pieces.len() as f64);
        }
        Ok(())
    }

    fn finish(self) -> Result<Measurements, CalibrateError> {
        let reports_batches = self
            .times
            .keys()
            .any(|what| matches!(what, Measured::Decode { .. }));
        if !reports_batches {
            let tokens = self.longest_output_tokens;
            return Err(CalibrateError::EndsEarly { tokens });
        }
        let longest = self.plan.prompts.last().copied().unwrap_or(0);
        let pieces = median(self.pieces).unwrap_or(0.0).round() as u32;
        let sample = |(what, times)| median(times).map(|us| Sample { what, us });
        Ok(Measurements {
            samples: self.times.into_iter().filter_map(sample).collect(),
            batched_tokens_max: cut_at(longest, pieces),
        })
    }
}

/// Tokens of one iteration, if a prompt took `pieces` of them: a power of two if one fits, as such budgets
/// are, else the middle of what fits. `None` if the prompt was not cut.
fn cut_at(prompt_tokens: u32, pieces: u32) -> Option<u32> {
    if pieces < 2 {
        return None;
    }
    let (least, most) = (prompt_tokens.div_ceil(pieces), prompt_tokens / (pieces - 1));
    let power = least.next_power_of_two();
    Some(if power <= most {
        power
    } else {
        u32::midpoint(least, most)
    })
}

/// Those of the gaps in which a prompt was computed: far longer than what lies between them.
fn pieces_us(gaps: &[f64]) -> Vec<f64> {
    let longest = gaps.iter().copied().fold(0.0, f64::max);
    let long = gaps
        .iter()
        .copied()
        .filter(|gap| *gap > longest * PIECE_MIN);
    long.collect()
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
        // By itself it was faster.
        first
            .tokens_at
            .splice(0..0, (0..5).map(|ms| start + Duration::from_millis(ms)));
        first.output_tokens = 25;
        let both = [first, answer(start, 50, 10, 20)];
        assert!((decoded_together(&both).unwrap() - 10_000.0).abs() < 1.0);
        let apart = [answer(start, 0, 10, 5), answer(start, 60, 10, 5)];
        assert_eq!(decoded_together(&apart), None);
        assert_eq!(decoded_together(&[]), None);
    }

    #[test]
    fn events_of_several_tokens_are_recognised_by_the_usage() {
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
        assert_eq!(
            pieces_us(&[200.0, 9_000.0, 220.0, 20_000.0, 210.0]),
            [9_000.0, 20_000.0]
        );
        assert!(pieces_us(&[]).is_empty());
    }

    #[test]
    fn budgets_are_powers_of_two_where_one_fits() {
        assert_eq!(cut_at(3_968, 1), None);
        assert_eq!(cut_at(3_968, 2), Some(2_048));
        assert_eq!(cut_at(4_098, 3), Some(2_048));
        assert_eq!(cut_at(4_096, 6), Some(751));
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
            slots: 0,
        };
        assert_eq!(plan.contexts(1), [64, 1_024, 4_096]);
        assert_eq!(plan.contexts(16), [64, 464]);
    }
}
