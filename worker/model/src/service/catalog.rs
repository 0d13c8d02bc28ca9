//! The limits of models, by their names. Pure.
//!
//! Other names also work, with cautious guesses; `TEAM_CONTEXT_WINDOW` overrides them.

use teamd_shared::model_spec::Provider;

/// Returns how many tokens a prompt and its answer may have together. If a service has a lower
/// limit for the prompt, that limit counts.
pub(super) fn window(provider: Provider, model: &str) -> u64 {
    match provider {
        Provider::Anthropic => match version(model) {
            Some((5.., _)) => 1_000_000,
            _ => 200_000,
        },
        Provider::OpenAi | Provider::Script => of_openai(model),
        // Only agents of others ask it, and they know.
        Provider::Google => 1_000_000,
    }
}

/// Returns how many tokens an answer of Anthropic's models may have. Every request must name this
/// limit, and the model's thinking counts.
pub(super) fn max_output(model: &str) -> u64 {
    match version(model) {
        Some((4.., _)) => 32_000,
        Some((3, 0..5)) => 4_096,
        _ => 8_192,
    }
}

/// Tells whether a model takes images, as far as its name tells.
pub(super) fn takes_images(provider: Provider, model: &str) -> bool {
    match provider {
        Provider::Anthropic => version(model).is_some_and(|(major, _)| major >= 3),
        // Only the agent Gemini calls it, which gets the text of a result.
        Provider::Google => false,
        Provider::OpenAi | Provider::Script => {
            let name = model.rsplit('/').next().unwrap_or(model);
            let is_mini = ["o1-mini", "o3-mini"]
                .iter()
                .any(|mini| name.starts_with(mini));
            !is_mini && SEEING.iter().any(|beginning| name.starts_with(beginning))
        }
    }
}

/// The beginnings of the names of OpenAI's models that take images.
const SEEING: [&str; 8] = [
    "gpt-4o",
    "gpt-4.1",
    "gpt-4-turbo",
    "gpt-5",
    "gpt-6",
    "o1",
    "o3",
    "o4",
];

/// Reads the version in a name such as `claude-sonnet-5-5` or `claude-3-5-haiku-20241022`: major
/// and minor.
fn version(model: &str) -> Option<(u32, u32)> {
    let family = model.split("claude-").nth(1)?;
    let mut numbers = family
        .split(['-', '.', '@'])
        .filter(|part| part.len() <= 2)
        .filter_map(|part| part.parse().ok());
    Some((numbers.next()?, numbers.next().unwrap_or(0)))
}

/// The windows of OpenAI's models by the beginnings of their names, the longer ones first.
const OPENAI: [(&str, u64); 13] = [
    ("gpt-5-chat", 128_000),
    ("gpt-5.1-chat", 128_000),
    ("gpt-5.2-chat", 128_000),
    // 400,000 and more, but never more than this for the prompt.
    ("gpt-5", 272_000),
    ("gpt-6", 272_000),
    ("gpt-4.1", 1_000_000),
    ("gpt-4o", 128_000),
    ("gpt-4-turbo", 128_000),
    ("gpt-4", 8_192),
    ("gpt-3.5", 16_385),
    ("o1", 128_000),
    ("o3", 200_000),
    ("o4", 200_000),
];

/// The window that servers on one's own machine usually have at least.
const LOCAL: u64 = 32_768;

fn of_openai(model: &str) -> u64 {
    let name = model.rsplit('/').next().unwrap_or(model);
    OPENAI
        .iter()
        .find(|(beginning, _)| name.starts_with(beginning))
        .map_or(LOCAL, |(_, window)| *window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_how_much_a_model_can_take() {
        for (model, size, output) in [
            ("claude-sonnet-5-5", 1_000_000, 32_000),
            ("claude-opus-4-1-20250805", 200_000, 32_000),
            ("anthropic.claude-haiku-4-5-20251001-v1:0", 200_000, 32_000),
            ("claude-3-5-haiku-20241022", 200_000, 8_192),
            ("claude-3-haiku-20240307", 200_000, 4_096),
            ("fake", 200_000, 8_192),
        ] {
            assert_eq!(
                (window(Provider::Anthropic, model), max_output(model)),
                (size, output),
                "{model}"
            );
        }
        for (model, size) in [
            ("gpt-5.1", 272_000),
            ("gpt-5.1-chat-latest", 128_000),
            ("openai/gpt-4.1-mini", 1_000_000),
        ] {
            assert_eq!(window(Provider::OpenAi, model), size, "{model}");
            assert!(takes_images(Provider::OpenAi, model), "{model}");
        }
        assert_eq!(window(Provider::OpenAi, "qwen3:8b"), LOCAL);
        for model in ["o3-mini", "gpt-3.5-turbo", "qwen3:8b"] {
            assert!(!takes_images(Provider::OpenAi, model), "{model}");
        }
        assert!(takes_images(Provider::Anthropic, "claude-sonnet-5-5"));
        assert!(!takes_images(Provider::Anthropic, "fake"));
        assert!(
            window(
                Provider::Anthropic,
                Provider::Anthropic.default_model().unwrap()
            ) > LOCAL
        );
    }
}
