//! The loop: lines of the client, changes of the files, and answers of the daemon.

use std::cell::OnceCell;
use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::{Pin, pin};

use agent_client_protocol_schema::ProtocolVersion;
use agent_client_protocol_schema::v1::{
    AgentCapabilities, CancelNotification, Error, ErrorCode, Implementation, InitializeResponse,
    LoadSessionRequest, LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, RequestId as FrameId, SessionId,
};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use teamd_client::act::answer::{self, Answer};
use teamd_client::act::auto_start::ensure_daemon;
use teamd_client::act::{interrupt, lead_connection};
use teamd_client::connection::Client;
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::read::text::{self, LONGER};
use teamd_shared::clock::since_boot;
use teamd_shared::config::RosterMember;
use teamd_shared::control::Command;
use teamd_shared::id::{Ids, RandomIds, RequestId};
use teamd_shared::name::Name;
use teamd_shared::process::Identity;
use teamd_shared::team_dir::TeamDir;
use tokio::sync::oneshot;

use super::AcpOptions;
use super::errors::{explained, invalid, no_session, refused};
use super::frames::{self, Frame};
use super::open_team::OpenTeam;
use super::prompt::text_of;
use super::questions::ClientAnswer;
use super::stdin::{InputLine, LONGEST, lines_of_stdin};
use crate::act::in_thread;
use crate::chat::{ChatTarget, LeadOptions};

/// Serves until the client closes its end.
///
/// # Errors
/// As [`super::run`].
pub(super) async fn run(
    context: &Context,
    options: &AcpOptions,
    run_by: Identity,
) -> CommandResult {
    let dir = OnceCell::new();
    let (opened, is_open) = oneshot::channel();
    let lead = run_by.clone();
    let mut holding = pin!(hold(&dir, is_open, &lead, context.settings.poll));
    let mut server = EditorServer {
        context,
        options,
        run_by,
        dir: &dir,
        opened: (!options.is_person).then_some(opened),
        lead: None,
        target: target(&options.name),
        team: None,
        is_initialized: false,
        actions: FuturesUnordered::new(),
    };
    let mut lines = lines_of_stdin();
    while !context.out.closed() {
        tokio::select! {
            line = lines.recv() => {
                let Some(line) = line else {
                    break;
                };
                server.line(line).await?;
            }
            () = changed(&mut server.team) => server.try_again(),
            Some(end) = server.actions.next() => server.action_ended(end),
            never = &mut holding => match never {},
        }
        server.look()?;
    }
    // What the client has answered or cancelled last is done.
    while server.actions.next().await.is_some() {}
    Ok(ExitCode::Done)
}

/// Keeps the connection of a client that is no person, once the team directory is open. One that is
/// a person has none.
async fn hold(
    dir: &OnceCell<TeamDir>,
    is_open: oneshot::Receiver<()>,
    lead: &Identity,
    poll: bool,
) -> Infallible {
    let (Ok(()), Some(dir)) = (is_open.await, dir.get()) else {
        return std::future::pending().await;
    };
    lead_connection::keep(dir, lead, poll, || Command::Ping).await
}

fn target(name: &Name) -> ChatTarget {
    let start = (*name == Name::lead()).then(LeadOptions::default);
    ChatTarget {
        name: name.clone(),
        start,
    }
}

/// Returns when a file may have changed; never before a session was opened.
async fn changed(team: &mut Option<OpenTeam<'_>>) {
    match team {
        Some(team) => team.changed().await,
        None => std::future::pending().await,
    }
}

/// One connection with a client.
struct EditorServer<'a> {
    context: &'a Context,
    options: &'a AcpOptions,
    /// The process that runs this one.
    run_by: Identity,
    dir: &'a OnceCell<TeamDir>,
    /// Begins to keep the connection of a client that is no person.
    opened: Option<oneshot::Sender<()>>,
    /// Its first connection, until the client is gone: nothing is said over it.
    lead: Option<Client>,
    target: ChatTarget,
    /// What is followed from the first session on.
    team: Option<OpenTeam<'a>>,
    is_initialized: bool,
    actions: FuturesUnordered<RunningCall<'a>>,
}

