//! The error that ends a command: its kind becomes the exit code, its hint is the next step.
//!
//! The modules below have error enums of their own; here, at the edge, they become one shape for
//! people (`error: …`, `hint: …`) and for programs (`{"error":{"code","message","hint"}}`). Nothing
//! here prints.

use std::io::{self, ErrorKind};
use std::path::Path;

use serde_json::{Value, json};
use teamd_shared::config::ConfigError;
use teamd_shared::control::Refusal;
use teamd_shared::inbox::{AppendError, ReadError};
use teamd_shared::journal::reader::JournalError;
use teamd_shared::price::PriceError;
use teamd_shared::spawn::LoginError;
use teamd_shared::team_dir::DirError;
use teamd_shared::team_file::TeamFileError;
use teamd_shared::user_config::UserConfigError;
use teamd_shared::variable::SettingError;

use crate::exit_code::ExitCode;

/// The hint of an error without another one, and of a machine that is short of something.
const LOOK_AT_MACHINE: &str = "check the free disk space and the limits (`df`, `ulimit -n`, `teamctl doctor`), then try again";

/// Says what to do about an error of the system, by its kind: the one place that decides it. `path`
/// is what it is about. None where the machine may be short of something, which
/// [`CommandError::next_step`] returns for every error without a hint.
pub fn io_hint(error: &io::Error, path: Option<&Path>) -> Option<String> {
    Some(match error.kind() {
        ErrorKind::PermissionDenied => {
            "check the owner and the mode of that path, and as which user you run".to_owned()
        }
        ErrorKind::ReadOnlyFilesystem => {
            "that file system is mounted read-only: use another one".to_owned()
        }
        ErrorKind::NotFound => match path.and_then(first_missing) {
            Some(missing) => format!(
                "{} does not exist: create it, or correct the path",
                missing.display()
            ),
            None => "check the path".to_owned(),
        },
        _ => return None,
    })
}

/// Returns the first directory on the way to a path that does not exist.
fn first_missing(path: &Path) -> Option<&Path> {
    let above = path
        .ancestors()
        .skip(1)
        .filter(|above| !above.as_os_str().is_empty());
    above
        .take_while(|above| above.symlink_metadata().is_err())
        .last()
}

/// What a command returns.
pub type CommandResult = Result<ExitCode, CommandError>;

/// Why a command was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CommandError {
    code: ExitCode,
    message: String,
    hint: Option<String>,
    candidates: Vec<String>,
}

impl CommandError {
    /// Makes an error. The message is a lower-case fragment that fits behind "error: ".
    pub fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            candidates: Vec::new(),
        }
    }

    /// Makes the error of what the system refuses.
    pub fn refused(what: &str, error: &io::Error) -> Self {
        io_hint(error, None).into_iter().fold(
            Self::new(ExitCode::Failed, format!("{what}: {error}")),
            Self::hint,
        )
    }

    /// Adds what to do next; a second hint follows the first.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        self.hint = Some(match self.hint {
            Some(question) if question.ends_with('?') => format!("{question} {hint}"),
            Some(first) => format!("{first}; {hint}"),
            None => hint,
        });
        self
    }

    /// Adds what an ambiguous word could mean, one candidate each.
    #[must_use]
    pub fn candidates(mut self, candidates: Vec<String>) -> Self {
        self.candidates = candidates;
        self
    }

    /// Returns the kind.
    pub fn code(&self) -> ExitCode {
        self.code
    }

    /// Returns what failed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns what to do next: by default to check the machine, since the system refused what it
    /// hardly ever refuses.
    pub fn next_step(&self) -> Option<&str> {
        let general = (self.code == ExitCode::Failed && self.candidates.is_empty())
            .then_some(LOOK_AT_MACHINE);
        self.hint.as_deref().or(general)
    }

    /// Returns what an ambiguous word could mean.
    pub fn choices(&self) -> &[String] {
        &self.candidates
    }

    /// Returns the value of `error` in the JSON form.
    pub fn to_json(&self) -> Value {
        let mut error =
            json!({"code": self.code.as_str(), "message": self.message, "hint": self.next_step()});
        if !self.candidates.is_empty() {
            error["candidates"] = json!(self.candidates);
        }
        error
    }

    /// Reads what [`CommandError::to_json`] has written in another program.
    pub(crate) fn of_json(said: &Value) -> Option<Self> {
        let error = &said["error"];
        let code = ExitCode::of_str(error["code"].as_str()?)?;
        let message = error["message"].as_str()?;
        let made = Self {
            hint: error["hint"].as_str().map(str::to_owned),
            ..Self::new(code, message)
        };
        let texts = error["candidates"].as_array().into_iter().flatten();
        Some(made.candidates(texts.filter_map(Value::as_str).map(str::to_owned).collect()))
    }
}

impl From<JournalError> for CommandError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Dir(error) => error.into(),
            other => Self::new(ExitCode::Failed, other.to_string()).hint(other.next_step()),
        }
    }
}

