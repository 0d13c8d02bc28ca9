//! `config.json`: the projection of the state for people and tools. The only place that writes it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use teamd_shared::config::{ConfigError, Roster, RosterMember, TeamSandbox, VERSION, roster_text};
use teamd_shared::fs::replace;
use teamd_shared::journal::reader::version_of;
use teamd_shared::journal::{MemberState, Team};
use teamd_shared::member::{Doing, MemberStatus};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, Stamp, TeamDir, TeamPath};

use crate::confinement::TeamConfinement;
use crate::core::incarnation::Incarnation;
use crate::core::runtime::{LastSaid, Runtime};
use crate::core::status::status;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

/// How long a change that no command waits for (idle, working) may wait to be written together with
/// others.
const LAZY: Duration = Duration::from_millis(20);

/// How much is written in a second for changes that no command waits for, in bytes: the file is
/// written whole, and a thousand members who begin and end a piece of work all the time would have
/// half a megabyte written for each change.
const LAZY_RATE: usize = 4 << 20;

/// Why a file is kept aside: it cannot be read, or there is another one in its place.
pub(crate) const UNREADABLE: &str = "unreadable";
/// See [`UNREADABLE`].
pub(crate) const REPLACED: &str = "replaced";

/// The roster's file. Members are kept as text: a change costs one member, not all of them.
#[derive(Debug, Default)]
pub(crate) struct RosterFile {
    lines: BTreeMap<Name, ShownMember>,
    /// How often a line has changed.
    changes: u64,
    dirty: Option<Instant>,
    /// The file that was written last.
    written: Option<Stamp>,
    /// Until when a change that no command waits for waits, since something was written just now.
    rests: Option<Instant>,
    sandbox: TeamSandbox,
}

#[derive(Debug)]
struct ShownMember {
    text: String,
    status: MemberStatus,
    since: f64,
    /// The number of the change that made the text.
    change: u64,
}

/// What is in the place of the roster.
pub(crate) enum OnDisk {
    /// Nothing.
    Nothing,
    /// A roster.
    Roster(Roster),
    /// Something that cannot be read.
    Unreadable,
}

/// Moves the file aside, under a name that says why; returns where to.
pub(crate) fn set_aside(dir: &TeamDir, why: &str, wall: f64) -> Result<String, DirError> {
    let aside = aside(why, wall);
    dir.rename(&TeamPath::config(), &aside)?;
    Ok(aside.to_string())
}

fn aside(why: &str, wall: f64) -> TeamPath {
    TeamPath::config().with_suffix(&format!(".{why}-{wall:.3}"))
}

impl RosterFile {
    /// Makes an empty roster of a team whose commands are confined like this.
    pub(crate) fn new(confinement: &TeamConfinement) -> Self {
        let layers = confinement.layers.to_string();
        let weak = confinement.weakness.clone();
        Self {
            sandbox: TeamSandbox { layers, weak },
            ..Self::default()
        }
    }

    /// Looks at the file that is there, and leaves it there.
    ///
    /// # Errors
    /// [`ExitCode::Failed`] for a roster that a newer program wrote: it is never written over. Also
    /// if the system refuses.
    pub(crate) fn find(dir: &TeamDir) -> Result<OnDisk, CommandError> {
        let (found, version) = match Roster::load(dir) {
            Ok(Some(roster)) => {
                let version = roster.version;
                (OnDisk::Roster(roster), Some(version))
            }
            Ok(None) => (OnDisk::Nothing, None),
            Err(ConfigError::Dir(error)) => return Err(error.into()),
            Err(ConfigError::Malformed(_)) => (
                OnDisk::Unreadable,
                version_of(&dir.read(&TeamPath::config())?),
            ),
        };
        match version.filter(|&version| version > VERSION) {
            Some(newer) => {
                let message =
                    format!("config.json has version {newer}, this program knows {VERSION}");
                Err(CommandError::new(ExitCode::Failed, message)
                    .hint("nothing was changed; use the newer teamd that wrote it"))
            }
            None => Ok(found),
        }
    }

    /// Returns what the worker of an incarnation last said that it does, and what its conversation
    /// had cost, as an earlier daemon wrote it down.
    pub(crate) fn last_said(before: &Roster, incarnation: &Incarnation) -> Option<LastSaid> {
        let member = before
            .member(&incarnation.name)
            .filter(|member| member.incarnation == incarnation.number)?;
        let doing = match member.status {
            MemberStatus::Idle => Doing::Idle,
            MemberStatus::Working => Doing::Working,
            _ => Doing::Starting,
        };
        (doing != Doing::Starting || !member.usage.is_nothing()).then(|| LastSaid {
            doing,
            usage: member.usage,
            other_models: member.other_models.clone(),
            read: member.host_read.unwrap_or_default(),
            gate: member.host.as_ref().map(|_| member.gate),
        })
    }

