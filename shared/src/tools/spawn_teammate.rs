//! `spawn_teammate`: what a lead may say of the terms of a teammate, and what the call answers.

use crate::control::{Done, SpawnOrder};
use crate::model_spec::{ModelSpec, UnknownModel};
use crate::name::Name;
use crate::price::Dollars;
use crate::terms::{ApproveBy, SandboxMode, SandboxPatch, TermsPatch, ToolsPatch, Total};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;

use super::input::{checked, count, not_blank};
use super::unexpected;

/// How many teammates a call may start. The size of the team has a limit of its own.
const MOST: u64 = 100;

/// Starts a teammate: a separate agent process that works on `prompt` at once. It sees nothing of
/// this conversation, so the prompt must contain all that it needs. Returns when the teammate is
/// ready. You get a message when it submits a plan, writes to you or has finished: do not wait or
/// poll.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpawnTeammate {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -.
    #[serde(deserialize_with = "not_blank")]
    pub name: String,
    /// Its role in a word or two, such as `coder` or `reviewer`.
    pub role: String,
    /// Its task, with all that it must know.
    #[serde(deserialize_with = "not_blank")]
    pub prompt: String,
    /// True: it must submit a plan, and can change nothing before the plan is approved.
    #[serde(default)]
    pub plan: bool,
    /// PROVIDER or PROVIDER:MODEL; only if the person asks for one.
    pub model: Option<String>,
    /// `claude`, `codex`, `opencode`, `gemini`, or an agent of team.toml; only if the person asks for one.
    pub agent: Option<String>,
    /// A directory in your workspace; only if it should not work in yours.
    pub workspace: Option<String>,
    /// True: it works in a clone of its own, whose work is checked and merged.
    #[serde(default)]
    pub checkout: bool,
    /// True: it gets the next task of the list whenever it is idle.
    #[serde(default)]
    pub auto: bool,
    /// `read-only` if its commands must change nothing.
    #[serde(default, deserialize_with = "sandbox_mode")]
    #[schemars(with = "Option<String>")]
    pub sandbox: Option<SandboxMode>,
    /// The most that all its work may cost, in dollars. It counts into your own budget.
    #[serde(default, deserialize_with = "dollars")]
    #[schemars(with = "Option<f64>")]
    pub max_cost: Option<Dollars>,
    /// The most tokens of all its work. They count into your own budget.
    #[serde(default, deserialize_with = "count")]
    #[schemars(range(min = 1))]
    pub max_tokens: Option<u64>,
    /// Which of your own MCP servers it has, separated by commas.
    #[serde(default, deserialize_with = "names")]
    pub mcp: Option<String>,
    /// How many to start alike, as NAME-1, NAME-2 and so on.
    #[serde(default, deserialize_with = "count")]
    #[schemars(range(min = 1))]
    pub count: Option<u64>,
}

/// What a call gives to the teammates that it starts, of the budget of the lead agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Grant {
    /// Tokens.
    pub tokens: u64,
    /// Dollars.
    pub cost: Dollars,
}

impl Grant {
    /// Returns both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: self.cost + other.cost,
        }
    }
}

impl SpawnTeammate {
    /// Returns the teammates that it starts.
    ///
    /// # Errors
    /// A text for the model: what is wrong with the name or the count.
    pub fn names(&self) -> Result<Vec<Name>, String> {
        let name = Name::new(&self.name).map_err(|error| error.to_string())?;
        let Some(count) = self.count else {
            return Ok(vec![name]);
        };
        if count > MOST {
            return Err(format!("a call starts at most {MOST} teammates"));
        }
        (1..=count)
            .map(|number| {
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                name.numbered(number)
                    .ok_or_else(|| format!("{name}-{number} would be too long for a name"))
            })
            .collect()
    }

    /// Returns what it gives away of the lead agent's own budget.
    pub fn grant(&self) -> Grant {
        let count = self.count.unwrap_or(1);
        let tokens = self.max_tokens.unwrap_or(0).saturating_mul(count);
        let cost = self.max_cost.unwrap_or_default().times(count);
        Grant { tokens, cost }
    }