/// What was asked of the daemon.
type RunningCall<'a> = Pin<Box<dyn Future<Output = CallEnd> + 'a>>;

/// How that ended.
enum CallEnd {
    /// The daemon has taken what the client has answered, or not.
    Answered {
        session: SessionId,
        result: Result<bool, CommandError>,
    },
    /// The daemon has interrupted work, or not.
    Interrupted(Result<(), CommandError>),
}

impl<'a> EditorServer<'a> {
    /// Does what a line of the client asks for.
    ///
    /// # Errors
    /// If stdin or stdout fails.
    async fn line(&mut self, line: io::Result<InputLine>) -> Result<(), CommandError> {
        let line = line.map_err(|error| CommandError::refused("cannot read stdin", &error))?;
        let frame = match line {
            InputLine::Whole(bytes) if bytes.trim_ascii().is_empty() => return Ok(()),
            InputLine::Whole(bytes) => frames::read(&bytes),
            InputLine::TooLong { id } => Frame::Bad {
                id,
                error: Error::new(
                    ErrorCode::InvalidRequest.into(),
                    format!("a line has at most {LONGEST} bytes"),
                ),
            },
        };
        match frame {
            Frame::Request { id, method, params } => {
                match self.request(&id, &method, params).await {
                    Ok(Some(result)) => self.write(&frames::response(&id, &result)),
                    Ok(None) => Ok(()),
                    Err(error) => self.write(&frames::refusal(&id, &error)),
                }
            }
            Frame::Notification { method, params } => {
                self.notified(&method, params);
                Ok(())
            }
            Frame::Response { id, result } => {
                self.client_answered(&id, result);
                Ok(())
            }
            Frame::Bad { id, error } => self.write(&frames::refusal(&id, &error)),
        }
    }

    /// Carries out a request, and returns the answer; none if that comes later.
    async fn request(
        &mut self,
        id: &FrameId,
        method: &str,
        params: Value,
    ) -> Result<Option<Value>, Error> {
        if method == "initialize" {
            self.is_initialized = true;
            return value_of(&initialized()).map(Some);
        }
        if !self.is_initialized {
            let error = Error::invalid_request();
            return Err(error.data(Value::from("`initialize` comes first")));
        }
        match method {
            "session/new" => {
                let params: NewSessionRequest = read_params(params)?;
                let name = &self.options.name;
                let team = self.open(&params.cwd).await?;
                let id = new_session_id(name, team.sessions.conversation());
                team.sessions.open(&id, ignored(&params.mcp_servers));
                value_of(&NewSessionResponse::new(id)).map(Some)
            }
            "session/load" => {
                let params: LoadSessionRequest = read_params(params)?;
                let name = &self.options.name;
                let team = self.open(&params.cwd).await?;
                team.load(name, &params.session_id, ignored(&params.mcp_servers))?;
                let updates = team.sessions.take_lines().concat();
                self.write(&updates).map_err(|error| refused(&error))?;
                value_of(&LoadSessionResponse::new()).map(Some)
            }
            "session/prompt" => {
                let params: PromptRequest = read_params(params)?;
                self.prompt(id, params).await?;
                Ok(None)
            }
            _ => Err(Error::method_not_found().data(Value::from(method))),
        }
    }

    fn notified(&mut self, method: &str, params: Value) {
        if method != "session/cancel" {
            return;
        }
        let Ok(params) = read_params::<CancelNotification>(params) else {
            return;
        };
        if let Some(team) = &mut self.team {
            team.sessions.cancel(&params.session_id);
        }
    }