    /// Records the present state of a member; `wall` is the time, if a daemon runs.
    pub(crate) fn show(
        &mut self,
        (team, runtime): (&Team, &Runtime),
        name: &Name,
        wall: Option<f64>,
    ) {
        let Some(MemberState {
            record: member,
            spawned,
            ..
        }) = team.members.get(name)
        else {
            self.lines.remove(name);
            self.touch();
            return;
        };
        let incarnation = Incarnation::of(member);
        let state = runtime
            .of(&incarnation)
            .map(|worker| worker.state.clone())
            .unwrap_or_default();
        let status = status(team, runtime, member);
        let before = self
            .lines
            .get(name)
            .filter(|shown| shown.status == status)
            .map(|shown| shown.since);
        // The record of a member says how it ended, and when.
        let since = before
            .or(if !status.is_ended() { wall } else { None })
            .unwrap_or(member.updated_at);
        let mcp = member
            .terms
            .mcp
            .iter()
            .map(|server| server.name.to_string());
        let is_home = member.terms.host.is_none();
        let process = member.process.as_ref().filter(|_| is_home);
        let there = member.process.as_ref().filter(|_| !is_home);
        let shown = RosterMember {
            name: name.clone(),
            role: member.terms.role.clone(),
            status,
            pid: process.map(|process| process.pid),
            start_ticks: process.map(|process| process.start_ticks),
            cgroup: member.cgroup.clone(),
            incarnation: member.incarnation,
            model: member.terms.model.clone(),
            agent: member.terms.program.clone(),
            host: member.terms.host.clone(),
            host_read: (!is_home).then_some(state.read),
            host_pid: there.map(|process| process.pid),
            unreachable_since: if status.is_ended() {
                None
            } else {
                runtime.unreachable_since(member)
            },
            sending: if is_home {
                None
            } else {
                runtime.jobs.submits(&incarnation)
            },
            workspace: member.terms.workspace.clone(),
            checkout: member.terms.checkout.clone(),
            gate: runtime.shown_gate(team, member),
            sandbox: member.terms.sandbox.clone(),
            mcp: mcp.collect(),
            limits: member.terms.limits,
            bounds: member.terms.bounds,
            usage: runtime.usage(member),
            fallback_model: member.terms.fallback_model.clone(),
            other_models: runtime.other_models(member),
            activity: if status.is_ended() {
                String::new()
            } else {
                state.activity
            },
            idle_reason: if status == MemberStatus::Idle {
                state.idle_reason
            } else {
                None
            },
            waiting: if !status.is_ended() {
                state.waiting
            } else {
                None
            },
            spawned_at: member.spawned_at,
            spawned_seq: *spawned,
            updated_at: since,
            exit: if status.is_ended() {
                member.exit.clone()
            } else {
                None
            },
            restarts: member.restarted,
            last_exit: if !status.is_ended() {
                member.exit.clone()
            } else {
                None
            },
            silent_since: member.silent_since,
        };
        let text = serde_json::to_string(&shown).unwrap_or_default();
        let known = self.lines.get(name);
        let change = match known.filter(|known| known.text == text) {
            Some(known) => known.change,
            None => {
                self.touch();
                self.changes += 1;
                self.changes
            }
        };
        self.lines.insert(
            name.clone(),
            ShownMember {
                text,
                status,
                since,
                change,
            },
        );
    }

    /// Says that something of the team itself has changed.
    pub(crate) fn touch(&mut self) {
        self.dirty.get_or_insert_with(Instant::now);
    }

    /// Postpones a write that failed.
    pub(crate) fn postpone(&mut self, pause: Duration) {
        self.dirty = Some(Instant::now() + pause);
    }

