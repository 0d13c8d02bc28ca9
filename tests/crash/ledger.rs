//! What the user did, and what the programs told: the invariants compare the files with it.

/// A message that the user has sent, or tried to.
#[derive(Debug, Clone)]
pub(crate) struct Sent {
    /// The receiver.
    pub(crate) to: String,
    /// Its text, which no other message has.
    pub(crate) text: String,
    /// Whether the command ended with 0.
    pub(crate) told: bool,
}

/// All that the user did.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger {
    /// The messages, in the order in which they were sent.
    pub(crate) sent: Vec<Sent>,
    /// The plans for which `approve` was run, and whether it ended with 0.
    pub(crate) approved: Vec<(String, bool)>,
    /// The plans for which `reject` was run, and whether it ended with 0.
    pub(crate) rejected: Vec<(String, bool)>,
    /// The teammates that the user wanted to leave, by `shutdown` or `stop`. No other may.
    pub(crate) asked_to_leave: Vec<String>,
    /// The members whose model rejects the first shutdown that it is asked about.
    pub(crate) refuses: Vec<String>,
    /// The members that the user shut down with `--force`.
    pub(crate) forced: Vec<String>,
    /// Each command, and how it ended.
    pub(crate) commands: Vec<String>,
    /// What all commands and daemons said on standard error.
    pub(crate) stderr: String,
}
