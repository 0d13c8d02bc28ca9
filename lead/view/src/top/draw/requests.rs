//! The requests that are pending: a list, and the text of the selected one.

use ratatui::Frame;
use ratatui::layout::Rect;
use teamd_client::print::grouping::{Group, headline};
use teamd_client::print::render::{BOLD, DIM, count};
use teamd_client::print::style::paint;
use teamd_client::print::table::width;
use teamd_shared::id::RequestId;
use teamd_shared::request::{Answerer, Request};

use super::{LOW, TopScene, beside, mark, say, with_below};
use crate::model::pending;
use crate::terminal::{cell, headed, inset, page, row, rule, source, title};
use crate::top::app::{App, ClickTarget};
use crate::top::request_text::RequestOnScreen;

/// The most columns that a name has.
const NAME: usize = 16;

impl App {
    pub(super) fn requests(&mut self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        let requests = pending(scene.seen.team, &self.filter);
        if requests.is_empty() {
            let text = if self.filter.is_empty() {
                "No request is pending. A teammate's plan or work waits here for your answer."
            } else {
                "No request is of or to a teammate with that in its name: Esc shows all."
            };
            return say(frame, area, text);
        }
        let [list, text] = if self.reading.is_alone {
            [Rect { height: 0, ..area }, area]
        } else {
            beside(area, requests.len())
        };
        let mut list = list;
        if let Some([lines, below]) = with_below(list, requests.len()) {
            list = lines;
            self.author(frame, scene, below);
        }
        self.request_list(frame, scene, list, &requests);
        let at = self.lists.requests.at().unwrap_or(0);
        if let Some(request) = requests.get(at) {
            self.request_text(frame, text, request);
        }
    }

    /// Draws the list beside a review, of which the request is selected.
    pub(in crate::top) fn requests_beside(
        &mut self,
        frame: &mut Frame<'_>,
        scene: &TopScene<'_>,
        area: Rect,
        shown: &RequestId,
    ) {
        let [heading, list] = headed(area);
        rule(frame, heading, "requests", "");
        let requests = pending(scene.seen.team, "");
        let before = self.lists.requests.selected().cloned();
        self.lists.requests.select(shown);
        let mut list = list;
        if let Some([lines, below]) = with_below(list, requests.len()) {
            list = lines;
            self.author(frame, scene, below);
        }
        self.request_list(frame, scene, list, &requests);
        if let Some(before) = before {
            self.lists.requests.select(&before);
        }
        // A click is for the review.
        self.frame.targets.clear();
    }

    fn request_list(
        &mut self,
        frame: &mut Frame<'_>,
        scene: &TopScene<'_>,
        list: Rect,
        requests: &[&Request],
    ) {
        let room = usize::from(list.height);
        let at = self.lists.requests.at().unwrap_or(0);
        let top = self.lists.requests.scroll(at, requests.len(), room);
        let widest = requests
            .iter()
            .map(|it| width(it.member()))
            .max()
            .unwrap_or(0)
            .min(NAME);
        for (y, request) in (list.y..).zip(requests.iter().skip(top).take(room)) {
            let line = Rect {
                y,
                height: 1,
                ..list
            };
            let is_selected = self.lists.requests.selected() == Some(&request.request_id);
            let age = self.age(request.created_at, scene.now);
            frame.render_widget(
                row(&entry(
                    request,
                    &age,
                    (is_selected, widest),
                    list.width.into(),
                )),
                line,
            );
            self.frame
                .targets
                .push((line, ClickTarget::Request(request.request_id.clone())));
        }
    }

    /// Draws what the author of the selected request has done last.
    fn author(&self, frame: &mut Frame<'_>, scene: &TopScene<'_>, area: Rect) {
        let author = self.agent_of_selected(scene.seen.team);
        let conversation = scene.seen.conversation;
        let Some(conversation) = conversation.filter(|it| author.as_ref() == Some(&it.name)) else {
            return;
        };
        let [heading, rest] = headed(area);
        let row = scene
            .rows
            .iter()
            .find(|row| row.member.name == conversation.name);
        let what = row.map_or_else(|| conversation.name.to_string(), title);
        rule(frame, heading, &what, "");
        self.end_of_conversation(frame, conversation, rest);
    }

    /// Draws the whole text of a request; what a person can answer can be answered from now on.
    pub(super) fn request_text(&mut self, frame: &mut Frame<'_>, area: Rect, request: &Request) {
        let [heading, rest] = if self.reading.is_alone && area.height < LOW {
            [Rect { height: 0, ..area }, area]
        } else {
            headed(area)
        };
        let what = format!(
            "{} {} of {}",
            request.kind.noun(),
            request.request_id,
            request.member()
        );
        let asked = request.payload.text();
        let answer = match request.kind.rules().answered_by {
            Answerer::Lead => match self.codes.of(&request.request_id) {
                Some(code) => format!("\n{}", paint(DIM, format_args!("Code: {code}"))),
                None => String::new(),
            },
            Answerer::Member => {
                format!(
                    "\n{}",
                    paint(DIM, format_args!("Only {} answers this.", request.member()))
                )
            }
        };
        let lines = asked.lines().count();
        let text = source(asked.trim_end()) + &answer;
        self.reading
            .pager
            .set(request.request_id.as_str(), &text, inset(area).width.into());
        page(
            frame,
            [heading, rest],
            &format!("{what}, {}", count(lines, "line")),
            &mut self.reading.pager,
        );
        // Where no line fits, none was shown.
        if rest.height > 0 && request.kind.rules().answered_by == Answerer::Lead {
            self.reading.drawing = Some(RequestOnScreen {
                request_id: request.request_id.clone(),
                what,
            });
        }
    }
}

fn entry(
    request: &Request,
    age: &str,
    (is_selected, name): (bool, usize),
    columns: usize,
) -> String {
    let style = match request.kind.rules().answered_by {
        Answerer::Lead => Group::NeedsYou.style(),
        Answerer::Member => DIM,
    };
    let front = format!(
        "{} {} {} {} {:>4}  ",
        mark(is_selected),
        cell(BOLD, request.member(), name),
        cell(style, request.kind.noun(), 10),
        cell(DIM, &request.request_id, 8),
        age
    );
    let room = columns.saturating_sub(width(&front) + 1);
    front
        + &cell(
            anstyle::Style::new(),
            headline(&request.payload.text()),
            room,
        )
}
