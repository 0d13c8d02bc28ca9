//! What commands ask of the journal. They never write it.

use teamd_shared::id::RequestId;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::journal::{Daemon, MemberEvent, Record, Team, TeamEvent};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::request::Status as Answer;
use teamd_shared::team_dir::TeamDir;

use crate::error::CommandError;
use crate::print::render::count;

/// How many names are listed before only the number of the others is.
const LISTED: usize = 8;

/// Folds the journal from its last snapshot on; an empty team if there is none yet. A torn last
/// line is not there yet.
///
/// # Errors
/// [`crate::exit_code::ExitCode::Failed`] if a line cannot be read.
pub fn fold(dir: &TeamDir) -> Result<Team, CommandError> {
    Ok(load(dir, Since::Snapshot, |_, _| {})?)
}

/// Tells whether a daemon has recorded that it stopped, with no worker left.
///
/// # Errors
/// As [`fold`].
pub(crate) fn ended_in_order(dir: &TeamDir, daemon: &Identity) -> Result<bool, CommandError> {
    let mut runs = false;
    let mut ended = false;
    load(dir, Since::Snapshot, |_, line| match &line.record {
        Record::Snapshot(snapshot) => runs = is_process(&snapshot.daemon, daemon),
        Record::Team(record) if record.event == TeamEvent::Started => {
            runs = is_process(&record.daemon, daemon)
        }
        Record::Team(record) if record.event == TeamEvent::Stopped => ended |= runs,
        _ => {}
    })?;
    Ok(ended)
}

fn is_process(daemon: &Option<Daemon>, process: &Identity) -> bool {
    daemon
        .as_ref()
        .is_some_and(|daemon| daemon.process == *process)
}

/// What the last daemon that started found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// The workers that it adopted.
    pub adopted: Vec<Name>,
    /// The workers that had ended meanwhile.
    pub ended: Vec<Name>,
    /// The line that recorded the last of them; 0 if none did.
    pub seq: u64,
    /// The workers of which neither is recorded yet.
    pub unrecorded: Vec<Name>,
    /// The requests that were pending, and expired because their teammate had ended.
    pub expired: Vec<RequestId>,
    /// The requests that are still pending.
    pub pending: Vec<RequestId>,
    /// How long the torn end of the journal was that it set aside, which the journal itself does
    /// not show.
    pub torn: Option<usize>,
    /// What became of an unreadable roster, which the journal does not show either.
    pub roster: Option<String>,
}

/// Returns what the last daemon that started found.
///
/// # Errors
/// As [`fold`].
pub fn taken_over(dir: &TeamDir) -> Result<TakenOver, CommandError> {
    // Mostly that daemon started after the last snapshot.
    match taken_over_since(dir, Since::Snapshot)? {
        Some(taken) => Ok(taken),
        None => Ok(taken_over_since(dir, Since::Start)?.unwrap_or_default()),
    }
}

