//! The conversation of one agent, live.

use ratatui::Frame;
use ratatui::layout::Rect;
use teamd_client::print::escape;
use teamd_client::print::grouping::Group;
use teamd_client::print::output::paint;
use teamd_client::print::render::{BAD, BOLD, DIM, under};

use super::{Scene, headed, inset, page, say};
use crate::markdown;
use crate::model::{Conversation, Part, Row};
use crate::top::app::App;
use crate::top::pager::Pager;
use crate::top::text::wrapped;

impl App {
    pub(super) fn conversation(&mut self, frame: &mut Frame<'_>, scene: &Scene<'_>, area: Rect) {
        let Some(conversation) = scene.seen.conversation else {
            return say(
                frame,
                area,
                "Select a teammate in the pane Team: its conversation is shown here.",
            );
        };
        let name = &conversation.name;
        if self
            .conversation
            .as_ref()
            .is_none_or(|(shown, _)| shown != name)
        {
            self.conversation = Some((name.clone(), Pager::at_end()));
        }
        let columns = inset(area).width.into();
        let text = text(
            conversation,
            conversation.parts.len(),
            (self.unfolded, columns),
        );
        let Some((_, pager)) = &mut self.conversation else {
            return;
        };
        pager.set(name.as_str(), &text, columns);
        let row = scene.rows.iter().find(|row| row.member.name == *name);
        page(
            frame,
            headed(area),
            &row.map_or_else(|| name.to_string(), title),
            pager,
        );
    }

    /// Draws the end of the conversation beside the list.
    pub(super) fn end_of_conversation(
        &self,
        frame: &mut Frame<'_>,
        conversation: &Conversation<'_>,
        area: Rect,
    ) {
        let area = inset(area);
        let columns = usize::from(area.width);
        let room = usize::from(area.height);
        let lines = wrapped(&text(conversation, room, (false, columns)), columns);
        let last = lines.len().saturating_sub(room);
        frame.render_widget(
            ratatui::text::Text::from_iter(lines.into_iter().skip(last)),
            area,
        );
    }
}

/// Says who an agent is.
pub(crate) fn title(row: &Row<'_>) -> String {
    let member = row.member;
    let gate = if member.gate == teamd_shared::member::Gate::Closed {
        "gate closed"
    } else {
        ""
    };
    let mind = member.mind();
    let task = row
        .task
        .map(teamd_shared::task::Task::title)
        .unwrap_or_default();
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

/// Writes the last parts of a conversation, and the answer in progress.
fn text(
    conversation: &Conversation<'_>,
    last: usize,
    (unfolded, columns): (bool, usize),
) -> String {
    let from = conversation.parts.len().saturating_sub(last);
    let mut text = String::new();
    if from == 0 && conversation.from > 0 {
        text.push_str(&format!("{}\n", paint(DIM, "k shows what was earlier")));
    }
    for placed in &conversation.parts[from..] {
        text.push_str(&write(&placed.part, unfolded, columns));
        text.push('\n');
    }
    if !conversation.live.is_empty() {
        text.push_str(&markdown::render(&conversation.live, columns));
        text.push_str(&paint(DIM, "…"));
    }
    text
}

/// Writes a part of a conversation for so many columns. The results of tools are whole or one line.
pub(crate) fn write(part: &Part, unfolded: bool, columns: usize) -> String {
    let line = |style| paint(style, escape::line(&part.line()));
    match part {
        Part::Said { from, text } => under(
            &format!(
                "{} ",
                paint(BOLD, format_args!("» {}:", escape::line(from)))
            ),
            text,
        ),
        Part::Answer(text) => markdown::render(text, columns).trim_end().to_owned(),
        Part::Result {
            content, is_error, ..
        } if unfolded => under(
            &paint(if *is_error { BAD } else { DIM }, "  ↳ "),
            &format!("{content}\n"),
        ),
        Part::Call(_) => line(Group::Working.style()),
        Part::Failure(_) | Part::Result { is_error: true, .. } => line(BAD),
        Part::Result { .. } | Part::Aside(_) | Part::Detail(_) => line(DIM),
    }
}
