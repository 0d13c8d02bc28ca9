//! The pull request on GitHub, by the user's `gh`: found, opened, or given a new text.

use serde::Deserialize;
use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;

use super::target::Target;
use crate::github::{Gh, harmless};

/// A pull request, as `gh` lists it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OpenPullRequest {
    number: u32,
    url: String,
    #[serde(default)]
    head_repository_owner: Option<Owner>,
}

#[derive(Debug, Deserialize)]
struct Owner {
    login: String,
}

/// What a new pull request says.
pub(super) struct NewPullRequest {
    pub(super) title: String,
    pub(super) body: String,
    pub(super) is_draft: bool,
}

/// Finds the pull request that is open for the branch.
pub(super) async fn find_open(
    gh: &Gh,
    target: &Target,
) -> Result<Option<OpenPullRequest>, CommandError> {
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

/// Gives an open pull request a new text. Returns its address.
pub(super) async fn renew(
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

/// Opens a pull request. Returns its address.
pub(super) async fn create(
    gh: &Gh,
    target: &Target,
    new: &NewPullRequest,
) -> Result<String, CommandError> {
    let repo = format!("--repo={}", target.repository);
    let head = match &target.fork {
        Some(owner) => format!("--head={owner}:{}", target.head),
        None => format!("--head={}", target.head),
    };
    let base = format!("--base={}", target.base);
    let title = format!("--title={}", harmless(&new.title));
    let mut all = vec!["pr", "create", &repo, &head, &base, &title, "--body-file=-"];
    all.extend(new.is_draft.then_some("--draft"));
    let answer = gh.run(&all, &new.body).await?;
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
