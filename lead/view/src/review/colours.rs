//! The colours of source code, in the sixteen colours of a terminal: they suit light and dark
//! backgrounds, and `NO_COLOR` switches them off as all others. Only what is in sight is parsed, and
//! no frame waits for that: what has no colours yet is plain, and gets them in a later frame.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;
use std::time::Instant;

use anstyle::AnsiColor;
use ratatui::style::{Color, Modifier, Style};
use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};
use tokio::sync::oneshot;

use super::changes::{ChangedFile, Changes, Hunk, LineKind};

/// The longest line that is parsed, in bytes.
const LONGEST: usize = 1000;
/// From how many lines above the first one in sight a hunk is parsed, where a person jumped there.
const BEFORE: usize = 30;
/// How many lines of a kind of files are a sample, and of how many kinds there is one.
const SAMPLE: usize = 60;
const KINDS: usize = 8;

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
pub(crate) struct Coloured {
    pub(crate) end: usize,
    pub(super) style: Style,
}

impl Coloured {
    /// Returns its style for a text with escape sequences.
    pub(super) fn style(self) -> anstyle::Style {
        let colour = match self.style.fg {
            Some(Color::Green) => Some(AnsiColor::Green),
            Some(Color::Cyan) => Some(AnsiColor::Cyan),
            Some(Color::Magenta) => Some(AnsiColor::Magenta),
            Some(Color::Blue) => Some(AnsiColor::Blue),
            Some(Color::Yellow) => Some(AnsiColor::Yellow),
            _ => None,
        };
        let mut style = anstyle::Style::new().fg_color(colour.map(Into::into));
        if self.style.add_modifier.contains(Modifier::DIM) {
            style = style.dimmed();
        }
        if self.style.add_modifier.contains(Modifier::BOLD) {
            style = style.bold();
        }
        style
    }

    /// Returns the number of the style: the page has a class for each. 0 is none.
    pub(crate) fn class(&self) -> usize {
        let mut styles = STYLES.iter();
        let found = styles.position(|(_, style)| *style == self.style);
        found
            .filter(|_| self.style != Style::new())
            .map_or(0, |at| at + 1)
    }
}

/// What was parsed of each hunk.
#[derive(Default)]
pub(crate) struct Colours {
    hunks: HashMap<(usize, usize), HunkColours>,
    /// Whether the grammars are ready.
    is_on: bool,
    /// Until when lines are parsed for this frame; none: as long as that takes.
    until: Option<Instant>,
    /// Whether something that is in sight was not parsed for this frame.
    is_behind: bool,
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
    old: GrammarState,
    new: GrammarState,
}

#[derive(Clone)]
struct GrammarState {
    parser: ParseState,
    scopes: ScopeStack,
}

impl Colours {
    /// Parses from now on.
    pub(crate) fn turn_on(&mut self) {
        self.is_on = true;
    }

    /// Begins a frame, for which lines are parsed until then.
    pub(super) fn begin(&mut self, until: Instant) {
        self.until = Some(until);
        self.is_behind = false;
    }

    /// Tells whether a later frame has more colours.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns the parts of a line of a hunk; none: it has no colours, or none yet.
    pub(crate) fn of(
        &mut self,
        (file, hunk): (usize, usize),
        changed: &ChangedFile,
        line: usize,
    ) -> &[Coloured] {
        let Some(all) = SYNTAXES.get().filter(|_| self.is_on) else {
            return &[];
        };
        let Some(syntax) = syntax(all, &changed.path) else {
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
            let state = GrammarState::new(syntax);
            let fresh = HunkColours {
                from: line.saturating_sub(BEFORE),
                lines: Vec::new(),
                old: state.clone(),
                new: state,
            };
            self.hunks.insert((file, hunk), fresh);
        }
        let (Some(colours), Some(hunk)) =
            (self.hunks.get_mut(&(file, hunk)), changed.hunks.get(hunk))
        else {
            return &[];
        };
        if !colours.parse(all, hunk, line, self.until) {
            self.is_behind = true;
        }
        colours.of(line)
    }
}

impl HunkColours {
    /// Parses as far as a line. Returns whether there was time for it.
    fn parse(&mut self, all: &SyntaxSet, hunk: &Hunk, line: usize, until: Option<Instant>) -> bool {
        while self.from + self.lines.len() <= line {
            let Some(next) = hunk.lines.get(self.from + self.lines.len()) else {
                break;
            };
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            let coloured = match next.kind {
                LineKind::Removed => self.old.line(all, &next.text),
                LineKind::Added => self.new.line(all, &next.text),
                LineKind::Context => {
                    let coloured = self.new.line(all, &next.text);
                    self.old = self.new.clone();
                    coloured
                }
            };
            self.lines.push(coloured);
        }
        true
    }

    fn of(&self, line: usize) -> &[Coloured] {
        self.lines
            .get(line - self.from)
            .map(Vec::as_slice)
            .unwrap_or_default()
    }
}

