//! The calls of handed tools: that the model of an agent makes one, that the agent asks what came
//! of it, and that the session answers. The last two come in either order.

use std::collections::{HashMap, HashSet};

use super::HandedTool;

/// What a call is told that no model has made, or whose outcome was asked for before.
const UNKNOWN: &str = "this call is not known to the team: only your main conversation calls its tools, each call once";

/// The calls without an outcome; `A`: where the agent wants it.
#[derive(Debug)]
pub(super) struct HandedCalls<A> {
    pub(super) tools: Vec<HandedTool>,
    /// What was called and not asked for yet, with what it is told at once, and whether that is an
    /// error.
    called: HashMap<String, Option<(&'static str, bool)>>,
    /// Calls that were told something at once, and have no outcome; and whether one of them was
    /// made in this turn.
    open: HashSet<String>,
    is_waiting: bool,
    asked: HashMap<String, A>,
    /// Outcomes that were not asked for yet.
    early: HashMap<String, (String, bool)>,
}

impl<A> HandedCalls<A> {
    pub(super) fn new(tools: Vec<HandedTool>) -> Self {
        Self {
            tools,
            called: HashMap::new(),
            open: HashSet::new(),
            is_waiting: false,
            asked: HashMap::new(),
            early: HashMap::new(),
        }
    }

    /// Tells whether a tool is a handed one.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|handed| handed.text.name == tool)
    }

    /// Takes in that the model calls a tool; none: it is no handed one. Returns why the call is
    /// refused, if it is.
    pub(super) fn called(&mut self, id: &str, tool: &str) -> Option<Option<&'static str>> {
        let at_once = self
            .tools
            .iter()
            .find(|handed| handed.text.name == tool)?
            .at_once;
        let refused = if self.is_waiting {
            at_once.and_then(|it| it.again)
        } else {
            None
        };
        if at_once.is_some() && refused.is_none() {
            self.is_waiting = true;
            self.open.insert(id.to_owned());
        }
        let told = at_once.map(|it| refused.map_or((it.told, false), |why| (why, true)));
        self.called.insert(id.to_owned(), told);
        Some(refused)
    }

    /// Takes in that the agent asks what came of a call.
    ///
    /// # Errors
    /// What it is told at once, and whether that is an error; else that comes later.
    pub(super) fn asked(&mut self, id: &str, by: A) -> Result<(), (A, String, bool)> {
        match (self.called.remove(id), self.early.remove(id)) {
            (None, _) => Err((by, UNKNOWN.to_owned(), true)),
            (Some(Some((told, is_error))), _) => Err((by, told.to_owned(), is_error)),
            (Some(None), Some((content, is_error))) => Err((by, content, is_error)),
            (Some(None), None) => {
                self.asked.insert(id.to_owned(), by);
                Ok(())
            }
        }
    }

    /// Takes in that the turn has ended.
    pub(super) fn turn_ended(&mut self) {
        self.is_waiting = false;
    }

    /// Takes in what came of a call; returns where the agent wants it, if it has asked.
    pub(super) fn answered(&mut self, id: &str, content: &str, is_error: bool) -> Option<A> {
        let by = self.asked.remove(id);
        if self.open.remove(id) {
            self.is_waiting = false;
        } else if by.is_none() {
            self.early
                .insert(id.to_owned(), (content.to_owned(), is_error));
        }
        by
    }
}
