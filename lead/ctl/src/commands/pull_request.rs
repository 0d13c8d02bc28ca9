//! Proof out: what is integrated is pushed from the user's repository by the user's `git`, and the
//! user's `gh` opens a pull request whose body is evidence. And what comes back becomes tasks.

mod ci;
mod evidence;
mod feedback;
mod repository;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use teamd_client::args::{Land, PullRequestCommand, PullRequests};
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::print::render::count;
use teamd_client::read::{journal, money, requests, roster, tasks};
use teamd_shared::journal::Team;
use teamd_shared::journal::reader::{Since, load};
use teamd_shared::member::ApproveBy;
use teamd_shared::request::{Payload, Request, Status};
use teamd_shared::task::{Task, TaskId, TaskStatus};
use teamd_shared::team_dir::TeamDir;
use teamd_view::model::{CostAccount, Past, ledger};

use crate::github::{Gh, Repository, harmless, source_of};
use evidence::TaskEvidence;
use repository::UserRepository;

/// How long a call of `git` or `gh` may take, unless it is said.
const LIMIT: Duration = Duration::from_secs(600);

/// How many files are named.
const NAMED: usize = 50;

/// The remote, unless one is named.
const REMOTE: &str = "origin";

/// Where a pull request is opened.
struct Target {
    remote: String,
    /// The branch that is pushed to.
    head: String,
    /// The branch that the pull request is for.
    base: String,
    repository: Repository,
    /// The owner of the remote, if the pull request is opened elsewhere.
    fork: Option<String>,
}

/// What is pushed.
struct Work {
    commit: String,
    /// The tasks that it brings in, with their trees.
    tasks: Vec<Integrated>,
    /// The changed files that CI runs, or that are protected.
    touched: Vec<String>,
}

/// A task that is integrated.
struct Integrated {
    task: Task,
    tree: String,
}

/// A pull request, as `gh` lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OpenPullRequest {
    number: u32,
    url: String,
    #[serde(default)]
    head_repository_owner: Option<Owner>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    login: String,
}

/// What was opened, as it is printed. Its schema is `teamctl schema land-pr`.
#[derive(Debug, Serialize)]
struct Opened {
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
        None => create(&gh, &target, (&team, &work, args), &evidence).await?,
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
    pushed: Option<(&Work, String)>,
    before: Option<&OpenPullRequest>,
) -> Opened {
    let mut opened = Opened {
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
        opened.tasks = ids(work);
        opened.touched.clone_from(&work.touched);
    }
    opened
}

fn ids(work: &Work) -> Vec<TaskId> {
    work.tasks.iter().map(|it| it.task.id).collect()
}

/// Finds out where the pull request belongs.
async fn target(git: &UserRepository, team: &Team, args: &Land) -> Result<Target, CommandError> {
    let base = match &args.branch.into {
        Some(base) => base.clone(),
        None => git.current_branch().await?,
    };
    let remote = args.remote.clone().unwrap_or_else(|| REMOTE.to_owned());
    let url = git.url(&remote).await?;
    let host = std::env::var("GH_HOST").unwrap_or_else(|_| "github.com".to_owned());
    let of_remote = Repository::of_remote(&url, &host);
    let named = match &args.repo {
        None => None,
        Some(repo) => Some(Repository::parse(repo).ok_or_else(|| {
            CommandError::new(ExitCode::Usage, format!("{repo:?} is no repository"))
                .hint("write `--repo OWNER/REPO`")
        })?),
    };
    let repository = named.or_else(|| of_remote.clone());
    let repository = repository.ok_or_else(|| {
        let message = format!("the remote {remote:?} is no repository on {host}");
        CommandError::new(ExitCode::Usage, message)
            .hint("`--repo OWNER/REPO` names that of the pull request")
    })?;
    let head = match &args.head {
        Some(head) => head.clone(),
        None => format!("team/{}", plain(&team.team_name)),
    };
    for name in [&base, &head] {
        git.is_branch_name(name).await?;
    }
    if head == base {
        let message = format!("{head} is the branch that the pull request is for");
        return Err(CommandError::new(ExitCode::Usage, message)
            .hint("`--head BRANCH` names another one to push to"));
    }
    let pushed_to = match git.push_url(&remote).await? {
        Some(url) => Repository::of_remote(&url, &host),
        None => of_remote,
    };
    let fork = pushed_to
        .filter(|remote| *remote != repository)
        .map(|remote| remote.owner().to_owned());
    Ok(Target {
        remote,
        head,
        base,
        repository,
        fork,
    })
}

/// Returns a name as a part of the name of a branch.
fn plain(name: &str) -> String {
    let plain: String = name
        .chars()
        .take(60)
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    plain.trim_matches('-').to_ascii_lowercase()
}

