//! `teamctl host invite`: a host that home cannot reach dials home. A key lets it in that can open
//! its link and nothing else: `sshd` at home runs `teamd link` for it, whatever it asks for.

use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use serde_json::json;
use teamd_client::act::auto_start::ensure_daemon;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::programs;
use teamd_shared::control::Command;
use teamd_shared::host::{Host, HostWay, can_be_host, public_key};
use teamd_shared::name::Name;
use teamd_shared::user_dirs::login_dir;

use super::{ask, of_file, recorded};
use crate::at::quoted;

/// The key of a host.
struct HostKey {
    /// The public key, as `TYPE BASE64`.
    public: String,
    /// The file of the private key, if it was made now.
    file: Option<PathBuf>,
}

/// Adds a host that dials home, and prints what lets it in.
pub(super) fn run(
    context: &Context,
    name: Name,
    given: Option<&str>,
    allow_weak_sandbox: bool,
) -> CommandResult {
    can_be_host(&name).map_err(|why| usage(why, "take another name"))?;
    let before = recorded(context, &name)?;
    let from_file = of_file(context, &name, before.as_ref())?;
    ensure_daemon(context, false, |_| Ok(()))?;
    let key = match (given, before.as_ref().map(|host| &host.way)) {
        (Some(line), _) => HostKey {
            public: public_key(line)
                .map_err(|why| usage(why, "take the line of a file like ~/.ssh/id_ed25519.pub"))?,
            file: None,
        },
        // Its key is there: what to do with it is printed once more.
        (None, Some(HostWay::Invited(known))) => HostKey {
            public: known.clone(),
            file: None,
        },
        (None, _) => make_key(context, &name)?,
    };
    let terms = from_file.or(before).map(|host| host.terms);
    let host = Host {
        name: name.clone(),
        way: HostWay::Invited(key.public.clone()),
        allow_weak_sandbox,
        terms: terms.unwrap_or_default(),
    };
    let added = ask(context, Command::AddHost(host));
    if let (Err(_), Some(file)) = (&added, &key.file) {
        // It lets no one in.
        for path in [file.clone(), file.with_extension("pub")] {
            std::fs::remove_file(&path).map_err(|error| {
                CommandError::refused(&format!("cannot remove {}", path.display()), &error)
            })?;
        }
    }
    added?;
    show(context, &name, &key)
}

fn usage(why: String, hint: &str) -> CommandError {
    CommandError::new(ExitCode::Usage, why).hint(hint)
}

/// Makes a key pair in `~/.ssh`, which no teammate can read.
fn make_key(context: &Context, name: &Name) -> Result<HostKey, CommandError> {
    let home = login_dir(|variable| std::env::var_os(variable))
        .map_err(|error| CommandError::refused("cannot find your home directory", &error))?;
    let folder = home.join(".ssh");
    let made = std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .recursive(true)
        .create(&folder);
    made.map_err(|error| CommandError::refused("cannot make ~/.ssh", &error))?;
    let team = context.dir()?;
    let workspace = team.workspace();
    let folder_name = workspace.file_name().unwrap_or_default();
    let of_team: String = folder_name
        .to_string_lossy()
        .chars()
        .filter(|it| it.is_ascii_alphanumeric() || "-_".contains(*it))
        .collect();
    let file = folder.join(format!("teamd-{of_team}-{name}"));
    let public_file = folder.join(format!("teamd-{of_team}-{name}.pub"));
    if file.exists() {
        let message = format!("{} is there already", file.display());
        return Err(CommandError::new(ExitCode::Rejected, message).hint(format!(
            "remove it, or let in its key: --public-key \"$(cat {})\"",
            public_file.display()
        )));
    }
    let made = Process::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C"])
        .arg(format!("teamd host {name}"))
        .arg("-f")
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| CommandError::refused("cannot run ssh-keygen", &error))?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let message = format!("ssh-keygen failed: {}", escape::line(said.trim()));
        return Err(CommandError::new(ExitCode::Failed, message));
    }
    let line = std::fs::read_to_string(&public_file)
        .map_err(|error| CommandError::refused("cannot read the key", &error))?;
    let public = public_key(&line).map_err(|why| CommandError::new(ExitCode::Failed, why))?;
    Ok(HostKey {
        public,
        file: Some(file),
    })
}

/// Prints the steps that a person takes.
fn show(context: &Context, name: &Name, key: &HostKey) -> CommandResult {
    let dir = context.dir()?;
    let teamd =
        programs::teamd().map_err(|error| CommandError::refused("cannot find teamd", &error))?;
    let line = authorized(&teamd, dir.root(), name, &key.public);
    let kept = match &key.file {
        Some(file) => file.display().to_string(),
        None => "FILE".to_owned(),
    };
    let dial = format!(
        "teamd host --dial {} --key {}",
        place_of_home(),
        quoted(&kept)
    );
    let value = json!({
        "host": name,
        "authorized_keys": line,
        "key": key.file,
        "dial": dial,
    });
    let carry = match &key.file {
        Some(_) => format!("Take the key to {name}, and remove it here: {kept}"),
        None => format!("The private key is on {name}, in FILE."),
    };
    let text = format!(
        "{name} is invited: it dials home.\n\n\
         1. Here, add this line to ~/.ssh/authorized_keys. The key can open this link, and do nothing else.\n\n\
         {line}\n\n\
         2. {carry}\n\
         3. On {name}, with teamd {version} and for as long as teammates are to be reached:\n\n   \
         {dial}",
        version = env!("CARGO_PKG_VERSION"),
    );
    context.out.result(&value, escape::text(&text))?;
    context.out.note(format_args!(
        "the owner of {name} can read the keys, the mail and the work of the teammates there"
    ));
    Ok(ExitCode::Done)
}

/// Returns the line of `authorized_keys` (`sshd(8)`): one command, no terminal, nothing forwarded.
fn authorized(teamd: &Path, dir: &Path, name: &Name, key: &str) -> String {
    let word = |path: &Path| quoted(&path.to_string_lossy());
    let command = format!("{} link {name} --team-dir {}", word(teamd), word(dir));
    // sshd reads `\"` alone as an escape.
    let command = command.replace('"', "\\\"");
    format!("restrict,command=\"{command}\" {key} teamd-host-{name}")
}

/// Returns where the other machine finds this one, as far as this one knows.
fn place_of_home() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let user = user.ok().flatten();
    let user = user.map_or_else(|| "USER".to_owned(), |user| user.name);
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let machine = machine.map_or_else(|_| "HOME".to_owned(), |name| name.trim().to_owned());
    format!("{user}@{machine}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_runs_one_command_whatever_the_paths_are() {
        let line = authorized(
            Path::new("/opt/my tools/teamd"),
            Path::new("/home/me/a \"b\"/.team"),
            &Name::new("box").unwrap(),
            "ssh-ed25519 AAAA",
        );
        assert_eq!(
            line,
            r#"restrict,command="'/opt/my tools/teamd' link box --team-dir '/home/me/a \"b\"/.team'" ssh-ed25519 AAAA teamd-host-box"#
        );
    }
}
