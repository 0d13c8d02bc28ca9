//! One thing that happened in a team: a decision of the journal, or a message of an inbox. Pure.

use teamd_client::print::render::event;
use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, MemberEvent, Record, RequestEvent};
use teamd_shared::member::Phase;
use teamd_shared::message::{ALL, Body, IdleReason, Message, TEAMD};
use teamd_shared::name::Name;
use teamd_shared::task::TaskEvent;
use uuid::Uuid;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedStep {
    /// Seconds since 1970, by the clock of its writer.
    pub at: f64,
    /// The line of the journal; none for a message.
    pub seq: Option<u64>,
    /// Who acts, or to whom it happens.
    pub from: String,
    /// To whom it goes; empty where it concerns one member alone.
    pub to: String,
    /// What it is, in a few words; empty for an ordinary message.
    pub what: String,
    /// Its text, whole.
    pub text: String,
    /// What it is about.
    pub about: StepSubject,
    /// The request that it belongs to, and the stage that the request reaches with it.
    pub request: Option<(RequestId, RequestStage)>,
    /// Whether something went wrong.
    pub is_trouble: bool,
    /// The id of the message: one that is in several inboxes happened once.
    pub message: Option<Uuid>,
}

/// What a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepSubject {
    Message,
    Request,
    /// A member; its incarnation begins or has ended.
    Member(Option<Turning>),
    Task,
    Team,
}

/// An end of an incarnation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turning {
    /// It was started.
    Began,
    /// It is gone.
    Ended,
}

/// The stage that a request reaches with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestStage {
    /// It was made.
    Asked,
    /// One that was made already was asked for again.
    Joined,
    /// Its answer was yes.
    Approved,
    /// Its answer was no.
    Rejected,
    /// It can no longer be answered.
    Expired,
    /// The process of the teammate that left is gone.
    Ended,
}

impl RequestStage {
    const fn answered(approve: bool) -> Self {
        if approve {
            Self::Approved
        } else {
            Self::Rejected
        }
    }
}

impl RequestStage {
    /// Returns the stage in one word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Joined => "asked again",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Ended => "gone",
        }
    }
}

