//! Proof out: what is integrated is pushed from the user's repository by the user's `git`, and the
//! user's `gh` opens a pull request whose body is evidence. And what comes back becomes tasks.

mod ci;
mod evidence;
mod feedback;
mod open;
mod repository;
mod target;
mod watch;
mod work;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use teamd_client::args::{Land, PullRequestCommand, PullRequests};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::count;
use teamd_client::read::{journal, money, requests, roster};
use teamd_shared::journal::Team;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::member::ApproveBy;
use teamd_shared::request::{Payload, Request, Status};
use teamd_shared::task::{Task, TaskId};
use teamd_shared::team_dir::TeamDir;
use teamd_view::model::{CostAccount, Past, ledger};

use crate::github::{Gh, source_of};
use evidence::TaskEvidence;
use open::{NewPullRequest, OpenPullRequest, create, find_open, renew};
use repository::UserRepository;
use target::{Target, target};
use work::{Integrated, PullRequestWork, work};

/// How long a call of `git` or `gh` may take, unless it is said.
const LIMIT: Duration = Duration::from_secs(600);

/// How many files are named.
const NAMED: usize = 50;

/// What was opened, as it is printed. Its schema is `teamctl schema land-pr`.
#[derive(Debug, Serialize)]
struct OpenedPullRequest {
    /// Null if there was nothing to push.
    url: Option<String>,
    /// Whether it was there before, and its text is new.
    renewed: bool,
    repository: String,
    base: String,
    head: String,
    commit: String,
    tasks: Vec<TaskId>,
    /// The files that `--with-ci` let through.
    touched: Vec<String>,
}

/// Runs a command about pull requests.
pub(super) fn run(context: &Context, args: &PullRequests) -> CommandResult {
    match &args.command {
        PullRequestCommand::Watch(args) => watch::run(context, args),
    }
}

/// Pushes what is integrated, and opens a pull request for it, or renews the text of the one that is
/// open.
pub(super) fn open(context: &Context, args: &Land) -> CommandResult {
    context.block_on(open_for(context, args))
}

async fn open_for(context: &Context, args: &Land) -> CommandResult {
    let dir = context.dir()?;
    let team = journal::fold(&dir)?;
    let limit = args.branch.timeout.unwrap_or(LIMIT);
    let git = UserRepository {
        workspace: dir.workspace(),
        limit,
    };
    let target = target(&git, &team, args).await?;
    let gh = Gh::find(&team, limit)?;
    let Some(work) = work(&git, (&dir, &team), &target).await? else {
        let Target { remote, base, .. } = &target;
        let text = format!("{base} of {remote} has all that is integrated");
        let opened = opened(&target, None, None);
        return context.out.result(&opened, text).map(|()| ExitCode::Done);
    };
    if !work.touched.is_empty() {
        let what = format!(
            "what is integrated changes {} that CI runs or that are protected",
            count(work.touched.len(), "file")
        );
        if !args.with_ci {
            return Err(refused(&git, &work, &target, what));
        }
        context.out.note(format_args!("{what}:"));
        for file in shown(&work.touched) {
            context.out.aside(format_args!("  {}", escape::line(&file)));
        }
    }
    let evidence = evidence(context, (&dir, &team), (&work, args.with_cost))?;
    // This also tells whether the user is logged in, before anything is pushed.
    let before = find_open(&gh, &target).await?;
    git.push(&target.remote, &work.commit, &target.head).await?;
    let url = match &before {
        Some(open) => renew(&gh, &target, open, &evidence).await?,
        None => {
            let new = NewPullRequest {
                title: args
                    .title
                    .clone()
                    .unwrap_or_else(|| evidence::title(&team.team_name, &work.ids())),
                body: evidence,
                is_draft: args.draft,
            };
            create(&gh, &target, &new).await?
        }
    };
    let number = url.rsplit('/').next().and_then(|last| last.parse().ok());
    let shown_url = escape::line(&url).into_owned();
    let opened = opened(&target, Some((&work, url)), before.as_ref());
    context.out.result(&opened, shown_url)?;
    if let Some(number) = number {
        let source = source_of(&target.repository, number);
        context.out.hint(format_args!(
            "`teamctl pr watch {source}` makes tasks of failed checks and comments"
        ));
    }
    Ok(ExitCode::Done)
}

