//! Carries out what a person orders in a view: through the daemon, or by a command of `teamctl` in
//! a thread of its own, since a command may wait.

use std::pin::Pin;

use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use teamd_client::act::{Perform, answer, send, task};
use teamd_client::args::{MailboxName, TeamctlCommand};
use teamd_client::connection::Client;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::output::Output;
use teamd_client::print::render::DIM;
use teamd_client::print::style::paint;
use teamd_client::print::{self, escape};
use teamd_client::read::{tasks, text};
use teamd_shared::amount::format_size;
use teamd_shared::config::Roster;
use teamd_shared::control::{Command, Done, RequestCode, TaskOrder};
use teamd_shared::id::RequestId;
use teamd_shared::journal::Team;
use teamd_shared::name::Name;
use teamd_shared::task::Task;
use teamd_shared::team_dir::TeamDir;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::review::{Reviewed, Sample, loading};

/// For so many columns the commands print: what they print is wrapped once more.
const COLUMNS: usize = 200;

/// An action in progress.
pub(crate) type RunningAction<'d> = Pin<Box<dyn Future<Output = ActionEnd> + 'd>>;
/// All actions in progress.
pub(crate) type Actions<'d> = FuturesUnordered<RunningAction<'d>>;

/// The end of an action.
pub(crate) enum ActionEnd {
    /// In a few lines.
    Said(String),
    /// A title, and a text with our escape sequences.
    Shown(String, String),
    /// The daemon is connected; none: it does not run.
    Connected(Option<Client>),
    /// The connection to the daemon has ended.
    Lost,
    /// The codes of the pending requests; none: answers need no code.
    Codes(Option<Vec<RequestCode>>),
    /// The work of a review, or why it cannot be read.
    Reviewed(RequestId, Box<Result<Reviewed, String>>),
    /// Whether a review is answered, and what came of it.
    Answered(RequestId, bool, String),
    /// The grammars are ready: the source of this review can have colours.
    Coloured(RequestId),
}

/// How much of the output of a check is shown with its task, in bytes.
const LOG_END: u64 = 64 << 10;

/// Catches a signal from now on. Must be called within the runtime.
///
/// # Errors
/// If the system refuses.
pub(crate) fn on_signal(kind: SignalKind) -> Result<Signal, CommandError> {
    signal(kind).map_err(|error| CommandError::refused("cannot watch for signals", &error))
}

/// Connects to the daemon, if it runs.
pub(crate) fn connect(dir: &TeamDir) -> RunningAction<'_> {
    Box::pin(async { ActionEnd::Connected(Client::connect(dir).await.ok()) })
}

/// Asks for the codes of the pending requests.
pub(crate) fn codes(dir: &TeamDir) -> RunningAction<'_> {
    Box::pin(async { ActionEnd::Codes(ask_for_codes(dir).await) })
}

/// Asks for the codes of the pending requests; none: answers need no code, or none is shown here.
pub(crate) async fn ask_for_codes(dir: &TeamDir) -> Option<Vec<RequestCode>> {
    let mut client = Client::connect(dir).await.ok()?;
    match client.call(Command::ShowCodes).await {
        Ok(Done::Codes(codes)) => codes,
        // A view that a lead runs gets none, and an answer of it does not count.
        _ => None,
    }
}

/// Waits for the end of a connection.
pub(crate) fn hold<'d>(mut client: Client) -> RunningAction<'d> {
    Box::pin(async move {
        // Nothing was asked, so nothing is answered.
        while client.reply().await.is_ok() {}
        ActionEnd::Lost
    })
}

/// An order of a person, as the page sends it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PersonOrder {
    /// This request, and no other one.
    Answer {
        id: RequestId,
        approve: bool,
        feedback: String,
        /// The code of the request, as the view shows it.
        #[serde(default)]
        code: Option<String>,
        /// What is answered, for people, where it is more than the id.
        #[serde(skip)]
        what: Option<String>,
    },
    /// A message to an agent.
    Send { to: Name, text: String },
}

