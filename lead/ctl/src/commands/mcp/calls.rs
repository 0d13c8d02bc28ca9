//! What each call does: it reads the files of the team, appends a message, or asks the daemon, as
//! the commands of a person do.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use teamd_client::act::send;
use teamd_client::act::unreachable::waiting_for;
use teamd_client::args::MailboxName;
use teamd_client::context::Context;
use teamd_client::daemon_lock::is_locked;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_client::read::{journal, roster};
use teamd_shared::control::{Command, ConnectedLead, Done, IntegrationOrder, TaskOrder};
use teamd_shared::environment::Environment;
use teamd_shared::id::{Ids, RandomIds, RequestId};
use teamd_shared::member::Terms;
use teamd_shared::message::{LEAD, USER};
use teamd_shared::name::Name;
use teamd_shared::spawn::{SpawnCall, Spawner, model_of_key};
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::terms::TermsPatch;
use teamd_shared::tools::{
    AnswerPlan, LeadMessage, RequestPlan, ShutdownRequest, SpawnTeammate, TaskAction, TaskReview,
    task_text, team_text, teammate, unexpected,
};

use super::events;
use super::session::LeadSession;
use super::tools::{LeadCall, ParsedCall, parse};

/// What a call answers.
#[derive(Debug)]
pub(super) struct CallAnswer {
    pub(super) text: String,
    pub(super) is_error: bool,
}

/// Carries out a call. The answer ends with what came for the lead, and the next cursor.
pub(super) fn answer(
    context: &Context,
    session: &LeadSession,
    name: &str,
    input: &Value,
) -> CallAnswer {
    let (result, cursor) = match parse(name, input) {
        Ok(ParsedCall { call, cursor }) => {
            let cursor = cursor.unwrap_or_else(|| session.began_at());
            let caller = ToolCaller { context, session };
            (caller.perform(call, cursor), cursor)
        }
        Err(why) => (Err(why), session.began_at()),
    };
    let is_error = result.is_err();
    let mut text = result.unwrap_or_else(|why| why);
    let came = session.dir(context).and_then(|dir| {
        let came = events::since(&dir, cursor)?;
        session.record_read(&dir, came.next);
        Ok(came.text)
    });
    match came {
        Ok(came) if text.is_empty() => text = came,
        Ok(came) => text = format!("{text}\n\n{came}"),
        // Without a team nothing has come, and the call has said so.
        Err(_) if is_error => {}
        Err(error) => {
            let why = explained(&error);
            return CallAnswer {
                text: format!("{text}\n\nwhat came for you cannot be shown: {why}"),
                is_error: true,
            };
        }
    }
    CallAnswer { text, is_error }
}

/// Describes an error to a model.
fn explained(error: &CommandError) -> String {
    let mut text = error.message().to_owned();
    for choice in error.choices() {
        text.push_str(&format!("\n  {choice}"));
    }
    match error.next_step() {
        Some(hint) => format!("{text} ({hint})"),
        None => text,
    }
}

/// Who carries out a call.
struct ToolCaller<'a> {
    context: &'a Context,
    session: &'a LeadSession,
}