    /// Returns the names of the MCP servers that it names.
    pub fn servers(&self) -> Vec<String> {
        let names = self.mcp.as_deref().unwrap_or_default();
        names
            .split([',', ' '])
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    }

    /// Returns the terms that it names. The workspace is not one of them: it counts from that of
    /// the lead agent.
    ///
    /// No term is left out silently: one that is added to [`TermsPatch`] is decided on here.
    ///
    /// # Errors
    /// A text for the model.
    pub fn terms(&self) -> Result<TermsPatch, String> {
        let model = non_blank(&self.model).map(model).transpose()?;
        let sandbox = SandboxPatch {
            mode: self.sandbox,
            // What the lead agent's own commands reach, read and write bounds these.
            network: None,
            ports: None,
            writable: Vec::new(),
            named_writable: Vec::new(),
            caches: None,
            hidden: Vec::new(),
            named_hidden: Vec::new(),
            visible: Vec::new(),
            env: Vec::new(),
        };
        Ok(TermsPatch {
            // A person decides where a teammate runs.
            host: None,
            role: non_blank(&Some(self.role.clone())).map(str::to_owned),
            prompt: Some(self.prompt.clone()),
            model,
            // What the file says of the model that the call names.
            fallback_model: None,
            agent: non_blank(&self.agent).map(str::to_owned),
            program: None,
            workspace: None,
            plan: self.plan.then_some(true),
            // Who decides is for a person to say.
            approve_by: None,
            permissions: None,
            mcp: self.servers(),
            servers: Vec::new(),
            tools: ToolsPatch::default(),
            restart: None,
            auto: self.auto.then_some(true),
            checkout: self.checkout.then_some(true),
            max_turns: None,
            max_tokens: self.max_tokens,
            max_cost: self.max_cost,
            // The spawner sets it.
            total: Total::default(),
            // These are the lead agent's own.
            memory: None,
            cpu_time: None,
            max_procs: None,
            localhost: None,
            max_time: None,
            max_idle: None,
            sandbox,
            instructions: None,
        })
    }
}

/// Returns an optional input, unless it is blank: a model writes an empty text for what it does
/// not say.
pub fn non_blank(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.trim().is_empty())
}

/// Reads names as one text. Some models write a list.
fn names<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(input)? {
        Value::String(names) => Ok(Some(names)),
        Value::Array(list) if list.iter().all(Value::is_string) => {
            let names: Vec<_> = list.iter().filter_map(Value::as_str).collect();
            Ok(Some(names.join(",")))
        }
        _ => Err(D::Error::custom("must be names, separated by commas")),
    }
}

fn model(text: &str) -> Result<ModelSpec, String> {
    text.parse()
        .map_err(|error: UnknownModel| format!("{error} ({})", error.hint()))
}

fn sandbox_mode<'de, D: Deserializer<'de>>(input: D) -> Result<Option<SandboxMode>, D::Error> {
    let text = String::deserialize(input)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let modes = [SandboxMode::ReadOnly, SandboxMode::WorkspaceWrite];
    let mode = modes.into_iter().find(|mode| mode.as_str() == text);
    mode.map(Some)
        .ok_or_else(|| D::Error::custom("must be read-only or workspace-write"))
}

fn dollars<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Dollars>, D::Error> {
    let is_some = |amount: &Dollars| *amount > Dollars::default();
    checked(input, is_some, "an amount in dollars above 0").map(Some)
}

/// What the call of a teammate that starts answers.
#[derive(Debug, Clone, PartialEq)]
pub struct SpawnReport {
    name: Name,
    plan: bool,
    approve_by: ApproveBy,
}

impl SpawnReport {
    /// Takes from an order what the report says of it.
    pub fn of(order: &SpawnOrder) -> Self {
        Self {
            name: order.name.clone(),
            plan: order.terms.plan == Some(true),
            approve_by: order.terms.approve_by.unwrap_or_default(),
        }
    }