impl FeedStep {
    /// Returns the stage that its request reaches in one word, unless the step itself says it.
    pub(crate) fn stage_word(&self) -> Option<&'static str> {
        let (_, stage) = self.request.as_ref()?;
        (*stage != RequestStage::Ended).then(|| stage.word())
    }

    /// Reads a line of the journal; none if it only repeats another line.
    pub fn of_line(line: &Line) -> Option<Self> {
        let (what, text) = event::parts(&line.record);
        let seq = Some(line.seq);
        let at = line.at;
        let step = Self {
            at,
            seq,
            what,
            text,
            ..Self::blank()
        };
        match &line.record {
            Record::Snapshot(_) => None,
            Record::Team(_) => Some(Self {
                from: TEAMD.to_owned(),
                ..step
            }),
            Record::Member(record) => {
                let exit = if record.event == MemberEvent::Exited {
                    record.member.exit.as_ref()
                } else {
                    None
                };
                let request = exit.and_then(|exit| exit.request_id.clone());
                let crashed = matches!(record.member.phase, Phase::Crashed | Phase::Spawning);
                let turning = match record.event {
                    MemberEvent::Spawned => Some(Turning::Began),
                    MemberEvent::Exited => Some(Turning::Ended),
                    _ => None,
                };
                if record.derived_from.is_none() {
                    Some(Self {
                        about: StepSubject::Member(turning),
                        from: record.member.name.to_string(),
                        request: request.map(|id| (id, RequestStage::Ended)),
                        is_trouble: record.event == MemberEvent::Silent
                            || record.event == MemberEvent::Exited && crashed,
                        ..step
                    })
                } else {
                    None
                }
            }
            Record::Task(record) => {
                let owner = record
                    .task
                    .owner
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                let from = record.by.clone();
                let is_trouble = record.event == TaskEvent::Failed;
                let to = if owner == from { String::new() } else { owner };
                let about = StepSubject::Task;
                if record.derived_from.is_none() {
                    Some(Self {
                        about,
                        from,
                        to,
                        is_trouble,
                        ..step
                    })
                } else {
                    None
                }
            }
            Record::Request(record) => {
                let request = &record.request;
                let asker = request.from.clone();
                let asked = request.to.clone();
                let (stage, from, to) = match record.event {
                    RequestEvent::Asked => (RequestStage::Asked, asker, asked),
                    RequestEvent::Joined => (RequestStage::Joined, asker, asked),
                    RequestEvent::Approved => (RequestStage::Approved, asked, asker),
                    RequestEvent::Rejected => (RequestStage::Rejected, asked, asker),
                    RequestEvent::Expired => (RequestStage::Expired, asker, String::new()),
                };
                let what = request.kind.noun().to_owned();
                let about = StepSubject::Request;
                let request = Some((request.request_id.clone(), stage));
                Some(Self {
                    about,
                    from,
                    to,
                    what,
                    request,
                    ..step
                })
            }
        }
    }

    /// Reads a line of an inbox; none if it is no message, or if the journal reports it too.
    pub(crate) fn of_message(owner: &Name, line: &[u8]) -> Option<Self> {
        let message = Message::parse(line).ok()?;
        let (what, request) = match &message.body {
            Body::TeammateTerminated { .. } => return None,
            Body::TaskAssignment { .. } if message.from == TEAMD => return None,
            Body::TaskAssignment { .. } => ("task", None),
            Body::PlanRequest { .. } => ("asks for a plan", None),
            Body::Message => ("", None),
            Body::ShutdownRequest { request_id, .. } => {
                ("shutdown", Some((request_id, RequestStage::Asked)))
            }
            Body::ShutdownResponse {
                request_id,
                approve,
                ..
            } => (
                "shutdown",
                Some((request_id, RequestStage::answered(*approve))),
            ),
            Body::PlanApprovalRequest { request_id, .. } => {
                ("plan", Some((request_id, RequestStage::Asked)))
            }
            Body::PermissionRequest { request_id, .. } => {
                ("permission", Some((request_id, RequestStage::Asked)))
            }
            Body::ReviewRequest { request_id, .. } => {
                ("review", Some((request_id, RequestStage::Asked)))
            }
            Body::PlanApprovalResponse {
                request_id,
                approve,
                ..
            } => ("plan", Some((request_id, RequestStage::answered(*approve)))),
            Body::IdleNotification {
                idle_reason: IdleReason::Available,
                ..
            } => ("idle", None),
            Body::IdleNotification { idle_reason, .. } => (idle_reason.as_str(), None),
            other => (other.kind(), None),
        };
        let is_idle = matches!(message.body, Body::IdleNotification { .. });
        let to = match message.body {
            Body::Broadcast => ALL.to_owned(),
            _ => message.to.clone().unwrap_or_else(|| owner.to_string()),
        };
        Some(Self {
            at: message.timestamp.unwrap_or_default(),
            about: if request.is_some() {
                StepSubject::Request
            } else {
                StepSubject::Message
            },
            is_trouble: is_idle && what != "idle",
            what: what.to_owned(),
            request: request.map(|(id, stage)| (id.clone(), stage)),
            text: message.content,
            from: message.from,
            to,
            message: message.id,
            ..Self::blank()
        })
    }

    /// Tells whether it only says how the team runs: a process that starts, an agent that has nothing
    /// more to say.
    pub(crate) fn is_plumbing(&self) -> bool {
        if self.is_trouble {
            return false;
        }
        match self.about {
            StepSubject::Team => true,
            StepSubject::Member(turning) => turning != Some(Turning::Ended),
            StepSubject::Message => self.what == "idle" && self.text.trim().is_empty(),
            StepSubject::Request | StepSubject::Task => false,
        }
    }

    /// Returns the stage that its request reaches with it.
    pub(super) fn stage(&self) -> Option<RequestStage> {
        self.request.as_ref().map(|(_, stage)| *stage)
    }

    fn blank() -> Self {
        Self {
            at: 0.0,
            seq: None,
            from: String::new(),
            to: String::new(),
            what: String::new(),
            text: String::new(),
            about: StepSubject::Team,
            request: None,
            is_trouble: false,
            message: None,
        }
    }
}
