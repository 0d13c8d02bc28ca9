//! Secrets, which only the user reads: keys, and what tools keep of them. They lie where they do by
//! custom, where variables say, and where links of the user lead from there.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{
    Access, AtFlags, CWD, Dir, FileType, Mode, OFlags, RawDir, Stat, accessat, openat, statat,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use teamd_shared::environment::Environment;
use teamd_shared::place::{self, follow};

use super::CommandPlaces;
use super::home::Home;
use super::mount_table::{aliases, join, mounts};
use super::place::{is_plain, open_itself};
use super::places::UsersPath;
use super::secret_paths::{FoundSecrets, Node, Secrets, SeenNow, nodes_of};

impl Secrets {
    /// Prepares to look for the secrets of a user, and for what is hidden by name.
    pub(super) fn of(places: CommandPlaces, environment: Environment, hidden: &[String]) -> Self {
        let hidden: Vec<_> = hidden.iter().map(PathBuf::from).collect();
        Self::when_needed(move || {
            let mut paths = hidden.clone();
            let mut customary = known(&places, &environment);
            // The user has named it, as what is hidden by name.
            customary.retain(|path| {
                !places
                    .seen
                    .visible
                    .iter()
                    .any(|visible| path.starts_with(visible))
            });
            paths.extend(customary);
            let FirstLook {
                mut nodes,
                links,
                at,
            } = FirstLook::at(&paths, &places.homes);
            // A link that leads there now can be taken away by a command.
            let mut more = led_to(&links, &places)?;
            let mounts =
                mounts().map_err(|error| format!("cannot look up what is mounted: {error}"))?;
            // What is hidden by one path could be read by another.
            let elsewhere: Vec<_> = paths
                .iter()
                .chain(&more)
                .flat_map(|path| aliases(path, &mounts))
                .collect();
            more.extend(elsewhere);
            nodes.extend(nodes_of(links.iter().chain(&more)));
            paths.extend(more);
            Ok((FoundSecrets { paths, nodes }, at))
        })
    }
}

/// What is at the paths at which a secret may be.
struct FirstLook {
    /// The files that are there.
    nodes: Vec<Node>,
    /// The paths that are links, or lie behind one.
    links: Vec<PathBuf>,
    /// What is at each path.
    at: SeenNow,
}

impl FirstLook {
    /// Looks at each path. There are hundreds, of which few are there: folders of the homes are
    /// listed, and what they do not hold is not looked at.
    fn at(paths: &[PathBuf], homes: &[PathBuf]) -> Self {
        let mut crowded = Vec::new();
        for home in homes {
            crowded.extend(
                CROWDED
                    .iter()
                    .filter_map(|name| Listing::of(home.join(name))),
            );
        }
        let mut nodes = Vec::new();
        let mut links = Vec::new();
        let mut at = SeenNow::new();
        for path in paths {
            let is_lacking = crowded.iter().any(|listing| listing.lacks(path));
            let opened = if is_lacking {
                Err(Errno::NOENT)
            } else {
                open_itself(path)
            };
            match &opened {
                Ok((_, stat)) => nodes.push((stat.st_dev, stat.st_ino)),
                Err(Errno::LOOP) => links.push(path.clone()),
                // Nothing is there, or nothing that this user can reach.
                Err(_) => {}
            }
            at.insert(path.clone(), opened.map(|(_, stat)| stat));
        }
        Self { nodes, links, at }
    }
}

/// The folders of a home in which many secrets can lie: the home, and two more.
const CROWDED: [&str; 3] = ["", ".config", ".local/share"];

/// The names in a folder.
struct Listing {
    folder: PathBuf,
    names: HashSet<OsString>,
}

impl Listing {
    /// Lists a folder; none if that cannot be, or a link is on the way to it.
    fn of(folder: PathBuf) -> Option<Self> {
        let opened = place::open_itself(&folder, OFlags::DIRECTORY).ok()?;
        let mut names = HashSet::new();
        for entry in Dir::new(opened).ok()? {
            let name = entry.ok()?.file_name().to_bytes().to_vec();
            names.insert(OsString::from_vec(name));
        }
        // `home.join("")` ends with a slash.
        let folder = folder.components().collect();
        Some(Self { folder, names })
    }

