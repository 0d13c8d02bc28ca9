//! What teammates did, as their transcripts and the lead's inbox tell it; and how to hold one in a
//! tool call.

use serde_json::Value;

use super::{Run, Team};

/// A line for the script model: a command that runs until [`Team::release`].
pub(crate) const HELD: &str = "/bash touch held; until [ -e go ]; do sleep 0.01; done";

impl Team {
    /// Waits until a teammate runs [`HELD`].
    pub(crate) fn until_held(&self) {
        self.until("the command to run", || self.root().join("held").exists());
    }

    /// Lets [`HELD`] end.
    pub(crate) fn release(&self) {
        self.write("go", "");
    }

    /// Makes a file in the workspace.
    pub(crate) fn write(&self, path: &str, text: &str) {
        use std::io::Write;
        let path = self.root().join(path);
        std::fs::File::create(&path)
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        self.give(&path);
    }

    /// Puts something odd in the place of a file of the team directory, in one step: what is only
    /// deleted is made again at once.
    pub(crate) fn plant(&self, at: &str, make: impl FnOnce(&std::path::Path)) {
        let planted = self.path("planted");
        make(&planted);
        std::fs::rename(planted, self.path(at)).unwrap();
    }

    /// The text of a file in the workspace; empty if there is none.
    pub(crate) fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap_or_default()
    }

    /// Sends a message with `teamctl`.
    pub(crate) fn send(&self, name: &str, text: &str) -> Run {
        self.teamctl(["send", name, text]).ok()
    }

    /// Runs `teamctl shutdown` for one member and returns its result, whatever the exit code.
    pub(crate) fn shutdown(&self, name: &str, args: &[&str], code: i32) -> Value {
        let all = [&["--json", "shutdown", name], args].concat();
        self.teamctl(all).exits(code).json()["results"][0].clone()
    }

    /// Waits until a shutdown of a member that works is asked and its worker was told; returns the
    /// id.
    pub(crate) fn until_asked(&self, name: &str) -> String {
        let mut asked = None;
        self.until("the request", || {
            asked = self
                .requests("shutdown")
                .into_iter()
                .rfind(|request| request["to"] == name);
            asked.is_some()
        });
        // It joins the request. Its answer comes when all that follows from the request has been
        // said.
        self.teamctl(["shutdown", name, "--no-wait"]).ok();
        asked.unwrap()["request_id"].as_str().unwrap().to_owned()
    }

    /// The entries of a transcript of one kind.
    pub(crate) fn entries(&self, name: &str, kind: &str) -> Vec<Value> {
        self.transcript(name)
            .into_iter()
            .filter(|entry| entry["entry"] == kind)
            .collect()
    }

    /// The messages that a teammate has consumed, in order.
    pub(crate) fn consumed(&self, name: &str) -> Vec<Value> {
        self.entries(name, "messages")
            .into_iter()
            .flat_map(|entry| entry["messages"].as_array().unwrap().clone())
            .collect()
    }

    /// Whether a teammate has consumed a message with this text.
    pub(crate) fn has_consumed(&self, name: &str, content: &str) -> bool {
        self.consumed(name)
            .iter()
            .any(|message| message["content"] == content)
    }

    /// Waits until a teammate has consumed all that stands in its inbox.
    pub(crate) fn until_caught_up(&self, name: &str) {
        let inbox = self.path(&format!("inbox/{name}.jsonl"));
        let transcript = self.path(&format!("transcript/{name}.jsonl"));
        self.until("all mail to be consumed", || {
            let text = std::fs::read_to_string(&transcript).unwrap_or_default();
            let last = text.trim_end().rsplit('\n').next().unwrap_or_default();
            let entry: Value = serde_json::from_str(last).unwrap_or_default();
            entry["inbox"]["offset"].as_u64() == Some(inbox.metadata().unwrap().len())
        });
    }

    /// How often a teammate's model has answered.
    pub(crate) fn answers(&self, name: &str) -> usize {
        self.entries(name, "answer").len()
    }

    /// The results of a teammate's tool calls.
    pub(crate) fn results(&self, name: &str) -> Vec<Value> {
        self.entries(name, "result")
    }

    /// What a teammate told the lead at the end of each piece of work.
    pub(crate) fn notices(&self, name: &str) -> Vec<Value> {
        self.inbox("lead")
            .into_iter()
            .filter(|line| line["type"] == "idle_notification" && line["from"] == name)
            .collect()
    }

    /// Waits until a teammate has ended that many pieces of work.
    pub(crate) fn until_finished(&self, name: &str, count: usize) {
        self.until(&format!("{name} to end {count} pieces of work"), || {
            self.notices(name).len() >= count
        });
    }

    /// Sends orders to an idle teammate, waits until it has carried them out, and returns the
    /// results.
    pub(crate) fn does(&self, name: &str, orders: &str) -> Vec<Value> {
        let notices = self.notices(name).len();
        let before = self.transcript(name).len();
        self.send(name, orders);
        let results = self.until_done(name, orders, before);
        self.until_finished(name, notices + 1);
        results
    }

    /// Waits until a member has ended the piece of work that these orders belong to, and returns
    /// its results since they came; `before` is how many entries its transcript had then.
    pub(crate) fn until_done(&self, name: &str, orders: &str, before: usize) -> Vec<Value> {
        let mut results = Vec::new();
        self.until(&format!("{name} to have done {orders:?}"), || {
            let entries = self.transcript(name).split_off(before);
            let Some(begun) = entries.iter().position(|entry| {
                entry["messages"]
                    .as_array()
                    .is_some_and(|it| it.iter().any(|message| message["content"] == orders))
            }) else {
                return false;
            };
            let done = &entries[begun..];
            let Some(end) = done.iter().position(|entry| entry["entry"] == "idle") else {
                return false;
            };
            results = done[..end]
                .iter()
                .filter(|entry| entry["entry"] == "result")
                .cloned()
                .collect();
            true
        });
        results
    }

    /// The requests of one kind, each as its last line in the journal says, oldest first.
    pub(crate) fn requests(&self, kind: &str) -> Vec<Value> {
        let mut ids: Vec<String> = Vec::new();
        for line in self.journal().into_iter().filter(|line| {
            line["record"] == "request" && line["kind"] == kind && line["event"] == "asked"
        }) {
            let id = line["request_id"].as_str().unwrap().to_owned();
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        ids.iter().map(|id| self.request(id)).collect()
    }

    /// Waits until a teammate's plan is pending, and returns its id.
    pub(crate) fn until_planned(&self, name: &str) -> String {
        self.wait_for(name, "awaiting_approval");
        let plans = self.requests("plan_approval");
        let pending = plans
            .iter()
            .rfind(|plan| plan["from"] == name && plan["status"] == "pending");
        pending.unwrap()["request_id"].as_str().unwrap().to_owned()
    }
}
