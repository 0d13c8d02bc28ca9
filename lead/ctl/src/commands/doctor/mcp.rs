//! The MCP servers of `team.toml`: whether each could be started from this shell.

use teamd_client::print::render::count;
use teamd_client::read::mcp;
use teamd_shared::control::Refusal;
use teamd_shared::environment::Environment;
use teamd_shared::spawn::installed_server;
use teamd_shared::team_file::TeamFile;

use super::finding::DoctorCheck;

/// Judges the servers.
pub(super) fn examine(
    check: &mut DoctorCheck,
    file: &TeamFile,
    environment: &Environment,
) -> Option<String> {
    for (name, definition) in &file.mcp {
        let means = format!("a teammate with the MCP server {name} is not spawned from this shell");
        let next = "`teamctl mcp list` shows who has it";
        match installed_server(&definition.named(name), environment) {
            Ok(server) => {
                if let Err(error) = mcp::check(&server, environment) {
                    let next = error.next_step().unwrap_or(next);
                    check.note(error.to_string(), &means, next);
                }
            }
            Err(Refusal { message, hint, .. }) => {
                let next = hint.unwrap_or_else(|| next.to_owned());
                check.note(message, &means, &next);
            }
        }
    }
    if file.mcp.is_empty() {
        return None;
    }
    let servers = count(file.mcp.len(), "MCP server");
    Some(format!("{servers} of team.toml can be started"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Severity;
    use super::super::finding::tests::summaries;
    use super::*;

    #[test]
    fn what_keeps_a_server_from_being_started_is_told_with_its_next_step() {
        let environment = Environment::of_self();
        let examined = |text: &str| {
            let file = TeamFile::parse(text).unwrap();
            summaries(|check| examine(check, &file, &environment))
        };
        assert!(examined("").is_empty());
        let fine = examined("[mcp.a]\ncommand = ['sh']\n");
        assert_eq!(fine[0].0, Severity::Ok);
        let bad = examined(
            "[mcp.a]\ncommand = ['no-such-program-here']\n[mcp.b]\ncommand = ['npx', 'x']\n\
             [mcp.c]\ncommand = ['sh']\nenv = ['NO_SUCH_VARIABLE_HERE']\n",
        );
        let parts = ["no-such-program-here", "b", "NO_SUCH_VARIABLE_HERE"];
        assert_eq!(bad.len(), 3, "{bad:?}");
        for ((severity, what), part) in bad.iter().zip(parts) {
            assert!(
                *severity == Severity::Note && what.contains(part),
                "{bad:?}"
            );
        }
    }
}
