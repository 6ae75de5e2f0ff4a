//! Embedding the contract in a module by hand, as toolchains do.

use wit_component::{StringEncoding, embed_component_metadata};

use super::contract::CONTRACT;
use crate::error::UploadRefusal;
use crate::worlds::WORLDS;

/// Adds the WIT of a world to a core module, as bindings do, so that a module written by hand can
/// be uploaded.
///
/// # Errors
/// The world does not exist, or the bytes are not a core module.
pub fn embed_contract(module: &[u8], world: &str) -> Result<Vec<u8>, UploadRefusal> {
    let mut worlds = CONTRACT.worlds.iter();
    let Some(&(_, id)) = worlds.find(|(name, _)| *name == world) else {
        return Err(UploadRefusal::new(
            "wrong-world",
            format!("there is no world {world}"),
            "the name of the world",
            format!("name one of {}", WORLDS.join(", ")),
        ));
    };
    let mut embedded = module.to_vec();
    embed_component_metadata(&mut embedded, &CONTRACT.resolve, id, StringEncoding::UTF8).map_err(
        |error| {
            UploadRefusal::new(
                "not-wasm",
                format!("{error:#}"),
                "the module",
                "give a core module in its binary form",
            )
        },
    )?;
    Ok(embedded)
}
