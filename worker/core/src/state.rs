//! What the worker does next, pure: from what it knows (the directive, its mail, the state of its
//! work, the time) to one [`NextStep`]. The session performs the step and reports the result.
//!
//! It imports no runtime, file system, clock or random source: a time is a [`Duration`] since the
//! session began. What is written into the transcript and said to the daemon is decided here and
//! nowhere else.

mod changes;
mod report;
mod step;

use std::collections::BTreeMap;
use std::time::Duration;

use teamd_shared::control::{Directive, PendingShutdown};
use teamd_shared::id::RequestId;
use teamd_shared::member::{Gate, Permissions, Waiting};
use teamd_shared::message::{AnsweredBy, Relevance};
use teamd_shared::price::{Dollars, Price};
use teamd_shared::request::Status;
use teamd_shared::task::TaskId;
use teamd_shared::terms::Total;

use crate::at::{At, Pending};
use crate::submission::{Asks, LeadQuestion};
use crate::work::WorkProgress;

pub use report::waits_for_memory;
pub use step::{IncarnationEnd, NextStep, Why};

/// What the worker knows.
#[derive(Debug, Clone)]
pub struct State {
    /// What its transcript holds of the work.
    pub work: WorkProgress,
    directed: Directed,
    /// The shutdown that is not answered yet.
    shutdown: Option<OpenShutdown>,
    /// The answer that is on its way to the daemon.
    answer: Option<ShutdownAnswer>,
    release: Release,
    arrived: Arrived,
    /// When mail is consumed that starts a turn after a moment.
    take_in_at: Option<Duration>,
    service: ServiceSeen,
    limits: Budget,
    /// The prices of the models that answer in the place of its own, as far as they are known.
    other_prices: BTreeMap<String, Price>,
    interrupted: bool,
    /// Whether work has arrived during a call, and the model was not asked since.
    has_news: bool,
    end: Option<IncarnationEnd>,
    background: bool,
    leaving: bool,
    compaction: Compaction,
}

/// How far the approval of a shutdown is.
#[derive(Debug, Clone, Default)]
struct Release {
    /// Whether the daemon has recorded that this incarnation ends.
    is_recorded: bool,
    /// Whether the model let itself go, with calls in the same answer: they still run.
    keeps_calls: bool,
}

/// What was seen of the service of the model.
#[derive(Debug, Clone, Default)]
struct ServiceSeen {
    /// The pause in the model call that runs.
    pause: Option<Waiting>,
    /// Why it did not serve when a call of it was dropped; none since a call has begun again.
    outage: Option<String>,
}

/// The summary that people ask for.
#[derive(Debug, Clone, Default)]
struct Compaction {
    /// Who waits for it.
    asked: Vec<RequestId>,
    /// Where it is being written, if it is.
    runs: Option<Writing>,
}

/// Where a summary is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// While there is no work.
    AtRest,
    /// Between two steps of the work.
    InWork,
}

/// What the daemon wants of it.
#[derive(Debug, Clone)]
struct Directed {
    /// The last directive.
    directive: Directive,
    /// The highest directive that was applied.
    applied_seq: u64,
    /// How many messages about the gate the daemon has answered.
    settled: u64,
}

/// How often a line is written again that was lost: a program may just have emptied the lead's
/// inbox.
const REWRITES: u32 = 3;

/// What one piece of work may cost, or may still cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Model calls.
    pub turns: u32,
    /// Whether an agent asks the model and continues by itself: then one call more is one too many.
    pub asks_itself: bool,
    /// Tokens, as [`teamd_shared::transcript::Usage::billed`] counts them.
    pub tokens: Option<u64>,
    /// Dollars, and the price of the model. Without a price, all is spent: nothing says how much it
    /// would be.
    pub cost: Option<(Dollars, Option<Price>)>,
    /// What all pieces of work together may cost, at the same price.
    pub total: Total,
}

/// What has arrived and is not consumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrived {
    /// What the most urgent of it is; at least news, as long as the position has to move behind
    /// something.
    pub mail: Relevance,
    /// Whether there is more of it, not even looked at.
    pub rest: bool,
    /// Whether the person says something.
    pub of_person: bool,
    /// What all messages of this incarnation, consumed or not, say about the gate.
    pub closings: Closings,
}

/// What messages say about a gate that the daemon closed: they can arrive before its directive.
/// Each process of this user can forge one, so it holds only until the daemon has been asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Closings {
    /// How many they are.
    pub count: u64,
    /// The last line of the journal that is said to close it.
    pub seq: u64,
}

/// A pending shutdown.
#[derive(Debug, Clone)]
struct OpenShutdown {
    directive: PendingShutdown,
    /// When the runtime decides.
    decide_by: Duration,
    /// Whether the model knows.
    shown: bool,
    /// Whether there was unread work when it was asked, or may have been: that is consumed first.
    mail_first: bool,
    /// Not before this time: an answer could not be written.
    not_before: Duration,
}

