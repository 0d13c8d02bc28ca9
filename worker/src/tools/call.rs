//! The calls of tools: read from what a model says, and shown to people. Pure.

mod lead;

use serde_json::{Map, Value};
use teamd_shared::id::RequestId;
use teamd_shared::member::Gate;
use teamd_shared::visible::is_hidden;

use super::kit::Kit;
pub(crate) use lead::{LeadCall, Spawn};

/// Seconds that a command may take unless its call says otherwise.
pub(crate) const DEFAULT_TIMEOUT: f64 = 120.0;

/// The longest time that a call may ask for, in seconds.
pub(crate) const MAX_TIMEOUT: f64 = 3600.0;

/// The longest sleep, in seconds: a day.
const MAX_SLEEP: f64 = 86_400.0;

/// The longest description of an activity, in characters.
const MAX_ACTIVITY: usize = 60;

/// One call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Call {
    /// Runs a command.
    Bash {
        /// What `bash -c` gets.
        command: String,
        /// Seconds, above 0 and at most [`MAX_TIMEOUT`].
        timeout: Option<f64>,
        /// Whether the call returns at once and the command goes on.
        background: bool,
    },
    /// Reads a text file.
    ReadFile {
        /// Relative to the workspace, or absolute and inside it.
        path: String,
        /// How many lines at most.
        limit: Option<u64>,
        /// The first line, counted from 1.
        offset: Option<u64>,
    },
    /// Makes or replaces a file.
    WriteFile {
        /// Relative to the workspace, or absolute and inside it.
        path: String,
        /// All that the file holds afterwards.
        content: String,
    },
    /// Replaces a text that occurs once in a file.
    EditFile {
        /// Relative to the workspace, or absolute and inside it.
        path: String,
        /// The text as it stands there.
        old_text: String,
        /// The text that takes its place.
        new_text: String,
    },
    /// Sends a message to another member.
    SendMessage {
        /// The receiver, not yet validated.
        to: String,
        /// The text.
        content: String,
    },
    /// Delivers what has arrived since the last delivery.
    ReadInbox,
    /// Answers a shutdown request.
    ShutdownResponse {
        /// The request.
        request_id: RequestId,
        /// Whether the teammate leaves.
        approve: bool,
        /// Why, or why not.
        reason: String,
    },
    /// Submits a plan.
    PlanApproval {
        /// The plan.
        plan: String,
    },
    /// What the lead agent alone can do.
    Lead(LeadCall),
    /// Waits: a tool of the script model, which real models are not told of.
    Sleep {
        /// Seconds, from 0 to a day.
        seconds: f64,
    },
}

impl Call {
    /// Reads a call of somebody who has this kit.
    ///
    /// # Errors
    /// A text for the model: which tool or field is wrong, and what belongs there.
    pub(crate) fn parse(kit: Kit, name: &str, input: &Value) -> Result<Self, String> {
        let mut fields = Fields::of(name, input)?;
        let of_lead = match kit {
            Kit::Lead => lead::parse(name, &mut fields),
            Kit::Teammate => None,
        };
        let call = match of_lead {
            Some(call) => call?,
            None => Self::common(kit, name, &mut fields)?,
        };
        fields.nothing_left()?;
        Ok(call)
    }

    fn common(kit: Kit, name: &str, fields: &mut Fields<'_>) -> Result<Self, String> {
        Ok(match name {
            "bash" => Self::Bash {
                command: fields.command()?,
                timeout: fields.timeout()?,
                background: fields.flag("run_in_background")?.unwrap_or(false),
            },
            "read_file" => Self::ReadFile {
                path: fields.path()?,
                limit: fields.count("limit")?,
                offset: fields.count("offset")?,
            },
            "write_file" => Self::WriteFile { path: fields.path()?, content: fields.text("content")? },
            "edit_file" => Self::EditFile {
                path: fields.path()?,
                old_text: fields.text("old_text")?,
                new_text: fields.text("new_text")?,
            },
            "send_message" => Self::SendMessage { to: fields.text("to")?, content: fields.text("content")? },
            "read_inbox" => Self::ReadInbox,
            "shutdown_response" => Self::ShutdownResponse {
                request_id: fields.request_id()?,
                approve: fields.flag("approve")?.ok_or_else(|| fields.missing("approve"))?,
                reason: fields.optional_text("reason")?.unwrap_or_default(),
            },
            "plan_approval" => Self::PlanApproval { plan: fields.said("plan")? },
            "sleep" => Self::Sleep { seconds: fields.seconds()? },
            other => {
                return Err(format!("there is no tool {other:?}; the tools are {}", kit.tools().join(", ")));
            }
        })
    }

