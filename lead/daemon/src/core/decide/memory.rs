//! What a team is to remember: members propose it, and only a person accepts it.

use teamd_shared::control::{Done, Refusal, RefusalCode};
use teamd_shared::id::{Ids, RequestId};
use teamd_shared::journal::{MAX_MEMORY, Notice, RequestEvent};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use teamd_shared::visible::is_hidden;

use super::{Decision, DecisionView, conflict};
use crate::core::caller::{Actor, ReplyTo};
use crate::core::directive::remembers;
use crate::core::event::Action;

/// How long a proposal may be, in bytes: several must fit into the memory.
const LONGEST: usize = 1000;

/// How many proposals of a member may wait for their answers.
const MOST_WAITING: usize = 10;

impl DecisionView<'_> {
    /// Records what a member proposes. One of the same text is joined: a call is repeated when its
    /// worker was killed.
    pub(super) fn remember(
        &self,
        client: ReplyTo,
        by: &Actor,
        (id, text): (&RequestId, &str),
        ids: &mut dyn Ids,
    ) -> Result<Decision, Refusal> {
        let Actor::Member(name) = by else {
            return Err(conflict(
                "only a member of the team proposes what is remembered",
                "tell a teammate to call its tool `remember`",
            ));
        };
        let text = text.trim();
        let member = self.running(name)?;
        if !remembers(&member.terms) {
            return Err(conflict(
                format!("{name} remembers nothing"),
                "`groups = [\"memory\"]` in `[tools]` of team.toml switches it on for the next spawn",
            ));
        }
        if text.is_empty() || text.len() > LONGEST {
            let message = format!(
                "the text has {} bytes, and 1 to {LONGEST} are possible",
                text.len()
            );
            return Err(Refusal::new(RefusalCode::Usage, message)
                .hint("propose one thing, in a few lines; long texts belong into a file"));
        }
        let is_shown = |c: char| matches!(c, '\n' | '\t') || !is_hidden(c);
        if !text.chars().all(is_shown) {
            let message = "the text has control or hidden characters";
            return Err(Refusal::new(RefusalCode::Usage, message).hint("leave them out"));
        }
        let own = self.team.requests.values();
        let own: Vec<&Request> = own
            .filter(|it| it.kind == Kind::Memory && it.from == name.as_str())
            .filter(|it| matches!(it.status, Status::Pending | Status::Approved))
            .collect();
        if let Some(same) = own.iter().find(|it| it.payload.text() == text) {
            return Ok(asked(client, &same.request_id, Decision::default()));
        }
        if self.team.requests.contains_key(id) {
            return Err(conflict(format!("the id {id} is taken"), "try again"));
        }
        if own.iter().filter(|it| it.is_pending()).count() >= MOST_WAITING {
            return Err(conflict(
                format!("{MOST_WAITING} proposals of {name} wait for a person"),
                "go on with your work; propose more when they are answered",
            ));
        }
        let payload = Payload::Memory {
            remember: text.to_owned(),
        };
        let message_id = ids.message();
        let of = (&member.name, member.incarnation);
        let request = self.pending(id.clone(), of, payload, message_id);
        let tell = vec![Notice {
            to: Name::lead(),
            id: message_id,
        }];
        let decision = Decision::default().request(RequestEvent::Asked, request, tell);
        Ok(asked(client, id, self.fits(decision)?))
    }

    /// Refuses to accept what would make the memory too long.
    pub(super) fn fits_into_memory(&self, request: &Request) -> Result<(), Refusal> {
        let length = self.team.memory_with(request);
        if request.kind != Kind::Memory || !request.is_pending() || length <= MAX_MEMORY {
            return Ok(());
        }
        Err(conflict(
            format!("the memory would have {length} bytes, and {MAX_MEMORY} are possible"),
            "`teamctl memory` shows it, and `teamctl memory forget ID` makes room",
        ))
    }

    /// Takes back what a person had accepted.
    pub(super) fn forget_memory(
        &self,
        client: ReplyTo,
        request_id: &RequestId,
    ) -> Result<Decision, Refusal> {
        let request = self.team.requests.get(request_id);
        let Some(request) = request.filter(|it| it.kind == Kind::Memory) else {
            let message = format!("nothing is remembered by the id {request_id}");
            return Err(
                Refusal::new(RefusalCode::NotFound, message).hint("`teamctl memory` shows the ids")
            );
        };
        let repeated = request.status == Status::Expired;
        let done = Action::Reply(client, Ok(Done::Answered { repeated }));
        if repeated {
            return Ok(Decision::default().act(done));
        }
        if request.status != Status::Approved {
            return Err(conflict(
                format!("{request_id} is {}", request.status.as_str()),
                format!("`teamctl reject {request_id}` answers what is pending"),
            ));
        }
        let forgotten = Request {
            status: Status::Expired,
            resolved_at: Some(self.now.wall),
            reason: Some("a person had it forgotten".to_owned()),
            ..request.clone()
        };
        let decision = Decision::default();
        let decision = decision.request(RequestEvent::Expired, forgotten, Vec::new());
        Ok(decision.act(done))
    }
}

fn asked(client: ReplyTo, id: &RequestId, decision: Decision) -> Decision {
    let request_id = id.clone();
    decision.act(Action::Reply(client, Ok(Done::Asked { request_id })))
}
