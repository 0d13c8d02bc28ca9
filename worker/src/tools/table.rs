//! The tools: one table, in which each has its name, its texts, how its input is read, and what a crash means for a
//! call of it. Pure.
//!
//! Every model call costs these texts as input tokens, and they must not change within a conversation: they stand before
//! all that a service caches.

use serde_json::Value;
use teamd_shared::member::SandboxMode;
use teamd_shared::name::Name;

use super::Call;
use super::answer_plan::AnswerPlan;
use super::bash::Bash;
use super::broadcast::Broadcast;
use super::edit_file::EditFile;
use super::input::{self, Input};
use super::list_teammates::ListTeammates;
use super::plan_approval::PlanApproval;
use super::read_file::ReadFile;
use super::read_inbox::ReadInbox;
use super::request_plan::RequestPlan;
use super::request_status::RequestStatus;
use super::send_message::{LeadMessage, SendMessage};
use super::shutdown_request::ShutdownRequest;
use super::shutdown_response::ShutdownResponse;
use super::sleep::Sleep;
use super::spawn_teammate::SpawnTeammate;
use super::write_file::WriteFile;
use crate::model::prompt;

/// One tool.
#[derive(Debug)]
struct Tool {
    name: &'static str,
    offered: Offered,
    after_crash: AfterCrash,
    describe: fn() -> prompt::ToolText,
    parse: fn(&Value) -> Result<Call, String>,
}

/// What becomes of a call that has no result when its worker is started again (rule 14 of the specification).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCrash {
    /// It is not run again, and answered "interrupted, may have run".
    Interrupted,
    /// It is run again: twice has the effect of once.
    RunAgain,
    /// It is run again under the ids that the transcript holds since before the first time.
    RunAgainWithIds,
}

/// The members that a tool is offered to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Offered {
    All,
    Teammates,
    LeadAgent,
    /// To no model: the script model knows it.
    Hidden,
}

const fn tool<T: Input>(offered: Offered) -> Tool {
    Tool {
        name: T::NAME,
        offered,
        after_crash: T::AFTER_CRASH,
        describe: input::describe::<T>,
        parse: input::parse::<T>,
    }
}

/// All tools, in the order in which a model is told of them.
const TABLE: [Tool; 17] = [
    tool::<Bash>(Offered::All),
    tool::<ReadFile>(Offered::All),
    tool::<WriteFile>(Offered::All),
    tool::<EditFile>(Offered::All),
    tool::<SendMessage>(Offered::Teammates),
    tool::<LeadMessage>(Offered::LeadAgent),
    tool::<ReadInbox>(Offered::All),
    tool::<ShutdownResponse>(Offered::Teammates),
    tool::<RequestStatus>(Offered::LeadAgent),
    tool::<PlanApproval>(Offered::Teammates),
    tool::<AnswerPlan>(Offered::LeadAgent),
    tool::<SpawnTeammate>(Offered::LeadAgent),
    tool::<ListTeammates>(Offered::LeadAgent),
    tool::<Broadcast>(Offered::LeadAgent),
    tool::<ShutdownRequest>(Offered::LeadAgent),
    tool::<RequestPlan>(Offered::LeadAgent),
    tool::<Sleep>(Offered::Hidden),
];

/// The tools that a read-only member is not offered.
const WRITE_FILES: [&str; 2] = [WriteFile::NAME, EditFile::NAME];

/// Who calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A teammate.
    Teammate,
    /// The lead agent.
    LeadAgent,
}

impl Caller {
    /// Returns what a member calls tools as.
    pub(crate) fn of(name: &Name) -> Self {
        if *name == Name::lead() { Self::LeadAgent } else { Self::Teammate }
    }

