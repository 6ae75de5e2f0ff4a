//! Requests for tokens at the engines' own APIs: `/generate` of SGLang, `/inference/v1/generate` of
//! vLLM.

use super::place::places;
use super::read::{Hidden, TokenReader};
use super::request::{NotCaptured, TokenRequest, prompt_ids};
use crate::{insert_fields, remove_fields};
use serde::Deserialize;
use serde_json::value::RawValue;
use treadle_model::EngineKind;

#[derive(Default, Deserialize)]
#[serde(default)]
struct VllmFields<'a> {
    #[serde(borrow)]
    token_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    features: Option<&'a RawValue>,
    #[serde(borrow)]
    sampling_params: Option<&'a RawValue>,
    #[serde(borrow)]
    return_token_ids: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Sampling<'a> {
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SglangFields<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    input_ids: Option<&'a RawValue>,
    #[serde(borrow)]
    input_embeds: Option<&'a RawValue>,
    #[serde(borrow)]
    image_data: Option<&'a RawValue>,
    #[serde(borrow)]
    return_logprob: Option<&'a RawValue>,
    #[serde(borrow)]
    return_prompt_token_ids: Option<&'a RawValue>,
}

fn asks(field: Option<&RawValue>) -> bool {
    field.is_some_and(|field| field.get() != "false")
}

/// The ids of the prompt are the client's, unless the engine adds those of media.
pub(super) fn ask_vllm(body: &[u8]) -> Result<TokenRequest, NotCaptured> {
    let fields: VllmFields<'_> =
        serde_json::from_slice(body).map_err(|_| NotCaptured::Malformed)?;
    let sampling = fields.sampling_params.map_or("{}", RawValue::get);
    let own: Sampling<'_> = serde_json::from_str(sampling).map_err(|_| NotCaptured::Malformed)?;
    let hidden = Hidden {
        ids: false,
        prompt: !asks(fields.return_token_ids),
        logprobs: own.logprobs.is_none(),
        usage: false,
    };
    let mut wanted = Vec::new();
    if hidden.logprobs {
        let scored = with(sampling.as_bytes(), &[("logprobs", "0".to_owned())])?;
        let scored = String::from_utf8(scored).map_err(|_| NotCaptured::Malformed)?;
        wanted.push(("sampling_params", scored));
    }
    if hidden.prompt && fields.features.is_some() {
        wanted.push(("return_token_ids", "true".to_owned()));
    }
    let sent = fields.token_ids.map(prompt_ids).transpose()?;
    let reader = TokenReader::new(hidden, EngineKind::Vllm);
    Ok(TokenRequest {
        body: with(body, &wanted)?,
        reader: reader.after(sent.unwrap_or_default()),
        is_played: false,
    })
}

pub(super) fn ask_sglang(body: &[u8]) -> Result<TokenRequest, NotCaptured> {
    let fields: SglangFields<'_> =
        serde_json::from_slice(body).map_err(|_| NotCaptured::Malformed)?;
    if fields.input_embeds.is_some() {
        return Err(NotCaptured::Prompt("input_embeds"));
    }
    // Either may be a list of prompts.
    let sent = fields.input_ids.or(fields.text).map(prompt_ids);
    let sent = sent.transpose()?.unwrap_or_default();
    let hidden = Hidden {
        ids: false,
        prompt: !asks(fields.return_prompt_token_ids),
        logprobs: !asks(fields.return_logprob),
        usage: false,
    };
    let truth = || "true".to_owned();
    let mut wanted = Vec::new();
    if hidden.logprobs {
        wanted.push(("return_logprob", truth()));
    }
    if hidden.prompt && (sent.is_empty() || fields.image_data.is_some()) {
        wanted.push(("return_prompt_token_ids", truth()));
    }
    let reader = TokenReader::new(hidden, EngineKind::Sglang);
    Ok(TokenRequest {
        body: with(body, &wanted)?,
        reader: reader.of_generated().after(sent),
        is_played: false,
    })
}

/// The object with these fields instead of its own.
fn with(body: &[u8], fields: &[(&str, String)]) -> Result<Vec<u8>, NotCaptured> {
    let names: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let body = remove_fields(body, places(body, &names));
    insert_fields(&body, fields).ok_or(NotCaptured::Malformed)
}
