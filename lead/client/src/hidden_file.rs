//! The files of keys and credentials, which no command of a teammate can read.

use std::fs::{self, File};
use std::path::{Path, PathBuf, absolute};

use teamd_shared::user_dirs::login_dir;

use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Where such a file can be.
#[derive(Debug, Clone, Copy)]
pub enum HiddenPlace {
    /// `~/.ssh`: keys.
    Ssh,
    /// `~/.config/nats`, or where a container has its secrets: credentials.
    Nats,
}

impl HiddenPlace {
    /// Returns the directories, the first one below the home directory. The sandbox hides them all.
    fn directories(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Ssh => (".ssh", None),
            Self::Nats => (".config/nats", Some("/run/secrets")),
        }
    }
}

/// Finds a file where no teammate on this machine can read it. `what` names it: "key".
///
/// # Errors
/// [`CommandError`] if it cannot be read, or is elsewhere.
pub fn hidden_file(named: &Path, what: &str, place: HiddenPlace) -> Result<PathBuf, CommandError> {
    let usage = |why: String, hint: &str| CommandError::new(ExitCode::Usage, why).hint(hint);
    let shown = named.display();
    let from = "name a file that you can read";
    // What is no file, such as a named pipe, would not answer.
    if named.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        return Err(usage(format!("the {what} {shown} is no file"), from));
    }
    let readable = File::open(named).and_then(|_| fs::canonicalize(named));
    let file = readable
        .map_err(|error| usage(format!("cannot read the {what} {shown}: {error}"), from))?;
    let (below_home, elsewhere) = place.directories();
    let home = login_dir(|name| std::env::var_os(name)).map(|home| home.join(below_home));
    let directories = home.ok().into_iter().chain(elsewhere.map(PathBuf::from));
    let hidden: Vec<PathBuf> = directories
        .filter_map(|directory| fs::canonicalize(directory).ok())
        .collect();
    if hidden.iter().any(|hidden| file.starts_with(hidden)) {
        // What a link in there leads to can change, as with a mounted secret: the link counts.
        let named = absolute(named).unwrap_or_else(|_| file.clone());
        let is_hidden = hidden.iter().any(|hidden| named.starts_with(hidden));
        return Ok(if is_hidden { named } else { file });
    }
    Err(usage(
        format!(
            "the {what} {shown} is not in ~/{below_home}, so teammates on this machine could use it"
        ),
        &format!("move it to ~/{below_home}, which no teammate can open"),
    ))
}
