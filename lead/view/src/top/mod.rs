//! `teamctl top`: the team on the whole screen, live: its members, requests, tasks, events and
//! conversations. It reads files, and asks the daemon only for what a person decides. It is redrawn
//! when a file changes, a key is pressed or an age is another one.

mod app;
mod draw;
mod help;
mod keys;
mod list;
mod open_review;
mod request_text;
mod review;
mod typing;

use std::future::{poll_fn, ready};
use std::task::Poll;
use std::time::{Duration, Instant};

use crossterm::event::{Event, EventStream};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use teamd_client::act::Perform;
use teamd_client::context::{Context, block_on};
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::{clock, escape};
use teamd_client::read::processes::Processes;
use teamd_client::read::resources::Resources;
use teamd_client::read::{money, roster};
use teamd_shared::clock::wall;
use teamd_shared::config::RosterMember;
use teamd_shared::price::Prices;
use teamd_shared::task::TaskId;
use teamd_shared::team_dir::TeamDir;
use tokio::signal::unix::SignalKind;

use crate::act::{self, ActionEnd, Actions, PersonOrder, RunningAction};
use crate::codes::ShownCodes;
use crate::model::{TeamFiles, rows, sort};
use crate::terminal::{FRAME, Screen};
use app::{App, Pane, Verdict, Wish};
use draw::TopScene;

pub use crate::terminal::is_possible;

/// How long the view waits at its end for actions that are not finished.
const LAST: Duration = Duration::from_secs(3);
/// How old the look at the processes may be that the memory is shown by.
const PROCESSES: Duration = Duration::from_secs(2);

/// Runs the command, until the person quits.
pub fn run(context: &Context, perform: Perform) -> CommandResult {
    if !is_possible(context) {
        let message = "`top` needs a terminal for stdin and stdout";
        return Err(CommandError::new(ExitCode::Usage, message).hint(
            "in a pipe `teamctl status --watch` shows the teammates after each change, `teamctl events --follow` each event",
        ));
    }
    let dir = context.dir()?;
    block_on(watch(context, perform, &dir))
}

/// What the view has in its hands.
struct Top<'d> {
    context: &'d Context,
    perform: Perform,
    files: TeamFiles<'d>,
    app: App,
    prices: Prices,
    /// Whether the daemon runs, as far as is known.
    has_daemon: bool,
    /// Whether it is connected: then its end is noticed.
    is_connected: bool,
    processes: Option<(Processes, Instant)>,
    /// What was read from the terminal, and waits for the next frame.
    pressed: Option<Event>,
    /// How many actions of the person are not finished.
    open: usize,
}

async fn watch(context: &Context, perform: Perform, dir: &TeamDir) -> CommandResult {
    let mut term = act::on_signal(SignalKind::terminate())?;
    let mut hup = act::on_signal(SignalKind::hangup())?;
    let mut int = act::on_signal(SignalKind::interrupt())?;
    let mut quit = act::on_signal(SignalKind::quit())?;
    let prices = money::prices(context);
    let files = TeamFiles::begin(dir, context.settings.poll)?;
    let has_daemon = roster::daemon_pid(&files.roster).is_some();
    let app = App::default();
    let is_connected = false;
    let processes = None;
    let pressed = None;
    let open = 0;
    let mut top = Top {
        context,
        perform,
        files,
        app,
        prices,
        has_daemon,
        is_connected,
        processes,
        pressed,
        open,
    };
    let mut screen = Screen::open().map_err(unusable)?;
    let mut keys = EventStream::new();
    let mut actions: Actions<'_> = FuturesUnordered::new();
    actions.push(act::connect(dir));
    loop {
        top.draw(&mut screen).map_err(unusable)?;
        let drawn = Instant::now();
        let pressed = top.pressed.take();
        tokio::select! {
            // A key that was pressed before a change concerns what was on the screen then.
            biased;
            Some(()) = term.recv() => return Ok(ExitCode::Terminated),
            Some(()) = hup.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = int.recv() => return Ok(ExitCode::Interrupted),
            Some(()) = quit.recv() => return Ok(ExitCode::Interrupted),
            event = next_event(pressed, &mut keys) => {
                let Some(Ok(event)) = event else {
                    // The terminal is gone.
                    return Ok(ExitCode::Interrupted);
                };
                match top.take(event, &mut keys).await {
                    Some(Wish::Quit) => {
                        drop(screen);
                        return top.finish(&mut actions).await;
                    }
                    Some(Wish::Suspend) => screen.suspend().map_err(unusable)?,
                    Some(wish) => actions.extend(top.carry_out(wish)),
                    None => {}
                }
            }
            Some(done) = actions.next() => {
                let is_new = matches!(done, ActionEnd::Connected(Some(_)));
                actions.extend(top.done(done));
                if is_new {
                    actions.extend(top.ask_for_codes());
                }
            }
            () = ready(()), if top.is_behind() => {}
            () = top.changed(drawn) => {
                actions.extend(top.read());
                actions.extend(top.ask_for_codes());
            }
        }
    }
}

