//! The environment that a worker gets: that of the command that asked for it, without the keys.

mod unattended;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Variables that hold a key: they reach a worker over its connection, never as variables, so that
/// none of its tools inherits them.
pub const SECRETS: [&str; 5] = [
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    CLAUDE_TOKEN,
];

/// The token of a person's subscription, for Claude Code without a browser. It reaches no process
/// but that agent, and that one only if the user's own configuration says so.
pub const CLAUDE_TOKEN: &str = "CLAUDE_CODE_OAUTH_TOKEN";

/// The variable by which `teamctl -H` of another machine tells `teamctl` here of its terminal. It is
/// no part of what a person has set, and no process of a team gets it.
pub const OVER_SSH: &str = "TEAMCTL_OVER_SSH";

/// What the name of a variable with a key of another service contains; in capital letters,
/// separated by blanks.
const ANYWHERE: &str = "TOKEN SECRET PASSW PASSPHRASE PRIVATE_KEY API_KEY APIKEY CREDENTIAL SESSION COOKIE CONNECTION_STRING \
    _AUTH_ AUTHORIZATION JWT _PAT_ WEBHOOK MNEMONIC BEARER";

/// What such a name ends in, with or without a number behind it.
const ENDINGS: &str = "_KEY _KEYS _KEY_BASE _PASS _PWD _PIN _PAT _AUTH _CREDS _DSN _PW _OTP _SEED";

/// Such names as a whole.
const WHOLE: &str = "AUTH KEY OTP PASS PAT PIN PW SSHPASS";

/// Endings of names that are no secrets all the same: public keys, and limits.
const HARMLESS_ENDINGS: &str =
    "_PUBLIC_KEY _PUBLISHABLE_KEY MAX_TOKENS OUTPUT_TOKENS THINKING_TOKENS";

/// Names that look like secrets and are none: programs read the session at the machine from them,
/// or a setting.
const HARMLESS: &str = "DBUS_SESSION_BUS_ADDRESS DESKTOP_SESSION GDMSESSION GNOME_DESKTOP_SESSION_ID KDE_SESSION_UID \
    KDE_SESSION_VERSION SESSION_MANAGER SSH_AUTH_SOCK TERM_SESSION_ID TOKENIZERS_PARALLELISM XDG_SESSION_CLASS XDG_SESSION_DESKTOP \
    XDG_SESSION_ID XDG_SESSION_TYPE";

/// What `git` has set, or was given, for one repository or one command:
/// `git rev-parse --local-env-vars`, what hooks, aliases and `rebase --exec` are given beside that,
/// and the date of one commit. What the user has chosen for every `git` stays, such as
/// `GIT_AUTHOR_NAME`, `GIT_SSH_COMMAND` or `GIT_CONFIG_GLOBAL`.
const BOUND: &str = "GIT_ALTERNATE_OBJECT_DIRECTORIES GIT_ATTR_SOURCE GIT_AUTHOR_DATE GIT_CHERRY_PICK_HELP GIT_COMMITTER_DATE \
    GIT_COMMON_DIR GIT_CONFIG GIT_CONFIG_COUNT GIT_CONFIG_PARAMETERS GIT_DIFF_PATH_COUNTER GIT_DIFF_PATH_TOTAL GIT_DIR \
    GIT_GLOB_PATHSPECS GIT_GRAFT_FILE GIT_ICASE_PATHSPECS GIT_IMPLICIT_WORK_TREE GIT_INDEX_FILE GIT_LITERAL_PATHSPECS GIT_NAMESPACE \
    GIT_NOGLOB_PATHSPECS GIT_NO_REPLACE_OBJECTS GIT_OBJECT_DIRECTORY GIT_PREFIX GIT_PROTOCOL GIT_QUARANTINE_PATH \
    GIT_REFLOG_ACTION GIT_REPLACE_REF_BASE GIT_SHALLOW_FILE GIT_SUPER_PREFIX GIT_WORK_TREE";

/// The prefixes of the names of more such variables.
const BOUND_PREFIXES: [&[u8]; 5] = [
    b"GIT_CONFIG_KEY_",
    b"GIT_CONFIG_VALUE_",
    b"GIT_INTERNAL_",
    b"GIT_PUSH_",
    b"GITHEAD_",
];

