//! What was done and what was promised, as the actor that did it saw it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

/// A numbered message.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    pub(crate) to: String,
    /// The sender whose number it is: it waits for the end of one before it sends the next.
    pub(crate) sender: &'static str,
    pub(crate) number: u64,
    /// Whether the sender was told that it is there.
    pub(crate) acknowledged: bool,
    /// It was written by a shell, which does not look back: what it is glued to may be rejected
    /// with it.
    pub(crate) foreign: bool,
}

impl Sent {
    /// The text that no other message holds.
    pub(crate) fn mark(&self) -> String {
        format!("{}-{:07}.", self.sender, self.number)
    }
}

#[derive(Default)]
struct Command {
    codes: BTreeMap<i32, u64>,
    longest: Duration,
}

#[derive(Default)]
struct Books {
    sent: Vec<Sent>,
    /// The plans that an actor has set about to approve.
    approved: BTreeSet<String>,
    commands: BTreeMap<String, Command>,
    counts: BTreeMap<&'static str, u64>,
    violations: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Ledger(Mutex<Books>);

impl Ledger {
    pub(crate) fn sent(&self, sent: Sent) {
        self.0.lock().unwrap().sent.push(sent);
    }

    pub(crate) fn all_sent(&self) -> Vec<Sent> {
        self.0.lock().unwrap().sent.clone()
    }

    /// Notes, before it is said, that an actor approves a plan: whether it was heard may stay
    /// unknown.
    pub(crate) fn approves(&self, request_id: &str) {
        self.0
            .lock()
            .unwrap()
            .approved
            .insert(request_id.to_owned());
    }

    pub(crate) fn has_approved(&self, request_id: &str) -> bool {
        self.0.lock().unwrap().approved.contains(request_id)
    }

    pub(crate) fn ran(&self, program: &str, args: &[&str], code: Option<i32>, took: Duration) {
        let flags = args
            .iter()
            .filter(|arg| arg.starts_with("--") && **arg != "--json");
        let flags: String = flags.map(|flag| format!(" {flag}")).collect();
        let verb = args
            .iter()
            .find(|arg| !arg.starts_with("--"))
            .unwrap_or(&"");
        let name = format!("{program} {verb}{flags}");
        let mut books = self.0.lock().unwrap();
        let command = books.commands.entry(name).or_default();
        *command.codes.entry(code.unwrap_or(-1)).or_default() += 1;
        command.longest = command.longest.max(took);
    }

    pub(crate) fn count(&self, what: &'static str) {
        *self.0.lock().unwrap().counts.entry(what).or_default() += 1;
    }

    pub(crate) fn violation(&self, what: String) {
        println!("VIOLATION: {what}");
        self.0.lock().unwrap().violations.push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.lock().unwrap().violations.clone()
    }

    /// Everything in a table: commands by exit code, and what was done to the processes.
    pub(crate) fn table(&self) -> String {
        let books = self.0.lock().unwrap();
        let mut table = String::from("\n| command | exit codes | longest |\n|---|---|---|\n");
        for (name, command) in &books.commands {
            let codes: Vec<String> = command
                .codes
                .iter()
                .map(|(code, count)| format!("{code}: {count}"))
                .collect();
            writeln!(
                table,
                "| {name} | {} | {:.2?} |",
                codes.join(", "),
                command.longest
            )
            .unwrap();
        }
        table.push_str("\n| what | how often |\n|---|---|\n");
        for (what, count) in &books.counts {
            writeln!(table, "| {what} | {count} |").unwrap();
        }
        let acknowledged = books.sent.iter().filter(|sent| sent.acknowledged).count();
        writeln!(
            table,
            "| messages sent | {} |\n| of them acknowledged | {acknowledged} |",
            books.sent.len()
        )
        .unwrap();
        table
    }
}
