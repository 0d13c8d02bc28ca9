//! `teamctl plans`: the plans that are pending, or one in full.

use teamd_shared::request::{Kind, Payload, Request};

use super::requests::show;
use crate::ctl::args::Plans;
use crate::ctl::context::Context;
use crate::ctl::grouping::headline;
use crate::ctl::table::{Cell, Table};
use crate::ctl::{clock, requests};
use crate::error::CommandResult;

/// Runs the command.
pub(in crate::ctl) fn run(context: &Context, args: &Plans) -> CommandResult {
    let dir = context.dir()?;
    let mut plans = match &args.id {
        Some(prefix) => vec![requests::find(&dir, prefix, Some(Kind::PlanApproval))?],
        None => requests::recent(&dir)?,
    };
    plans.retain(|it| args.id.is_some() || it.kind == Kind::PlanApproval && it.is_pending());
    let done = show(context, &plans, args.id.is_some(), ("no plan waits for an answer", table))?;
    if args.id.is_none() && !plans.is_empty() {
        context.out.hint("`teamctl plans ID` shows the whole of one; `teamctl approve ID` or `reject ID --feedback TEXT` answers");
    }
    Ok(done)
}

fn table(plans: &[Request]) -> Table {
    let mut table = Table::new(&["ID", "TEAMMATE", "ASKED", "LINES", "PLAN"]);
    for request in plans {
        let Payload::Plan { plan } = &request.payload else { continue };
        let first = headline(plan);
        let (age, lines) = (clock::age(request.created_at), plan.lines().count().to_string());
        let cells = [request.request_id.as_str(), &request.from, &age, &lines, &first];
        table.row(cells.map(Cell::new).to_vec());
    }
    table
}
