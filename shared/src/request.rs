//! The one state machine of all requests, pure.
//!
//! ```text
//!           approve
//! pending ──────────▶ approved
//!    │      reject
//!    ├──────────────▶ rejected
//!    │  its owner is gone
//!    └──────────────▶ expired
//! ```
//!
//! A kind of request is a row of data ([`Rules`]): who answers it, and what it belongs to. A
//! further protocol is one more row and its message; the machine does not change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::id::RequestId;
use crate::id::TaskId;
use crate::member::{ApproveBy, Permissions};
use crate::message::{AnsweredBy, permission_text};

/// The protocols.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// The lead asks a teammate to leave.
    Shutdown,
    /// A teammate asks the lead to approve a plan.
    PlanApproval,
    /// The work that a teammate has submitted is to be approved.
    Review,
    /// An agent asks whether it may use one of its own tools.
    Permission,
    /// A member proposes what the team is to remember. Only a person accepts it.
    Memory,
}

/// What distinguishes one kind of request from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Who may answer.
    pub answered_by: Answerer,
    /// What the request ends with.
    pub belongs_to: Span,
}

/// A side of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answerer {
    /// The lead: a person, or the lead agent.
    Lead,
    /// The member that the request is about, over its own connection.
    Member,
}

/// How long a request can be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// One incarnation: a restart ends it.
    Incarnation,
    /// The conversation: it continues after a restart by the policy, and ends with a fresh spawn.
    Conversation,
    /// The submission: it outlives its author, and ends when it is withdrawn.
    Submission,
    /// The team: nothing but its answer ends it.
    Team,
}

impl Kind {
    /// Returns the kind as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the rules of this kind.
    pub const fn rules(self) -> Rules {
        match self {
            Self::Shutdown => Rules {
                answered_by: Answerer::Member,
                belongs_to: Span::Incarnation,
            },
            Self::PlanApproval => Rules {
                answered_by: Answerer::Lead,
                belongs_to: Span::Conversation,
            },
            Self::Review => Rules {
                answered_by: Answerer::Lead,
                belongs_to: Span::Submission,
            },
            Self::Permission => Rules {
                answered_by: Answerer::Lead,
                belongs_to: Span::Incarnation,
            },
            Self::Memory => Rules {
                answered_by: Answerer::Lead,
                belongs_to: Span::Team,
            },
        }
    }

    /// Returns the word for people.
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Shutdown => "shutdown",
            Self::PlanApproval => "plan",
            Self::Review => "review",
            Self::Permission => "permission",
            Self::Memory => "memory",
        }
    }

    /// Returns the command of `teamctl` that lists the pending ones.
    pub const fn listed_by(self) -> &'static str {
        match self {
            Self::PlanApproval => "plans",
            Self::Review => "reviews",
            Self::Shutdown | Self::Permission | Self::Memory => "requests",
        }
    }

    /// Tells whether the lead answers it, with `approve` or `reject`.
    pub fn is_judged(self) -> bool {
        self.rules().answered_by == Answerer::Lead
    }
}

/// The status of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// Not answered yet.
    Pending,
    /// Answered with yes.
    Approved,
    /// Answered with no.
    Rejected,
    /// The asker or the answerer is gone, or the asker has asked for something else.
    Expired,
}

impl Status {
    /// Returns the status as it is written.
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// What can happen to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// One side answers.
    Answer {
        /// Which one.
        by: Answerer,
        /// Yes or no.
        approve: bool,
    },
    /// The incarnation that it concerns ended, and the conversation continues in the next one.
    IncarnationEnded,
    /// The member ended and is not restarted, or began a fresh conversation.
    ConversationEnded,
    /// The asker no longer waits for this.
    Withdrawn,
}

/// Why an event changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The same answer was recorded before: its sender learns that, and it is no error.
    #[error("this answer was given before")]
    Repeated,
    /// Another outcome was recorded before.
    #[error("it is {} already", .0.as_str())]
    Resolved(Status),
    /// It does not come from the one who was asked.
    #[error("the answer does not come from the one who was asked")]
    WrongAnswerer,
}

