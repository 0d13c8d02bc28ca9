//! What a person wants done is done here: by the daemon, or by the command of `teamctl` in a thread
//! of its own, since it may wait.

use std::pin::Pin;

use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use teamd_shared::control::TaskOrder;
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::task::Task;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::oneshot;

use crate::ctl::args::{Command, Mailbox};
use crate::ctl::commands::{answer, interrupt, send, shutdown, spawn, status, task};
use crate::ctl::context::{Context, block_on};
use crate::ctl::output::{Output, paint};
use crate::ctl::render::DIM;
use crate::ctl::{escape, text};
use teamd_client::connection::Client;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;

/// For so many columns the commands print: what they print is wrapped once more.
const COLUMNS: usize = 200;

/// Something that is being done.
pub(in crate::ctl) type Act<'d> = Pin<Box<dyn Future<Output = Done> + 'd>>;
/// All that is being done.
pub(super) type Actions<'d> = FuturesUnordered<Act<'d>>;

/// What became of it.
pub(in crate::ctl) enum Done {
    /// In a few lines.
    Said(String),
    /// A title, and a text with our escape sequences.
    Shown(String, String),
    /// The daemon is connected; none: it does not run.
    Connected(Option<Client>),
    /// The connection to the daemon has ended.
    Lost,
}

/// Connects to the daemon, if it runs.
pub(in crate::ctl) fn connect(dir: &TeamDir) -> Act<'_> {
    Box::pin(async { Done::Connected(Client::connect(dir).await.ok()) })
}

/// Waits for the end of a connection.
pub(in crate::ctl) fn hold<'d>(mut client: Client) -> Act<'d> {
    Box::pin(async move {
        // Nothing was asked, so nothing is answered.
        while client.reply().await.is_ok() {}
        Done::Lost
    })
}

/// What a person wants done, as the page says it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::ctl) enum Order {
    /// This request, and no other one.
    Answer {
        id: RequestId,
        approve: bool,
        feedback: String,
        /// What is answered, for people, where it is more than the id.
        #[serde(skip)]
        what: Option<String>,
    },
    /// A message to an agent.
    Send { to: Name, text: String },
}

impl Order {
    /// Has it done.
    pub(in crate::ctl) fn run(self, context: &Context) -> CommandResult {
        match self {
            Self::Answer {
                approve: false,
                feedback,
                ..
            } if feedback.trim().is_empty() => {
                Err(CommandError::new(ExitCode::Usage, "a rejection says why"))
            }
            Self::Answer {
                id,
                approve,
                feedback,
                what,
            } => {
                let dir = context.dir()?;
                let what = what.unwrap_or_else(|| id.to_string());
                let answer = answer::Answer {
                    approve,
                    feedback,
                    permissions: None,
                };
                let already = if block_on(answer::record(&dir, &id, answer))? {
                    "already "
                } else {
                    ""
                };
                let status = if approve { "approved" } else { "rejected" };
                context
                    .out
                    .text(format_args!("{what} is {already}{status}"))
                    .map(|()| ExitCode::Done)
            }
            Self::Send { to: owner, text } => {
                let content = text::not_blank(text, "message")?;
                send::deliver(
                    context,
                    &Mailbox {
                        to: owner.to_string(),
                        owner,
                    },
                    content,
                    false,
                )
            }
        }
    }
}

/// Does what a person ordered.
pub(super) fn order<'d>(context: &Context, order: Order) -> Act<'d> {
    said(context, |context| order.run(context))
}

/// Gives an order about tasks.
pub(super) fn task<'d>(context: &Context, order: TaskOrder) -> Act<'d> {
    let what = match order {
        TaskOrder::Add { .. } => "is added",
        TaskOrder::Cancel(_) => "is cancelled",
        _ => "is open again",
    };
    said(context, move |context| {
        for task in task::ask(context, order)? {
            context
                .out
                .text(format_args!("{} {what}", escape::line(&task.title())))?;
        }
        Ok(ExitCode::Done)
    })
}

/// Says everything about a task, with the output of its last check.
pub(in crate::ctl) fn task_text(dir: &TeamDir, team: &Team, task: &Task) -> String {
    let log = match task::read_log(dir, task.id) {
        Ok(None) => paint(DIM, "no check of it has run"),
        Ok(Some(output)) => escape::text(output.trim_end()).into_owned(),
        Err(error) => explained(&error),
    };
    format!(
        "{}\n{}\n{log}",
        task::details(team, task),
        paint(DIM, "the output of the last check:")
    )
}

/// Says what begins with a command that takes its time.
pub(super) fn begins(command: &Command) -> Option<String> {
    match command {
        Command::Shutdown(args) => {
            Some(format!("waiting for the answer of {}", args.names.first()?))
        }
        Command::Spawn(args) => Some(format!("{} is starting", args.name)),
        _ => None,
    }
}

/// Carries out a command of `teamctl`.
pub(super) fn call<'d>(context: &Context, command: Command) -> Act<'d> {
    match command {
        Command::Status(args) => {
            let title = args
                .name
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default();
            let printed = in_thread(context, move |context| status::run(context, &args));
            Box::pin(async move { Done::Shown(title, printed.await.styled) })
        }
        Command::Interrupt(args) => said(context, |context| interrupt::run(context, args)),
        Command::Shutdown(args) => said(context, |context| shutdown::run(context, args)),
        Command::Spawn(args) => said(context, |context| spawn::run(context, *args)),
        _ => Box::pin(async { Done::Said(String::new()) }),
    }
}

fn said<'d>(
    context: &Context,
    action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
) -> Act<'d> {
    let printed = in_thread(context, action);
    Box::pin(async { Done::Said(printed.await.text) })
}

/// What a command has printed.
#[derive(Default)]
pub(in crate::ctl) struct Printed {
    /// With our escape sequences.
    pub(in crate::ctl) styled: String,
    /// Without.
    pub(in crate::ctl) text: String,
    /// Whether it succeeded.
    pub(in crate::ctl) is_done: bool,
}

/// Does something in a thread, which has a runtime of its own.
pub(in crate::ctl) fn in_thread(
    context: &Context,
    action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
) -> impl Future<Output = Printed> + 'static {
    let (done, is_done) = oneshot::channel();
    let elsewhere = context.elsewhere();
    std::thread::spawn(move || {
        let (out, stored) = Output::stored(COLUMNS);
        let context = elsewhere(out);
        let result = action(&context);
        if let Some(error) = result.as_ref().err() {
            context.out.error(error);
        }
        let styled = stored.styled();
        let text = stored.text().trim_end().to_owned();
        // The view may have ended.
        done.send(Printed {
            styled,
            text,
            is_done: matches!(result, Ok(ExitCode::Done)),
        })
        .ok();
    });
    async { is_done.await.unwrap_or_default() }
}

fn explained(error: &CommandError) -> String {
    let hint = error
        .next_step()
        .map(|hint| format!("\nhint: {hint}"))
        .unwrap_or_default();
    format!("error: {error}{hint}")
}
