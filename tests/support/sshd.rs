//! A real `sshd` on loopback, with keys and a configuration of its own: the other machine of a test.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::cgroup::note;
use super::process::is_root;
use super::{Team, poll_until, signal};

/// The name by which it is reached.
pub(crate) const BOX: &str = "box";

/// The server. It ends with the test.
pub(crate) struct Sshd {
    server: Child,
    folder: tempfile::TempDir,
}

/// Makes a program of a text. Another process writes it: one that another test starts just then could
/// inherit what is open, and then it could not be run.
pub(crate) fn make_program(path: &Path, text: &str) {
    let mut child = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

impl Sshd {
    /// Starts the machine on which a team lives. None, and a note, where there is no `sshd`.
    pub(crate) fn of(there: &Team) -> Option<Self> {
        let Some([sshd, ssh, keygen]) = programs() else {
            note("skipped over ssh: there is no sshd (apt-get install openssh-server)");
            return None;
        };
        let Some(user) = user() else {
            note("skipped over ssh: the user that runs the tests cannot log in");
            return None;
        };
        // Where a distribution starts the server itself, it has made this by now.
        if is_root() && std::fs::create_dir_all("/run/sshd").is_err() {
            note("skipped over ssh: sshd needs /run/sshd, which cannot be made");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for key in ["host", "key"] {
            let made = Command::new(&keygen)
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(at(key))
                .status();
            assert!(made.unwrap().success());
        }
        // Free until another program takes it: then no test can log in, and says so.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let here = folder.path().display();
        make_program(
            &at("sshd_config"),
            &format!(
                "ListenAddress 127.0.0.1:{port}\nHostKey {here}/host\nAuthorizedKeysFile {here}/key.pub\nPidFile none\n\
                 StrictModes no\nUsePAM no\nPermitRootLogin yes\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nMaxStartups 100\nSetEnv {}\n",
                environment(there)
            ),
        );
        let host_key = std::fs::read_to_string(at("host.pub")).unwrap();
        make_program(&at("known_hosts"), &format!("{BOX} {host_key}"));
        make_program(
            &at("ssh_config"),
            &format!(
                "Host {BOX}\nHostName 127.0.0.1\nHostKeyAlias {BOX}\nPort {port}\nUser {user}\nIdentityFile {here}/key\n\
                 IdentitiesOnly yes\nUserKnownHostsFile {here}/known_hosts\n\
                 RequestTTY force\nRemoteCommand false\nLocalForward 127.0.0.1:{port} 127.0.0.1:1\n"
            ),
        );
        std::fs::create_dir(at("bin")).unwrap();
        let ssh = ssh.display();
        make_program(
            &at("bin/ssh"),
            &format!("#!/bin/sh\nexec {ssh} -F {here}/ssh_config \"$@\"\n"),
        );
        let server = Command::new(sshd)
            .args(["-D", "-E"])
            .arg(at("log"))
            .arg("-f")
            .arg(at("sshd_config"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let started = Self { server, folder };
        let answers = poll_until(&mut || TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert!(answers, "sshd does not start: {}", started.log());
        Some(started)
    }

    /// Returns another team, on the machine from which this one is reached.
    pub(crate) fn reached_from(&self, here: Team) -> Team {
        let before = std::env::var("PATH").unwrap();
        let bin = self.folder.path().join("bin");
        here.with("PATH", &format!("{}:{before}", bin.display()))
    }

    /// Whether it gives a terminal. Says so if not: that of an ordinary user can where the group of a
    /// terminal is right from the beginning (`gid=5` of devpts).
    pub(crate) fn has_terminals(&self) -> bool {
        let ssh = self.folder.path().join("bin/ssh");
        let mut login = Command::new(ssh);
        login.args([
            "-tt",
            "-o",
            "RemoteCommand=none",
            "-o",
            "ClearAllForwardings=yes",
        ]);
        let tried = login
            .args(["--", BOX, "true"])
            .stdin(Stdio::null())
            .output();
        let is_given = tried.unwrap().status.success();
        if !is_given {
            note("skipped over ssh at a terminal: the sshd of this user can give none here");
        }
        is_given
    }

    /// Lets in another key, as a line of `authorized_keys` says.
    pub(crate) fn authorize(&self, line: &str) {
        let keys = self.folder.path().join("key.pub");
        let before = std::fs::read_to_string(&keys).unwrap();
        make_program(&keys, &format!("{before}{line}\n"));
    }

    /// Lets later commands share a connection, as many people have it.
    pub(crate) fn share_connections(&self) {
        let config = self.folder.path().join("ssh_config");
        let before = std::fs::read_to_string(&config).unwrap();
        let socket = self.folder.path().join("c").display().to_string();
        let shared = format!("ControlMaster auto\nControlPersist 600\nControlPath {socket}\n");
        make_program(&config, &(before + &shared));
    }

    /// Ends the connections, and no later one comes about.
    pub(crate) fn disconnect(&mut self) {
        let own = i32::try_from(self.server.id()).unwrap();
        // First the one that answers, then those that serve a connection.
        let all = std::iter::once(own).chain(super::process::descendants(own));
        for pid in all.filter(|pid| super::process::command_line(*pid).starts_with("sshd")) {
            signal(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.disconnect();
        // It is reaped, if it was not.
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

/// Returns the name of the user of the test, if that has an account with a shell.
fn user() -> Option<String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid());
    let user = user.unwrap()?;
    let shell = user.shell.file_name()?.to_str()?;
    (!["nologin", "false"].contains(&shell)).then_some(user.name)
}

/// Returns `sshd`, which runs by its whole path alone, `ssh` and `ssh-keygen`.
fn programs() -> Option<[PathBuf; 3]> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .collect();
    let find = |name: &str| {
        let mut paths = folders.iter().map(|folder| folder.join(name));
        paths.find(|path| path.is_file())
    };
    Some([find("sshd")?, find("ssh")?, find("ssh-keygen")?])
}

/// Returns the environment in which everything of the team there runs.
fn environment(there: &Team) -> String {
    let command = there.command("true", [""; 0]);
    let programs = Path::new(env!("CARGO_BIN_EXE_teamctl")).parent().unwrap();
    let variables = command.get_envs().filter_map(|(name, value)| {
        let name = name.to_str()?;
        let mut value = value?.to_str()?.to_owned();
        if name == "PATH" {
            value = format!("{}:{value}", programs.display());
        }
        Some(format!("\"{name}={value}\""))
    });
    variables.collect::<Vec<_>>().join(" ")
}
