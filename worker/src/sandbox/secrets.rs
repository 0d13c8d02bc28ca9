//! What nobody but the user reads: keys, and what tools keep of them. Where they are by custom, where variables say they
//! are, and where links of the user lead from there.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use rustix::process::geteuid;
use teamd_shared::environment::Environment;
use teamd_shared::place::follow;

use super::known::open_itself;

/// Below a home directory.
const IN_A_HOME: [&str; 38] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".netrc",
    ".password-store",
    ".git-credentials",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".docker/config.json",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gem/credentials",
    ".gradle/gradle.properties",
    ".m2/settings.xml",
    ".terraform.d/credentials.tfrc.json",
    ".terraformrc",
    ".claude/.credentials.json",
    ".claude.json",
    ".codex/auth.json",
    ".cache/huggingface/token",
    ".config/gcloud",
    ".config/gh",
    ".config/github-copilot",
    ".config/glab-cli",
    ".config/hub",
    ".config/git/credentials",
    ".config/op",
    ".config/rclone",
    ".config/containers/auth.json",
    ".config/pip",
    ".local/share/keyrings",
    ".composer/auth.json",
];

/// Where a variable says, and what it is there: nothing, or a name in that directory.
const BY_VARIABLE: [(&str, &str); 24] = [
    ("AWS_CONFIG_FILE", ""),
    ("AWS_SHARED_CREDENTIALS_FILE", ""),
    ("AZURE_CONFIG_DIR", ""),
    ("CARGO_HOME", "credentials"),
    ("CARGO_HOME", "credentials.toml"),
    ("CLOUDSDK_CONFIG", ""),
    ("DOCKER_CONFIG", "config.json"),
    ("GH_CONFIG_DIR", ""),
    ("GNUPGHOME", ""),
    ("GOOGLE_APPLICATION_CREDENTIALS", ""),
    ("HF_HOME", "token"),
    ("KUBECONFIG", ""),
    ("NETRC", ""),
    ("NPM_CONFIG_USERCONFIG", ""),
    ("npm_config_userconfig", ""),
    ("PASSWORD_STORE_DIR", ""),
    ("PGPASSFILE", ""),
    ("PIP_CONFIG_FILE", ""),
    ("REGISTRY_AUTH_FILE", ""),
    ("TF_CLI_CONFIG_FILE", ""),
    ("XDG_CONFIG_HOME", "gh"),
    ("XDG_CONFIG_HOME", "gcloud"),
    ("XDG_CONFIG_HOME", "git/credentials"),
    ("XDG_CONFIG_HOME", "rclone"),
];

/// Anywhere: as the superuser without capabilities, a command still owns these.
const OF_THE_MACHINE: [&str; 6] = [
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/ssh/ssh_host_ecdsa_key",
    "/etc/ssh/ssh_host_ed25519_key",
    "/etc/ssh/ssh_host_rsa_key",
    "/run/secrets",
];

/// Where no secret lies, whatever a variable says: `KUBECONFIG=/dev/null` means none.
const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// What commands need, or may change. All paths are absolute and without links.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needed<'a> {
    /// The home directories of the user.
    pub(crate) homes: &'a [PathBuf],
    /// The directory that commands work in.
    pub(crate) workspace: &'a Path,
    /// What else they may write.
    pub(crate) writable: &'a [PathBuf],
    /// Where commands of the team may or once could write: who made a link there is not known.
    pub(crate) territory: &'a [PathBuf],
}

/// Returns where the secrets of a user are by custom and by variables, whether they are there or not.
pub(crate) fn known(needed: &Needed<'_>, environment: &Environment) -> Vec<PathBuf> {
    let in_homes = needed.homes.iter().flat_map(|home| IN_A_HOME.iter().map(|secret| home.join(secret)));
    let named = BY_VARIABLE.iter().flat_map(|(variable, name)| {
        // Also of a variable that no command gets: its name can end as those of keys do.
        let paths: Vec<_> = std::env::split_paths(&environment.path(variable).unwrap_or_default())
            .map(|path| if name.is_empty() { path } else { path.join(name) })
            .collect();
        paths
    });
    // What lies in the workspace by the user's own word is for those who work there.
    let of_the_work =
        |path: &Path| path.starts_with(needed.workspace) && !needed.is_above_a_home(needed.workspace);
    let named = named.filter(|path| path.is_absolute() && !of_the_work(path));
    let mut all: Vec<_> = in_homes.chain(named).chain(OF_THE_MACHINE.iter().map(PathBuf::from)).collect();
    let of_the_kernel = |path: &Path| {
        !path.starts_with("/dev/shm") && OF_THE_KERNEL.iter().any(|kernel| path.starts_with(kernel))
    };
    all.retain(|path| !needed.is_above(path) && !of_the_kernel(path));
    all.sort();
    all.dedup();
    all
}

