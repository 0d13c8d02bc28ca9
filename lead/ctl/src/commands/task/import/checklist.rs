//! The items of a Markdown checklist: those with an open box become tasks. Pure.
//!
//! The Markdown parser decides what is an item, and what is code, a comment or text. The lines of a
//! task stay as they are written.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use teamd_shared::task::{TaskFields, TaskId};

use super::ImportItem;

/// How many columns a tab reaches at most.
const TAB: usize = 4;

/// How many lines or groups of lines of one kind are named that become no task.
const NAMED: usize = 10;

/// What a line belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ItemPart {
    /// The item with this place in [`ChecklistReader::entries`].
    Item(usize),
    /// What becomes no task, by its kind.
    Other(&'static str),
}

const TEXT: ItemPart = ItemPart::Other("text");
const NO_BOX: &str = "without a box";
const TICKED: &str = "ticked off";

/// An item of a list, with or without a box.
#[derive(Debug)]
struct ChecklistEntry {
    parent: Option<usize>,
    /// Whether its box is ticked; none: it has no box.
    ticked: Option<bool>,
    subject: String,
    /// The line of its box, if it has one, from 0.
    line: usize,
}

struct ChecklistReader<'c> {
    content: &'c str,
    /// Where each line begins.
    begins: Vec<usize>,
    /// What each line belongs to. An inner item takes its lines from the outer one.
    parts: Vec<ItemPart>,
    entries: Vec<ChecklistEntry>,
    /// The items around what is read, from the outermost.
    open: Vec<usize>,
}

/// Reads the items of a checklist. What is below an item and is no task itself belongs to its
/// description. Returns also which lines became no task, if there are such.
///
/// # Errors
/// If there is no open item.
pub(super) fn read(content: &str) -> Result<(Vec<ImportItem>, Option<String>), String> {
    // The parser recognizes a box without text only by what follows it.
    let content = format!("{content}\n");
    let mut reader = ChecklistReader::new(&content);
    let options = Options::ENABLE_TASKLISTS
        | Options::ENABLE_TABLES
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    for (event, range) in Parser::new_ext(&content, options).into_offset_iter() {
        reader.take(&event, range);
    }
    let items = reader.items()?;
    if !items.is_empty() {
        return Ok((items, reader.passed_over()));
    }
    if reader.entries.iter().any(|entry| entry.ticked.is_some()) {
        return Err("every item is ticked off: nothing is left to do".to_owned());
    }
    Err(
        "line 1: this is no checklist (`- [ ] subject`), TOML (`[[task]]`) or JSON array"
            .to_owned(),
    )
}

impl<'c> ChecklistReader<'c> {
    fn new(content: &'c str) -> Self {
        let ends = content.match_indices('\n').map(|(at, _)| at + 1);
        let begins: Vec<usize> = std::iter::once(0).chain(ends).collect();
        let parts = vec![TEXT; begins.len()];
        Self {
            content,
            begins,
            parts,
            entries: Vec::new(),
            open: Vec::new(),
        }
    }

    fn take(&mut self, event: &Event<'_>, range: Range<usize>) {
        match event {
            Event::Start(Tag::Item) => {
                self.mark(range, ItemPart::Item(self.entries.len()));
                let parent = self.open.last().copied();
                self.open.push(self.entries.len());
                self.entries.push(ChecklistEntry {
                    parent,
                    ticked: None,
                    subject: String::new(),
                    line: 0,
                });
            }
            Event::End(TagEnd::Item) => {
                self.open.pop();
            }
            Event::TaskListMarker(ticked) => {
                let line = self.line_of(range.start);
                let subject = self.content[range.end..]
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .trim();
                if let Some(entry) = self.open.last().and_then(|&at| self.entries.get_mut(at)) {
                    entry.ticked = Some(*ticked);
                    entry.line = line;
                    subject.clone_into(&mut entry.subject);
                }
            }
            Event::Start(tag) if self.open.is_empty() => {
                if let Some(kind) = kind_of(tag) {
                    self.mark(range, ItemPart::Other(kind));
                }
            }
            _ => {}
        }
    }

    fn line_of(&self, at: usize) -> usize {
        self.begins
            .partition_point(|&begin| begin <= at)
            .saturating_sub(1)
    }

    fn mark(&mut self, range: Range<usize>, part: ItemPart) {
        // Behind a tab the parser counts the end of the line before as a part of the item.
        let written = self.content[range.clone()].trim();
        let blank = self.content[range.clone()]
            .find(written)
            .unwrap_or_default();
        let first = self.line_of(range.start + blank);
        let last = self.line_of(range.start + blank + written.len().saturating_sub(1));
        self.parts[first..=last].fill(part);
    }

