//! `teamctl host invite`: a host that home cannot reach dials home. A key lets it in that can open
//! its link and nothing else: `sshd` at home runs `teamd link` for it, whatever it asks for.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};

use serde_json::json;
use teamd_client::act::auto_start::ensure_daemon;
use teamd_client::args::NatsArgs;
use teamd_client::context::Context;
use teamd_client::error::{CommandError, CommandResult};
use teamd_client::exit_code::ExitCode;
use teamd_client::print::escape;
use teamd_client::programs;
use teamd_shared::control::Command;
use teamd_shared::host::{Host, HostWay, can_be_host, key_id, public_key};
use teamd_shared::name::Name;
use teamd_shared::team_file::HostTable;
use teamd_shared::user_dirs::login_dir;

use super::{ask, invite_nats, of_file, recorded};
use crate::at::quoted;

/// The key of a host.
struct HostKey {
    /// The public key, as `TYPE BASE64`.
    public: String,
    /// The file of the private key, if it is here.
    file: Option<PathBuf>,
}

/// What a person says of a host that is to dial home.
pub(super) struct Invitation {
    pub(super) name: Name,
    /// The line of its public key.
    pub(super) public_key: Option<String>,
    /// The NATS cluster over which it dials.
    pub(super) nats: NatsArgs,
    pub(super) allow_weak_sandbox: bool,
}

/// Adds a host that dials home, and prints what lets it in.
pub(super) fn run(context: &Context, invitation: Invitation) -> CommandResult {
    let Invitation {
        name,
        public_key: given,
        nats,
        allow_weak_sandbox,
    } = invitation;
    can_be_host(&name).map_err(|why| usage(why, "take another name"))?;
    let table = context.team_file()?.hosts.get(&name);
    if table.is_some_and(HostTable::names_place) {
        let why = format!("team.toml says where ssh finds {name}, so home dials it");
        return Err(usage(
            why,
            "remove `ssh` from its table, or take another name",
        ));
    }
    let before = recorded(context, &name)?;
    let from_file = of_file(context, &name, before.as_ref())?;
    ensure_daemon(context, false, |_| Ok(()))?;
    let known = before.as_ref().map(|host| &host.way);
    let known_link = match known {
        Some(HostWay::Nats(link)) if given.is_none() => Some(link.as_ref()),
        _ => None,
    };
    if nats.nats.is_some() || known_link.is_some() {
        let link = invite_nats::link(&name, nats, known_link)?;
        let host = Host {
            allow_weak_sandbox: allow_weak_sandbox
                || before.as_ref().is_some_and(|host| host.allow_weak_sandbox),
            way: HostWay::Nats(Box::new(link.clone())),
            terms: from_file
                .or(before)
                .map(|host| host.terms)
                .unwrap_or_default(),
            name,
        };
        return invite_nats::invite(context, host, &link);
    }
    let file = key_file(context, &name)?;
    let key = match (given.as_deref(), known) {
        (Some(line), _) => HostKey {
            public: public_key(line)
                .map_err(|why| usage(why, "take the line of a file like ~/.ssh/id_ed25519.pub"))?,
            file: None,
        },
        // Its key is there: what to do with it is printed once more.
        (None, Some(HostWay::Invited(known))) => HostKey {
            public: known.clone(),
            file: Some(file.clone()).filter(|file| is_of(file, known)),
        },
        (None, _) => make_key(&name, &file)?,
    };
    let is_known = known == Some(&HostWay::Invited(key.public.clone()));
    let was_weak = before.as_ref().is_some_and(|host| host.allow_weak_sandbox);
    let terms = from_file.or(before).map(|host| host.terms);
    let host = Host {
        name: name.clone(),
        way: HostWay::Invited(key.public.clone()),
        allow_weak_sandbox: allow_weak_sandbox || (is_known && was_weak),
        terms: terms.unwrap_or_default(),
    };
    let way = host.way.clone();
    if let Err(error) = ask(context, Command::AddHost(host)) {
        let is_recorded = recorded(context, &name)?.is_some_and(|host| host.way == way);
        if !is_recorded && !is_known && given.is_none() {
            // It lets no machine in.
            remove_key(&file)?;
        }
        return Err(error);
    }
    show(context, &name, &key)
}

fn usage(why: String, hint: &str) -> CommandError {
    CommandError::new(ExitCode::Usage, why).hint(hint)
}

/// Returns where the private key of a host is made: in `~/.ssh`, where no teammate can read it.
fn key_file(context: &Context, name: &Name) -> Result<PathBuf, CommandError> {
    let home = login_dir(|variable| std::env::var_os(variable))
        .map_err(|error| CommandError::refused("cannot find your home directory", &error))?;
    let team = context.dir()?;
    let workspace = team.workspace();
    let folder_name = workspace.file_name().unwrap_or_default();
    let of_team: String = folder_name
        .to_string_lossy()
        .chars()
        .filter(|it| it.is_ascii_alphanumeric() || "-_".contains(*it))
        .collect();
    // Two teams can be in folders of one name.
    let id = &key_id(&team.root().to_string_lossy())[..6];
    let name = format!("teamd-{of_team}-{id}-{name}");
    Ok(home.join(".ssh").join(name))
}

fn public_file(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".pub");
    PathBuf::from(name)
}

