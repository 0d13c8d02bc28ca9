//! `teamctl status`: the members of the team, and what each does. It reads files and `/proc` only,
//! so it works without a daemon, and then notes that no daemon updates the roster.

mod table;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use teamd_client::act::mcp_reports::McpReports;
use teamd_client::args::StatusArgs;
use teamd_client::connection::Client;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::grouping::{Group, natural};
use teamd_client::print::render::{BOLD, DIM, facts};
use teamd_client::print::style::paint;
use teamd_client::print::table::cut;
use teamd_client::print::{clock, escape, tokens};
use teamd_client::read::localhost;
use teamd_client::read::money::TeamCost;
use teamd_client::read::processes::Processes;
use teamd_client::read::resources::Resources;
use teamd_client::read::roster::LoadedRoster;
use teamd_client::read::wake::Wake;
use teamd_client::read::{journal, money, roster};
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::control::{Command, Done};
use teamd_shared::journal::Team;
use teamd_shared::member::MemberStatus;
use teamd_shared::name::Name;
use teamd_shared::price::Prices;
use teamd_shared::task::TaskStatus;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::transcript::Usage;
use teamd_shared::unwritten;
use teamd_view::model::{MemberRow, member_facts, rows, sort};
use teamd_view::top;

/// How long the daemon may take to report its trouble: the status does not depend on it.
const PATIENCE: Duration = Duration::from_millis(300);

/// Runs the command.
pub(crate) fn run(context: &Context, args: &StatusArgs) -> CommandResult {
    if args.watch
        && top::is_possible(context)
        && *args
            == (StatusArgs {
                watch: true,
                ..StatusArgs::default()
            })
    {
        return top::run(context, super::perform);
    }
    let dir = context.dir()?;
    if args.watch {
        return context.block_on(watch(context, args, &dir));
    }
    let loaded = roster::load_with_daemon(&dir)?;
    let looked = context.block_on(async { Ok(Looked::at(context, args, &dir, &loaded).await) })?;
    show(context, args, &dir, &loaded, &looked)
}

/// Shows the members again after each change, until the reader is gone.
async fn watch(context: &Context, args: &StatusArgs, dir: &TeamDir) -> CommandResult {
    let mut wake = Wake::new(dir, &TeamPath::config(), context.settings.poll);
    let mut last = None;
    while !context.out.closed() {
        let loaded = roster::load_with_daemon(dir)?;
        if last.as_ref() != Some(&loaded) {
            if last.is_some() && !context.out.is_json() {
                context.out.text("\n")?;
            }
            let looked = Looked::at(context, args, dir, &loaded).await;
            show(context, args, dir, &loaded, &looked)?;
            last = Some(loaded);
        }
        wake.changed().await;
    }
    Ok(ExitCode::Done)
}

fn show(
    context: &Context,
    args: &StatusArgs,
    dir: &TeamDir,
    loaded: &LoadedRoster,
    looked: &Looked,
) -> CommandResult {
    let LoadedRoster { roster, daemon } = loaded;
    let Looked { answers, team } = looked;
    let trouble = answers.trouble.as_deref();
    let shown = match &args.name {
        Some(name) => vec![roster::find(roster, name)?],
        None => roster.members.iter().collect(),
    };
    // The table has no room for it, and reading every process of the machine takes time.
    let wanted = context.out.is_json() || args.name.is_some();
    let processes = wanted.then(Processes::read);
    let prices = money::prices(context);
    let running = roster::running_names_with(roster, daemon.is_some());
    let mut rows = rows(shown, &running, team, &prices);
    match (context.out.is_json(), context.out.width()) {
        (true, _) => {}
        (false, Some(_)) => sort(&mut rows),
        (false, None) => {
            rows.sort_by(|a, b| natural(a.member.name.as_str(), b.member.name.as_str()))
        }
    }
    rows.retain(|row| is_wanted(args, row));
    for row in &mut rows {
        // One odd inbox must not hide the others.
        row.unread = roster::unread(dir, row.member).ok();
        row.resources = processes.as_ref().and_then(|processes| {
            Resources::of(processes, roster, row.member, args.name.is_some())
        });
        if wanted {
            row.serves = localhost::served(dir, row.member);
        }
        row.mcp_servers = answers.mcp.of_member(&row.member.name).to_vec();
    }
    if context.out.is_json() {
        context
            .out
            .json(&document(loaded, &rows, team, &prices, trouble))?;
    } else if args.name.is_some() {
        context
            .out
            .wrapped(&rows.iter().map(details).collect::<String>())?;
    } else if rows.is_empty() {
        note_no_rows(context, args, roster);
    } else {
        context
            .out
            .text(list(context.out.width(), args, &rows) + &sum(roster, &prices) + &tasks(team))?;
    }
    note_daemon(context, *daemon, trouble);
    note_sandbox(context, roster, &rows);
    note_tokens(context, &rows);
    note_ends(context, &rows);
    Ok(ExitCode::Done)
}

