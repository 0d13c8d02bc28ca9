//! Whether the agent runs, and how far its turn has come.

use std::collections::HashSet;

use teamd_shared::member::Permissions;
use uuid::Uuid;

use super::super::process::AgentProcess;
use super::AgentMessage;

/// Whether the agent runs.
#[derive(Debug)]
pub(super) enum MindState {
    /// There is no process.
    Off(Stopped),
    /// A process runs.
    On(Box<RunningAgent>),
}

/// What the process before has left.
#[derive(Debug, Default)]
pub(super) struct Stopped {
    /// Whether it ended in the middle of a turn.
    pub(super) was_in_turn: bool,
    /// Why the next process begins a new session, although there is one.
    pub(super) restart_reason: Option<String>,
}

/// A process.
#[derive(Debug)]
pub(super) struct RunningAgent {
    pub(super) process: AgentProcess,
    turn: TurnPhase,
    /// The messages that the process got, or that its session held.
    sent: HashSet<Uuid>,
    /// The messages that the process got, and that are in no turn yet. Outside of a turn there are
    /// none.
    undelivered: HashSet<Uuid>,
    /// What the process is to learn first.
    pub(super) resumption: Resumption,
}

/// How far its turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnPhase {
    /// It waits for a message.
    Idle,
    /// A turn runs.
    Runs,
    /// A turn has ended, and another one is to begin with the messages that are undelivered.
    Between,
}

/// What a process has to learn of the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resumption {
    /// Nothing.
    Nothing,
    /// That its turn was broken off.
    BrokenOff {
        /// The message that the session has without an id; the next message gets an id that stands
        /// for both.
        without_id: Option<Uuid>,
    },
    /// That the session is gone, in which it had answered.
    Lost,
}

impl Default for MindState {
    fn default() -> Self {
        Self::Off(Stopped::default())
    }
}

impl MindState {
    pub(super) fn running(&self) -> Option<&RunningAgent> {
        match self {
            Self::On(running) => Some(running),
            Self::Off(_) => None,
        }
    }

    pub(super) fn running_mut(&mut self) -> Option<&mut RunningAgent> {
        match self {
            Self::On(running) => Some(running),
            Self::Off(_) => None,
        }
    }

    /// Ends the process, if there is one.
    pub(super) fn stop(&mut self) {
        if let Self::On(running) = self {
            *self = Self::Off(Stopped {
                was_in_turn: running.is_in_turn(),
                restart_reason: None,
            });
        }
    }

    /// Has the next process begin a new session, if there is none now.
    pub(super) fn begin_new_session(&mut self, why: &str) {
        if let Self::Off(stopped) = self {
            stopped.restart_reason = Some(why.to_owned());
        }
    }

    /// Applies that the turn has ended. It continues as another one if messages are undelivered:
    /// returns whether there is none.
    pub(super) fn end_turn(&mut self) -> bool {
        match self {
            Self::On(running) if !running.undelivered.is_empty() => {
                running.turn = TurnPhase::Between;
                false
            }
            Self::On(running) => {
                running.turn = TurnPhase::Idle;
                true
            }
            Self::Off(stopped) => {
                stopped.was_in_turn = false;
                true
            }
        }
    }
}

impl Resumption {
    /// Applies that the process has learned of it. Returns the message that the session holds
    /// without an id.
    pub(super) fn take_without_id(&mut self) -> Option<Uuid> {
        match std::mem::replace(self, Self::Nothing) {
            Self::BrokenOff { without_id } => without_id,
            Self::Nothing | Self::Lost => None,
        }
    }
}

impl RunningAgent {
    pub(super) fn new(process: AgentProcess, resumption: Resumption) -> Self {
        let sent = process.known.messages.clone();
        Self {
            process,
            turn: TurnPhase::Idle,
            sent,
            undelivered: HashSet::new(),
            resumption,
        }
    }

    pub(super) fn is_in_turn(&self) -> bool {
        self.turn != TurnPhase::Idle
    }

    pub(super) fn is_between(&self) -> bool {
        self.turn == TurnPhase::Between
    }

    /// Returns whether every message is part of a turn.
    pub(super) fn has_delivered_all(&self) -> bool {
        self.undelivered.is_empty()
    }

    pub(super) fn has_sent(&self, message: Uuid) -> bool {
        self.sent.contains(&message)
    }

    /// Applies that a message is part of a turn.
    pub(super) fn delivered(&mut self, message: Uuid) {
        self.undelivered.remove(&message);
        if self.turn == TurnPhase::Between {
            self.turn = TurnPhase::Runs;
        }
    }

    /// Sends a message to the agent: a turn begins with it, or takes it.
    pub(super) fn send(&mut self, message: AgentMessage, permissions: Permissions) {
        let AgentMessage { id, text, .. } = message;
        self.process.send_message(id, text, permissions);
        self.sent.insert(id);
        self.undelivered.insert(id);
        if self.turn == TurnPhase::Idle {
            self.turn = TurnPhase::Runs;
        }
    }
}