    fn line(&self, number: usize) -> &'c str {
        self.content[self.begins[number]..]
            .lines()
            .next()
            .unwrap_or_default()
    }

    /// Returns the item with a box that this one is in, or is itself.
    fn boxed(&self, mut at: usize) -> Option<usize> {
        while self.entries[at].ticked.is_none() {
            at = self.entries[at].parent?;
        }
        Some(at)
    }

    /// Returns the item around this one that becomes a task.
    fn task_around(&self, at: usize) -> Option<usize> {
        let mut around = self.entries[at].parent;
        while let Some(outer) = around.filter(|&outer| self.entries[outer].ticked != Some(false)) {
            around = self.entries[outer].parent;
        }
        around
    }

    fn items(&self) -> Result<Vec<ImportItem>, String> {
        let open: Vec<usize> = (0..self.entries.len())
            .filter(|&at| self.entries[at].ticked == Some(false))
            .collect();
        let mut lines = vec![Vec::new(); self.entries.len()];
        for (number, part) in self.parts.iter().enumerate() {
            if let ItemPart::Item(at) = part
                && let Some(owner) = self.boxed(*at)
                && self.entries[owner].line != number
            {
                lines[owner].push(number);
            }
        }
        let mut items = Vec::new();
        for (&at, id) in open.iter().zip(1..) {
            let id = TaskId::try_from(id).map_err(|_| "there are too many tasks")?;
            let fields = TaskFields {
                subject: Some(self.entries[at].subject.clone()),
                description: self.description(&lines[at]),
                ..TaskFields::default()
            };
            items.push(ImportItem {
                id: Some(id),
                fields,
                line: self.entries[at].line + 1,
                ..ImportItem::default()
            });
        }
        for (place, &at) in open.iter().enumerate() {
            let outer = self
                .task_around(at)
                .and_then(|outer| open.binary_search(&outer).ok());
            if let Some(outer) = outer {
                let id = items[place].id;
                items[outer]
                    .fields
                    .blocked_by
                    .get_or_insert_default()
                    .extend(id);
            }
        }
        Ok(items)
    }

    /// Returns lines as a text of their own: without the indentation that all of them have.
    fn description(&self, numbers: &[usize]) -> Option<String> {
        let written: Vec<usize> = numbers
            .iter()
            .copied()
            .filter(|&number| !self.line(number).trim().is_empty())
            .collect();
        let indent = written
            .iter()
            .map(|&number| indentation(self.line(number)).0)
            .min()?;
        let mut text = String::new();
        let mut last = *written.first()?;
        for &number in &written {
            // Empty lines stay between lines that were together, and one in the place of what
            // became another task.
            let is_apart = (last + 1..number).any(|between| self.line(between).trim().is_empty());
            let is_near = (last + 1..number).all(|between| self.line(between).trim().is_empty());
            let gap = number.saturating_sub(last);
            let ends = if is_near {
                gap
            } else {
                1 + usize::from(is_apart)
            };
            text.push_str(&"\n".repeat(ends));
            let (columns, rest) = indentation(self.line(number));
            text.push_str(&" ".repeat(columns - indent));
            text.push_str(rest.trim_end());
            last = number;
        }
        Some(text)
    }

    /// Lists the lines that became no task, and belong to none.
    fn passed_over(&self) -> Option<String> {
        let mut kinds: Vec<(&str, Vec<usize>)> = Vec::new();
        for (number, part) in self.parts.iter().enumerate() {
            if self.line(number).trim().is_empty() {
                continue;
            }
            let Some(kind) = self.kind(*part) else {
                continue;
            };
            match kinds.iter_mut().find(|(name, _)| *name == kind) {
                Some((_, lines)) => lines.push(number + 1),
                None => kinds.push((kind, vec![number + 1])),
            }
        }
        let parts: Vec<String> = kinds
            .iter()
            .map(|(kind, lines)| format!("{} ({kind})", ranges(lines)))
            .collect();
        (!parts.is_empty()).then(|| format!("passed over: {}", parts.join(", ")))
    }

    /// Returns the kind of what becomes no task; none for the lines of a task.
    fn kind(&self, part: ItemPart) -> Option<&'static str> {
        match part {
            ItemPart::Other(kind) => Some(kind),
            ItemPart::Item(at) => match self.boxed(at).and_then(|owner| self.entries[owner].ticked)
            {
                Some(false) => None,
                Some(true) => Some(TICKED),
                None => Some(NO_BOX),
            },
        }
    }
}

