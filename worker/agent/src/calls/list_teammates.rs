//! `list_teammates`: the team as the files show it.

use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::journal::Team;
use teamd_shared::member::{ApproveBy, Gate};
use teamd_shared::message::summary_of;
use teamd_shared::name::Name;
use teamd_shared::request::Request;
use teamd_shared::team_dir::TeamDir;

use crate::team;

/// Lists the teammates with what each does, and the pending requests.
pub(super) fn list(dir: &TeamDir) -> Result<String, String> {
    Ok(render(
        &team::roster(Roster::load(dir))?,
        &team::state(dir)?,
    ))
}

fn render(roster: &Roster, team: &Team) -> String {
    let mates: Vec<&RosterMember> = roster
        .members
        .iter()
        .filter(|member| member.name != Name::lead())
        .collect();
    if mates.is_empty() {
        return "there are no teammates: spawn_teammate starts one".to_owned();
    }
    let mut lines: Vec<String> = mates.into_iter().map(member_line).collect();
    let mut pending: Vec<&Request> = team
        .requests
        .values()
        .filter(|request| request.is_pending())
        .collect();
    pending.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    lines.extend(
        pending
            .into_iter()
            .map(|request| request_line(team, request)),
    );
    lines.join("\n")
}

fn member_line(member: &RosterMember) -> String {
    let RosterMember {
        name,
        role,
        status,
        activity,
        gate,
        ..
    } = member;
    let role = if role.is_empty() {
        String::new()
    } else {
        format!(" ({role})")
    };
    let mut line = format!("{name}{role}: {}", status.as_str());
    if !status.is_ended() && !activity.is_empty() {
        line.push_str(&format!(", {activity}"));
    }
    if !status.is_ended() && *gate == Gate::Closed {
        line.push_str(", gate closed");
    }
    line
}

fn request_line(team: &Team, request: &Request) -> String {
    let id = &request.request_id;
    let member = request.member();
    let by = match team.judge_of(request) {
        ApproveBy::Person => "a person",
        ApproveBy::Lead => "you",
    };
    if request.kind.is_judged() {
        let noun = request.kind.noun();
        let text = request.payload.text();
        format!(
            "{noun} {id} of {member} waits for {by}: {}",
            summary_of(&text)
        )
    } else {
        format!("shutdown {id} of {member} is pending")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use teamd_shared::testing::roster_member;

    use super::*;

    #[test]
    fn the_team_is_shown_in_a_line_each() {
        let members = [
            json!({"name": "alice", "role": "coder", "status": "working", "gate": "closed", "activity": "bash: make"}),
            json!({"name": "bob", "status": "shutdown"}),
            json!({"name": "lead", "role": "lead", "status": "working"}),
        ];
        let members = members.each_ref().map(roster_member);
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "members": members});
        let mut roster: Roster = serde_json::from_value(roster).unwrap();
        let shown = render(&roster, &Team::default());
        assert_eq!(
            shown,
            "alice (coder): working, bash: make, gate closed\nbob: shutdown"
        );
        roster.members.truncate(0);
        assert_eq!(
            render(&roster, &Team::default()),
            "there are no teammates: spawn_teammate starts one"
        );
    }
}
