//! Names of models, and the refusal of unknown ones.

use std::collections::BTreeSet;
use treadle_core::programs::Worker;
use treadle_wire::{ErrorBody, ErrorCode};

/// Most models that an error names.
const SHOWN_MAX: usize = 20;

/// All names that an engine serves.
pub(crate) fn models_of(engine: &Worker) -> BTreeSet<&str> {
    let others = engine.other_models.iter().map(|name| &**name);
    engine.model.as_deref().into_iter().chain(others).collect()
}

/// The refusal of an unknown model, with the known ones.
pub(crate) fn not_found<'m>(id: &str, known: impl IntoIterator<Item = &'m str>) -> ErrorBody {
    let shown: String = id.chars().take(100).collect();
    let known: Vec<&str> = known.into_iter().take(SHOWN_MAX).collect();
    let known = known.join("`, `");
    let message = format!(
        "no engine serves the model `{shown}`; available: `{known}` (GET /v1/models lists all)"
    );
    ErrorBody::new(ErrorCode::ModelNotFound, message).with_param("model")
}