/// Tells whether a variable binds `git` to one repository or one command: no process of the team
/// gets it.
fn is_bound(name: &[u8]) -> bool {
    BOUND
        .split_whitespace()
        .any(|bound| bound.as_bytes() == name)
        || BOUND_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// The setting of `git` that names directories of another owner in which it works all the same.
pub const SAFE_DIRECTORY: &str = "safe.directory";

/// Tells whether a variable is of the settings that [`Environment::of_self`] leaves: `git` fails if
/// one of them is missing.
fn is_of_settings(name: &[u8]) -> bool {
    let mut numbered = [&b"GIT_CONFIG_KEY_"[..], b"GIT_CONFIG_VALUE_"].into_iter();
    name == b"GIT_CONFIG_COUNT"
        || numbered.any(|begin| {
            name.strip_prefix(begin)
                .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
        })
}

/// What toolchains, agents and programs of a shell need: whole names, or beginnings that end in
/// `_`, separated by blanks.
const NEEDED: &str = "PATH HOME USER LOGNAME SHELL PWD OLDPWD SHLVL HOSTNAME HOSTTYPE OSTYPE MACHTYPE LANG LANGUAGE LC_ LOCALE_ARCHIVE LOCPATH TERM TERM_PROGRAM TERMINFO TERMINFO_DIRS \
    COLORTERM COLUMNS LINES TZ TZDIR TMPDIR TEMP TMP EDITOR VISUAL PAGER LESS LS_COLORS MANPATH INFOPATH NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI DEBUG VERBOSE DISPLAY WAYLAND_DISPLAY \
    XAUTHORITY XDG_ TEAM_ TEAMD_ SOURCE_DATE_EPOCH DEBIAN_FRONTEND DO_NOT_TRACK MODEL_ID LD_ LIBRARY_PATH CC CXX CPP LD AR AS NM RANLIB STRIP OBJCOPY CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDLIBS \
    CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH MAKEFLAGS MAKELEVEL MAKE PKG_CONFIG PKG_CONFIG_ ACLOCAL_PATH CMAKE_ CTEST_ NINJA_ MESON_ BAZEL_ CCACHE_ SCCACHE_ DISTCC_ LLVM_ CLANG_ GCC_ \
    CARGO CARGO_ RUSTC RUSTC_ RUSTDOC RUSTDOC_ RUSTDOCFLAGS RUSTFLAGS RUSTUP_ RUST_ PYTHON PYTHON_ PYTHONPATH PYTHONHOME PYTHONHASHSEED PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE PYTHONWARNINGS PYTHONIOENCODING \
    PYTHONUTF8 PYTHONSTARTUP PYTHONUSERBASE PYTHONNOUSERSITE PYTHONPYCACHEPREFIX PYTHONFAULTHANDLER PYTHONOPTIMIZE PYTHONBREAKPOINT PYTHONASYNCIODEBUG PYTEST_ PIP_ PIPX_ PIPENV_ UV_ POETRY_ PDM_ HATCH_ TOX_ \
    PYENV_ VIRTUAL_ENV VIRTUAL_ENV_PROMPT CONDA_ MAMBA_ JUPYTER_ MPLBACKEND NODE NODE_ NODENV_ NPM_ NVM_ FNM_ VOLTA_ PNPM_ YARN_ BUN_ DENO_ COREPACK_ ESLINT_ TS_ VITE_ NEXT_ JEST_ BABEL_ \
    PLAYWRIGHT_ PUPPETEER_ CYPRESS_ CHROME_ GOPATH GOROOT GOBIN GOCACHE GOMODCACHE GOFLAGS GOPROXY GOPRIVATE GONOPROXY GONOSUMDB GONOSUMCHECK GOSUMDB GOOS GOARCH GOARM GOAMD64 GO111MODULE GOTOOLCHAIN GOENV \
    GOEXPERIMENT GODEBUG GOMAXPROCS GOMEMLIMIT GOGC GOTMPDIR GOWORK GOINSECURE GOVCS GOTRACEBACK GOCOVERDIR GOTELEMETRY CGO_ GOENV_ JAVA_ JDK_ JDK_JAVA_OPTIONS CLASSPATH MAVEN_ MVN_ M2_ GRADLE_ KOTLIN_ SCALA_ \
    SBT_ ANT_ SDKMAN_ JENV_ RUBY RUBYLIB RUBYOPT RUBY_ GEM_ RBENV_ BUNDLE_PATH BUNDLE_GEMFILE BUNDLE_JOBS BUNDLE_WITHOUT BUNDLE_BIN BUNDLE_APP_CONFIG RAILS_ENV RACK_ENV PERL5LIB PERL5OPT \
    PERL_ PERLBREW_ PHP_ PHPRC COMPOSER_ R_ JULIA_ OPAM_ OPAMROOT CAML_LD_LIBRARY_PATH OCAML_ GHCUP_ STACK_ CABAL_ ERL_ ELIXIR_ MIX_ REBAR_ DOTNET_ NUGET_ MSBUILD_ ASPNETCORE_ENVIRONMENT SWIFT_ DART_ \
    FLUTTER_ PUB_ ANDROID_ ZIG_ NIM_ LUA_ LUA_PATH LUA_CPATH NIX_PATH NIX_PROFILES NIX_SSL_CERT_FILE ASDF_ MISE_ CUDA_ NVIDIA_ HIP_ ROCM_ OMP_ MKL_ OPENBLAS_ TORCH_ TF_ TOKENIZERS_ HF_ FONTCONFIG_ \
    GIT_ SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE REQUESTS_CA_BUNDLE HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY ANTHROPIC_ OPENAI_ CLAUDE_ CODEX_ GEMINI_ GOOGLE_GEMINI_ SSH_ASKPASS";

/// Names that are not needed although they begin like that: they can hold a login.
const NOT_NEEDED: &str = "GIT_HTTP_ CARGO_HTTP_ NPM_CONFIG__ NPM_CONFIG_// ANTHROPIC_CUSTOM_HEADERS GEMINI_CLI_CUSTOM_HEADERS";

/// The endings of variables that hold options of a program.
const OPTIONS: &str = "_OPTS _OPTIONS _ARGS _FLAGS";

/// The words in such options that announce a login.
const OPTIONS_OF_LOGINS: &str = "pass secret token key pw credential auth";

/// The endings of variables that name a place.
const PLACES: &str = "_HOME _ROOT _DIR _PATH _PREFIX";

/// Environment and umask of a command, kept in memory and written nowhere.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// Name and value of each variable but the secret ones.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Name and value of the variables in [`SECRETS`], of those whose names say that they hold
    /// another key, and of those that no toolchain needs: there can be a key in any of them.
    pub secrets: Vec<(Vec<u8>, Vec<u8>)>,
    /// The file mode creation mask.
    pub umask: u32,
}

