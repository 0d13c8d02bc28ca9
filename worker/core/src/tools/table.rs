//! The tools: one table, in which each has its name, what its calls are about, who is offered it,
//! what a crash means for a call of it, the type of its input, and what is to be done. Pure.
//!
//! Every model call costs the texts of the tools as input tokens, and they must not change within a
//! conversation: they stand before all that a service caches.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use teamd_shared::member::SandboxMode;
use teamd_shared::message::ALL;
use teamd_shared::name::Name;
use teamd_shared::terms::ToolGroup;
use teamd_shared::todo::TODO_WRITE;
use teamd_shared::tool_set::ToolSet;
use teamd_shared::tools::{
    ClaimTask, LeadMessage, LeadTaskCreate, LeadTaskUpdate, ListTeammates, SendMessage, TaskCreate,
    TaskDiff, TaskGet, TaskList, TaskUpdate, ToolText, input,
};

use super::broadcast::Broadcast;
use super::read_inbox::ReadInbox;
use super::request_status::RequestStatus;
use super::{Action, Call, IN_DOUBT, LocalAction, McpLook, Search, TeamAction, TodoWrite};

/// Reads a call from its input.
type Parse = Box<dyn Fn(&Value) -> Result<Call, String> + Send + Sync>;

/// One tool.
struct Tool {
    name: &'static str,
    offered: Offered,
    after_crash: AfterCrash,
    describe: fn(&'static str) -> ToolText,
    parse: Parse,
}

/// What becomes of a call that has no result when its worker is started again (rule 14 of the
/// specification).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterCrash {
    /// It is not run again, and answered "interrupted, may have run".
    Interrupted,
    /// It is run again: twice has the effect of once.
    RunAgain,
    /// It is run again under the ids that the transcript holds since before the first time.
    RunAgainWithIds,
}

/// The members that a tool is offered to.
type Offered = &'static [Caller];

/// The tools that work on the machine.
const MACHINE: Offered = &[Caller::Teammate, Caller::LeadAgent, Caller::Subagent];
const ALL_MEMBERS: Offered = &[Caller::Teammate, Caller::LeadAgent];
const TEAMMATES: Offered = &[Caller::Teammate];
const LEAD_AGENT: Offered = &[Caller::LeadAgent];
/// No model is told of it: the script model knows it, or a member with MCP servers is told apart.
const HIDDEN: Offered = &[];

fn tool<T: DeserializeOwned + JsonSchema + 'static, A: Into<Action> + 'static>(
    name: &'static str,
    subject: &'static str,
    offered: Offered,
    after_crash: AfterCrash,
    action: fn(T) -> A,
) -> Tool {
    Tool {
        name,
        offered,
        after_crash,
        describe: input::describe::<T>,
        parse: Box::new(move |input| {
            let (activity, input) = input::parse(name, subject, input)?;
            Ok(Call {
                activity,
                action: action(input).into(),
            })
        }),
    }
}

