//! The executor and two real servers: fetched caches, and invalid handles.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use treadle_model::{EngineKind, ProgramId};
use treadle_tests::support::fixture::{CHAT, COMPLETIONS};
use treadle_transfer::{
    CopyLocation, Executors, Export, Import, Imported, KvCopy, KvExecutor, KvInterface, Limits,
    Prompt, Settings, Tags, TransferError, WorkerRef,
};

use super::{block_tokens, client_of, fetched, model_of, pair, undisturbed};
use crate::conversation::{answer_ids, ids};
use crate::offload::moves::strangers;

/// Context of a program, in tokens.
const TOKENS: usize = 1_000;

/// Two servers and the executor that moves caches between them.
pub(super) struct Pair {
    pub(super) first: String,
    pub(super) second: String,
    pub(super) model: String,
    executors: Executors,
}

impl Pair {
    pub(super) async fn of(first: &str, second: &str) -> Self {
        Self::with(first, second, Limits::default()).await
    }

    async fn with(first: &str, second: &str, limits: Limits) -> Self {
        let settings = Settings {
            limits,
            ..Settings::default()
        };
        Self {
            first: first.to_owned(),
            second: second.to_owned(),
            model: model_of(first).await,
            executors: Executors::new(settings),
        }
    }

    fn tags(&self) -> Tags {
        Tags {
            model: self.model.as_str().into(),
            shape: None,
            block_tokens: None,
            dtype: None,
        }
    }

    /// Makes the first server hold a program's KV.
    pub(super) async fn export(&self, prompt: Prompt) -> KvCopy {
        let export = Export {
            worker: worker(&self.first),
            slot: None,
            program: ProgramId(1),
            owner: "tests".into(),
            tokens: 0,
            prompt: Some(prompt),
            cache_salt: None,
            tags: self.tags(),
        };
        self.executors.export(export).await.expect("a copy")
    }

    /// Makes the second server fetch it.
    pub(super) async fn import(
        &self,
        copy: &KvCopy,
        prompt: Prompt,
    ) -> Result<Imported, TransferError> {
        let import = Import {
            worker: worker(&self.second),
            slot: None,
            program: ProgramId(1),
            prompt: Some(prompt),
            cache_salt: None,
            tags: self.tags(),
            copy: copy.clone(),
        };
        self.executors.import(import).await
    }

    /// A step's request with some tokens.
    pub(super) fn request(&self, prompt: &[u32]) -> Value {
        json!({
            "model": self.model, "prompt": prompt, "max_tokens": 8, "temperature": 0,
            "ignore_eos": true, "return_token_ids": true,
        })
    }

    /// The next step at the second server: the tokens that were cached there. Its answer is that of
    /// a server which has computed all of it.
    async fn next(&self, prompt: &[u32]) -> u64 {
        let request = self.request(prompt);
        let answer = client_of(&self.second).post(COMPLETIONS, &request).await;
        let answer = answer.ok();
        let tokens = answer_ids(&answer["choices"][0]);
        assert_eq!(tokens, undisturbed(&self.second, &request).await);
        let details = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
        details.as_u64().expect("what was cached")
    }
}

fn worker(url: &str) -> WorkerRef {
    WorkerRef {
        url: url.into(),
        kind: EngineKind::Vllm,
        node: None,
    }
}

pub(super) fn tokens(ids: &[u32]) -> Prompt {
    Prompt::Ids(ids.into())
}

