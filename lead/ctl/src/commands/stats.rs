//! `teamctl stats`: what each teammate and task took, and what was used of each MCP server, from the
//! transcripts and the journal.

use std::collections::BTreeMap;

use serde_json::json;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::BOLD;
use teamd_client::print::table::{Cell, Table};
use teamd_client::print::{clock, tokens};
use teamd_client::read::{money, roster};
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::price::{Dollars, Prices};
use teamd_view::model::{CostAccount, CostShare, Past, ServerUse, ledger};

/// Runs the command.
pub(crate) fn run(context: &Context) -> CommandResult {
    let dir = context.dir()?;
    let roster = roster::load(&dir)?;
    let prices = money::prices(context);
    let mut past = Past::default();
    load(&dir, Since::Start, |_, line| past.line(line))?;
    let mut account = CostAccount::new(&past, teamd_shared::clock::wall());
    let mut servers = BTreeMap::<String, ServerUse>::new();
    for member in &roster.members {
        let runs = roster::runs(&roster, member);
        let ledger = ledger(&dir, &member.name)?;
        account.member((&member.name, &money::model(member), runs), &ledger);
        for (server, used) in ledger.servers {
            *servers.entry(server).or_default() += used;
        }
    }
    if context.out.is_json() {
        let members = account
            .members
            .iter()
            .map(|(name, it)| it.to_json(&prices, json!({"name": name})));
        let tasks = past.tasks.iter().map(|(id, task)| {
            let what = json!({"id": id, "subject": task.task.subject, "status": task.task.status});
            account.tasks[id].to_json(&prices, what)
        });
        let servers = servers.iter().map(|(name, used)| {
            let ServerUse {
                calls,
                failed,
                seconds,
            } = used;
            json!({"name": name, "calls": calls, "failed": failed, "seconds": seconds})
        });
        let stats = json!({
            "members": members.collect::<Vec<_>>(),
            "tasks": tasks.collect::<Vec<_>>(),
            "servers": servers.collect::<Vec<_>>(),
        });
        return context.out.json(&stats).map(|()| ExitCode::Done);
    }
    if account.members.is_empty() {
        context.out.note("there are no teammates");
        return Ok(ExitCode::Done);
    }
    let members = account
        .members
        .iter()
        .map(|(name, it)| (Cell::styled(name.as_str(), BOLD), it, ""));
    context
        .out
        .text(table("TEAMMATE", members.collect(), &prices).render(context.out.width()))?;
    let tasks: Vec<_> = past
        .tasks
        .iter()
        .map(|(id, task)| {
            (
                Cell::styled(id.to_string(), BOLD),
                &account.tasks[id],
                task.task.subject.as_str(),
            )
        })
        .collect();
    if !tasks.is_empty() {
        context.out.text("\n")?;
        context
            .out
            .text(table("TASK", tasks, &prices).render(context.out.width()))?;
    }
    if !servers.is_empty() {
        context.out.text("\n")?;
        context
            .out
            .text(of_servers(&servers).render(context.out.width()))?;
    }
    Ok(ExitCode::Done)
}

/// Makes the table of the MCP servers.
fn of_servers(servers: &BTreeMap<String, ServerUse>) -> Table {
    let mut table = Table::new(&["MCP SERVER", "CALLS", "FAILED", "TIME"]);
    for (name, used) in servers {
        table.row(vec![
            Cell::styled(name.as_str(), BOLD),
            Cell::new(used.calls.to_string()),
            Cell::new(used.failed.to_string()),
            Cell::new(clock::span(used.seconds)),
        ]);
    }
    table
}

fn table(title: &str, rows: Vec<(Cell, &CostShare, &str)>, prices: &Prices) -> Table {
    let mut table = Table::new(&[
        title, "TURNS", "TOKENS", "COST", "WORKING", "WAITING", "SUBJECT",
    ]);
    let mut costs = false;
    let mut subjects = false;
    for (first, share, subject) in rows {
        let cost = share.cost(prices).filter(|cost| *cost > Dollars::default());
        costs = costs || cost.is_some();
        subjects = subjects || !subject.is_empty();
        let usage = share.usage();
        table.row(vec![
            first,
            Cell::new(share.turns.to_string()),
            Cell::new(if usage.is_nothing() {
                "-".to_owned()
            } else {
                tokens::cost(&usage)
            }),
            Cell::new(cost.map_or_else(|| "-".to_owned(), |cost| cost.to_string())),
            Cell::new(clock::span(share.working)),
            Cell::new(clock::span(share.waiting)),
            Cell::new(subject),
        ]);
    }
    let shown = (0..7).filter(|&column| match column {
        3 => costs,
        6 => subjects,
        _ => true,
    });
    table.only(&shown.collect::<Vec<_>>())
}
