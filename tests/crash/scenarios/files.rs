//! Another program meddles with the daemon's own files while it runs.

use std::fs;

use crate::stage::{Checked, Stage};

/// The journal is deleted, then replaced, then the roster is deleted: each is put back, and lasts
/// before the daemon goes on.
///
/// It must live meanwhile, since it alone still knows what stood there: only what comes after has
/// points.
pub(super) fn meddle(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("alice", &[])?;
    let journal = stage.team.path("journal.jsonl");
    let roster = stage.team.path("config.json");
    let whole = fs::read(&journal).unwrap();
    let is_back = || fs::read(&journal).is_ok_and(|found| found.starts_with(&whole));
    fs::remove_file(&journal).unwrap();
    stage.until("the journal to be written anew", |_| is_back())?;
    stage.send_plain("alice", "after the journal was deleted", &[])?;
    stage.spawn("bob", &[])?;
    stage.team.write("another", "{}\n");
    fs::rename(stage.team.root().join("another"), &journal).unwrap();
    stage.until("the journal to be put back", |_| is_back())?;
    fs::remove_file(&roster).unwrap();
    stage.until("the roster to be written anew", |_| roster.exists())?;
    stage.want("alice");
    stage.mark();
    stage.spawn("carol", &[])?;
    stage.send("alice", &|attempt| format!("after all.{attempt}"), &[])?;
    stage.until_read("alice")
}