fn note_no_rows(context: &Context, args: &StatusArgs, roster: &Roster) {
    if roster.members.is_empty() {
        context.out.note("there are no teammates");
        context.out.hint("`teamctl spawn NAME` starts a teammate");
    } else if args.waiting {
        context.out.note("no teammate waits for you");
    } else {
        context.out.note("no teammate is running");
    }
}

fn note_daemon(context: &Context, daemon: Option<u32>, trouble: Option<&str>) {
    if daemon.is_none() {
        context
            .out
            .note("the daemon is not running; showing the last recorded state");
    }
    if let Some(why) = trouble {
        context.out.note(format_args!(
            "the daemon {}, so what is shown here may be out of date",
            escape::line(why)
        ));
        context.out.hint(format_args!(
            "{}: then it continues by itself",
            unwritten::next_step(why)
        ));
    }
}

fn note_sandbox(context: &Context, roster: &Roster, rows: &[MemberRow<'_>]) {
    let Some(sandbox) = &roster.sandbox else {
        return;
    };
    if let Some(why) = &sandbox.weak {
        context.out.note(format_args!(
            "the sandbox is weak (--allow-weak-sandbox); not held: {why}"
        ));
    }
    let with_agent: Vec<&str> = rows
        .iter()
        .filter(|row| row.member.agent.is_some() && row.member.host.is_none())
        .map(|row| row.member.name.as_str())
        .collect();
    if !sandbox.has_live_gate() && !with_agent.is_empty() {
        let names = with_agent.join(", ");
        context
            .out
            .note(format_args!("no live gate on this machine: a gate that closes ends the agent of {names}; an agent that has a key also reaches the network behind a closed gate"));
    }
}

/// Notes teammates that have a token of the user's.
fn note_tokens(context: &Context, rows: &[MemberRow<'_>]) {
    let mut names = Vec::new();
    let mut costs = None;
    for row in rows {
        let member = row.member;
        let login = member.agent.as_ref().map(|agent| agent.login);
        let of_member = login.unwrap_or_default().costs();
        if of_member.is_some() && !member.status.is_ended() {
            names.push(member.name.as_str());
            costs = of_member;
        }
    }
    if let Some(costs) = costs {
        let names = names.join(", ");
        context
            .out
            .note(format_args!("your token is with {names}: {costs}"));
    }
}

/// Notes teammates whose end is not recorded, and how those that have crashed continue.
fn note_ends(context: &Context, rows: &[MemberRow<'_>]) {
    for row in rows.iter().filter(|row| row.unnoticed) {
        let name = &row.member.name;
        context.out.note(format_args!(
            "the process of {name} is gone: `teamd start` will record it"
        ));
    }
    let crashed: Vec<&Name> = rows
        .iter()
        .map(|row| row.member)
        .filter(|member| matches!(member.status, MemberStatus::Crashed | MemberStatus::Killed))
        .map(|member| &member.name)
        .collect();
    if let Some(next) = continues(&crashed) {
        context.out.hint(next);
    }
}

/// What is shown beside the roster.
struct Looked {
    answers: DaemonAnswers,
    team: Team,
}

impl Looked {
    /// Asks the daemon, and reads the journal until it answers.
    async fn at(
        context: &Context,
        args: &StatusArgs,
        dir: &TeamDir,
        loaded: &LoadedRoster,
    ) -> Self {
        let reading = async {
            // The question is sent before the reading begins.
            tokio::task::yield_now().await;
            folded(dir, &loaded.roster)
        };
        let (answers, team) = tokio::join!(biased; ask(context, args, dir, loaded), reading);
        Self { answers, team }
    }
}

/// What only the daemon knows.
#[derive(Default)]
struct DaemonAnswers {
    /// What it cannot do now.
    trouble: Option<String>,
    mcp: McpReports,
}

/// Asks the daemon what is in no file.
async fn ask(
    context: &Context,
    args: &StatusArgs,
    dir: &TeamDir,
    loaded: &LoadedRoster,
) -> DaemonAnswers {
    if loaded.daemon.is_none() {
        return DaemonAnswers::default();
    }
    let is_shown = context.out.is_json() || args.name.is_some();
    let mut members = loaded.roster.members.iter();
    let has_servers = members.any(|member| !member.mcp.is_empty() && !member.status.is_ended());
    let mcp = if is_shown && has_servers {
        McpReports::ask(dir).await
    } else {
        McpReports::default()
    };
    let trouble = trouble(dir).await;
    DaemonAnswers { trouble, mcp }
}

/// Asks the daemon what it cannot do now: what it cannot write is in no file.
async fn trouble(dir: &TeamDir) -> Option<String> {
    let asked = async {
        Client::connect(dir)
            .await
            .ok()?
            .call(Command::Ping)
            .await
            .ok()
    };
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Some(Done::Pong { trouble, .. })) => trouble,
        _ => None,
    }
}

/// Returns the next step for teammates that did not end in order.
fn continues(crashed: &[&Name]) -> Option<String> {
    match crashed {
        [] => None,
        [lead] if **lead == Name::lead() => {
            Some("`teamctl chat` continues the conversation of lead".to_owned())
        }
        [name] => Some(format!(
            "`teamctl spawn {name} --resume` continues its conversation"
        )),
        _ => Some(
            "`teamctl up --resume` continues all conversations, `teamctl spawn NAME --resume` one"
                .to_owned(),
        ),
    }
}

/// Returns the requests by which members are grouped, and the tasks. A journal that cannot be read
/// hides no member: other commands report it.
fn folded(dir: &TeamDir, roster: &Roster) -> Team {
    if roster.members.iter().all(|member| member.status.is_ended()) {
        return Team::default();
    }
    journal::fold(dir).unwrap_or_default()
}

fn is_wanted(args: &StatusArgs, row: &MemberRow<'_>) -> bool {
    let runs = !row.member.status.is_ended() && !row.unnoticed;
    (!args.waiting || row.standing.group == Group::NeedsYou) && (!args.running || runs)
}

/// Shows the members as a person reads them on a terminal, or else as other programs do: a member a
/// line.
fn list(terminal: Option<usize>, args: &StatusArgs, rows: &[MemberRow<'_>]) -> String {
    match terminal {
        _ if !args.columns.is_empty() => table::of_columns(rows, &args.columns).render(terminal),
        Some(terminal) if !args.wide => {
            let ended = rows.partition_point(|row| row.standing.group != Group::Ended);
            let (rows, ended) = rows.split_at(ended);
            let text = if rows.is_empty() {
                String::new()
            } else {
                table::fitting(rows, terminal, true).render(Some(terminal))
            };
            text + &fold(ended, terminal)
        }
        _ => table::wide(rows).render(None),
    }
}

/// Puts the members that have ended into one line.
fn fold(ended: &[MemberRow<'_>], terminal: usize) -> String {
    if ended.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = ended.iter().map(|row| row.member.name.as_str()).collect();
    let line = format!(
        "{} {}: {}",
        Group::Ended.title(),
        ended.len(),
        names.join(", ")
    );
    paint(DIM, cut(&line, Some(terminal))) + "\n"
}

fn document(
    loaded: &LoadedRoster,
    rows: &[MemberRow<'_>],
    team: &Team,
    prices: &Prices,
    trouble: Option<&str>,
) -> Value {
    let LoadedRoster { roster, daemon } = loaded;
    let members: Vec<Value> = rows.iter().map(MemberRow::to_json).collect();
    let usage = total(roster);
    let mut value = json!({"team_name": roster.team_name, "daemon": {"running": daemon.is_some(), "pid": daemon, "trouble": trouble},
        "sandbox": roster.sandbox, "usage": usage, "members": members});
    if !usage.is_nothing()
        && let Some(cost) = TeamCost::of(roster, prices).all()
    {
        value["cost"] = json!(cost);
    }
    if team.last_task > 0 {
        value["tasks"] = counts(team)
            .into_iter()
            .map(|(status, count)| (status.as_str().to_owned(), json!(count)))
            .collect();
    }
    value
}

/// Sums up what the whole team has cost.
fn total(roster: &Roster) -> Usage {
    let mut total = Usage::default();
    for member in &roster.members {
        total += member.usage;
    }
    total
}

/// Reports what the team has cost, if anything.
fn sum(roster: &Roster, prices: &Prices) -> String {
    let total = total(roster);
    if total.is_nothing() {
        return String::new();
    }
    let cost = TeamCost::of(roster, prices).describe();
    format!("tokens of the team: {}{cost}\n", tokens::cost(&total))
}

/// Counts the tasks that are not completed, by status.
fn counts(team: &Team) -> BTreeMap<TaskStatus, usize> {
    let mut counts = BTreeMap::new();
    for task in team
        .tasks
        .values()
        .filter(|task| task.status != TaskStatus::Completed)
    {
        *counts.entry(task.status).or_default() += 1;
    }
    counts
}

/// Counts the tasks, if any is open or has failed, and lists those that are stalled, and
/// why.
fn tasks(team: &Team) -> String {
    let counts = counts(team);
    let parts: Vec<String> = counts
        .iter()
        .filter(|(status, _)| **status != TaskStatus::Cancelled)
        .map(|(status, count)| format!("{count} {}", status.as_str().replace('_', " ")))
        .collect();
    let held_up = team
        .tasks
        .values()
        .filter_map(|task| Some((task.id, task.held_up()?)));
    let held_up = held_up.map(|(id, why)| format!("task {id}: {}\n", escape::line(&why)));
    if parts.is_empty() {
        return String::new();
    }
    format!(
        "tasks: {}\n{}",
        parts.join(", "),
        held_up.collect::<String>()
    )
}

/// Shows everything about one member.
fn details(row: &MemberRow<'_>) -> String {
    let status = paint(row.standing.group.style(), row.status());
    let heading = format!(
        "{}  {status} for {}",
        paint(BOLD, &row.member.name),
        clock::age(row.member.updated_at)
    );
    facts(heading, &member_facts(row))
}

fn pid(member: &RosterMember) -> String {
    member
        .pid
        .or(member.host_pid)
        .map_or_else(|| "-".to_owned(), |pid| pid.to_string())
}

#[cfg(test)]
mod tests;