    /// Begins to follow the conversation, if that is not done yet.
    async fn open(&mut self, cwd: &Path) -> Result<&mut OpenTeam<'a>, Error> {
        let opened = self.try_open(cwd).await;
        opened.map_err(|error| refused(&error))
    }

    async fn try_open(&mut self, cwd: &Path) -> Result<&mut OpenTeam<'a>, CommandError> {
        let member = self.ready().await?;
        let dir = self.dir()?;
        check_place(cwd, &member)?;
        if let Some(opened) = self.opened.take() {
            self.lead = Some(lead_connection::connect(dir, self.run_by.clone()).await?);
            // The other end lasts as long as this one.
            opened.send(()).ok();
        }
        let team = match self.team.take() {
            Some(team) => team,
            None => OpenTeam::begin(self.context, dir, &member).await?,
        };
        Ok(self.team.insert(team))
    }

    fn dir(&self) -> Result<&'a TeamDir, CommandError> {
        if let Some(dir) = self.dir.get() {
            return Ok(dir);
        }
        let dir = self.context.dir()?;
        Ok(self.dir.get_or_init(|| dir))
    }

    /// Returns the teammate, which must run. The daemon is started if it does not, and so is the lead
    /// agent.
    async fn ready(&self) -> Result<RosterMember, CommandError> {
        self.ensure_daemon().await?;
        let dir = self.dir()?;
        let name = &self.options.name;
        if self.target.start.is_some() {
            self.target.ensure(self.context, dir, true).await?;
        }
        self.target.running(dir)?.ok_or_else(|| {
            CommandError::new(ExitCode::Conflict, format!("{name} is not running")).hint(format!(
                "`teamctl spawn {name} --resume` continues its conversation"
            ))
        })
    }

    /// Starts the daemon if none runs, in a thread: that blocks.
    async fn ensure_daemon(&self) -> Result<(), CommandError> {
        if let Ok(dir) = self.dir()
            && is_locked(dir)
        {
            return Ok(());
        }
        let no_start = self.options.no_start;
        let started = in_thread(self.context, move |context| {
            ensure_daemon(context, no_start, |_| Ok(())).map(|_| ExitCode::Done)
        });
        let started = started.await;
        if started.is_done {
            return Ok(());
        }
        Err(CommandError::new(ExitCode::NotRunning, started.text))
    }

    /// Puts a prompt into the inbox.
    async fn prompt(&mut self, id: &FrameId, params: PromptRequest) -> Result<(), Error> {
        let session = params.session_id;
        let is_open = |team: &OpenTeam<'_>| team.sessions.is_open(&session);
        if !self.team.as_ref().is_some_and(is_open) {
            return Err(no_session(&session, "session/new opens one"));
        }
        let text = text_of(&params.prompt)?;
        let ready = self.ready().await;
        ready.map_err(|error| refused(&error))?;
        let Some(team) = &mut self.team else {
            return Ok(());
        };
        let sent = self.target.send(self.context, team.dir, &text);
        let message = sent.map_err(|error| refused(&error))?;
        if let Some(note) = text::cut(&text, "prompt") {
            let note = format!("{note}: {LONGER}\n");
            team.sessions.note(&session, &note);
        }
        team.questions.prompted(&session);
        team.sessions.sent(id.clone(), session, message);
        Ok(())
    }

    /// The client has answered a plan or a permission question.
    fn client_answered(&mut self, id: &FrameId, result: Option<Value>) {
        let Some(team) = &mut self.team else {
            return;
        };
        let Some(answered) = team.questions.answered(id, result) else {
            return;
        };
        let ClientAnswer {
            request,
            session,
            answer,
        } = answered;
        let Some(answer) = answer else {
            let waits = format!("it waits on: `teamctl approve {request}` answers it\n");
            team.sessions.note(&session, &waits);
            return;
        };
        let dir = team.dir;
        let run_by = (!self.options.is_person).then(|| self.run_by.clone());
        self.actions.push(Box::pin(async move {
            let result = record(dir, run_by, &request, answer).await;
            CallEnd::Answered { session, result }
        }));
    }

    fn action_ended(&mut self, end: CallEnd) {
        match end {
            CallEnd::Answered { result: Ok(_), .. } | CallEnd::Interrupted(Ok(())) => {}
            CallEnd::Answered {
                session,
                result: Err(error),
            } => {
                if let Some(team) = &mut self.team {
                    let why = format!("the answer does not count: {}\n", explained(&error));
                    team.sessions.note(&session, &why);
                }
            }
            CallEnd::Interrupted(Err(error)) => {
                self.context.out.error(&error);
                if let Some(team) = &mut self.team {
                    team.sessions.interrupt_failed();
                }
            }
        }
    }

    fn try_again(&mut self) {
        if let Some(team) = &mut self.team {
            team.sessions.try_again();
        }
    }

    /// Reads what is new, and tells it.
    ///
    /// # Errors
    /// If the files cannot be read, or stdout cannot be written.
    fn look(&mut self) -> Result<(), CommandError> {
        let Some(team) = &mut self.team else {
            return Ok(());
        };
        let name = &self.options.name;
        let is_person = self.options.is_person;
        let mut looked = team.look(name, is_person);
        if looked.is_ok() && team.sessions.interrupt_is_due() {
            // Work that goes on after this moment, and was seen before, is the one to interrupt.
            let asked_at = since_boot();
            looked = team.look(name, is_person);
            if looked.is_ok() && team.sessions.interrupt_is_due() {
                team.sessions.interrupt_is_asked();
                let dir = team.dir;
                let name = name.clone();
                self.actions.push(Box::pin(async move {
                    CallEnd::Interrupted(interrupt::ask_since(dir, &name, asked_at).await)
                }));
            }
        }
        if let Err(error) = &looked {
            team.sessions.fail(&explained(error));
        }
        let lines = team.sessions.take_lines().concat();
        self.write(&lines)?;
        looked
    }

    fn write(&self, lines: &str) -> Result<(), CommandError> {
        if lines.is_empty() {
            return Ok(());
        }
        self.context.out.write(lines.as_bytes())
    }
}