fn unusable(error: std::io::Error) -> CommandError {
    CommandError::refused("cannot use the terminal", &error)
}

/// Returns what was read already, or what comes next.
async fn next_event(
    pressed: Option<Event>,
    keys: &mut EventStream,
) -> Option<std::io::Result<Event>> {
    match pressed {
        Some(event) => Some(Ok(event)),
        None => keys.next().await,
    }
}

impl<'d> Top<'d> {
    /// Returns when there may be something else to show, and be it another age.
    async fn changed(&mut self, drawn: Instant) {
        if self.files.is_behind() {
            return;
        }
        let next_frame = FRAME.saturating_sub(drawn.elapsed());
        // Older ages change less often and may be late: however many ages there are, the youngest
        // one alone decides when the next frame is drawn.
        let age = self.app.frame.youngest.and_then(|youngest| {
            Duration::try_from_secs_f64(clock::span_stays(wall() - youngest)).ok()
        });
        tokio::select! {
            () = self.files.changed() => tokio::time::sleep(next_frame).await,
            () = tokio::time::sleep(age.unwrap_or(Duration::MAX)) => {}
        }
    }

    /// Reads what has changed. A socket that is new may be that of the next daemon.
    fn read(&mut self) -> Option<RunningAction<'d>> {
        let has_socket = self.files.read(self.has_daemon);
        self.files.catch_up();
        (has_socket && !self.is_connected).then(|| act::connect(self.files.dir))
    }

    fn ask_for_codes(&self) -> Option<RunningAction<'d>> {
        if !self.has_daemon {
            return None;
        }
        self.app.codes.ask(self.files.dir)
    }

    fn draw(&mut self, screen: &mut Screen) -> std::io::Result<()> {
        let Self {
            files,
            app,
            prices,
            has_daemon,
            processes,
            ..
        } = self;
        if let Some(name) = app.agent_of_selected(files.seen().0.team) {
            files.follow(&name);
        }
        if app.pane == Pane::Tasks {
            files.want_past();
        }
        let dir = files.dir;
        let (seen, sides) = files.seen();
        sides.served.forget_shown();
        let mut rows = rows(&seen.roster.members, seen.running, seen.team, prices);
        sort(&mut rows);
        app.set(&rows, seen.team, seen.past, seen.feed.items());
        let look = &mut |member: &RosterMember, closely: bool| {
            let side = sides.of(dir, member);
            if !closely {
                return (side, None);
            }
            let fresh = processes.take().filter(|(_, at)| at.elapsed() < PROCESSES);
            let read =
                processes.insert(fresh.unwrap_or_else(|| (Processes::read(), Instant::now())));
            (
                side,
                Resources::of(&read.0, seen.roster, member, false)
                    .map(|resources| resources.memory()),
            )
        };
        let write_task = &|id: TaskId| match seen.past.tasks.get(&id) {
            Some(past) => act::task_text(dir, (seen.roster, seen.team), &past.task),
            None => String::new(),
        };
        let has_daemon = *has_daemon;
        let mut scene = TopScene {
            rows,
            seen,
            has_daemon,
            now: wall(),
            look,
            write_task,
        };
        screen.draw(|frame| app.draw(frame, &mut scene))?;
        let now = Instant::now();
        app.reading.drawn(now);
        if let Some(review) = &mut app.review {
            review.drawn(now);
        }
        Ok(())
    }

    /// Tells whether the next frame has more to show, without any event.
    fn is_behind(&mut self) -> bool {
        let review = self.app.review.as_mut();
        review.is_some_and(|review| review.is_behind())
    }

    /// Takes an event of the terminal, and those behind it that only move: the next frame shows
    /// where they lead, and a key that does something waits for that.
    async fn take(&mut self, event: Event, keys: &mut EventStream) -> Option<Wish> {
        // A page of a review that is passed over was not on the screen.
        let moves = keys::only_moves(&event) && self.app.review.is_none();
        let wish = self.take_one(event);
        while moves && self.pressed.is_none() {
            // Looked at by this task: the stream wakes the one that has last found nothing, and no
            // other.
            let next = poll_fn(|task| Poll::Ready(keys.poll_next_unpin(task))).await;
            let Poll::Ready(Some(Ok(next))) = next else {
                break;
            };
            if keys::only_moves(&next) {
                _ = self.take_one(next)
            } else {
                self.pressed = Some(next)
            }
        }
        wish
    }

    fn take_one(&mut self, event: Event) -> Option<Wish> {
        match event {
            Event::Key(key) => return self.app.key(key, Instant::now()),
            Event::Paste(text) => self.app.paste(&text),
            Event::Mouse(mouse) => self.app.mouse(mouse),
            Event::Resize(..) | Event::FocusGained | Event::FocusLost => {}
        }
        None
    }

    /// Begins what the person wants done.
    fn carry_out(&mut self, wish: Wish) -> Option<RunningAction<'d>> {
        let act = self.begin(wish);
        self.open += usize::from(act.is_some());
        act
    }

    fn begin(&mut self, wish: Wish) -> Option<RunningAction<'d>> {
        let context = self.context;
        let dir = self.files.dir;
        match wish {
            Wish::Quit | Wish::Suspend => None,
            Wish::Answer(Verdict {
                request_id: id,
                what,
                approve,
                feedback,
            }) => {
                let what = Some(format!("the {what}"));
                let code = self.app.codes.of(&id).map(str::to_owned);
                Some(act::order(
                    context,
                    PersonOrder::Answer {
                        id,
                        approve,
                        feedback,
                        code,
                        what,
                    },
                ))
            }
            Wish::Send(to, text) => Some(act::order(context, PersonOrder::Send { to, text })),
            Wish::Task(order) => Some(act::task(context, order)),
            Wish::ShowTask(id) => {
                let (seen, _) = self.files.seen();
                if let Some(past) = seen.past.tasks.get(&id) {
                    self.app.open(
                        format!("task {id}"),
                        act::task_text(dir, (seen.roster, seen.team), &past.task),
                    );
                }
                None
            }
            Wish::Review(id) => Some(act::read_review(context, id)),
            Wish::AnswerReview {
                request_id: id,
                approve,
                feedback,
            } => {
                let what = Some(format!("the review {id}"));
                let code = self.app.codes.of(&id).map(str::to_owned);
                let order = PersonOrder::Answer {
                    id: id.clone(),
                    approve,
                    feedback,
                    code,
                    what,
                };
                Some(act::answer_review(context, id, order))
            }
            Wish::ShowItem => {
                self.app.open_item(self.files.seen().0.feed.items());
                None
            }
            Wish::ShowEarlier => {
                let earlier = self.files.conversation.as_mut().filter(|it| it.from > 0);
                self.files.trouble = earlier
                    .and_then(|it| it.show_earlier().err())
                    .map(Into::into);
                None
            }
            Wish::Call(command) => {
                self.app.notice = act::begins(&command).unwrap_or_default();
                Some(act::call(context, self.perform, *command))
            }
        }
    }

    /// Waits a moment for what was begun and is not done: an answer that was given just before must
    /// not be lost. Says what came of it.
    async fn finish(&mut self, actions: &mut Actions<'d>) -> CommandResult {
        let mut done = async || {
            while self.open > 0 {
                match actions.next().await {
                    Some(ActionEnd::Said(said)) => {
                        self.open -= 1;
                        self.context.out.note(escape::text(&said));
                    }
                    Some(ActionEnd::Answered(_, _, said)) => {
                        self.open -= 1;
                        self.context.out.note(escape::text(&said));
                    }
                    Some(ActionEnd::Shown(..) | ActionEnd::Reviewed(..)) => self.open -= 1,
                    Some(
                        ActionEnd::Connected(_)
                        | ActionEnd::Lost
                        | ActionEnd::Codes(_)
                        | ActionEnd::Coloured(_),
                    ) => {}
                    None => break,
                }
            }
        };
        if tokio::time::timeout(LAST, done()).await.is_err() {
            self.context
                .out
                .note("what was begun continues if the daemon has recorded it");
            self.context
                .out
                .hint("`teamctl events --last 5` shows that");
        }
        Ok(ExitCode::Done)
    }

    /// Takes what became of an action.
    fn done(&mut self, done: ActionEnd) -> Option<RunningAction<'d>> {
        let is_ordered = matches!(
            done,
            ActionEnd::Said(_)
                | ActionEnd::Shown(..)
                | ActionEnd::Reviewed(..)
                | ActionEnd::Answered(..)
        );
        self.open -= usize::from(is_ordered);
        match done {
            ActionEnd::Said(said) => self.app.notice = said,
            ActionEnd::Shown(title, text) => self.app.open(title, text),
            ActionEnd::Connected(Some(client)) if !self.has_daemon || !self.is_connected => {
                self.has_daemon = true;
                self.is_connected = true;
                self.files.read_roster();
                return Some(act::hold(client));
            }
            ActionEnd::Codes(codes) => self.app.codes.set(codes),
            ActionEnd::Reviewed(id, reviewed) => {
                self.app.reviewed(&id, *reviewed);
                let samples = self.app.review_screen().map(|it| it.samples());
                return samples.map(|samples| act::load_colours(id, samples));
            }
            ActionEnd::Answered(id, is_done, said) => self.app.review_answered(&id, is_done, said),
            ActionEnd::Coloured(id) => self.app.colour_review(&id),
            // Another attempt was first.
            ActionEnd::Connected(Some(_)) => {}
            ActionEnd::Connected(None) if self.is_connected => {}
            ActionEnd::Connected(None) => self.has_daemon = false,
            ActionEnd::Lost => {
                self.has_daemon = false;
                self.is_connected = false;
                self.app.codes = ShownCodes::default();
                self.files.read_roster();
                return Some(act::connect(self.files.dir));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
