//! The requests of a team, in order, and finding one by the beginning of its id.

use std::collections::BTreeMap;

use teamd_shared::id::RequestId;
use teamd_shared::request::{Kind, Request};
use teamd_shared::team_dir::TeamDir;

use super::{clock, journal};
use crate::error::CommandError;
use crate::exit_code::ExitCode;

/// The requests of a team by their ids.
type RequestsById = BTreeMap<RequestId, Request>;

/// Returns requests in the order in which they were asked.
pub(crate) fn in_order(requests: &RequestsById) -> Vec<&Request> {
    let mut requests: Vec<&Request> = requests.values().collect();
    requests.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    requests
}

/// Finds a request of a kind (or of any) in the files, by its id or by a beginning that no other one has. The requests
/// since the last snapshot come first: only where none of them fits, the whole journal is read.
///
/// # Errors
/// [`ExitCode::NotFound`] if there is none, or several: they are listed.
pub(crate) fn find(dir: &TeamDir, prefix: &str, kind: Option<Kind>) -> Result<Request, CommandError> {
    let mut requests = journal::fold(dir)?.requests;
    if !requests.keys().any(|id| id.as_str().starts_with(prefix)) {
        requests = journal::all_requests(dir)?;
    }
    resolve(&requests, prefix, kind).cloned()
}

fn resolve<'r>(
    requests: &'r RequestsById,
    prefix: &str,
    kind: Option<Kind>,
) -> Result<&'r Request, CommandError> {
    if RequestId::new(prefix).is_err() {
        let message = format!("{prefix:?} is not the beginning of a request id");
        return Err(CommandError::new(ExitCode::Usage, message).hint("`teamctl requests` shows the ids"));
    }
    let mut found = in_order(requests);
    // The whole id wins over a longer one that begins with it.
    match found.iter().copied().find(|request| request.request_id.as_str() == prefix) {
        Some(exact) => found = vec![exact],
        None => found.retain(|request| request.request_id.as_str().starts_with(prefix)),
    }
    let fits = |request: &&Request| kind.is_none_or(|kind| request.kind == kind);
    let fitting: Vec<&Request> = found.iter().copied().filter(fits).collect();
    match (fitting.as_slice(), found.first()) {
        ([request], _) => Ok(request),
        ([], Some(other)) => {
            let message = format!("{} is a {} request, not a plan", other.request_id, other.kind.as_str());
            Err(CommandError::new(ExitCode::NotFound, message)
                .hint(format!("only {} answers it; `teamctl plans` shows the plans", other.member())))
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

    fn team(ids: &[(&str, &str)]) -> RequestsById {
        let mut team = teamd_shared::journal::Team::default();
        for (seq, (id, kind)) in ids.iter().enumerate() {
            let line = asked(seq as u64 + 1, id, kind);
            team.apply(&serde_json::from_str(&line).unwrap()).unwrap();
        }
        team.requests
    }

    fn plan<'t>(team: &'t RequestsById, prefix: &str) -> Result<&'t str, CommandError> {
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
}
