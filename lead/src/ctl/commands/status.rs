//! `teamctl status`: the members of the team, and what each does. It reads files and `/proc` only, so it works without a
//! daemon, and then says that no daemon updates the roster.

mod details;

use std::collections::BTreeSet;
use std::time::Duration;

use anstyle::Style;
use serde_json::{Value, json};
use teamd_shared::amount::format_duration;
use teamd_shared::clock::wall;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::member::{Gate, SandboxMode};
use teamd_shared::name::Name;
use teamd_shared::transcript::Usage;

use crate::ctl::args::StatusArgs;
use crate::ctl::context::Context;
use crate::ctl::processes::Processes;
use crate::ctl::render::{BAD, BOLD, DIM, exit, status_style};
use crate::ctl::resources::Resources;
use crate::ctl::table::{Cell, Table, cut};
use crate::ctl::{clock, roster, tokens};
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// How much of a role the table shows, in columns.
const ROLE: usize = 24;
/// How much of a model's name it shows.
const MODEL: usize = 28;

/// A member, with what the roster alone does not tell.
struct Row<'r> {
    member: &'r RosterMember,
    /// None where the inbox cannot be read.
    unread: Option<u64>,
    /// It has ended, and no daemon has recorded it.
    unnoticed: bool,
    /// What its processes use; none if they are not asked for, or it does not run.
    resources: Option<Resources>,
}

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &StatusArgs) -> CommandResult {
    if args.name.is_none() && context.is_missing() {
        context.out.note(format_args!("there is no team directory at {} yet", context.path.display()));
        context.out.hint("`teamd start` makes one");
        if context.out.is_json() {
            context.out.json(&document(&Roster::default(), &[]))?;
        }
        return Ok(ExitCode::Done);
    }
    let dir = context.dir()?;
    let roster = roster::load(&dir)?;
    let shown = match &args.name {
        Some(name) => vec![roster::find(&roster, name)?],
        None => roster.members.iter().collect(),
    };
    let has_daemon = roster::daemon_pid(&roster).is_some();
    // The table has no room for it, and a look at every process of the machine takes its time.
    let wanted = context.out.is_json() || args.name.is_some();
    let processes = wanted.then(Processes::read);
    let running: BTreeSet<&Name> = roster::running(&roster).into_iter().map(|member| &member.name).collect();
    let row = |member| Row {
        member,
        // One odd inbox must not hide the others.
        unread: roster::unread(&dir, member).ok(),
        unnoticed: !member.status.is_ended() && !running.contains(&member.name),
        resources: processes.as_ref().and_then(|it| Resources::of(it, &roster, member, args.name.is_some())),
    };
    let rows: Vec<Row<'_>> = shown.into_iter().map(row).collect();
    if context.out.is_json() {
        context.out.json(&document(&roster, &rows))?;
    } else if args.name.is_some() {
        context.out.text(rows.iter().map(details::details).collect::<String>())?;
    } else if rows.is_empty() {
        context.out.note("there are no teammates");
        context.out.hint("`teamctl spawn NAME` starts a teammate");
    } else {
        context.out.text(table(&rows).render(context.out.width()) + &sum(&roster))?;
    }
    if !has_daemon {
        context.out.note("the daemon is not running; showing the last recorded state");
    }
    if let Some(why) = roster.sandbox.as_ref().and_then(|sandbox| sandbox.weak.as_ref()) {
        context.out.note(format_args!("the sandbox is weak (--allow-weak-sandbox); not held: {why}"));
    }
    for name in rows.iter().filter(|row| row.unnoticed).map(|row| &row.member.name) {
        context.out.note(format_args!("the process of {name} is gone: `teamd start` will record it"));
    }
    Ok(ExitCode::Done)
}

