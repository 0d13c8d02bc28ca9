//! What the worker does next, pure: from what it knows (the word, its mail, where its work stands, the time) to
//! one [`Step`]. The session performs the step and says what came of it.
//!
//! It imports no runtime, file system, clock or random source: a time is a [`Duration`] since the session began.
//! What is written into the transcript and said to the daemon is decided here and nowhere else.

mod report;
mod step;

use std::time::Duration;

use teamd_shared::control::{ShutdownWord, Word};
use teamd_shared::id::RequestId;
use teamd_shared::member::Gate;
use teamd_shared::message::{AnsweredBy, IdleReason};
use teamd_shared::request::Status;

pub(crate) use step::{Because, End, Hold, Step, Verdict, Why};

/// How long the decision waits after an answer could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// What the worker knows.
#[derive(Debug, Clone)]
pub(crate) struct State {
    /// How things stand, as the daemon said last.
    word: Word,
    /// The highest word that was acted on.
    acted_on: u64,
    /// The shutdown that nobody has answered yet.
    shutdown: Option<Shutdown>,
    /// The shutdown whose answer the daemon has recorded or refused: an older word may still call it pending.
    settled: Option<RequestId>,
    /// The answer that is on its way to the daemon.
    answer: Option<Answer>,
    /// Whether the daemon has recorded that this life ends.
    let_go: bool,
    /// Whether the model let itself go, with calls in the same answer: they still run.
    keep_calls: bool,
    mail: Mail,
    at: At,
    turns: u32,
    max_turns: u32,
    interrupted: bool,
    end: Option<End>,
    background: bool,
    leaving: bool,
}

/// Where the work stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum At {
    /// There is none.
    Idle,
    /// The model is next; `results`: it is given some.
    Turn {
        /// Whether calls have ended since the model was asked last.
        results: bool,
    },
    /// A model call runs.
    Thinking {
        /// As before it.
        results: bool,
    },
    /// A call of the last answer is next.
    Call,
    /// That call runs, or its answer to a shutdown is on its way.
    Calling {
        /// In a few words.
        activity: String,
        /// Whether an open gate let it through.
        gated: bool,
    },
    /// That call is a plan: it suspends the turn.
    Plan(Plan),
    /// The work has ended, and the lead is to be told.
    Done(IdleReason),
}

/// A plan without a verdict.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plan {
    request_id: RequestId,
    said: Said,
}

/// What the daemon knows of a plan.
#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// Nothing: the background commands must end first.
    Nothing,
    /// Its line was named.
    Named,
    /// It is recorded, and stands so.
    Recorded(Status),
    /// Its id belongs to another request.
    Taken,
    /// It will not be recorded.
    Refused(String),
}

/// What has arrived and is not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mail {
    /// Nothing.
    None,
    /// Nothing that starts a turn.
    News,
    /// Something that does.
    Work,
}

/// A pending shutdown.
#[derive(Debug, Clone)]
struct Shutdown {
    word: ShutdownWord,
    /// When the runtime decides.
    decide_by: Duration,
    /// Whether the model knows.
    shown: bool,
    /// Whether there was unread work when it was asked: that is taken in first.
    owes_mail: bool,
    /// Not before this time: an answer could not be written.
    not_before: Duration,
}

/// The answer to a shutdown.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    /// The shutdown.
    pub(crate) request_id: RequestId,
    /// Yes or no.
    pub(crate) approve: bool,
    /// Who decided.
    pub(crate) by: AnsweredBy,
    /// What the daemon made of it, once it has said so.
    pub(crate) outcome: Option<Outcome>,
}

/// What the daemon made of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// The request stands so; an answer that came second finds the first one here.
    Recorded(Status),
    /// The answer changed nothing.
    Refused(String),
}

/// What the worker begins with.
#[derive(Debug, Clone)]
pub(crate) struct Beginning {
    /// Where the work stood in the transcript.
    pub(crate) at: At,
    /// Model calls of that work.
    pub(crate) turns: u32,
    /// The most that it may have.
    pub(crate) max_turns: u32,
    /// The mail that is there already.
    pub(crate) mail: Mail,
}

