//! The requests of a team, in order, and finding one by the beginning of its id.

use std::collections::BTreeMap;

use teamd_shared::id::RequestId;
use teamd_shared::journal::Record;
use teamd_shared::journal::reader::{self, Since};
use teamd_shared::request::{Kind, Request};
use teamd_shared::team_dir::TeamDir;

use super::journal;
use crate::error::CommandError;
use crate::exit_code::ExitCode;
use crate::print::clock;

/// Returns every request that was ever asked, as its last line shows it, in the order in which they
/// were asked.
///
/// # Errors
/// [`ExitCode::Failed`] if the journal cannot be read.
pub fn all(dir: &TeamDir) -> Result<Vec<Request>, CommandError> {
    // A snapshot leaves old requests out; each has lines of its own, though.
    let mut requests = BTreeMap::new();
    let team = reader::load(dir, Since::Start, |_, line| {
        if let Record::Request(record) = &line.record {
            requests.insert(record.request.request_id.clone(), record.request.clone());
        }
    })?;
    requests.extend(team.requests);
    Ok(in_order(requests))
}

/// Returns the requests since the last snapshot, and those that were pending then, in the order in
/// which they were asked.
///
/// # Errors
/// [`ExitCode::Failed`] if the journal cannot be read.
pub fn recent(dir: &TeamDir) -> Result<Vec<Request>, CommandError> {
    Ok(in_order(journal::fold(dir)?.requests))
}

fn in_order(requests: BTreeMap<RequestId, Request>) -> Vec<Request> {
    let mut requests: Vec<Request> = requests.into_values().collect();
    requests.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    requests
}

/// Finds a request of one of these kinds (or of any) in the files, by its id or by a beginning that
/// no other one has. The requests since the last snapshot come first: only where none of them fits,
/// the whole journal is read.
///
/// # Errors
/// [`ExitCode::NotFound`] if there is none, or several: they are listed.
pub fn find(dir: &TeamDir, prefix: &str, kinds: &[Kind]) -> Result<Request, CommandError> {
    let mut requests = recent(dir)?;
    if !requests
        .iter()
        .any(|request| request.request_id.as_str().starts_with(prefix))
    {
        requests = all(dir)?;
    }
    resolve(&requests, prefix, kinds).cloned()
}

fn resolve<'r>(
    requests: &'r [Request],
    prefix: &str,
    kinds: &[Kind],
) -> Result<&'r Request, CommandError> {
    if RequestId::new(prefix).is_err() {
        let message = format!("{prefix:?} is not the beginning of a request id");
        return Err(
            CommandError::new(ExitCode::Usage, message).hint("`teamctl requests` shows the ids")
        );
    }
    // The whole id wins over a longer one that begins with it.
    let exact: Vec<&Request> = requests
        .iter()
        .filter(|request| request.request_id.as_str() == prefix)
        .collect();
    let beginning = requests
        .iter()
        .filter(|request| request.request_id.as_str().starts_with(prefix))
        .collect();
    let matching = if exact.is_empty() { beginning } else { exact };
    let fitting: Vec<&Request> = matching
        .iter()
        .copied()
        .filter(|request| kinds.is_empty() || kinds.contains(&request.kind))
        .collect();
    match (fitting.as_slice(), matching.first()) {
        ([request], _) => Ok(request),
        ([], Some(other)) => {
            let wanted: Vec<&str> = kinds.iter().map(|kind| kind.noun()).collect();
            let id = &other.request_id;
            let noun = other.kind.noun();
            let message = format!("{id} is a {noun}, not a {}", wanted.join(" or a "));
            let hint = if other.kind.is_judged() {
                format!("`teamctl {}` shows it", other.kind.listed_by())
            } else {
                format!(
                    "only {} answers it; `teamctl plans` shows the plans",
                    other.member()
                )
            };
            Err(CommandError::new(ExitCode::NotFound, message).hint(hint))
        }
        ([], None) => Err(CommandError::new(
            ExitCode::NotFound,
            format!("there is no request {prefix}"),
        )
        .hint("`teamctl requests` shows the ids")),
        (several, _) => {
            let message = format!("{prefix} is the beginning of several requests:");
            Err(CommandError::new(ExitCode::NotFound, message)
                .candidates(several.iter().map(|request| candidate(request)).collect())
                .hint("give more characters of the id"))
        }
    }
}

fn candidate(request: &Request) -> String {
    let id = &request.request_id;
    let kind = request.kind.as_str();
    let status = request.status.as_str();
    format!(
        "{id}  {kind} of {}, {status}, {} ago",
        request.member(),
        clock::age(request.created_at)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::asked;

    fn team(ids: &[(&str, &str)]) -> Vec<Request> {
        let mut team = teamd_shared::journal::Team::default();
        for (seq, (id, kind)) in ids.iter().enumerate() {
            let line = asked(seq as u64 + 1, id, kind);
            team.apply(&serde_json::from_str(&line).unwrap()).unwrap();
        }
        in_order(team.requests)
    }

    fn plan<'t>(team: &'t [Request], prefix: &str) -> Result<&'t str, CommandError> {
        resolve(team, prefix, &[Kind::PlanApproval]).map(|request| request.request_id.as_str())
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
        assert_eq!(
            plan(&team, "a1"),
            Ok("a1b2c3d4"),
            "a shutdown request does not make it ambiguous"
        );
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
            (ExitCode::NotFound, "a1ff0000 is a shutdown, not a plan")
        );
        assert_eq!(plan(&team, "c").unwrap_err().code(), ExitCode::NotFound);
        assert_eq!(plan(&team, "").unwrap_err().code(), ExitCode::Usage);
        assert_eq!(
            resolve(&team, "a1", &[]).unwrap().request_id.as_str(),
            "a1ff0000"
        );
    }
}
