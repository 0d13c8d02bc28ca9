//! Runs the user's own `gh`: in the user's home, with the user's environment.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::journal::Team;
use tokio::process::Command;

use super::child::{ProgramEnd, UserProgram};

/// The exit code that says that the user is not logged in.
const NOT_LOGGED_IN: i32 = 4;

/// What it says of what is not there.
const MISSING: [&str; 3] = ["Could not resolve to", "HTTP 404", "no pull requests found"];

/// The user's `gh`.
pub(crate) struct Gh {
    program: PathBuf,
    home: PathBuf,
    /// Where it finds other programs.
    path: OsString,
    limit: Duration,
}

impl Gh {
    /// Finds it on `PATH`, but not where a teammate may write, nor where the current directory
    /// decides. `limit`: how long a call may take.
    ///
    /// # Errors
    /// If it is not there, or the user has no home.
    pub(crate) fn find(team: &Team, limit: Duration) -> Result<Self, CommandError> {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
        let home = home.map(PathBuf::from).ok_or_else(|| {
            CommandError::new(ExitCode::Usage, "HOME is not set, and `gh` runs there")
                .hint("set it to your home directory")
        })?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute() && !is_written_by_teammates(folder, &home, team))
            .collect();
        let program = folders
            .iter()
            .map(|folder| folder.join("gh"))
            .find(|program| is_program(program));
        let Some(program) = program else {
            let message = "`gh` is not on PATH, outside of where teammates write";
            return Err(CommandError::new(ExitCode::Failed, message)
                .hint("install it (https://cli.github.com), then `gh auth login`"));
        };
        let path = std::env::join_paths(folders).unwrap_or_default();
        Ok(Self {
            program,
            home,
            path,
            limit,
        })
    }

    /// Runs it, and reads its answer as JSON.
    ///
    /// # Errors
    /// As [`Gh::run`], or if the answer is something else.
    pub(crate) async fn json<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T, CommandError> {
        let answer = self.run(args, "").await?;
        serde_json::from_slice(&answer).map_err(|error| unreadable(args, &error))
    }

    /// Runs it, and reads all pages of its answer: one array of JSON behind the other.
    ///
    /// # Errors
    /// As [`Gh::json`].
    pub(crate) async fn pages<T: DeserializeOwned>(
        &self,
        args: &[&str],
    ) -> Result<Vec<T>, CommandError> {
        let answer = self.run(args, "").await?;
        let pages = serde_json::Deserializer::from_slice(&answer).into_iter::<Vec<T>>();
        let mut all = Vec::new();
        for page in pages {
            all.extend(page.map_err(|error| unreadable(args, &error))?);
        }
        Ok(all)
    }

    /// Runs it with this on its standard input, and returns what it answers.
    ///
    /// # Errors
    /// What it says if it fails, escaped; or if it takes too long, or answers too much.
    pub(crate) async fn run(&self, args: &[&str], input: &str) -> Result<Vec<u8>, CommandError> {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(&self.home)
            .env("PATH", &self.path)
            // It asks nothing, and says nothing but its answer.
            .env("GH_PROMPT_DISABLED", "1")
            .env("GH_NO_UPDATE_NOTIFIER", "1")
            .env("NO_COLOR", "1")
            .env_remove("GH_FORCE_TTY")
            .env_remove("GH_REPO");
        let gh = UserProgram {
            name: "gh",
            limit: self.limit,
            may_ask: false,
            if_late: "`gh auth status` tells whether it works; `--timeout` waits longer",
        };
        let ended = gh.run(&mut command, input).await?;
        if ended.status.success() {
            Ok(ended.answer)
        } else {
            Err(failed(args, &ended))
        }
    }
}

/// Tells whether a teammate may write in a directory. A team in the home directory has its programs
/// there like everybody.
fn is_written_by_teammates(folder: &Path, home: &Path, team: &Team) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    team.territory().any(|(territory, _)| {
        territory != home && (real.starts_with(territory) || folder.starts_with(territory))
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

fn command_of(args: &[&str]) -> String {
    let words: Vec<&str> = args.iter().take(2).copied().collect();
    format!("gh {}", words.join(" "))
}

fn failed(args: &[&str], ended: &ProgramEnd) -> CommandError {
    let said = ended.said();
    if ended.status.code() == Some(NOT_LOGGED_IN) || said.contains("gh auth login") {
        let message = format!("`gh` is not logged in: {said}");
        return CommandError::new(ExitCode::Failed, message)
            .hint("`gh auth login` logs in, then try again");
    }
    if MISSING.iter().any(|missing| said.contains(missing)) {
        let message = format!("GitHub has no such thing: {said}");
        return CommandError::new(ExitCode::NotFound, message).hint(
            "look at the owner, the repository and the number; `gh auth status` tells as whom you ask",
        );
    }
    let command = command_of(args);
    let message = format!("`{command}` failed ({}): {said}", ended.status);
    CommandError::new(ExitCode::Failed, message).hint("`gh auth status` tells whether it works")
}

fn unreadable(args: &[&str], error: &serde_json::Error) -> CommandError {
    let command = command_of(args);
    let message = format!("the answer of `{command}` cannot be read: {error}");
    CommandError::new(ExitCode::Failed, message)
        .hint("`gh --version` tells which one it is; 2.20 or later is needed")
}
