//! The hosts: their links, and what they do not promise. The daemon has the links, and asks.

use std::time::Duration;

use teamd_client::connection::Client;
use teamd_client::context::block_on;
use teamd_client::print::clock;
use teamd_client::print::render::count;
use teamd_shared::config::RosterMember;
use teamd_shared::control::{Command, Done};
use teamd_shared::host::{HostStatus, LinkState};

use super::finding::DoctorCheck;
use super::snapshot::Snapshot;
use crate::at::quoted;

/// How long the daemon may take to answer: it waits for the hosts for a moment.
const ANSWER: Duration = Duration::from_secs(5);

/// Something that a host does not promise.
pub(in crate::commands) struct HostWeakness {
    pub(in crate::commands) what: String,
    pub(in crate::commands) means: &'static str,
    pub(in crate::commands) next: &'static str,
}

/// Judges the hosts of the team, one finding each.
pub(super) fn hosts(snapshot: &Snapshot, check: &mut DoctorCheck) -> Option<String> {
    let recorded = snapshot.team()?.hosts.as_ref();
    let recorded = recorded.map_or(0, |hosts| hosts.list.len());
    if recorded == 0 {
        return None;
    }
    let Some(hosts) = ask(snapshot) else {
        let what = format!(
            "{}, and no daemon that knows their links",
            count(recorded, "host")
        );
        check.note(what, "", "`teamd start`");
        return None;
    };
    let roster = snapshot.roster.as_ref().ok().and_then(Option::as_ref);
    let members = roster.map_or(&[][..], |roster| &roster.members);
    for status in &hosts {
        judge(status, check);
        left_there(status, members, check);
    }
    None
}

/// Notes the checkouts on a host that are of no teammate: of one that was forgotten without its
/// host.
fn left_there(status: &HostStatus, members: &[RosterMember], check: &mut DoctorCheck) {
    let name = &status.host.name;
    let there = status.vitals.iter().flat_map(|vitals| &vitals.checkouts);
    for root in there {
        let of_host = members
            .iter()
            .filter(|member| member.host.as_ref() == Some(name));
        let mut owned = of_host.filter_map(|member| member.checkout.as_ref());
        if owned.any(|checkout| checkout.root == *root) {
            continue;
        }
        let what = format!("the checkout {root} on {name} is of no teammate");
        let root = quoted(root);
        let next = format!("look there whether it holds work, and remove it: `rm -r -- {root}`");
        check.note(
            what,
            "nothing uses it, unless a spawn makes it just now",
            &next,
        );
    }
}

fn judge(status: &HostStatus, check: &mut DoctorCheck) {
    let name = &status.host.name;
    let age = clock::age(status.since);
    match &status.link {
        LinkState::NeedsAttention { why, hint } => {
            let what = format!("{name} is not linked: {why}");
            check.problem(
                what,
                "its teammates work on, and nothing reaches them",
                hint,
            );
            return;
        }
        LinkState::Unreachable { why } => {
            let what = format!("{name} cannot be reached for {age}: {why}");
            let means = "its teammates work on; the link is made again by itself";
            check.note(what, means, "`teamctl host list` shows the links");
            return;
        }
        LinkState::Up => {}
    }
    let weaknesses = weaknesses(status);
    for HostWeakness { what, means, next } in &weaknesses {
        check.note(what, means, next);
    }
    if weaknesses.is_empty() {
        let version = status.version.as_deref().unwrap_or("?");
        let logout = match status
            .vitals
            .as_ref()
            .and_then(|vitals| vitals.ends_at_logout)
        {
            Some(_) => "daemons stay at logout",
            None => "logind does not say what ends at logout",
        };
        check.ok(format!(
            "{name} is linked for {age}: teamd {version}, its sandbox holds, {logout}"
        ));
    }
}

/// Returns what a host that is linked does not promise.
pub(in crate::commands) fn weaknesses(status: &HostStatus) -> Vec<HostWeakness> {
    let name = &status.host.name;
    let mut weaknesses = Vec::new();
    if let Some(why) = &status.weakness {
        weaknesses.push(HostWeakness {
            what: format!("{name} cannot sandbox commands as promised ({why})"),
            means: "commands of its teammates may do more than their terms say",
            next: "`teamctl doctor` there shows what is missing",
        });
    }
    if let Some(vitals) = &status.vitals
        && vitals.ends_at_logout == Some(true)
    {
        weaknesses.push(HostWeakness {
            what: format!("{name} ends the daemons of a user at logout (KillUserProcesses=yes)"),
            means: "its teammates end with the link, and are started again by their policy",
            next: "there, set `KillUserProcesses=no` in /etc/systemd/logind.conf, or name the user in KillExcludeUsers",
        });
    }
    weaknesses
}