/// Returns where links lead from where secrets are known to be.
///
/// # Errors
/// What cannot be looked at. Fits behind "error: ".
pub(crate) fn led_to(known: &[PathBuf], needed: &Needed<'_>) -> Result<Vec<PathBuf>, String> {
    let links = known.iter().filter(|path| matches!(open_itself(path), Err(Errno::LOOP)));
    let led_to: Result<Vec<_>, _> = links.map(|path| needed.led_to(path)).collect();
    Ok(led_to?.into_iter().flatten().collect())
}

/// Returns those that are there. Of what cannot be looked at, the directory that is closed: a command could have closed
/// it, and could open it again. Follows no link: one that is new can be anybody's.
///
/// # Errors
/// What the model is told, if that directory is needed.
pub(crate) fn present(known: &[PathBuf], needed: &Needed<'_>) -> Result<Vec<PathBuf>, String> {
    let mut present = Vec::new();
    for path in known {
        match open_itself(path) {
            Ok((_, stat)) if holds_something(&stat) => present.push(path.clone()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => present.extend(needed.closed_above(path, errno)?),
        }
    }
    present.sort();
    present.dedup();
    Ok(present)
}

/// Tells whether it can keep something: a device does not.
fn holds_something(stat: &Stat) -> bool {
    !matches!(FileType::from_raw_mode(stat.st_mode), FileType::CharacterDevice | FileType::BlockDevice)
}

impl Needed<'_> {
    /// Returns where a link leads, unless a command could have made it and may not write there: it would take from all
    /// teammates what they need.
    fn led_to(&self, path: &Path) -> Result<Option<PathBuf>, String> {
        let mut by_a_command = false;
        let mut last = path.to_owned();
        let real = follow(path, |link| {
            link.clone_into(&mut last);
            by_a_command |=
                self.is_writable(link) || self.territory.iter().any(|above| link.starts_with(above));
            Ok::<_, io::Error>(())
        });
        match real {
            Ok(real) if self.is_above(&real) || by_a_command && !self.is_writable(&real) => Ok(None),
            Ok(real) => match open_itself(&real) {
                // What is not there yet can be mounted later.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => Ok(Some(real)),
                // It was changed just now: another link is none of the user's.
                Err(Errno::LOOP) => Ok(None),
                Err(errno) => self.closed_above(&real, errno),
            },
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
                Some(errno @ Errno::ACCESS) => {
                    let target = last.read_link().unwrap_or_default();
                    self.closed_above(&last.parent().unwrap_or(&last).join(target), errno)
                }
                // A file system that does not answer: it is looked at again before each command.
                _ => {
                    tracing::warn!("cannot see where {} leads, which is secret: {error}", path.display());
                    Ok(None)
                }
            },
        }
    }

    /// Returns the closest directory above that is there; none if it is another user's, which no command opens.
    fn closed_above(&self, path: &Path, errno: Errno) -> Result<Option<PathBuf>, String> {
        let closed = path.ancestors().skip(1).find_map(|above| Some((above, open_itself(above).ok()?.1)));
        match closed {
            Some((_, stat)) if stat.st_uid != geteuid().as_raw() => Ok(None),
            Some((above, _)) if !self.is_above(above) => Ok(Some(above.to_owned())),
            _ => Err(format!(
                "not run: it cannot be seen whether {} is there, which is secret: {errno}",
                path.display()
            )),
        }
    }

    pub(crate) fn is_writable(&self, path: &Path) -> bool {
        path.starts_with(self.workspace) || self.writable.iter().any(|above| path.starts_with(above))
    }

    /// Tells whether something that is needed lies there, or below.
    fn is_above(&self, path: &Path) -> bool {
        self.is_above_a_home(path) || self.workspace.starts_with(path)
    }

    fn is_above_a_home(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| home.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn near(all: Vec<PathBuf>, root: &Path) -> Vec<String> {
        let near = all.iter().filter_map(|path| Some(path.strip_prefix(root).ok()?.to_str()?.to_owned()));
        near.collect()
    }

    fn needed<'a>(homes: &'a [PathBuf], workspace: &'a Path) -> Needed<'a> {
        Needed { homes, workspace, writable: &[], territory: &[] }
    }

    fn found(root: &Path, workspace: &str) -> Vec<String> {
        let (homes, workspace) = ([root.join("home")], root.join(workspace));
        let needed = needed(&homes, &workspace);
        let mut known = known(&needed, &Environment::default());
        known.extend(led_to(&known, &needed).unwrap());
        near(present(&known, &needed).unwrap(), root)
    }

    fn scratch() -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in ["home/dot/config/gh", "home/dot/keys", "work", "system"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        (scratch, root)
    }

    #[test]
    fn a_link_of_the_user_is_followed_also_into_the_workspace() {
        let (_scratch, root) = scratch();
        symlink("dot/config", root.join("home/.config")).unwrap();
        symlink("dot/keys", root.join("home/.ssh")).unwrap();
        symlink(root.join("system"), root.join("home/.aws")).unwrap();
        let expected = ["home/dot/config/gh", "home/dot/keys", "system"];
        assert_eq!(found(&root, "home/dot"), expected);
        // Where commands write the home directory, they could have made the link out of it.
        assert_eq!(found(&root, "home"), expected[..2]);
        // Nor does the next link on the way lead out, if it lies where they write.
        symlink(root.join("system"), root.join("home/dot/config/rclone")).unwrap();
        assert_eq!(found(&root, "home/dot"), expected);
        assert_eq!(found(&root, "work").len(), 3);
    }

    #[test]
    fn a_link_where_another_teammate_writes_leads_nowhere() {
        let (_scratch, root) = scratch();
        fs::create_dir(root.join("home/.cargo")).unwrap();
        symlink(root.join("system"), root.join("home/.cargo/credentials")).unwrap();
        let (homes, workspace, territory) =
            ([root.join("home")], root.join("work"), [root.join("home/.cargo")]);
        let alone = needed(&homes, &workspace);
        let known = known(&alone, &Environment::default());
        assert_eq!(led_to(&known, &alone), Ok(vec![root.join("system")]));
        assert_eq!(led_to(&known, &Needed { territory: &territory, ..alone }), Ok(Vec::new()));
        // A new link is not followed at all.
        assert_eq!(present(&known, &alone).unwrap().iter().filter(|path| path.starts_with(&root)).count(), 0);
    }

    #[test]
    fn what_variables_call_no_file_is_none() {
        let mut environment = Environment::default();
        environment.set("KUBECONFIG", "/dev/null");
        environment.secrets.push((b"GOOGLE_APPLICATION_CREDENTIALS".to_vec(), b"/k/key.json".to_vec()));
        let known = known(&needed(&[], Path::new("/work")), &environment);
        assert!(!known.contains(&"/dev/null".into()) && known.contains(&"/k/key.json".into()));
    }

    #[test]
    fn a_directory_that_a_command_has_closed_is_hidden_as_a_whole() {
        let (_scratch, root) = scratch();
        let homes = [root.join("home")];
        let needed = needed(&homes, &root);
        let closed = |path: &str| needed.closed_above(&root.join(path), Errno::ACCESS);
        assert_eq!(closed("home/dot/missing/x"), Ok(Some(root.join("home/dot"))));
        assert!(closed("home/.ssh").unwrap_err().contains("which is secret"));
    }

    #[test]
    fn a_link_to_what_is_needed_hides_nothing_of_it() {
        let (_scratch, root) = scratch();
        symlink(".", root.join("home/.ssh")).unwrap();
        symlink("/", root.join("home/.aws")).unwrap();
        assert_eq!(found(&root, "work"), [""; 0]);
    }

    #[test]
    fn variables_say_where_secrets_are_but_not_in_the_workspace() {
        let (_scratch, root) = scratch();
        let at = |path: &str| root.join(path).into_os_string().into_string().unwrap();
        let kube = [at("a"), at("b")].join(":");
        let mut environment = Environment::default();
        for (name, value) in [
            ("CARGO_HOME", at("cargo").as_str()),
            ("KUBECONFIG", &kube),
            ("NETRC", &at("work/netrc")),
            ("PGPASSFILE", "relative"),
        ] {
            environment.set(name, value);
        }
        let homes = [root.join("home")];
        let known = near(known(&needed(&homes, &root.join("work")), &environment), &root);
        let known: Vec<_> = known.iter().filter(|path| !path.starts_with("home/")).collect();
        assert_eq!(known, ["a", "b", "cargo/credentials", "cargo/credentials.toml"]);
    }
}
