//! Which changed files a pushed branch must not bring by itself: those that CI runs with the secrets
//! of the repository, and those that the team protects. Pure.

use std::ffi::OsStr;
use std::path::Path;

use teamd_client::error::CommandError;
use teamd_client::exit_code::ExitCode;
use teamd_shared::fingerprint::Patterns;

/// What CI runs. A link in the place of a folder is named by the folder.
const CI: [&str; 6] = [
    ".github",
    ".github/**",
    ".gitlab-ci.yml",
    ".circleci",
    ".circleci/**",
    "Jenkinsfile",
];

/// What says how files are written, and where others come from.
const SPECIAL: [&str; 2] = [".gitattributes", ".gitmodules"];

/// Returns the changed files that CI runs, or that are protected. `prefix`: where the team lies in
/// the repository; with any pattern, all outside of that is protected.
///
/// # Errors
/// If a pattern of the team cannot be used.
pub(super) fn touched(
    changed: &[String],
    (prefix, protect): (&Path, &[String]),
) -> Result<Vec<String>, CommandError> {
    let ci = patterns(&CI.map(str::to_owned))?;
    let protected = patterns(protect)?;
    let is_touched = |file: &Path| {
        if ci.has(file) {
            return true;
        }
        if protect.is_empty() {
            return false;
        }
        let is_special = file
            .file_name()
            .is_some_and(|name| SPECIAL.map(OsStr::new).contains(&name));
        let is_protected = file
            .strip_prefix(prefix)
            .map_or(true, |file| protected.has(file));
        is_special || is_protected
    };
    let touched = changed.iter().filter(|file| is_touched(Path::new(file)));
    Ok(touched.cloned().collect())
}

fn patterns(of: &[String]) -> Result<Patterns, CommandError> {
    Patterns::new(of).map_err(|why| {
        CommandError::new(ExitCode::Usage, why).hint("correct `[work] protect` in team.toml")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(changed: &[&str], prefix: &str, protect: &[&str]) -> Vec<String> {
        let changed: Vec<String> = changed.iter().map(ToString::to_string).collect();
        let protect: Vec<String> = protect.iter().map(ToString::to_string).collect();
        touched(&changed, (Path::new(prefix), &protect)).unwrap()
    }

    #[test]
    fn what_ci_runs_and_what_is_protected_is_found() {
        let ci = [
            ".github",
            ".github/workflows/a.yml",
            ".GitHub/actions/x/action.yml",
            ".gitlab-ci.yml",
            ".circleci/config.yml",
            "Jenkinsfile",
        ];
        assert_eq!(found(&ci, "", &[]), ci);
        let other = [
            "src/a.rs",
            "github/a",
            ".gitattributes",
            "docs/.gitlab-ci.yml",
        ];
        assert!(found(&other, "", &[]).is_empty());
        let changed = [
            "web/tests/a",
            "web/src/a",
            "api/src/a",
            "web/.gitattributes",
        ];
        assert_eq!(
            found(&changed, "web", &["tests/**"]),
            ["web/tests/a", "api/src/a", "web/.gitattributes"]
        );
    }
}