    /// Tells whether a path lies in the folder, and is not there.
    fn lacks(&self, path: &Path) -> bool {
        let Ok(below) = path.strip_prefix(&self.folder) else {
            return false;
        };
        match below.components().next() {
            Some(Component::Normal(name)) => !self.names.contains(name),
            _ => false,
        }
    }
}

/// Below a home directory, separated by blanks. A directory in which caches or programs lie as well
/// is not among them, nor is a file without which its tool fails.
const IN_A_HOME: [&str; 10] = [
    // Keys, and the tools that keep them.
    ".ssh .gnupg .pki .password-store .config/op .config/sops/age .config/Bitwarden .config/1Password .config/keepassxc \
     .config/age .config/rbw .config/borg/keys .restic-password .step/secrets .tsh .local/share/keyrings .local/share/kwalletd .vault-token .config/solana .bitcoin/wallet.dat \
     .bitcoin/wallets .electrum/wallets .ethereum/keystore",
    // Logins by name and host.
    ".smbcredentials .pg_service.conf .netrc .authinfo .authinfo.gpg .msmtprc .config/msmtp .mbsyncrc .fetchmailrc .pgpass .my.cnf .mylogin.cnf \
     .erlang.cookie .subversion/auth .config/filezilla .local/state/syncthing/key.pem .local/share/jupyter/runtime",
    // Repositories, and where they are hosted.
    ".git-credentials .config/git/credentials .gitcookies .config/gh .config/glab-cli .config/hub .config/tea",
    // Registries of packages.
    ".npmrc .yarnrc.yml .pypirc .config/pip .config/pypoetry/auth.toml .local/share/uv/credentials .cargo/credentials \
     .cargo/credentials.toml .gem/credentials .local/share/gem/credentials .bundle/config .gradle/gradle.properties \
     .m2/settings.xml .stack/upload .luarocks/upload_config.lua .coursier/credentials.properties \
    .config/coursier/credentials.properties .ghc/ghci_history .julia/logs .m2/settings-security.xml .sbt/.credentials .sbt/credentials .sbt/1.0/credentials.sbt .lein/profiles.clj .lein/credentials.clj.gpg \
     .pub-cache/credentials.json .nuget/NuGet .dotnet/corefx .conan/.conan.db .conan2/credentials.json .julia/servers .platformio/appstate.json \
     .foundry/keystores .android/adbkey .android/debug.keystore .ivy2/.credentials .composer/auth.json .config/composer/auth.json \
     .config/cachix .huggingface/token .cache/huggingface/token .cache/huggingface/stored_tokens .kaggle",
    // Containers and clusters.
    ".docker/config.json .docker/contexts .config/containers/auth.json .kube .config/argocd .minikube/ca.key \
     .minikube/profiles .terraform.d/credentials.tfrc.json .terraformrc .pulumi/credentials.json",
    // Clouds and services.
    ".aws .azure .oci .boto .s3cfg .config/gcloud .config/doctl .config/hcloud .config/heroku .config/stripe \
     .config/scw .aliyun .supabase .railway .chef .config/netlify .config/.wrangler .wrangler/config .config/rclone .config/ngrok .config/circleci .circleci/cli.yml \
     .config/nats .local/share/nats .fly/config.yml .vercel .local/share/com.vercel.cli .cloudflared .databrickscfg .sentryclirc .snowsql/config .snowflake",
    // Agents.
    ".claude/.credentials.json .claude.json .claude/.claude.json .codex/auth.json .gemini/oauth_creds.json .qwen .cursor \
     .continue .config/goose .config/github-copilot .local/share/opencode/auth.json",
    // Browsers, with what they are logged in to.
    ".mozilla .config/google-chrome .config/chromium .config/BraveSoftware .config/microsoft-edge .config/vivaldi \
     .config/opera .librewolf .thunderbird snap/firefox snap/chromium .var/app/org.mozilla.firefox",
    // Conversations of people.
    ".weechat/sec.conf .config/weechat/sec.conf .config/Slack .config/discord .config/Signal .config/Element .local/share/TelegramDesktop",
    // What was typed.
    ".bash_history .zsh_history .histfile .local/share/fish/fish_history .python_history .node_repl_history .psql_history \
     .mysql_history .rediscli_history .sqlite_history",
];

