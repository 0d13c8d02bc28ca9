//! `glob` and `grep`: our own program searches, under a hidden subcommand and the policy of a closed
//! gate. So mounts and Landlock hold what a search could reach by a path or a link, and a search is
//! interrupted, limited and ended as a command is.

mod glob;
mod grep;
mod walk;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::time::Duration;

use globset::{GlobBuilder, GlobMatcher};
use teamd_shared::member::Gate;
use teamd_worker_core::tools::{Glob, Grep, Outcome, Search};
use teamd_worker_sandbox::run::{Runner, StartedCommand};

/// The hidden subcommand under which the worker's program searches: its argument is a [`Search`] as
/// JSON.
pub const SUBCOMMAND: &str = "search";

/// How long a search may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The longest pattern, in bytes.
const MAX_PATTERN: usize = 4096;

/// Starts a search. Must be called within the runtime.
pub(super) fn start(search: &Search, runner: &mut Runner, gate: Gate) -> StartedCommand {
    let prepared = prepare(search);
    let (arguments, shown) = match prepared {
        Ok(prepared) => prepared,
        Err(why) => return StartedCommand::Done(Outcome::error(why)),
    };
    runner.start_reader(arguments, &shown, LIMIT, gate)
}

/// Returns the arguments of the search, and what the list of processes says of it. A pattern that
/// cannot be used starts no process.
fn prepare(search: &Search) -> Result<(Vec<String>, String), String> {
    let (tool, pattern) = match search {
        Search::Glob(Glob { pattern }) => {
            file_pattern(pattern)?;
            ("glob", pattern)
        }
        Search::Grep(Grep { pattern, glob, .. }) => {
            grep::matcher(pattern)?;
            glob.as_deref().map(file_pattern).transpose()?;
            ("grep", pattern)
        }
    };
    let search = serde_json::to_string(search).map_err(|error| error.to_string())?;
    let arguments = vec![SUBCOMMAND.to_owned(), search];
    Ok((arguments, format!("{tool} {pattern}")))
}

/// Searches in the current directory: the whole program behind the hidden subcommand.
pub fn search_main() -> ExitCode {
    let mut out = BufWriter::new(io::stdout().lock());
    let searched = search(&mut out).and_then(|()| out.flush().map_err(|error| error.to_string()));
    let Err(why) = searched else {
        return ExitCode::SUCCESS;
    };
    // If that fails, no process reads what is found either.
    drop(writeln!(out, "{why}").and_then(|()| out.flush()));
    ExitCode::FAILURE
}

fn search(out: &mut impl Write) -> Result<(), String> {
    let argument = std::env::args().nth(2).unwrap_or_default();
    let search = serde_json::from_str(&argument).map_err(|error| error.to_string())?;
    match search {
        Search::Glob(glob) => glob::list(&glob, out),
        Search::Grep(grep) => grep::search(&grep, out),
    }
}

/// Reads a pattern of files. One without a slash matches in each folder, as in `.gitignore`.
fn file_pattern(pattern: &str) -> Result<GlobMatcher, String> {
    bounded(pattern)?;
    let anywhere = format!("**/{pattern}");
    let whole = if pattern.contains('/') {
        pattern.trim_start_matches("./")
    } else {
        &anywhere
    };
    let mut glob = GlobBuilder::new(whole);
    let glob = glob.literal_separator(true).build();
    let glob = glob.map_err(|error| format!("{error}; such as *.rs or src/**/*.rs"))?;
    Ok(glob.compile_matcher())
}

fn bounded(pattern: &str) -> Result<(), String> {
    if pattern.len() > MAX_PATTERN {
        return Err(format!(
            "the pattern has {} bytes, the limit is {MAX_PATTERN}",
            pattern.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