    /// Returns the teammate.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Describes what came of the order.
    ///
    /// # Errors
    /// A text for the model, if that answers something else.
    pub fn text(&self, done: Done) -> Result<String, String> {
        let Done::Ready {
            incarnation,
            skipped,
            notes,
            ..
        } = done
        else {
            return Err(unexpected(&done));
        };
        let name = &self.name;
        let mut report =
            format!("{name} has started (incarnation {incarnation}) and works on your prompt");
        if self.plan {
            let who = if self.approve_by == ApproveBy::Lead {
                "you answer"
            } else {
                "a person answers"
            };
            report.push_str(&format!("; it submits a plan first, which {who}"));
        }
        if skipped > 0 {
            report.push_str(&format!(
                "; messages of its earlier incarnation that it will not read: {skipped}"
            ));
        }
        for note in notes {
            report.push_str(&format!("; note: {note}"));
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::input::parse;

    /// Reads a call with these fields beside those that are required.
    fn call(more: &Value) -> Result<SpawnTeammate, String> {
        let mut input = json!({"name": "coder", "role": "coder", "prompt": "go"});
        let fields = input.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        Ok(parse("spawn_teammate", "name", &input)?.1)
    }

    #[test]
    fn what_a_call_names_are_terms_of_the_teammate() {
        let named = json!({
            "agent": "codex", "auto": true, "checkout": true, "sandbox": "read-only",
            "max_cost": 2.5, "max_tokens": 1000.0, "mcp": "files, search",
        });
        let terms = call(&named).unwrap().terms().unwrap();
        assert_eq!(terms.agent.as_deref(), Some("codex"));
        assert_eq!((terms.auto, terms.checkout), (Some(true), Some(true)));
        assert_eq!(terms.sandbox.mode, Some(SandboxMode::ReadOnly));
        assert_eq!(terms.max_cost.map(f64::from), Some(2.5));
        assert_eq!(terms.max_tokens, Some(1000));
        assert_eq!(terms.mcp, ["files", "search"]);
        let listed = json!({"mcp": ["files", "search"]});
        let terms = call(&listed).unwrap().terms().unwrap();
        assert_eq!(terms.mcp, ["files", "search"]);
        let nothing = json!({"agent": "", "mcp": " ", "sandbox": "", "model": " ", "auto": false});
        let terms = call(&nothing).unwrap().terms().unwrap();
        let least = TermsPatch {
            role: Some("coder".to_owned()),
            prompt: Some("go".to_owned()),
            ..TermsPatch::default()
        };
        assert_eq!(terms, least);
    }

    #[test]
    fn what_only_a_person_grants_cannot_be_said() {
        for (field, value) in [
            ("sandbox", json!("off")),
            ("approve_by", json!("lead")),
            ("permissions", json!("allow")),
            ("writable", json!(["/"])),
            ("max_cost", json!(0)),
            ("max_cost", json!(-1)),
            ("max_tokens", json!(0)),
            ("mcp", json!([1])),
            ("count", json!(0)),
            ("count", json!(1.5)),
        ] {
            let error = call(&json!({field: value})).unwrap_err();
            assert!(error.contains(field), "{error}");
        }
    }

    #[test]
    fn several_teammates_are_numbered() {
        let names = |more: Value| {
            let names = call(&more).unwrap().names()?;
            Ok::<Vec<String>, String>(names.iter().map(Name::to_string).collect())
        };
        assert_eq!(names(json!({})).unwrap(), ["coder"]);
        assert_eq!(names(json!({"count": 2})).unwrap(), ["coder-1", "coder-2"]);
        assert!(names(json!({"count": 101})).unwrap_err().contains("100"));
        let long = "x".repeat(31);
        let error = names(json!({"count": 1, "name": long})).unwrap_err();
        assert!(error.contains("too long"), "{error}");
    }

    #[test]
    fn what_is_given_is_what_all_of_them_may_spend() {
        let spawn = call(&json!({"max_cost": 2.5, "max_tokens": 10, "count": 3})).unwrap();
        let grant = spawn.grant();
        assert_eq!((f64::from(grant.cost), grant.tokens), (7.5, 30));
        assert_eq!(
            call(&json!({"count": 3})).unwrap().grant(),
            Grant::default()
        );
    }
}
