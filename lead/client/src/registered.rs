//! Commands, including `teamd start`, use only a team directory that the register knows.

use teamd_shared::register::Register;
use teamd_shared::state::{StateDir, StateError};
use teamd_shared::team_dir::TeamDir;

use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Returns the register of this user.
///
/// # Errors
/// [`ExitCode::Failed`] if there is no place for it.
pub fn register() -> Result<Register, CommandError> {
    let state = StateDir::of_process().map_err(|error| {
        CommandError::new(
            ExitCode::Failed,
            format!("there is no state directory: {error}"),
        )
        .hint(NO_STATE)
    })?;
    // First of all: a team directory can be in it. An error is reported where the directory is
    // needed.
    if let Err(error) = state.restore_mode() {
        tracing::debug!("{error}");
    }
    Ok(Register::new(state))
}

/// Checks that the register knows a team directory.
///
/// # Errors
/// An error of this code that names the directory, and how a person enters it.
pub fn check(register: &Register, dir: &TeamDir, code: ExitCode) -> Result<(), CommandError> {
    let why = match register.knows(dir) {
        Ok(true) => return Ok(()),
        Ok(false) => format!(
            "the register in {} does not know it",
            register.state().root().display()
        ),
        Err(error) => error.to_string(),
    };
    let path = dir.root().display();
    let message =
        format!("{path} is not used: it was not created by `teamd start` of this user ({why})");
    Err(CommandError::new(code, message).hint(format!(
        "if you know where it comes from, `teamd start --adopt {path}` registers it"
    )))
}

impl From<StateError> for CommandError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Dir(error) => error.into(),
            StateError::Io { .. } => Self::new(ExitCode::Failed, error.to_string()).hint(NO_STATE),
        }
    }
}

/// What to do where the state directory cannot be used.
const NO_STATE: &str =
    "set XDG_STATE_HOME to a directory that is yours alone and that you can write";