impl GrammarState {
    fn new(syntax: &SyntaxReference) -> Self {
        Self {
            parser: ParseState::new(syntax),
            scopes: ScopeStack::new(),
        }
    }

    fn line(&mut self, all: &SyntaxSet, text: &str) -> Vec<Coloured> {
        if text.len() > LONGEST {
            return Vec::new();
        }
        // A grammar that gives up on a line colours nothing of it.
        let Ok(steps) = self.parser.parse_line(&format!("{text}\n"), all) else {
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

static SYNTAXES: OnceLock<SyntaxSet> = OnceLock::new();

/// Loads the grammars, which takes longer than a frame may.
pub(crate) fn load_grammars() {
    SYNTAXES.get_or_init(SyntaxSet::load_defaults_newlines);
}

/// The first lines of some files of a grammar.
#[derive(Debug)]
pub(crate) struct Sample {
    path: String,
    lines: Vec<String>,
}

/// Takes the first lines of one file of each kind.
pub(super) fn samples(changes: &Changes) -> Vec<Sample> {
    let mut kinds = HashSet::new();
    let files = changes.files.iter();
    files
        .filter(|file| kinds.insert(file.path.rsplit('.').next()))
        .map(|file| {
            let lines = file.hunks.iter().flat_map(|hunk| &hunk.lines);
            Sample {
                path: file.path.clone(),
                lines: lines.take(SAMPLE).map(|it| it.text.clone()).collect(),
            }
        })
        .take(KINDS)
        .collect()
}

/// Loads the grammars in a thread of its own, from now on, and readies them for lines like these:
/// the first lines of a grammar take much longer than those that follow.
pub(crate) fn loading(samples: Vec<Sample>) -> impl Future<Output = ()> + 'static {
    let (done, is_done) = oneshot::channel();
    std::thread::spawn(move || {
        load_grammars();
        for sample in samples {
            let all = SYNTAXES.get();
            let found = all.and_then(|all| Some((all, syntax(all, &sample.path)?)));
            if let Some((all, syntax)) = found {
                let mut state = GrammarState::new(syntax);
                for line in &sample.lines {
                    state.line(all, line);
                }
            }
        }
        // Nobody may wait for it any more.
        done.send(()).ok();
    });
    // A thread that has ended without an answer has loaded nothing: then nothing has colours.
    async { is_done.await.unwrap_or_default() }
}

/// Finds the grammar of a file by its name.
fn syntax<'s>(all: &'s SyntaxSet, path: &str) -> Option<&'s SyntaxReference> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit('.').next().unwrap_or(name);
    let extension = match extension {
        "ts" | "tsx" | "jsx" | "mjs" | "cjs" => "js",
        "kt" | "kts" => "java",
        other => other,
    };
    all.find_syntax_by_extension(name)
        .or_else(|| all.find_syntax_by_extension(extension))
        .filter(|syntax| syntax.name != "Plain Text")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn colours(path: &str, text: &str) -> Vec<(String, Style)> {
        load_grammars();
        let diff = format!(
            "diff --git a/{path} b/{path}\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{text}\n"
        );
        let changes = Changes::parse(&diff, "");
        let mut colours = Colours::default();
        colours.turn_on();
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
        let class = |style| Coloured { end: 1, style }.class();
        assert_eq!(class(style("let")), 5);
        assert_eq!(class(style("why")), 1);
        assert_eq!(class(Style::new()), 0);
        assert!(colours("a.txt", "let x").is_empty());
        assert!(colours("a.rs", &"x".repeat(LONGEST + 1)).is_empty());
    }

    #[test]
    fn only_what_is_in_sight_is_parsed() {
        let lines = "+let x = 1;\n".repeat(20_000);
        let diff = format!(
            "diff --git a/a.rs b/a.rs\n--- /dev/null\n+++ b/a.rs\n@@ -0,0 +1,20000 @@\n{lines}"
        );
        load_grammars();
        let changes = Changes::parse(&diff, "");
        let mut colours = Colours::default();
        colours.turn_on();
        let parsed = |colours: &Colours| colours.hunks[&(0, 0)].lines.len();
        for line in [0, 19_999, 10_000] {
            assert!(!colours.of((0, 0), &changes.files[0], line).is_empty());
            assert!(parsed(&colours) <= BEFORE + 1, "{line}");
        }
    }

    #[test]
    fn a_frame_that_has_no_time_is_plain_and_a_later_one_has_the_colours() {
        let diff =
            "diff --git a/a.rs b/a.rs\n--- /dev/null\n+++ b/a.rs\n@@ -0,0 +1 @@\n+let x = 1;\n";
        load_grammars();
        let changes = Changes::parse(diff, "");
        let mut colours = Colours::default();
        colours.turn_on();
        colours.begin(Instant::now());
        assert!(colours.of((0, 0), &changes.files[0], 0).is_empty());
        assert!(colours.is_behind());
        colours.begin(Instant::now() + std::time::Duration::from_secs(60));
        assert!(!colours.of((0, 0), &changes.files[0], 0).is_empty());
        assert!(!colours.is_behind());
    }
}