/// Which variable says that another directory takes the place of one in the home.
const INSTEAD: &str = "XDG_CONFIG_HOME=.config XDG_DATA_HOME=.local/share XDG_CACHE_HOME=.cache AZURE_CONFIG_DIR=.azure \
    CARGO_HOME=.cargo CLAUDE_CONFIG_DIR=.claude CLOUDSDK_CONFIG=.config/gcloud CODEX_HOME=.codex \
    COMPOSER_HOME=.config/composer DOCKER_CONFIG=.docker GH_CONFIG_DIR=.config/gh GNUPGHOME=.gnupg \
    GRADLE_USER_HOME=.gradle HF_HOME=.cache/huggingface KAGGLE_CONFIG_DIR=.kaggle MINIKUBE_HOME=.minikube \
    PASSWORD_STORE_DIR=.password-store PULUMI_HOME=.pulumi";

/// Variables whose value is where a secret lies, or several of them with colons between.
const AT: &str = "AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE BOTO_CONFIG GOOGLE_APPLICATION_CREDENTIALS HF_TOKEN_PATH HISTFILE \
    KUBECONFIG NETRC NPM_CONFIG_USERCONFIG npm_config_userconfig PGPASSFILE PIP_CONFIG_FILE REGISTRY_AUTH_FILE \
    SOPS_AGE_KEY_FILE TF_CLI_CONFIG_FILE";

/// Where a container's tools keep logins, and where the slots are, below the directory of the session.
/// A command that could open the slots could lock all of them.
const IN_A_SESSION: [&str; 2] = ["containers/auth.json", "teamd"];

/// Anywhere on the machine, if this user can read them: a command of root owns these even without
/// capabilities.
const OF_THE_MACHINE: &str = "/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/security/opasswd /etc/sudoers /etc/sudoers.d \
    /etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key /etc/ssh/ssh_host_rsa_key /etc/ssl/private /etc/krb5.keytab \
    /etc/wireguard /etc/NetworkManager/system-connections /run/secrets /run/credentials /var/backups \
    /var/cache/debconf/passwords.dat /var/lib/cloud /var/lib/kubelet /var/lib/rancher /var/lib/sss /var/lib/samba/private \
    /var/spool/cron";

/// What else root keeps that others cannot read: all of that is hidden from its commands. A process
/// looks once, for all commands that it confines.
static OF_ROOT: LazyLock<Vec<PathBuf>> =
    LazyLock::new(|| kept_from_others("/etc".as_ref(), &CommandPlaces::default()));

/// Where no secret lies, whatever a variable says: `KUBECONFIG=/dev/null` means none.
const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

/// Returns where the secrets of a user are by custom and by variables, whether they are there or
/// not; for root also what others cannot read of the settings of the machine.
fn known(places: &CommandPlaces, environment: &Environment) -> Vec<PathBuf> {
    let in_a_home: Vec<&str> = IN_A_HOME
        .iter()
        .flat_map(|group| group.split_whitespace())
        .collect();
    // Also of a variable that no command gets: its name can say that it holds a key.
    let mut named = Vec::new();
    for (variable, folder) in INSTEAD
        .split_whitespace()
        .filter_map(|it| it.split_once('='))
    {
        let Some(instead) = environment.path(variable) else {
            continue;
        };
        let below = in_a_home
            .iter()
            .filter_map(|secret| Path::new(secret).strip_prefix(folder).ok());
        named.extend(below.map(|rest| join(&instead, rest)));
    }
    for paths in AT
        .split_whitespace()
        .filter_map(|variable| environment.path(variable))
    {
        named.extend(std::env::split_paths(&paths));
    }
    let session = PathBuf::from(format!("/run/user/{}", geteuid().as_raw()));
    let sessions = environment
        .path("XDG_RUNTIME_DIR")
        .into_iter()
        .chain([session]);
    named.extend(sessions.flat_map(|folder| IN_A_SESSION.map(|below| folder.join(below))));
    if geteuid().is_root() {
        named.extend(OF_ROOT.iter().flat_map(|path| {
            if places.is_above(path) {
                kept_from_others(path, places)
            } else {
                vec![path.clone()]
            }
        }));
    }
    let workspace = &places.workspace.path;
    if !places.is_above_a_home(workspace) {
        // A variable of the user names it: it is for the teammates that work there.
        named.retain(|path| !path.starts_with(workspace));
    }
    named.retain(|path| path.is_absolute());
    let of_the_machine = OF_THE_MACHINE.split_whitespace().map(PathBuf::from);
    let of_the_machine = of_the_machine.filter(|path| {
        is_accessible(path, Access::READ_OK) || is_accessible(path, Access::EXEC_OK)
    });
    let in_homes = places
        .homes
        .iter()
        .flat_map(|home| in_a_home.iter().map(|secret| home.join(secret)));
    let mut all: Vec<_> = in_homes.chain(named).chain(of_the_machine).collect();
    all.retain(|path| !places.is_above(path) && !is_of_the_kernel(path));
    all.sort();
    all.dedup();
    all
}