impl Environment {
    /// Takes the environment and umask of this process, without what binds `git` to one repository
    /// or one command.
    pub fn of_self() -> Self {
        let all = std::env::vars_os().filter(|(name, _)| name != OVER_SSH);
        let all = all.map(|(name, value)| (name.into_vec(), value.into_vec()));
        let mut environment = Self {
            variables: all.collect(),
            secrets: Vec::new(),
            umask: current_umask(),
        };
        environment.unbind();
        environment.part(&[]);
        environment
    }

    /// Removes what binds `git` to one repository or one command. The safe directories stay: they
    /// belong to the machine (`GIT_CONFIG_KEY_0=safe.directory`).
    fn unbind(&mut self) {
        let safe = self.safe_directories();
        self.variables.retain(|(name, _)| !is_bound(name));
        if safe.is_empty() {
            return;
        }
        self.set("GIT_CONFIG_COUNT", &safe.len().to_string());
        for (number, directory) in safe.into_iter().enumerate() {
            self.set(&format!("GIT_CONFIG_KEY_{number}"), SAFE_DIRECTORY);
            self.variables
                .push((format!("GIT_CONFIG_VALUE_{number}").into(), directory));
        }
    }

    fn variable(&self, name: &str) -> Option<&(Vec<u8>, Vec<u8>)> {
        self.variables
            .iter()
            .find(|(other, _)| other == name.as_bytes())
    }

