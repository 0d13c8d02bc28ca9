//! The colours of source code, in the sixteen colours of a terminal: they suit light and dark
//! backgrounds, and `NO_COLOR` switches them off as all others. Only what is in sight is parsed.

use std::collections::HashMap;
use std::sync::OnceLock;

use ratatui::style::{Color, Modifier, Style};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use super::changes::{ChangedFile, Hunk, LineKind};

/// The longest line that is parsed, in bytes.
const LONGEST: usize = 1000;
/// From how many lines above the first one in sight a hunk is parsed, where a person jumped there.
const BEFORE: usize = 30;

/// The styles by the beginning of a scope; the innermost scope decides.
const STYLES: [(&str, Style); 12] = [
    ("comment", Style::new().add_modifier(Modifier::DIM)),
    ("string", Style::new().fg(Color::Green)),
    ("constant", Style::new().fg(Color::Cyan)),
    ("keyword.operator", Style::new()),
    ("keyword", Style::new().fg(Color::Magenta)),
    ("storage", Style::new().fg(Color::Magenta)),
    ("entity.name.function", Style::new().fg(Color::Blue)),
    ("support.function", Style::new().fg(Color::Blue)),
    ("entity.name.tag", Style::new().fg(Color::Blue)),
    ("entity.name", Style::new().fg(Color::Yellow)),
    ("support.type", Style::new().fg(Color::Yellow)),
    ("markup.heading", Style::new().add_modifier(Modifier::BOLD)),
];

/// A part of a line: it ends before this byte.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Coloured {
    pub(super) end: usize,
    pub(super) style: Style,
}

/// What was parsed of each hunk.
#[derive(Default)]
pub(super) struct Colours {
    hunks: HashMap<(usize, usize), HunkColours>,
}

impl std::fmt::Debug for Colours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} hunks", self.hunks.len())
    }
}

struct HunkColours {
    /// The first line that was parsed.
    from: usize,
    lines: Vec<Vec<Coloured>>,
    old: State,
    new: State,
}

#[derive(Clone)]
struct State {
    parser: ParseState,
    scopes: ScopeStack,
}

impl Colours {
    /// Returns the parts of a line of a hunk; none: it has no colours.
    pub(super) fn of(
        &mut self,
        (file, hunk): (usize, usize),
        changed: &ChangedFile,
        line: usize,
    ) -> &[Coloured] {
        let Some(syntax) = syntax(&changed.path) else {
            return &[];
        };
        let is_near =
            |it: &&mut HunkColours| it.from <= line && line <= it.from + it.lines.len() + BEFORE;
        if self
            .hunks
            .get_mut(&(file, hunk))
            .as_ref()
            .filter(|it| is_near(it))
            .is_none()
        {
            let state = State::new(syntax);
            let fresh = HunkColours {
                from: line.saturating_sub(BEFORE),
                lines: Vec::new(),
                old: state.clone(),
                new: state,
            };
            self.hunks.insert((file, hunk), fresh);
        }
        match (self.hunks.get_mut(&(file, hunk)), changed.hunks.get(hunk)) {
            (Some(colours), Some(hunk)) => colours.line(hunk, line),
            _ => &[],
        }
    }
}

