//! The calls that only the lead agent can make. Pure.

use teamd_shared::id::RequestId;

use super::{Call, Fields};

/// What the lead agent asks of the team.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LeadCall {
    /// Starts a teammate.
    Spawn(Spawn),
    /// Shows the team.
    List,
    /// Sends a message to every other member that runs.
    Broadcast {
        /// The text.
        content: String,
    },
    /// Asks a teammate to leave.
    Shutdown {
        /// The teammate, not yet validated.
        teammate: String,
        /// Why.
        reason: String,
    },
    /// Shows where a request stands.
    Status {
        /// The request.
        request_id: RequestId,
    },
    /// Closes the gate of a teammate and asks it for a plan.
    RequestPlan {
        /// The teammate, not yet validated.
        teammate: String,
        /// What the plan shall be about.
        content: String,
    },
    /// Answers a plan, or says what the lead agent would answer.
    Verdict {
        /// The request.
        request_id: RequestId,
        /// Yes or no.
        approve: bool,
        /// What to change, or what to mind.
        feedback: String,
    },
}

/// A teammate to be started.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Spawn {
    /// Its name, not yet validated.
    pub(crate) name: String,
    /// What it is for.
    pub(crate) role: String,
    /// What it shall do first.
    pub(crate) prompt: String,
    /// Whether it must submit a plan first.
    pub(crate) plan: bool,
    /// The model, as `PROVIDER[:MODEL]`; none: as `teamctl spawn` chooses it.
    pub(crate) model: Option<String>,
    /// The directory to work in; in that of the lead agent, or one that `team.toml` names; none: what `team.toml` says, or the lead agent's.
    pub(crate) workspace: Option<String>,
}

impl LeadCall {
    /// Returns the tool and what the call is about.
    pub(super) fn activity(&self) -> (&'static str, &str) {
        match self {
            Self::Spawn(spawn) => ("spawn_teammate", &spawn.name),
            Self::List => ("list_teammates", ""),
            Self::Broadcast { .. } => ("broadcast", ""),
            Self::Shutdown { teammate, .. } => ("shutdown_request", teammate),
            Self::Status { request_id } => ("shutdown_response", request_id.as_str()),
            Self::RequestPlan { teammate, .. } => ("request_plan", teammate),
            Self::Verdict { request_id, .. } => ("plan_approval", request_id.as_str()),
        }
    }
}

/// Reads a call; none if the tool is no other than a teammate's.
pub(super) fn parse(name: &str, fields: &mut Fields<'_>) -> Option<Result<Call, String>> {
    let call = match name {
        "spawn_teammate" => spawn(fields),
        "list_teammates" => Ok(LeadCall::List),
        "broadcast" => fields.said("content").map(|content| LeadCall::Broadcast { content }),
        "shutdown_request" => shutdown(fields),
        // With an answer it is the lead agent's own: somebody asks it to leave.
        "shutdown_response" if fields.has("approve") => return None,
        "shutdown_response" => status(fields),
        "request_plan" => request_plan(fields),
        "plan_approval" => verdict(fields),
        _ => return None,
    };
    Some(call.map(Call::Lead))
}

fn spawn(fields: &mut Fields<'_>) -> Result<LeadCall, String> {
    Ok(LeadCall::Spawn(Spawn {
        name: fields.said("name")?,
        role: fields.text("role")?,
        prompt: fields.said("prompt")?,
        plan: fields.flag("plan")?.unwrap_or(false),
        model: fields.optional_text("model")?.filter(|model| !model.trim().is_empty()),
        workspace: fields.optional_text("workspace")?.filter(|path| !path.trim().is_empty()),
    }))
}

fn shutdown(fields: &mut Fields<'_>) -> Result<LeadCall, String> {
    let (teammate, reason) = (fields.said("teammate")?, fields.optional_text("reason")?);
    Ok(LeadCall::Shutdown { teammate, reason: reason.unwrap_or_default() })
}

fn status(fields: &mut Fields<'_>) -> Result<LeadCall, String> {
    let request_id = fields.request_id()?;
    // Both belong to an answer, which this is not.
    drop(fields.take("approve"));
    drop(fields.optional_text("reason")?);
    Ok(LeadCall::Status { request_id })
}

fn request_plan(fields: &mut Fields<'_>) -> Result<LeadCall, String> {
    Ok(LeadCall::RequestPlan { teammate: fields.said("teammate")?, content: fields.said("content")? })
}

fn verdict(fields: &mut Fields<'_>) -> Result<LeadCall, String> {
    let request_id = fields.request_id()?;
    let approve = fields.flag("approve")?.ok_or_else(|| fields.missing("approve"))?;
    let feedback = fields.optional_text("feedback")?.unwrap_or_default();
    Ok(LeadCall::Verdict { request_id, approve, feedback })
}
