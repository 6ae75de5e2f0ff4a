//! From text with placeholders to an upload.

use treadle_policy_runtime::embed_contract;

const PRELUDE: &str = include_str!("prelude.wat");
const WORLDS: [(&str, &str); 2] = [
    ("priority", include_str!("priority.wat")),
    ("placement", include_str!("placement.wat")),
];

/// A policy of a world with the given placeholders filled in, and named so.
pub(crate) fn build(world: &str, name: &str, places: &[(&str, &str)]) -> Vec<u8> {
    embed_contract(&module(world, name, places), world).expect("the contract embeds")
}

/// The module of a policy before the contract is embedded.
pub(crate) fn module(world: &str, name: &str, places: &[(&str, &str)]) -> Vec<u8> {
    let (_, body) = WORLDS
        .iter()
        .find(|(known, _)| *known == world)
        .expect("the world has a text");
    let mut text = body.replace("(;PRELUDE;)", PRELUDE);
    for (place, filling) in places {
        let hole = format!("(;{place};)");
        assert!(
            text.contains(&hole),
            "{name} fills {hole}, which is nowhere"
        );
        text = text.replace(&hole, filling);
    }
    for (place, default) in [("NAME", name), ("VERSION", "1.0.0")] {
        let length = places
            .iter()
            .find(|(filled, _)| *filled == place)
            .map_or(default, |(_, filling)| filling)
            .len()
            .to_string();
        text = text
            .replace(&format!("(;{place};)"), default)
            .replace(&format!("(;{place}_LENGTH;)"), &length);
    }
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}
