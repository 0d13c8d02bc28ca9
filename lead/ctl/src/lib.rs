//! `teamctl`: one command, one answer, then it ends.
//!
//! What the files of the team directory tell is read there; what needs a decision is asked of the
//! daemon. It writes nothing but messages into inboxes (and `doctor --fix` what no daemon writes
//! just now). What several commands and views do lies in `teamd-client`.

pub mod commands;
pub mod completion;
mod stream;

use teamd_client::args::{Cli, Command, TaskCommand, Tasks};
use teamd_client::context;
use teamd_client::context::Context;
use teamd_client::error::CommandResult;
use teamd_shared::request::Kind;
use teamd_view::{top, web};

/// Runs the program.
pub fn run(version: &'static str) -> std::process::ExitCode {
    if completion::answer::<Cli>() {
        return std::process::ExitCode::SUCCESS;
    }
    context::run(
        version,
        |cli: &Cli| cli.global.clone(),
        |cli, context| dispatch(cli.command, context),
    )
}

fn dispatch(command: Command, context: &Context) -> CommandResult {
    context.set_signals();
    if !matches!(
        command,
        Command::Completions(_) | Command::Lint(_) | Command::Schema(_)
    ) {
        context.note_passed_over();
    }
    match &command {
        // Spawn, up and shutdown need a valid team.toml; `--force` does not.
        Command::Spawn(_) | Command::Up(_) | Command::Run(_) => {
            // A team.toml beside an unregistered team directory is ignored, with its mistakes.
            if !context.is_missing() {
                context.dir()?;
            }
            context.ask_for_trust()?;
        }
        Command::Shutdown(args) if !args.force => drop(context.team_file()?),
        Command::Completions(_) | Command::Lint(_) | Command::Schema(_) => {}
        _ => context.warn_of_team_file(),
    }
    perform(command, context)
}

/// Runs a command, whose settings are looked at already. Blocks, and starts a runtime: not to be
/// called within one.
fn perform(command: Command, context: &Context) -> CommandResult {
    match command {
        Command::Spawn(args) => commands::spawn::run(context, *args),
        Command::Up(args) => commands::up::run(context, &args),
        Command::Down(args) => commands::down::run_or_is_down(context, &args),
        Command::Shutdown(args) => commands::shutdown::run(context, args),
        Command::Status(args) => commands::status::run(context, &args),
        Command::Top => top::run(context, perform),
        Command::Web(args) => web::run(context, &args),
        Command::Send(args) => commands::send::run(context, &args),
        Command::Broadcast(args) => commands::broadcast::run(context, &args),
        Command::Interrupt(args) => commands::interrupt::run(context, args),
        Command::Inbox(args) => commands::inbox::run(context, &args),
        Command::Transcript(args) => commands::transcript::run(context, &args),
        Command::Logs(args) => commands::logs::run(context, &args),
        Command::Events(args) => commands::events::run(context, &args),
        Command::Diagram(args) => commands::diagram::run(context, &args),
        Command::Stats => commands::stats::run(context),
        Command::Requests(args) => commands::requests::run(context, &args),
        Command::Agents => commands::agents::run(context),
        Command::Plans(args) => commands::plans::run(context, &args, Kind::PlanApproval),
        Command::Reviews(args) => commands::plans::run(context, &args, Kind::Review),
        Command::Approve(args) => {
            commands::answer::run(context, &args.verdict.id.clone(), args.into())
        }
        Command::Reject(args) => commands::answer::run(context, &args.id.clone(), args.into()),
        Command::RequestPlan(args) => commands::request_plan::run(context, args),
        Command::Run(args) => commands::run::run(context, &args),
        Command::Wait(args) => commands::wait::run(context, &args),
        Command::Task(args) => commands::task::run(context, args),
        Command::TaskList(args) => commands::task::run(
            context,
            Tasks {
                command: TaskCommand::List(args),
            },
        ),
        Command::Diff(args) => commands::integration::diff(context, &args),
        Command::Sync(args) => commands::integration::sync(context, &args),
        Command::Land(args) => commands::integration::land(context, &args),
        Command::Forget(args) => commands::forget::run(context, &args),
        Command::Chat(args) => commands::chat::run(context, &args),
        Command::Attach(args) => commands::attach::run(context, &args),
        Command::Doctor(args) => commands::doctor::run(context, &args),
        Command::Lint(args) => commands::lint::run(context, &args),
        Command::Schema(args) => commands::schema::run(context, &args),
        Command::Completions(args) => completion::run(context, &args, "teamctl"),
    }
}