fn document(roster: &Roster, rows: &[Row<'_>]) -> Value {
    let pid = roster::daemon_pid(roster);
    let members: Vec<Value> = rows.iter().map(Row::to_json).collect();
    json!({"team_name": roster.team_name, "daemon": {"running": pid.is_some(), "pid": pid},
        "sandbox": roster.sandbox, "usage": total(roster), "members": members})
}

/// Sums up what the whole team has cost.
fn total(roster: &Roster) -> Usage {
    let mut total = Usage::default();
    roster.members.iter().for_each(|member| total += member.usage);
    total
}

/// Says what the team has cost, where it has cost anything.
fn sum(roster: &Roster) -> String {
    let total = total(roster);
    if total.is_nothing() { String::new() } else { format!("tokens of the team: {}\n", tokens::cost(&total)) }
}

impl Row<'_> {
    fn to_json(&self) -> Value {
        let mut value = json!(self.member);
        value["unread"] = json!(self.unread);
        value["resources"] = json!(self.resources);
        value
    }

    /// Since when it does not answer the daemon, if there is one.
    fn silent_since(&self) -> Option<f64> {
        self.member.silent_since.filter(|_| !self.unnoticed && !self.member.status.is_ended())
    }

    fn status_style(&self) -> Style {
        if self.unnoticed { BAD } else { status_style(self.member.status) }
    }

    fn activity(&self) -> String {
        if let Some(since) = self.silent_since() {
            let silent = Duration::try_from_secs_f64(wall() - since).unwrap_or_default();
            return format!("not responding for {}", format_duration(silent));
        }
        if let Some(waiting) = self.member.waiting.as_ref().filter(|_| !self.unnoticed) {
            return waiting.describe(wall());
        }
        match (&self.member.exit, self.unnoticed) {
            (_, true) => "its process is gone".to_owned(),
            (Some(it), _) if self.member.status.is_ended() => match &it.note {
                Some(note) => format!("{}; {note}", exit(it)),
                None => exit(it),
            },
            _ => self.member.activity.clone(),
        }
    }

    fn activity_cell(&self) -> Cell {
        if self.silent_since().is_some() {
            return Cell::styled(self.activity(), BAD);
        }
        // A shell without a sandbox is not to be overlooked.
        let unconfined = self.member.sandbox.mode == SandboxMode::Off && !self.member.status.is_ended();
        match (self.activity(), unconfined) {
            (activity, false) => Cell::new(activity),
            (activity, true) if activity.is_empty() => Cell::styled("SANDBOX OFF", BAD),
            (activity, true) => Cell::new(format!("SANDBOX OFF; {activity}")),
        }
    }

    fn unread_cell(&self) -> Cell {
        match self.unread {
            None => Cell::styled("?", BOLD),
            Some(0) => Cell::styled("-", DIM),
            Some(unread) => Cell::styled(unread.to_string(), BOLD),
        }
    }
}

fn table(rows: &[Row<'_>]) -> Table {
    // A team of scripts has no tokens, and no need for a column of them.
    let costs = rows.iter().any(|row| !row.member.usage.is_nothing());
    let mut titles = vec!["NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "GATE", "PID", "MODEL"];
    titles.extend(costs.then_some("TOKENS"));
    // Most teams have no crash to show.
    let restarts = rows.iter().any(|row| row.member.restarts > 0);
    titles.extend(restarts.then_some("RESTARTS"));
    titles.push("DOING");
    let mut table = Table::new(&titles);
    for row in rows {
        let member = row.member;
        let gate = match member.gate {
            Gate::Open => Cell::styled(member.gate.as_str(), DIM),
            Gate::Closed => Cell::styled(member.gate.as_str(), BOLD),
        };
        let mut cells = vec![
            Cell::styled(member.name.as_str(), BOLD),
            Cell::new(cut(if member.role.is_empty() { "-" } else { &member.role }, Some(ROLE))),
            Cell::styled(member.status.as_str(), row.status_style()),
            Cell::new(clock::age(member.updated_at)),
            row.unread_cell(),
            gate,
            Cell::new(pid(member)),
            Cell::new(cut(&member.model, Some(MODEL))),
        ];
        cells.extend(costs.then(|| match member.usage.is_nothing() {
            true => Cell::styled("-", DIM),
            false => Cell::new(tokens::cost(&member.usage)),
        }));
        cells.extend(restarts.then(|| match member.restarts {
            0 => Cell::styled("-", DIM),
            some => Cell::styled(some.to_string(), BOLD),
        }));
        cells.push(row.activity_cell());
        table.row(cells);
    }
    table
}

fn pid(member: &RosterMember) -> String {
    member.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests;
