//! `teamctl web`: the team on a page of a browser. It reads files and asks the daemon for what a person decides, as `top` does.
//!
//! One task has the files and answers what the connections ask of it. A stream asks again when a file has changed, sends what is
//! different, and asks no more before the browser has taken that. So a stream that begins anew misses nothing.

mod guard;
mod page;
mod server;
mod shown;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value, json};
use teamd_shared::id::RequestId;
use teamd_shared::name::Name;
use teamd_shared::price::Prices;
use teamd_shared::team_dir::TeamDir;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use super::args::{Mailbox, Web};
use super::commands::{answer, send};
use super::context::{Context, block_on};
use super::top::act::{self, Act, Done, in_thread};
use super::view::TeamFiles;
use super::{money, roster, text};
use crate::error::{CommandError, CommandResult};
use crate::exit_code::ExitCode;

use guard::{Guard, Verb, View};
use server::{Ask, Site};
use shown::Shown;

/// The time between two changes that are told, at least.
const FRAME: Duration = Duration::from_millis(100);
/// How long a view stays as it is where no file has changed: times pass, and processes end without a daemon.
const STAYS: Duration = Duration::from_secs(10);
/// The time between two changes that are told while inboxes are read for the first time: each one has every view made again.
const WHILE_READING: Duration = Duration::from_secs(1);
/// How many questions of connections may wait.
const ASKS: usize = 32;

/// Runs the command, until it is interrupted.
pub(super) fn run(context: &Context, args: &Web) -> CommandResult {
    let dir = context.dir()?;
    block_on(serve(context, &dir, args))
}

async fn serve(context: &Context, dir: &TeamDir, args: &Web) -> CommandResult {
    let on = |kind| signal(kind).map_err(|error| CommandError::refused("cannot watch for signals", &error));
    let (mut int, mut term) = (on(SignalKind::interrupt())?, on(SignalKind::terminate())?);
    let (listener, port) = listen(args.port).await.map_err(|error| {
        CommandError::refused(&format!("cannot listen on 127.0.0.1:{}", args.port), &error)
            .hint("without `--port`, a free port is taken")
    })?;
    let key = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let url = format!("http://127.0.0.1:{port}/#{key}");
    let guard = Guard { port, key, is_read_only: args.read_only, has_metrics: args.metrics };
    let (asks, mut asked) = mpsc::channel(ASKS);
    let (told, changed) = watch::channel(());
    let mut hub = Hub::begin(context, dir, args.read_only)?;
    let mut daemon: FuturesUnordered<Act<'_>> = FuturesUnordered::new();
    daemon.push(act::connect(dir));
    context.out.result(&json!({"url": url}), &url)?;
    context
        .out
        .note("a browser that has this address can steer the team; Ctrl-C ends the page, not the team");
    let mut told_at = Instant::now();
    let mut serving = std::pin::pin!(server::serve(listener, Site::new(guard, asks, changed)));
    loop {
        tokio::select! {
            Some(()) = int.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = term.recv() => return Ok(ExitCode::Terminated),
            () = &mut serving => return Ok(ExitCode::Failed),
            Some(ask) = asked.recv() => {
                if hub.is_old() {
                    daemon.extend(hub.read());
                    told.send_replace(());
                }
                hub.answer(ask);
            }
            Some(done) = daemon.next() => {
                daemon.extend(hub.done(done));
                told.send_replace(());
            }
            () = hub.changed() => {
                daemon.extend(hub.read());
                if !hub.files.has_unread_inboxes() || told_at.elapsed() > WHILE_READING {
                    told_at = Instant::now();
                    told.send_replace(());
                }
            }
        }
    }
}

async fn listen(port: u16) -> std::io::Result<(TcpListener, u16)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// The one that has the files.
struct Hub<'d> {
    context: &'d Context,
    files: TeamFiles<'d>,
    prices: Prices,
    is_read_only: bool,
    /// Whether the daemon runs, as far as is known.
    has_daemon: bool,
    read_at: Instant,
    /// The views that were made since: many pages may show the same.
    made: Vec<(View, Map<String, Value>)>,
}