    /// Returns how the caller is told that its turn was interrupted.
    pub(crate) fn interrupted(self) -> &'static str {
        match self {
            Self::Teammate => "interrupted by the lead",
            Self::LeadAgent => "interrupted by the user",
        }
    }

    /// Returns the result of a call that a crash interrupted, and that is not run again.
    pub(crate) fn may_have_run(self) -> &'static str {
        match self {
            Self::Teammate => "interrupted: the worker was restarted; the command may have run",
            Self::LeadAgent => {
                "interrupted: the worker was restarted; the call may have been carried out (list_teammates shows the team)"
            }
        }
    }

    /// Returns what becomes of a call of a tool that a crash interrupted.
    pub(crate) fn after_crash(self, tool: &str) -> AfterCrash {
        self.find(tool).map_or(AfterCrash::Interrupted, |tool| tool.after_crash)
    }

    /// Reads a call.
    ///
    /// # Errors
    /// A text for the model: which tool or field is wrong, and what belongs there.
    pub(crate) fn parse(self, tool: &str, input: &Value) -> Result<Call, String> {
        match self.find(tool) {
            Some(found) => (found.parse)(input),
            None => {
                let names: Vec<_> = self.offered().map(|tool| tool.name).collect();
                Err(format!("there is no tool {tool:?}; the tools are {}", names.join(", ")))
            }
        }
    }

    /// Returns the tools that work in this mode of the sandbox, as a model is told of them.
    pub(crate) fn tools(self, mode: SandboxMode) -> Vec<prompt::ToolText> {
        let works = |tool: &&Tool| mode != SandboxMode::ReadOnly || !WRITE_FILES.contains(&tool.name);
        self.offered().filter(works).map(|tool| (tool.describe)()).collect()
    }

    fn offered(self) -> impl Iterator<Item = &'static Tool> {
        TABLE.iter().filter(move |tool| match tool.offered {
            Offered::All => true,
            Offered::Teammates => self == Self::Teammate,
            Offered::LeadAgent => self == Self::LeadAgent,
            Offered::Hidden => false,
        })
    }

    fn find(self, name: &str) -> Option<&'static Tool> {
        let hidden = TABLE.iter().filter(|tool| tool.offered == Offered::Hidden);
        self.offered().chain(hidden).find(|tool| tool.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CALLERS: [Caller; 2] = [Caller::Teammate, Caller::LeadAgent];

    /// A value that fits a property.
    fn example(name: &str, property: &Value) -> Value {
        match property["type"].as_str().unwrap() {
            "string" if name == "request_id" => json!("a1b2c3d4"),
            "string" => json!("x"),
            "boolean" => json!(true),
            "number" | "integer" => json!(1),
            other => panic!("{other}"),
        }
    }

    fn examples(tool: &prompt::ToolText, take: impl Fn(&str) -> bool) -> Value {
        let properties = tool.input["properties"].as_object().unwrap();
        let taken = properties.iter().filter(|(name, _)| take(name));
        Value::Object(taken.map(|(name, it)| (name.clone(), example(name, it))).collect())
    }

    #[test]
    fn what_a_model_is_told_of_a_tool_is_what_is_read() {
        for caller in CALLERS {
            for tool in caller.tools(SandboxMode::WorkspaceWrite) {
                let required = tool.input["required"].as_array().unwrap();
                let is_required = |name: &str| required.iter().any(|it| it == name);
                assert!(!tool.description.is_empty(), "{}", tool.name);
                for property in tool.input["properties"].as_object().unwrap().values() {
                    assert!(property["description"].is_string(), "{}: {property}", tool.name);
                }
                for input in [examples(&tool, |_| true), examples(&tool, is_required)] {
                    let call = caller.parse(tool.name, &input);
                    assert!(call.is_ok(), "{caller:?} {} {input}: {call:?}", tool.name);
                }
                for field in required {
                    let input = examples(&tool, |name| is_required(name) && field != name);
                    let error = caller.parse(tool.name, &input).unwrap_err();
                    assert!(error.contains(field.as_str().unwrap()), "{caller:?} {}: {error}", tool.name);
                }
                let mut more = examples(&tool, is_required);
                more["no_such_field"] = json!(1);
                assert!(caller.parse(tool.name, &more).is_err(), "{}", tool.name);
            }
        }
    }

    #[test]
    fn a_schema_says_what_a_model_needs_and_no_more() {
        let tools = Caller::Teammate.tools(SandboxMode::WorkspaceWrite);
        let read_file = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file: relative to the workspace, or absolute and inside it."},
                "limit": {"type": "integer", "minimum": 1, "description": "How many lines at most."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert_eq!(tools[1].input, read_file);
        let read_inbox =
            json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
        assert_eq!(tools.iter().find(|tool| tool.name == "read_inbox").unwrap().input, read_inbox);
    }

    #[test]
    fn a_read_only_member_is_offered_no_tool_that_writes_files() {
        for caller in CALLERS {
            let offered = caller.tools(SandboxMode::ReadOnly);
            assert!(!offered.iter().any(|tool| WRITE_FILES.contains(&tool.name)), "{caller:?}");
            assert_eq!(offered.len() + WRITE_FILES.len(), caller.tools(SandboxMode::WorkspaceWrite).len());
        }
    }

    #[test]
    fn only_the_lead_agent_has_the_tools_of_the_lead() {
        assert_eq!(Caller::of(&Name::lead()), Caller::LeadAgent);
        assert_eq!(Caller::of(&Name::new("alice").unwrap()), Caller::Teammate);
        let of_teammates = Caller::Teammate.tools(SandboxMode::WorkspaceWrite);
        let of_lead = Caller::LeadAgent.tools(SandboxMode::WorkspaceWrite);
        for tool in of_lead.iter().filter(|tool| !of_teammates.iter().any(|it| it.name == tool.name)) {
            let error = Caller::Teammate.parse(tool.name, &examples(tool, |_| true)).unwrap_err();
            assert!(error.starts_with("there is no tool"), "{error}");
        }
    }

    #[test]
    fn what_a_crash_interrupted_is_run_again_only_where_that_does_no_harm() {
        for caller in CALLERS {
            for tool in ["bash", "write_file", "edit_file", "read_inbox", "spawn_teammate", "request_plan"] {
                assert_eq!(caller.after_crash(tool), AfterCrash::Interrupted, "{caller:?} {tool}");
            }
            for tool in ["send_message", "shutdown_response"] {
                assert_eq!(caller.after_crash(tool), AfterCrash::RunAgainWithIds, "{caller:?} {tool}");
            }
        }
        // It would end the teammate that has the name by then.
        assert_eq!(Caller::LeadAgent.after_crash("shutdown_request"), AfterCrash::Interrupted);
        assert_eq!(Caller::Teammate.after_crash("plan_approval"), AfterCrash::RunAgainWithIds);
        assert_eq!(Caller::LeadAgent.after_crash("plan_approval"), AfterCrash::RunAgain);
    }
}