/// Asks the daemon; none if it does not answer.
fn ask(snapshot: &Snapshot) -> Option<Vec<HostStatus>> {
    let answer = block_on(async {
        let call = async {
            let mut client = Client::connect(&snapshot.dir).await.ok()?;
            client.call(Command::Hosts).await.ok()
        };
        Ok(tokio::time::timeout(ANSWER, call).await.ok().flatten())
    });
    match answer {
        Ok(Some(Done::Hosts(hosts))) => Some(hosts),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use teamd_shared::host::{Host, HostTerms, HostVitals, HostWay};
    use teamd_shared::name::Name;
    use teamd_shared::testing::roster_member;

    use super::super::finding::Severity;
    use super::super::finding::tests::summaries;
    use super::*;

    fn status(link: LinkState, ends_at_logout: Option<bool>) -> HostStatus {
        HostStatus {
            host: Host {
                name: Name::new("box").unwrap(),
                way: HostWay::Ssh("user@box".to_owned()),
                allow_weak_sandbox: false,
                terms: HostTerms::default(),
            },
            link,
            since: teamd_shared::clock::wall(),
            version: Some("1.0.0".to_owned()),
            teammates: 0,
            weakness: None,
            vitals: Some(HostVitals {
                load: 0.0,
                processors: 1,
                memory: 0,
                memory_available: 0,
                memory_stalled: None,
                ends_at_logout,
                checkouts: Vec::new(),
            }),
        }
    }

    fn found(status: &HostStatus) -> (Severity, String) {
        let judged = summaries(|check| {
            judge(status, check);
            None
        });
        judged.into_iter().next().unwrap()
    }

    #[test]
    fn a_host_is_in_order_if_it_is_linked_and_keeps_its_daemons() {
        let (severity, what) = found(&status(LinkState::Up, Some(false)));
        assert_eq!(severity, Severity::Ok);
        assert!(
            what.contains("teamd 1.0.0") && what.contains("stay at logout"),
            "{what}"
        );
        let (severity, what) = found(&status(LinkState::Up, Some(true)));
        assert_eq!(severity, Severity::Note);
        assert!(what.contains("KillUserProcesses"), "{what}");
        let cut = LinkState::Unreachable {
            why: "ssh ended".to_owned(),
        };
        assert_eq!(found(&status(cut, None)).0, Severity::Note);
        let refused = LinkState::NeedsAttention {
            why: "no login".to_owned(),
            hint: "`teamctl host login box`".to_owned(),
        };
        assert_eq!(found(&status(refused, None)).0, Severity::Problem);
    }

    #[test]
    fn a_checkout_there_that_is_of_no_teammate_is_named() {
        let mut status = status(LinkState::Up, Some(false));
        let vitals = status.vitals.as_mut().unwrap();
        vitals.checkouts = vec!["/far/alice".to_owned(), "/far/bob".to_owned()];
        let checkout = |root: &str| json!({"root": root, "source": "/", "repository": "/far/team.git", "notes": []});
        let member = |name: &str, more: Value| -> RosterMember {
            let mut fields = json!({"name": name, "status": "idle"});
            fields
                .as_object_mut()
                .unwrap()
                .append(&mut more.as_object().unwrap().clone());
            serde_json::from_value(roster_member(&fields)).unwrap()
        };
        // One at home that has the same path is of another machine.
        let members = [
            member("alice", json!({"checkout": checkout("/far/alice")})),
            member(
                "bob",
                json!({"checkout": checkout("/far/bob"), "host": "box"}),
            ),
        ];
        let noted = summaries(|check| {
            left_there(&status, &members, check);
            None
        });
        assert_eq!(noted.len(), 1, "{noted:?}");
        assert_eq!(noted[0].0, Severity::Note);
        assert_eq!(
            noted[0].1,
            "the checkout /far/alice on box is of no teammate"
        );
    }
}
