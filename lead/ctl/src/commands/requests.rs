//! `teamctl requests`: all requests that were ever asked, or everything about one.

use anstyle::{AnsiColor, Style};
use serde::Serialize;
use teamd_client::args::RequestsArgs;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_client::exit_code::ExitCode;
use teamd_client::print::clock;
use teamd_client::print::render::{BAD, BOLD, DIM, facts};
use teamd_client::print::style::paint;
use teamd_client::print::table::{Cell, Table};
use teamd_client::read::requests;
use teamd_shared::member::ApproveBy;
use teamd_shared::request::{Payload, Request, Status};

/// A request as it is printed: a plan with the hash by which it is approved.
#[derive(Serialize)]
struct PrintedRequest<'a> {
    #[serde(flatten)]
    request: &'a Request,
    #[serde(skip_serializing_if = "Option::is_none")]
    plan_sha256: Option<String>,
}

impl<'a> PrintedRequest<'a> {
    fn of(request: &'a Request) -> Self {
        Self {
            request,
            plan_sha256: request.plan_sha256(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(context: &Context, args: &RequestsArgs) -> CommandResult {
    let dir = context.dir()?;
    let requests = match &args.id {
        Some(prefix) => vec![requests::find(&dir, prefix, &[])?],
        None => requests::all(&dir)?,
    };
    show(
        context,
        &requests,
        args.id.is_some(),
        ("no request was ever made in this team", table),
    )
}

/// Shows one request in full, or all that were found as a table.
pub(super) fn show(
    context: &Context,
    requests: &[Request],
    full: bool,
    (none, table): (&str, fn(&[Request]) -> Table),
) -> CommandResult {
    let out = &context.out;
    if out.is_json() {
        let printed: Vec<_> = requests.iter().map(PrintedRequest::of).collect();
        out.json(&printed)?;
    } else if full {
        out.wrapped(&requests.iter().map(details).collect::<String>())?;
    } else if requests.is_empty() {
        out.note(none);
    } else {
        out.text(table(requests).render(out.width()))?;
    }
    Ok(ExitCode::Done)
}

/// Shows everything about one request.
fn details(request: &Request) -> String {
    let status = paint(style(request.status), request.status.as_str());
    let kind = request.kind.as_str();
    let member = request.member();
    let asked = clock::time_of_day(request.created_at);
    let mut all = vec![(
        "asked",
        format!("{asked}, incarnation {}", request.incarnation),
    )];
    match &request.payload {
        Payload::Shutdown {
            reason,
            decide_within,
            force_after,
        } => all.extend([
            ("reason", reason.clone()),
            ("time", format!("{} to decide", clock::span(*decide_within))),
            (
                "forced",
                force_after
                    .map(|after| format!("after {}", clock::span(after)))
                    .unwrap_or_default(),
            ),
        ]),
        Payload::Plan { plan } => all.push(("plan", plan.clone())),
        Payload::Permission { .. } => all.push(("wants", request.payload.text())),
        Payload::Memory { remember } => all.push(("remember", remember.clone())),
        Payload::Review(review) => all.extend([
            ("work", request.payload.text()),
            (
                "answered by",
                format!(
                    "a person{}",
                    if review.by == ApproveBy::Lead {
                        " or the lead"
                    } else {
                        ""
                    }
                ),
            ),
        ]),
    }
    all.push((
        "resolved",
        request
            .resolved_at
            .map(clock::time_of_day)
            .unwrap_or_default(),
    ));
    all.push(("answer", request.reason.clone().unwrap_or_default()));
    facts(
        format!(
            "{}  {kind} of {member}  {status}",
            paint(BOLD, &request.request_id)
        ),
        &all,
    )
}

fn table(requests: &[Request]) -> Table {
    let mut table = Table::new(&["ID", "KIND", "TEAMMATE", "STATUS", "ASKED", "ANSWER"]);
    for request in requests {
        table.row(vec![
            Cell::new(request.request_id.as_str()),
            Cell::new(request.kind.as_str()),
            Cell::new(request.member()),
            Cell::styled(request.status.as_str(), style(request.status)),
            Cell::new(clock::age(request.created_at)),
            Cell::new(request.reason.as_deref().unwrap_or_default()),
        ]);
    }
    table
}

fn style(status: Status) -> Style {
    match status {
        Status::Pending => AnsiColor::Yellow.on_default().bold(),
        Status::Approved => AnsiColor::Green.on_default(),
        Status::Rejected => BAD,
        Status::Expired => DIM,
    }
}
