//! Who answers a request for a person, as far as the connection tells, and the codes of
//! `approve_code`. What an answer does is decided in the core.

use std::time::Instant;

use teamd_shared::control::{Done, Refusal, RefusalCode, RequestCode};
use teamd_shared::id::RequestId;
use teamd_shared::member::ApproveBy;

use super::EventLoop;
use crate::core::caller::{Actor, Answer, ReplyTo};
use crate::core::event::Event;
use crate::io::approve_codes::Given;

impl EventLoop {
    /// Returns who answers a request on the connection of a command.
    pub(super) fn answerer(&self, connection: u64, request_id: &RequestId) -> Actor {
        let connections = &self.resources.connections;
        if let Some(lead) = connections.lead_above(connection) {
            return Actor::RunByLead(lead.shown());
        }
        let is_led = connections.is_led();
        Actor::PersonAnswers {
            from: is_led.then(|| connections.described(connection)),
            has_code: self.resources.codes.may_answer(connection, request_id),
        }
    }

    /// Returns the codes of what waits for a person, for a view.
    pub(super) fn codes_for(&mut self, connection: u64) -> Answer {
        if let Some(lead) = self.resources.connections.lead_above(connection) {
            let message = format!("a person sees the codes, and {} runs this", lead.shown());
            return Err(Refusal::new(RefusalCode::Rejected, message)
                .hint("open the view in a terminal that it has not opened"));
        }
        if !self.resources.codes.is_on() {
            return Ok(Done::Codes(None));
        }
        let team = &self.dispatcher.team;
        let codes = &mut self.resources.codes;
        codes.retain(|id| team.requests.get(id).is_some_and(|it| it.is_pending()));
        let waits = team.requests.values().filter(|request| {
            let is_judged = request.is_pending() && request.kind.is_judged();
            is_judged && team.judge_of(request) == ApproveBy::Person
        });
        let mut shown = Vec::new();
        for request in waits {
            let request_id = request.request_id.clone();
            let code = codes.of(&request_id);
            shown.extend(code.map(|code| RequestCode { request_id, code }));
        }
        Ok(Done::Codes(Some(shown)))
    }

    /// Takes the code of a request. After the last wrong one, that is shown, and the hook shows the
    /// new one.
    pub(super) fn take_code(
        &mut self,
        client: ReplyTo,
        RequestCode { request_id, code }: &RequestCode,
    ) -> Option<Event> {
        // It would tell a lead which code is right, and close the request for the person.
        if let Some(lead) = self.resources.connections.lead_above(client.connection) {
            let message = format!("a person gives the code, and {} runs this", lead.shown());
            let refusal = Refusal::new(RefusalCode::Rejected, message)
                .hint("answer in a terminal that it has not opened");
            self.resources.connections.reply(client, Err(refusal));
            return None;
        }
        let request = self.dispatcher.team.requests.get(request_id);
        let is_pending = request.is_some_and(|request| request.is_pending());
        // What is not pending needs none: its answer says why.
        let given = if is_pending {
            let codes = &mut self.resources.codes;
            codes.give(client.connection, request_id, code, Instant::now())
        } else {
            Given::Right
        };
        let connections = &mut self.resources.connections;
        match given {
            Given::Right => {
                connections.reply(client, Ok(Done::CodeTaken));
                None
            }
            Given::Refused(refusal) => {
                connections.reply(client, Err(refusal));
                None
            }
            Given::Replaced(refusal) => {
                let from = connections.described(client.connection);
                connections.reply(client, Err(refusal));
                let request = request?;
                self.resources.show_request(&self.dispatcher.team, request);
                let content = format!(
                    "wrong codes were given for the {} {request_id} of {}, last from {from}; it has a new one",
                    request.kind.noun(),
                    request.member()
                );
                Some(Event::WrongCodes { content })
            }
        }
    }
}
