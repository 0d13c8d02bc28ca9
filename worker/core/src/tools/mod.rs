//! The tools as a model is told of them: one file each with its texts and its input, and the table
//! that lists them. What a call asks for is an [`Action`].

mod bash;
mod broadcast;
mod delegate;
mod edit_file;
#[cfg(test)]
mod input_tests;
mod load_skill;
mod mcp;
mod plan_approval;
mod read_file;
mod read_inbox;
mod request_status;
mod run_agent;
mod search;
mod shutdown_response;
mod sleep;
mod table;
mod todo_write;
mod write_file;

use teamd_shared::control::TaskOrder;
use teamd_shared::id::RequestId;
use teamd_shared::image::Image;
use teamd_shared::machine::memory::MemoryKill;
use teamd_shared::member::Gate;
use teamd_shared::message::ALL;
use teamd_shared::todo::TodoList;
use teamd_shared::tools::{
    AnswerPlan, Remember, RequestPlan, SendMessage, ShutdownRequest, SpawnTeammate, TaskAction,
};
use teamd_shared::transcript::Event;

pub use bash::Bash;
pub use delegate::Delegate;
pub use edit_file::EditFile;
pub use load_skill::LoadSkill;
pub use mcp::{McpCall, McpSearch, McpTool};
pub use plan_approval::PlanApproval;
pub use read_file::ReadFile;
pub use run_agent::RunAgent;
pub use search::{Glob, Grep, Search};
pub use shutdown_response::ShutdownResponse;
pub use sleep::Sleep;
pub use table::{AfterCrash, Caller, group_of};
pub use teamd_shared::tools::{Grant, ToolText};
pub use todo_write::TodoWrite;
pub use write_file::WriteFile;

/// What a result says of a call about the team of which it is not known whether it was carried out.
/// Each such result is made with these words: what the call may have given away counts by them.
pub const IN_DOUBT: &str = "may have been carried out";

/// One call of a tool, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The call in a few words, on one line, at most 60 characters.
    pub activity: String,
    /// What is to be done.
    pub action: Action,
}

/// What a call asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Work on the machine, by the toolbox.
    Local(LocalAction),
    /// Something about the team, whose outcome is the result.
    Team(TeamAction),
    /// To consume what has arrived.
    ReadInbox,
    /// To replace the list of steps, which is a fold of the transcript.
    Todo(TodoList),
    /// To have a subagent do it.
    Delegate(Delegate),
    /// An answer to a shutdown; the daemon decides what becomes of it.
    AnswerShutdown(ShutdownResponse),
    /// A plan; the result is its verdict.
    SubmitPlan(PlanApproval),
}

/// What the toolbox does.
#[derive(Debug, Clone, PartialEq)]
pub enum LocalAction {
    /// Runs a command.
    Bash(Bash),
    /// Reads a text file.
    ReadFile(ReadFile),
    /// Makes or replaces a file.
    WriteFile(WriteFile),
    /// Replaces a text that occurs once in a file.
    EditFile(EditFile),
    /// Looks for files, or for lines in them.
    Search(Search),
    /// Reads a skill.
    LoadSkill(LoadSkill),
    /// Runs the agent of the teammate.
    RunAgent(RunAgent),
    /// Waits.
    Sleep(Sleep),
    /// Looks at the tools of the MCP servers.
    McpLook(McpLook),
    /// Calls a tool of an MCP server.
    McpCall(McpCall),
}

/// What is looked for among the tools of the MCP servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpLook {
    /// The text and the schema of one.
    Tool(McpTool),
    /// Those with these words.
    Search(McpSearch),
}

