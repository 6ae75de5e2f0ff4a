//! Times of moves of caches between two servers. `make bench-vllm` prints them.

use std::time::{Duration, Instant};

use serde_json::Value;
use treadle_tests::support::fixture::{COMPLETIONS, streamed};

use super::copies::{Pair, fresh, tokens};
use super::{client_of, pair};
use crate::conversation::usage;

/// Contexts of programs, in tokens.
const CONTEXTS: [usize; 3] = [1_024, 4_096, 12_288];
/// Tokens that a tool adds.
const TOOL_TOKENS: usize = 60;
/// Number of measurements of each.
const ROUNDS: usize = 3;

/// Times of one move, and of the steps after it.
struct Figures {
    export: Duration,
    import: Duration,
    moved: Duration,
    cold: Duration,
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "measures two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_figures() {
    let [first, second] = pair();
    let pair = Pair::of(&first, &second).await;
    // The handshake of the servers, and each one's warm-up for long prompts.
    one_round(&pair, CONTEXTS[0]).await;
    println!("| tokens | export | import | next turn with its cache | without |");
    println!("|---|---|---|---|---|");
    for context in CONTEXTS {
        let mut rounds = Vec::new();
        for _ in 0..ROUNDS {
            rounds.push(one_round(&pair, context).await);
        }
        let columns = [
            |f: &Figures| f.export,
            |f: &Figures| f.import,
            |f: &Figures| f.moved,
            |f: &Figures| f.cold,
        ];
        let columns = columns.map(|column| spread(rounds.iter().map(column).collect()));
        println!("| {context} | {} |", columns.join(" | "));
    }
}

/// The median, minimum and maximum.
fn spread(mut times: Vec<Duration>) -> String {
    times.sort();
    let ms = |at: usize| times[at].as_millis();
    let (least, median, most) = (ms(0), ms(times.len() / 2), ms(times.len() - 1));
    format!("{median} ms ({least}–{most})")
}

async fn one_round(pair: &Pair, context: usize) -> Figures {
    let prompt = fresh(context);
    let step = pair.request(&prompt);
    client_of(&pair.first).post(COMPLETIONS, &step).await.ok();
    let began = Instant::now();
    let copy = pair.export(tokens(&prompt)).await;
    let export = began.elapsed();
    let began = Instant::now();
    let taken = pair.import(&copy, tokens(&prompt)).await;
    let import = began.elapsed();
    let least = context as u64 * 9 / 10;
    assert!(taken.expect("it comes").tokens >= least);
    let next = [&prompt[..], &fresh(TOOL_TOKENS)].concat();
    let (moved, cached) = first_token(&pair.second, &pair.request(&next)).await;
    assert!(cached >= least, "{cached} of {context}");
    let strange = fresh(next.len());
    let (cold, cached) = first_token(&pair.second, &pair.request(&strange)).await;
    assert!(cached < least, "nobody knew these tokens");
    Figures {
        export,
        import,
        moved,
        cold,
    }
}

/// The time to the first token at a server, and the tokens that it had in its cache.
async fn first_token(url: &str, request: &Value) -> (Duration, u64) {
    let began = Instant::now();
    let mut events = client_of(url)
        .stream(COMPLETIONS, &streamed(request.clone()))
        .await;
    events.piece().await.expect("an event").expect("no break");
    let took = began.elapsed();
    let ended = events.finish().await;
    assert!(ended.is_done() && !ended.broken);
    (took, usage(&ended.objects()).cached)
}
