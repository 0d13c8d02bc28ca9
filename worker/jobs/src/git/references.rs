//! The names of the user's repository in the team repository, and that of the team in the user's.
//!
//! A job looks whether the user has fetched since: what `git` writes then has another time or size.
//! Only then a script runs.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use teamd_shared::register::Register;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;

use super::repository;
use super::script::{Git, GitFailure, ScriptValues};

pub(super) const REFERENCES: &str =
    concat!(include_str!("names.sh"), include_str!("references.sh"));

/// What is run to note under which name the user is shown what is integrated.
const NOTE: &str = "git config --file \"$T_WRITES/config\" teamd.shown \"$T_SHOWN\"";

/// Takes over the remote-tracking branches and tags of the user if they have changed. If
/// that fails, the job continues without them.
pub(super) async fn refresh(git: &Git<'_>) {
    let noted = Path::new(&git.order.home).join("references");
    let note = fs::read_to_string(&noted).unwrap_or_default();
    if let Some((source, stamp)) = note.split_once('\n')
        && stamp_of(Path::new(source)).is_ok_and(|now| now == stamp)
    {
        return;
    }
    if let Err(why) = take_over(git, &noted).await {
        tracing::warn!(
            "the user's remote-tracking branches are as they were: {}",
            why.text()
        );
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "half a note is one of another time: the script runs again"
)]
async fn take_over(git: &Git<'_>, noted: &Path) -> Result<(), GitFailure> {
    let at = repository(git.order);
    let source = git
        .run("read_source; say source \"$source\"", &at, &[])
        .await?
        .one("source")?;
    // Before they are read: what changes meanwhile is looked at again.
    let stamp = stamp_of(Path::new(&source))?;
    git.run(REFERENCES, &at, &[]).await?;
    fs::write(noted, format!("{source}\n{stamp}"))?;
    Ok(())
}

/// Returns what changes when references of a repository do.
fn stamp_of(source: &Path) -> io::Result<String> {
    let mut stamp = String::new();
    let mut level: Vec<PathBuf> = ["packed-refs", "refs/remotes", "refs/tags", "reftable"]
        .map(|name| source.join(name))
        .into();
    while let Some(at) = level.pop() {
        let metadata = match at.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        stamp.push_str(&format!(
            "{}.{} {} {}\n",
            metadata.mtime(),
            metadata.mtime_nsec(),
            metadata.size(),
            metadata.ino()
        ));
        if metadata.is_dir() {
            let entries = at.read_dir()?.map(|entry| entry.map(|it| it.path()));
            let mut entries = entries.collect::<io::Result<Vec<_>>>()?;
            entries.sort();
            level.extend(entries);
        }
    }
    Ok(stamp)
}

/// Returns the names under which other teams show what they have integrated, each with the
/// repository in which it is, one a line. A team that is gone has none.
pub(super) fn held(home: &Path) -> String {
    let Some(all) = home.parent() else {
        return String::new();
    };
    let mut held = Vec::new();
    for name in living(all) {
        let at = all.join(name);
        if at == home {
            continue;
        }
        // As `git` has written it: no name of ours needs a quote.
        let config = fs::read_to_string(at.join("team.git/config")).unwrap_or_default();
        held.extend(place_of(&config));
    }
    held.join("\n")
}

/// Returns the name and the repository that the configuration of a team repository notes.
fn place_of(config: &str) -> Option<String> {
    let source = unquoted(setting_in(config, "source")?);
    let source =
        fs::canonicalize(&source).map_or(source, |real| real.to_string_lossy().into_owned());
    Some(format!(
        "{} {}",
        setting_in(config, "shown")?,
        source.replace('\n', " ")
    ))
}

/// Returns a setting of ours as `git` has written it.
fn setting_in<'a>(config: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = config.lines().filter_map(|line| line.strip_prefix('\t'));
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))
}

/// Returns a value as it was before `git` wrote it into a configuration.
fn unquoted(value: &str) -> String {
    let mut plain = String::new();
    let mut letters = value.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {}
            '\\' => plain.extend(letters.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                'b' => '\u{8}',
                other => other,
            })),
            other => plain.push(other),
        }
    }
    plain
}

/// Returns the names of the directories of the teams that exist.
fn living(all: &Path) -> Vec<String> {
    let Some(state) = all.parent() else {
        return Vec::new();
    };
    let register = Register::new(StateDir::at(state.to_owned()));
    let (paths, unread) = register
        .all()
        .unwrap_or_else(|error| (Vec::new(), vec![error]));
    for why in unread.iter() {
        tracing::warn!("what a team shows is not known: {why}");
    }
    let dirs = paths.iter().filter_map(|path| TeamDir::open(path).ok());
    dirs.map(|dir| StateDir::name_of_team(&dir)).collect()
}

/// Returns under which name the user is shown what is integrated, as the user would write it.
pub(super) fn shown(git: &Git<'_>) -> Result<String, GitFailure> {
    let config = fs::read_to_string(repository(git.order).join("config"))?;
    let shown = setting_in(&config, "shown").and_then(|name| name.strip_prefix("refs/remotes/"));
    Ok(shown.unwrap_or("team/integration").to_owned())
}

/// Notes under which name the user is shown what is integrated, if it is another one now.
pub(super) async fn note_shown(git: &Git<'_>, values: &ScriptValues) -> Result<(), GitFailure> {
    let shown = values.one("shown")?;
    let at = repository(git.order);
    let config = fs::read_to_string(at.join("config"))?;
    if setting_in(&config, "shown") == Some(&shown) {
        return Ok(());
    }
    tracing::warn!("what is integrated is shown to the user as {shown}");
    git.run(NOTE, &at, &[("SHOWN", &shown)]).await.map(drop)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_noted_with_its_repository_also_if_git_quotes_that() {
        let scratch = tempfile::tempdir().unwrap();
        let source = scratch.path().canonicalize().unwrap().join("a; \"b\"\\c");
        fs::create_dir(&source).unwrap();
        let config = scratch.path().join("config");
        for (name, value) in [
            ("teamd.source", source.as_os_str()),
            ("teamd.shown", "refs/remotes/x/integration".as_ref()),
        ] {
            let git = std::process::Command::new("git")
                .arg("config")
                .arg("--file")
                .arg(&config)
                .arg(name)
                .arg(value)
                .status();
            assert!(git.unwrap().success());
        }
        let config = fs::read_to_string(&config).unwrap();
        assert!(config.contains("\\\""), "git quotes it: {config}");
        assert_eq!(
            place_of(&config),
            Some(format!("refs/remotes/x/integration {}", source.display()))
        );
        assert_eq!(place_of("[core]\n\tbare = true\n"), None);
    }

    #[test]
    fn a_fetch_of_the_user_changes_the_stamp() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path();
        let empty = stamp_of(root).unwrap();
        fs::create_dir_all(root.join("refs/remotes/origin")).unwrap();
        fs::create_dir_all(root.join("refs/heads")).unwrap();
        let made = stamp_of(root).unwrap();
        fs::write(root.join("refs/heads/main"), "1\n").unwrap();
        assert_ne!(empty, made);
        assert_eq!(
            stamp_of(root).unwrap(),
            made,
            "a branch of the user is none of them"
        );
        fs::write(root.join("refs/remotes/origin/main"), "1\n").unwrap();
        let one = stamp_of(root).unwrap();
        fs::write(root.join("packed-refs"), "1 refs/remotes/origin/main\n").unwrap();
        let packed = stamp_of(root).unwrap();
        assert!(made != one && one != packed);
    }
}
