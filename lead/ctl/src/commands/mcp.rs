//! `teamctl mcp`: lists and installs the MCP servers of teammates; without a word, it serves the team to another agent by the Model Context Protocol, on stdin and
//! stdout. That agent is then a lead, as the lead agent is one.
//!
//! It may be killed at any time: it keeps nothing that matters, and consumes nothing. Each call is
//! carried out in a thread of its own, since it may wait.

mod calls;
pub(super) mod events;
mod install;
mod list;
mod plugin;
mod server;
mod session;
mod tools;

use std::sync::Arc;

use rmcp::transport::stdio_pipes;
use teamd_client::args::{Mcp, McpCommand};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::output::Output;
use teamd_client::run_by;
use tokio::sync::mpsc;

use self::server::{LeadServer, ToolCall};
use self::session::LeadSession;

/// How many calls may wait to be begun.
const ROOM: usize = 64;
/// The commands print for so many columns: what they print is not shown.
const COLUMNS: usize = 200;

/// Runs the command.
pub(crate) fn run(context: &Context, args: &Mcp) -> CommandResult {
    match &args.command {
        None => {}
        Some(McpCommand::List) => return list::run(context),
        Some(McpCommand::Install(args)) => return install::run(context, args),
    }
    if let Some(folder) = &args.print_plugin {
        return plugin::write(context, folder);
    }
    let run_by = run_by::process().map_err(|error| {
        CommandError::refused("cannot see which process runs this server", &error)
    })?;
    let session = Arc::new(LeadSession::begin(context, run_by, args.no_start)?);
    context.block_on(serve(context, session))
}

/// Serves until the client closes its end.
async fn serve(context: &Context, session: Arc<LeadSession>) -> CommandResult {
    let (calls, mut incoming) = mpsc::channel(ROOM);
    let serving = async {
        match rmcp::serve_server(LeadServer::new(calls), stdio_pipes()).await {
            Ok(service) => service.waiting().await.map(drop).map_err(failed),
            // A client may go before it has said anything.
            Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    };
    in_thread(context, &session, |context, session| session.start(context));
    let dispatching = async {
        while let Some(call) = incoming.recv().await {
            begin(context, &session, call);
        }
    };
    tokio::select! {
        served = serving => served.map(|()| ExitCode::Done),
        () = dispatching => Ok(ExitCode::Done),
        never = session::hold(context, &session) => match never {},
    }
}

/// Begins a call.
fn begin(context: &Context, session: &Arc<LeadSession>, call: ToolCall) {
    in_thread(context, session, move |context, session| {
        let answer = calls::answer(context, session, &call.name, &call.input);
        // The client may have cancelled the call.
        call.reply.send(answer).ok();
    });
}

/// Does something in a thread, which has a context of its own.
fn in_thread(
    context: &Context,
    session: &Arc<LeadSession>,
    action: impl FnOnce(&Context, &LeadSession) + Send + 'static,
) {
    let elsewhere = context.elsewhere();
    let session = Arc::clone(session);
    std::thread::spawn(move || {
        let (out, _) = Output::stored(COLUMNS);
        action(&elsewhere(out), &session);
    });
}

fn failed(error: impl std::fmt::Display) -> CommandError {
    CommandError::new(ExitCode::Failed, format!("cannot serve by MCP: {error}"))
        .hint("let the client start it: `claude mcp add team -- teamctl mcp`")
}
