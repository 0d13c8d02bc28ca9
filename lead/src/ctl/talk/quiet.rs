//! Whether the work that a message set off is done. Pure.

use teamd_shared::member::Status;
use teamd_shared::name::Name;

/// A teammate, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Its name.
    pub(super) name: Name,
    /// Where it stands; one whose process is gone unnoticed has ended.
    pub(super) status: Status,
    /// Whether it has mail that it has not taken in, or its transcript says that something follows.
    pub(super) has_work: bool,
}

/// What is to be expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Quiet {
    /// Something goes on.
    No,
    /// Nobody does anything, but somebody has something to take in yet.
    Soon,
    /// Nothing more happens by itself.
    Yes,
    /// Nothing more happens before a person answers the plans of these.
    Waits(Vec<Name>),
    /// The one who is talked to has ended.
    Gone,
}

/// Decides it from the whole roster. `party` is talked to; with `all` the work of the others counts too: whoever leads
/// a team hears of each end.
pub(super) fn quiet(party: &Name, all: bool, roster: &[Seen]) -> Quiet {
    let Some(it) = roster.iter().find(|seen| seen.name == *party) else { return Quiet::Gone };
    if it.status.is_ended() {
        return Quiet::Gone;
    }
    let concerned = || roster.iter().filter(|seen| all || seen.name == *party);
    let works =
        |seen: &Seen| matches!(seen.status, Status::Starting | Status::Working | Status::ShuttingDown);
    if concerned().any(works) {
        return Quiet::No;
    }
    if concerned().any(|seen| seen.status == Status::Idle && seen.has_work) {
        return Quiet::Soon;
    }
    let waiting: Vec<Name> = concerned()
        .filter(|seen| seen.status == Status::AwaitingApproval)
        .map(|seen| seen.name.clone())
        .collect();
    if waiting.is_empty() { Quiet::Yes } else { Quiet::Waits(waiting) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, status: Status, has_work: bool) -> Seen {
        Seen { name: Name::of_inbox(name).unwrap(), status, has_work }
    }

    fn decide(lead: (Status, bool), alice: Option<(Status, bool)>, all: bool) -> Quiet {
        let mut roster = vec![seen("lead", lead.0, lead.1)];
        roster.extend(alice.map(|(status, has_work)| seen("alice", status, has_work)));
        quiet(&Name::lead(), all, &roster)
    }

    #[test]
    fn it_is_quiet_when_nobody_has_anything_to_do() {
        let idle = (Status::Idle, false);
        assert_eq!(decide(idle, None, true), Quiet::Yes);
        assert_eq!(decide((Status::Idle, true), None, true), Quiet::Soon, "mail is waiting");
        for status in [Status::Working, Status::Starting, Status::ShuttingDown] {
            assert_eq!(decide((status, false), None, true), Quiet::No);
            assert_eq!(decide(idle, Some((status, false)), true), Quiet::No);
            assert_eq!(decide(idle, Some((status, false)), false), Quiet::Yes, "others do not count");
        }
        assert_eq!(decide(idle, Some((Status::Idle, true)), true), Quiet::Soon);
        let works = Some((Status::Working, false));
        assert_eq!(decide((Status::Idle, true), works, true), Quiet::No);
        assert_eq!(decide((Status::Working, true), Some(idle), true), Quiet::No);
        assert_eq!(decide(idle, Some((Status::Crashed, true)), true), Quiet::Yes, "the dead read nothing");
    }

    #[test]
    fn a_plan_waits_for_a_person_when_all_else_is_done() {
        let alice = Name::new("alice").unwrap();
        let plan = Some((Status::AwaitingApproval, true));
        assert_eq!(decide((Status::Idle, false), plan, true), Quiet::Waits(vec![alice]));
        assert_eq!(decide((Status::Working, false), plan, true), Quiet::No);
    }

    #[test]
    fn whoever_has_ended_answers_nothing() {
        assert_eq!(decide((Status::Crashed, false), None, true), Quiet::Gone);
        assert_eq!(quiet(&Name::lead(), true, &[]), Quiet::Gone);
    }
}
