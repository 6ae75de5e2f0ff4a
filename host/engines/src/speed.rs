//! How fast an engine computes prompts, measured with prompts of treadle's own when it is registered:
//! answers in one piece do not show it, and many clients ask for no others.

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

/// Prompt tokens that an engine computes in a second; `None` where it does not tell.
pub(super) async fn prefill_speed(
    upstream: &Upstream,
    url: &str,
    capacity: Capacity,
) -> Option<u64> {
    let (_, page) = fetch(upstream, Method::GET, url, "/v1/models", None)
        .await
        .ok()?;
    let model = models_of(&page).into_iter().next()?.id;
    let bounds = [capacity.tokens, capacity.context_tokens_max];
    let room = bounds.into_iter().flatten().min().unwrap_or(u64::MAX);
    let words_max = WORDS_MAX.min(room / PARTS / WORD_TOKENS_MAX);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let mut numbers = Numbers(seed.as_nanos() as u64);
    let mut ask = async |words: u64| {
        let text = numbers.text(words);
        computed(upstream, url, &model, &text).await
    };
    if words_max < WORDS_FIRST {
        return None;
    }
    // The first one may wait for what an engine prepares on its first request.
    let shorts = [ask(WORDS_FIRST).await?, ask(WORDS_FIRST).await?];
    let short = shorts.into_iter().min_by_key(|short| short.took)?;
    let times = LONG_S / short.took.as_secs_f64().max(1e-3);
    let words = ((WORDS_FIRST as f64 * times) as u64).min(words_max);
    if words < 2 * WORDS_FIRST {
        // It is busy, far away or slow.
        return None;
    }
    speed(&short, &ask(words).await?)
}

/// By what the long prompt has more, and takes more; `None` if that is too little to tell it from
/// what comes with each request, and from what else the engine and the network do.
fn speed(short: &Computed, long: &Computed) -> Option<u64> {
    let more = long.tokens.checked_sub(short.tokens)?;
    let longer = long.took.checked_sub(short.took)?;
    let tells = more >= MORE_TOKENS_LEAST && longer * 2 >= short.took && !longer.is_zero();
    tells.then(|| (more as f64 / longer.as_secs_f64()) as u64)
}

/// A prompt that was computed.
struct Computed {
    tokens: u64,
    took: Duration,
}

async fn computed(upstream: &Upstream, url: &str, model: &str, text: &str) -> Option<Computed> {
    let request = json!({"model": model, "prompt": text, "max_tokens": 1, "temperature": 0});
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
    (tokens > 0).then_some(Computed { tokens, took })
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

    fn computed(tokens: u64, took_ms: u64) -> Computed {
        let took = Duration::from_millis(took_ms);
        Computed { tokens, took }
    }

    #[test]
    fn what_comes_with_each_request_is_not_counted() {
        assert_eq!(
            speed(&computed(200, 30), &computed(3_200, 230)),
            Some(15_000)
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
