//! Places of values in a body, by their effect on the engine: settings (only listed ones pass),
//! prompts (their parts may name media), or inert data.

use super::engine_fields::passes;
use super::media::Media;

/// The place of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// The body of a generation request; its own names are checked when they are read.
    Body,
    /// `extra_body`, whose fields are treated like those of the body.
    ExtraBody,
    /// An object with only these allowed names.
    Settings(&'static [&'static str]),
    /// `sampling_params`.
    Sampling,
    /// `media_io_kwargs`, by modality.
    MediaSettings,
    /// A prompt or a part of it.
    Prompt,
    /// Definitions of tools.
    Tools,
    /// Media that an engine fetches or decodes.
    Media(Media),
    /// A schema, arguments of a call, a number: nothing that an engine acts on.
    Data,
}

/// Allowed names within a field.
const SETTINGS: &[(&str, &[&str])] = &[
    ("agent_hint", &["session_id", "parent_session_id"]),
    ("chat_template_kwargs", TEMPLATE_VARIABLES),
    ("mm_processor_kwargs", PROCESSOR_SETTINGS),
    (
        "stream_options",
        &[
            "include_usage",
            "continuous_usage_stats",
            "include_obfuscation",
        ],
    ),
    (
        "structured_outputs",
        &[
            "json",
            "regex",
            "choice",
            "grammar",
            "json_object",
            "structural_tag",
            "disable_fallback",
            "disable_any_whitespace",
            "disable_additional_properties",
            "whitespace_pattern",
        ],
    ),
    ("vllm_xargs", &["agentic_context"]),
];

/// Variables of known models' chat templates. Engines pass all variables to the function that
/// renders templates, whose own arguments include a template, files and sizes.
const TEMPLATE_VARIABLES: &[&str] = &[
    "add_default_system_prompt",
    "add_generation_prompt",
    "add_vision_id",
    "available_tools",
    "builtin_tools",
    "citations",
    "clear_thinking",
    "continue_final_message",
    "controls",
    "current_date",
    "custom_instructions",
    "custom_tools",
    "date_string",
    "documents",
    "enable_citations",
    "enable_reasoning",
    "enable_thinking",
    "force_nonempty_content",
    "force_reasoning",
    "interleaved_thinking",
    "keep_all_reasoning",
    "keep_past_thinking",
    "low_effort",
    "model_identity",
    "parallel_tool_calls",
    "preserve_thinking",
    "reasoning",
    "reasoning_budget",
    "reasoning_effort",
    "reasoning_mode",
    "safety_mode",
    "strip_thinking",
    "system_message",
    "system_prompt",
    "thinking",
    "thinking_budget",
    "thinking_mode",
    "think",
    "tool_choice",
    "tools_in_user_message",
    "truncate_history_thinking",
    "use_cot",
    "xml_tools",
];

/// Settings for the resolution and sampling of images and videos.
const PROCESSOR_SETTINGS: &[&str] = &[
    "do_sample_frames",
    "fps",
    "max_dynamic_patch",
    "max_frames",
    "max_pixels",
    "max_slice_nums",
    "min_dynamic_patch",
    "min_frames",
    "min_pixels",
    "num_crops",
    "num_frames",
    "use_audio_in_video",
];

/// Settings for reading images and videos in the engine.
const READING_SETTINGS: &[&str] = &[
    "fps",
    "frame_recovery",
    "image_mode",
    "max_duration",
    "num_frames",
    "rgba_background_color",
];

/// Tensors instead of images or texts, which engines unpickle.
const TENSORS: &[&str] = &[
    "audio_embeds",
    "image_embeds",
    "prompt_embeds",
    "video_embeds",
];

impl Place {
    /// Whether disallowed names here are reported with their path.
    pub(super) const fn has_path(self) -> bool {
        matches!(
            self,
            Self::ExtraBody | Self::Settings(_) | Self::Sampling | Self::MediaSettings
        )
    }

    /// Whether a field of this name may be sent to engines here.
    pub(super) fn takes(self, name: &str) -> bool {
        match self {
            Self::Body | Self::Media(_) | Self::Data | Self::Tools => true,
            Self::ExtraBody => {
                passes(name) || matches!(name, "program_id" | "session_id" | "parent_program_id")
            }
            Self::Settings(listed) => listed.contains(&name),
            Self::Sampling => super::engine_fields::passes_in_sampling(name),
            Self::MediaSettings => matches!(name, "audio" | "image" | "video"),
            Self::Prompt => !TENSORS.contains(&name),
        }
    }

    /// The place of the value of a field.
    pub(super) fn within(self, name: &str) -> Self {
        match self {
            Self::Body | Self::ExtraBody => Self::of_body(name),
            Self::Sampling if name == "structured_outputs" => Self::of_body(name),
            Self::MediaSettings => Self::Settings(READING_SETTINGS),
            Self::Prompt => match name {
                // Output of a model, and values that are only stored or shown.
                "input" | "arguments" | "tool_calls" | "function_call" | "metadata"
                | "citations" | "annotations" | "action" | "operation" | "cache_control" => {
                    Self::Data
                }
                _ => Media::named(name).map_or(Self::Prompt, Self::Media),
            },
            Self::Tools if name == "server_url" => Self::Media(Media::Server),
            Self::Media(media) => media.within(name),
            Self::Sampling | Self::Settings(_) | Self::Tools | Self::Data => Self::Data,
        }
    }

    fn of_body(name: &str) -> Self {
        match name {
            "messages" | "input" | "system" | "prompt" => Self::Prompt,
            "tools" => Self::Tools,
            "mcp_servers" => Self::Media(Media::Server),
            "extra_body" => Self::ExtraBody,
            "sampling_params" => Self::Sampling,
            "media_io_kwargs" => Self::MediaSettings,
            // Settings of speech output.
            "audio" => Self::Data,
            _ => {
                let settings = SETTINGS.iter().find(|(field, _)| *field == name);
                settings.map_or_else(
                    || Media::named(name).map_or(Self::Data, Self::Media),
                    |(_, listed)| Self::Settings(listed),
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_value_is_found_by_the_names_before_it() {
        let of = |path: &[&str]| {
            path.iter()
                .fold(Place::Body, |place, name| place.within(name))
        };
        assert_eq!(of(&["messages", "content"]), Place::Prompt);
        for path in [
            &["messages", "content", "image_url"][..],
            &["messages", "content", "image_url", "url"],
            &["messages", "content", "source", "url"],
            &["messages", "content", "url"],
            &["messages", "content", "path"],
            &["messages", "content", "input_audio", "path"],
            &["messages", "content", "picture_url"],
            &["input", "content", "image_url"],
            &["input", "output", "file_url"],
            &["extra_body", "image_data"],
            &["image_data"],
            &["tools", "server_url"],
            &["mcp_servers", "url"],
        ] {
            assert!(matches!(of(path), Place::Media(_)), "{path:?}");
        }
        for path in [
            &["messages", "content", "input", "image_url"][..],
            &["messages", "tool_calls", "function", "url"],
            &["input", "operation", "path"],
            &["messages", "content", "image_url", "detail"],
            &["tools", "input_schema", "image_url"],
            &["metadata", "image_url"],
            &["response_format", "image_url"],
        ] {
            assert_eq!(of(path), Place::Data, "{path:?}");
        }
    }
}
