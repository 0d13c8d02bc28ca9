//! Messages, and turns with tools.

use crate::stage::{Checked, Stage};

/// Three messages and a broadcast; each one makes its receiver leave a trace.
pub(super) fn send(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    for number in 1..=2 {
        stage.send("alice", &|attempt| format!("/bash echo m{number}.{attempt} >> effects"), &[])?;
    }
    stage.broadcast("to all")?;
    stage.send("alice", &|attempt| format!("last.{attempt}"), &[])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// One piece of work with tools that change something.
pub(super) fn turn(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    let orders = |attempt| {
        format!(
            "/bash echo t1.{attempt} >> effects\n/write_file notes.txt hello\n/send_message bob from alice {attempt}\n\
             /edit_file {{\"path\":\"notes.txt\",\"old_text\":\"hello\",\"new_text\":\"bye\"}}\n\
             /bash echo t2.{attempt} >> effects\nall is done"
        )
    };
    stage.send("alice", &orders, &[])?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}

/// Two messages to all of them.
pub(super) fn broadcast(stage: &mut Stage) -> Checked {
    stage.start()?;
    stage.spawn("bob", &[])?;
    stage.want("alice");
    stage.spawn("alice", &[])?;
    stage.mark();
    stage.broadcast("for all")?;
    stage.broadcast("for all, again")?;
    stage.until_read("alice")?;
    stage.until_read("bob")
}
