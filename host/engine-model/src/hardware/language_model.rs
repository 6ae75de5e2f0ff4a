//! Language models, with the sizes that determine their speed.

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// Number of layers with experts.
    pub layers: u64,
    /// Number of routed experts per layer.
    pub count: u64,
    /// Number of routed experts per token.
    pub per_token: u64,
    /// Width inside an expert.
    pub hidden: u64,
}

/// One language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LanguageModel {
    /// Its name.
    pub name: &'static str,
    /// Number of parameters.
    pub parameters: u64,
    /// Number of parameters used per token, embedding included.
    pub active_parameters: u64,
    /// Number of layers.
    pub layers: u64,
    /// Width.
    pub hidden: u64,
    /// Number of query heads.
    pub heads: u64,
    /// Number of key and value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head_dim: u64,
    /// Size of the vocabulary, in tokens.
    pub vocabulary: u64,
    /// Bytes per weight: 2 in bf16, 1 in FP8. KV is stored in bf16.
    pub weight_bytes: u64,
    /// Its experts; `None` if dense.
    pub experts: Option<Experts>,
    /// Source of the figures.
    pub source: &'static str,
}

const QWEN: &str = "Qwen3 technical report and the model's config.json";

const QWEN3: LanguageModel = LanguageModel {
    name: "",
    parameters: 0,
    active_parameters: 0,
    layers: 0,
    hidden: 0,
    heads: 0,
    kv_heads: 8,
    head_dim: 128,
    vocabulary: 151_936,
    weight_bytes: 2,
    experts: None,
    source: QWEN,
};

/// Qwen3-8B in bf16.
pub const QWEN3_8B: LanguageModel = LanguageModel {
    name: "qwen3-8b",
    parameters: 8_190_000_000,
    active_parameters: 8_190_000_000,
    layers: 36,
    hidden: 4_096,
    heads: 32,
    ..QWEN3
};

/// Qwen3-14B in bf16.
pub const QWEN3_14B: LanguageModel = LanguageModel {
    name: "qwen3-14b",
    parameters: 14_800_000_000,
    active_parameters: 14_800_000_000,
    layers: 40,
    hidden: 5_120,
    heads: 40,
    ..QWEN3
};

/// Qwen3-32B in bf16.
pub const QWEN3_32B: LanguageModel = LanguageModel {
    name: "qwen3-32b",
    parameters: 32_800_000_000,
    active_parameters: 32_800_000_000,
    layers: 64,
    hidden: 5_120,
    heads: 64,
    ..QWEN3
};

/// Qwen3-30B-A3B in bf16.
pub const QWEN3_30B_A3B: LanguageModel = LanguageModel {
    name: "qwen3-30b-a3b",
    parameters: 30_500_000_000,
    active_parameters: 3_300_000_000,
    layers: 48,
    hidden: 2_048,
    heads: 32,
    kv_heads: 4,
    experts: Some(Experts {
        layers: 48,
        count: 128,
        per_token: 8,
        hidden: 768,
    }),
    ..QWEN3
};

/// A model of the size of GLM-4.6, in FP8.
pub const GLM_46: LanguageModel = LanguageModel {
    name: "glm-4.6",
    parameters: 355_000_000_000,
    active_parameters: 32_000_000_000,
    layers: 92,
    hidden: 5_120,
    heads: 96,
    kv_heads: 8,
    head_dim: 128,
    vocabulary: 151_552,
    weight_bytes: 1,
    experts: Some(Experts {
        layers: 89,
        count: 160,
        per_token: 8,
        hidden: 1_536,
    }),
    source: "GLM-4.5 technical report and GLM-4.6's config.json (355B, 32B active)",
};

impl LanguageModel {
    /// All models.
    pub const ALL: [Self; 5] = [QWEN3_8B, QWEN3_14B, QWEN3_32B, QWEN3_30B_A3B, GLM_46];

    /// The model with that name, or `None`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name == name)
    }

    /// KV bytes per token: keys and values of all layers in bf16.
    pub fn kv_bytes_per_token(&self) -> u64 {
        2 * self.layers * self.kv_heads * self.head_dim * 2
    }

    /// Parameters of all routed experts: three matrices each.
    pub fn expert_parameters(&self) -> u64 {
        self.experts.map_or(0, |experts| {
            experts.layers * experts.count * 3 * self.hidden * experts.hidden
        })
    }

    /// Parameters of the embedding: stored completely, but a token only reads one row of it.
    pub fn embedding_parameters(&self) -> u64 {
        self.vocabulary * self.hidden
    }

    /// Bytes of weights that an iteration reads. Tokens are assumed to visit experts evenly and
    /// independently, so that `count x (1 - (1 - k / count)^tokens)` of them are expected to be
    /// visited.
    pub fn weights_read_bytes(&self, tokens: u64) -> f64 {
        let expert = self.expert_parameters();
        let always = self.parameters - expert - self.embedding_parameters();
        let visited = self.experts.map_or(0.0, |experts| {
            let missed = 1.0 - experts.per_token as f64 / experts.count as f64;
            1.0 - power(missed, tokens)
        });
        (always as f64 + expert as f64 * visited) * self.weight_bytes as f64
    }
}

/// A power by multiplication only, so that the result is the same on every machine.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            result *= square;
        }
        square *= square;
        rest /= 2;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kv_sizes_are_those_that_model_cards_imply() {
        let kib = |model: LanguageModel| model.kv_bytes_per_token() / 1_024;
        let all = LanguageModel::ALL.map(kib);
        assert_eq!(all, [144, 160, 256, 96, 368]);
    }

    #[test]
    fn one_token_visits_its_experts_and_many_visit_all() {
        let model = QWEN3_30B_A3B;
        let one = model.weights_read_bytes(1) / 2.0 + model.embedding_parameters() as f64;
        assert!((3.2e9..3.5e9).contains(&one), "{one}");
        let many = model.weights_read_bytes(10_000);
        let all = (model.parameters - model.embedding_parameters()) as f64 * 2.0;
        assert!((all - many).abs() < all / 1e9);
        assert!(model.weights_read_bytes(16) < all * 0.7);
    }
}
