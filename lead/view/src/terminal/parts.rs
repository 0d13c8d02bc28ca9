//! Who an agent is, and the parts of its conversation, as text.

use teamd_client::print::escape;
use teamd_client::print::grouping::Group;
use teamd_client::print::render::{BAD, BOLD, DIM, under};
use teamd_client::print::style::paint;
use teamd_shared::member::Gate;
use teamd_shared::task::Task;

use crate::markdown;
use crate::model::{ConversationPart, MemberRow};

/// Says who an agent is.
pub(crate) fn title(row: &MemberRow<'_>) -> String {
    let member = row.member;
    let gate = if member.gate == Gate::Closed {
        "gate closed"
    } else {
        ""
    };
    let mind = member.mind();
    let task = row.task.map(Task::title).unwrap_or_default();
    let parts = [
        member.name.as_str(),
        &member.role,
        &mind,
        row.standing.word,
        gate,
        &task,
    ];
    parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" · ")
}

/// Writes a part of a conversation for so many columns. The results of tools are whole or one line.
pub(crate) fn write(part: &ConversationPart, unfolded: bool, columns: usize) -> String {
    let line = |style| paint(style, escape::line(&part.line()));
    match part {
        ConversationPart::Said { from, text } => under(
            &format!(
                "{} ",
                paint(BOLD, format_args!("» {}:", escape::line(from)))
            ),
            text,
        ),
        ConversationPart::Answer(text) => markdown::render(text, columns).trim_end().to_owned(),
        ConversationPart::Result {
            content, is_error, ..
        } if unfolded => under(
            &paint(if *is_error { BAD } else { DIM }, "  ↳ "),
            &format!("{content}\n"),
        ),
        ConversationPart::Call(_) => line(Group::Working.style()),
        ConversationPart::Failure(_) | ConversationPart::Result { is_error: true, .. } => line(BAD),
        ConversationPart::Result { .. }
        | ConversationPart::Aside(_)
        | ConversationPart::Detail(_) => line(DIM),
    }
}
