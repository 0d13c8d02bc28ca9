//! How agents are set up that are known by name and speak ACP: what the protocol has no words for.

use std::path::Path;

use serde_json::json;

/// Returns the variables that set up the agent of this name, given those by which it finds its
/// model, and its state directory.
pub(super) fn variables(
    name: &str,
    model: Option<&str>,
    gateway: &[(&'static str, String)],
    state: &Path,
) -> Vec<(&'static str, String)> {
    if name == "gemini" {
        // In a workspace that it does not trust, it takes no MCP servers. The kernel confines it.
        let trust = ("GEMINI_CLI_TRUST_WORKSPACE", "true".to_owned());
        let model = model.and_then(|model| model.strip_prefix("google/"));
        let model = model.map(|model| ("GEMINI_MODEL", model.to_owned()));
        return [trust].into_iter().chain(model).collect();
    }
    if name != "opencode" {
        return Vec::new();
    }
    // It does not begin without a directory there that it can write to.
    let folder = state.join("config").to_string_lossy().into_owned();
    vec![
        ("OPENCODE_CONFIG_CONTENT", opencode(model, gateway)),
        ("XDG_CONFIG_HOME", folder),
    ]
}

/// Returns the settings of OpenCode: its models are reached through the gateway, it asks before it
/// uses its tools, and its own subagents are off, because two protocols confuse a model.
fn opencode(model: Option<&str>, gateway: &[(&'static str, String)]) -> String {
    let base = |variable: &str, end: &str| {
        let (_, base) = gateway.iter().find(|(name, _)| *name == variable)?;
        Some(json!({"options": {"baseURL": format!("{base}{end}")}}))
    };
    let mut settings = json!({
        "autoupdate": false,
        "share": "disabled",
        "permission": {"bash": "ask", "edit": "ask", "webfetch": "ask", "task": "deny"},
        "provider": {},
    });
    if let Some(anthropic) = base("ANTHROPIC_BASE_URL", "/v1") {
        settings["provider"]["anthropic"] = anthropic;
    }
    if let Some(openai) = base("OPENAI_BASE_URL", "") {
        settings["provider"]["openai"] = openai;
    }
    if let Some(model) = model {
        settings["model"] = json!(model);
        // It names sessions with a small model of its own choice.
        settings["small_model"] = json!(model);
    }
    settings.to_string()
}
