//! `teamctl web`: the team on a page of a browser. It reads files and asks the daemon for what a
//! person decides, as `top` does.
//!
//! One task has the files and answers what the connections ask of it. A stream asks again when a
//! file has changed, and sends what is different. It asks nothing further before the browser has
//! taken that, so a stream that begins again misses nothing.

mod answer;
mod detail;
pub(crate) mod guard;
mod order;
mod page;
mod review;
mod server;
mod shown;
mod visitors;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde_json::{Map, Value, json};
use teamd_client::act::Perform;
use teamd_client::args::Web;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::{money, roster};
use teamd_shared::clock::wall;
use teamd_shared::price::Prices;
use teamd_shared::team_dir::TeamDir;
use tokio::net::TcpListener;
use tokio::signal::unix::SignalKind;
use tokio::sync::{mpsc, oneshot, watch};
use uuid::Uuid;

use crate::act::{self, ActionEnd, CommandOutput, RunningAction, in_thread};
use crate::codes::ShownCodes;
use crate::model::TeamFiles;
use guard::{Guard, PageView};
use server::{Ask, Site};
use shown::TeamPage;

/// The shortest and the longest time between two announced changes. In between, a team that writes
/// all the time costs a tenth of a processor: the pause is so many times what the last change took.
const FRAME: Duration = Duration::from_millis(10);
const LONGEST_FRAME: Duration = Duration::from_millis(100);
const REST: u32 = 9;
/// The shortest time between two announced changes while files are read for the first time: after
/// each one every view is made again.
const WHILE_READING: Duration = Duration::from_secs(1);
/// How many questions of connections may wait.
const ASKS: usize = 32;

/// Runs the command, until it is interrupted.
pub fn run(context: &Context, args: &Web, perform: Perform) -> CommandResult {
    let dir = context.dir()?;
    block_on(serve((context, perform), &dir, args))
}