    /// Returns the values of `safe.directory` from the variables.
    pub fn safe_directories(&self) -> Vec<Vec<u8>> {
        let count = self
            .value("GIT_CONFIG_COUNT")
            .and_then(|count| count.parse::<usize>().ok());
        let most = count.unwrap_or_default().min(self.variables.len());
        let mut directories = Vec::new();
        for number in 0..most {
            let key = self.variable(&format!("GIT_CONFIG_KEY_{number}"));
            if key.is_some_and(|(_, key)| key.eq_ignore_ascii_case(SAFE_DIRECTORY.as_bytes())) {
                let value = self.variable(&format!("GIT_CONFIG_VALUE_{number}"));
                directories.extend(value.map(|(_, value)| value.clone()));
            }
        }
        directories
    }

    /// Separates the secrets from the variables again. A variable in `handed_on` is no secret,
    /// unless it is one of [`SECRETS`].
    pub fn part(&mut self, handed_on: &[String]) {
        let all = std::mem::take(&mut self.variables)
            .into_iter()
            .chain(std::mem::take(&mut self.secrets));
        let stays = |name: &[u8], value: &[u8]| {
            is_model_key(name)
                || !(handed_on.iter().any(|named| named.as_bytes() == name) || is_of_settings(name))
                    && (is_secret(name) || !is_needed(name, value))
        };
        (self.secrets, self.variables) = all.partition(|(name, value)| stays(name, value));
    }

    /// Tells whether the name of a variable says that it holds a key.
    pub fn holds_keys(&self) -> bool {
        self.secrets.iter().any(|(name, _)| is_secret(name))
    }

    /// Returns the names of the variables that no command gets and that are no keys of models, in
    /// order.
    pub fn withheld(&self) -> Vec<String> {
        let names = self.secrets.iter().filter(|(name, _)| !is_model_key(name));
        let mut names: Vec<_> = names
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
            .collect();
        names.sort();
        names
    }

    /// Returns a variable or a secret, as text; none if it is not set, or set to nothing.
    pub fn value(&self, name: &str) -> Option<String> {
        self.path(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Returns a variable or a secret as a path, whatever its bytes; none if it is not set, or set
    /// to nothing.
    pub fn path(&self, name: &str) -> Option<PathBuf> {
        let mut all = self.variables.iter().chain(&self.secrets);
        let (_, value) = all.find(|(known, _)| known == name.as_bytes())?;
        (!value.is_empty()).then(|| OsStr::from_bytes(value).into())
    }

    /// Sets a variable that is no secret.
    pub fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.variables.push((name.into(), value.into()));
    }

    /// Removes a variable that is no secret.
    pub fn unset(&mut self, name: &str) {
        self.variables.retain(|(known, _)| known != name.as_bytes());
    }

    /// Returns the variables without the secrets, as [`std::process::Command::envs`] takes them.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables
            .iter()
            .map(|(name, value)| (os_string(name), os_string(value)))
    }
}

/// What the programs of teamd themselves read of an environment.
const OWN: [&[u8]; 2] = [b"TEAM_", b"TEAMD_"];

impl Environment {
    /// Returns the variables that are settings of teamd. A worker is started with nothing else: its
    /// loader would believe the rest (`LD_PRELOAD`), and load what a tool has put into a workspace.
    pub fn settings(&self) -> impl Iterator<Item = (OsString, OsString)> + '_ {
        self.variables()
            .filter(|(name, _)| OWN.iter().any(|prefix| name.as_bytes().starts_with(prefix)))
    }
}

/// Never shows values: a debug print of a command must not put a key into a log.
impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Environment({} variables, {} secrets)",
            self.variables.len(),
            self.secrets.len()
        )
    }
}

/// Tells whether a variable holds the key of a model's service, which no command ever gets.
pub fn is_model_key(name: &[u8]) -> bool {
    SECRETS
        .iter()
        .any(|secret| secret.as_bytes().eq_ignore_ascii_case(name))
}

