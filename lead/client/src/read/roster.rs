//! What `config.json` shows of the team, and whether that is still true. Reads files and `/proc`
//! only.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use teamd_shared::config::{ConfigError, Roster, RosterMember};
use teamd_shared::inbox::{ReadError, count_lines, position_at};
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::{Identity, boot_id};
use teamd_shared::suggest;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript;
use teamd_shared::watch::SLOW_TICK;

use crate::daemon_lock::is_locked;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::clock;
use crate::print::grouping::natural;
use crate::read::journal;
use crate::read::top_changes::TopChanges;

/// How long a daemon may take to write the roster again: it checks it on its slow tick at the
/// latest, which may be late.
const REPAIR: Duration = Duration::from_secs(2 * SLOW_TICK.as_secs());
/// How long it may take to record the end of a process.
const RECORDED: Duration = Duration::from_secs(5);

/// A roster, and the daemon that runs by it.
#[derive(Debug, PartialEq)]
pub struct LoadedRoster {
    /// The roster; an empty one if no daemon ever ran here.
    pub roster: Roster,
    /// The pid of the daemon; none if none runs.
    pub daemon: Option<u32>,
}

/// Reads the roster; an empty one if no daemon ever ran here.
///
/// # Errors
/// [`ExitCode::Failed`] if it cannot be read or understood.
pub fn load(dir: &TeamDir) -> Result<Roster, CommandError> {
    Ok(load_with_daemon(dir)?.roster)
}

/// As [`load`], and tells which daemon runs.
///
/// # Errors
/// As [`load`].
pub fn load_with_daemon(dir: &TeamDir) -> Result<LoadedRoster, CommandError> {
    load_by(dir, &Roster::load)
}

/// Reads the roster as far as it concerns one member; an empty one if no daemon ever ran here.
///
/// # Errors
/// As [`load`].
pub fn load_one(dir: &TeamDir, name: &Name) -> Result<Roster, CommandError> {
    Ok(load_by(dir, &|dir| Roster::load_one(dir, name))?.roster)
}

type Loading<'a> = &'a dyn Fn(&TeamDir) -> Result<Option<Roster>, ConfigError>;

fn load_by(dir: &TeamDir, loading: Loading<'_>) -> Result<LoadedRoster, CommandError> {
    let loaded = load_or_wait(dir, loading)?;
    if loaded.is_none() && !journal::fold(dir)?.members.is_empty() {
        let message = "config.json is missing, and journal.jsonl has teammates";
        return Err(
            CommandError::new(ExitCode::Failed, message).hint("`teamd start` writes it again")
        );
    }
    let mut roster = loaded.unwrap_or_default();
    // The roster of a copied team directory names the processes of the original.
    if roster
        .daemon
        .as_ref()
        .is_some_and(|daemon| daemon.is_of_another(dir))
    {
        for member in &mut roster.members {
            member.pid = None;
            member.start_ticks = None;
        }
        roster.daemon = None;
    }
    // The lock shows whether a daemon runs. It may be one that could not write the roster yet: the
    // journal names it.
    let mut daemon = daemon_pid(&roster);
    let is_locked = is_locked(dir);
    if daemon.is_some() && !is_locked {
        roster.daemon = None;
        daemon = None;
    }
    if daemon.is_none() && is_locked {
        let named = journal::fold(dir).ok().and_then(|team| team.daemon);
        if let Some(named) = named
            && !named.is_of_another(dir)
        {
            roster.daemon = Some(named);
            daemon = daemon_pid(&roster);
        }
    }
    Ok(LoadedRoster { roster, daemon })
}

/// Loads the roster. A daemon that runs replaces a deleted or damaged one in a moment: to answer
/// from nothing meanwhile would be a lie.
fn load_or_wait(dir: &TeamDir, loading: Loading<'_>) -> Result<Option<Roster>, ConfigError> {
    let is_whole =
        |loaded: &Result<_, _>| !matches!(loaded, Ok(None) | Err(ConfigError::Malformed(_)));
    until(dir, REPAIR, &|| loading(dir), &|loaded| {
        is_whole(loaded) || !is_locked(dir)
    })
}

/// Looks again after each change, until that is what is awaited or the time is over.
fn until<T>(
    dir: &TeamDir,
    time: Duration,
    look: &dyn Fn() -> T,
    is_awaited: &dyn Fn(&T) -> bool,
) -> T {
    let began = Instant::now();
    let mut seen = look();
    let mut changes = None;
    while !is_awaited(&seen) && began.elapsed() < time {
        match &changes {
            None => changes = Some(TopChanges::of(dir)),
            Some(changes) => changes.wait(time.saturating_sub(began.elapsed())),
        }
        seen = look();
    }
    seen
}

/// As [`load_one`], once the daemon has recorded the end of a process that is gone: in a moment it
/// will have.
///
/// # Errors
/// As [`load`].
pub fn load_after_end(dir: &TeamDir, name: &Name) -> Result<Roster, CommandError> {
    // What cannot be seen does not become visible by waiting.
    until(dir, RECORDED, &|| load_one(dir, name), &|roster| {
        !roster.as_ref().is_ok_and(|roster| {
            roster
                .member(name)
                .is_some_and(|member| roster.process_is_gone(member).unwrap_or(false))
        })
    })
}

