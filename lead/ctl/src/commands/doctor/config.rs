//! The user's own configuration: whether it can be used, and what it hands out.

use teamd_shared::environment::CLAUDE_TOKEN;
use teamd_shared::user_config::{UserConfig, UserConfigError};

use super::finding::DoctorCheck;

/// Judges the configuration, as it was read. `has_token`: whether the environment has the token.
pub(super) fn examine(
    check: &mut DoctorCheck,
    config: Result<UserConfig, UserConfigError>,
    has_token: bool,
) -> Option<String> {
    let config = match config {
        Ok(config) => config,
        Err(error) => {
            let means = "no hook runs, and no teammate with `--agent claude` is spawned";
            check.problem(error.to_string(), means, error.hint());
            return None;
        }
    };
    let path = config.path.display();
    if let Some(costs) = config.login_of_claude().costs() {
        let means = costs.to_string();
        let next =
            format!("`login` in `[agents.claude]` of {path} is your decision (docs/agents.md)");
        check.note("the agent claude logs in with your token", &means, &next);
        if !has_token {
            check.note(
                format!("{CLAUDE_TOKEN} is not set here"),
                "a teammate with `--agent claude` is not spawned from this shell",
                "`claude setup-token` makes a token",
            );
        }
    }
    Some(format!("{path} hands out no token"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::super::finding::Severity;
    use super::super::finding::tests::summaries;
    use super::*;

    #[test]
    fn a_token_and_a_mistake_are_told() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().canonicalize().unwrap();
        let examined = |has_token| {
            let config =
                UserConfig::load(|name| (name == "HOME").then(|| home.clone().into_os_string()));
            summaries(|check| examine(check, config, has_token))
        };
        let [(severity, what)] = &examined(true)[..] else {
            panic!()
        };
        assert!(*severity == Severity::Ok && what.ends_with("hands out no token"));
        let folder = home.join(".config/teamd");
        std::fs::create_dir_all(&folder).unwrap();
        let write = |text: &str| {
            let mut file = std::fs::File::create(folder.join("config.toml")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        write("[agents.claude]\nlogin = 'token'\n");
        assert_eq!(examined(true).len(), 1);
        let without = examined(false);
        assert_eq!(without[0].0, Severity::Note);
        assert!(without[1].1.contains(CLAUDE_TOKEN), "{without:?}");
        write("[agents.claude]\nlogin = 'x'\n");
        assert_eq!(examined(true)[0].0, Severity::Problem);
    }
}
