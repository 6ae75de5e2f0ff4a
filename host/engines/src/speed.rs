//! Measures an engine's prefill and decode speed with treadle's own requests when it is registered.
//! Answers that are not streamed hardly show them, many clients request only such answers, and the
//! first programs are placed by speed.

use super::adapter::fetch;
use http::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use treadle_core::memory::Capacity;
use treadle_http::Upstream;
use treadle_wire::models_of;

/// Words of the first prompts; a word is a number of four digits, hence one to five tokens.
const WORDS_FIRST: u64 = 64;
/// Minimum number of additional tokens in the long prompt, unless it takes longer by enough to be
/// measured with fewer.
const MORE_TOKENS_LEAST: u64 = 1_024;
const LONGER_TELLS: Duration = Duration::from_millis(250);
/// Maximum length of the long prompt, in words.
const WORDS_MAX: u64 = 8_192;
/// Target duration of the long prompt: the overhead of a request is small beside it, and it does
/// not disturb other work.
const LONG_S: f64 = 0.3;
/// Longest duration on a slow engine: other requests wait at most about this long.
const SLOW_LONG_S: f64 = 2.0;
/// Minimum length of the long prompt, relative to the short one.
const TIMES_LEAST: f64 = 1.5;
/// Maximum number of tokens per word.
const WORD_TOKENS_MAX: u64 = 5;
/// The long prompt may use this fraction of the engine's capacity: one part of `PARTS`.
const PARTS: u64 = 4;

/// Tokens of the answers to timed prompts. The second one arrives after the prompt's computation,
/// even from an engine that reports the first as soon as the request is scheduled.
const PROMPT_ANSWER_TOKENS: u64 = 2;
/// Tokens of the timed answer.
const ANSWER_TOKENS: u64 = 34;
/// Shorter answers are dominated by other costs.
const ANSWER_TOKENS_LEAST: u64 = 16;

/// The measured speeds; 0 for what could not be measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Speeds {
    /// Prompt tokens that it computes per second.
    pub(super) prefill_tokens_per_s: f64,
    /// Seconds per token when it generates a single answer.
    pub(super) token_s: f64,
}

/// Measures an engine; `None` if it does not answer as expected.
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
    // The first request may wait for the engine's initialisation.
    let shorts = [
        ask(WORDS_FIRST, PROMPT_ANSWER_TOKENS).await?,
        ask(WORDS_FIRST, PROMPT_ANSWER_TOKENS).await?,
    ];
    let short = shorts.into_iter().min_by_key(|short| short.took)?;
    let token_s = ask(WORDS_FIRST, ANSWER_TOKENS)
        .await
        .and_then(|answered| token_s(&short, &answered));
    let token_s = token_s.unwrap_or(0.0);
    let words = ((WORDS_FIRST as f64 * times_longer(&short)) as u64).min(words_max);
    let mut prefill_tokens_per_s: f64 = 0.0;
    // If the engine seems slow, the faster of two measurements: the other may have waited for other
    // requests.
    for _ in 0..2 {
        let long = ask(words, PROMPT_ANSWER_TOKENS).await;
        let found = long.as_ref().and_then(|long| speed(&short, long));
        prefill_tokens_per_s = prefill_tokens_per_s.max(found.unwrap_or(0.0));
        if long.is_none_or(|long| long.took.as_secs_f64() < 2.0 * LONG_S) {
            break;
        }
    }
    let speeds = Speeds {
        prefill_tokens_per_s,
        token_s,
    };
    (speeds != Speeds::default()).then_some(speeds)
}

/// Length of the long prompt relative to the short one.
fn times_longer(short: &Timed) -> f64 {
    let took_s = short.took.as_secs_f64().max(1e-3);
    let telling = 1.0 + 1.1 * MORE_TOKENS_LEAST as f64 / short.tokens as f64;
    let slow = telling.min(SLOW_LONG_S / took_s);
    (LONG_S / took_s).max(slow).max(TIMES_LEAST)
}

