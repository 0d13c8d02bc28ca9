//! `list_teammates`: its input, and the team as it shows it.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::{Roster, RosterMember};
use crate::journal::Team;
use crate::member::{ApproveBy, Gate};
use crate::message::summary_of;
use crate::name::Name;
use crate::request::Request;

/// Lists the teammates with name, role, status, gate and activity, and the pending plans and
/// shutdowns. Do not use it to wait: what teammates send wakes you.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTeammates {}

/// Lists the teammates with what each does, and the pending requests.
pub fn team_text(roster: &Roster, team: &Team) -> String {
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
    use crate::testing::roster_member;
    use serde_json::json;

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
        let shown = team_text(&roster, &Team::default());
        assert_eq!(
            shown,
            "alice (coder): working, bash: make, gate closed\nbob: shutdown"
        );
        roster.members.truncate(0);
        assert_eq!(
            team_text(&roster, &Team::default()),
            "there are no teammates: spawn_teammate starts one"
        );
    }
}
