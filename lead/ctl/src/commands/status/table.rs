//! The members as a table that fits the terminal.

use clap::ValueEnum;
use teamd_client::args::Column;
use teamd_client::print::grouping::Group;
use teamd_client::print::render::{BAD, BOLD, DIM};
use teamd_client::print::table::{Cell, Table, cut, room};
use teamd_client::print::{clock, tokens};
use teamd_shared::member::{Gate, SandboxMode};
use teamd_shared::price::Dollars;

use super::{MemberRow, pid};

/// How much of a role the table shows, in columns.
const ROLE: usize = 24;
/// How much of a model's name it shows.
const MODEL: usize = 28;
/// The least that is left for what a member does, in columns, before another column is left out.
const DOING: usize = 28;
/// The same before the last one goes that can.
const LEAST: usize = 16;

/// How much of what a member does can be seen on any terminal, in characters.
const SEEN: usize = 2_000;

/// In which order columns are left out where there is no room.
const LEFT_OUT: [Column; 9] = [
    Column::Tokens,
    Column::Pid,
    Column::Cost,
    Column::Model,
    Column::Role,
    Column::Host,
    Column::Gate,
    Column::Unread,
    Column::Since,
];

/// Lays out these columns of the members, in this order.
pub(super) fn of_columns(rows: &[MemberRow<'_>], columns: &[Column]) -> Table {
    let all = table(rows, false);
    all.only(&indices(columns))
}

/// Lays out all columns that have something to show, without a limit.
pub(super) fn wide(rows: &[MemberRow<'_>]) -> Table {
    of_columns(rows, &columns_to_show(rows))
}

/// Lays out the members, if `has_unread` with their unread messages, below the headings of their
/// groups, so that a line has room for what they do.
pub(super) fn fitting(rows: &[MemberRow<'_>], terminal: usize, has_unread: bool) -> Table {
    let all = table(rows, true);
    let widths = all.widths();
    let mut columns = columns_to_show(rows);
    // What a member does also shows its restarts: that column would be the first without room.
    columns
        .retain(|column| *column != Column::Restarts && (has_unread || *column != Column::Unread));
    let wanted = widths.last().copied().unwrap_or(0);
    for left_out in LEFT_OUT {
        let enough = wanted.min(if left_out == Column::Since {
            LEAST
        } else {
            DOING.max(terminal * 2 / 5)
        });
        let taken: Vec<usize> = indices(&columns)
            .into_iter()
            .map(|index| widths[index])
            .collect();
        if room(&taken, terminal) >= enough {
            break;
        }
        columns.retain(|column| *column != left_out);
    }
    all.only(&indices(&columns))
}

fn indices(columns: &[Column]) -> Vec<usize> {
    columns.iter().map(|&column| column as usize).collect()
}

/// Returns the columns that have something to show.
fn columns_to_show(rows: &[MemberRow<'_>]) -> Vec<Column> {
    // A team of scripts has no tokens, and most teams have no crash to show.
    let costs = rows.iter().any(|row| !row.member.usage.is_nothing());
    let money = rows
        .iter()
        .any(|row| row.cost.is_some_and(|cost| cost > Dollars::default()));
    let restarts = rows.iter().any(|row| row.member.restarts > 0);
    let tasks = rows.iter().any(|row| row.task.is_some());
    let hosts = rows.iter().any(|row| row.member.host.is_some());
    Column::value_variants()
        .iter()
        .copied()
        .filter(|column| match column {
            Column::Tokens => costs,
            Column::Cost => money,
            Column::Restarts => restarts,
            Column::Task => tasks,
            Column::Host => hosts,
            _ => true,
        })
        .collect()
}

fn table(rows: &[MemberRow<'_>], headings: bool) -> Table {
    let mut table = Table::new(&[
        "NAME", "ROLE", "STATUS", "SINCE", "UNREAD", "GATE", "HOST", "PID", "MODEL", "TOKENS",
        "COST", "RESTARTS", "TASK", "DOING",
    ]);
    let mut last = None;
    for row in rows {
        let group = row.standing.group;
        if headings && last != Some(group) {
            table.row(vec![heading(rows, group)]);
            last = Some(group);
        }
        table.row(
            Column::value_variants()
                .iter()
                .map(|&column| cell(row, column, headings))
                .collect(),
        );
    }
    table
}

fn heading(rows: &[MemberRow<'_>], group: Group) -> Cell {
    let count = rows
        .iter()
        .filter(|row| row.standing.group == group)
        .count();
    Cell::styled(format!("{} {count}", group.title()), group.style())
}

fn cell(row: &MemberRow<'_>, column: Column, words: bool) -> Cell {
    let member = row.member;
    let spent = !member.usage.is_nothing();
    match column {
        Column::Name => Cell::styled(member.name.as_str(), BOLD),
        Column::Role => Cell::new(cut(
            if member.role.is_empty() {
                "-"
            } else {
                &member.role
            },
            Some(ROLE),
        )),
        Column::Status if words => Cell::styled(row.standing.word, row.standing.group.style()),
        Column::Status => Cell::styled(row.status(), row.standing.group.style()),
        Column::Since => Cell::new(clock::age(if words {
            row.standing.since
        } else {
            member.updated_at
        })),
        Column::Unread => match row.unread {
            None => Cell::styled("?", BOLD),
            Some(0) => Cell::styled("-", DIM),
            Some(unread) => Cell::styled(unread.to_string(), BOLD),
        },
        Column::Gate => Cell::styled(
            member.gate.as_str(),
            if member.gate == Gate::Open { DIM } else { BOLD },
        ),
        Column::Host => dash_or(member.host.as_ref().map(ToString::to_string)),
        Column::Pid => Cell::new(pid(member)),
        Column::Model => Cell::new(cut(&member.mind(), Some(MODEL))),
        Column::Tokens if words => dash_or(spent.then(|| tokens::all(&member.usage))),
        Column::Tokens => dash_or(spent.then(|| tokens::cost(&member.usage))),
        Column::Cost => dash_or(row.cost.map(|cost| cost.to_string())),
        Column::Restarts if member.restarts == 0 => Cell::styled("-", DIM),
        Column::Restarts => Cell::styled(member.restarts.to_string(), BOLD),
        Column::Task => dash_or(row.task.map(|task| task.id.to_string())),
        Column::Doing => doing(row, words),
    }
}

/// Shows what it does; on a `terminal` no more of it than can ever be seen.
fn doing(row: &MemberRow<'_>, terminal: bool) -> Cell {
    let restarts = row.member.restarts;
    let what = if terminal && restarts > 0 && !row.member.status.is_ended() {
        format!("restarted {restarts}×; {}", row.standing.what)
    } else {
        row.standing.what.clone()
    };
    let what = what.trim_end_matches("; ");
    let end = if terminal {
        what.char_indices().map(|(at, _)| at).nth(SEEN)
    } else {
        None
    };
    let what = &what[..end.unwrap_or(what.len())];
    if row.standing.group == Group::Stuck {
        return Cell::styled(what, BAD).wrapping();
    }
    // A shell without a sandbox must not be overlooked.
    let unconfined = row.member.sandbox.mode == SandboxMode::Off && !row.member.status.is_ended();
    let cell = match (unconfined, what.is_empty()) {
        (false, _) => Cell::new(what),
        (true, true) => Cell::styled("SANDBOX OFF", BAD),
        (true, false) => Cell::new(format!("SANDBOX OFF; {what}")),
    };
    if row.standing.group == Group::NeedsYou {
        cell.wrapping()
    } else {
        cell
    }
}

fn dash_or(text: Option<String>) -> Cell {
    match text {
        None => Cell::styled("-", DIM),
        Some(text) => Cell::new(text),
    }
}
