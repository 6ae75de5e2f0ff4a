//! Sizes of prompts: estimated when they arrive, corrected when an engine has counted them.

use crate::Programs;
use crate::estimates::{CountedPrompt, TextSize};
use crate::memory::PrefixSegment;
use crate::programs::StepArrival;
use treadle_model::{ProgramId, StepId};

/// Maximum ratio of a prefix to its estimate: a prompt beyond it contains attachments, which its
/// bytes do not count.
const PREFIX_RATIO_MAX: u64 = 4;

/// The part by which an estimate may exceed the true size.
const ESTIMATE_MARGIN_PART: u64 = 4;

impl Programs {
    /// Tokens of an arriving prompt: the count, otherwise the estimate.
    pub(crate) fn prompt_tokens(&self, arrival: &StepArrival) -> u64 {
        let Some((model, size)) = arrival.text_size() else {
            return arrival.prompt_tokens;
        };
        let program = self.state.keys.get(&arrival.program);
        let counted = program.and_then(|program| self.state.live.get(program)?.counted);
        let tokens = self
            .state
            .estimates
            .tokens()
            .next_tokens(model, size, counted);
        if self.is_too_long(tokens) { 0 } else { tokens }
    }

    /// Whether a prompt of text is so long that any engine will refuse it, with a margin for the
    /// estimate. It is sent anyway for an engine to refuse, and gets no room: others must not be
    /// paused for a step that will never run.
    fn is_too_long(&self, estimate: u64) -> bool {
        let most = self.context_tokens_max();
        most.is_some_and(|most| estimate - estimate / ESTIMATE_MARGIN_PART > most)
    }

    /// The shareable prefix of an arriving prompt, each segment with its tokens.
    pub(crate) fn prefix_of(&self, arrival: &StepArrival) -> Vec<PrefixSegment> {
        let mut prefix = arrival.prefix.clone();
        let Some(text) = &arrival.text else {
            return prefix;
        };
        for (segment, bytes) in prefix.iter_mut().zip(&text.prefix_bytes) {
            let size = TextSize {
                bytes: *bytes,
                messages: text.messages.min(1),
            };
            segment.tokens = self.state.estimates.tokens().part_tokens(&text.model, size);
        }
        if self.is_too_long(prefix.iter().map(|segment| segment.tokens).sum()) {
            prefix.clear();
        }
        prefix
    }

    /// Corrects a step's estimates once an engine has counted its prompt, and learns the token
    /// costs of the model.
    pub(crate) fn learn_tokens(&mut self, step: StepId, counted: u64) {
        let Some(s) = self.state.steps.get(&step).filter(|_| counted > 0) else {
            return;
        };
        let (program, estimate, estimated) = (s.program, s.prompt_tokens, s.estimated);
        let text = s.text.as_ref().map(|text| {
            let size = TextSize {
                bytes: s.prompt_bytes,
                messages: text.messages,
            };
            (text.model.clone(), size)
        });
        let p = self.state.live.get(&program);
        let is_first = p.is_some_and(|p| p.steps_finished == 0);
        // An engine has already counted what a fork has of its parent.
        let scales = is_first && estimated && p.is_some_and(|p| p.lineage.fork_of.is_none());
        self.correct_prefix(program, counted, scales.then_some(estimate));
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if is_first {
            p.first_prompt_tokens = counted;
        }
        if let Some((model, size)) = text {
            p.counted = Some(CountedPrompt {
                size,
                tokens: counted,
            });
            self.state.estimates.prompt_counted(&model, size, counted);
        }
    }

    /// Corrects a prefix after the program's first prompt, of which it is the largest share: it
    /// deviates from its estimate by as much as the whole prompt. It is never more than a prompt
    /// that contains it.
    fn correct_prefix(&mut self, program: ProgramId, counted: u64, estimate: Option<u64>) {
        let Some(p) = self.state.live.get_mut(&program) else {
            return;
        };
        if let Some(estimate) = estimate.filter(|estimate| *estimate > 0) {
            let most = estimate.saturating_mul(PREFIX_RATIO_MAX);
            let likely = counted.clamp(estimate / PREFIX_RATIO_MAX, most);
            scale(&mut p.prefix, likely, estimate);
        }
        let prefix = p.prefix_tokens();
        if prefix > counted {
            scale(&mut p.prefix, counted, prefix);
        }
        let Some(place) = p.placement else {
            return;
        };
        if let Some(w) = self.state.workers.get_mut(&place.worker) {
            w.ledger.recount_prefix(&p.prefix);
        }
        self.account_worker(place.worker);
    }
}

/// Multiplies the tokens of each segment by `tokens / of`.
fn scale(prefix: &mut [PrefixSegment], tokens: u64, of: u64) {
    for segment in prefix {
        let scaled = u128::from(segment.tokens) * u128::from(tokens) / u128::from(of);
        segment.tokens = u64::try_from(scaled).unwrap_or(u64::MAX);
    }
}
