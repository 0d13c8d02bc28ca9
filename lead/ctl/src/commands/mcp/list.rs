//! `teamctl mcp list`: the MCP servers of `team.toml`.

use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::journal;
use teamd_client::read::mcp::ServerRow;
use teamd_shared::environment::Environment;

/// Runs the command.
pub(super) fn run(context: &Context) -> CommandResult {
    let file = context.team_file()?;
    let environment = Environment::of_self();
    let team = match context.dir() {
        Ok(dir) => Some(journal::fold(&dir)?),
        // Without a team no teammate has one.
        Err(error) if error.code() == ExitCode::NotRunning => None,
        Err(error) => return Err(error),
    };
    let state = context.register.state();
    let mut rows = Vec::new();
    for (name, definition) in &file.mcp {
        let server = definition.named(name);
        rows.push(ServerRow::of(
            &server,
            file,
            team.as_ref(),
            state,
            &environment,
        ));
    }
    if context.out.is_json() {
        context.out.json(&rows)?;
        return Ok(ExitCode::Done);
    }
    let mut table = Table::new(&[
        "SERVER",
        "KIND",
        "GIVEN TO",
        "TEAMMATES",
        "TOOLS",
        "TOKENS",
        "STATE",
    ]);
    for row in &rows {
        table.row(cells(row));
    }
    context.out.text(table.render(context.out.width()))?;
    for problem in rows.iter().filter_map(|row| row.problem.as_ref()) {
        context.out.note(problem);
    }
    if rows.is_empty() {
        context
            .out
            .hint("`[mcp.NAME]` in team.toml defines a server (docs/mcp.md)");
    }
    Ok(ExitCode::Done)
}

fn cells(row: &ServerRow) -> Vec<Cell> {
    let number = |count: Option<usize>| match count {
        Some(count) => count.to_string(),
        None => "?".to_owned(),
    };
    vec![
        Cell::new(&row.name),
        Cell::new(row.transport),
        Cell::new(row.given_to.join(", ")),
        Cell::new(row.teammates.join(", ")),
        Cell::new(number(row.tools)),
        Cell::new(number(row.tokens)),
        Cell::new(if row.problem.is_some() {
            "problem"
        } else {
            "ready"
        }),
    ]
}