/// Waits until the roster shows the end of these incarnations, which the daemon has recorded.
///
/// # Errors
/// As [`load`].
pub fn until_ended(dir: &TeamDir, names: &[Name]) -> Result<(), CommandError> {
    let first = load(dir)?;
    until(dir, RECORDED, &|| load(dir), &|roster| {
        !roster
            .as_ref()
            .is_ok_and(|roster| names.iter().any(|name| still_runs(&first, roster, name)))
    })
    .map(drop)
}

/// Waits until the roster shows what this line of the journal records.
///
/// # Errors
/// As [`load`].
pub fn until_shown(dir: &TeamDir, seq: u64) -> Result<(), CommandError> {
    until(dir, RECORDED, &|| load(dir), &|roster| {
        !roster.as_ref().is_ok_and(|roster| roster.seq < seq)
    })
    .map(drop)
}

/// Tells whether the incarnation that ran first has not ended.
fn still_runs(first: &Roster, now: &Roster, name: &Name) -> bool {
    match (first.member(name), now.member(name)) {
        (Some(first), Some(now)) => {
            !first.status.is_ended()
                && !now.status.is_ended()
                && first.incarnation == now.incarnation
        }
        _ => false,
    }
}

/// Finds a member.
///
/// # Errors
/// [`ExitCode::NotFound`] if it is not on the roster.
pub fn find<'r>(roster: &'r Roster, name: &Name) -> Result<&'r RosterMember, CommandError> {
    roster.member(name).ok_or_else(|| unknown(roster, name))
}

/// As [`find`] in a roster that was read as far as it concerns this member: the error also
/// names the others.
///
/// # Errors
/// As [`find`], or if the whole roster cannot be read.
pub fn find_one<'r>(
    dir: &TeamDir,
    roster: &'r Roster,
    name: &Name,
) -> Result<&'r RosterMember, CommandError> {
    match roster.member(name) {
        Some(member) => Ok(member),
        None => Err(unknown(&load(dir)?, name)),
    }
}

/// Makes the error of a name that is not on the roster.
pub fn unknown(roster: &Roster, name: &Name) -> CommandError {
    if *name == Name::lead() {
        return CommandError::new(ExitCode::NotFound, "there is no lead agent")
            .hint("`teamctl chat` starts one");
    }
    let names = roster.members.iter().map(|member| member.name.as_str());
    let (wrong, hint) = suggest::unknown_teammate(name.as_str(), names);
    CommandError::new(ExitCode::NotFound, wrong).hint(hint)
}

/// Returns the pid of the daemon, if it runs.
pub fn daemon_pid(roster: &Roster) -> Option<u32> {
    roster
        .daemon
        .as_ref()
        .filter(|daemon| daemon.process.is_alive())
        .map(|daemon| daemon.process.pid)
}

/// Tells whether a member runs, as far as roster and processes show.
pub fn runs(roster: &Roster, member: &RosterMember) -> bool {
    !member.status.is_ended()
        && (daemon_pid(roster).is_some() || has_process(boot_of(roster).as_deref(), member))
}

/// Returns the names of the members that run.
pub fn running_names(roster: &Roster) -> BTreeSet<Name> {
    names_of(&running(roster))
}

/// As [`running_names`], where it is known whether a daemon runs.
pub fn running_names_with(roster: &Roster, has_daemon: bool) -> BTreeSet<Name> {
    names_of(&running_with(roster, has_daemon))
}

fn names_of(members: &[&RosterMember]) -> BTreeSet<Name> {
    members.iter().map(|member| member.name.clone()).collect()
}

/// Returns the members that run, as far as roster and processes show.
pub fn running(roster: &Roster) -> Vec<&RosterMember> {
    running_with(roster, daemon_pid(roster).is_some())
}

fn running_with(roster: &Roster, has_daemon: bool) -> Vec<&RosterMember> {
    let mut members: Vec<&RosterMember> = roster.members.iter().collect();
    members.retain(|member| !member.status.is_ended());
    if !has_daemon {
        let boot = boot_of(roster);
        members.retain(|member| has_process(boot.as_deref(), member));
    }
    members
}

/// Returns these names, each once; with `all` every member that runs, except the lead agent, which
/// leads the team and is included only by its name. As in `teamd stop`, the teammate that was
/// spawned last goes first.
///
/// # Errors
/// As [`load`].
pub fn named_or_running(
    dir: &TeamDir,
    names: &[Name],
    all: bool,
) -> Result<Vec<Name>, CommandError> {
    let mut names = names.to_vec();
    if all {
        let roster = load(dir)?;
        let mut members = running(&roster);
        members.retain(|member| member.name != Name::lead());
        members.sort_by_key(|member| std::cmp::Reverse(member.spawned_seq));
        names = members
            .into_iter()
            .map(|member| member.name.clone())
            .collect();
    }
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    Ok(names)
}

