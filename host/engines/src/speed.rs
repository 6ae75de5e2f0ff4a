//! How fast an engine computes prompts and writes answers, measured with requests of treadle's own
//! when it is registered: answers in one piece hardly show it, many clients ask for no others, and
//! the first programs are to be placed by it.

use super::adapter::fetch;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use treadle_core::Capacity;
use treadle_http::Upstream;
use treadle_wire::models_of;

/// Words of the first prompts; a word is a number of four digits, hence one to five tokens.
const WORDS_FIRST: u64 = 64;
/// Tokens that the long one has more, at least.
const MORE_TOKENS_LEAST: u64 = 1_024;
/// Words of the long one, at most.
const WORDS_MAX: u64 = 8_192;
/// What the long one should take: what comes with each request is small beside it, and nobody minds.
const LONG_S: f64 = 0.3;
/// Tokens of a word, at most.
const WORD_TOKENS_MAX: u64 = 5;
/// The part of the engine that the long one may take.
const PARTS: u64 = 4;

/// Tokens of the answers to prompts that are timed. The second one comes after the time that the
/// prompt takes, even from an engine that reports the first as soon as it is scheduled.
const PROMPT_ANSWER_TOKENS: u64 = 2;
/// Tokens of the answer that is timed.
const ANSWER_TOKENS: u64 = 34;
/// Of a shorter one, other things take most of the time.
const ANSWER_TOKENS_LEAST: u64 = 16;

/// What was measured; 0 for what did not show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speeds {
    /// Prompt tokens that it computes in a second.
    pub(super) prefill_tokens_per_s: f64,
    /// Seconds for a token of one answer alone.
    pub(super) token_s: f64,
}

/// How fast an engine is; `None` where it does not answer as it should.
pub(super) async fn speeds(upstream: &Upstream, url: &str, capacity: Capacity) -> Option<Speeds> {
    let (_, page) = fetch(upstream, Method::GET, url, "/v1/models", None)
        .await
        .ok()?;
    let model = models_of(&page).into_iter().next()?.id;
    let bounds = [capacity.tokens, capacity.context_tokens_max];
    let room = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
    let words_max = WORDS_MAX.min(room / PARTS / WORD_TOKENS_MAX);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mut numbers = Numbers(seed.as_nanos() as u64);
    let mut ask = async |words: u64, tokens: u64| {
        let text = numbers.text(words);
        timed(upstream, url, &model, &text, tokens).await
    };
    if words_max < WORDS_FIRST {
        return None;
    }
    // The first one may wait for what an engine prepares on its first request.
    let shorts = [
        ask(WORDS_FIRST, PROMPT_ANSWER_TOKENS).await?,
        ask(WORDS_FIRST, PROMPT_ANSWER_TOKENS).await?,
    ];
    let short = shorts.into_iter().min_by_key(|short| short.took)?;
    let token_s = ask(WORDS_FIRST, ANSWER_TOKENS)
        .await
        .and_then(|answered| token_s(&short, &answered));
    let token_s = token_s.unwrap_or(0.0);
    let times = LONG_S / short.took.as_secs_f64().max(1e-3);
    let words = ((WORDS_FIRST as f64 * times) as u64).min(words_max);
    // It is busy, far away or slow.
    let prefill_tokens_per_s = if words < 2 * WORDS_FIRST {
        None
    } else {
        speed(&short, &ask(words, PROMPT_ANSWER_TOKENS).await?)
    };
    let speeds = Speeds {
        prefill_tokens_per_s: prefill_tokens_per_s.unwrap_or(0.0),
        token_s,
    };
    (speeds != Speeds::default()).then_some(speeds)
}

/// By what the longer answer has more, and takes more.
fn token_s(short: &Timed, answered: &Timed) -> Option<f64> {
    let more = answered.answer_tokens.checked_sub(short.answer_tokens)?;
    let longer = answered.took.checked_sub(short.took)?;
    let tells = answered.answer_tokens >= ANSWER_TOKENS_LEAST && more > 0;
    tells.then(|| longer.as_secs_f64() / more as f64)
}

/// By what the long prompt has more, and takes more; `None` if that is too little to tell it from
/// what comes with each request, and from what else the engine and the network do.
fn speed(short: &Timed, long: &Timed) -> Option<f64> {
    let more = long.tokens.checked_sub(short.tokens)?;
    let longer = long.took.checked_sub(short.took)?;
    let tells = more >= MORE_TOKENS_LEAST && longer * 2 >= short.took && !longer.is_zero();
    tells.then(|| more as f64 / longer.as_secs_f64())
}

/// A request that was answered.
struct Timed {
    /// Tokens of its prompt that were computed.
    tokens: u64,
    answer_tokens: u64,
    took: Duration,
}

async fn timed(
    upstream: &Upstream,
    url: &str,
    model: &str,
    text: &str,
    answer_tokens: u64,
) -> Option<Timed> {
    let request = json!({
        "model": model, "prompt": text, "max_tokens": answer_tokens, "temperature": 0,
        "ignore_eos": true,
    });
    let began = Instant::now();
    let answer = fetch(
        upstream,
        Method::POST,
        url,
        "/v1/completions",
        Some(&request),
    )
    .await;
    let took = began.elapsed();
    let (_, page) = answer.ok().filter(|(status, _)| status.is_success())?;
    let answer: Value = serde_json::from_slice(&page).ok()?;
    let usage = &answer["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
    let tokens = usage["prompt_tokens"].as_u64()?;
    let tokens = tokens.saturating_sub(cached.unwrap_or(0));
    let answer_tokens = usage["completion_tokens"].as_u64().unwrap_or(1);
    (tokens > 0).then_some(Timed {
        tokens,
        answer_tokens,
        took,
    })
}

/// Numbers that no prompt before had in this order: no engine has them in its cache.
struct Numbers(u64);

impl Numbers {
    fn text(&mut self, words: u64) -> String {
        let words: Vec<String> = (0..words).map(|_| self.next().to_string()).collect();
        words.join(" ")
    }

    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        1_000 + (self.0 >> 33) % 9_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed(tokens: u64, took_ms: u64) -> Timed {
        answered(tokens, PROMPT_ANSWER_TOKENS, took_ms)
    }

    fn answered(tokens: u64, answer_tokens: u64, took_ms: u64) -> Timed {
        Timed {
            tokens,
            answer_tokens,
            took: Duration::from_millis(took_ms),
        }
    }

    #[test]
    fn a_token_takes_what_a_longer_answer_takes_more() {
        let short = computed(200, 30);
        assert_eq!(token_s(&short, &answered(200, 34, 670)), Some(0.02));
        assert_eq!(
            token_s(&short, &answered(200, 9, 190)),
            None,
            "it ended early"
        );
        assert_eq!(token_s(&short, &answered(200, 33, 20)), None, "shorter");
    }

    #[test]
    fn what_comes_with_each_request_is_not_counted() {
        assert_eq!(
            speed(&computed(200, 30), &computed(3_200, 230)),
            Some(15_000.0)
        );
    }

    #[test]
    fn too_small_a_difference_tells_nothing() {
        let short = computed(200, 100);
        assert_eq!(speed(&short, &computed(500, 400)), None, "few tokens more");
        assert_eq!(speed(&short, &computed(3_200, 149)), None, "hardly longer");
        assert_eq!(speed(&short, &computed(3_200, 90)), None, "shorter");
        assert_eq!(speed(&computed(9, 0), &computed(3_200, 0)), None, "no time");
    }
}