impl PersonOrder {
    /// Carries the order out, and prints what came of it.
    pub(crate) fn run(self, context: &Context) -> CommandResult {
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
                code,
                what,
            } => {
                let dir = context.dir()?;
                let what = what.unwrap_or_else(|| id.to_string());
                let answer = answer::Answer {
                    approve,
                    feedback,
                    permissions: None,
                    code,
                    plan_sha256: None,
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
                    &MailboxName {
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
pub(crate) fn order<'d>(context: &Context, order: PersonOrder) -> RunningAction<'d> {
    said(context, |context| order.run(context))
}

/// Reads the work of a review.
pub(crate) fn read_review<'d>(context: &Context, id: RequestId) -> RunningAction<'d> {
    let (done, is_done) = oneshot::channel();
    let elsewhere = context.elsewhere();
    let word = id.to_string();
    // Its source has colours soon.
    drop(loading(Vec::new()));
    std::thread::spawn(move || {
        let (out, _) = Output::stored(COLUMNS);
        let reviewed = Reviewed::find(&elsewhere(out), &word);
        // The view may have ended.
        done.send(reviewed.map_err(|error| explained(&error))).ok();
    });
    Box::pin(async move {
        let lost = |_| Err("error: the work could not be read".to_owned());
        let reviewed = is_done.await.unwrap_or_else(lost);
        ActionEnd::Reviewed(id, Box::new(reviewed))
    })
}

/// Gives the answer to a review.
pub(crate) fn answer_review<'d>(
    context: &Context,
    id: RequestId,
    order: PersonOrder,
) -> RunningAction<'d> {
    let printed = in_thread(context, |context| order.run(context));
    Box::pin(async {
        let printed = printed.await;
        ActionEnd::Answered(id, printed.is_done, printed.text)
    })
}

/// Waits until the source of a review can have colours.
pub(crate) fn load_colours<'d>(id: RequestId, samples: Vec<Sample>) -> RunningAction<'d> {
    let loading = loading(samples);
    Box::pin(async {
        loading.await;
        ActionEnd::Coloured(id)
    })
}

/// Gives an order about tasks.
pub(crate) fn task<'d>(context: &Context, order: TaskOrder) -> RunningAction<'d> {
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

/// Describes a task in full, with the output of its last check.
pub(crate) fn task_text(dir: &TeamDir, (roster, team): (&Roster, &Team), task: &Task) -> String {
    let log = match tasks::read_log_end(dir, task.id, LOG_END) {
        Ok(None) => paint(DIM, "no check of it has run"),
        Ok(Some(log)) => {
            let output = escape::text(log.text.trim_end()).into_owned();
            match log.before {
                0 => output,
                before => {
                    let note = format!("… {} are before this", format_size(before));
                    format!("{}\n{output}", paint(DIM, note))
                }
            }
        }
        Err(error) => explained(&error),
    };
    format!(
        "{}\n{}\n{log}",
        print::task::details(team, task, roster.sender_of(task)),
        paint(DIM, "the output of the last check:")
    )
}

/// Describes what begins with a command that takes long.
pub(crate) fn begins(command: &TeamctlCommand) -> Option<String> {
    match command {
        TeamctlCommand::Shutdown(args) => {
            Some(format!("waiting for the answer of {}", args.names.first()?))
        }
        TeamctlCommand::Spawn(args) => Some(format!("{} is starting", args.name)),
        _ => None,
    }
}

/// Carries out a command of `teamctl`.
pub(crate) fn call<'d>(
    context: &Context,
    perform: Perform,
    command: TeamctlCommand,
) -> RunningAction<'d> {
    let title = match &command {
        TeamctlCommand::Status(args) => args.name.as_ref().map(ToString::to_string),
        TeamctlCommand::Interrupt(_) | TeamctlCommand::Shutdown(_) | TeamctlCommand::Spawn(_) => {
            None
        }
        _ => return Box::pin(async { ActionEnd::Said(String::new()) }),
    };
    let printed = in_thread(context, move |context| perform(command, context));
    Box::pin(async move {
        let printed = printed.await;
        match title {
            Some(title) => ActionEnd::Shown(title, printed.styled),
            None => ActionEnd::Said(printed.text),
        }
    })
}

fn said<'d>(
    context: &Context,
    action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
) -> RunningAction<'d> {
    let printed = in_thread(context, action);
    Box::pin(async { ActionEnd::Said(printed.await.text) })
}

/// What a command has printed.
#[derive(Default)]
pub(crate) struct CommandOutput {
    /// With our escape sequences.
    pub(crate) styled: String,
    /// Without.
    pub(crate) text: String,
    /// Whether it succeeded.
    pub(crate) is_done: bool,
}

/// Does something in a thread, which has a runtime of its own.
pub(crate) fn in_thread(
    context: &Context,
    action: impl FnOnce(&Context) -> CommandResult + Send + 'static,
) -> impl Future<Output = CommandOutput> + 'static {
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
        done.send(CommandOutput {
            styled,
            text,
            is_done: matches!(result, Ok(ExitCode::Done)),
        })
        .ok();
    });
    async { is_done.await.unwrap_or_default() }
}

/// Writes an error with its hint.
pub(crate) fn explained(error: &CommandError) -> String {
    let hint = error
        .next_step()
        .map(|hint| format!("\nhint: {hint}"))
        .unwrap_or_default();
    format!("error: {error}{hint}")
}
