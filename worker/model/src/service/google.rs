//! What the Gemini API of Google says of its costs. Agents of others speak it; no model of ours
//! does. Pure.

use serde_json::Value;
use teamd_shared::transcript::Usage;

/// Copies the counters of an answer, or of a part of one: the last part has those of the whole. The
/// prompt includes the tokens from the cache; what the model thought is not in its candidates.
pub(super) fn count(reported: &Value, usage: &mut Usage) {
    let tokens = |name: &str| reported[name].as_u64();
    let Some(prompt) = tokens("promptTokenCount") else {
        return;
    };
    let cached = tokens("cachedContentTokenCount").unwrap_or_default();
    let cached = cached.min(prompt);
    let of_tools = tokens("toolUsePromptTokenCount").unwrap_or_default();
    let written = ["candidatesTokenCount", "thoughtsTokenCount"].map(tokens);
    *usage = Usage {
        input_tokens: (prompt - cached).saturating_add(of_tools),
        output_tokens: written.into_iter().flatten().fold(0, u64::saturating_add),
        cache_read_input_tokens: cached,
        cache_creation_input_tokens: 0,
    };
}