impl HunkColours {
    fn line(&mut self, hunk: &Hunk, line: usize) -> &[Coloured] {
        while self.from + self.lines.len() <= line {
            let Some(next) = hunk.lines.get(self.from + self.lines.len()) else {
                break;
            };
            let coloured = match next.kind {
                LineKind::Removed => self.old.line(&next.text),
                LineKind::Added => self.new.line(&next.text),
                LineKind::Context => {
                    let coloured = self.new.line(&next.text);
                    self.old = self.new.clone();
                    coloured
                }
            };
            self.lines.push(coloured);
        }
        self.lines
            .get(line - self.from)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

impl State {
    fn new(syntax: &SyntaxReference) -> Self {
        Self {
            parser: ParseState::new(syntax),
            scopes: ScopeStack::new(),
        }
    }

    fn line(&mut self, text: &str) -> Vec<Coloured> {
        if text.len() > LONGEST {
            return Vec::new();
        }
        // A grammar that gives up on a line colours nothing of it.
        let Ok(steps) = self.parser.parse_line(&format!("{text}\n"), syntaxes()) else {
            return Vec::new();
        };
        let mut parts = Vec::new();
        for (at, step) in steps {
            let end = at.min(text.len());
            if parts.last().map_or(0, |last: &Coloured| last.end) < end {
                let style = style(&self.scopes);
                parts.push(Coloured { end, style });
            }
            if self.scopes.apply(&step).is_err() {
                return Vec::new();
            }
        }
        let end = text.len();
        let style = style(&self.scopes);
        parts.push(Coloured { end, style });
        parts
    }
}

fn style(scopes: &ScopeStack) -> Style {
    let styles = styles();
    let inside_out = scopes.scopes.iter().rev();
    inside_out
        .filter_map(|scope| styles.iter().find(|(of, _)| of.is_prefix_of(*scope)))
        .map(|(_, style)| *style)
        .next()
        .unwrap_or_default()
}

fn styles() -> &'static [(Scope, Style)] {
    static STYLES_BY_SCOPE: OnceLock<Vec<(Scope, Style)>> = OnceLock::new();
    STYLES_BY_SCOPE.get_or_init(|| {
        let scopes = STYLES.into_iter();
        scopes
            .filter_map(|(name, style)| Some((Scope::new(name).ok()?, style)))
            .collect()
    })
}

fn syntaxes() -> &'static SyntaxSet {
    static SYNTAXES: OnceLock<SyntaxSet> = OnceLock::new();
    SYNTAXES.get_or_init(SyntaxSet::load_defaults_newlines)
}

/// Finds the grammar of a file by its name.
fn syntax(path: &str) -> Option<&'static SyntaxReference> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit('.').next().unwrap_or(name);
    let extension = match extension {
        "ts" | "tsx" | "jsx" | "mjs" | "cjs" => "js",
        "kt" | "kts" => "java",
        other => other,
    };
    let all = syntaxes();
    all.find_syntax_by_extension(name)
        .or_else(|| all.find_syntax_by_extension(extension))
        .filter(|syntax| syntax.name != "Plain Text")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::changes::Changes;

    fn colours(path: &str, text: &str) -> Vec<(String, Style)> {
        let diff = format!(
            "diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
        );
        let changes = Changes::parse(&diff, "");
        let mut colours = Colours::default();
        let mut from = 0;
        let parts = colours.of((0, 0), &changes.files[0], 0).iter();
        parts
            .map(|part| {
                let piece = text[from..part.end].to_owned();
                from = part.end;
                (piece, part.style)
            })
            .collect()
    }

    #[test]
    fn source_has_colours_and_a_text_has_none() {
        let parts = colours("a.rs", "let x = \"a\"; // why");
        let style = |text: &str| {
            let mut found = parts.iter().filter(|(piece, _)| piece.contains(text));
            found.next().unwrap().1
        };
        assert_eq!(style("let").fg, Some(Color::Magenta));
        assert_eq!(style("a").fg, Some(Color::Green));
        assert!(style("why").add_modifier.contains(Modifier::DIM));
        assert!(colours("a.txt", "let x").is_empty());
        assert!(colours("a.rs", &"x".repeat(LONGEST + 1)).is_empty());
    }

    #[test]
    fn only_what_is_in_sight_is_parsed() {
        let lines = "+let x = 1;\n".repeat(20_000);
        let diff = format!(
            "diff --git a/a.rs b/a.rs\n--- /dev/null\n+++ b/a.rs\n@@ -0,0 +1,20000 @@\n{lines}"
        );
        let changes = Changes::parse(&diff, "");
        let mut colours = Colours::default();
        let parsed = |colours: &Colours| colours.hunks[&(0, 0)].lines.len();
        for line in [0, 19_999, 10_000] {
            assert!(!colours.of((0, 0), &changes.files[0], line).is_empty());
            assert!(parsed(&colours) <= BEFORE + 1, "{line}");
        }
    }
}