/// All tools, in the order in which a model is told of them.
static TABLE: LazyLock<[Tool; 35]> = LazyLock::new(|| {
    use AfterCrash::{Interrupted, RunAgain, RunAgainWithIds};
    [
        tool("bash", "command", MACHINE, Interrupted, LocalAction::Bash),
        tool(
            "read_file",
            "path",
            MACHINE,
            Interrupted,
            LocalAction::ReadFile,
        ),
        tool(
            "write_file",
            "path",
            MACHINE,
            Interrupted,
            LocalAction::WriteFile,
        ),
        tool(
            "edit_file",
            "path",
            MACHINE,
            Interrupted,
            LocalAction::EditFile,
        ),
        tool("glob", "pattern", MACHINE, RunAgain, |glob| {
            LocalAction::Search(Search::Glob(glob))
        }),
        tool("grep", "pattern", MACHINE, RunAgain, |grep| {
            LocalAction::Search(Search::Grep(grep))
        }),
        tool(
            TODO_WRITE,
            "",
            ALL_MEMBERS,
            RunAgain,
            |TodoWrite { todos }| Action::Todo(todos),
        ),
        tool(
            "load_skill",
            "name",
            ALL_MEMBERS,
            RunAgain,
            LocalAction::LoadSkill,
        ),
        tool(
            "delegate",
            "prompt",
            ALL_MEMBERS,
            Interrupted,
            Action::Delegate,
        ),
        tool(
            "send_message",
            "to",
            TEAMMATES,
            RunAgainWithIds,
            TeamAction::SendMessage,
        ),
        tool(
            "send_message",
            "to",
            LEAD_AGENT,
            RunAgainWithIds,
            |LeadMessage { to, content }| TeamAction::SendMessage(SendMessage { to, content }),
        ),
        tool("read_inbox", "", ALL_MEMBERS, Interrupted, |ReadInbox {}| {
            Action::ReadInbox
        }),
        tool(
            "shutdown_response",
            "approve",
            TEAMMATES,
            RunAgainWithIds,
            Action::AnswerShutdown,
        ),
        tool(
            "shutdown_response",
            "request_id",
            LEAD_AGENT,
            RunAgainWithIds,
            RequestStatus::action,
        ),
        tool(
            "plan_approval",
            "",
            TEAMMATES,
            RunAgainWithIds,
            Action::SubmitPlan,
        ),
        // The daemon takes a second answer for the first.
        tool(
            "plan_approval",
            "request_id",
            LEAD_AGENT,
            RunAgain,
            TeamAction::AnswerPlan,
        ),
        tool(
            "spawn_teammate",
            "name",
            LEAD_AGENT,
            Interrupted,
            TeamAction::Spawn,
        ),
        tool(
            "list_teammates",
            "",
            LEAD_AGENT,
            RunAgain,
            |ListTeammates {}| TeamAction::List,
        ),
        tool(
            "broadcast",
            "",
            LEAD_AGENT,
            RunAgainWithIds,
            |Broadcast { content }| {
                TeamAction::SendMessage(SendMessage {
                    to: ALL.to_owned(),
                    content,
                })
            },
        ),
        tool(
            "shutdown_request",
            "teammate",
            LEAD_AGENT,
            Interrupted,
            TeamAction::RequestShutdown,
        ),
        tool(
            "request_plan",
            "teammate",
            LEAD_AGENT,
            Interrupted,
            TeamAction::RequestPlan,
        ),
        tool(
            "claim_task",
            "task_id",
            TEAMMATES,
            RunAgain,
            ClaimTask::action,
        ),
        tool(
            "task_update",
            "task_id",
            TEAMMATES,
            RunAgain,
            TaskUpdate::action,
        ),
        tool(
            "task_update",
            "task_id",
            LEAD_AGENT,
            Interrupted,
            LeadTaskUpdate::action,
        ),
        tool("task_list", "", ALL_MEMBERS, RunAgain, TaskList::action),
        tool(
            "task_get",
            "task_id",
            ALL_MEMBERS,
            RunAgain,
            TaskGet::action,
        ),
        tool(
            "task_create",
            "subject",
            TEAMMATES,
            Interrupted,
            TaskCreate::action,
        ),
        tool(
            "task_create",
            "subject",
            LEAD_AGENT,
            Interrupted,
            LeadTaskCreate::action,
        ),
        tool(
            "task_diff",
            "task_id",
            LEAD_AGENT,
            RunAgain,
            TaskDiff::action,
        ),
        // The daemon joins a proposal of the same text.
        tool(
            "remember",
            "text",
            ALL_MEMBERS,
            RunAgain,
            TeamAction::Remember,
        ),
        tool("sleep", "seconds", HIDDEN, Interrupted, LocalAction::Sleep),
        tool("run", "", HIDDEN, Interrupted, LocalAction::RunAgent),
        tool("mcp_tool", "name", HIDDEN, RunAgain, |tool| {
            LocalAction::McpLook(McpLook::Tool(tool))
        }),
        tool(
            "mcp_call",
            "name",
            HIDDEN,
            Interrupted,
            LocalAction::McpCall,
        ),
        tool("mcp_search", "words", HIDDEN, RunAgain, |search| {
            LocalAction::McpLook(McpLook::Search(search))
        }),
    ]
});

