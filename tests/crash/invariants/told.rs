//! What users are told: an exit code of the table, an error with a next step, never a panic.

use crate::scenarios::thinking::ends_in_background;
use crate::stage::{Checked, Stage, hold};
use crate::support::Run;
use crate::truth::Truth;

const CODES: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 130];

/// Checks what a command said; `killed`: the fault may have ended it.
pub(crate) fn check(args: &[&str], said: &Run, killed: bool) -> Checked {
    hold(!said.stderr.contains("panicked"), || {
        format!("`{args:?}` panicked: {}", said.stderr)
    })?;
    let Some(code) = said.code else {
        return hold(killed, || format!("`{args:?}` was killed by a signal"));
    };
    if code == 0 {
        return hold(!said.stderr.contains("error: "), || {
            format!("`{args:?}` ended with 0: {said:?}")
        });
    }
    hold(CODES.contains(&code), || {
        format!("`{args:?}` ended with {code}: {said:?}")
    })?;
    // The results of several names are rows of a table, and the code ranks them.
    let has_row = !said.stdout.is_empty() && args.first() == Some(&"shutdown");
    let explained = said.stderr.contains("error") && said.stderr.contains("hint");
    hold(explained || has_row, || {
        format!("`{args:?}` ended with {code} without a word of what to do: {said:?}")
    })
}

/// What was done already when a command was refused something has not failed. `before` is the
/// incarnation before it.
pub(crate) fn check_done(then: &Truth, args: &[&str], said: &Run, before: i64) -> Checked {
    let done = match args {
        ["shutdown", name, options @ ..] => !options.contains(&"--no-wait") && then.has_left(name),
        ["spawn", name, ..] => then.is_up(name, before),
        _ => false,
    };
    hold(!done || said.code != Some(1), || {
        format!("`{args:?}` was done already, and ended with 1: {said:?}")
    })
}

/// A sender whose message was appended is not told to try again, or that it was not sent: it would
/// be sent twice.
pub(crate) fn check_sent(stage: &Stage, args: &[&str], said: &Run) -> Checked {
    let (&["send", _, text, ..] | &["broadcast", text, ..]) = args else {
        return Ok(());
    };
    let sent_to = ["alice", "bob"].into_iter().find(|name| {
        stage
            .team
            .inbox(name)
            .iter()
            .any(|line| line["content"] == text)
    });
    hold(
        sent_to.is_none() || !is_to_be_repeated(&said.stderr),
        || format!("`{args:?}` is in the inbox of {sent_to:?}, and is to be tried again: {said:?}"),
    )
}

fn is_to_be_repeated(told: &str) -> bool {
    // A hint to look first, or not to send again at all, is right.
    let sound = ["before you send it again", "do not send it again"];
    let rest = sound
        .iter()
        .fold(told.to_owned(), |rest, sound| rest.replace(sound, ""));
    ["try again", "send it again"]
        .iter()
        .any(|wrong| rest.contains(wrong))
}

/// No program panicked, in the background either.
pub(super) fn check_logs(stage: &Stage) -> Checked {
    let mut text = stage.victim_log();
    for entry in std::fs::read_dir(stage.team.path("log"))
        .into_iter()
        .flatten()
        .flatten()
    {
        text.push_str(&String::from_utf8_lossy(
            &std::fs::read(entry.path()).unwrap_or_default(),
        ));
    }
    let panics: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("panicked"))
        .collect();
    hold(panics.is_empty(), || {
        format!("a program panicked: {panics:?}")
    })?;
    let internal: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("internal error"))
        .collect();
    hold(internal.is_empty() || stage.is_refused_something(), || {
        format!("a program doubts itself: {internal:?}")
    })
}

/// Only what lasts was told.
pub(super) fn check_order(stage: &Stage) -> Checked {
    let wrong = stage.tracer.look().wrong;
    hold(wrong.is_none(), || format!("too early: {wrong:?}"))
}

/// How a command in the background has ended is told once.
pub(super) fn check_background(stage: &Stage, name: &str) -> Checked {
    let mut ends = ends_in_background(stage, name);
    ends.sort();
    let twice = ends.windows(2).find(|pair| pair[0] == pair[1]);
    hold(twice.is_none(), || {
        format!("{name} was told twice how a command in the background has ended: {ends:?}")
    })
}
