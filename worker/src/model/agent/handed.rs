//! The calls of handed tools: that the model of an agent makes one, that the agent asks what came of it, and that the session answers.
//! The last two come in either order.

use std::collections::HashMap;

use super::HandedTool;

/// What a call is told that no model has made, or whose outcome was asked for before.
const UNKNOWN: &str =
    "this call is not known to the team: only your main conversation calls its tools, each call once";

/// The calls without an outcome; `A`: where the agent wants it.
#[derive(Debug)]
pub(super) struct HandedCalls<A> {
    pub(super) tools: Vec<HandedTool>,
    /// What was called and not asked for yet, with what it is told at once.
    called: HashMap<String, Option<&'static str>>,
    asked: HashMap<String, A>,
    /// Outcomes that were not asked for yet.
    early: HashMap<String, (String, bool)>,
}

impl<A> HandedCalls<A> {
    pub(super) fn new(tools: Vec<HandedTool>) -> Self {
        Self { tools, called: HashMap::new(), asked: HashMap::new(), early: HashMap::new() }
    }

    /// Tells whether a tool is a handed one.
    pub(super) fn has(&self, tool: &str) -> bool {
        self.tools.iter().any(|handed| handed.text.name == tool)
    }

    /// Takes in that the model calls a tool; tells whether it is a handed one.
    pub(super) fn called(&mut self, id: &str, tool: &str) -> bool {
        let Some(tool) = self.tools.iter().find(|handed| handed.text.name == tool) else { return false };
        self.called.insert(id.to_owned(), tool.at_once);
        true
    }

    /// Takes in that the agent asks what came of a call.
    ///
    /// # Errors
    /// What it is told at once, and whether that is an error; else that comes later.
    pub(super) fn asked(&mut self, id: &str, by: A) -> Result<(), (A, String, bool)> {
        match (self.called.remove(id), self.early.remove(id)) {
            (None, _) => Err((by, UNKNOWN.to_owned(), true)),
            (Some(Some(at_once)), _) => Err((by, at_once.to_owned(), false)),
            (Some(None), Some((content, is_error))) => Err((by, content, is_error)),
            (Some(None), None) => {
                self.asked.insert(id.to_owned(), by);
                Ok(())
            }
        }
    }

    /// Takes in what came of a call; returns where the agent wants it, if it has asked.
    pub(super) fn answered(&mut self, id: &str, content: &str, is_error: bool) -> Option<A> {
        let by = self.asked.remove(id);
        if by.is_none() {
            self.early.insert(id.to_owned(), (content.to_owned(), is_error));
        }
        by
    }
}
