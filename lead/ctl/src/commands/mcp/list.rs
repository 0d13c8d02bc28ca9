//! `teamctl mcp list`: the MCP servers of `team.toml`.

use teamd_client::act::mcp_reports::McpReports;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::journal;
use teamd_client::read::mcp::ServerRow;
use teamd_shared::control::McpServerState;
use teamd_shared::environment::Environment;
use teamd_shared::name::Name;

/// Runs the command.
pub(super) fn run(context: &Context) -> CommandResult {
    let file = context.team_file()?;
    let environment = Environment::of_self();
    let dir = match context.dir() {
        Ok(dir) => Some(dir),
        // Without a team no teammate has one.
        Err(error) if error.code() == ExitCode::NotRunning => None,
        Err(error) => return Err(error),
    };
    let team = dir.as_ref().map(journal::fold).transpose()?;
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
    if let Some(dir) = &dir
        && rows.iter().any(|row| !row.teammates.is_empty())
    {
        let reports = context.block_on(async { Ok(McpReports::ask(dir).await) })?;
        for row in &mut rows {
            row.add_states(&reports);
        }
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
    if rows.iter().any(|row| !row.states.is_empty()) {
        let states = states(&rows).render(context.out.width());
        context.out.text(format!("\n{states}"))?;
    }
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
    let names: Vec<&str> = row.teammates.iter().map(Name::as_str).collect();
    vec![
        Cell::new(&row.name),
        Cell::new(row.transport),
        Cell::new(row.given_to.join(", ")),
        Cell::new(names.join(", ")),
        Cell::new(number(row.tools)),
        Cell::new(number(row.tokens)),
        Cell::new(if row.problem.is_some() {
            "problem"
        } else {
            "ready"
        }),
    ]
}

/// Shows what becomes of each server of each teammate.
fn states(rows: &[ServerRow]) -> Table {
    let mut table = Table::new(&["SERVER", "TEAMMATE", "STATE", "TOOLS", "LAST ERROR"]);
    for row in rows {
        for server in &row.states {
            let tools = server.tools.map(|tools| tools.to_string());
            table.row(vec![
                Cell::new(&row.name),
                Cell::new(server.teammate.as_str()),
                Cell::new(server.state.map_or("?", McpServerState::as_str)),
                Cell::new(tools.unwrap_or_default()),
                Cell::new(server.last_error.as_deref().unwrap_or_default()).wrapping(),
            ]);
        }
    }
    table
}