/// The tools that work on the machine.
const OF_THE_MACHINE: [&str; 6] = [
    "bash",
    "read_file",
    "write_file",
    "edit_file",
    "glob",
    "grep",
];

/// The tools that a read-only member is not offered.
const WRITE_FILES: [&str; 2] = ["write_file", "edit_file"];

/// Returns the group that a tool is offered with; none: it is always there.
pub fn group_of(tool: &str) -> Option<ToolGroup> {
    match tool {
        TODO_WRITE => Some(ToolGroup::Todo),
        "load_skill" => Some(ToolGroup::Skills),
        "delegate" => Some(ToolGroup::Delegate),
        "remember" => Some(ToolGroup::Memory),
        _ => None,
    }
}

/// The tools for MCP servers.
const OF_SERVERS: [&str; 3] = ["mcp_tool", "mcp_call", "mcp_search"];

/// Who calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A teammate.
    Teammate,
    /// The lead agent.
    LeadAgent,
    /// The subagent of one of them, for one call.
    Subagent,
}

impl Caller {
    /// Returns what a member calls tools as.
    pub fn of(name: &Name) -> Self {
        if *name == Name::lead() {
            Self::LeadAgent
        } else {
            Self::Teammate
        }
    }

    /// Returns how the caller is told that its turn was interrupted.
    pub fn interrupted(self) -> &'static str {
        match self {
            Self::Teammate | Self::Subagent => "interrupted by the lead",
            Self::LeadAgent => "interrupted by the user",
        }
    }

    /// Returns the result of a call that a crash interrupted, and that is not run again.
    pub(crate) fn may_have_run(self) -> String {
        match self {
            Self::Teammate | Self::Subagent => {
                "interrupted: the worker was restarted; the command may have run".to_owned()
            }
            Self::LeadAgent => format!(
                "interrupted: the worker was restarted; the call {IN_DOUBT} (list_teammates shows the team)"
            ),
        }
    }

    /// Returns what becomes of a call of a tool that a crash interrupted.
    pub fn after_crash(self, tool: &str) -> AfterCrash {
        self.find(tool)
            .map_or(AfterCrash::Interrupted, |tool| tool.after_crash)
    }

    /// Reads a call.
    ///
    /// # Errors
    /// A text for the model: which tool or field is wrong, and what belongs there.
    pub fn parse(self, tool: &str, input: &Value) -> Result<Call, String> {
        match self.find(tool) {
            Some(found) => (found.parse)(input),
            None => {
                let always = self.offered().map(|tool| tool.name);
                let names: Vec<_> = always.filter(|tool| group_of(tool).is_none()).collect();
                Err(format!(
                    "there is no tool {tool:?}; the tools are {}",
                    names.join(", ")
                ))
            }
        }
    }

    /// Returns the tools that work in this mode of the sandbox, as a model is told of them whose
    /// conversation was offered these.
    pub fn tools(self, mode: SandboxMode, offered: &ToolSet) -> Vec<ToolText> {
        self.offered()
            .filter(|tool| group_of(tool.name).is_none_or(|group| offered.has(group)))
            .filter(|tool| mode != SandboxMode::ReadOnly || !WRITE_FILES.contains(&tool.name))
            .map(|tool| (tool.describe)(tool.name))
            .collect()
    }

    /// Returns the tools that do not work on the machine: an agent has its own for that.
    pub fn team_tools(self) -> impl Iterator<Item = ToolText> {
        self.offered()
            .filter(|tool| !OF_THE_MACHINE.contains(&tool.name) && group_of(tool.name).is_none())
            .map(|tool| (tool.describe)(tool.name))
    }

    /// Returns the tools for MCP servers, which only a member with such servers is told of.
    pub fn mcp_tools() -> Vec<ToolText> {
        TABLE
            .iter()
            .filter(|tool| OF_SERVERS.contains(&tool.name))
            .map(|tool| (tool.describe)(tool.name))
            .collect()
    }

    fn offered(self) -> impl Iterator<Item = &'static Tool> {
        TABLE
            .iter()
            .filter(move |tool| tool.offered.contains(&self))
    }

    /// Tells whether it may call a tool that no model is told of: a subagent has no servers and no
    /// agent.
    fn knows(self, tool: &Tool) -> bool {
        tool.offered == HIDDEN && (self != Self::Subagent || tool.name == "sleep")
    }

    fn find(self, name: &str) -> Option<&'static Tool> {
        TABLE
            .iter()
            .filter(|tool| tool.offered.contains(&self) || self.knows(tool))
            .find(|tool| tool.name == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CALLERS: [Caller; 2] = [Caller::Teammate, Caller::LeadAgent];

    /// Every group.
    fn all() -> ToolSet {
        ToolSet {
            groups: vec![
                ToolGroup::Todo,
                ToolGroup::Skills,
                ToolGroup::Delegate,
                ToolGroup::Memory,
            ],
            skills: Vec::new(),
        }
    }

    /// A value that fits a property.
    fn example(name: &str, property: &Value) -> Value {
        match property["type"].as_str().unwrap() {
            "string" if name == "request_id" => json!("a1b2c3d4"),
            "string" if name == "sandbox" => json!("read-only"),
            "string" => json!("x"),
            "boolean" => json!(true),
            "number" | "integer" => json!(1),
            "array" => json!([]),
            other => panic!("{other}"),
        }
    }

    fn examples(tool: &ToolText, take: impl Fn(&str) -> bool) -> Value {
        let properties = tool.input["properties"].as_object().unwrap();
        let taken = properties.iter().filter(|(name, _)| take(name));
        Value::Object(
            taken
                .map(|(name, property)| (name.clone(), example(name, property)))
                .collect(),
        )
    }

    #[test]
    fn what_a_model_is_told_of_a_tool_is_what_is_read() {
        for caller in CALLERS {
            for tool in caller.tools(SandboxMode::WorkspaceWrite, &all()) {
                let required = tool.input["required"].as_array().unwrap();
                let is_required = |name: &str| required.iter().any(|field| field == name);
                assert!(!tool.description.is_empty(), "{}", tool.name);
                for property in tool.input["properties"].as_object().unwrap().values() {
                    assert!(
                        property["description"].is_string(),
                        "{}: {property}",
                        tool.name
                    );
                }
                for input in [examples(&tool, |_| true), examples(&tool, is_required)] {
                    let call = caller.parse(tool.name, &input);
                    assert!(call.is_ok(), "{caller:?} {} {input}: {call:?}", tool.name);
                }
                for field in required {
                    let input = examples(&tool, |name| is_required(name) && field != name);
                    let error = caller.parse(tool.name, &input).unwrap_err();
                    assert!(
                        error.contains(field.as_str().unwrap()),
                        "{caller:?} {}: {error}",
                        tool.name
                    );
                }
                let mut more = examples(&tool, is_required);
                more["no_such_field"] = json!(1);
                assert!(caller.parse(tool.name, &more).is_err(), "{}", tool.name);
            }
        }
    }

    #[test]
    fn a_schema_says_what_a_model_needs_and_no_more() {
        let tools = Caller::Teammate.tools(SandboxMode::WorkspaceWrite, &all());
        let read_file = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file: relative to the workspace, or absolute and inside it."},
                "limit": {"type": "integer", "minimum": 1, "description": "The maximum number of lines."},
                "offset": {"type": "integer", "minimum": 1, "description": "The first line, counted from 1."},
            },
            "required": ["path"],
            "additionalProperties": false,
        });
        assert_eq!(tools[1].input, read_file);
        let read_inbox = json!({"type": "object", "properties": {}, "required": [], "additionalProperties": false});
        assert_eq!(
            tools
                .iter()
                .find(|tool| tool.name == "read_inbox")
                .unwrap()
                .input,
            read_inbox
        );
    }

    /// Each model call pays for them: about four bytes are a token.
    #[test]
    fn search_costs_at_most_250_tokens() {
        let tools = Caller::Teammate.tools(SandboxMode::ReadOnly, &all());
        let search = tools
            .iter()
            .filter(|it| ["glob", "grep"].contains(&it.name));
        let bytes: usize = search
            .map(|it| it.name.len() + it.description.len() + it.input.to_string().len())
            .sum();
        assert!((400..=1000).contains(&bytes), "{bytes}");
    }

    /// Each model call of a conversation that was offered a group pays for it.
    #[test]
    fn a_group_costs_at_most_150_tokens_and_nothing_where_it_is_not_offered() {
        for group in all().groups {
            let tools = |groups| {
                let offered = ToolSet {
                    groups,
                    skills: Vec::new(),
                };
                Caller::Teammate.tools(SandboxMode::WorkspaceWrite, &offered)
            };
            let mut more = tools(vec![group]);
            let always = tools(Vec::new());
            more.retain(|tool| !always.contains(tool));
            let bytes: usize = more
                .iter()
                .map(|it| it.name.len() + it.description.len() + it.input.to_string().len())
                .sum();
            assert!((100..=600).contains(&bytes), "{group:?}: {bytes}");
            assert!(more.iter().all(|tool| group_of(tool.name) == Some(group)));
        }
    }

    #[test]
    fn a_subagent_has_the_tools_of_the_machine_and_no_other() {
        let offered = Caller::Subagent.tools(SandboxMode::WorkspaceWrite, &all());
        let names: Vec<_> = offered.iter().map(|tool| tool.name).collect();
        assert_eq!(names, OF_THE_MACHINE);
        for tool in [
            "delegate",
            "todo_write",
            "load_skill",
            "send_message",
            "run",
            "mcp_call",
        ] {
            let error = Caller::Subagent.parse(tool, &json!({})).unwrap_err();
            assert!(error.starts_with("there is no tool"), "{error}");
        }
    }

    #[test]
    fn a_read_only_member_is_offered_no_tool_that_writes_files() {
        for caller in CALLERS {
            let offered = caller.tools(SandboxMode::ReadOnly, &all());
            assert!(
                !offered.iter().any(|tool| WRITE_FILES.contains(&tool.name)),
                "{caller:?}"
            );
            assert_eq!(
                offered.len() + WRITE_FILES.len(),
                caller.tools(SandboxMode::WorkspaceWrite, &all()).len()
            );
        }
    }

    #[test]
    fn only_the_lead_agent_has_the_tools_of_the_lead() {
        assert_eq!(Caller::of(&Name::lead()), Caller::LeadAgent);
        assert_eq!(Caller::of(&Name::new("alice").unwrap()), Caller::Teammate);
        let of_teammates = Caller::Teammate.tools(SandboxMode::WorkspaceWrite, &all());
        let of_lead = Caller::LeadAgent.tools(SandboxMode::WorkspaceWrite, &all());
        for tool in of_lead
            .iter()
            .filter(|tool| !of_teammates.iter().any(|other| other.name == tool.name))
        {
            let error = Caller::Teammate
                .parse(tool.name, &examples(tool, |_| true))
                .unwrap_err();
            assert!(error.starts_with("there is no tool"), "{error}");
        }
    }

    #[test]
    fn what_a_crash_interrupted_is_run_again_only_where_that_does_no_harm() {
        for caller in CALLERS {
            for tool in [
                "bash",
                "write_file",
                "edit_file",
                "read_inbox",
                "spawn_teammate",
                "request_plan",
            ] {
                assert_eq!(
                    caller.after_crash(tool),
                    AfterCrash::Interrupted,
                    "{caller:?} {tool}"
                );
            }
            for tool in ["send_message", "shutdown_response"] {
                assert_eq!(
                    caller.after_crash(tool),
                    AfterCrash::RunAgainWithIds,
                    "{caller:?} {tool}"
                );
            }
        }
        // It would end the teammate that has the name by then.
        assert_eq!(
            Caller::LeadAgent.after_crash("shutdown_request"),
            AfterCrash::Interrupted
        );
        assert_eq!(
            Caller::Teammate.after_crash("plan_approval"),
            AfterCrash::RunAgainWithIds
        );
        assert_eq!(
            Caller::LeadAgent.after_crash("plan_approval"),
            AfterCrash::RunAgain
        );
    }
}