/// The answer to a shutdown.
#[derive(Debug, Clone, PartialEq)]
pub struct ShutdownAnswer {
    /// The shutdown.
    pub request_id: RequestId,
    /// Yes or no.
    pub approve: bool,
    /// Who decided.
    pub by: AnsweredBy,
    /// What the daemon made of the model's answer, once that is known: the status of the request
    /// (an answer that came second finds the first one here), or why the answer changed nothing.
    pub outcome: Option<Result<Status, String>>,
}

impl State {
    /// Begins, with what has arrived before the first directive.
    pub fn new(
        work: WorkProgress,
        limits: Budget,
        arrived: Arrived,
        directive: Directive,
        now: Duration,
    ) -> Self {
        let mut state = Self {
            work,
            directed: Directed {
                directive: Directive {
                    shutdown: None,
                    release: false,
                    ..directive.clone()
                },
                applied_seq: 0,
                settled: 0,
            },
            shutdown: None,
            answer: None,
            release: Release::default(),
            arrived,
            take_in_at: None,
            service: ServiceSeen::default(),
            limits,
            other_prices: BTreeMap::new(),
            interrupted: false,
            has_news: false,
            end: None,
            background: false,
            leaving: false,
            compaction: Compaction::default(),
        };
        state.arrived(arrived, now);
        state.directive(directive, now);
        state
    }

    /// Returns whether the worker may change anything: the directive says so, no plan of its own is
    /// unanswered, and no message says that the gate was closed since. So what a model reads of its
    /// gate is true when it reads it, whichever comes first.
    pub fn gate(&self) -> Gate {
        if self.has_plan() {
            Gate::Closed
        } else {
            self.directed_gate()
        }
    }

    /// Tells whether it waits for the verdict on a plan.
    fn has_plan(&self) -> bool {
        self.submission()
            .is_some_and(|submission| matches!(submission.asks, Asks::Plan(_)))
    }

    /// Returns how the permission questions of an agent are answered.
    pub fn permissions(&self) -> Permissions {
        self.directed.directive.permissions
    }

    /// Returns the task for which its work is being checked, if its gate is closed for that alone.
    pub fn checking(&self) -> Option<TaskId> {
        if !self.has_plan() && self.doubts() == 0 {
            self.directed.directive.checking
        } else {
            None
        }
    }

    /// Returns the gate but for a plan of its own that is unanswered.
    pub fn directed_gate(&self) -> Gate {
        if self.doubts() > 0 {
            Gate::Closed
        } else {
            self.directed.directive.gate
        }
    }

    /// Returns [`teamd_shared::control::WorkerState::doubts`].
    fn doubts(&self) -> u64 {
        let Closings { count, seq } = self.arrived.closings;
        if seq > self.directed.directive.seq && count > self.directed.settled {
            count
        } else {
            0
        }
    }

    /// Returns the shutdown that the model may answer.
    pub fn pending_shutdown(&self) -> Option<&RequestId> {
        self.shutdown
            .as_ref()
            .map(|shutdown| &shutdown.directive.request_id)
    }

    /// Tells whether a call that begins now may wait for memory: one that follows on a shutdown does
    /// not, since the end of this incarnation gives memory back.
    pub fn may_wait_for_memory(&self) -> bool {
        self.shutdown.is_none() && !self.release.is_recorded
    }

    /// Tells whether the model's answer to a shutdown is on its way: that call is neither run nor
    /// not run.
    pub fn is_answering(&self) -> bool {
        self.answer
            .as_ref()
            .is_some_and(|answer| answer.by == AnsweredBy::Model)
    }

    /// Tells whether there is no work.
    pub fn is_idle(&self) -> bool {
        self.work.at == At::Idle
    }

    /// Tells whether background commands run.
    pub fn has_background(&self) -> bool {
        self.background
    }

    /// Tells whether the background commands have to end.
    pub fn must_end_background(&self) -> bool {
        self.background && (self.leaving || self.gate() == Gate::Closed)
    }

    /// Tells whether an agent that runs behind a closed gate may write now.
    pub fn may_open_gate(&self) -> bool {
        !self.background && !self.leaving && self.gate() == Gate::Open
    }

    /// Returns what waits for its verdict.
    pub fn submission(&self) -> Option<&LeadQuestion> {
        if let At::Pending(pending) = &self.work.at {
            Some(&pending.submission)
        } else {
            None
        }
    }

    fn pending_mut(&mut self, request_id: &RequestId) -> Option<&mut Pending> {
        match &mut self.work.at {
            At::Pending(pending) if pending.submission.request_id == *request_id => Some(pending),
            _ => None,
        }
    }

    /// A directive that closes the gate is applied when nothing that an open gate let through runs.
    fn act(&mut self) {
        let changing = self.background || matches!(self.work.at, At::Calling { gated: true, .. });
        if self.directed.directive.gate == Gate::Open || !changing {
            self.directed.applied_seq = self.directed.directive.seq;
        }
    }
}

#[cfg(test)]
mod tests;