/// Tokens that no other test uses.
pub(super) fn fresh(count: usize) -> Vec<u32> {
    ids(strangers(1), 0, count)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_fetches_what_the_other_one_holds() {
    let [first, second] = pair();
    let pair = Pair::of(&first, &second).await;
    let support = pair.executors.support(worker(&first)).await.expect("both");
    assert_eq!(support.interface, KvInterface::Nixl, "{}", support.why);
    let block = block_tokens(&second).await;
    let prompt = fresh(TOKENS);
    let copy = pair.export(tokens(&prompt)).await;
    let before = fetched(&second).await;
    let taken = pair.import(&copy, tokens(&prompt)).await.expect("it comes");
    assert!(taken.tokens >= TOKENS as u64 - block, "{}", taken.tokens);
    assert_eq!(fetched(&second).await - before, taken.tokens);
    let longer = [&prompt[..], &fresh(100)].concat();
    let cached = pair.next(&longer).await;
    assert!(cached >= TOKENS as u64 - block, "{cached}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_chats_move_by_their_tokens() {
    let [first, second] = pair();
    let pair = Pair::of(&first, &second).await;
    let words: Vec<String> = fresh(300).iter().map(u32::to_string).collect();
    let chat = json!({
        "model": pair.model, "max_tokens": 8, "temperature": 0, "stop": ["a"], "n": 1,
        "messages": [{"role": "user", "content": words.join(" ")}],
    });
    let prompt = Prompt::Body {
        path: CHAT.into(),
        body: Bytes::from(chat.to_string()),
    };
    let copy = pair.export(prompt.clone()).await;
    assert!(copy.prefix.hash.is_some(), "the server reports the tokens");
    let taken = pair.import(&copy, prompt).await.expect("it comes");
    let block = block_tokens(&second).await;
    assert!(taken.tokens + block >= copy.prefix.tokens, "{taken:?}");
    let answer = client_of(&second).post(CHAT, &chat).await.ok();
    let details = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    let cached = details.as_u64().expect("what was cached");
    assert!(cached + block >= copy.prefix.tokens, "{cached}");
    let calm = undisturbed_chat(&first, &chat).await;
    assert_eq!(answer["choices"][0]["message"]["content"], calm);
}

/// The text of a server's answer to a chat if no part of it is cached.
pub(super) async fn undisturbed_chat(url: &str, chat: &Value) -> Value {
    let mut chat = chat.clone();
    chat["cache_salt"] = json!(format!("calm-chat-{}", std::process::id()));
    let answer = client_of(url).post(CHAT, &chat).await.ok();
    answer["choices"][0]["message"]["content"].clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs two vLLM servers with the NixlConnector at TREADLE_TEST_VLLM_URL"]
async fn vllm_is_not_asked_for_what_is_no_longer_sure() {
    let [first, second] = pair();
    let pair = Pair::of(&first, &second).await;
    let before = fetched(&second).await;
    let prompt = fresh(TOKENS);
    let code = async |copy: &KvCopy, prompt: &[u32]| {
        let refused = pair.import(copy, tokens(prompt)).await;
        refused.expect_err("it is not sure").code()
    };
    // The same number of blocks, of other tokens.
    let copy = pair.export(tokens(&prompt)).await;
    assert_eq!(code(&copy, &fresh(TOKENS)).await, "other-prefix");
    // Altered on the way.
    let mut altered = copy.clone();
    let CopyLocation::Engine { parameters, .. } = &mut altered.place else {
        panic!("{altered:?}");
    };
    parameters["remote_engine_id"] = json!("another");
    assert_eq!(code(&altered, &prompt).await, "wrong-handle");
    // A copy can be used only once.
    assert_eq!(code(&copy, &prompt).await, "gone");
    // A handle of another process.
    let other = Pair::of(&first, &second).await;
    let copy = other.export(tokens(&prompt)).await;
    assert_eq!(code(&copy, &prompt).await, "gone");
    // A handle after its deadline.
    let limits = Limits {
        engine_held: Duration::ZERO,
        ..Limits::default()
    };
    let hasty = Pair::with(&first, &second, limits).await;
    let copy = hasty.export(tokens(&prompt)).await;
    let late = hasty.import(&copy, tokens(&prompt)).await;
    assert_eq!(late.expect_err("too late").code(), "gone");
    assert_eq!(fetched(&second).await, before, "nothing was fetched");
    assert_eq!(pair.next(&prompt).await, 0, "it computes all of it");
}