impl<'d> Hub<'d> {
    fn begin(context: &'d Context, dir: &'d TeamDir, is_read_only: bool) -> Result<Self, CommandError> {
        let files = TeamFiles::begin(dir, context.settings.poll)?;
        let has_daemon = roster::daemon_pid(&files.roster).is_some();
        let (prices, read_at) = (money::prices(context), Instant::now());
        Ok(Self { context, files, prices, is_read_only, has_daemon, read_at, made: Vec::new() })
    }

    /// Returns when there may be something else to show. Dropping the future loses nothing.
    async fn changed(&mut self) {
        if !self.files.has_unread_inboxes() {
            self.files.changed().await;
        }
        tokio::time::sleep(FRAME.saturating_sub(self.read_at.elapsed())).await;
    }

    fn read(&mut self) -> Option<Act<'d>> {
        self.made.clear();
        // Without a daemon no file tells that a process has ended.
        let has_socket = self.files.read(!self.has_daemon);
        self.files.read_inboxes();
        self.read_at = Instant::now();
        (has_socket && !self.has_daemon).then(|| act::connect(self.files.dir))
    }

    fn is_old(&self) -> bool {
        self.read_at.elapsed() > STAYS
    }

    /// Takes what became of the connection to the daemon.
    fn done(&mut self, done: Done) -> Option<Act<'d>> {
        let (has_daemon, next) = match done {
            Done::Connected(Some(client)) => (true, Some(act::hold(client))),
            Done::Lost => (false, Some(act::connect(self.files.dir))),
            Done::Connected(None) | Done::Said(_) | Done::Shown(..) => (false, None),
        };
        self.has_daemon = has_daemon;
        self.made.clear();
        let has_socket = self.files.read(true);
        next.or_else(|| (has_socket && !has_daemon).then(|| act::connect(self.files.dir)))
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            // A browser that is gone wants no answer.
            Ask::View(view, answer) => drop(answer.send(self.view(&view))),
            Ask::Act(verb, order, answer) => {
                let done = order_of(verb, &order).map(|order| in_thread(self.context, |it| order.run(it)));
                tokio::spawn(async move {
                    let said = match done {
                        None => (false, "error: a part of the order is missing".to_owned()),
                        Some(done) => {
                            let printed = done.await;
                            (printed.is_done, printed.text)
                        }
                    };
                    answer.send(said).ok();
                });
            }
        }
    }

    fn view(&mut self, view: &View) -> Option<Map<String, Value>> {
        if let Some((_, made)) = self.made.iter().find(|(made, _)| made == view) {
            return Some(made.clone());
        }
        if let View::Conversation(name) = view {
            self.files.follow(name);
        }
        let (dir, has_daemon) = (self.files.dir, self.has_daemon);
        let (prices, is_read_only) = (&self.prices, self.is_read_only);
        let (seen, _) = self.files.seen();
        let shown = Shown { dir, seen, prices, has_daemon, is_read_only }.view(view)?;
        self.made.push((view.clone(), shown.clone()));
        Some(shown)
    }
}

/// What a person wants done.
enum Order {
    /// This request, and no other one.
    Answer(RequestId, bool, String),
    Send(Name, String),
}

fn order_of(verb: Verb, order: &Value) -> Option<Order> {
    let text = |name: &str| order.get(name)?.as_str().map(str::to_owned);
    Some(match verb {
        Verb::Answer => Order::Answer(
            RequestId::new(&text("id")?).ok()?,
            order.get("approve")?.as_bool()?,
            text("feedback")?,
        ),
        Verb::Send => Order::Send(Name::of_inbox(&text("to")?).ok()?, text("text")?),
    })
}

impl Order {
    fn run(self, context: &Context) -> CommandResult {
        match self {
            Self::Answer(id, approve, feedback) => {
                if !approve && feedback.trim().is_empty() {
                    return Err(CommandError::new(ExitCode::Usage, "a rejection says why"));
                }
                let dir = context.dir()?;
                let repeated = block_on(answer::record(&dir, &id, approve, feedback))?;
                let (already, status) =
                    (if repeated { "already " } else { "" }, if approve { "approved" } else { "rejected" });
                context.out.text(format_args!("{id} is {already}{status}")).map(|()| ExitCode::Done)
            }
            Self::Send(name, content) => {
                let content = text::not_blank(content, "message")?;
                let to = Mailbox { to: name.to_string(), owner: name };
                send::deliver(context, &to, content, false)
            }
        }
    }
}