/// What is done about the team.
#[derive(Debug, Clone, PartialEq)]
pub enum TeamAction {
    /// Sends a message to another member, or to every one that runs.
    SendMessage(SendMessage),
    /// Shows the team.
    List,
    /// Shows where a request stands.
    ShowRequest(RequestId),
    /// Starts a teammate.
    Spawn(SpawnTeammate),
    /// Asks a teammate to leave.
    RequestShutdown(ShutdownRequest),
    /// Closes the gate of a teammate and asks it for a plan.
    RequestPlan(RequestPlan),
    /// Answers a plan, or says what the lead agent would answer.
    AnswerPlan(AnswerPlan),
    /// Does something with tasks.
    Task(TaskAction),
    /// Proposes what the team is to remember.
    Remember(Remember),
}

impl Action {
    /// Tells whether it tells or asks others something, and does not only look.
    pub fn reaches_the_team(&self) -> bool {
        match self {
            Self::Local(_) | Self::ReadInbox | Self::Todo(_) | Self::Delegate(_) => false,
            Self::Team(action) => !matches!(
                action,
                TeamAction::List
                    | TeamAction::ShowRequest(_)
                    | TeamAction::Task(
                        TaskAction::Order(TaskOrder::List(_))
                            | TaskAction::Diff(_)
                            | TaskAction::Refuse(_)
                    )
            ),
            Self::AnswerShutdown(_) | Self::SubmitPlan(_) => true,
        }
    }

    /// Tells whether it is a message to all.
    pub fn is_for_all(&self) -> bool {
        matches!(self, Self::Team(TeamAction::SendMessage(SendMessage { to, .. })) if to == ALL)
    }
}

impl From<LocalAction> for Action {
    fn from(action: LocalAction) -> Self {
        Self::Local(action)
    }
}

impl From<TaskAction> for Action {
    fn from(action: TaskAction) -> Self {
        Self::Team(TeamAction::Task(action))
    }
}

impl From<TeamAction> for Action {
    fn from(action: TeamAction) -> Self {
        Self::Team(action)
    }
}

impl LocalAction {
    /// Tells whether a closed gate refuses the call. `bash` is let through: the kernel keeps it
    /// from changing anything. In the background it is not, since a closed gate ends background
    /// commands. Of a tool of an MCP server the toolbox knows whether it only reads.
    pub fn needs_open_gate(&self) -> bool {
        match self {
            Self::WriteFile(_) | Self::EditFile(_) => true,
            Self::Bash(bash) => bash.run_in_background,
            Self::ReadFile(_)
            | Self::Search(_)
            | Self::LoadSkill(_)
            | Self::RunAgent(_)
            | Self::Sleep(_)
            | Self::McpLook(_)
            | Self::McpCall(_) => false,
        }
    }

    /// Tells whether the call is the agent itself at work: then it has no longer to answer a
    /// shutdown than a model has.
    pub fn is_mind(&self) -> bool {
        matches!(self, Self::RunAgent(_))
    }

    /// Tells whether the call can change anything when it begins with the gate as it is.
    pub fn changes(&self, gate: Gate) -> bool {
        self.needs_open_gate()
            || (gate == Gate::Open && matches!(self, Self::Bash(_) | Self::McpCall(_)))
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The text for the model.
    pub content: String,
    /// Whether that is an error.
    pub is_error: bool,
    /// The images that belong to it: the text has a word in the place of each.
    pub images: Vec<Image>,
    /// Whether the kernel has killed something of it for memory.
    pub killed_for_memory: Option<MemoryKill>,
}

impl Outcome {
    /// Makes the outcome of a call that did what was asked.
    pub fn ok(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            is_error: false,
            images: Vec::new(),
            killed_for_memory: None,
        }
    }

    /// Makes the outcome of a call that did not.
    pub fn error(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            is_error: true,
            images: Vec::new(),
            killed_for_memory: None,
        }
    }

    /// Returns what is recorded of the end of this call.
    pub fn into_result(self, tool_use_id: String) -> Event {
        Event::Result {
            tool_use_id,
            content: self.content,
            is_error: self.is_error,
            images: self.images,
            killed_for_memory: self.killed_for_memory,
        }
    }
}

impl From<Result<String, String>> for Outcome {
    fn from(result: Result<String, String>) -> Self {
        result.map_or_else(Self::error, Self::ok)
    }
}
