//! What happened, newest last.

use ratatui::Frame;
use ratatui::layout::Rect;
use teamd_client::print::grouping::{Group, headline};
use teamd_client::print::render::{BAD, BOLD, DIM, under};
use teamd_client::print::style::paint;
use teamd_client::print::table::{cut, width};
use teamd_client::print::{clock, escape};

use super::{TopScene, mark, say, with_detail};
use crate::model::{FeedStep, Item, RequestStage, line_and_more};
use crate::terminal::{cell, headed, inset, page, row};
use crate::top::app::{App, ClickTarget, Pane};

/// The columns of sender and receiver.
const PARTIES: usize = 20;

impl App {
    pub(super) fn feed(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        let keys = self.lists.items.keys();
        if keys.is_empty() {
            let text = if self.filter.is_empty() {
                "Nothing has happened yet."
            } else {
                "Nothing that happened has that in it: Esc shows all."
            };
            return say(frame, area, text);
        }
        let count = keys.len();
        let mut area = area;
        if self.pane == Pane::Feed
            && let Some([list, detail]) = with_detail(area)
        {
            area = list;
            self.selected_item(frame, scene.seen.feed.items(), detail);
        }
        let room = usize::from(area.height);
        let top = self
            .lists
            .items
            .scroll(self.lists.items.at().unwrap_or(0), count, room);
        let shown: Vec<u64> = self
            .lists
            .items
            .keys()
            .iter()
            .skip(top)
            .take(room)
            .copied()
            .collect();
        let first = shown.first().copied().unwrap_or(0);
        // The items and the keys have the same order.
        let from = scene
            .seen
            .feed
            .items()
            .iter()
            .position(|item| item.key == first)
            .unwrap_or(0);
        let wanted = scene.seen.feed.items()[from..]
            .iter()
            .filter(|item| shown.contains(&item.key));
        for (y, item) in (area.y..area.bottom()).zip(wanted) {
            let line = Rect {
                y,
                height: 1,
                ..area
            };
            let is_selected =
                self.pane == Pane::Feed && self.lists.items.selected() == Some(&item.key);
            frame.render_widget(row(&entry(item, is_selected, area.width.into())), line);
            self.frame.targets.push((line, ClickTarget::Item(item.key)));
        }
    }

    /// Draws the selected item whole.
    fn selected_item(&mut self, frame: &mut Frame<'_>, items: &[Item], area: Rect) {
        let Some(item) = self.item(items) else {
            return;
        };
        let of = format!("item {}", item.key);
        let columns = inset(area).width.into();
        self.detail.set(&of, &text(item), columns);
        page(frame, headed(area), &item_title(item), &mut self.detail);
    }

    /// Shows the selected item whole: the frame that follows has its text.
    pub(in crate::top) fn open_item(&mut self, items: &[Item]) {
        if let Some(item) = self.item(items) {
            self.open(item_title(item), text(item));
        }
    }

    /// Returns the selected item.
    fn item<'i>(&self, items: &'i [Item]) -> Option<&'i Item> {
        let selected = self.lists.items.selected()?;
        items.iter().find(|item| item.key == *selected)
    }
}

fn item_title(item: &Item) -> String {
    let first = item.steps.first();
    match first.and_then(|step| Some((step, &step.request.as_ref()?.0))) {
        Some((step, id)) => format!("{} {id}", step.what),
        None => "feed".to_owned(),
    }
}

fn text(item: &Item) -> String {
    item.steps.iter().map(|step| whole(step) + "\n\n").collect()
}

fn entry(item: &Item, is_selected: bool, columns: usize) -> String {
    let Some(last) = item.steps.last() else {
        return String::new();
    };
    let first = item.steps.first().unwrap_or(last);
    let time = paint(DIM, clock::time_of_day(item.at()));
    let what = match &first.request {
        Some((id, _)) => {
            let stages: Vec<&str> = item
                .steps
                .iter()
                .filter_map(|step| Some(step.request.as_ref()?.1.word()))
                .collect();
            format!("{} {id} {}", escape::line(&first.what), stages.join(" → "))
        }
        None => escape::line(&first.what).into_owned(),
    };
    // A decision about one member names it.
    let names_it = first.to.is_empty() && first.seq.is_some();
    let parties = if names_it {
        String::new()
    } else {
        format!("{} ", cell(BOLD, parties(first), PARTIES))
    };
    let says = item
        .steps
        .iter()
        .rev()
        .map(|step| step.text.as_str())
        .find(|text| !text.trim().is_empty());
    let gap = if what.is_empty() || says.is_none() {
        ""
    } else {
        "  "
    };
    let front = format!("{}{time} {parties}", mark(is_selected));
    let what = cut(&what, Some(columns.saturating_sub(width(&front))));
    let front = format!("{front}{}{gap}", paint(style(last), what));
    let room = columns.saturating_sub(width(&front));
    let text = says.map(|text| {
        if first.request.is_some() {
            headline(text)
        } else {
            line_and_more(text)
        }
    });
    front + &cell(anstyle::Style::new(), text.unwrap_or_default(), room)
}

fn parties(step: &FeedStep) -> String {
    if step.to.is_empty() {
        step.from.clone()
    } else {
        format!("{} → {}", step.from, step.to)
    }
}

fn style(step: &FeedStep) -> anstyle::Style {
    match &step.request {
        _ if step.is_trouble => BAD,
        None => DIM,
        Some((_, RequestStage::Asked | RequestStage::Joined)) => Group::NeedsYou.style(),
        Some((_, RequestStage::Approved | RequestStage::Ended)) => Group::Idle.style(),
        Some((_, RequestStage::Rejected)) => BAD,
        Some((_, RequestStage::Expired)) => DIM,
    }
}

fn whole(step: &FeedStep) -> String {
    let id = step.request.as_ref().map(|(id, _)| id);
    let stage = id
        .zip(step.stage_word())
        .map(|(id, stage)| format!(" {id} {stage}"))
        .unwrap_or_default();
    let time = paint(DIM, clock::time_of_day(step.at));
    let heading = format!("{time} {}  ", paint(BOLD, escape::line(&parties(step))));
    let what = format!("{}{stage}", escape::line(&step.what));
    under(
        &format!("{heading}{}\n", paint(style(step), what)),
        &format!("{}\n", step.text),
    )
}