/// Gives an answer to the daemon. A process that runs this one is no person, unless a person said
/// so.
async fn record(
    dir: &TeamDir,
    run_by: Option<Identity>,
    request: &RequestId,
    answer: Answer,
) -> Result<bool, CommandError> {
    let client = match run_by {
        Some(run_by) => Client::connect_as_lead(dir, run_by).await?,
        None => Client::connect(dir).await?,
    };
    answer::record_over(client, request, answer).await
}

fn initialized() -> InitializeResponse {
    let takes = PromptCapabilities::new().embedded_context(true);
    let can = AgentCapabilities::new()
        .load_session(true)
        .prompt_capabilities(takes);
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(can)
        .agent_info(Implementation::new("teamd", env!("CARGO_PKG_VERSION")))
}

/// Makes the id of a session: whose it is, and which conversation it shows.
fn new_session_id(name: &Name, conversation: u32) -> SessionId {
    let number = RandomIds.request();
    SessionId::new(format!("{name}-{conversation}-{number}"))
}

/// Returns what a client is told whose MCP servers are not used.
fn ignored(servers: &[McpServer]) -> Option<String> {
    if servers.is_empty() {
        return None;
    }
    let note = "the MCP servers of this client are not used: `[mcp]` in team.toml gives a teammate its servers\n";
    Some(note.to_owned())
}

/// Refuses a client that works elsewhere: it would show files that the teammate does not see.
fn check_place(cwd: &Path, member: &RosterMember) -> Result<(), CommandError> {
    let shown = cwd.display();
    if !cwd.is_absolute() {
        let message = format!("the directory {shown} is not absolute");
        return Err(CommandError::new(ExitCode::Usage, message));
    }
    let real = cwd.canonicalize().map_err(|error| {
        CommandError::refused(&format!("cannot use the directory {shown}"), &error)
    })?;
    let workspace = Path::new(&member.workspace);
    if real.starts_with(workspace) {
        return Ok(());
    }
    let name = &member.name;
    let message = format!("{shown} is outside the workspace of {name}");
    let hint = format!("open {} in the editor", workspace.display());
    Err(CommandError::new(ExitCode::Usage, message).hint(hint))
}

fn read_params<T: DeserializeOwned>(params: Value) -> Result<T, Error> {
    serde_json::from_value(params).map_err(|error| invalid(&error.to_string()))
}

fn value_of(result: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(result).map_err(Error::into_internal_error)
}