/// Tells whether this user may do that with a path, as far as one can see.
fn is_accessible(path: &Path, what: Access) -> bool {
    accessat(CWD, path, what, AtFlags::EACCESS) != Err(Errno::ACCESS)
}

fn is_of_the_kernel(path: &Path) -> bool {
    !path.starts_with("/dev/shm") && OF_THE_KERNEL.iter().any(|kernel| path.starts_with(kernel))
}

/// Returns the files below a directory that others cannot read, and the directories that others
/// cannot enter.
fn kept_from_others(folder: &Path, places: &CommandPlaces) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    let mut open = vec![folder.to_owned()];
    let mut buffer = vec![MaybeUninit::uninit(); LISTED_AT_ONCE];
    while let Some(folder) = open.pop() {
        let entries = modes_in(&folder, &mut buffer).unwrap_or_else(|error| {
            tracing::warn!(
                "cannot see which files of {} others cannot read: {error}",
                folder.display()
            );
            Vec::new()
        });
        for (name, mode) in entries {
            let path = folder.join(name);
            match FileType::from_raw_mode(mode) {
                FileType::Directory if mode & 0o1 != 0 || places.is_above(&path) => open.push(path),
                FileType::Directory => kept.push(path),
                FileType::RegularFile if mode & 0o4 == 0 => kept.push(path),
                // A file that all read, or none at all.
                _ => {}
            }
        }
    }
    kept
}

/// How much of a folder is listed by one call, in bytes: few folders hold more.
const LISTED_AT_ONCE: usize = 32 << 10;

/// Returns what is in a folder but links, with its mode. For root each job does this with all
/// folders of `/etc`, so each takes as few calls as it can.
fn modes_in(
    folder: &Path,
    buffer: &mut [MaybeUninit<u8>],
) -> rustix::io::Result<Vec<(OsString, u32)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    let mut names = Vec::new();
    let mut entries = RawDir::new(&opened, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name();
        // What a link leads to is looked at where it lies. Most entries of `/etc` are links.
        let is_link = entry.file_type() == FileType::Symlink;
        if !is_link && name != c"." && name != c".." {
            names.push(name.to_owned());
        }
    }
    let modes = names.into_iter().filter_map(|name| {
        // What is gone by now keeps nothing.
        let stat = statat(&opened, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((OsString::from_vec(name.into_bytes()), stat.st_mode))
    });
    Ok(modes.collect())
}

/// Returns where links lead from where secrets are known to be.
///
/// # Errors
/// What cannot be looked at. Fits behind "error: ".
fn led_to(links: &[PathBuf], places: &CommandPlaces) -> Result<Vec<PathBuf>, String> {
    let led_to: Result<Vec<_>, _> = links.iter().map(|path| places.led_to(path)).collect();
    Ok(led_to?.into_iter().flatten().collect())
}