impl ToolCaller<'_> {
    /// Carries out a call.
    ///
    /// # Errors
    /// A text for the model, like the errors of all functions here.
    fn perform(&self, call: LeadCall, cursor: u64) -> Result<String, String> {
        // What has something done may start the daemon again.
        if matches!(
            call,
            LeadCall::Spawn(_) | LeadCall::Task(TaskAction::Create(_))
        ) {
            self.session
                .ensure_daemon(self.context)
                .map_err(|error| explained(&error))?;
        }
        let dir = self
            .session
            .dir(self.context)
            .map_err(|error| explained(&error))?;
        match call {
            LeadCall::Status => self.status(&dir),
            LeadCall::Spawn(spawn) => self.spawn(&dir, &spawn),
            LeadCall::Shutdown(input) => {
                let name = teammate(&input.teammate)?;
                let order = input.order(RandomIds.request(), name.clone());
                let done = self.order(&dir, Command::Shutdown(order))?;
                ShutdownRequest::report(&name, &done)
            }
            LeadCall::Send(message) => self.send(&dir, message),
            LeadCall::RequestPlan(input) => {
                let name = teammate(&input.teammate)?;
                let ask = Command::RequestPlan {
                    id: RandomIds.request(),
                    name: name.clone(),
                    content: input.content,
                    wait: false,
                };
                let done = self.order(&dir, ask)?;
                Ok(RequestPlan::report(&name, &done))
            }
            LeadCall::Review(input) => {
                self.judge(&dir, input.request_id, input.approve, input.feedback)
            }
            LeadCall::Task(action) => self.task(&dir, action),
            LeadCall::ReviewTask(input) => self.review_task(&dir, input),
            LeadCall::Wait(time) => {
                events::wait(self.context, &dir, cursor, time)
                    .map_err(|error| explained(&error))?;
                Ok(String::new())
            }
        }
    }

    fn order(&self, dir: &TeamDir, command: Command) -> Result<Done, String> {
        self.session
            .order(dir, command)
            .map_err(|error| explained(&error))
    }

    /// Shows the team, and which leads are connected.
    fn status(&self, dir: &TeamDir) -> Result<String, String> {
        let read = || Ok((roster::load(dir)?, journal::fold(dir)?));
        let (roster, team) = read().map_err(|error: CommandError| explained(&error))?;
        let shown = team_text(&roster, &team);
        if !is_locked(dir) {
            return Ok(format!(
                "{shown}\nthe daemon is not running: nothing of this moves (`teamd start` starts it)"
            ));
        }
        let leads = match self.order(dir, Command::Leads)? {
            Done::Leads(leads) => leads,
            other => return Err(unexpected(&other)),
        };
        let leads: Vec<String> = leads.iter().map(ConnectedLead::shown).collect();
        Ok(format!("{shown}\nconnected leads: {}", leads.join(", ")))
    }

    fn spawn(&self, dir: &TeamDir, spawn: &SpawnTeammate) -> Result<String, String> {
        let spawner = self.spawner(dir)?;
        let mut call = SpawnCall::new(spawn)?;
        while let Some(command) = call.next(&spawner, dir, RandomIds.request()) {
            call.record(self.order(dir, command));
        }
        call.finish()
    }

    /// Returns the lead as the teammates that it spawns see it: its terms are the top level of
    /// `team.toml`.
    fn spawner(&self, dir: &TeamDir) -> Result<Spawner, String> {
        let environment = Environment::of_self();
        let lookup = |variable: &str| environment.value(variable);
        let file = TeamFile::load(&TeamFile::locate(dir.root(), lookup), &lookup);
        let file = file.map_err(|error| format!("{error} ({})", error.hint()))?;
        let named = TermsPatch::of_environment(&lookup).map_err(|error| error.to_string())?;
        let patch = TermsPatch {
            model: model_of_key(&lookup),
            ..TermsPatch::default()
        };
        let patch = named.merge(file.team.clone()).merge(patch);
        let workspace = dir.workspace();
        let workspace = workspace
            .to_str()
            .ok_or_else(|| format!("the path {} is not UTF-8", workspace.display()))?;
        let mut terms = Terms::of_workspace(workspace.to_owned()).with(&patch);
        terms.workspace = real(&terms.workspace)?;
        Ok(Spawner {
            environment: Arc::new(environment),
            terms,
        })
    }

    fn send(&self, dir: &TeamDir, message: LeadMessage) -> Result<String, String> {
        let LeadMessage { to, content } = message;
        let owner = if to == USER {
            Name::lead()
        } else {
            teammate(&to)?
        };
        let to = MailboxName { to, owner };
        let durability = self.context.settings.durability;
        send::from(dir, LEAD, &to, content, durability)
            .map(|awaited| match awaited {
                Some(host) => format!(
                    "{}: {} has it when it is reached",
                    waiting_for(&host),
                    to.to
                ),
                None => format!("sent to {}", to.to),
            })
            .map_err(|error| explained(&error))
    }

    /// Answers a plan, a review or a permission question.
    fn judge(
        &self,
        dir: &TeamDir,
        request_id: RequestId,
        approve: bool,
        feedback: String,
    ) -> Result<String, String> {
        let answer = Command::Answer {
            request_id,
            approve,
            feedback,
            permissions: None,
        };
        match self.session.order(dir, answer) {
            Ok(_) => Ok(AnswerPlan::report(approve).to_owned()),
            Err(error) if error.code() == ExitCode::Rejected => Err(format!(
                "not decided: a person decides; they were asked. Your answer does not count: {}. Tell the person what you \
                 recommend.",
                explained(&error)
            )),
            Err(error) => Err(explained(&error)),
        }
    }

    fn task(&self, dir: &TeamDir, action: TaskAction) -> Result<String, String> {
        let order = match action {
            TaskAction::Create(fields) => TaskOrder::Add {
                id: RandomIds.request(),
                tasks: vec![*fields],
                within: false,
            },
            TaskAction::Order(order) => order,
            TaskAction::Reopen(id, fields) => {
                let listed = self.order(dir, Command::Task(TaskOrder::List(Some(id))))?;
                let Done::Tasks(tasks) = listed else {
                    return Err(unexpected(&listed));
                };
                TaskAction::reopening(id, fields, tasks.last())?
            }
            TaskAction::Diff(id) => {
                let order = Command::Integration(IntegrationOrder::DiffOfTask(id));
                return match self.order(dir, order)? {
                    Done::Text(text) => Ok(task_text::cut(text)),
                    other => Err(unexpected(&other)),
                };
            }
            TaskAction::Refuse(why) => return Err(why),
        };
        match self.order(dir, Command::Task(order.clone()))? {
            Done::Tasks(tasks) => Ok(task_text::describe_tasks(&order, &tasks, dir)),
            Done::Made(ids) => Ok(task_text::describe_created(&order, &ids)),
            other => Err(unexpected(&other)),
        }
    }

    /// Answers the review that a task waits for.
    fn review_task(&self, dir: &TeamDir, input: TaskReview) -> Result<String, String> {
        let TaskReview {
            task_id,
            approve,
            feedback,
        } = input;
        let listed = self.order(dir, Command::Task(TaskOrder::List(Some(task_id))))?;
        let Done::Tasks(tasks) = listed else {
            return Err(unexpected(&listed));
        };
        let request_id = tasks.last().and_then(|task| task.review_id());
        let request_id = request_id.ok_or_else(|| {
            format!("no review of task {task_id} waits for an answer (task_get shows it)")
        })?;
        self.judge(dir, request_id.clone(), approve, feedback)
    }
}

/// Returns a path without links.
fn real(path: &str) -> Result<String, String> {
    let real = Path::new(path)
        .canonicalize()
        .map_err(|error| format!("the workspace {path} cannot be used: {error}"))?;
    real.into_os_string()
        .into_string()
        .map_err(|_| format!("the path of the workspace {path} is not UTF-8"))
}
