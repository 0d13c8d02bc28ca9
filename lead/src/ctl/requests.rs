//! The requests as the journal has them, and finding one by the beginning of its id. Reads the journal only.

use teamd_shared::id::RequestId;
use teamd_shared::journal::{Line, Team};
use teamd_shared::request::{Kind, Request};
use teamd_shared::team_dir::{TeamDir, TeamPath};

use super::clock;
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// Folds the journal; an empty team if there is none yet. A torn last line is not there yet.
///
/// # Errors
/// [`ExitCode::Failed`] if a line cannot be read.
pub(crate) fn fold(dir: &TeamDir) -> Result<Team, CommandError> {
    let mut team = Team::default();
    let bytes = match dir.read(&TeamPath::journal()) {
        Err(error) if error.is_not_found() => return Ok(team),
        other => other?,
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline);
    for (index, line) in bytes[..whole].split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let bad = |why: String| {
            let path = dir.path(&TeamPath::journal());
            CommandError::new(
                ExitCode::Failed,
                format!("cannot read line {} of {}: {why}", index + 1, path.display()),
            )
            .hint("`teamd start` says how to go on")
        };
        let line: Line = serde_json::from_slice(line).map_err(|error| bad(error.to_string()))?;
        team.apply(&line).map_err(|error| bad(error.to_string()))?;
    }
    Ok(team)
}

/// Returns requests in the order in which they were asked.
pub(crate) fn in_order(team: &Team) -> Vec<&Request> {
    let mut requests: Vec<&Request> = team.requests.values().collect();
    requests.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    requests
}

/// Finds a request of a kind (or of any) by its id, or by a beginning that no other one has.
///
/// # Errors
/// [`ExitCode::NotFound`] if there is none, or several: they are listed.
pub(crate) fn resolve<'t>(
    team: &'t Team,
    prefix: &str,
    kind: Option<Kind>,
) -> Result<&'t Request, CommandError> {
    if RequestId::new(prefix).is_err() {
        let message = format!("{prefix:?} is not the beginning of a request id");
        return Err(CommandError::new(ExitCode::Usage, message).hint("`teamctl requests` shows the ids"));
    }
    let matching: Vec<&Request> = in_order(team)
        .into_iter()
        .filter(|request| request.request_id.as_str().starts_with(prefix))
        .collect();
    let fits = |request: &&&Request| kind.is_none_or(|kind| request.kind == kind);
    let exact = matching.iter().find(|request| request.request_id.as_str() == prefix);
    let fitting: Vec<&Request> = match exact {
        Some(exact) => Some(exact).filter(fits).into_iter().copied().collect(),
        None => matching.iter().filter(fits).copied().collect(),
    };
    match (fitting.as_slice(), exact.or(matching.first())) {
        ([request], _) => Ok(request),
        ([], Some(other)) => {
            let message = format!("{} is a {} request, not a plan", other.request_id, other.kind.as_str());
            Err(CommandError::new(ExitCode::NotFound, message)
                .hint(format!("{} answers it, nobody else; `teamctl plans` shows the plans", other.member())))
        }
        ([], None) => Err(CommandError::new(ExitCode::NotFound, format!("there is no request {prefix}"))
            .hint("`teamctl requests` shows the ids")),
        (several, _) => {
            let candidates = several.iter().map(|request| candidate(request)).collect();
            Err(CommandError::new(
                ExitCode::NotFound,
                format!("{prefix} is the beginning of several requests:"),
            )
            .candidates(candidates)
            .hint("give more of the id"))
        }
    }
}

fn candidate(request: &Request) -> String {
    let (id, kind, status) = (&request.request_id, request.kind.as_str(), request.status.as_str());
    format!("{id}  {kind} of {}, {status}, {} ago", request.member(), clock::age(request.created_at))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// One line of a journal that asks a request.
    pub(crate) fn asked(seq: u64, id: &str, kind: &str) -> String {
        let (from, to) = if kind == "shutdown" { ("lead", "alice") } else { ("alice", "lead") };
        let payload = match kind {
            "shutdown" => json!({"reason": "done", "decide_within": 30.0, "force_after": null}),
            _ => json!({"plan": "Drop the cache.\nThen rebuild."}),
        };
        let line = json!({"seq": seq, "at": 1.0, "done": 0, "record": "request", "event": "asked", "request_id": id,
            "kind": kind, "from": from, "to": to, "status": "pending", "payload": payload, "incarnation": 1,
            "message_id": "018f0000-0000-7000-8000-000000000000", "created_at": seq, "resolved_at": null,
            "reason": null});
        format!("{line}\n")
    }

    fn team(ids: &[(&str, &str)]) -> Team {
        let mut team = Team::default();
        for (seq, (id, kind)) in ids.iter().enumerate() {
            let line = asked(seq as u64 + 1, id, kind);
            team.apply(&serde_json::from_str(&line).unwrap()).unwrap();
        }
        team
    }

    fn plan<'t>(team: &'t Team, prefix: &str) -> Result<&'t str, CommandError> {
        resolve(team, prefix, Some(Kind::PlanApproval)).map(|request| request.request_id.as_str())
    }

    #[test]
    fn a_plan_is_found_by_its_id_or_a_unique_beginning() {
        let team = team(&[
            ("a1b2c3d4", "plan_approval"),
            ("a1ff0000", "shutdown"),
            ("b0", "plan_approval"),
            ("b0b", "plan_approval"),
        ]);
        assert_eq!(plan(&team, "a1b2c3d4"), Ok("a1b2c3d4"));
        assert_eq!(plan(&team, "a1"), Ok("a1b2c3d4"), "a shutdown request does not make it ambiguous");
        assert_eq!(plan(&team, "b0"), Ok("b0"), "the whole id wins");
    }

    #[test]
    fn an_ambiguous_beginning_lists_what_it_could_mean() {
        let team = team(&[("a1b2c3d4", "plan_approval"), ("a1ff0000", "plan_approval")]);
        let error = plan(&team, "a1").unwrap_err();
        assert_eq!(error.code(), ExitCode::NotFound);
        assert_eq!(error.choices().len(), 2);
        assert!(
            error.choices()[0].starts_with("a1b2c3d4  plan_approval of alice, pending"),
            "{:?}",
            error.choices()
        );
    }

    #[test]
    fn what_is_no_plan_cannot_be_answered_here() {
        let team = team(&[("a1ff0000", "shutdown")]);
        let error = plan(&team, "a1").unwrap_err();
        assert_eq!(
            (error.code(), error.message()),
            (ExitCode::NotFound, "a1ff0000 is a shutdown request, not a plan")
        );
        assert_eq!(plan(&team, "c").unwrap_err().code(), ExitCode::NotFound);
        assert_eq!(plan(&team, "").unwrap_err().code(), ExitCode::Usage);
        assert_eq!(resolve(&team, "a1", None).unwrap().request_id.as_str(), "a1ff0000");
    }

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
}