    /// Tells whether a closed gate refuses the call. `bash` is let through: the kernel keeps it from changing anything;
    /// but not in the background, where a closed gate lets nothing go on.
    pub(crate) fn needs_open_gate(&self) -> bool {
        matches!(self, Self::WriteFile { .. } | Self::EditFile { .. } | Self::Bash { background: true, .. })
    }

    /// Tells whether the call can change anything when it begins with the gate as it is.
    pub(crate) fn changes(&self, gate: Gate) -> bool {
        self.needs_open_gate() || (gate == Gate::Open && matches!(self, Self::Bash { .. }))
    }

    /// Describes the call in a few words, on one line, at most 60 characters; control characters are shown.
    pub(crate) fn activity(&self) -> String {
        let (tool, object) = match self {
            Self::Bash { command, background: false, .. } => ("bash", command.as_str()),
            Self::Bash { command, background: true, .. } => ("bash in the background", command.as_str()),
            Self::ReadFile { path, .. } => ("read_file", path.as_str()),
            Self::WriteFile { path, .. } => ("write_file", path.as_str()),
            Self::EditFile { path, .. } => ("edit_file", path.as_str()),
            Self::SendMessage { to, .. } => ("send_message", to.as_str()),
            Self::ReadInbox => ("read_inbox", ""),
            Self::ShutdownResponse { approve: true, .. } => ("shutdown_response", "approve"),
            Self::ShutdownResponse { approve: false, .. } => ("shutdown_response", "reject"),
            Self::PlanApproval { .. } => ("plan_approval", ""),
            Self::Lead(call) => call.activity(),
            Self::Sleep { seconds } => return format!("sleep: {seconds} s"),
        };
        let object = visible(object.trim());
        let all = if object.is_empty() { tool.to_owned() } else { format!("{tool}: {object}") };
        if all.chars().count() <= MAX_ACTIVITY {
            return all;
        }
        all.chars().take(MAX_ACTIVITY - 1).chain(['…']).collect()
    }
}

/// Makes every character visible that could move a cursor, turn the direction of text, or end a line.
/// No more than what an activity can show is looked at.
fn visible(text: &str) -> String {
    let shown = |c: char| if is_hidden(c) { c.escape_default().to_string() } else { c.to_string() };
    text.chars().take(MAX_ACTIVITY + 1).map(shown).collect()
}

/// Says what is wrong with an input that is text: services hand on as such what was to be an object and is none.
fn unreadable(tool: &str, text: &str) -> String {
    match serde_json::from_str::<Value>(text) {
        Err(error) if error.is_eof() => format!(
            "{tool}: nothing was done: the input ends in the middle, after {} characters; if the answer grew too long, \
             do it in smaller pieces",
            text.chars().count()
        ),
        Err(error) => format!("{tool}: nothing was done: the input is not valid JSON ({error})"),
        Ok(_) => format!("{tool}: the input must be a JSON object, not a string"),
    }
}