/// Returns those that are there. For one that cannot be looked at, returns the directory that is
/// closed: a command could have closed it, and could open it again. Follows no link: a command can
/// have made a new one. `seen`: what a look has found that was made for the same command.
///
/// # Errors
/// A text for the model, if that directory is needed.
pub(super) fn present(
    known: &[PathBuf],
    seen: &SeenNow,
    places: &CommandPlaces,
    home: &Home,
) -> Result<Vec<PathBuf>, String> {
    let mut present: Vec<_> = home.hidden.iter().cloned().collect();
    for path in known.iter().filter(|path| !home.settles(path)) {
        let stat = match seen.get(path) {
            Some(stat) => *stat,
            None => open_itself(path).map(|(_, stat)| stat),
        };
        match stat {
            Ok(stat) if holds_something(&stat) => present.push(path.clone()),
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(errno) => present.extend(places.closed_above(path, errno)?),
        }
    }
    present.sort();
    // What lies in something that is hidden is not there, unless it is seen.
    present.dedup_by(|below, above| {
        below.starts_with(above) && !home.seen.iter().any(|seen| below.starts_with(seen))
    });
    Ok(present)
}

/// Tells whether it can keep something: a device does not.
fn holds_something(stat: &Stat) -> bool {
    !matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::CharacterDevice | FileType::BlockDevice
    )
}