fn kind_of(tag: &Tag<'_>) -> Option<&'static str> {
    match tag {
        Tag::Heading { .. } => Some("heading"),
        Tag::CodeBlock(_) => Some("code"),
        Tag::HtmlBlock => Some("HTML"),
        Tag::MetadataBlock(_) => Some("front matter"),
        Tag::Table(_) => Some("table"),
        _ => None,
    }
}

/// Returns how many columns a line is indented, and what follows.
fn indentation(line: &str) -> (usize, &str) {
    let rest = line.trim_start_matches([' ', '\t']);
    (
        line[..line.len() - rest.len()]
            .chars()
            .fold(0, |column, char| match char {
                '\t' => (column / TAB + 1) * TAB,
                _ => column + 1,
            }),
        rest,
    )
}

/// Formats numbers of lines: `lines 3-5, 9`.
fn ranges(lines: &[usize]) -> String {
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for &line in lines {
        match groups.last_mut() {
            Some((_, last)) if *last + 1 == line => *last = line,
            _ => groups.push((line, line)),
        }
    }
    let named: Vec<String> = groups
        .iter()
        .take(NAMED)
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    let more = if groups.len() > NAMED {
        " and others"
    } else {
        ""
    };
    let noun = if lines.len() == 1 { "line" } else { "lines" };
    format!("{noun} {}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tasks, each with its description and what it waits for, and what was passed over.
    fn told(content: &str) -> (Vec<String>, String) {
        let (items, over) = read(content).unwrap();
        let tasks = items.into_iter().map(|item| {
            let fields = item.fields;
            let text = fields
                .description
                .map(|text| format!(": {text}"))
                .unwrap_or_default();
            let after = fields
                .blocked_by
                .map(|ids| format!(" {ids:?}"))
                .unwrap_or_default();
            format!(
                "{} {}{text}{after}",
                item.line,
                fields.subject.unwrap_or_default()
            )
        });
        (tasks.collect(), over.unwrap_or_default())
    }

    #[test]
    fn a_box_in_code_or_a_comment_is_text() {
        let content = "- [ ] a:\n\n  ```md\n  - [ ] no\n\n\n    - deep\n  ```\n- [ ] b\n\n      - [ ] no\n\n~~~\n- [ ] no\n~~~\n\
                       <!--\n- [ ] no\n-->\n\ntext\n\n    - [ ] no\n";
        let (tasks, over) = told(content);
        let fence = "```md\n- [ ] no\n\n\n  - deep\n```";
        assert_eq!(
            tasks,
            [format!("1 a:: {fence}"), "9 b: - [ ] no".to_owned()]
        );
        assert_eq!(
            over,
            "passed over: lines 13-15, 22 (code), lines 16-18 (HTML), line 20 (text)"
        );
    }

    #[test]
    fn every_mark_of_a_list_and_every_indentation_that_nests_counts() {
        let content = "---\ntitle: x\n---\n# Plan\n\n* [ ] star\n+ [ ] plus\n1. [ ] one\n   1) [ ] inner\n- [ ] parent\n\t- [ ] tab\n\t\t\
                       - [ ] two\n    - group\n      - [ ] of a group\n- plain\n- [x] done\n  - [ ] below\n  why\n";
        let (tasks, over) = told(content);
        assert_eq!(
            tasks,
            [
                "6 star",
                "7 plus",
                "8 one [4]",
                "9 inner",
                "10 parent: - group [6, 8]",
                "11 tab [7]",
                "12 two",
                "14 of a group",
                "17 below: why"
            ]
        );
        assert_eq!(
            over,
            "passed over: lines 1-3 (front matter), line 4 (heading), line 15 (without a box), line 16 (ticked off)"
        );
    }

    #[test]
    fn a_description_keeps_its_lines_and_its_own_indentation() {
        let content =
            "- [ ] a\r\n  first\r\n\r\n  - point\r\n    - deep\r\n  - [ ] b\r\n\r\n  last\r\n";
        assert_eq!(
            told(content).0,
            ["1 a: first\n\n- point\n  - deep\n\nlast [2]", "6 b"]
        );
        assert_eq!(
            read("- [x] a\n").unwrap_err(),
            "every item is ticked off: nothing is left to do"
        );
        assert!(
            read("- a\n")
                .unwrap_err()
                .starts_with("line 1: this is no checklist")
        );
    }
}