/// Tells whether a private key that is here is the one of this public key.
fn is_of(file: &Path, public: &str) -> bool {
    let line = std::fs::read_to_string(public_file(file));
    let found = line.ok().and_then(|line| public_key(&line).ok());
    file.exists() && found.as_deref() == Some(public)
}

fn remove_key(file: &Path) -> Result<(), CommandError> {
    for path in [file, &public_file(file)] {
        std::fs::remove_file(path).map_err(|error| {
            CommandError::refused(&format!("cannot remove {}", path.display()), &error)
        })?;
    }
    Ok(())
}

fn make_key(name: &Name, file: &Path) -> Result<HostKey, CommandError> {
    if file.symlink_metadata().is_ok() {
        let message = format!("{} is there already", file.display());
        return Err(CommandError::new(ExitCode::Rejected, message)
            .hint("it is of an earlier invitation: remove it, then invite again"));
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    let made = DirBuilder::new().mode(0o700).recursive(true).create(folder);
    made.map_err(|error| CommandError::refused("cannot make ~/.ssh", &error))?;
    let made = Process::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C"])
        .arg(format!("teamd host {name}"))
        .arg("-f")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| {
            let message = format!("cannot run ssh-keygen: {error}");
            CommandError::new(ExitCode::Failed, message)
                .hint("install the ssh client of OpenSSH, or let in a key: `--public-key`")
        })?;
    if !made.status.success() {
        let said = String::from_utf8_lossy(&made.stderr);
        let message = format!("ssh-keygen failed: {}", escape::line(said.trim()));
        return Err(CommandError::new(ExitCode::Failed, message)
            .hint("make a key on the other machine, and let it in: `--public-key`"));
    }
    let line = std::fs::read_to_string(public_file(file))
        .map_err(|error| CommandError::refused("cannot read the key", &error))?;
    let public = public_key(&line).map_err(|why| CommandError::new(ExitCode::Failed, why))?;
    Ok(HostKey {
        public,
        file: Some(file.to_owned()),
    })
}

/// Prints the steps that a person takes.
fn show(context: &Context, name: &Name, key: &HostKey) -> CommandResult {
    let dir = context.dir()?;
    let teamd =
        programs::teamd().map_err(|error| CommandError::refused("cannot find teamd", &error))?;
    let line = authorized(&teamd, dir.root(), name, &key.public)?;
    let own_name = key.file.as_deref().and_then(Path::file_name);
    let own_name = own_name.map_or("KEY".into(), |it| it.to_string_lossy());
    let dial = format!(
        "teamd host --dial {} --key ~/.ssh/{own_name}",
        place_of_home()
    );
    let value = json!({
        "host": name,
        "authorized_keys": line,
        "key": key.file,
        "dial": dial,
    });
    let carry = match &key.file {
        Some(file) => {
            let file = file.display();
            format!("Take the key to ~/.ssh on {name}, and remove it here: {file}")
        }
        None => format!("The private key, KEY, is in ~/.ssh on {name}."),
    };
    let text = format!(
        "{name} is invited: it dials home.\n\n\
         1. Here, add this line to ~/.ssh/authorized_keys. The key can open this link,\n   \
         and do nothing else.\n\n\
         {line}\n\n\
         2. {carry}\n\
         3. On {name}, with teamd {version}, for as long as its teammates are to be reached\n   \
         (name this machine as {name} finds it):\n\n\
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
fn authorized(teamd: &Path, dir: &Path, name: &Name, key: &str) -> Result<String, CommandError> {
    let word = |path: &Path| {
        let text = path.to_str().filter(|it| !it.contains(char::is_control));
        text.map(quoted).ok_or_else(|| {
            let message = format!("{} cannot stand in a line of a file", path.display());
            CommandError::new(ExitCode::Failed, message).hint("rename the directory")
        })
    };
    let (teamd, dir) = (word(teamd)?, word(dir)?);
    let id = key_id(key);
    let command = format!("{teamd} link {name} --key {id} --team-dir {dir}");
    // sshd reads `\"` alone as an escape.
    let command = command.replace('"', "\\\"");
    Ok(format!(
        "restrict,command=\"{command}\" {key} {}",
        comment(name)
    ))
}

/// Notes what lets a host in that was removed.
pub(super) fn note_what_is_left(context: &Context, host: &Host) {
    let note = match &host.way {
        HostWay::Ssh(_) => return,
        HostWay::Invited(_) => format!(
            "its key opens no link any more: its line in ~/.ssh/authorized_keys ends in {}",
            comment(&host.name)
        ),
        HostWay::Nats(link) => format!(
            "home does not listen for it any more: its subjects on the cluster are {}.>",
            link.subject
        ),
    };
    context.out.note(note);
}

/// Returns the comment of the line of a host in `authorized_keys`.
fn comment(name: &Name) -> String {
    format!("teamd-host-{name}")
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
        let id = key_id("ssh-ed25519 AAAA");
        assert_eq!(
            line.unwrap(),
            format!(
                r#"restrict,command="'/opt/my tools/teamd' link box --key {id} --team-dir '/home/me/a \"b\"/.team'" ssh-ed25519 AAAA teamd-host-box"#
            )
        );
        let two_lines = Path::new("/home/x\nssh-ed25519 BBBB/.team");
        let name = Name::new("box").unwrap();
        assert!(authorized(two_lines, two_lines, &name, "ssh-ed25519 AAAA").is_err());
    }
}
