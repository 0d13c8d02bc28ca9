//! The directories of a user, and the names of what is kept in them for a path.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::team_dir::TEAM;

/// Finds the directory of a user's own configuration, `$XDG_CONFIG_HOME/teamd` (else
/// `~/.config/teamd`).
///
/// # Errors
/// As `state_dir`.
pub fn config_dir(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<PathBuf> {
    of_user(variable, "XDG_CONFIG_HOME", ".config")
}

/// Finds the directory where a user's commands keep their state, `$XDG_STATE_HOME/teamd` (else
/// `~/.local/state/teamd`). A user without a home in the environment has the one that the system
/// knows.
///
/// # Errors
/// If neither names a directory.
pub(crate) fn state_dir(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<PathBuf> {
    of_user(variable, "XDG_STATE_HOME", ".local/state")
}

/// Finds the directory of what a user's commands have installed, `$XDG_DATA_HOME/teamd` (else
/// `~/.local/share/teamd`).
///
/// # Errors
/// As `state_dir`.
pub(crate) fn data_dir(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<PathBuf> {
    of_user(variable, "XDG_DATA_HOME", ".local/share")
}

/// Finds the team directory of the host daemon that serves a home, `hosts/HOME-ID/.team` among what
/// a user's commands have installed.
///
/// # Errors
/// As `state_dir`.
pub fn host_team_dir(
    variable: impl Fn(&str) -> Option<OsString>,
    home: Uuid,
) -> io::Result<PathBuf> {
    let hosts = data_dir(variable)?.join("hosts");
    Ok(hosts.join(home.to_string()).join(TEAM))
}

/// Finds the home directory of the user, as a login shell would.
///
/// # Errors
/// If neither `HOME` nor the system names one.
pub fn login_dir(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<PathBuf> {
    home_of(&variable).ok_or_else(|| io::Error::other("HOME does not name a directory"))
}

fn home_of(variable: &impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("HOME").map(PathBuf::from);
    named.filter(|path| path.is_absolute()).or_else(|| {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
        user.ok().flatten().map(|user| user.dir)
    })
}

fn of_user(
    variable: impl Fn(&str) -> Option<OsString>,
    name: &str,
    below_home: &str,
) -> io::Result<PathBuf> {
    let named = variable(name).map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    let base = named.or_else(|| home_of(&variable).map(|home| home.join(below_home)));
    let base =
        base.ok_or_else(|| io::Error::other(format!("neither {name} nor HOME names a directory")))?;
    Ok(base.join("teamd"))
}

/// Returns a name of 16 hex digits for a path (FNV-1a). Two paths can have the same name: what is
/// stored under it must name its path.
pub(crate) fn name_of(path: &Path) -> String {
    let hash = path
        .as_os_str()
        .as_bytes()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    format!("{hash:016x}")
}
