//! The journal, as the commands read it. They never write it.

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, MemberEvent, Record, Team, TeamEvent, read_lines};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::request::Status as Answer;
use teamd_shared::team_dir::{TeamDir, TeamPath};

use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Folds the journal; an empty team if there is none yet. A torn last line is not there yet.
///
/// # Errors
/// [`ExitCode::Failed`] if a line cannot be read.
pub(crate) fn fold(dir: &TeamDir) -> Result<Team, CommandError> {
    let mut team = Team::default();
    each_line(dir, |line| team.apply(line).map_err(|error| error.to_string()))?;
    Ok(team)
}

/// Tells whether a daemon has said that it ended with nobody left.
///
/// # Errors
/// [`ExitCode::Failed`] if a line cannot be read.
pub(crate) fn ended_in_order(dir: &TeamDir, daemon: &Identity) -> Result<bool, CommandError> {
    let (mut runs, mut ended) = (false, false);
    each_line(dir, |line| {
        if let Record::Team(record) = &line.record {
            match (record.event, &record.daemon) {
                (TeamEvent::Started, started) => {
                    runs = started.as_ref().is_some_and(|started| started.process == *daemon);
                }
                (TeamEvent::Stopped, _) => ended |= runs,
                _ => {}
            }
        }
        Ok(())
    })?;
    Ok(ended)
}

/// What the last daemon that started found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TakenOver {
    /// Who goes on.
    pub(crate) adopted: Vec<Name>,
    /// Who had ended meanwhile.
    pub(crate) ended: Vec<Name>,
    /// The requests that wanted an answer, and expired with the ends.
    pub(crate) expired: Vec<RequestId>,
    /// The requests that still want an answer.
    pub(crate) pending: Vec<RequestId>,
    /// How long the torn end of the journal was that it set aside, which the journal itself does not tell.
    pub(crate) torn: Option<usize>,
}

/// Returns what the last daemon that started found.
///
/// # Errors
/// [`ExitCode::Failed`] if a line cannot be read.
pub(crate) fn taken_over(dir: &TeamDir) -> Result<TakenOver, CommandError> {
    let (mut team, mut found) = (Team::default(), TakenOver::default());
    let mut open: Vec<(Name, RequestId)> = Vec::new();
    each_line(dir, |line| {
        team.apply(line).map_err(|error| error.to_string())?;
        match &line.record {
            Record::Team(record) if record.event == TeamEvent::Started => {
                let alive = team.members.iter().filter(|(_, state)| !state.record.phase.is_ended());
                let ended = alive.map(|(name, _)| name.clone()).collect();
                found = TakenOver { ended, ..TakenOver::default() };
                open.clear();
                for name in &found.ended {
                    open.extend(team.pending_of(name).map(|it| (name.clone(), it.request_id.clone())));
                }
            }
            Record::Member(record) if record.event == MemberEvent::Adopted => {
                found.ended.retain(|name| *name != record.member.name);
                found.adopted.push(record.member.name.clone());
            }
            _ => {}
        }
        Ok(())
    })?;
    let expired = |id: &RequestId| team.requests.get(id).is_some_and(|it| it.status == Answer::Expired);
    open.retain(|(name, id)| found.ended.contains(name) && expired(id));
    found.expired = open.into_iter().map(|(_, id)| id).collect();
    let pending = team.requests.values().filter(|request| request.is_pending());
    found.pending = pending.map(|request| request.request_id.clone()).collect();
    Ok(found)
}

impl std::fmt::Display for TakenOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let some = |names: &[Name]| {
            let first: Vec<&str> = names.iter().take(NAMED).map(Name::as_str).collect();
            match names.len().checked_sub(NAMED) {
                Some(more @ 1..) => format!("{} and {more} more", first.join(", ")),
                _ => first.join(", "),
            }
        };
        let mut parts = Vec::new();
        if !self.adopted.is_empty() {
            parts.push(format!("adopted {}", some(&self.adopted)));
        }
        if !self.ended.is_empty() {
            parts.push(format!("ended meanwhile: {}", some(&self.ended)));
        }
        if !self.expired.is_empty() {
            let requests = if self.expired.len() == 1 { "request" } else { "requests" };
            parts.push(format!("{} {requests} expired with that", self.expired.len()));
        }
        if !self.pending.is_empty() {
            let requests = if self.pending.len() == 1 { "request waits" } else { "requests wait" };
            parts.push(format!("{} {requests} for an answer", self.pending.len()));
        }
        if let Some(length) = self.torn {
            parts.push(format!("the torn end of journal.jsonl ({length} bytes) is kept in journal.torn"));
        }
        f.write_str(&parts.join("; "))
    }
}

/// How many are named, before only their number is told.
const NAMED: usize = 8;

fn each_line(dir: &TeamDir, mut take: impl FnMut(&Line) -> Result<(), String>) -> Result<(), CommandError> {
    let bytes = match dir.read(&TeamPath::journal()) {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?,
    };
    let bad = |number: usize, why: String| {
        let path = dir.path(&TeamPath::journal());
        CommandError::new(ExitCode::Failed, format!("cannot read line {number} of {}: {why}", path.display()))
            .hint("`teamd start` says how to go on")
    };
    for line in read_lines(&bytes) {
        let (number, line) = line.map_err(|unreadable| bad(unreadable.number, unreadable.why))?;
        take(&line).map_err(|why| bad(number, why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctl::requests::tests::asked;
    use serde_json::json;

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
        assert!(fold(&dir).unwrap_err().message().starts_with("cannot read line 2 of "));
    }

    #[test]
    fn the_end_of_a_daemon_is_its_own() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let identity = |pid: u32| Identity { pid, start_ticks: 7, boot_id: "b".to_owned() };
        assert!(!ended_in_order(&dir, &identity(1)).unwrap());
        let line = |seq: u64, event: &str, pid: Option<u32>| {
            let daemon =
                pid.map(|pid| json!({"pid": pid, "start_ticks": 7, "boot_id": "b", "started_at": 1.0}));
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
}
