//! Searches files for lines.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkContext, SinkMatch,
};
use teamd_worker_core::tools::Grep;

use super::walk::{Met, files, shown, unreadable};
use super::{bounded, file_pattern};

/// The most lines that are shown, with those around the matches.
const SHOWN: u64 = 250;
/// The most characters of a line that are shown.
const WIDEST: usize = 500;
/// The most memory that a compiled pattern takes, in bytes.
const MAX_COMPILED: usize = 4 << 20;
/// The most memory that the lines of a file take at once, in bytes: a longer line is not searched.
const MAX_LINES: usize = 16 << 20;

/// Reads a regular expression.
///
/// # Errors
/// What is wrong with it, for the model.
pub(super) fn matcher(pattern: &str) -> Result<RegexMatcher, String> {
    bounded(pattern)?;
    let mut builder = RegexMatcherBuilder::new();
    builder
        .line_terminator(Some(b'\n'))
        .size_limit(MAX_COMPILED)
        .dfa_size_limit(MAX_COMPILED);
    let matcher = builder.build(pattern);
    matcher.map_err(|error| format!("the pattern cannot be used: {error}"))
}

/// Searches the files of the current directory.
///
/// # Errors
/// Why it cannot.
pub(super) fn search(grep: &Grep, out: &mut impl Write) -> Result<(), String> {
    let matcher = matcher(&grep.pattern)?;
    let only = grep.glob.as_deref().map(file_pattern).transpose()?;
    let from = beginning(grep.path.as_deref())?;
    let kind = from
        .metadata()
        .map_err(|error| format!("cannot search {}: {error}", shown(&from)))?;
    if !kind.is_file() && !kind.is_dir() {
        return Err(format!("{} is no file and no folder", shown(&from)));
    }
    let context = usize::try_from(grep.context.unwrap_or(0)).unwrap_or(usize::MAX);
    let mut searcher = SearcherBuilder::new()
        .binary_detection(BinaryDetection::quit(0))
        .memory_map(MmapChoice::never())
        .heap_limit(Some(MAX_LINES))
        .before_context(context)
        .after_context(context)
        .build();
    let mut lines = FoundLines {
        out,
        shown: 0,
        matches_left: 0,
        files_left: 0,
        is_file_left: false,
        is_file_shown: false,
        file: String::new(),
    };
    let mut missing = 0;
    for met in files(&from) {
        let Met::File(entry) = met else {
            missing += 1;
            continue;
        };
        let path = entry.path().strip_prefix(".").unwrap_or(entry.path());
        if only.as_ref().is_some_and(|only| !only.is_match(path)) {
            continue;
        }
        lines.begin(path);
        if searcher
            .search_path(&matcher, entry.path(), &mut lines)
            .is_err()
        {
            missing += 1;
        }
    }
    lines.end(missing).map_err(|error| error.to_string())
}

/// Returns where a search begins: what lies in the current directory is named from there, so that
/// the patterns of files fit.
fn beginning(path: Option<&str>) -> Result<PathBuf, String> {
    let path = Path::new(path.unwrap_or("."));
    let workspace = std::env::current_dir().map_err(|error| error.to_string())?;
    let below = path.strip_prefix(&workspace).unwrap_or(path);
    let is_itself = below.as_os_str().is_empty();
    if is_itself {
        return Ok(".".into());
    }
    Ok(below.to_owned())
}

/// Shows the lines that are found, as many as fit.
struct FoundLines<'a, W> {
    out: &'a mut W,
    /// How many lines are shown.
    shown: u64,
    /// How many matches are not, and in how many files.
    matches_left: u64,
    files_left: u64,
    /// The file, and whether a match of it is shown, or is not.
    file: String,
    is_file_shown: bool,
    is_file_left: bool,
}

impl<W: Write> FoundLines<'_, W> {
    fn begin(&mut self, path: &Path) {
        self.file = shown(path);
        self.is_file_shown = false;
        self.is_file_left = false;
    }

    /// Shows a line, with this sign between the parts. Returns whether there was room.
    fn line(&mut self, number: Option<u64>, text: &[u8], sign: char) -> io::Result<bool> {
        if self.shown >= SHOWN {
            return Ok(false);
        }
        self.shown += 1;
        self.is_file_shown = true;
        let text = String::from_utf8_lossy(text);
        let text = text.trim_end_matches(['\n', '\r']);
        let number = number.unwrap_or(0);
        let file = &self.file;
        match text.char_indices().nth(WIDEST) {
            Some((end, _)) => {
                let text = &text[..end];
                writeln!(self.out, "{file}{sign}{number}{sign}{text} [cut]")?;
            }
            None => writeln!(self.out, "{file}{sign}{number}{sign}{text}")?,
        }
        Ok(true)
    }

    fn end(self, missing: u64) -> io::Result<()> {
        if self.shown == 0 && self.matches_left == 0 {
            writeln!(self.out, "no line matches")?;
        }
        if self.matches_left > 0 {
            writeln!(
                self.out,
                "[{} more matches in {}: narrow the pattern, the path or the glob]",
                self.matches_left,
                match self.files_left {
                    1 => "1 file".to_owned(),
                    files => format!("{files} files"),
                }
            )?;
        }
        if let Some(note) = unreadable(missing) {
            writeln!(self.out, "{note}")?;
        }
        Ok(())
    }
}

impl<W: Write> Sink for FoundLines<'_, W> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        if !self.line(found.line_number(), found.bytes(), ':')? {
            self.matches_left += 1;
            self.files_left += u64::from(!self.is_file_left);
            self.is_file_left = true;
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, around: &SinkContext<'_>) -> io::Result<bool> {
        self.line(around.line_number(), around.bytes(), '-')?;
        Ok(true)
    }

    fn context_break(&mut self, _: &Searcher) -> io::Result<bool> {
        if self.shown < SHOWN {
            writeln!(self.out, "--")?;
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        if self.is_file_shown {
            writeln!(self.out, "[{} is binary from there on]", self.file)?;
        }
        Ok(true)
    }
}
