//! The conversation of one agent, live.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;

use super::{LARGE, TopScene, say};
use crate::markdown;
use crate::model::FollowedConversation;
use crate::terminal::{Pager, headed, inset, page, title, wrapped, write};
use crate::top::app::App;

/// The columns of the teammates beside a conversation.
const LIST: u16 = 48;

impl App {
    pub(super) fn conversation(
        &mut self,
        frame: &mut Frame<'_>,
        scene: &mut TopScene<'_>,
        area: Rect,
    ) {
        let mut area = area;
        if area.width >= LARGE {
            let [list, gap, text] = Layout::horizontal([
                Constraint::Length(LIST),
                Constraint::Length(1),
                Constraint::Min(10),
            ])
            .areas(area);
            let _: Rect = gap;
            self.members(frame, scene, list);
            area = text;
        }
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
        conversation: &FollowedConversation<'_>,
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

/// Writes the last parts of a conversation, and the answer in progress.
fn text(
    conversation: &FollowedConversation<'_>,
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
