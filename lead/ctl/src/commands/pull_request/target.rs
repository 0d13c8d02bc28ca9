//! Where a pull request belongs: the remote that is pushed to, and the repository that it is for.

use teamd_client::args::Land;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::journal::Team;

use super::repository::UserRepository;
use crate::github::Repository;

/// The remote, unless one is named.
const REMOTE: &str = "origin";

/// The host of repositories, unless `GH_HOST` names another one.
const HOST: &str = "github.com";

/// Where a pull request is opened.
pub(super) struct Target {
    pub(super) remote: String,
    /// The branch that is pushed to.
    pub(super) head: String,
    /// The branch that the pull request is for.
    pub(super) base: String,
    pub(super) repository: Repository,
    /// The owner of the remote, if the pull request is opened elsewhere.
    pub(super) fork: Option<String>,
}

/// Finds out where the pull request belongs.
pub(super) async fn target(
    git: &UserRepository,
    team: &Team,
    args: &Land,
) -> Result<Target, CommandError> {
    let base = match &args.branch.into {
        Some(base) => base.clone(),
        None => git.current_branch().await?,
    };
    let remote = args.remote.clone().unwrap_or_else(|| REMOTE.to_owned());
    let url = git.url(&remote).await?;
    let host = std::env::var("GH_HOST").unwrap_or_else(|_| HOST.to_owned());
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
