//! The tools: one table, in which each has its name, its effect, the type of its input, and what a
//! call asks for. Names, fields and texts are those of the lead agent's tools.

use std::sync::LazyLock;
use std::time::Duration;

use rmcp::model::{Tool, ToolAnnotations};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use teamd_shared::tools::{
    LeadMessage, LeadTaskCreate, LeadTaskUpdate, RequestPlan, ReviewPlan, ShutdownRequest,
    SpawnTeammate, TaskAction, TaskDiff, TaskGet, TaskList, TaskReview, TeamStatus, ToolText,
    WaitForEvents, input,
};

/// The field that every tool has in addition.
const CURSOR: &str = "cursor";

/// What a call asks for.
#[derive(Debug)]
pub(super) enum LeadCall {
    Status,
    Spawn(Box<SpawnTeammate>),
    Shutdown(ShutdownRequest),
    Send(LeadMessage),
    RequestPlan(RequestPlan),
    Review(ReviewPlan),
    Task(TaskAction),
    ReviewTask(TaskReview),
    Wait(Duration),
}

/// A call, as it was read.
#[derive(Debug)]
pub(super) struct ParsedCall {
    pub(super) call: LeadCall,
    /// The cursor that it names.
    pub(super) cursor: Option<u64>,
}

/// What a tool does to the team and the workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolEffect {
    /// It changes nothing.
    Reads,
    /// It adds something, and changes nothing that is there.
    Adds,
    /// It changes or ends something, or lets a teammate do so.
    Changes,
    /// Likewise; and a second call like it does nothing more.
    ChangesOnce,
    /// It starts an agent, which may reach the network.
    Starts,
}

impl ToolEffect {
    fn annotations(self) -> ToolAnnotations {
        ToolAnnotations::new()
            .read_only(self == Self::Reads)
            .destructive(!matches!(self, Self::Reads | Self::Adds))
            .idempotent(matches!(self, Self::Reads | Self::ChangesOnce))
            .open_world(self == Self::Starts)
    }
}

type ParseInput = Box<dyn Fn(&Value) -> Result<LeadCall, String> + Send + Sync>;

struct LeadTool {
    name: &'static str,
    effect: ToolEffect,
    describe: fn(&'static str) -> ToolText,
    parse: ParseInput,
}

fn tool<T: DeserializeOwned + JsonSchema + 'static>(
    name: &'static str,
    effect: ToolEffect,
    call: fn(T) -> LeadCall,
) -> LeadTool {
    LeadTool {
        name,
        effect,
        describe: input::describe::<T>,
        parse: Box::new(move |given| Ok(call(input::parse(name, "", given)?.1))),
    }
}

static TABLE: LazyLock<[LeadTool; 13]> = LazyLock::new(|| {
    use ToolEffect::{Adds, Changes, ChangesOnce, Reads, Starts};
    [
        tool("team_status", Reads, |TeamStatus {}| LeadCall::Status),
        tool("spawn_teammate", Starts, |spawn| {
            LeadCall::Spawn(Box::new(spawn))
        }),
        tool("shutdown_teammate", Changes, LeadCall::Shutdown),
        tool("send_message", Adds, LeadCall::Send),
        tool("request_plan", ChangesOnce, LeadCall::RequestPlan),
        tool("review_plan", ChangesOnce, LeadCall::Review),
        tool("task_create", Adds, |task: LeadTaskCreate| {
            LeadCall::Task(task.action())
        }),
        tool("task_update", Changes, |task: LeadTaskUpdate| {
            LeadCall::Task(task.action())
        }),
        tool("task_list", Reads, |list: TaskList| {
            LeadCall::Task(list.action())
        }),
        tool("task_get", Reads, |task: TaskGet| {
            LeadCall::Task(task.action())
        }),
        tool("task_diff", Reads, |task: TaskDiff| {
            LeadCall::Task(task.action())
        }),
        tool("task_review", ChangesOnce, LeadCall::ReviewTask),
        tool("wait_for_events", Reads, |WaitForEvents { timeout }| {
            LeadCall::Wait(Duration::from_secs_f64(timeout))
        }),
    ]
});

/// Returns the names of the tools.
pub(super) fn names() -> Vec<&'static str> {
    TABLE.iter().map(|tool| tool.name).collect()
}

/// Tells whether there is a tool with this name.
pub(super) fn is_known(name: &str) -> bool {
    TABLE.iter().any(|tool| tool.name == name)
}

/// Returns the tools as a client is told of them.
pub(super) fn list() -> Vec<Tool> {
    TABLE
        .iter()
        .map(|tool| {
            let ToolText {
                name,
                description,
                input,
            } = (tool.describe)(tool.name);
            let schema = with_cursor(input);
            Tool::new(name, description, schema).with_annotations(tool.effect.annotations())
        })
        .collect()
}

fn with_cursor(schema: Value) -> Map<String, Value> {
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => Map::new(),
    };
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let cursor = json!({"type": "integer", "minimum": 0, "description": "The last cursor that you got."});
        properties.insert(CURSOR.to_owned(), cursor);
    }
    schema
}

/// Reads a call.
///
/// # Errors
/// A text for the model: which field is wrong, and what belongs there.
pub(super) fn parse(name: &str, input: &Value) -> Result<ParsedCall, String> {
    let tool = TABLE
        .iter()
        .find(|tool| tool.name == name)
        .ok_or_else(|| format!("there is no tool {name:?}"))?;
    let mut input = input.clone();
    let cursor = input
        .as_object_mut()
        .and_then(|fields| fields.shift_remove(CURSOR))
        .filter(|cursor| !cursor.is_null());
    let cursor = cursor
        .map(|cursor| {
            let whole = cursor.as_u64().or_else(|| cursor.as_str()?.parse().ok());
            whole.ok_or_else(|| {
                format!("{name}: the field `{CURSOR}`: must be a number that a result gave")
            })
        })
        .transpose()?;
    Ok(ParsedCall {
        call: (tool.parse)(&input)?,
        cursor,
    })
}
