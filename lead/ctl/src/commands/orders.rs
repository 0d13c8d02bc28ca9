//! `teamctl orders`: when each order makes its next task, and which it made last.

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::render::DIM;
use teamd_client::print::table::{Cell, Table};
use teamd_client::print::{clock, escape};
use teamd_client::read::journal;
use teamd_shared::clock::wall;
use teamd_shared::journal::Team;
use teamd_shared::order::{Order, OrderState};
use teamd_shared::task::TaskStatus;

/// An order, as it is shown.
struct ShownOrder<'t> {
    state: &'t OrderState,
    /// When it is due next.
    next: Option<f64>,
    /// What became of its last task.
    status: Option<TaskStatus>,
    /// How many tasks it has made in the last 24 hours.
    today: usize,
    /// Why no running teammate may claim its tasks.
    unclaimed: Option<String>,
}

/// Runs the command.
pub(crate) fn run(context: &Context) -> CommandResult {
    let dir = context.dir()?;
    let team = journal::fold(&dir)?;
    let zone = TimeZone::system();
    let now = wall();
    let shown: Vec<ShownOrder<'_>> = team
        .orders
        .values()
        .map(|state| shown(&team, state, now, &zone))
        .collect();
    if context.out.is_json() {
        let all: Vec<Value> = shown.iter().map(in_json).collect();
        return context.out.json(&all).map(|()| ExitCode::Done);
    }
    if shown.is_empty() {
        context.out.note("no order is in force");
    } else {
        context
            .out
            .text(table(&shown).render(context.out.width()))?;
    }
    note_changes(context, &team);
    for order in &shown {
        if let Some(why) = &order.unclaimed {
            note_unclaimed(context, &order.state.order, why);
        }
    }
    if !shown.is_empty() && !is_locked(&dir) {
        context.out.note("no daemon runs: no order makes a task");
        context.out.hint("`teamd start` starts it");
    }
    Ok(ExitCode::Done)
}

fn shown<'t>(team: &Team, state: &'t OrderState, now: f64, zone: &TimeZone) -> ShownOrder<'t> {
    let last = state.made.back();
    ShownOrder {
        state,
        next: state.next(now, zone),
        status: last.and_then(|last| team.task_status(last.task)),
        today: state.made_within(now),
        unclaimed: team.no_claimer(&state.order),
    }
}

fn in_json(shown: &ShownOrder<'_>) -> Value {
    let order = &shown.state.order;
    let last = shown.state.made.back();
    json!({
        "name": order.name, "every": order.every, "on": order.on, "next": shown.next,
        "due": last.map(|last| last.due), "task": last.map(|last| last.task), "status": shown.status,
        "today": shown.today, "most": order.most, "unclaimed": shown.unclaimed,
    })
}

fn table(all: &[ShownOrder<'_>]) -> Table {
    let mut table = Table::new(&["ORDER", "WHEN", "NEXT", "LAST TASK", "IN 24H", "SUBJECT"]);
    for shown in all {
        let order = &shown.state.order;
        let last = shown.state.made.back().zip(shown.status);
        let last = last.map_or_else(
            || "-".to_owned(),
            |(last, status)| {
                let due = clock::time_of_day(last.due);
                format!("{} {} ({due})", last.task, status.as_str())
            },
        );
        let next = match shown.next {
            Some(next) => clock::time_of_day(next),
            None if shown.state.open.is_some() => "after its task".to_owned(),
            None => "-".to_owned(),
        };
        let subject = order.task.subject.as_deref().unwrap_or_default();
        table.row(vec![
            Cell::new(order.name.as_str()),
            Cell::new(order.when()),
            Cell::new(next),
            Cell::new(last),
            Cell::styled(format!("{} of {}", shown.today, order.most), DIM),
            Cell::new(subject).wrapping(),
        ]);
    }
    table
}

/// Notes that `team.toml` says something else than the running daemon was started with.
fn note_changes(context: &Context, team: &Team) {
    // What is wrong with the file has been reported already.
    let Ok(file) = &context.file else {
        return;
    };
    let mut wanted: Vec<&Order> = file.settings.orders.iter().collect();
    wanted.sort_by_key(|order| &order.name);
    if wanted == team.orders_in_force() {
        return;
    }
    context
        .out
        .note("team.toml has other orders than those that are in force");
    context
        .out
        .hint("`teamd start --replace` puts those into force, once they are trusted");
}

/// Notes why no running teammate may claim the tasks of an order.
pub fn note_unclaimed(context: &Context, order: &Order, why: &str) {
    let name = &order.name;
    context.out.note(escape::line(&format!(
        "no running teammate may claim the tasks of the order {name}: {why}"
    )));
    context
        .out
        .hint("`teamctl spawn NAME --auto` starts one that takes tasks by itself");
}