impl From<DirError> for CommandError {
    fn from(error: DirError) -> Self {
        let code = if matches!(error, DirError::Missing(_)) {
            ExitCode::NotRunning
        } else {
            ExitCode::Failed
        };
        let hint = match &error {
            DirError::Missing(_) => Some(
                "`teamd start` creates one here; `--team-dir DIR` names another one".to_owned(),
            ),
            DirError::Foreign { .. } => {
                Some("only the owner of a team directory can use it".to_owned())
            }
            DirError::Link(_) | DirError::NotAFile(_) => Some(
                "find out where it comes from, and move it out of the team directory".to_owned(),
            ),
            DirError::Replaced { path, place } => Some(format!(
                "a tool may have replaced the link: move away what is there, then `ln -s {} {}`",
                place.display(),
                path.display()
            )),
            DirError::OfAnother { root, .. } => Some(format!(
                "a tool may have made the link: remove it; `--team-dir {}` names that team, if you mean it",
                root.display()
            )),
            DirError::NotADirectory(_) => {
                Some("`--team-dir DIR` names the team directory".to_owned())
            }
            DirError::Io { source, path, .. } => io_hint(source, Some(path)),
        };
        hint.into_iter()
            .fold(Self::new(code, error.to_string()), Self::hint)
    }
}

impl From<ConfigError> for CommandError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Dir(error) => error.into(),
            ConfigError::Malformed(_) => Self::new(ExitCode::Failed, error.to_string())
                .hint("`teamd start` writes it again from the journal, and keeps the old file"),
        }
    }
}

impl From<ReadError> for CommandError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Dir(error) => error.into(),
            ReadError::NoInbox(_) => Self::new(ExitCode::NotFound, error.to_string())
                .hint("`teamctl status` shows the teammates"),
            ReadError::NotALine { .. } => Self::new(ExitCode::Failed, error.to_string()),
        }
    }
}

impl From<AppendError> for CommandError {
    fn from(error: AppendError) -> Self {
        let message = error.to_string();
        let hint = error.hint();
        let error = match error {
            AppendError::Dir(error) => error.into(),
            AppendError::NoInbox(_) => {
                Self::new(ExitCode::NotFound, message).hint("`teamctl status` shows the teammates")
            }
            _ => Self::new(ExitCode::Failed, message),
        };
        hint.into_iter().fold(error, Self::hint)
    }
}

impl From<SettingError> for CommandError {
    fn from(error: SettingError) -> Self {
        let hint = if error.value.is_empty() {
            format!("set {}", error.variable)
        } else {
            format!("set {} to another value, or unset it", error.variable)
        };
        let meant = error.meant().map(|word| format!("did you mean {word}?"));
        let explained = Self::new(ExitCode::Usage, error.to_string());
        meant.into_iter().fold(explained, Self::hint).hint(hint)
    }
}

impl From<TeamFileError> for CommandError {
    fn from(error: TeamFileError) -> Self {
        Self::new(ExitCode::Usage, error.to_string()).hint(error.hint())
    }
}

impl From<PriceError> for CommandError {
    fn from(error: PriceError) -> Self {
        Self::new(ExitCode::Usage, error.to_string()).hint(error.hint())
    }
}

impl From<UserConfigError> for CommandError {
    fn from(error: UserConfigError) -> Self {
        Self::new(ExitCode::Usage, error.to_string()).hint(error.hint())
    }
}

impl From<LoginError> for CommandError {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Config(error) => error.into(),
            other => Self::new(ExitCode::Failed, other.to_string()).hint(other.hint()),
        }
    }
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: refusal.code.into(),
            message: refusal.message,
            hint: refusal.hint,
            candidates: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teamd_shared::control::RefusalCode;

    #[test]
    fn a_refusal_keeps_its_kind_and_its_hint() {
        let refusal = Refusal::new(RefusalCode::Conflict, "alice runs already")
            .hint("`teamctl status alice`");
        let error = CommandError::from(refusal);
        assert_eq!(error.code(), ExitCode::Conflict);
        let json =
            r#"{"code":"conflict","message":"alice runs already","hint":"`teamctl status alice`"}"#;
        assert_eq!(error.to_json().to_string(), json);
    }

    #[test]
    fn every_failure_names_a_next_step() {
        let refused = DirError::Io {
            verb: "read",
            path: "config.json".into(),
            source: io::Error::from_raw_os_error(24),
        };
        let error = CommandError::from(refused);
        assert!(error.next_step().unwrap().contains("ulimit"));
        assert!(error.to_json()["hint"].is_string());
        assert_eq!(error.hint("do this").next_step(), Some("do this"));
    }

    #[test]
    fn the_hint_fits_the_kind_of_an_error_of_the_system() {
        let hint = |number, path: &str| {
            let verb = "open";
            let source = io::Error::from_raw_os_error(number);
            let error = CommandError::from(DirError::Io {
                verb,
                path: path.into(),
                source,
            });
            error.next_step().unwrap().to_owned()
        };
        assert!(hint(13, "/x").contains("owner and the mode"));
        assert!(hint(30, "/x").contains("read-only"));
        let missing = hint(2, "/proc/self/typo/x/.team");
        assert_eq!(
            missing,
            "/proc/self/typo does not exist: create it, or correct the path"
        );
        assert_eq!(hint(2, "/proc/self/typo"), "check the path");
        for of_machine in [28, 24, 23, 122] {
            assert!(hint(of_machine, "/x").contains("ulimit"), "{of_machine}");
        }
    }

    #[test]
    fn candidates_are_in_the_json_where_there_are_some() {
        let error = CommandError::new(ExitCode::NotFound, "ambiguous")
            .candidates(vec!["a1".into(), "a2".into()]);
        let json =
            r#"{"code":"not_found","message":"ambiguous","hint":null,"candidates":["a1","a2"]}"#;
        assert_eq!(error.to_json().to_string(), json);
    }
}