/// Computes the status of a request after an event: every cell of (status × event).
///
/// # Errors
/// [`AnswerError`] if the event changes nothing and its cause must be reported.
pub fn step(rules: Rules, status: Status, event: Trigger) -> Result<Status, AnswerError> {
    match (status, event) {
        (_, Trigger::Answer { by, .. }) if by != rules.answered_by => {
            Err(AnswerError::WrongAnswerer)
        }
        (Status::Pending, Trigger::Answer { approve: true, .. }) => Ok(Status::Approved),
        (Status::Pending, Trigger::Answer { approve: false, .. }) => Ok(Status::Rejected),
        (Status::Approved, Trigger::Answer { approve: true, .. })
        | (Status::Rejected, Trigger::Answer { approve: false, .. }) => Err(AnswerError::Repeated),
        (Status::Approved | Status::Rejected | Status::Expired, Trigger::Answer { .. }) => {
            Err(AnswerError::Resolved(status))
        }
        (Status::Pending, Trigger::IncarnationEnded) => match rules.belongs_to {
            Span::Incarnation => Ok(Status::Expired),
            Span::Conversation | Span::Submission | Span::Team => Ok(Status::Pending),
        },
        (Status::Pending, Trigger::ConversationEnded)
            if matches!(rules.belongs_to, Span::Submission | Span::Team) =>
        {
            Ok(Status::Pending)
        }
        (Status::Pending, Trigger::ConversationEnded | Trigger::Withdrawn) => Ok(Status::Expired),
        // An answer stays when the asker or the answerer ends.
        (
            Status::Approved | Status::Rejected | Status::Expired,
            Trigger::IncarnationEnded | Trigger::ConversationEnded | Trigger::Withdrawn,
        ) => Ok(status),
    }
}

/// A request as it is journaled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// Its id, unique in the team forever.
    pub request_id: RequestId,
    /// Which protocol.
    pub kind: Kind,
    /// Who asks.
    pub from: String,
    /// Who is asked.
    pub to: String,
    /// Its status.
    pub status: Status,
    /// What is asked.
    pub payload: Payload,
    /// The incarnation that is asked, or that asks.
    pub incarnation: u32,
    /// The message that carries it.
    pub message_id: Uuid,
    /// Seconds since 1970.
    pub created_at: f64,
    /// Seconds since 1970, once it is no longer pending.
    pub resolved_at: Option<f64>,
    /// The reason or feedback of the answer; why it expired.
    pub reason: Option<String>,
    /// Who decided a shutdown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<AnsweredBy>,
    /// Whether the lead agent asked for it (or joined it), and not only a person: then it is
    /// notified of the outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub agent: bool,
    /// How permission questions are answered from this approval on; none: as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<Permissions>,
    /// The process that answered, with those that run it, if a lead was connected by MCP then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answered_from: Option<String>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Payload {
    /// To leave.
    Shutdown {
        /// Why.
        reason: String,
        /// Seconds that the model has to decide.
        decide_within: f64,
        /// Seconds after which it is forced, if it is.
        force_after: Option<f64>,
    },
    /// To carry out a plan.
    Plan {
        /// The plan.
        plan: String,
    },
    /// To accept submitted work.
    Review(Review),
    /// To use a tool of the agent's own.
    Permission {
        /// The tool.
        tool: String,
        /// Its input.
        input: Value,
    },
    /// To remember something.
    Memory {
        /// What.
        remember: String,
    },
}

/// What is to be reviewed, and who may say that it is good. Its author never may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Review {
    /// The task.
    pub task: TaskId,
    /// Which submission of it: the answer holds for no other one.
    pub submission: u32,
    /// What was to be done, in one line.
    pub subject: String,
    /// What the author says about its work.
    pub summary: String,
    /// Who may answer, in addition to a person.
    pub by: ApproveBy,
    /// Which protected file was changed, or why that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub touched_protected: Option<String>,
}

impl Payload {
    /// Returns what is asked, for people.
    pub fn text(&self) -> String {
        match self {
            Self::Shutdown { reason, .. } => reason.clone(),
            Self::Plan { plan } => plan.clone(),
            Self::Review(Review {
                task,
                submission,
                subject,
                summary,
                touched_protected,
                ..
            }) => {
                let touched = touched_protected.as_ref();
                let touched = touched
                    .map(|why| format!(", touched protected files ({why})"))
                    .unwrap_or_default();
                let what = format!("task {task} ({subject}), submission {submission}{touched}");
                [what, summary.clone()].join("\n\n").trim_end().to_owned()
            }
            Self::Permission { tool, input } => permission_text(tool, input),
            Self::Memory { remember } => remember.clone(),
        }
    }
}

impl Request {
    /// Returns the member that the request is about: the one asked to leave, or the author of the
    /// plan.
    pub fn member(&self) -> &str {
        match self.kind.rules().answered_by {
            Answerer::Member => &self.to,
            Answerer::Lead => &self.from,
        }
    }