fn opened(
    target: &Target,
    pushed: Option<(&PullRequestWork, String)>,
    before: Option<&OpenPullRequest>,
) -> OpenedPullRequest {
    let mut opened = OpenedPullRequest {
        url: None,
        renewed: before.is_some(),
        repository: target.repository.to_string(),
        base: target.base.clone(),
        head: target.head.clone(),
        commit: String::new(),
        tasks: Vec::new(),
        touched: Vec::new(),
    };
    if let Some((work, url)) = pushed {
        opened.url = Some(url);
        opened.commit.clone_from(&work.commit);
        opened.tasks = work.ids();
        opened.touched.clone_from(&work.touched);
    }
    opened
}

fn shown(files: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = files.iter().take(NAMED).cloned().collect();
    if files.len() > NAMED {
        shown.push(format!("and {} more", files.len() - NAMED));
    }
    shown
}

fn refused(
    git: &UserRepository,
    work: &PullRequestWork,
    target: &Target,
    what: String,
) -> CommandError {
    let Target { remote, base, .. } = target;
    let commit = work.commit.get(..12).unwrap_or(&work.commit);
    let at = git.workspace.display();
    CommandError::new(ExitCode::Rejected, what)
        .candidates(shown(&work.touched))
        .hint(format!(
            "a pushed workflow runs with the secrets of the repository. Look: `git -C {at} diff {remote}/{base}...{commit}`; `--with-ci` pushes them"
        ))
}

/// Writes the body.
fn evidence(
    context: &Context,
    (dir, team): (&TeamDir, &Team),
    (work, with_cost): (&PullRequestWork, bool),
) -> Result<String, CommandError> {
    let asked = requests::all(dir)?;
    let costs = if with_cost {
        costs(context, dir)?
    } else {
        BTreeMap::new()
    };
    let tasks: Vec<TaskEvidence<'_>> = work
        .tasks
        .iter()
        .map(|Integrated { task, tree }| TaskEvidence {
            task,
            tree: tree.clone(),
            approved_by: approved_by(&asked, task),
            cost: with_cost.then(|| {
                let cost = costs.get(&task.id).cloned().flatten();
                cost.unwrap_or_else(|| "not known".to_owned())
            }),
        })
        .collect();
    let mut places: Vec<PathBuf> = team.territory().map(|(path, _)| path.to_owned()).collect();
    places.push(dir.workspace());
    places.extend(std::env::var_os("HOME").map(PathBuf::from));
    places.push(std::env::temp_dir());
    Ok(evidence::body(&tasks, &places))
}

/// Returns who approved the work that is integrated.
fn approved_by(asked: &[Request], task: &Task) -> Option<ApproveBy> {
    let submission = task.result.as_ref()?.submission;
    asked
        .iter()
        .rev()
        .find_map(|request| match &request.payload {
            Payload::Review(review)
                if request.status == Status::Approved
                    && review.task == task.id
                    && review.submission == submission =>
            {
                Some(review.by)
            }
            _ => None,
        })
}

/// Returns what each task cost; none where a price is not known.
fn costs(
    context: &Context,
    dir: &TeamDir,
) -> Result<BTreeMap<TaskId, Option<String>>, CommandError> {
    let roster = roster::load(dir)?;
    let prices = money::prices(context);
    let mut past = Past::default();
    load(dir, Since::Start, |_, line| past.line(line))?;
    let mut account = CostAccount::new(&past, teamd_shared::clock::wall());
    for member in &roster.members {
        let runs = roster::runs(&roster, member);
        let ledger = ledger(dir, &member.name)?;
        account.member((&member.name, &money::model(member), runs), &ledger);
    }
    let costs = account.tasks.iter().map(|(id, share)| {
        let cost = share.cost(&prices);
        (*id, cost.map(|cost| cost.to_string()))
    });
    Ok(costs.collect())
}
