//! The commands of `teamctl`, one file each, and which of them a command line means.

mod acp;
pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod attach;
pub(crate) mod broadcast;
pub(crate) mod chat;
pub(crate) mod compact;
pub(crate) mod diagram;
pub(crate) mod doctor;
pub mod down;
pub(crate) mod events;
pub(crate) mod forget;
mod host;
pub(crate) mod inbox;
mod install;
pub(crate) mod integration;
pub(crate) mod interrupt;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod mcp;
pub(crate) mod memory;
pub mod orders;
pub(crate) mod plans;
mod pull_request;
pub(crate) mod request_plan;
pub(crate) mod requests;
pub(crate) mod run;
pub(crate) mod schema;
pub(crate) mod send;
pub(crate) mod shutdown;
pub(crate) mod spawn;
pub(crate) mod stats;
pub(crate) mod status;
pub(crate) mod task;
pub(crate) mod transcript;
pub(crate) mod up;
pub(crate) mod wait;

use teamd_client::args::{TaskCommand, Tasks, TeamctlCommand};
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_shared::request::Kind;
use teamd_view::{port, review, top, web};

use crate::completion;

/// Runs a command whose settings are checked already. Blocks, and starts a runtime: not to be
/// called within one.
pub(crate) fn perform(command: TeamctlCommand, context: &Context) -> CommandResult {
    match command {
        TeamctlCommand::Spawn(args) => spawn::run(context, *args),
        TeamctlCommand::Up(args) => up::run(context, &args),
        TeamctlCommand::Down(args) => down::run_or_is_down(context, &args),
        TeamctlCommand::Shutdown(args) => shutdown::run(context, args),
        TeamctlCommand::Status(args) => status::run(context, &args),
        TeamctlCommand::Top => top::run(context, perform),
        TeamctlCommand::Web(args) => web::run(context, &args, perform),
        TeamctlCommand::Port(args) => port::run(context, &args),
        TeamctlCommand::Send(args) => send::run(context, &args),
        TeamctlCommand::Broadcast(args) => broadcast::run(context, &args),
        TeamctlCommand::Interrupt(args) => interrupt::run(context, args),
        TeamctlCommand::Compact(args) => compact::run(context, args),
        TeamctlCommand::Inbox(args) => inbox::run(context, &args),
        TeamctlCommand::Transcript(args) => transcript::run(context, &args),
        TeamctlCommand::Logs(args) => logs::run(context, &args),
        TeamctlCommand::Events(args) => events::run(context, &args),
        TeamctlCommand::Diagram(args) => diagram::run(context, &args),
        TeamctlCommand::Stats => stats::run(context),
        TeamctlCommand::Requests(args) => requests::run(context, &args),
        TeamctlCommand::Agents(args) => agents::run(context, &args),
        TeamctlCommand::Plans(args) => plans::run(context, &args, Kind::PlanApproval),
        TeamctlCommand::Reviews(args) => plans::run(context, &args, Kind::Review),
        TeamctlCommand::Review(args) => review::run(context, &args.id, args.tool.as_deref()),
        TeamctlCommand::Approve(args) => {
            answer::run(context, &args.verdict.id.clone(), args.into())
        }
        TeamctlCommand::Reject(args) => answer::run(context, &args.id.clone(), args.into()),
        TeamctlCommand::RequestPlan(args) => request_plan::run(context, args),
        TeamctlCommand::Run(args) => run::run(context, &args),
        TeamctlCommand::Wait(args) => wait::run(context, &args),
        TeamctlCommand::Task(args) => task::run(context, args),
        TeamctlCommand::TaskList(args) => task::run(
            context,
            Tasks {
                command: TaskCommand::List(args),
            },
        ),
        TeamctlCommand::Orders => orders::run(context),
        TeamctlCommand::Memory(args) => memory::run(context, args),
        TeamctlCommand::Host(args) => host::run(context, args),
        TeamctlCommand::Diff(args) => integration::diff(context, &args),
        TeamctlCommand::Sync(args) => integration::sync(context, &args),
        TeamctlCommand::Land(args) if args.pr => pull_request::open(context, &args),
        TeamctlCommand::Land(args) => integration::land(context, &args.branch),
        TeamctlCommand::Pr(args) => pull_request::run(context, &args),
        TeamctlCommand::Forget(args) => forget::run(context, &args),
        TeamctlCommand::Chat(args) => chat::run(context, &args),
        TeamctlCommand::Mcp(args) => mcp::run(context, &args),
        TeamctlCommand::Acp(args) => acp::run(context, &args),
        TeamctlCommand::Attach(args) => attach::run(context, &args),
        TeamctlCommand::Doctor(args) => doctor::run(context, &args),
        TeamctlCommand::Lint(args) => lint::run(context, &args),
        TeamctlCommand::Schema(args) => schema::run(context, &args),
        TeamctlCommand::Completions(args) => completion::run(context, &args, "teamctl"),
    }
}