impl CommandPlaces {
    /// Returns where a link leads. None if a command could have made it and may not write there: to
    /// hide that would take from all teammates what they need.
    fn led_to(&self, path: &Path) -> Result<Option<PathBuf>, String> {
        let mut by_a_command = false;
        let mut last = path.to_owned();
        let real = follow(path, |link| {
            link.clone_into(&mut last);
            by_a_command |= self.is_theirs(link);
            Ok::<_, io::Error>(())
        });
        match real {
            Ok(real) if self.is_above(&real) || by_a_command && !self.is_writable(&real) => {
                Ok(None)
            }
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
                    tracing::warn!(
                        "cannot see where {} leads, which is secret: {error}",
                        path.display()
                    );
                    Ok(None)
                }
            },
        }
    }

    /// Returns the closest directory above that is there; none if it is another user's, which no
    /// command opens.
    fn closed_above(&self, path: &Path, errno: Errno) -> Result<Option<PathBuf>, String> {
        let closed = path
            .ancestors()
            .skip(1)
            .find_map(|above| Some((above, open_itself(above).ok()?.1)));
        match closed {
            Some((_, stat)) if stat.st_uid != geteuid().as_raw() => Ok(None),
            Some((above, _)) if !self.is_above(above) => Ok(Some(above.to_owned())),
            _ => Err(format!(
                "not run: it cannot be seen whether {} is there, which is secret: {errno}",
                path.display()
            )),
        }
    }

    /// Tells whether a command can be allowed to write what lies there.
    pub(super) fn is_writable(&self, path: &Path) -> bool {
        path.starts_with(&self.workspace.path)
            || self
                .writable
                .iter()
                .any(|above| path.starts_with(&above.path))
    }

    /// Tells whether something lies where a command may or once could write.
    pub(super) fn is_theirs(&self, path: &Path) -> bool {
        self.is_writable(path) || self.territory.iter().any(|above| path.starts_with(above))
    }

    /// Returns where a path leads by links of the user alone; none if a link on the way can be a
    /// command's, or cannot be followed. Nothing need be there.
    pub(super) fn users_path(&self, path: &Path) -> Option<UsersPath> {
        // Mostly no link is on the way, and one look shows that.
        if is_plain(path) && matches!(open_itself(path), Ok(_) | Err(Errno::NOENT)) {
            return Some(UsersPath {
                path: path.to_owned(),
                links: Vec::new(),
            });
        }
        let mut links = Vec::new();
        let real = follow(path, |link| {
            if self.is_theirs(link) {
                return Err(io::Error::from(io::ErrorKind::PermissionDenied));
            }
            links.push(link.to_owned());
            Ok(())
        });
        Some(UsersPath {
            path: real.ok()?,
            links,
        })
    }

    /// Tells whether something that is needed lies there, or below.
    fn is_above(&self, path: &Path) -> bool {
        self.is_above_a_home(path) || self.workspace.path.starts_with(path)
    }

    fn is_above_a_home(&self, path: &Path) -> bool {
        self.homes.iter().any(|home| home.starts_with(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn near(all: Vec<PathBuf>, root: &Path) -> Vec<String> {
        let near = all
            .iter()
            .filter_map(|path| Some(path.strip_prefix(root).ok()?.to_str()?.to_owned()));
        near.collect()
    }

    fn places(homes: &[PathBuf], workspace: &Path) -> CommandPlaces {
        let workspace = Place::of_this_call(workspace.to_owned());
        CommandPlaces {
            homes: homes.to_vec(),
            workspace,
            ..CommandPlaces::default()
        }
    }

    fn found(root: &Path, workspace: &str) -> Vec<String> {
        let homes = [root.join("home")];
        let workspace = root.join(workspace);
        let places = places(&homes, &workspace);
        let mut secrets = known(&places, &Environment::default());
        secrets.extend(led_to(&FirstLook::at(&secrets, &homes).links, &places).unwrap());
        near(
            present(&secrets, &SeenNow::new(), &places, &Home::default()).unwrap(),
            root,
        )
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
    fn what_a_listing_does_not_hold_is_not_looked_at_and_all_else_is() {
        let (_scratch, root) = scratch();
        let home = root.join("home");
        fs::create_dir_all(home.join(".config/gh")).unwrap();
        fs::create_dir_all(home.join(".aws")).unwrap();
        symlink("dot/keys", home.join(".ssh")).unwrap();
        symlink("dot", home.join(".local")).unwrap();
        let secrets = [
            ".config/gh",
            ".config/op",
            ".aws",
            ".kube",
            ".ssh",
            ".local/share/x",
        ];
        let paths = secrets.map(|secret| home.join(secret));
        let look = FirstLook::at(&paths, std::slice::from_ref(&home));
        assert_eq!(look.nodes.len(), 2);
        assert_eq!(look.links, [home.join(".ssh"), home.join(".local/share/x")]);
        let listing = Listing::of(home.join("")).unwrap();
        assert!(listing.lacks(&home.join(".kube/x")) && !listing.lacks(&home.join(".ssh/x")));
        assert!(!listing.lacks(&home) && !listing.lacks(&root.join("work")));
        assert!(Listing::of(home.join(".ssh")).is_none(), "a link");
    }

    #[test]
    fn what_a_look_has_seen_serves_one_command_and_the_next_looks_again() {
        let (_scratch, root) = scratch();
        let places = places(&[root.join("home")], &root.join("work"));
        let secrets = Secrets::of(places.clone(), Environment::default(), &[]);
        fs::create_dir(root.join("home/.aws")).unwrap();
        let hidden = |is_first: bool| {
            let (known, seen) = secrets.look().unwrap();
            assert_eq!(seen.is_empty(), !is_first);
            let present = present(known, &seen, &places, &Home::default());
            near(present.unwrap(), &root)
        };
        assert_eq!(hidden(true), ["home/.aws"]);
        fs::create_dir(root.join("home/.ssh")).unwrap();
        assert_eq!(hidden(false), ["home/.aws", "home/.ssh"]);
        fs::remove_dir(root.join("home/.aws")).unwrap();
        assert_eq!(hidden(false), ["home/.ssh"]);
    }

    #[test]
    fn a_link_where_another_teammate_writes_leads_nowhere() {
        let (_scratch, root) = scratch();
        fs::create_dir(root.join("home/.cargo")).unwrap();
        symlink(root.join("system"), root.join("home/.cargo/credentials")).unwrap();
        let homes = [root.join("home")];
        let workspace = root.join("work");
        let territory = vec![root.join("home/.cargo")];
        let alone = places(&homes, &workspace);
        let secrets = known(&alone, &Environment::default());
        let links = FirstLook::at(&secrets, &homes).links;
        assert_eq!(led_to(&links, &alone), Ok(vec![root.join("system")]));
        assert_eq!(
            led_to(
                &links,
                &CommandPlaces {
                    territory,
                    ..alone.clone()
                }
            ),
            Ok(Vec::new())
        );
        // A new link is not followed at all.
        assert_eq!(
            present(&secrets, &SeenNow::new(), &alone, &Home::default())
                .unwrap()
                .iter()
                .filter(|path| path.starts_with(&root))
                .count(),
            0
        );
    }

    #[test]
    fn what_variables_call_no_file_is_none() {
        let mut environment = Environment::default();
        environment.set("KUBECONFIG", "/dev/null");
        environment.secrets.push((
            b"GOOGLE_APPLICATION_CREDENTIALS".to_vec(),
            b"/k/key.json".to_vec(),
        ));
        let secrets = known(&places(&[], Path::new("/work")), &environment);
        assert!(!secrets.contains(&"/dev/null".into()) && secrets.contains(&"/k/key.json".into()));
    }

    #[test]
    fn a_directory_that_a_command_has_closed_is_hidden_as_a_whole() {
        let (_scratch, root) = scratch();
        let homes = [root.join("home")];
        let places = places(&homes, &root);
        let closed = |path: &str| places.closed_above(&root.join(path), Errno::ACCESS);
        assert_eq!(
            closed("home/dot/missing/x"),
            Ok(Some(root.join("home/dot")))
        );
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
    fn what_others_cannot_read_or_enter_is_kept_from_a_command() {
        use std::os::unix::fs::PermissionsExt;
        let (_scratch, root) = scratch();
        for (path, mode) in [
            ("open", 0o755),
            ("shut", 0o750),
            ("passed", 0o711),
            ("above", 0o700),
            ("above/work", 0o700),
        ] {
            fs::create_dir_all(root.join(path)).unwrap();
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        for (path, mode) in [
            ("open/key", 0o640),
            ("open/all", 0o644),
            ("shut/all", 0o644),
            ("passed/key", 0o600),
            ("above/key", 0o600),
        ] {
            drop(fs::File::create(root.join(path)).unwrap());
            fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
        }
        symlink("key", root.join("open/link")).unwrap();
        let workspace = root.join("above/work");
        let mut kept = near(kept_from_others(&root, &places(&[], &workspace)), &root);
        kept.sort();
        // The directory above the workspace is needed, so it is looked into.
        assert_eq!(kept, ["above/key", "open/key", "passed/key", "shut"]);
    }

    #[test]
    fn each_place_of_a_list_is_one_path_and_stands_there_once() {
        let homes = IN_A_HOME.iter().flat_map(|group| group.split_whitespace());
        let mut all: Vec<_> = homes.chain(OF_THE_MACHINE.split_whitespace()).collect();
        assert!(
            all.iter()
                .all(|path| !path.ends_with('/') && !path.contains("//") && !path.contains(','))
        );
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        let folders = INSTEAD
            .split_whitespace()
            .map(|it| it.split_once('=').unwrap().1);
        for folder in folders {
            assert!(
                all.iter().any(|path| Path::new(path).starts_with(folder)),
                "nothing lies in {folder}"
            );
        }
    }

    #[test]
    fn variables_say_where_secrets_are_but_not_in_the_workspace() {
        let (_scratch, root) = scratch();
        let at = |path: &str| root.join(path).into_os_string().into_string().unwrap();
        let kube = [at("a"), at("b")].join(":");
        let mut environment = Environment::default();
        for (name, value) in [
            ("CARGO_HOME", at("cargo").as_str()),
            ("GH_CONFIG_DIR", &at("hosts")),
            ("COMPOSER_HOME", &at("work/composer")),
            ("XDG_RUNTIME_DIR", &at("session")),
            ("KUBECONFIG", &kube),
            ("NETRC", &at("work/netrc")),
            ("PGPASSFILE", "relative"),
        ] {
            environment.set(name, value);
        }
        let homes = [root.join("home")];
        let secrets = near(
            known(&places(&homes, &root.join("work")), &environment),
            &root,
        );
        let secrets: Vec<_> = secrets
            .iter()
            .filter(|path| !path.starts_with("home/"))
            .collect();
        let expected = [
            "a",
            "b",
            "cargo/credentials",
            "cargo/credentials.toml",
            "hosts",
            "session/containers/auth.json",
            "session/teamd",
        ];
        assert_eq!(secrets, expected);
    }
}
