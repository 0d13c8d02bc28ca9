//! The plans and permissions that the client is asked: each once for each
//! prompt, while that is not answered yet. Another one may answer first; then the question is withdrawn.

use std::collections::BTreeMap;

use agent_client_protocol_schema::v1::{
    CancelRequestNotification, PermissionOption, PermissionOptionKind, RequestId as FrameId,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse, SessionId,
    ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde::Deserialize;
use serde_json::Value;
use teamd_client::act::answer::Answer;
use teamd_client::print::escape;
use teamd_shared::id::RequestId;
use teamd_shared::member::Permissions;
use teamd_shared::request::{Kind, Payload, Request};

use super::frames;
use super::updates::text_content;

const APPROVE: &str = "approve";
const ALWAYS: &str = "always";
const REJECT: &str = "reject";

/// What a teammate is told: the protocol has no room for a reason.
const WITHOUT_REASON: &str = "rejected in an editor, without a reason: ask what to change";

/// What the client was asked.
#[derive(Debug, Default)]
pub(super) struct ClientQuestions {
    last: i64,
    open: BTreeMap<i64, Question>,
    /// What the sessions were asked or told since their last prompt.
    asked: Vec<Question>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Question {
    request: RequestId,
    session: SessionId,
}

/// What the client has answered.
#[derive(Debug)]
pub(super) struct ClientAnswer {
    pub(super) request: RequestId,
    pub(super) session: SessionId,
    /// None: it leaves the answer to others.
    pub(super) answer: Option<Answer>,
}

impl ClientQuestions {
    /// Tells whether a request is one that a client is asked, and was not asked in a session since its
    /// last prompt; from now on it counts as asked.
    pub(super) fn is_new(&mut self, request: &Request, session: &SessionId) -> bool {
        if !matches!(request.kind, Kind::PlanApproval | Kind::Permission) {
            return false;
        }
        let question = Question {
            request: request.request_id.clone(),
            session: session.clone(),
        };
        let is_new = !self.asked.contains(&question);
        if is_new {
            self.asked.push(question);
        }
        is_new
    }

    /// A session has a prompt: it is asked again what is still pending and not open there.
    pub(super) fn prompted(&mut self, session: &SessionId) {
        let open = &self.open;
        self.asked.retain(|asked| {
            asked.session != *session || open.values().any(|question| question == asked)
        });
    }

    /// Tells whether a question is not answered yet.
    pub(super) fn is_any_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Returns the line that asks the client in a session.
    pub(super) fn ask(&mut self, request: &Request, session: &SessionId) -> String {
        self.last += 1;
        let question = Question {
            request: request.request_id.clone(),
            session: session.clone(),
        };
        self.open.insert(self.last, question);
        let asks = RequestPermissionRequest::new(session.clone(), shown(request), options(request));
        frames::request(self.last, "session/request_permission", &asks)
    }

    /// Takes the answer to one of these lines; none if it answers none of them.
    pub(super) fn answered(&mut self, id: &FrameId, result: Option<Value>) -> Option<ClientAnswer> {
        let FrameId::Number(number) = id else {
            return None;
        };
        let Question { request, session } = self.open.remove(number)?;
        let answer = result.and_then(answer_of);
        Some(ClientAnswer {
            request,
            session,
            answer,
        })
    }

    /// Returns the lines that withdraw the questions whose request is no longer pending, or whose
    /// session has no prompt any more.
    pub(super) fn withdraw(
        &mut self,
        stays: impl Fn(&RequestId, &SessionId) -> bool,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        self.open.retain(|id, question| {
            let stays = stays(&question.request, &question.session);
            if !stays {
                self.asked.retain(|asked| asked != question);
                let cancel = CancelRequestNotification::new(FrameId::Number(*id));
                lines.push(frames::notification("$/cancel_request", &cancel));
            }
            stays
        });
        lines
    }
}

/// Describes a request as a call that has not begun.
fn shown(request: &Request) -> ToolCallUpdate {
    let title = match &request.payload {
        Payload::Permission { tool, .. } => format!("{} asks: may it use {tool}?", request.from),
        _ => format!("The plan of {}", request.from),
    };
    let kind = match request.kind {
        Kind::PlanApproval => ToolKind::SwitchMode,
        _ => ToolKind::Other,
    };
    let text = escape::text(&request.payload.text()).into_owned();
    let fields = ToolCallUpdateFields::new()
        .title(escape::line(&title).into_owned())
        .kind(kind)
        .status(ToolCallStatus::Pending)
        .content(vec![text_content(&text)]);
    ToolCallUpdate::new(request.request_id.to_string(), fields)
}

fn options(request: &Request) -> Vec<PermissionOption> {
    let approve = PermissionOption::new(APPROVE, "Approve", PermissionOptionKind::AllowOnce);
    let reject = PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce);
    if request.kind == Kind::Permission {
        let name = "Approve, and ask no more";
        let always = PermissionOption::new(ALWAYS, name, PermissionOptionKind::AllowAlways);
        return vec![approve, always, reject];
    }
    vec![approve, reject]
}

fn answer_of(result: Value) -> Option<Answer> {
    let response = RequestPermissionResponse::deserialize(result).ok()?;
    let RequestPermissionOutcome::Selected(selected) = response.outcome else {
        return None;
    };
    let answer = |approve: bool, feedback: &str, permissions: Option<Permissions>| Answer {
        approve,
        feedback: feedback.to_owned(),
        permissions,
        // The protocol has no room for one: an answer that needs it is refused.
        code: None,
        plan_sha256: None,
    };
    match &*selected.option_id.0 {
        APPROVE => Some(answer(true, "", None)),
        ALWAYS => Some(answer(true, "", Some(Permissions::Allow))),
        REJECT => Some(answer(false, WITHOUT_REASON, None)),
        _ => None,
    }
}