impl State {
    /// Begins, with the first word.
    pub(crate) fn new(beginning: Beginning, word: Word, now: Duration) -> Self {
        let mut state = Self {
            word: Word { shutdown: None, let_go: false, ..word.clone() },
            acted_on: 0,
            shutdown: None,
            settled: None,
            answer: None,
            let_go: false,
            keep_calls: false,
            mail: beginning.mail,
            at: beginning.at,
            turns: beginning.turns,
            max_turns: beginning.max_turns,
            interrupted: false,
            end: None,
            background: false,
            leaving: false,
        };
        state.word(word, now);
        state
    }

    /// Returns whether the worker may change anything: the word says so, and no plan of its own is unanswered.
    pub(crate) fn gate(&self) -> Gate {
        if matches!(self.at, At::Plan(_)) { Gate::Closed } else { self.word.gate }
    }

    /// Returns the shutdown that the model may answer.
    pub(crate) fn pending_shutdown(&self) -> Option<&RequestId> {
        self.shutdown.as_ref().map(|shutdown| &shutdown.word.request_id)
    }

    /// Tells whether the model's answer to a shutdown is on its way: that call is neither run nor not run.
    pub(crate) fn is_answering(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.by == AnsweredBy::Model)
    }

    /// Tells whether the background commands have to end.
    pub(crate) fn must_end_background(&self) -> bool {
        self.background && (self.leaving || self.gate() == Gate::Closed)
    }

    // What the outside says.

    /// The daemon says how things stand. The mail was read to its end before.
    pub(crate) fn word(&mut self, word: Word, now: Duration) {
        if word.seq < self.word.seq {
            return;
        }
        let pending = word.shutdown.clone().filter(|pending| Some(&pending.request_id) != self.settled.as_ref());
        self.shutdown = pending.map(|pending| match self.shutdown.take() {
            Some(known) if known.word.request_id == pending.request_id => known,
            _ => Shutdown::begun(pending, now, self.mail),
        });
        if word.let_go {
            self.let_go = true;
            if let Some(answer) = &mut self.answer {
                answer.outcome.get_or_insert(Outcome::Recorded(Status::Approved));
            }
        }
        self.word = word;
        self.act();
    }

    /// The daemon has recorded an answer or a plan.
    pub(crate) fn recorded(&mut self, request_id: &RequestId, status: Status) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.request_id == *request_id) {
            answer.outcome = Some(Outcome::Recorded(status));
        } else if let Some(plan) = self.plan_mut(request_id) {
            plan.said = Said::Recorded(status);
        }
    }

    /// The daemon does not count an answer or a plan; `taken`: its id belongs to another request.
    pub(crate) fn refused(&mut self, request_id: &RequestId, why: String, taken: bool) {
        if let Some(answer) = self.answer.as_mut().filter(|answer| answer.request_id == *request_id) {
            answer.outcome = Some(Outcome::Refused(why));
        } else if let Some(plan) = self.plan_mut(request_id) {
            plan.said = if taken { Said::Taken } else { Said::Refused(why) };
        }
    }

    /// The lead ends the turn. Whoever does not work has none.
    pub(crate) fn interrupt(&mut self) {
        self.interrupted = self.at != At::Idle;
    }

    /// The life ends, whatever anybody says; the first reason counts.
    pub(crate) fn end(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// Mail has arrived.
    pub(crate) fn mail(&mut self, mail: Mail) {
        self.mail = mail;
    }

    /// Background commands run, or none does any more.
    pub(crate) fn background(&mut self, running: bool) {
        self.background = running;
        self.act();
    }

    // What came of the steps.

    /// The mail was taken in; `work`: some of it starts a turn; `rest`: there is more of it, not even looked at.
    pub(crate) fn taken_in(&mut self, work: bool, rest: bool) {
        self.mail = Mail::None;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.owes_mail &= rest;
        }
        if self.at == At::Idle && work {
            self.turns = 0;
            self.at = At::Turn { results: false };
        }
    }

    /// The model was shown the shutdown.
    pub(crate) fn shown(&mut self) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.shown = true;
        }
    }

    /// A model call begins.
    pub(crate) fn thinking(&mut self) {
        let results = matches!(self.at, At::Turn { results: true });
        self.at = At::Thinking { results };
    }

    /// The model call was dropped, as if it had never begun.
    pub(crate) fn dropped(&mut self) {
        let results = matches!(self.at, At::Thinking { results: true });
        self.at = At::Turn { results };
    }

    /// The model answered; without `calls`, the work has ended.
    pub(crate) fn answered(&mut self, calls: bool) {
        self.turns += 1;
        self.at = if calls { At::Call } else { At::Done(IdleReason::Available) };
    }

    /// The model could not answer.
    pub(crate) fn failed(&mut self) {
        self.at = At::Done(IdleReason::Failed);
    }

    /// A call begins; `gated`: an open gate let it through.
    pub(crate) fn calling(&mut self, activity: String, gated: bool) {
        self.at = At::Calling { activity, gated };
    }

    /// A call has its result; `more`: the answer holds more calls.
    pub(crate) fn call_ended(&mut self, more: bool) {
        self.at = if more { At::Call } else { At::Turn { results: true } };
        self.keep_calls &= more;
        self.act();
    }

    /// All calls of the answer have results.
    pub(crate) fn skipped(&mut self) {
        self.answer = None;
        self.call_ended(false);
    }

    /// The model submits a plan: the gate closes.
    pub(crate) fn planning(&mut self, request_id: RequestId) {
        self.at = At::Plan(Plan { request_id, said: Said::Nothing });
        self.act();
    }

    /// The line of the plan is being named.
    pub(crate) fn named(&mut self) {
        if let At::Plan(plan) = &mut self.at {
            plan.said = Said::Named;
        }
    }

    /// An answer to the shutdown is being named.
    pub(crate) fn answering(&mut self, request_id: RequestId, approve: bool, by: AnsweredBy) {
        self.answer = Some(Answer { request_id, approve, by, outcome: None });
    }

    /// The runtime's answer could not be written: the next attempt comes a little later.
    pub(crate) fn answer_failed(&mut self, now: Duration) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.not_before = now + RETRY;
        }
    }

    /// What became of the answer is known to the model.
    pub(crate) fn settled(&mut self) {
        let Some(answer) = self.answer.take() else { return };
        if answer.outcome == Some(Outcome::Recorded(Status::Approved)) {
            self.let_go = true;
            self.keep_calls = answer.by == AnsweredBy::Model;
        }
        if self.pending_shutdown() == Some(&answer.request_id) {
            self.shutdown = None;
        }
        self.settled = Some(answer.request_id);
    }

    /// The lead was told that the work has ended.
    pub(crate) fn finished(&mut self) {
        self.at = At::Idle;
        self.interrupted = false;
    }

    /// The life ends now, but for the background commands.
    pub(crate) fn leaving(&mut self) {
        self.leaving = true;
    }

    /// Tells whether background commands run.
    pub(crate) fn has_background(&self) -> bool {
        self.background
    }

    fn plan_mut(&mut self, request_id: &RequestId) -> Option<&mut Plan> {
        match &mut self.at {
            At::Plan(plan) if plan.request_id == *request_id => Some(plan),
            _ => None,
        }
    }

    /// A word that closes the gate is acted on when nothing runs any more that an open gate let through.
    fn act(&mut self) {
        let changing = self.background || matches!(self.at, At::Calling { gated: true, .. });
        if self.word.gate == Gate::Open || !changing {
            self.acted_on = self.word.seq;
        }
    }
}

impl Shutdown {
    fn begun(word: ShutdownWord, now: Duration, mail: Mail) -> Self {
        // What is no time (negative, not a number) is none; what is no end of time is a long one.
        let within = Duration::try_from_secs_f64(word.decide_within).unwrap_or(match word.decide_within > 0.0 {
            true => Duration::from_secs(u64::from(u32::MAX)),
            false => Duration::ZERO,
        });
        Self { word, decide_by: now.saturating_add(within), shown: false, owes_mail: mail == Mail::Work, not_before: now }
    }
}

#[cfg(test)]
mod tests;
