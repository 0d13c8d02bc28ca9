//! The two kinds of `git`, and what each is given of the user's.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use teamd_shared::environment::{Environment, SAFE_DIRECTORY};

/// What a `git` is for. That decides whose configuration, attributes and programs it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitKind {
    /// It keeps what we depend on: the team repository, packs, merges. Nothing of the user's or a
    /// teammate's influences it.
    Protects,
    /// It reports the state of a tree, or writes one, for the user or the teammate whose tree it
    /// is, as their own `git` would.
    Judges,
}

/// What the user's environment says of `git` that is no property of one repository.
const OF_THE_USER: [&[u8]; 4] = [
    b"GIT_CONFIG_GLOBAL",
    b"GIT_CONFIG_SYSTEM",
    b"GIT_CONFIG_NOSYSTEM",
    b"GIT_ATTR_NOSYSTEM",
];

impl GitKind {
    /// Returns the variables that a `git` of this kind is given. `theirs`: where commands of the
    /// team may or once could write.
    pub(super) fn variables(self, of: &Environment, theirs: &[String]) -> Environment {
        let kept = of
            .variables
            .iter()
            .filter(|(name, _)| self.hands_on(name))
            .cloned()
            .collect();
        let mut environment = Environment {
            variables: kept,
            secrets: Vec::new(),
            umask: of.umask,
        };
        self.order_path(&mut environment, theirs);
        for (name, value) in self.set().iter() {
            environment.set(name, value);
        }
        let settings = self.settings();
        // The scripts name them to the other kind, for the repositories that it enters.
        let safe = if self == Self::Judges {
            of.safe_directories()
        } else {
            Vec::new()
        };
        environment.set(
            "GIT_CONFIG_COUNT",
            &(settings.len() + safe.len()).to_string(),
        );
        for (number, (key, value)) in settings.iter().enumerate() {
            environment.set(&format!("GIT_CONFIG_KEY_{number}"), key);
            environment.set(&format!("GIT_CONFIG_VALUE_{number}"), value);
        }
        for (number, directory) in (settings.len()..).zip(safe) {
            environment.set(&format!("GIT_CONFIG_KEY_{number}"), SAFE_DIRECTORY);
            environment
                .variables
                .push((format!("GIT_CONFIG_VALUE_{number}").into(), directory));
        }
        environment
    }

    fn hands_on(self, name: &[u8]) -> bool {
        const FEW: [&str; 6] = [
            "PATH",
            "HOME",
            "TMPDIR",
            "USER",
            "XDG_STATE_HOME",
            "XDG_CONFIG_HOME",
        ];
        match self {
            Self::Protects => FEW.iter().any(|few| few.as_bytes() == name),
            Self::Judges => !name.starts_with(b"GIT_") || OF_THE_USER.contains(&name),
        }
    }

    /// The programs of a script are not taken from a folder into which a teammate may have put one,
    /// or that is relative to the working directory. Where the user's filters count, the folders of
    /// teammates come last.
    fn order_path(self, environment: &mut Environment, theirs: &[String]) {
        for (name, value) in environment
            .variables
            .iter_mut()
            .filter(|(name, _)| name == b"PATH")
        {
            let absolute = std::env::split_paths(OsStr::from_bytes(value))
                .filter(|folder| folder.is_absolute());
            let (last, mut folders): (Vec<PathBuf>, Vec<PathBuf>) = absolute.partition(|folder| {
                // A link of theirs can lead elsewhere by the time that a script looks.
                let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
                theirs
                    .iter()
                    .any(|theirs| real.starts_with(theirs) || folder.starts_with(theirs))
            });
            if self == Self::Judges {
                folders.extend(last);
            }
            match std::env::join_paths(folders) {
                Ok(path) => *value = path.into_vec(),
                Err(error) => tracing::warn!(
                    "{} is used as it is: {error}",
                    String::from_utf8_lossy(name)
                ),
            }
        }
    }