/// Says for whom a command waits, and what they do.
pub fn waited_for(roster: &Roster, names: &[Name]) -> String {
    let mut names: Vec<&Name> = names.iter().collect();
    names.sort_by(|a, b| natural(a.as_str(), b.as_str()));
    let each: Vec<String> = names
        .iter()
        .map(|name| with_activity(roster, name))
        .collect();
    format!("waiting for {}: {}", names.len(), each.join(", "))
}

fn with_activity(roster: &Roster, name: &Name) -> String {
    match roster.member(name) {
        Some(RosterMember {
            host: Some(host),
            unreachable_since: Some(since),
            ..
        }) => format!(
            "{name} ({host} is unreachable since {})",
            clock::time_of_day(*since)
        ),
        Some(member) if !member.activity.is_empty() => format!("{name} ({})", member.activity),
        _ => name.to_string(),
    }
}

/// Tells whether the process of a member is there. A daemon that runs records in a moment that it
/// is gone.
fn has_process(boot: Option<&str>, member: &RosterMember) -> bool {
    // Only its host can tell.
    if member.host.is_some() {
        return true;
    }
    match (member.pid, member.start_ticks, boot) {
        (Some(pid), Some(start_ticks), Some(boot)) => Identity {
            pid,
            start_ticks,
            boot_id: boot.to_owned(),
        }
        .is_alive(),
        (Some(_), Some(_), None) => true,
        _ => false,
    }
}

/// Returns the boot in which the workers began; none if that cannot be known. It was the same as
/// that of the daemon that last ran, or that daemon would have recorded their ends.
fn boot_of(roster: &Roster) -> Option<String> {
    roster
        .daemon
        .as_ref()
        .map(|daemon| daemon.process.boot_id.clone())
        .or_else(|| boot_id().ok())
}

/// Counts the unread messages of a member.
///
/// # Errors
/// [`ExitCode::Failed`] if inbox or transcript cannot be read.
pub fn unread(dir: &TeamDir, member: &RosterMember) -> Result<u64, CommandError> {
    let recorded = transcript::position(dir, &member.name)?;
    let ended = member.exit.as_ref().map(|exit| exit.inbox);
    let from = match member.host_read {
        // The transcript is a copy: its positions are those of the inbox on the host.
        Some(read) if ended.is_none() => position_at(dir, &member.name, read)?,
        _ if member.host.is_some() => ended.unwrap_or(Position::START),
        _ => recorded.or(ended).unwrap_or(Position::START),
    };
    match count_lines(dir, &member.name, from) {
        Ok(count) => Ok(count.mail),
        Err(ReadError::NoInbox(_)) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Tells whether an idle teammate has nothing more to do. The roster follows a moment after the
/// files, and a user who has just sent a message wants to wait for what comes of it.
///
/// # Errors
/// [`ExitCode::Failed`] if inbox or transcript cannot be read.
pub fn is_at_rest(dir: &TeamDir, member: &RosterMember) -> Result<bool, CommandError> {
    if member.status != MemberStatus::Idle {
        return Ok(true);
    }
    let last = transcript::last_entry(dir, &member.name)?;
    let rests = last.is_none_or(|entry| entry.event.is_rest(&member.name));
    Ok(rests && unread(dir, member)? == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{member, runtime, team};
    use serde_json::json;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn a_roster_that_was_never_written_is_empty() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let roster = load(&dir).unwrap();
        assert!(roster.members.is_empty() && daemon_pid(&roster).is_none());
        assert_eq!(
            find(&roster, &Name::new("bob").unwrap())
                .unwrap_err()
                .code(),
            ExitCode::NotFound
        );
    }

    #[test]
    fn a_roster_that_a_daemon_is_about_to_replace_is_waited_for() {
        let (_scratch, dir) = team(&json!([member("alice", "idle")]));
        let whole = dir.read(&TeamPath::config()).unwrap();
        dir.remove(&TeamPath::config()).unwrap();
        let lock = std::fs::File::open(dir.root()).unwrap();
        lock.lock().unwrap();
        let began = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runtime().block_on(async {
                    let moment = Duration::from_millis(50);
                    tokio::time::sleep(moment).await;
                });
                teamd_shared::fs::replace(&dir, &TeamPath::config(), &whole).unwrap();
            });
            assert_eq!(load(&dir).unwrap().members.len(), 1);
        });
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "the change woke it"
        );
    }

    #[test]
    fn a_process_that_is_gone_without_a_daemon_is_noticed() {
        let mut gone = member("gone", "working");
        gone["start_ticks"] = json!(1);
        let (_scratch, dir) = team(&json!([
            member("here", "idle"),
            gone,
            member("ended", "shutdown")
        ]));
        let roster = load(&dir).unwrap();
        let runs: Vec<bool> = roster
            .members
            .iter()
            .map(|member| runs(&roster, member))
            .collect();
        assert_eq!(
            (runs, running(&roster).len()),
            (vec![true, false, false], 1)
        );
    }
}