/// Finds what is pushed: the commit that was checked and integrated last, as the journal has it, and
/// what it brings into the branch of the remote. None if that has it already.
async fn work(
    git: &UserRepository,
    (dir, team): (&TeamDir, &Team),
    target: &Target,
) -> Result<Option<Work>, CommandError> {
    let mut integrated: Vec<Task> = tasks::all(dir, team)?
        .into_iter()
        .filter(|task| task.status == TaskStatus::Completed && merged(task).is_some())
        .collect();
    integrated.sort_by(|one, other| one.updated_at.total_cmp(&other.updated_at));
    let Some(commit) = integrated.last().and_then(merged).map(str::to_owned) else {
        return Err(
            CommandError::new(ExitCode::Conflict, "nothing is integrated yet")
                .hint("work of a teammate with a checkout is: `teamctl spawn NAME --checkout`; `teamctl tasks` shows the tasks"),
        );
    };
    if !git.has(&commit).await? {
        let message = format!("the commit {commit} is not in your repository");
        return Err(CommandError::new(ExitCode::Conflict, message)
            .hint("`git branch -r` shows team/integration; `teamctl doctor` says what is wrong"));
    }
    let base = git.tip_of(&target.remote, &target.base).await?;
    let fork_point = git.find(&["merge-base", &base, &commit]).await?;
    let Some(fork_point) = fork_point else {
        let message = format!(
            "{} of {} has no commit in common with what is integrated",
            target.base, target.remote
        );
        return Err(CommandError::new(ExitCode::Conflict, message)
            .hint("`--into BRANCH` names the branch that the work is for"));
    };
    if fork_point == commit {
        return Ok(None);
    }
    let new = git.ask(&["rev-list", &commit, &format!("^{base}")]).await?;
    let new: BTreeSet<&str> = new.lines().collect();
    let mut tasks = Vec::new();
    for task in integrated {
        let Some(merged) = merged(&task).filter(|commit| new.contains(commit)) else {
            continue;
        };
        let tree = format!("{merged}^{{tree}}");
        let tree = git.ask(&["rev-parse", "--verify", &tree]).await?;
        tasks.push(Integrated { task, tree });
    }
    let changed = [
        "diff-tree",
        "-r",
        "-z",
        "--no-renames",
        "--name-only",
        &fork_point,
        &commit,
    ];
    let changed = git.ask(&changed).await?;
    let changed: Vec<String> = changed
        .split('\0')
        .filter(|file| !file.is_empty())
        .map(str::to_owned)
        .collect();
    let prefix = git.ask(&["rev-parse", "--show-prefix"]).await?;
    let prefix = Path::new(prefix.trim_end_matches('/'));
    let touched = ci::touched(&changed, (prefix, &team.work.protect))?;
    Ok(Some(Work {
        commit,
        tasks,
        touched,
    }))
}

fn merged(task: &Task) -> Option<&str> {
    task.result.as_ref()?.merged.as_deref()
}

fn shown(files: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = files.iter().take(NAMED).cloned().collect();
    if files.len() > NAMED {
        shown.push(format!("and {} more", files.len() - NAMED));
    }
    shown
}

fn refused(git: &UserRepository, work: &Work, target: &Target, what: String) -> CommandError {
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
    (work, with_cost): (&Work, bool),
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

/// Finds the pull request that is open for the branch.
async fn find_open(gh: &Gh, target: &Target) -> Result<Option<OpenPullRequest>, CommandError> {
    let Target {
        head, repository, ..
    } = target;
    let repo = format!("--repo={repository}");
    let at = format!("--head={head}");
    let base = format!("--base={}", target.base);
    let fields = "number,url,headRepositoryOwner";
    let args = [
        "pr", "list", &repo, &at, &base, "--state", "open", "--json", fields,
    ];
    let open: Vec<OpenPullRequest> = gh.json(&args).await?;
    let owner = target.fork.as_deref().unwrap_or(repository.owner());
    Ok(open.into_iter().find(|it| {
        let of = it.head_repository_owner.as_ref();
        of.is_none_or(|of| of.login.eq_ignore_ascii_case(owner))
    }))
}

async fn renew(
    gh: &Gh,
    target: &Target,
    open: &OpenPullRequest,
    body: &str,
) -> Result<String, CommandError> {
    let repo = format!("--repo={}", target.repository);
    let number = open.number.to_string();
    let args = ["pr", "edit", &number, &repo, "--body-file=-"];
    gh.run(&args, body).await?;
    Ok(open.url.clone())
}

async fn create(
    gh: &Gh,
    target: &Target,
    (team, work, args): (&Team, &Work, &Land),
    body: &str,
) -> Result<String, CommandError> {
    let repo = format!("--repo={}", target.repository);
    let head = match &target.fork {
        Some(owner) => format!("--head={owner}:{}", target.head),
        None => format!("--head={}", target.head),
    };
    let base = format!("--base={}", target.base);
    let title = match &args.title {
        Some(title) => title.clone(),
        None => evidence::title(&team.team_name, &ids(work)),
    };
    let title = format!("--title={}", harmless(&title));
    let mut all = vec!["pr", "create", &repo, &head, &base, &title, "--body-file=-"];
    all.extend(args.draft.then_some("--draft"));
    let answer = gh.run(&all, body).await?;
    let answer = String::from_utf8_lossy(&answer);
    let url = answer
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| line.starts_with("https://"));
    url.map(str::to_owned).ok_or_else(|| {
        CommandError::new(ExitCode::Failed, "`gh pr create` has named no pull request")
            .hint("`gh pr list` shows whether there is one")
    })
}
