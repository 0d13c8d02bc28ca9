//! The conversation that a client follows from its first session on.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use agent_client_protocol_schema::v1::{Error, SessionId};
use teamd_client::context::Context;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::wake::TICK;
use teamd_shared::config::RosterMember;
use teamd_shared::member::ApproveBy;
use teamd_shared::name::Name;
use teamd_shared::request::Request;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::transcript::last_beginning;
use teamd_shared::watch::SLOW_TICK;

use super::errors::{no_session, refused};
use super::questions::ClientQuestions;
use super::sessions::Sessions;
use super::updates::UpdateReader;
use crate::model::Follower;

/// How long a teammate may take until its conversation has begun.
const READY: Duration = Duration::from_secs(30);
/// How long no daemon may run before prompts end: another program may take its place.
const WITHOUT_DAEMON: Duration = Duration::from_secs(1);

/// The conversation, and who follows it.
pub(super) struct OpenTeam<'a> {
    pub(super) dir: &'a TeamDir,
    pub(super) follower: Follower<'a>,
    pub(super) sessions: Sessions,
    pub(super) questions: ClientQuestions,
    workspace: PathBuf,
    /// The first moment since which no daemon was seen.
    without_daemon: Option<Instant>,
}

impl<'a> OpenTeam<'a> {
    /// Begins to follow the conversation of a teammate that runs.
    ///
    /// # Errors
    /// If its files cannot be read, or it does not begin in time.
    pub(super) async fn begin(
        context: &Context,
        dir: &'a TeamDir,
        member: &RosterMember,
    ) -> Result<Self, CommandError> {
        let name = &member.name;
        // The last entry tells whether it works.
        let mut follower = Follower::begin(dir, name, 1, context.settings.poll)?;
        let begun = tokio::time::timeout(READY, conversation(dir, &mut follower, member)).await;
        let conversation = begun.unwrap_or_else(|_| {
            let message = format!("{name} has not begun in time");
            let hint = format!("`teamctl status {name}` shows what it does");
            Err(CommandError::new(ExitCode::TimedOut, message).hint(hint))
        })?;
        let workspace = PathBuf::from(&member.workspace);
        let reader = UpdateReader::new(name, &workspace);
        Ok(Self {
            dir,
            follower,
            sessions: Sessions::new(name, reader, conversation),
            questions: ClientQuestions::default(),
            workspace,
            without_daemon: None,
        })
    }

    /// Opens a session of an earlier connection, and tells what its conversation was.
    ///
    /// # Errors
    /// If that conversation is over, or its file cannot be read.
    pub(super) fn load(
        &mut self,
        name: &Name,
        id: &SessionId,
        note: Option<String>,
    ) -> Result<(), Error> {
        let conversation = self.sessions.conversation();
        let mut parts = id.0.rsplitn(3, '-').skip(1);
        let is_same = parts.next() == Some(conversation.to_string().as_str())
            && parts.next() == Some(name.as_str());
        if !is_same {
            let next = format!("{name} has another conversation now: session/new shows it");
            return Err(no_session(id, &next));
        }
        // What comes after this place is streamed.
        let entries = self.follower.so_far();
        let entries = entries.map_err(|error| refused(&error.into()))?;
        self.sessions.open(id, note);
        let reader = UpdateReader::new(name, &self.workspace);
        self.sessions.replay(id, reader, &entries.entries);
        Ok(())
    }

    /// Returns when a file may have changed. Only a prompt needs a look without a change: at whether
    /// the daemon still runs. Dropping the future loses nothing.
    pub(super) async fn changed(&mut self) {
        let most = if self.sessions.has_prompts() {
            TICK
        } else {
            SLOW_TICK
        };
        self.follower.changed_within(most).await;
    }

    /// Reads what is new.
    ///
    /// # Errors
    /// If the files cannot be read.
    pub(super) fn look(&mut self, name: &Name, is_person: bool) -> Result<(), CommandError> {
        if !self.sessions.has_prompts() {
            self.without_daemon = None;
            let new = self.follower.conversation()?;
            self.sessions.read(&new);
            if self.questions.is_any_open() {
                self.follower.plans()?;
                self.withdraw();
            }
            return Ok(());
        }
        // Read before the conversation: of an agent that is quiet here, that has everything.
        let activity = self.follower.activity(false)?;
        let new = self.follower.conversation()?;
        self.sessions.read(&new);
        if new.entries.is_empty() {
            self.sessions.rest(&activity);
        }
        self.follower.plans()?;
        self.withdraw();
        self.ask(name, is_person);
        self.look_for_daemon(name);
        Ok(())
    }

    /// Withdraws the questions that need no answer any more.
    fn withdraw(&mut self) {
        let sessions = &self.sessions;
        let follower = &self.follower;
        let lines = self.questions.withdraw(|request, session| {
            follower.pending(request).is_some() && sessions.has_prompt_of(session)
        });
        for line in lines {
            self.sessions.push(line);
        }
    }

    /// Asks the client what waits for an answer, if it may give it.
    fn ask(&mut self, name: &Name, is_person: bool) {
        let waiting = self.follower.waiting();
        let own = waiting.filter(|request| request.member() == name.as_str());
        let own: Vec<Request> = own.cloned().collect();
        for session in self.sessions.prompting() {
            for request in &own {
                if self.questions.is_new(request, &session) {
                    self.ask_one(request, &session, is_person);
                }
            }
        }
    }

    fn ask_one(&mut self, request: &Request, session: &SessionId, is_person: bool) {
        let judge = self.follower.team().judge_of(request);
        if is_person || judge == ApproveBy::Lead {
            let line = self.questions.ask(request, session);
            self.sessions.push(line);
            return;
        }
        let noun = request.kind.noun();
        let id = &request.request_id;
        let note = format!(
            "the {noun} {id} waits for a person: `teamctl approve {id}` in a terminal that this client \
             has not opened\n"
        );
        self.sessions.note(session, &note);
    }

    /// Ends the prompts when no daemon runs: what becomes of them is not recorded.
    fn look_for_daemon(&mut self, name: &Name) {
        if self.follower.has_daemon() || !self.sessions.has_prompts() {
            self.without_daemon = None;
            return;
        }
        let since = self.without_daemon.get_or_insert_with(Instant::now);
        if since.elapsed() >= WITHOUT_DAEMON {
            self.sessions.fail(&format!(
                "the daemon is gone (`teamd start` starts it again); {name} has the message: do not send \
                 it again"
            ));
        }
    }
}

/// Returns the number of the conversation, once the incarnation has begun.
async fn conversation(
    dir: &TeamDir,
    follower: &mut Follower<'_>,
    member: &RosterMember,
) -> Result<u32, CommandError> {
    loop {
        if let Some(begun) = last_beginning(dir, &member.name)?
            && begun.incarnation >= member.incarnation
        {
            return Ok(begun.conversation);
        }
        follower.changed().await;
    }
}