    /// Returns the SHA-256 of the text of a plan, in hex digits; none for another request. An answer
    /// that names it holds for that text alone.
    pub fn plan_sha256(&self) -> Option<String> {
        let Payload::Plan { plan } = &self.payload else {
            return None;
        };
        let hash = Sha256::digest(plan.as_bytes());
        Some(hash.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Tells whether it is not answered yet.
    pub fn is_pending(&self) -> bool {
        self.status == Status::Pending
    }

    /// Computes the request after an event, at a time (seconds since 1970), for a reason.
    ///
    /// # Errors
    /// [`AnswerError`] as [`step`].
    pub fn after(&self, event: Trigger, at: f64, reason: &str) -> Result<Self, AnswerError> {
        let status = step(self.kind.rules(), self.status, event)?;
        if status == self.status {
            return Ok(self.clone());
        }
        Ok(Self {
            status,
            resolved_at: Some(at),
            reason: Some(reason.to_owned()),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 5] = [
        Kind::Shutdown,
        Kind::PlanApproval,
        Kind::Review,
        Kind::Permission,
        Kind::Memory,
    ];
    const STATUSES: [Status; 4] = [
        Status::Pending,
        Status::Approved,
        Status::Rejected,
        Status::Expired,
    ];

    fn events() -> Vec<Trigger> {
        let mut events = vec![
            Trigger::IncarnationEnded,
            Trigger::ConversationEnded,
            Trigger::Withdrawn,
        ];
        for by in [Answerer::Lead, Answerer::Member] {
            events.extend([true, false].map(|approve| Trigger::Answer { by, approve }));
        }
        events
    }

    /// The whole table, written a second time, as the specification says it.
    fn expected(rules: Rules, status: Status, event: Trigger) -> Result<Status, AnswerError> {
        if let Trigger::Answer { by, .. } = event
            && by != rules.answered_by
        {
            return Err(AnswerError::WrongAnswerer);
        }
        let pending = status == Status::Pending;
        match event {
            Trigger::Answer { approve, .. } => {
                let asked_for = if approve {
                    Status::Approved
                } else {
                    Status::Rejected
                };
                match status {
                    Status::Pending => Ok(asked_for),
                    same if same == asked_for => Err(AnswerError::Repeated),
                    other => Err(AnswerError::Resolved(other)),
                }
            }
            Trigger::IncarnationEnded if pending && rules.belongs_to != Span::Incarnation => {
                Ok(Status::Pending)
            }
            Trigger::ConversationEnded
                if pending && matches!(rules.belongs_to, Span::Submission | Span::Team) =>
            {
                Ok(Status::Pending)
            }
            _ if pending => Ok(Status::Expired),
            _ => Ok(status),
        }
    }

    #[test]
    fn every_cell_of_the_table_is_as_specified() {
        for kind in KINDS {
            for status in STATUSES {
                for event in events() {
                    let got = step(kind.rules(), status, event);
                    assert_eq!(
                        got,
                        expected(kind.rules(), status, event),
                        "{kind:?} {status:?} {event:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn each_kind_is_answered_by_whom_it_asks_and_lasts_as_long_as_it_makes_sense() {
        let shutdown = Rules {
            answered_by: Answerer::Member,
            belongs_to: Span::Incarnation,
        };
        let plan = Rules {
            answered_by: Answerer::Lead,
            belongs_to: Span::Conversation,
        };
        let review = Rules {
            answered_by: Answerer::Lead,
            belongs_to: Span::Submission,
        };
        let permission = Rules {
            answered_by: Answerer::Lead,
            belongs_to: Span::Incarnation,
        };
        let memory = Rules {
            answered_by: Answerer::Lead,
            belongs_to: Span::Team,
        };
        assert_eq!(
            KINDS.map(Kind::rules),
            [shutdown, plan, review, permission, memory]
        );
    }

    #[test]
    fn a_further_kind_needs_no_second_machine() {
        // What the lead asks of a teammate's conversation: a mix that no protocol has.
        const FURTHER: Rules = Rules {
            answered_by: Answerer::Member,
            belongs_to: Span::Conversation,
        };
        let by_member = |approve| Trigger::Answer {
            by: Answerer::Member,
            approve,
        };
        assert_eq!(
            step(FURTHER, Status::Pending, by_member(true)),
            Ok(Status::Approved)
        );
        assert_eq!(
            step(FURTHER, Status::Pending, by_member(false)),
            Ok(Status::Rejected)
        );
        assert_eq!(
            step(FURTHER, Status::Pending, Trigger::IncarnationEnded),
            Ok(Status::Pending)
        );
        let own_answer = Trigger::Answer {
            by: Answerer::Lead,
            approve: true,
        };
        assert_eq!(
            step(FURTHER, Status::Pending, own_answer),
            Err(AnswerError::WrongAnswerer)
        );
        for status in STATUSES {
            for event in events() {
                assert_eq!(
                    step(FURTHER, status, event),
                    expected(FURTHER, status, event)
                );
            }
        }
    }

    #[test]
    fn nothing_leaves_a_final_status() {
        for rules in KINDS.map(Kind::rules) {
            for status in [Status::Approved, Status::Rejected, Status::Expired] {
                for event in events() {
                    assert!(step(rules, status, event).map_or(true, |next| next == status));
                }
            }
        }
    }
}
