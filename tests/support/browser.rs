//! A real browser without a window, and what drives it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use super::cgroup::note;

/// Returns where Chromium is, if it is here.
pub(crate) fn chromium() -> Option<String> {
    let folders: Vec<PathBuf> = std::env::split_paths(&std::env::var_os("PATH")?).collect();
    let found = ["chromium", "chromium-browser", "google-chrome"]
        .into_iter()
        .find_map(|name| {
            folders
                .iter()
                .map(|folder| folder.join(name))
                .find(|path| path.is_file())
        });
    if found.is_none() {
        note("skipped in a browser: there is no chromium (apt-get install chromium)");
    }
    Some(found?.to_str()?.to_owned())
}

/// Runs a script of `tests/page` with the path of Chromium and these arguments, and returns what it
/// prints; none, and a note, where there is no Chromium, no Node, or no registry to fetch its
/// driver from.
pub(crate) fn drive(script: &str, args: &[&str]) -> Option<String> {
    let browser = chromium()?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page");
    let folder = installed(&sources)?;
    std::fs::copy(sources.join(script), folder.join(script)).unwrap();
    let run = match Command::new("node")
        .arg(folder.join(script))
        .arg(browser)
        .args(args)
        .output()
    {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            note("skipped in a browser: there is no node (apt-get install nodejs)");
            return None;
        }
        run => run.unwrap(),
    };
    assert!(
        run.status.success(),
        "{script}: {}",
        String::from_utf8_lossy(&run.stderr)
    );
    Some(String::from_utf8(run.stdout).unwrap())
}

/// Held by the test that installs the driver: the others wait for it.
static INSTALLS: Mutex<()> = Mutex::new(());

/// Installs the driver, once, in the versions that the lock file pins.
fn installed(sources: &Path) -> Option<PathBuf> {
    // Another test has failed: its installation is looked at anew.
    let _guard = INSTALLS.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(&folder).unwrap();
    let lock = std::fs::read(sources.join("package-lock.json")).unwrap();
    if std::fs::read(folder.join("done")).is_ok_and(|done| done == lock) {
        return Some(folder);
    }
    for file in ["package.json", "package-lock.json"] {
        std::fs::copy(sources.join(file), folder.join(file)).unwrap();
    }
    let npm = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    match Command::new("npm").args(npm).current_dir(&folder).output() {
        Ok(run) if run.status.success() => {
            std::fs::copy(sources.join("package-lock.json"), folder.join("done")).unwrap();
        }
        Ok(run) => {
            let why = String::from_utf8_lossy(&run.stderr)
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            note(&format!(
                "skipped with axe: `npm ci` cannot fetch it: {why}"
            ));
            return None;
        }
        Err(_) => {
            note("skipped with axe: there is no npm (apt-get install npm)");
            return None;
        }
    }
    Some(folder)
}