/// Tells whether a toolchain needs a variable: by its name, and by its value where that could hold
/// a login.
fn is_needed(name: &[u8], value: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let value = String::from_utf8_lossy(value);
    let lower = value.to_ascii_lowercase();
    let has_login = has_login(&value)
        || name.ends_with("_PROXY") && value.contains('@')
        || ends_with_one_of(&name, OPTIONS)
            && OPTIONS_OF_LOGINS
                .split_whitespace()
                .any(|word| lower.contains(word));
    // A shell says in `_` which program it has started.
    !has_login
        && !is_listed(&name, NOT_NEEDED)
        && (name == "_"
            || is_listed(&name, NEEDED)
            || is_one_of(&name, HARMLESS)
            || (value.starts_with('/') && ends_with_one_of(&name, PLACES)))
}

/// Tells whether a text has `http://user:password@host`, wherever it is: a password can have
/// any character but a blank.
fn has_login(text: &str) -> bool {
    text.split_whitespace().any(|word| {
        let mut rests = word.split("://").skip(1);
        rests.any(|rest| rest.find('@').is_some_and(|at| at > 0))
    })
}

/// Tells whether a variable holds a key, of a model's service or of another one.
fn is_secret(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    let unnumbered = name
        .trim_end_matches(|end: char| end.is_ascii_digit())
        .trim_end_matches('_');
    let holds = ANYWHERE.split_whitespace().any(|word| name.contains(word));
    let is_key = holds || ends_with_one_of(unnumbered, ENDINGS) || is_one_of(unnumbered, WHOLE);
    let is_surely = ["PASSW", "SECRET", "PRIVATE"]
        .iter()
        .any(|word| name.contains(word));
    is_model_key(name.as_bytes())
        || is_key
            && !is_one_of(unnumbered, HARMLESS)
            && (is_surely || !ends_with_one_of(unnumbered, HARMLESS_ENDINGS))
}

/// Reads the umask where the kernel shows it without changing it (Linux 4.7), else sets it and sets
/// it back.
fn current_umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let shown = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    if let Some(mask) = shown.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()) {
        return mask;
    }
    let mask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    nix::sys::stat::umask(mask);
    mask.bits()
}

fn os_string(bytes: &[u8]) -> OsString {
    OsStr::from_bytes(bytes).to_owned()
}

fn is_one_of(name: &str, names: &str) -> bool {
    names.split_whitespace().any(|other| other == name)
}

fn ends_with_one_of(name: &str, endings: &str) -> bool {
    endings
        .split_whitespace()
        .any(|ending| name.ends_with(ending))
}

