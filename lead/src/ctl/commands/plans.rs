//! `teamctl plans`: the plans that wait for an answer, or the whole of one.

use teamd_shared::request::{Kind, Payload, Request};

use super::requests::details;
use crate::ctl::args::Plans;
use crate::ctl::context::Context;
use crate::ctl::table::{Cell, Table};
use crate::ctl::{clock, journal, requests};
use crate::error::CommandResult;
use crate::exit_code::ExitCode;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Plans) -> CommandResult {
    let dir = context.dir()?;
    let known = match &args.id {
        Some(prefix) => {
            let plan = requests::find(&dir, prefix, Some(Kind::PlanApproval))?;
            [(plan.request_id.clone(), plan)].into()
        }
        None => journal::fold(&dir)?.requests,
    };
    let is_shown = |plan: &&Request| args.id.is_some() || is_open(plan);
    let plans: Vec<&Request> = requests::in_order(&known).into_iter().filter(is_shown).collect();
    if context.out.is_json() {
        context.out.json(&plans)?;
    } else if args.id.is_some() {
        context.out.wrapped(&plans.into_iter().map(details).collect::<String>())?;
    } else if plans.is_empty() {
        context.out.note("no plan waits for an answer");
    } else {
        let mut table = Table::new(&["ID", "TEAMMATE", "ASKED", "LINES", "PLAN"]);
        for plan in &plans {
            let (lines, first) = lines(plan);
            let age = clock::age(plan.created_at);
            let cells = [plan.request_id.as_str(), &plan.from, &age, &lines.to_string(), first];
            table.row(cells.map(Cell::new).to_vec());
        }
        context.out.text(table.render(context.out.width()))?;
        context.out.hint("`teamctl plans ID` shows the whole of one; `teamctl approve ID` or `reject ID --feedback TEXT` answers");
    }
    Ok(ExitCode::Done)
}

fn is_open(request: &Request) -> bool {
    request.kind == Kind::PlanApproval && request.is_pending()
}

/// Returns how many lines a plan has, and the first one that says something.
fn lines(plan: &Request) -> (usize, &str) {
    let Payload::Plan { plan } = &plan.payload else { return (0, "") };
    (plan.lines().count(), plan.lines().find(|line| !line.trim().is_empty()).unwrap_or_default())
}