    /// Returns when a lazy change must be written at the latest.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.dirty.map(|since| {
            self.rests
                .map_or(since + LAZY, |rests| rests.max(since + LAZY))
        })
    }

    /// Writes the file, if anything has changed.
    pub(crate) fn flush(&mut self, dir: &TeamDir, team: &Team) -> Result<(), DirError> {
        if self.dirty.is_none() {
            return Ok(());
        }
        let text = self.render(team);
        replace(dir, &TeamPath::config(), text.as_bytes())?;
        self.written = dir.stamp(&TeamPath::config())?;
        self.dirty = None;
        self.rests = Some(Instant::now() + rest_after(text.len()));
        Ok(())
    }

    /// Examines whether the file that was written last is still there. If not, the file in its
    /// place is moved aside (unless it is a roster like ours), and the roster is to be written
    /// again. Returns what to tell.
    ///
    /// # Errors
    /// [`DirError`] if the system refuses.
    pub(crate) fn look_after(
        &mut self,
        dir: &TeamDir,
        wall: f64,
    ) -> Result<Option<String>, DirError> {
        let present = dir.stamp(&TeamPath::config())?;
        if self.written.is_none() || present == self.written {
            return Ok(None);
        }
        self.touch();
        match Roster::load(dir) {
            Ok(None) => Ok(Some(
                "config.json was deleted: it is written again".to_owned(),
            )),
            Ok(Some(roster)) if roster.version <= VERSION => Ok(Some(
                "config.json was changed by another process: it is written again".to_owned(),
            )),
            Ok(Some(_)) | Err(_) => {
                let aside = set_aside(dir, UNREADABLE, wall)?;
                Ok(Some(format!(
                    "config.json was no longer a roster: it was kept as {aside} and is written again"
                )))
            }
        }
    }

    /// Returns how often a line has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the lines of members that have changed since so many changes; all of them if none.
    pub(crate) fn changed_since(&self, change: Option<u64>) -> impl Iterator<Item = (&Name, &str)> {
        let lines = self.lines.iter();
        let new = lines.filter(move |(_, shown)| change.is_none_or(|since| shown.change > since));
        new.map(|(name, shown)| (name, shown.text.as_str()))
    }

    /// Returns what stands before the members.
    pub(crate) fn head(&self, team: &Team) -> String {
        let daemon = serde_json::to_string(&team.daemon).unwrap_or_else(|_| "null".to_owned());
        let name = serde_json::to_string(&team.team_name).unwrap_or_else(|_| "\"\"".to_owned());
        let sandbox = serde_json::to_string(&self.sandbox).unwrap_or_else(|_| "null".to_owned());
        let seq = team.seq;
        format!(
            "{{\"version\":{VERSION},\"seq\":{seq},\"team_name\":{name},\n\"daemon\":{daemon},\n\"sandbox\":{sandbox},\n"
        )
    }

    fn render(&self, team: &Team) -> String {
        let members = self.lines.values().map(|shown| shown.text.as_str());
        roster_text(&self.head(team), members)
    }
}

/// Returns how long nothing is written that no command waits for, after so many bytes.
pub(crate) fn rest_after(bytes: usize) -> Duration {
    Duration::from_secs(1).mul_f64(bytes as f64 / LAZY_RATE as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes whenever something is due, while a member changes every millisecond for ten seconds;
    /// returns how often.
    fn writes(bytes: usize) -> u32 {
        let began = Instant::now();
        let mut file = RosterFile::default();
        let mut writes = 0;
        for millisecond in 0..10_000 {
            let now = began + Duration::from_millis(millisecond);
            file.dirty.get_or_insert(now);
            if file.due().is_some_and(|due| due <= now) {
                writes += 1;
                file.dirty = None;
                file.rests = Some(now + rest_after(bytes));
            }
        }
        writes
    }

    #[test]
    fn lazy_writes_do_not_grow_with_the_team() {
        assert!(
            (400..=500).contains(&writes(5_000)),
            "ten members: all that comes in 20 ms together"
        );
        for bytes in [50_000, 500_000, 5_000_000] {
            let rate = writes(bytes) as usize * bytes / 10;
            assert!(
                rate <= LAZY_RATE + bytes / 10,
                "{bytes}: {rate} bytes a second"
            );
        }
        assert!(
            writes(500_000) >= 70,
            "and a thousand members are shown several times a second all the same"
        );
    }

    #[test]
    fn a_host_is_told_the_lines_that_have_changed() {
        let mut file = RosterFile::default();
        let shown = |text: &str, change| ShownMember {
            text: text.to_owned(),
            status: MemberStatus::Idle,
            since: 0.0,
            change,
        };
        let name = |text| Name::new(text).unwrap();
        file.lines.insert(name("alice"), shown("a", 3));
        file.lines.insert(name("bob"), shown("b", 4));
        let told = |since| {
            file.changed_since(since)
                .map(|(_, text)| text)
                .collect::<String>()
        };
        assert_eq!(told(None), "ab");
        assert_eq!(told(Some(3)), "b");
        assert_eq!(told(Some(4)), "");
    }

    #[test]
    fn one_change_after_a_rest_is_shown_at_once_however_large_the_team_is() {
        let now = Instant::now();
        let rests = now.checked_sub(Duration::from_millis(1));
        let file = RosterFile {
            dirty: Some(now),
            rests,
            ..RosterFile::default()
        };
        assert_eq!(file.due(), Some(now + LAZY));
    }
}