/// The fields of an input that have not been understood yet.
struct Fields<'a> {
    tool: &'a str,
    fields: Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    fn of(tool: &'a str, input: &Value) -> Result<Self, String> {
        match input {
            Value::Object(fields) => Ok(Self { tool, fields: fields.clone(), known: Vec::new() }),
            // Some models say nothing where a tool needs nothing.
            Value::Null => Ok(Self { tool, fields: Map::new(), known: Vec::new() }),
            Value::String(text) => Err(unreadable(tool, text)),
            other => Err(format!("{tool}: the input must be a JSON object, not {}", kind_of(other))),
        }
    }

    /// Takes a field; null counts as absent.
    fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.fields.shift_remove(field).filter(|value| !value.is_null())
    }

    fn missing(&self, field: &str) -> String {
        format!("{}: the field {field:?} is missing", self.tool)
    }

    fn wrong(&self, field: &str, expected: &str) -> String {
        format!("{}: the field {field:?} must be {expected}", self.tool)
    }

    fn optional_text(&mut self, field: &'static str) -> Result<Option<String>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(field, &format!("a string, not {}", kind_of(&other)))),
        }
    }

    fn text(&mut self, field: &'static str) -> Result<String, String> {
        self.optional_text(field)?.ok_or_else(|| self.missing(field))
    }

    /// A text that is not empty and can be given to the system, which ends its strings with NUL.
    fn c_text(&mut self, field: &'static str) -> Result<String, String> {
        let text = self.text(field)?;
        if text.trim().is_empty() {
            return Err(self.wrong(field, "a string that is not empty"));
        }
        if text.contains('\0') { Err(self.wrong(field, "a string without NUL characters")) } else { Ok(text) }
    }

    fn command(&mut self) -> Result<String, String> {
        self.c_text("command")
    }

    fn path(&mut self) -> Result<String, String> {
        self.c_text("path")
    }

    /// A text that says something.
    fn said(&mut self, field: &'static str) -> Result<String, String> {
        let text = self.text(field)?;
        if text.trim().is_empty() { Err(self.wrong(field, "a string that is not empty")) } else { Ok(text) }
    }

    /// Tells whether a field is there; null counts as absent.
    fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    fn flag(&mut self, field: &'static str) -> Result<Option<bool>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(other) => Err(self.wrong(field, &format!("true or false, not {}", kind_of(&other)))),
        }
    }

    fn number(&mut self, field: &'static str) -> Result<Option<f64>, String> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Number(number)) => Ok(number.as_f64()),
            Some(other) => Err(self.wrong(field, &format!("a number, not {}", kind_of(&other)))),
        }
    }

    /// A whole number from 1, as `5` or `5.0`.
    fn count(&mut self, field: &'static str) -> Result<Option<u64>, String> {
        let Some(value) = self.take(field) else { return Ok(None) };
        let whole = value.as_u64().or_else(|| {
            let number = value.as_f64().filter(|n| n.fract() == 0.0 && (1.0..=9e15).contains(n))?;
            format!("{number:.0}").parse().ok()
        });
        whole.filter(|&count| count >= 1).map(Some).ok_or_else(|| self.wrong(field, "a whole number from 1"))
    }

    fn timeout(&mut self) -> Result<Option<f64>, String> {
        let timeout = self.number("timeout")?;
        if timeout.is_none_or(|seconds| seconds > 0.0 && seconds <= MAX_TIMEOUT) {
            return Ok(timeout);
        }
        Err(self.wrong("timeout", &format!("above 0 and at most {MAX_TIMEOUT} seconds")))
    }

    fn seconds(&mut self) -> Result<f64, String> {
        let seconds = self.number("seconds")?.ok_or_else(|| self.missing("seconds"))?;
        let fits = (0.0..=MAX_SLEEP).contains(&seconds);
        if fits { Ok(seconds) } else { Err(self.wrong("seconds", &format!("from 0 to {MAX_SLEEP}"))) }
    }

    fn request_id(&mut self) -> Result<RequestId, String> {
        let id = self.text("request_id")?;
        RequestId::new(&id).map_err(|error| format!("{}: the field \"request_id\" is {error}", self.tool))
    }

    fn nothing_left(&self) -> Result<(), String> {
        let Some((field, _)) = self.fields.iter().next() else { return Ok(()) };
        let tool = self.tool;
        if self.known.is_empty() {
            return Err(format!("{tool}: there is no field {field:?}; the tool takes none"));
        }
        Err(format!("{tool}: there is no field {field:?}; the fields are {}", self.known.join(", ")))
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests;