async fn serve(
    (context, perform): (&Context, Perform),
    dir: &TeamDir,
    args: &Web,
) -> CommandResult {
    let mut int = act::on_signal(SignalKind::interrupt())?;
    let mut term = act::on_signal(SignalKind::terminate())?;
    let (listener, port) = listen(args.port).await.map_err(|error| {
        CommandError::refused(&format!("cannot listen on 127.0.0.1:{}", args.port), &error)
            .hint("without `--port`, a free port is taken")
    })?;
    let key = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let url = format!("http://127.0.0.1:{port}/#{key}");
    let guard = Guard {
        // A browser on another machine asks by the port there, and no program here does.
        port: args.forwarded_port.unwrap_or(port),
        key,
        is_read_only: args.read_only,
        has_metrics: args.metrics,
    };
    let (asks, asked) = mpsc::channel(ASKS);
    let (changes, changed) = watch::channel(());
    let mut hub = Hub::begin((context, perform), dir, args.read_only)?;
    context.out.result(&json!({"url": url}), &url)?;
    context.out.note(
        "a browser that has this address can steer the team; Ctrl-C ends the page, not the team",
    );
    tokio::select! {
        Some(()) = int.recv() => Ok(ExitCode::Interrupted),
        Some(()) = term.recv() => Ok(ExitCode::Terminated),
        () = server::serve(listener, Site::new(guard, asks, changed)) => Ok(ExitCode::Failed),
        () = hub.work(asked, &changes) => Ok(ExitCode::Failed),
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
    perform: Perform,
    files: TeamFiles<'d>,
    prices: Prices,
    is_read_only: bool,
    codes: ShownCodes,
    /// Whether the daemon runs, as far as is known.
    has_daemon: bool,
    read_at: Instant,
    /// How long it took to read what has changed then, and to make the views of it.
    taken: Duration,
    /// Whether a file has changed since: what is asked meanwhile does not make that forgotten.
    has_changed: bool,
    /// When one of these is another by the time alone, in seconds since 1970.
    changes_at: Option<f64>,
    /// The views that were made since: many pages may show the same.
    made: Vec<(PageView, Map<String, Value>)>,
}

impl<'d> Hub<'d> {
    fn begin(
        (context, perform): (&'d Context, Perform),
        dir: &'d TeamDir,
        is_read_only: bool,
    ) -> Result<Self, CommandError> {
        let files = TeamFiles::begin(dir, context.settings.poll)?;
        let has_daemon = roster::daemon_pid(&files.roster).is_some();
        let prices = money::prices(context);
        let read_at = Instant::now();
        Ok(Self {
            context,
            perform,
            files,
            prices,
            is_read_only,
            codes: ShownCodes::default(),
            has_daemon,
            read_at,
            taken: Duration::ZERO,
            has_changed: false,
            changes_at: None,
            made: Vec::new(),
        })
    }

    /// Answers, and tells when there is something else to show. It does nothing while nothing
    /// happens.
    async fn work(&mut self, mut asked: mpsc::Receiver<Ask>, changes: &watch::Sender<()>) {
        let mut daemon: FuturesUnordered<RunningAction<'d>> = FuturesUnordered::new();
        daemon.push(act::connect(self.files.dir));
        let mut announced_at = Instant::now();
        loop {
            tokio::select! {
                ask = asked.recv() => match ask {
                    Some(ask) => self.answer(ask),
                    None => return,
                },
                Some(done) = daemon.next() => {
                    let is_new = matches!(done, ActionEnd::Connected(Some(_)));
                    daemon.extend(self.done(done));
                    if is_new {
                        daemon.extend(self.ask_for_codes());
                    }
                    changes.send_replace(());
                }
                () = self.changed() => {
                    daemon.extend(self.read());
                    daemon.extend(self.ask_for_codes());
                    if !self.files.is_behind() || announced_at.elapsed() > WHILE_READING {
                        announced_at = Instant::now();
                        changes.send_replace(());
                    }
                }
            }
        }
    }

    /// Returns when there may be something else to show. Dropping the future loses nothing.
    async fn changed(&mut self) {
        let by_itself = self
            .changes_at
            .and_then(|at| Duration::try_from_secs_f64((at - wall()).max(0.0)).ok());
        let by_itself = async {
            match by_itself {
                Some(time) => tokio::time::sleep(time).await,
                None => std::future::pending().await,
            }
        };
        if !self.has_changed && !self.files.is_behind() {
            tokio::select! {
                () = self.files.changed() => {}
                () = by_itself => {}
            }
            self.has_changed = true;
        }
        let pause = (self.taken * REST).clamp(FRAME, LONGEST_FRAME);
        tokio::time::sleep(pause.saturating_sub(self.read_at.elapsed())).await;
    }

    fn read(&mut self) -> Option<RunningAction<'d>> {
        let began = Instant::now();
        self.forget();
        self.has_changed = false;
        let has_socket = self.files.read(self.has_daemon);
        self.files.catch_up();
        self.taken = began.elapsed();
        self.read_at = Instant::now();
        (has_socket && !self.has_daemon).then(|| act::connect(self.files.dir))
    }

    /// A page that answers nothing shows no codes.
    fn ask_for_codes(&self) -> Option<RunningAction<'d>> {
        if !self.has_daemon || self.is_read_only {
            return None;
        }
        self.codes.ask(self.files.dir)
    }

    fn forget(&mut self) {
        self.files.seen().1.served.forget_shown();
        self.made.clear();
        self.changes_at = None;
    }

    /// Takes what became of the connection to the daemon.
    fn done(&mut self, done: ActionEnd) -> Option<RunningAction<'d>> {
        if let ActionEnd::Codes(codes) = done {
            self.codes.set(codes);
            self.forget();
            return None;
        }
        let (has_daemon, next) = match done {
            ActionEnd::Connected(Some(client)) => (true, Some(act::hold(client))),
            ActionEnd::Lost => {
                self.codes = ShownCodes::default();
                (false, Some(act::connect(self.files.dir)))
            }
            ActionEnd::Connected(None)
            | ActionEnd::Said(_)
            | ActionEnd::Shown(..)
            | ActionEnd::Codes(_)
            | ActionEnd::Reviewed(..)
            | ActionEnd::Answered(..)
            | ActionEnd::Coloured(_) => (false, None),
        };
        self.has_daemon = has_daemon;
        self.forget();
        self.files.read_roster();
        next
    }

    fn answer(&mut self, ask: Ask) {
        match ask {
            // A browser that is gone wants no answer.
            Ask::View(view, answer) => drop(answer.send(self.view(&view))),
            Ask::Act(order, answer) => {
                let perform = self.perform;
                tell(
                    answer,
                    in_thread(self.context, move |it| order.run(it, perform)),
                );
            }
            Ask::Changes(asked, lines) => review::send(self.context, asked, lines),
            Ask::Image(name, place, answer) => {
                self.files.follow(&name);
                let conversation = self.files.conversation.as_ref();
                let image = conversation.filter(|it| it.name == name);
                // A browser that is gone wants no answer.
                drop(answer.send(image.and_then(|it| it.image(place))));
            }
        }
    }

    fn view(&mut self, view: &PageView) -> Option<Map<String, Value>> {
        if let Some((_, made)) = self.made.iter().find(|(made, _)| made == view) {
            return Some(made.clone());
        }
        let began = Instant::now();
        match view {
            PageView::Conversation(name) | PageView::Earlier(name, _) => self.files.follow(name),
            PageView::Board(_) | PageView::Metrics => self.files.want_past(),
            PageView::Task(_) => self.files.want_logs(),
            PageView::Teammate(name) => self.files.want_outputs(name),
            PageView::Timeline(..) | PageView::Cost => {
                self.files.want_past();
                self.files.want_ledgers();
            }
            _ => {}
        }
        let dir = self.files.dir;
        let has_daemon = self.has_daemon;
        let prices = &self.prices;
        let is_read_only = self.is_read_only;
        let codes = &self.codes;
        let (seen, sides) = self.files.seen();
        let serves = match view {
            PageView::Teammate(name) => seen
                .roster
                .member(name)
                .map(|member| sides.served.of(member)),
            _ => None,
        };
        let all = TeamPage {
            dir,
            seen,
            prices,
            has_daemon,
            is_read_only,
            codes,
            serves: serves.unwrap_or_default(),
        };
        let shown = all.view(view)?;
        if self.made.is_empty() {
            self.changes_at = all.changes_at();
        }
        self.made.push((view.clone(), shown.clone()));
        self.taken += began.elapsed();
        Some(shown)
    }
}

