//! The members of a team as a list shows them, those first that need a person.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use teamd_client::print::grouping::{Facts, MemberStanding};
use teamd_client::read::money;
use teamd_client::read::resources::Resources;
use teamd_shared::clock::wall;
use teamd_shared::config::RosterMember;
use teamd_shared::control::McpServerReport;
use teamd_shared::journal::Team;
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::price::{Dollars, Prices};
use teamd_shared::request::{Answerer, Request};
use teamd_shared::task::Task;

/// A member, with what the roster alone does not tell.
pub struct MemberRow<'r> {
    /// As the roster has it.
    pub member: &'r RosterMember,
    /// Its state.
    pub standing: MemberStanding,
    /// The task that it holds.
    pub task: Option<&'r Task>,
    /// Its oldest request that a person can answer.
    pub request: Option<&'r Request>,
    /// What it has cost; none if the price of its model is not known.
    pub cost: Option<Dollars>,
    /// None where the inbox cannot be read, or was not looked at.
    pub unread: Option<u64>,
    /// It has ended, and no daemon has recorded it.
    pub unnoticed: bool,
    /// What its processes use; none if they are not asked for, or it does not run.
    pub resources: Option<Resources>,
    /// The ports that it serves on a localhost of its own; empty if that is not asked for.
    pub serves: Vec<u16>,
    /// What its worker reports of its MCP servers; empty if that is not asked for, or not known.
    pub mcp_servers: Vec<McpServerReport>,
}

impl MemberRow<'_> {
    /// Returns it as other programs read it.
    pub fn to_json(&self) -> Value {
        let mut value = json!(self.member);
        if let Some(task) = self.task {
            value["task"] = json!(task.id);
        }
        if let Some(cost) = self.cost {
            value["cost"] = json!(cost);
        }
        value["unread"] = json!(self.unread);
        value["resources"] = json!(self.resources);
        if !self.serves.is_empty() {
            value["serves"] = json!(self.serves);
        }
        if !self.mcp_servers.is_empty() {
            value["mcp_servers"] = json!(self.mcp_servers);
        }
        value
    }

    /// Returns its status as other programs know it; `failed` is idle, too.
    pub fn status(&self) -> &'static str {
        let has_failed = self.member.status == MemberStatus::Idle && self.standing.word == "failed";
        if has_failed {
            self.standing.word
        } else {
            self.member.status.as_str()
        }
    }

    /// Returns what it does or waits for; the id of its request is beside the text of that.
    pub fn what(&self) -> &str {
        let what = self.standing.what.as_str();
        let asked = self.request.map(|it| &it.request_id);
        let review = self.task.and_then(Task::review_id);
        let mut ids = asked.into_iter().chain(review);
        ids.find_map(|id| what.strip_prefix(id.as_str()))
            .map_or(what, str::trim_start)
    }
}

/// Looks at members, of which these run, but not into their inboxes.
pub fn rows<'r>(
    shown: impl IntoIterator<Item = &'r RosterMember>,
    running: &BTreeSet<Name>,
    team: &'r Team,
    prices: &Prices,
) -> Vec<MemberRow<'r>> {
    let now = wall();
    shown
        .into_iter()
        .map(|member| {
            let unnoticed = !member.status.is_ended() && !running.contains(&member.name);
            let standing = MemberStanding::of(member, Facts::of(member, team, unnoticed), now);
            let cost = money::of_member(member, prices);
            let task = team.held_by(&member.name);
            let request = answerable(team, &member.name);
            MemberRow {
                member,
                standing,
                task,
                request,
                cost,
                unread: None,
                unnoticed,
                resources: None,
                serves: Vec::new(),
                mcp_servers: Vec::new(),
            }
        })
        .collect()
}

fn answerable<'t>(team: &'t Team, name: &Name) -> Option<&'t Request> {
    let asks_lead = team
        .pending_of(name)
        .filter(|it| it.kind.rules().answered_by == Answerer::Lead);
    asks_lead.min_by(|a, b| a.created_at.total_cmp(&b.created_at))
}

/// Sorts them by what they need.
pub fn sort(rows: &mut [MemberRow<'_>]) {
    rows.sort_by(|a, b| {
        MemberStanding::order(
            (&a.standing, a.member.name.as_str()),
            (&b.standing, b.member.name.as_str()),
        )
    });
}
