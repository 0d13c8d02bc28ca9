//! The commands of `teamctl`, one file each, and which of them a command line means.

pub(crate) mod agents;
pub(crate) mod answer;
pub(crate) mod attach;
pub(crate) mod broadcast;
pub(crate) mod chat;
pub(crate) mod diagram;
pub(crate) mod doctor;
pub mod down;
pub(crate) mod events;
pub(crate) mod forget;
pub(crate) mod inbox;
pub(crate) mod integration;
pub(crate) mod interrupt;
pub(crate) mod lint;
pub(crate) mod logs;
pub(crate) mod plans;
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

use teamd_client::args::{Command, TaskCommand, Tasks};
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_shared::request::Kind;
use teamd_view::{top, web};

use crate::completion;

/// Runs a command whose settings are checked already. Blocks, and starts a runtime: not to be
/// called within one.
pub(crate) fn perform(command: Command, context: &Context) -> CommandResult {
    match command {
        Command::Spawn(args) => spawn::run(context, *args),
        Command::Up(args) => up::run(context, &args),
        Command::Down(args) => down::run_or_is_down(context, &args),
        Command::Shutdown(args) => shutdown::run(context, args),
        Command::Status(args) => status::run(context, &args),
        Command::Top => top::run(context, perform),
        Command::Web(args) => web::run(context, &args),
        Command::Send(args) => send::run(context, &args),
        Command::Broadcast(args) => broadcast::run(context, &args),
        Command::Interrupt(args) => interrupt::run(context, args),
        Command::Inbox(args) => inbox::run(context, &args),
        Command::Transcript(args) => transcript::run(context, &args),
        Command::Logs(args) => logs::run(context, &args),
        Command::Events(args) => events::run(context, &args),
        Command::Diagram(args) => diagram::run(context, &args),
        Command::Stats => stats::run(context),
        Command::Requests(args) => requests::run(context, &args),
        Command::Agents => agents::run(context),
        Command::Plans(args) => plans::run(context, &args, Kind::PlanApproval),
        Command::Reviews(args) => plans::run(context, &args, Kind::Review),
        Command::Approve(args) => answer::run(context, &args.verdict.id.clone(), args.into()),
        Command::Reject(args) => answer::run(context, &args.id.clone(), args.into()),
        Command::RequestPlan(args) => request_plan::run(context, args),
        Command::Run(args) => run::run(context, &args),
        Command::Wait(args) => wait::run(context, &args),
        Command::Task(args) => task::run(context, args),
        Command::TaskList(args) => task::run(
            context,
            Tasks {
                command: TaskCommand::List(args),
            },
        ),
        Command::Diff(args) => integration::diff(context, &args),
        Command::Sync(args) => integration::sync(context, &args),
        Command::Land(args) => integration::land(context, &args),
        Command::Forget(args) => forget::run(context, &args),
        Command::Chat(args) => chat::run(context, &args),
        Command::Attach(args) => attach::run(context, &args),
        Command::Doctor(args) => doctor::run(context, &args),
        Command::Lint(args) => lint::run(context, &args),
        Command::Schema(args) => schema::run(context, &args),
        Command::Completions(args) => completion::run(context, &args, "teamctl"),
    }
}