/// Tells whether a list has a name: whole, or by its beginning (up to a `_` or `/`).
fn is_listed(name: &str, list: &str) -> bool {
    list.split_whitespace()
        .any(|listed| name == listed || listed.ends_with(['_', '/']) && name.starts_with(listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = "GITHUB_TOKEN GH_TOKEN HF_TOKEN NPM_TOKEN AWS_SESSION_TOKEN AZURE_OPENAI_KEY DB_PASSWORD PGPASSWORD \
        CLIENT_SECRET db_password npm_config__authToken GOOGLE_APPLICATION_CREDENTIALS anthropic_api_key \
        SECRET_KEY_BASE MYSQL_PWD SMTP_PASS COMPOSER_AUTH REDISCLI_AUTH NPM_CONFIG__AUTH DOCKER_AUTH_CONFIG \
        BW_SESSION OP_SESSION_my API_KEYS DEPLOY_SECRETS DB_CREDS SERVICE_JWT SENTRY_DSN X_AUTH_HEADER GITHUB_PAT_CI MY_PASSWORD_PUBLIC_KEY TOTP_OTP SLACK_WEBHOOK_URL DB_PW \
        AZURE_STORAGE_CONNECTION_STRING GCP_CREDENTIALS_JSON PRIVATE_KEY_PEM PRIVATE_KEY_BASE64 PASS PIN \
        COOKIE TOKEN_X SECRET_X VAULT_PASSWORD_1 SIGNING_KEY_2";

    const HARMLESS_NAMES: &str = "SSH_AUTH_SOCK STRIPE_PUBLIC_KEY PWD OLDPWD TEAM_MAX_TOKENS KEYBOARD MONKEY COMPASS AWS_ACCESS_KEY_ID \
        XAUTHORITY SSH_ASKPASS GIT_ASKPASS CLAUDE_CODE_MAX_OUTPUT_TOKENS TOKENIZERS_PARALLELISM \
        DBUS_SESSION_BUS_ADDRESS XDG_SESSION_ID XDG_SESSION_TYPE DESKTOP_SESSION KEYS_OF_A_PIANO SPIN PATH";

    #[test]
    fn keys_are_parted_from_the_variables_and_never_printed() {
        let environment = Environment {
            variables: vec![(b"PATH".to_vec(), b"/bin".to_vec())],
            secrets: vec![(b"OPENAI_API_KEY".to_vec(), b"sk-secret".to_vec())],
            umask: 0o22,
        };
        assert!(is_secret(b"ANTHROPIC_API_KEY") && !is_secret(b"PATH"));
        assert!(
            is_secret(b"MISTRAL_API_KEY")
                && is_secret(b"AWS_SECRET_ACCESS_KEY")
                && is_secret(b"KEY")
        );
        assert!(!format!("{environment:?}").contains("sk-secret"));
        for secret in KEYS.split_whitespace() {
            assert!(is_secret(secret.as_bytes()), "{secret}");
        }
        for harmless in HARMLESS_NAMES.split_whitespace() {
            assert!(!is_secret(harmless.as_bytes()), "{harmless}");
        }
        assert_eq!(environment.variables().count(), 1);
        let mut environment = environment;
        environment.set("PATH", "/usr/bin");
        environment.set("EMPTY", "");
        assert_eq!(environment.value("PATH").as_deref(), Some("/usr/bin"));
        assert_eq!(
            environment.value("OPENAI_API_KEY").as_deref(),
            Some("sk-secret")
        );
        assert_eq!(
            (environment.value("EMPTY"), environment.variables().count()),
            (None, 2)
        );
    }

    #[test]
    fn a_key_is_handed_on_that_is_named_unless_it_is_that_of_a_model() {
        let named = |names: &[&str]| {
            names
                .iter()
                .map(|name| ((*name).into(), b"v".to_vec()))
                .collect()
        };
        let mut environment = Environment {
            variables: named(&["PATH", "NPM_TOKEN"]),
            secrets: named(&["GH_TOKEN", "OPENAI_API_KEY"]),
            umask: 0,
        };
        environment.part(&["GH_TOKEN".to_owned(), "OPENAI_API_KEY".to_owned()]);
        assert_eq!(environment.variables, named(&["PATH", "GH_TOKEN"]));
        assert_eq!(environment.secrets, named(&["NPM_TOKEN", "OPENAI_API_KEY"]));
    }

    #[test]
    fn what_binds_git_to_a_repository_goes_and_what_the_user_has_chosen_stays() {
        let chosen = [
            "GIT_AUTHOR_NAME=u",
            "GIT_SSH_COMMAND=ssh -4",
            "GIT_CONFIG_GLOBAL=/g",
            "GIT_SSL_CAINFO=/ca",
            "GITHUB_ACTIONS=1",
        ];
        let bound = [
            "GIT_DIR=/r/.git",
            "GIT_INDEX_FILE=i",
            "GIT_CONFIG_PARAMETERS='a.b'='c'",
            "GIT_AUTHOR_DATE=0 +0000",
            "GIT_QUARANTINE_PATH=q",
            "GIT_PUSH_OPTION_COUNT=0",
            "GITHEAD_1234=main",
            "GIT_CONFIG_COUNT=2",
            "GIT_CONFIG_KEY_0=core.worktree",
            "GIT_CONFIG_VALUE_0=/x",
            "GIT_CONFIG_KEY_1=Safe.Directory",
            "GIT_CONFIG_VALUE_1=*",
        ];
        let of = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| {
                    let (name, value) = line.split_once('=').unwrap();
                    (name.as_bytes().to_vec(), value.as_bytes().to_vec())
                })
                .collect::<Vec<_>>()
        };
        let mut environment = Environment {
            variables: of(&chosen),
            ..Environment::default()
        };
        environment.variables.extend(of(&bound));
        environment.unbind();
        let safe = [
            "GIT_CONFIG_COUNT=1",
            "GIT_CONFIG_KEY_0=safe.directory",
            "GIT_CONFIG_VALUE_0=*",
        ];
        let mut expected = of(&chosen);
        expected.extend(of(&safe));
        assert_eq!(environment.variables, expected);
        environment.part(&[]);
        let kept = |name: &str| {
            environment
                .variables
                .iter()
                .any(|(known, _)| known == name.as_bytes())
        };
        assert!(
            ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_0", "GIT_CONFIG_VALUE_0"]
                .into_iter()
                .all(kept)
        );
        assert_eq!(environment.safe_directories(), [b"*".to_vec()]);
        let listed = std::process::Command::new("git")
            .args(["rev-parse", "--local-env-vars"])
            .output()
            .unwrap();
        for name in listed
            .stdout
            .split(|&byte| byte == b'\n')
            .filter(|name| !name.is_empty())
        {
            assert!(is_bound(name), "{}", String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn what_no_toolchain_needs_is_withheld_and_what_one_needs_is_not() {
        let withheld = "AWS_ACCESS_KEY_ID=AKIA STRIPE_SK=sk TWILIO_SID=AC DATABASE_URL=postgres://u:p@h/d REDIS_URL=redis://h MONGODB_URI=m \
            SENTRY=s PGUSER=u LDAP_BIND=x FOO=1 KUBECONFIG=/k AWS_PROFILE=p BUNDLE_GITHUB__COM=t NIX_CONFIG=t \
            HTTPS_PROXY=http://u:p@h:1 PIP_INDEX_URL=https://u:p@h/ GOPROXY=https://h,https://t@h \
            HTTP_PROXY=joe:hunter2@proxy:3128 ALL_PROXY=http://u:p/w@h:1 npm_config_registry=https://u:p?w#x@h/ \
            ANTHROPIC_CUSTOM_HEADERS=Authorization:b MAVEN_OPTS=-Dpw=x JAVA_TOOL_OPTIONS=-Djavax.net.ssl.keyStorePass=x \
            APP_HOME=x DEPLOY_PATH=secret GOOGLE_CLOUD_PROJECT=x https_proxy=http://u:p@h CARGO_HTTP_PROXY=x ENV=x";
        let needed = "PATH=/b HOME=/h LANG=C LC_ALL=C TERM=x TZ=U CARGO_HOME=/c CARGO_TARGET_DIR=t RUST_LOG=d RUSTFLAGS=-g PYTHONPATH=p \
            NODE_ENV=t NODE_OPTIONS=o npm_config_cache=/c JAVA_HOME=/j GOFLAGS=-v XDG_DATA_HOME=/d https_proxy=http://h:1 NO_PROXY=h MY_HOME=/x \
            PIP_INDEX_URL=https://h/simple GIT_AUTHOR_NAME=a GIT_SSH_COMMAND=ssh TEAM_MODEL=script SSH_AUTH_SOCK=/s CC=gcc CI=1 \
            ANTHROPIC_BASE_URL=http://h VIRTUAL_ENV=/v MAVEN_OPTS=-Xmx1g JAVA_TOOL_OPTIONS=-Dfile.encoding=UTF-8 GIT_AUTHOR_EMAIL=u@h";
        let of = |text: &str| -> Vec<(Vec<u8>, Vec<u8>)> {
            let pairs = text
                .split_whitespace()
                .map(|it| it.split_once('=').unwrap());
            pairs
                .map(|(name, value)| (name.into(), value.into()))
                .collect()
        };
        let variables = [of(withheld), of(needed)].concat();
        let mut environment = Environment {
            variables,
            secrets: Vec::new(),
            umask: 0,
        };
        environment.part(&[]);
        assert_eq!(
            (&environment.secrets, &environment.variables),
            (&of(withheld), &of(needed))
        );
        assert_eq!(environment.withheld().len(), of(withheld).len());
        environment.part(&["DATABASE_URL".to_owned(), "FOO".to_owned()]);
        assert_eq!(environment.withheld().len(), of(withheld).len() - 2);
    }

    #[test]
    fn the_umask_is_read_and_not_changed() {
        assert_eq!(current_umask(), current_umask());
    }
}