fn taken_over_since(dir: &TeamDir, since: Since) -> Result<Option<TakenOver>, CommandError> {
    let mut taken = TakenOver::default();
    let mut started = false;
    let mut open: Vec<(Name, RequestId)> = Vec::new();
    let team = load(dir, since, |team, line| match &line.record {
        Record::Team(record) if record.event == TeamEvent::Started => {
            started = true;
            let alive = team
                .members
                .iter()
                .filter(|(_, state)| !state.record.phase.is_ended())
                // A host reports its own when it is reached.
                .filter(|(_, state)| state.record.terms.host.is_none());
            let unrecorded = alive.map(|(name, _)| name.clone()).collect();
            taken = TakenOver {
                unrecorded,
                ..Default::default()
            };
            open = taken
                .unrecorded
                .iter()
                .flat_map(|name| {
                    team.pending_of(name)
                        .map(|it| (name.clone(), it.request_id.clone()))
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        Record::Member(record)
            if matches!(record.event, MemberEvent::Adopted | MemberEvent::Exited) =>
        {
            let names: Vec<Name> = taken
                .unrecorded
                .extract_if(.., |name| *name == record.member.name)
                .collect();
            if !names.is_empty() {
                taken.seq = line.seq;
            }
            match record.event {
                MemberEvent::Adopted => taken.adopted.extend(names),
                _ => taken.ended.extend(names),
            }
        }
        _ => {}
    })?;
    for (name, id) in open {
        let request = team.requests.get(&id);
        let is_expired = request.is_some_and(|request| request.status == Answer::Expired);
        if is_expired && taken.ended.contains(&name) {
            taken.expired.push(id);
        }
    }
    let pending = team
        .requests
        .values()
        .filter(|request| request.is_pending());
    taken.pending = pending.map(|request| request.request_id.clone()).collect();
    Ok(started.then_some(taken))
}

/// Lists the first names, and counts the others.
fn list(names: &[Name]) -> String {
    let first: Vec<&str> = names.iter().take(LISTED).map(Name::as_str).collect();
    match names.len().saturating_sub(LISTED) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

impl std::fmt::Display for TakenOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let expired = self.expired.len();
        let pending = self.pending.len();
        let parts = [
            (!self.adopted.is_empty()).then(|| format!("adopted {}", list(&self.adopted))),
            (!self.ended.is_empty()).then(|| format!("ended meanwhile: {}", list(&self.ended))),
            (!self.unrecorded.is_empty()).then(|| {
                format!(
                    "not recorded yet: {} (`teamctl log teamd` shows why)",
                    list(&self.unrecorded)
                )
            }),
            (expired > 0).then(|| format!("{} expired with that", count(expired, "request"))),
            (pending > 0).then(|| format!("{} without an answer", count(pending, "request"))),
            self.torn.map(|length| {
                format!("the torn end of journal.jsonl ({length} bytes) is kept in journal.torn")
            }),
            self.roster.clone(),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::asked;
    use serde_json::json;
    use teamd_shared::team_dir::TeamPath;

    #[test]
    fn a_torn_last_line_is_not_there_yet_and_a_broken_one_is_named() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        assert!(fold(&dir).unwrap().requests.is_empty());
        let write = |content: String| {
            teamd_shared::fs::replace(&dir, &TeamPath::journal(), content.as_bytes()).unwrap()
        };
        write(asked(1, "a1", "shutdown") + &asked(2, "a2", "shutdown")[..40]);
        assert_eq!(fold(&dir).unwrap().requests.len(), 1);
        write(asked(1, "a1", "shutdown") + "{\n" + &asked(2, "a2", "shutdown"));
        assert!(
            fold(&dir)
                .unwrap_err()
                .message()
                .starts_with("line 2 of journal.jsonl cannot be read: ")
        );
    }

    #[test]
    fn the_end_of_a_daemon_is_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let identity = |pid: u32| Identity {
            pid,
            start_ticks: 7,
            boot_id: "b".to_owned(),
        };
        assert!(!ended_in_order(&dir, &identity(1)).unwrap());
        let line = |seq: u64, event: &str, pid: Option<u32>| {
            let daemon = pid.map(
                |pid| json!({"pid": pid, "start_ticks": 7, "boot_id": "b", "started_at": 1.0}),
            );
            let line = json!({"seq": seq, "at": 1.0, "done": 0, "record": "team", "event": event, "team_name": "t",
                "daemon": daemon, "rejected": []});
            format!("{line}\n")
        };
        // The first one crashed, the second one stopped, the third one runs.
        let journal = [
            line(1, "started", Some(1)),
            line(2, "started", Some(2)),
            line(3, "stopped", None),
            line(4, "started", Some(3)),
        ];
        std::fs::File::create(dir.path(&TeamPath::journal())).unwrap();
        teamd_shared::fs::replace(&dir, &TeamPath::journal(), journal.concat().as_bytes()).unwrap();
        let ended = [1, 2, 3].map(|pid| ended_in_order(&dir, &identity(pid)).unwrap());
        assert_eq!(ended, [false, true, false]);
    }

    #[test]
    fn only_a_recorded_end_is_told() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let started = |seq: u64| {
            json!({"seq": seq, "at": 1.0, "done": 0, "record": "team", "event": "started", "team_name": "t",
                "daemon": null})
            .to_string()
                + "\n"
        };
        let spawned = crate::testing::spawned(2, "alice");
        let journal = [started(1), spawned, started(3)].concat();
        teamd_shared::fs::replace(&dir, &TeamPath::journal(), journal.as_bytes()).unwrap();
        let found = taken_over(&dir).unwrap();
        assert_eq!((found.ended.len(), found.unrecorded.len()), (0, 1));
        assert!(
            found.to_string().starts_with("not recorded yet: alice"),
            "{found}"
        );
    }
}