    fn set(self) -> Vec<(&'static str, &'static str)> {
        let mut set = vec![
            ("LC_ALL", "C.UTF-8"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_PAGER", "cat"),
            ("GIT_EDITOR", "false"),
            // A commit is what its name says, even if a teammate has put another in its place.
            ("GIT_NO_REPLACE_OBJECTS", "1"),
            // Git LFS writes what lies here, and a pointer in the place of the rest.
            ("GIT_LFS_SKIP_DOWNLOAD_ERRORS", "1"),
        ];
        if self == Self::Protects {
            set.extend([
                ("GIT_CONFIG_GLOBAL", "/dev/null"),
                ("GIT_CONFIG_NOSYSTEM", "1"),
                ("GIT_ATTR_NOSYSTEM", "1"),
            ]);
        }
        set
    }

    /// Returns the settings that go before those of any repository. No kind runs a hook, or starts
    /// a process that stays.
    fn settings(self) -> Vec<(&'static str, &'static str)> {
        let mut settings = vec![
            ("core.hooksPath", "/dev/null"),
            ("core.fsmonitor", "false"),
            ("core.untrackedCache", "false"),
            ("core.sshCommand", "false"),
            ("protocol.allow", "never"),
            ("protocol.file.allow", "always"),
            ("submodule.recurse", "false"),
            ("gc.auto", "0"),
            ("maintenance.auto", "false"),
            // There is no network to wait for.
            ("lfs.standalonetransferagent", "none"),
        ];
        if self == Self::Protects {
            settings.push(("core.attributesFile", "/dev/null"));
        }
        settings
    }
}

/// Hands the variables of [`GitKind::Judges`] to a script, which is itself started with those of
/// [`GitKind::Protects`]: one value each, `NAME=VALUE`.
pub(super) fn hand_over(judges: &Environment, script: &mut Environment) {
    for (number, (name, value)) in judges.variables.iter().enumerate() {
        let handed = [name.as_slice(), b"=", value.as_slice()].concat();
        script
            .variables
            .push((format!("J_{number}").into_bytes(), handed));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn no_program_of_a_teammate_goes_before_another_and_none_is_run_where_git_protects() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("work/bin")).unwrap();
        std::os::unix::fs::symlink(root.join("work/bin"), root.join("link")).unwrap();
        std::os::unix::fs::symlink("/usr/bin", root.join("work/out")).unwrap();
        let at = |path: &str| root.join(path).to_string_lossy().into_owned();
        let mut environment = Environment::default();
        environment.set(
            "PATH",
            &format!(
                "{}:{}:.::bin:/usr/bin:{}:{}",
                at("work/bin"),
                at("work/out"),
                at("link"),
                at("workshop")
            ),
        );
        let path = |kind: GitKind| {
            kind.variables(&environment, &[at("work")])
                .value("PATH")
                .unwrap()
        };
        assert_eq!(
            path(GitKind::Protects),
            format!("/usr/bin:{}", at("workshop"))
        );
        let last = format!(
            "/usr/bin:{}:{}:{}:{}",
            at("workshop"),
            at("work/bin"),
            at("work/out"),
            at("link")
        );
        assert_eq!(path(GitKind::Judges), last);
    }

    #[test]
    fn a_git_that_judges_has_the_users_configuration_and_no_other_repository() {
        let mut environment = Environment::default();
        for name in [
            "GIT_CONFIG_GLOBAL",
            "GIT_DIR",
            "GIT_INDEX_FILE",
            "GIT_CONFIG_PARAMETERS",
            "GNUPGHOME",
        ] {
            environment.set(name, "/theirs");
        }
        environment
            .secrets
            .push((b"A_TOKEN".to_vec(), b"x".to_vec()));
        for (name, value) in [
            ("COUNT", "1"),
            ("KEY_0", "safe.directory"),
            ("VALUE_0", "/shared"),
        ] {
            environment.set(&format!("GIT_CONFIG_{name}"), value);
        }
        let judges = GitKind::Judges.variables(&environment, &[]);
        assert_eq!(judges.safe_directories(), [b"/shared".to_vec()]);
        let has = |of: &Environment, name: &str| of.value(name).as_deref() == Some("/theirs");
        assert!(
            has(&judges, "GIT_CONFIG_GLOBAL")
                && has(&judges, "GNUPGHOME")
                && judges.secrets.is_empty()
        );
        assert!(
            !["GIT_DIR", "GIT_INDEX_FILE", "GIT_CONFIG_PARAMETERS"]
                .iter()
                .any(|it| has(&judges, it))
        );
        let protects = GitKind::Protects.variables(&environment, &[]);
        assert_eq!(
            protects.value("GIT_CONFIG_GLOBAL").as_deref(),
            Some("/dev/null")
        );
        assert!(!has(&protects, "GNUPGHOME"));
        for kind in [protects, judges] {
            assert_eq!(
                kind.value("GIT_CONFIG_KEY_0").as_deref(),
                Some("core.hooksPath")
            );
        }
    }

    /// What begins a command that looks at a working tree, or writes one.
    const OF_A_TREE: [&str; 10] = [
        "status ",
        "checkout ",
        "checkout-index ",
        "merge ",
        "reset ",
        "add ",
        "stash ",
        "restore ",
        "switch ",
        "ls-files --others",
    ];

    /// A new step has to say it: what looks at a tree is not left to the `git` that protects. Hints
    /// stand in quotes.
    #[test]
    fn each_command_of_a_script_that_looks_at_a_tree_says_whose_git_judges() {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/git");
        let files = scripts
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let mut judged = 0;
        for file in files.filter(|file| file.extension().is_some_and(|extension| extension == "sh"))
        {
            let text = std::fs::read_to_string(&file).unwrap();
            for line in text
                .lines()
                .filter(|line| !line.trim_start().starts_with('#'))
            {
                for (place, _) in line.match_indices("git ") {
                    let (before, command) = line.split_at(place);
                    let options = ["git ", "--no-optional-locks ", "-c merge.autoStash=false "];
                    let command = options
                        .iter()
                        .fold(command, |rest, option| rest.trim_start_matches(option));
                    let is_of_a_tree = OF_A_TREE.iter().any(|verb| command.starts_with(verb));
                    let judges = before.ends_with("judge ");
                    judged += usize::from(is_of_a_tree && judges);
                    assert!(
                        !is_of_a_tree || judges || before.ends_with('`'),
                        "{}: {line}",
                        file.display()
                    );
                }
            }
        }
        assert!(judged >= 7, "only {judged} commands judge");
    }
}
