//! The inference endpoints that the gateway understands.

/// One inference endpoint of an engine, the same path on the gateway.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Endpoint {
    /// OpenAI chat completions: `/v1/chat/completions`.
    ChatCompletions,
    /// OpenAI completions, text or token ids: `/v1/completions`.
    Completions,
    /// vLLM's token-in, token-out endpoint: `/inference/v1/generate`.
    VllmGenerate,
    /// SGLang's native endpoint: `/generate`.
    SglangGenerate,
    /// Anthropic messages: `/v1/messages`.
    Messages,
    /// OpenAI responses: `/v1/responses`.
    Responses,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Endpoint; 6] = [
        Endpoint::ChatCompletions,
        Endpoint::Completions,
        Endpoint::VllmGenerate,
        Endpoint::SglangGenerate,
        Endpoint::Messages,
        Endpoint::Responses,
    ];

    /// The path, with its leading slash.
    pub const fn path(self) -> &'static str {
        match self {
            Endpoint::ChatCompletions => "/v1/chat/completions",
            Endpoint::Completions => "/v1/completions",
            Endpoint::VllmGenerate => "/inference/v1/generate",
            Endpoint::SglangGenerate => "/generate",
            Endpoint::Messages => "/v1/messages",
            Endpoint::Responses => "/v1/responses",
        }
    }

    /// The endpoint at exactly this path, if it is one of them.
    pub fn of_path(path: &str) -> Option<Endpoint> {
        Endpoint::ALL
            .into_iter()
            .find(|endpoint| endpoint.path() == path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_leads_back_to_its_endpoint() {
        for endpoint in Endpoint::ALL {
            assert_eq!(Endpoint::of_path(endpoint.path()), Some(endpoint));
        }
        assert_eq!(Endpoint::of_path("/v1/chat/completions/"), None);
    }
}