/// Says what a command has printed, once it has ended.
fn tell(
    answer: oneshot::Sender<(bool, String)>,
    done: impl Future<Output = CommandOutput> + Send + 'static,
) {
    tokio::spawn(async move {
        let printed = done.await;
        // A browser that is gone wants no answer.
        answer.send((printed.is_done, printed.text)).ok();
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use teamd_client::testing::context;
    use teamd_shared::fs::replace;
    use teamd_shared::process::Identity;
    use teamd_shared::team_dir::TeamPath;
    use teamd_shared::testing::roster_member;

    const MINUTE: Duration = Duration::from_secs(60);

    fn roster(dir: &TeamDir, silent_since: Option<f64>) {
        // They run: this process is theirs.
        let process = Identity::of_self().unwrap();
        let members: Vec<Value> = (0..1000).map(|n| {
            roster_member(&json!({"name": format!("w{n}"), "status": "idle", "updated_at": 1.0,
                "silent_since": silent_since, "pid": process.pid, "start_ticks": process.start_ticks}))
        }).collect();
        let roster =
            json!({"version": 1, "seq": 1, "team_name": "t", "daemon": null, "members": members});
        replace(dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
    }

    /// Lets a time pass twice with a page for each of these views, and returns how often they were
    /// told of a change the second time. The clock is the test's own: it goes on by itself to the
    /// next timer, if there is one.
    async fn told_within(time: Duration, silent_since: Option<f64>) -> usize {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let (context, ..) = context(&dir, false);
        roster(&dir, silent_since);
        let (asks, asked) = mpsc::channel(ASKS);
        let (changes, changed) = watch::channel(());
        let guard = Guard {
            port: 1,
            key: String::new(),
            is_read_only: false,
            has_metrics: false,
        };
        let site = std::sync::Arc::new(Site::new(guard, asks, changed));
        let mut hub = Hub::begin((&context, |_, _| Ok(ExitCode::Done)), &dir, false).unwrap();
        let views = [
            PageView::Overview,
            PageView::Sequence((200, 13), None),
            PageView::Timeline(600, None),
            PageView::Cost,
        ];
        for view in views {
            let mut page = site.stream(view).ok().unwrap().into_body();
            tokio::spawn(async move { while page.frame().await.is_some() {} });
        }
        let mut told_of = changes.subscribe();
        let count = async {
            tokio::time::sleep(time).await;
            told_of.mark_unchanged();
            let end = tokio::time::Instant::now() + time;
            let mut count = 0;
            while tokio::time::timeout_at(end, told_of.changed())
                .await
                .is_ok()
            {
                count += 1;
            }
            count
        };
        tokio::select! {
            () = hub.work(asked, &changes) => panic!("it ended"),
            count = count => {
                assert_eq!(hub.made.len(), 4, "each view was made once for all pages, after what happened last");
                count
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_done_in_an_hour_in_which_nothing_happens() {
        assert_eq!(told_within(60 * MINUTE, None).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_by_the_time_alone_is_told() {
        let changes = told_within(MINUTE, Some(wall() - 60.0)).await;
        assert!((4..8).contains(&changes), "{changes}");
    }

    #[tokio::test]
    async fn a_view_is_made_once_for_all_pages_and_again_after_a_change() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let (context, ..) = context(&dir, false);
        roster(&dir, None);
        let mut hub = Hub::begin((&context, |_, _| Ok(ExitCode::Done)), &dir, false).unwrap();
        let mut counts = || {
            let view = hub.view(&PageView::Overview).unwrap();
            let other = hub.view(&PageView::Board(String::new())).unwrap();
            let count = view["groups"][3]["count"].clone();
            assert_eq!((hub.made.len(), &other["groups"][3]["count"]), (2, &count));
            count
        };
        let before = counts();
        let config =
            json!({"version": 1, "seq": 2, "team_name": "t", "daemon": null, "members": []});
        replace(&dir, &TeamPath::config(), config.to_string().as_bytes()).unwrap();
        assert_eq!(counts(), before, "until the change is read");
        hub.changed().await;
        hub.read();
        assert!(hub.made.is_empty());
        assert_eq!(
            (
                before,
                &hub.view(&PageView::Overview).unwrap()["groups"][3]["count"]
            ),
            (json!(1000), &json!(0))
        );
    }
}
