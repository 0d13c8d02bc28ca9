//! `teamctl plans` and `teamctl reviews`: what waits for an answer of the lead, or one in full.

use teamd_client::args::RequestsArgs;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::print::clock;
use teamd_client::print::grouping::headline;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::requests;
use teamd_shared::request::{Kind, Payload, Request};

use super::requests::show;

/// Runs the command for requests of this kind.
pub(crate) fn run(context: &Context, args: &RequestsArgs, kind: Kind) -> CommandResult {
    let dir = context.dir()?;
    let mut requests = match &args.id {
        Some(prefix) => vec![requests::find(&dir, prefix, &[kind])?],
        None => requests::recent(&dir)?,
    };
    requests.retain(|it| args.id.is_some() || it.kind == kind && it.is_pending());
    let noun = kind.noun();
    let none = format!("no {noun} waits for an answer");
    let done = show(context, &requests, args.id.is_some(), (&none, table))?;
    if args.id.is_none() && !requests.is_empty() {
        context.out.hint(format_args!(
            "`teamctl {noun}s ID` shows one in full; `teamctl approve ID` or `reject ID --feedback TEXT` answers it"
        ));
    }
    Ok(done)
}

fn table(requests: &[Request]) -> Table {
    let is_review = requests.iter().any(|request| request.kind == Kind::Review);
    let [third, last] = if is_review {
        ["TASK", "WORK"]
    } else {
        ["LINES", "PLAN"]
    };
    let mut table = Table::new(&["ID", "TEAMMATE", "ASKED", third, last]);
    for request in requests {
        let (number, text) = match &request.payload {
            Payload::Plan { plan } => (plan.lines().count().to_string(), headline(plan)),
            Payload::Review(review) => {
                let touched = if review.touched_protected.is_some() {
                    " (touched protected files)"
                } else {
                    ""
                };
                (
                    review.task.to_string(),
                    format!("{}{touched}", review.subject),
                )
            }
            Payload::Shutdown { .. } | Payload::Permission { .. } | Payload::Memory { .. } => {
                continue;
            }
        };
        let age = clock::age(request.created_at);
        let cells = [
            request.request_id.as_str(),
            &request.from,
            &age,
            &number,
            &text,
        ];
        table.row(cells.map(Cell::new).to_vec());
    }
    table
}