/// Time per token, from the difference in tokens and duration of two answers.
fn token_s(short: &Timed, answered: &Timed) -> Option<f64> {
    let more = answered.answer_tokens.checked_sub(short.answer_tokens)?;
    let longer = answered.took.checked_sub(short.took)?;
    let tells = answered.answer_tokens >= ANSWER_TOKENS_LEAST && more > 0;
    tells.then(|| longer.as_secs_f64() / more as f64)
}

/// Prompt tokens per second, from the difference in tokens and duration of two prompts; `None` if
/// the difference is too small to stand out from fixed costs and noise.
fn speed(short: &Timed, long: &Timed) -> Option<f64> {
    let more = long.tokens.checked_sub(short.tokens)?;
    let longer = long.took.checked_sub(short.took)?;
    let is_enough = more >= MORE_TOKENS_LEAST || longer >= LONGER_TELLS;
    let tells = is_enough && more > 0 && longer * 2 >= short.took && !longer.is_zero();
    tells.then(|| more as f64 / longer.as_secs_f64())
}

/// A request with its answer.
struct Timed {
    /// Computed tokens of its prompt.
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
    let tokens = usage["prompt_tokens"]
        .as_u64()?
        .saturating_sub(cached.unwrap_or(0));
    let answer_tokens = usage["completion_tokens"].as_u64().unwrap_or(1);
    (tokens > 0).then_some(Timed {
        tokens,
        answer_tokens,
        took,
    })
}

/// Numbers in an order that no earlier prompt had, so that no engine has them in its cache.
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
    use axum::routing::{get, post};
    use axum::{Json, Router};
    use tokio::net::TcpListener;

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
    fn token_time_is_the_difference_of_two_answers() {
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
    fn fixed_costs_are_not_counted() {
        assert_eq!(
            speed(&computed(200, 30), &computed(3_200, 230)),
            Some(15_000.0)
        );
    }

    #[test]
    fn slow_engines_get_prompts_that_are_measurable_and_short() {
        let words = |tokens, took_ms| {
            let times = times_longer(&computed(tokens, took_ms));
            (WORDS_FIRST as f64 * times) as u64
        };
        assert_eq!(
            words(256, 5),
            3_840,
            "as much as a fast one computes in 0.3 s"
        );
        assert_eq!(words(256, 320), 345, "1,126 tokens more");
        assert_eq!(words(256, 1_000), 128, "no more than take 2 s");
        assert_eq!(words(256, 2_000), 96);
        assert_eq!(
            speed(&computed(256, 1_000), &computed(512, 2_000)),
            Some(256.0)
        );
    }

    /// Serves an engine that computes this many prompt tokens per second, four for each word, and
    /// generates at once.
    async fn engine(tokens_per_s: f64) -> String {
        let answer = move |Json(request): Json<Value>| async move {
            let tokens = 4 * request["prompt"]
                .as_str()
                .map_or(0, |text| text.split(' ').count());
            tokio::time::sleep(Duration::from_secs_f64(tokens as f64 / tokens_per_s)).await;
            let answered = &request["max_tokens"];
            Json(json!({"usage": {"prompt_tokens": tokens, "completion_tokens": answered}}))
        };
        let models = async || Json(json!({"data": [{"id": "m"}]}));
        let router = Router::new()
            .route("/v1/models", get(models))
            .route("/v1/completions", post(answer));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    #[tokio::test]
    async fn fast_and_slow_engines_are_measured() {
        for (tokens_per_s, least, most) in
            [(2_000.0, 500.0, 6_000.0), (20_000.0, 2_000.0, 60_000.0)]
        {
            let (url, upstream) = (engine(tokens_per_s).await, Upstream::new(LONGER_TELLS));
            let speeds = speeds(&upstream, &url, Capacity::default()).await.unwrap();
            let found = speeds.prefill_tokens_per_s;
            assert!((least..most).contains(&found), "{found} of {tokens_per_s}");
        }
    }

    #[test]
    fn too_small_a_difference_gives_no_speed() {
        let short = computed(200, 100);
        assert_eq!(speed(&short, &computed(500, 300)), None, "few tokens more");
        assert_eq!(speed(&short, &computed(3_200, 149)), None, "hardly longer");
        assert_eq!(speed(&short, &computed(3_200, 90)), None, "shorter");
        assert_eq!(speed(&computed(9, 0), &computed(3_200, 0)), None, "no time");
    }
}
