//! What the lead agent asks for: each question is answered once, on the connection that it came
//! over, and what is done for it was asked by a present incarnation.

use teamd_shared::control::Command;
use teamd_shared::journal::Team;
use teamd_shared::member::ApproveBy;
use teamd_shared::name::Name;
use teamd_shared::request::{Payload, Request};

use super::{Checked, Promises, check};
use crate::core::caller::ReplyTo;
use crate::core::incarnation::Incarnation;

/// A connection, and the number of a question on it.
pub(in super::super) type Question = (u64, u32);

/// What became of a question.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    incarnation: Incarnation,
    command: Command,
    stands: Stands,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stands {
    /// It is on its way.
    Said,
    /// The daemon has it.
    TakenUp,
    /// The daemon has answered it.
    Replied,
    /// The answer was heard.
    Heard,
}

impl Promises {
    /// Takes in that a worker asks for something.
    pub(in super::super) fn asks(
        &mut self,
        question: Question,
        incarnation: &Incarnation,
        command: &Command,
    ) {
        let asked = Asked {
            incarnation: incarnation.clone(),
            command: command.clone(),
            stands: Stands::Said,
        };
        self.questions.insert(question, asked);
    }

    /// Takes in that the daemon takes a question up; `present` is the present connection of the
    /// incarnation that asks.
    pub(in super::super) fn takes_up(
        &mut self,
        question: Question,
        present: Option<u64>,
    ) -> Checked {
        check(present == Some(question.0), || {
            format!("{question:?} is taken up from an old connection")
        })?;
        self.moves_on(question, Stands::Said, Stands::TakenUp)
    }

    /// Takes in that the daemon answers a question.
    pub(in super::super) fn replies(&mut self, question: Question) -> Checked {
        self.moves_on(question, Stands::TakenUp, Stands::Replied)
    }

    /// Takes in that a worker hears an answer on a connection.
    pub(in super::super) fn hears(&mut self, question: Question) -> Checked {
        self.moves_on(question, Stands::Replied, Stands::Heard)
    }

    fn moves_on(&mut self, question: Question, from: Stands, to: Stands) -> Checked {
        let Some(asked) = self.questions.get_mut(&question) else {
            return Err(format!(
                "{question:?} becomes {to:?}, and it was not asked there"
            ));
        };
        check(asked.stands == from, || {
            format!("{question:?} is {:?}, and becomes {to:?}", asked.stands)
        })?;
        asked.stands = to;
        Ok(())
    }

    /// Returns the incarnation that asked a question.
    pub(in super::super) fn asker(&self, (connection, tag): Question) -> Option<Incarnation> {
        self.questions
            .get(&(connection, tag))
            .map(|asked| asked.incarnation.clone())
    }

    /// Returns the questions whose answer was not heard.
    pub(in super::super) fn unanswered(
        &self,
    ) -> impl Iterator<Item = (Question, &Incarnation, &Command)> {
        let open = self
            .questions
            .iter()
            .filter(|(_, asked)| asked.stands != Stands::Heard);
        open.map(|(&question, asked)| (question, &asked.incarnation, &asked.command))
    }

    /// Checks that what was decided was asked by a present incarnation, of the lead agent unless
    /// each member may ask for it.
    pub(in super::super) fn done_for(&self, client: ReplyTo, team: &Team) -> Checked {
        if !client.agent {
            return Ok(());
        }
        let Some(asked) = self.questions.get(&(client.connection, client.tag)) else {
            return Ok(());
        };
        let incarnation = &asked.incarnation;
        let is_for_all = matches!(asked.command, Command::Task(_));
        let member = team
            .members
            .get(&incarnation.name)
            .map(|state| &state.record);
        let there =
            member.is_some_and(|it| it.incarnation == incarnation.number && !it.phase.is_ended());
        check(
            (is_for_all || incarnation.name == Name::lead()) && there,
            || {
                format!(
                    "{} {} is heard, and is none that may ask for that",
                    incarnation.name, incarnation.number
                )
            },
        )
    }

    /// Tells whether the lead agent may answer a plan: a person has left those of its author to it,
    /// and it is another's.
    pub(super) fn is_left_to_the_lead(&self, plan: &Request) -> bool {
        if let Payload::Review(review) = &plan.payload {
            return review.by == ApproveBy::Lead;
        }
        let author = self
            .fold
            .members
            .iter()
            .find(|(name, _)| name.as_str() == plan.member());
        author.is_some_and(|(name, state)| {
            state.record.terms.approve_by == ApproveBy::Lead && *name != Name::lead()
        })
    }
}
