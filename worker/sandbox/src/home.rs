//! The dot files and dot folders of a home. They are hidden from commands, except for what tools
//! need: a list of secrets is never complete, but what tools need is known, and a user can name
//! more.
//!
//! A home is listed before each command: what a program has put there since is hidden, too.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use teamd_shared::environment::Environment;

use super::CommandPlaces;

/// What tools and shells need of a home; the known secrets in it are hidden one by one.
const SEEN: &str = ".gitconfig .gitignore .gitignore_global .gitattributes .gitmessage .bashrc .bash_profile .bash_login .bash_logout \
    .bash_aliases .bash_completion .profile .inputrc .terminfo .dircolors .hushlogin \
    .editorconfig .vimrc .nanorc .tool-versions .node-version .nvmrc .python-version .ruby-version .java-version .go-version \
    .clang-format .clang-tidy .rustfmt.toml .gemrc .irbrc .gdbinit .lldbinit .latexmkrc \
    .cargo .rustup .sccache .ccache .npm .npm-global .npm-packages .node-gyp .node .nvm .nodenv .fnm .volta .n .bun .deno .yarn .pnpm-store .pnpm .electron-gyp \
    .corepack .pyenv .python .virtualenvs .venv .venvs .conda .miniconda .miniconda3 .miniforge3 .mambaforge .micromamba .poetry .pdm .pixi .rye .hatch \
    .matplotlib .keras .rbenv .rvm .gem .bundle .chruby .asdf .mise .proto .sdkman .jenv .jabba .m2 .gradle .ivy2 .sbt .coursier .konan .kotlin \
    .groovy .ant .mvn .lein .clojure .go .goenv .gvm .g .cabal .ghcup .ghc .stack .opam .elan .juliaup .julia .mix .asdf-erlang .kerl .kiex .elixir-install \
    .dotnet .nuget .templateengine .omnisharp .phpenv .phpbrew .composer .perl5 .plenv .perlbrew .cpan .cpanm .luarocks .luaver .nimble .choosenim .dub .dvm .crystal \
    .shards .zig .zvm .zls .swiftpm .swiftly .pub-cache .dartServer .fvm .flutter .foundry .svm .solcx .emsdk .emscripten_cache .wasmtime .wasm-pack \
    .vcpkg .conan .conan2 .platformio .arduino15 .esp .espressif .texlive .texmf-var .texmf-config .nix-profile .nix-defexpr .linuxbrew .bazel .bazelisk .buildozer \
    .fonts .fontconfig .tfenv .tenv .cmake .meson .xmake .nltk_data .triton .nv .torch";

/// What is seen of the folders in which each program has one of its own.
const PARTS: &str = ".config/git .config/fish/completions .config/mise .config/uv .config/pypoetry .config/go .config/composer .config/yarn/global .config/pnpm-global \
    .config/fontconfig .config/matplotlib .config/ccache .config/rustfmt .config/ripgrep .config/clangd .config/asdf .config/nvm \
    .local/bin .local/lib .local/lib64 .local/include .local/man .local/opt .local/pipx .local/venvs .local/share/man .local/share/pnpm .local/share/mise .local/share/rtx \
    .local/share/uv .local/share/fnm .local/share/nvm .local/share/pipx .local/share/virtualenv .local/share/virtualenvs .local/share/pypoetry .local/share/pdm \
    .local/share/hatch .local/share/rye .local/share/gem .local/share/cargo .local/share/rustup .local/share/go .local/share/asdf .local/share/bash-completion \
    .local/share/fonts .local/share/coursier .local/share/swiftly .local/share/swift .local/share/opam .local/share/racket .local/share/julia .local/share/dotnet \
    .local/share/NuGet .local/share/claude .local/share/codex .local/share/powershell/Modules .local/share/zig .local/share/nltk_data .local/share/jupyter .local/share/R .local/state/nix \
    .local/state/fnm_multishells .local/state/mise .cache/pip .cache/uv .cache/pypoetry .cache/pdm .cache/hatch .cache/pre-commit .cache/virtualenv .cache/go-build .cache/golangci-lint \
    .cache/gopls .cache/goimports .cache/yarn .cache/pnpm .cache/npm .cache/node .cache/node-gyp .cache/typescript .cache/electron .cache/electron-builder .cache/ms-playwright \
    .cache/puppeteer .cache/Cypress .cache/deno .cache/bun .cache/turbo .cache/composer .cache/ccache .cache/sccache .cache/mozilla-build .cache/bazel .cache/bazelisk .cache/buck2 \
    .cache/cargo .cache/zig .cache/zls .cache/rebar3 .cache/mix .cache/coursier .cache/huggingface .cache/torch .cache/torch_extensions .cache/triton .cache/matplotlib \
    .cache/fontconfig .cache/mesa_shader_cache .cache/mypy .cache/ruff .cache/black .cache/pylint .cache/prettier .cache/eslint .cache/tree-sitter .cache/clangd .cache/vcpkg .cache/conan \
    .cache/mise .cache/fnm .cache/nix .cache/kotlin .cache/gradle .cache/dotnet .cache/NuGetPackages .cache/R .cache/staticcheck .cache/phpactor .cache/JNA .cache/cabal .cache/rosetta";

/// The folders of a home that are seen in part: each folder in them belongs to a program.
const SPLIT: [&str; 3] = [".config", ".local", ".cache"];

/// The folders in those that hold folders of programs, too.
const SPLIT_AGAIN: [&str; 2] = [".local/share", ".local/state"];

/// The folder of a home in which each program of the snap store keeps its dot files.
const SNAPS: &str = "snap";

/// Variables that say where a tool lies, or keeps what it needs.
const TOOL_VARIABLES: &str = "CARGO_HOME RUSTUP_HOME NVM_DIR FNM_DIR VOLTA_HOME PNPM_HOME BUN_INSTALL DENO_DIR DENO_INSTALL NPM_CONFIG_PREFIX NPM_CONFIG_CACHE \
    npm_config_prefix npm_config_cache YARN_CACHE_FOLDER COREPACK_HOME PYENV_ROOT VIRTUAL_ENV CONDA_PREFIX PIPX_HOME POETRY_HOME POETRY_CACHE_DIR PIP_CACHE_DIR UV_CACHE_DIR \
    UV_PYTHON_INSTALL_DIR RBENV_ROOT GEM_HOME BUNDLE_PATH ASDF_DIR ASDF_DATA_DIR MISE_DATA_DIR SDKMAN_DIR JAVA_HOME JENV_ROOT GRADLE_USER_HOME MAVEN_HOME M2_HOME KONAN_DATA_DIR GOPATH GOROOT \
    GOBIN GOCACHE GOMODCACHE GHCUP_INSTALL_BASE_PREFIX STACK_ROOT CABAL_DIR OPAMROOT ELAN_HOME JULIA_DEPOT_PATH JULIAUP_DEPOT_PATH MIX_HOME HEX_HOME DOTNET_ROOT NUGET_PACKAGES COMPOSER_HOME \
    PUB_CACHE FLUTTER_ROOT ANDROID_HOME ANDROID_SDK_ROOT VCPKG_ROOT CONAN_HOME EMSDK CCACHE_DIR SCCACHE_DIR PLAYWRIGHT_BROWSERS_PATH HF_HOME TORCH_HOME";

/// What is hidden of the homes, and what of that is seen all the same.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) hidden: HashSet<PathBuf>,
    pub(super) seen: Vec<PathBuf>,
    /// The dot files and dot folders that are there.
    there: HashSet<PathBuf>,
    /// The homes that were listed.
    listed: Vec<PathBuf>,
}

impl Home {
    /// Lists the homes in which teammates do not work. `needed`: what else is seen, and what it
    /// lies in.
    pub(super) fn look(places: &CommandPlaces, needed: &[PathBuf]) -> Self {
        let mut home = Self::default();
        // What lies in a workspace is for the teammates that work there.
        let apart = places.homes.iter().filter(|home| !places.is_writable(home));
        for folder in apart {
            if let Err(error) = home.list(folder, places, needed) {
                // A command of this user cannot list it either; the known secrets in it are hidden.
                tracing::warn!("cannot see what is in {}: {error}", folder.display());
            }
        }
        home
    }

    fn list(
        &mut self,
        folder: &Path,
        places: &CommandPlaces,
        needed: &[PathBuf],
    ) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            if !name.as_encoded_bytes().starts_with(b".") && name != SNAPS {
                continue;
            }
            let path = entry.path();
            self.there.insert(path.clone());
            let is_split = SPLIT.iter().any(|split| OsStr::new(split) == name);
            let is_link = entry.file_type()?.is_symlink();
            if SEEN.split_whitespace().any(|seen| OsStr::new(seen) == name) {
                if is_link {
                    self.seen.extend(target_of_seen(&path, folder, places));
                }
                continue;
            }
            if needed.iter().any(|needed| path.starts_with(needed)) {
                continue;
            }
            let Some(real) = real(&path, is_link, (folder, needed), places) else {
                continue;
            };
            if is_split {
                self.seen.extend(parts(&real, &name));
            }
            self.seen.extend(
                needed
                    .iter()
                    .filter(|needed| needed.starts_with(&real))
                    .cloned(),
            );
            self.hidden.insert(real);
        }
        self.listed.push(folder.to_owned());
        Ok(())
    }

    /// Tells whether a path need not be looked at: it lies in something that is hidden as a whole,
    /// or is not there.
    pub(super) fn settles(&self, path: &Path) -> bool {
        let Some(home) = self.listed.iter().find(|home| path.starts_with(home)) else {
            return false;
        };
        let Some(Component::Normal(first)) = path
            .strip_prefix(home)
            .ok()
            .and_then(|it| it.components().next())
        else {
            return false;
        };
        if !first.as_encoded_bytes().starts_with(b".") {
            return false;
        }
        let top = home.join(first);
        if !self.there.contains(&top) {
            return true;
        }
        self.hidden.contains(&top) && !self.seen.iter().any(|seen| path.starts_with(seen))
    }
}

/// Folders of the machine, to which links of many homes lead. No program keeps anything of a user
/// in them or below.
const OF_THE_MACHINE: &str =
    "/bin /boot /dev /etc /gnu /lib /lib32 /lib64 /nix /opt /proc /run /sbin /snap /sys /usr";

/// The same, but something of a user can lie below.
const AROUND: &str = "/ /home /media /mnt /root /srv /tmp /var /var/lib /var/tmp";

/// Returns where a dot file or dot folder lies. None if it is a link to something that need not be
/// hidden: a folder of the machine, one in which the home or something needed lies, or one in which
/// teammates work.
fn real(
    path: &Path,
    is_link: bool,
    (home, needed): (&Path, &[PathBuf]),
    places: &CommandPlaces,
) -> Option<PathBuf> {
    if !is_link {
        return Some(path.to_owned());
    }
    // A command can have made it: to hide what it leads to would take that from all teammates.
    if places.territory.iter().any(|above| path.starts_with(above)) {
        return None;
    }
    let real = path.canonicalize().ok()?;
    if places.is_writable(&real)
        || places.workspace.path.starts_with(&real)
        || home.starts_with(&real)
    {
        return None;
    }
    if real.starts_with(home) {
        return Some(real);
    }
    let is_of_the_machine = OF_THE_MACHINE
        .split_whitespace()
        .any(|it| real.starts_with(it))
        || AROUND.split_whitespace().any(|it| real == Path::new(it));
    let mut kept = needed
        .iter()
        .chain(&places.homes)
        .chain(&places.programs)
        .chain(&places.seen.tools);
    let is_needed =
        kept.any(|it| it.starts_with(&real)) || needed.iter().any(|it| real.starts_with(it));
    (!is_of_the_machine && !is_needed).then_some(real)
}

/// Returns where links of the user lead from what is seen, within the home: what lies there can be
/// hidden by its own name. What is secret stays hidden.
fn target_of_seen(link: &Path, home: &Path, places: &CommandPlaces) -> Option<PathBuf> {
    let real = places.users_path(link)?.path;
    let is_secret = places
        .secrets
        .paths()
        .ok()?
        .iter()
        .any(|secret| real.starts_with(secret));
    (real.starts_with(home) && real != home && !is_secret).then_some(real)
}

/// Returns what is seen of a folder that is there.
fn parts(real: &Path, name: &OsStr) -> Vec<PathBuf> {
    let there = names_in(real);
    let mut again: Vec<(&Path, HashSet<OsString>)> = Vec::new();
    for split in SPLIT_AGAIN.iter().map(Path::new) {
        if let Ok(split) = split.strip_prefix(name)
            && there.contains(split.as_os_str())
        {
            again.push((split, names_in(&real.join(split))));
        }
    }
    let own = PARTS
        .split_whitespace()
        .filter_map(|part| Path::new(part).strip_prefix(name).ok());
    own.filter(|part| {
        let mut names = part.components().map(Component::as_os_str);
        let first = names.next().unwrap_or_default();
        let second = names.next();
        let split = again.iter().find(|(split, _)| split.as_os_str() == first);
        match split.zip(second) {
            Some(((_, there), second)) => there.contains(second),
            None => there.contains(first),
        }
    })
    .map(|part| real.join(part))
    .collect()
}

/// Returns the names in a folder; none if it cannot be listed.
fn names_in(folder: &Path) -> HashSet<OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect()
}

/// Returns the folder of each tool of an environment that lies in a dot folder of a home.
pub(super) fn tools(environment: &Environment, homes: &[PathBuf]) -> Vec<PathBuf> {
    let variables = ["PATH"]
        .into_iter()
        .chain(TOOL_VARIABLES.split_whitespace());
    let mut tools = Vec::new();
    for value in variables.filter_map(|variable| environment.path(variable)) {
        for path in std::env::split_paths(&value) {
            tools.extend(homes.iter().filter_map(|home| folder_of_tool(&path, home)));
        }
    }
    tools.sort();
    tools.dedup();
    tools
}

fn folder_of_tool(path: &Path, home: &Path) -> Option<PathBuf> {
    let below: Vec<_> = path.strip_prefix(home).ok()?.components().collect();
    let Component::Normal(first) = below.first()? else {
        return None;
    };
    if !first.as_encoded_bytes().starts_with(b".") || below.contains(&Component::ParentDir) {
        return None;
    }
    let mut splits = SPLIT_AGAIN.iter().chain(&SPLIT);
    let split = splits.find(|split| path.starts_with(home.join(split)));
    let depth = split.map_or(1, |split| split.split('/').count() + 1);
    // A split folder as a whole belongs to no tool.
    (below.len() >= depth).then(|| home.join(below[..depth].iter().collect::<PathBuf>()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test writes plain files")]
mod tests {
    use super::*;
    use crate::Place;
    use std::os::unix::fs::symlink;

    fn scratch(folders: &[&str]) -> (tempfile::TempDir, PathBuf) {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        for folder in folders {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        (scratch, root)
    }

    fn looked(root: &Path, workspace: &str, needed: &[&str]) -> (Vec<String>, Vec<String>) {
        let workspace = Place::of_this_call(root.join(workspace));
        let places = CommandPlaces {
            homes: vec![root.join("home")],
            workspace,
            ..CommandPlaces::default()
        };
        let needed: Vec<_> = needed.iter().map(|path| root.join(path)).collect();
        let home = Home::look(&places, &needed);
        let near = |paths: Vec<PathBuf>| {
            let near = paths.iter().map(|path| {
                path.strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            });
            let mut near: Vec<_> = near.collect();
            near.sort();
            near
        };
        (near(home.hidden.into_iter().collect()), near(home.seen))
    }

    #[test]
    fn what_no_tool_needs_of_a_home_is_hidden_whatever_it_is_called() {
        let folders = [
            "home/.cargo",
            "home/.android",
            "home/.config/git",
            "home/.config/turso",
            "home/.local/share/mkcert",
            "home/.local/share/pnpm",
            "home/.local/bin",
            "home/.cache/thumbnails",
            "home/snap/gh",
            "home/web",
            "work",
        ];
        let (_scratch, root) = scratch(&folders);
        fs::write(root.join("home/.snow"), "x").unwrap();
        let hidden = [
            "home/.android",
            "home/.cache",
            "home/.config",
            "home/.local",
            "home/.snow",
            "home/snap",
        ];
        let seen = [
            "home/.config/git",
            "home/.local/bin",
            "home/.local/share/pnpm",
        ];
        for workspace in ["work", "home/web"] {
            let (now_hidden, now_seen) = looked(&root, workspace, &[]);
            assert_eq!(
                (now_hidden, now_seen),
                (
                    hidden.map(str::to_owned).into(),
                    seen.map(str::to_owned).into()
                )
            );
        }
        assert_eq!(
            looked(&root, "home", &[]),
            (Vec::new(), Vec::new()),
            "it works there"
        );
    }

    #[test]
    fn what_is_needed_is_seen_and_what_lies_beside_it_is_not() {
        let (_scratch, root) = scratch(&[
            "home/.config/app/x",
            "home/.dotfiles/keys",
            "home/.tool/bin",
            "home/.other",
        ]);
        let (hidden, seen) = looked(
            &root,
            "home/.dotfiles",
            &["home/.dotfiles", "home/.config/app", "home/.tool"],
        );
        assert_eq!(hidden, ["home/.config", "home/.other"]);
        assert_eq!(seen, ["home/.config/app"]);
    }

    #[test]
    fn a_link_is_followed_within_the_home_and_not_to_what_is_needed() {
        let (_scratch, root) = scratch(&["home/dot/app", "home/web", "system", "work"]);
        for (to, from) in [
            ("dot/app", ".app"),
            (".", ".all"),
            ("web", ".web"),
            ("gone", ".gone"),
        ] {
            symlink(to, root.join("home").join(from)).unwrap();
        }
        symlink(root.join("system"), root.join("home/.system")).unwrap();
        symlink("/dev/null", root.join("home/.none")).unwrap();
        assert_eq!(looked(&root, "home/web", &[]).0, ["home/dot/app", "system"]);
        assert_eq!(
            looked(&root, "work", &[]).0,
            ["home/dot/app", "home/web", "system"]
        );
        for needed in ["system", "system/below"] {
            assert_eq!(
                looked(&root, "work", &[needed]).0,
                ["home/dot/app", "home/web"],
                "{needed}"
            );
        }
    }

    #[test]
    fn what_is_seen_is_seen_where_a_link_of_the_user_leads_but_no_secret_is() {
        let (_scratch, root) = scratch(&[
            "home/.dotfiles/cargo",
            "home/.dotfiles/keys",
            "home/.ssh",
            "work",
        ]);
        fs::write(root.join("home/.dotfiles/gitconfig"), "x").unwrap();
        fs::write(root.join("home/.ssh/id"), "x").unwrap();
        for (to, from) in [
            (".dotfiles/gitconfig", ".gitconfig"),
            (".dotfiles/cargo", ".cargo"),
            (".ssh/id", ".profile"),
        ] {
            symlink(to, root.join("home").join(from)).unwrap();
        }
        let places = CommandPlaces {
            homes: vec![root.join("home")],
            workspace: Place::of_this_call(root.join("work")),
            secrets: vec![root.join("home/.ssh")].into(),
            ..CommandPlaces::default()
        };
        let seen = |places: &CommandPlaces| {
            let mut seen = Home::look(places, &[]).seen;
            seen.sort();
            seen
        };
        let both = ["home/.dotfiles/cargo", "home/.dotfiles/gitconfig"].map(|path| root.join(path));
        assert_eq!(seen(&places), both);
        let theirs = CommandPlaces {
            territory: vec![root.join("home")],
            ..places
        };
        assert!(seen(&theirs).is_empty(), "a command can have made them");
    }

    #[test]
    fn a_link_that_a_command_has_put_behind_one_of_the_user_shows_nothing() {
        let (_scratch, root) = scratch(&["home/.dotfiles", "home/.amp", "once", "work"]);
        fs::write(root.join("home/.amp/key"), "x").unwrap();
        symlink(".dotfiles/gitconfig", root.join("home/.gitconfig")).unwrap();
        symlink("../.amp/key", root.join("home/.dotfiles/gitconfig")).unwrap();
        symlink(root.join("once/profile"), root.join("home/.profile")).unwrap();
        symlink(root.join("home/.amp/key"), root.join("once/profile")).unwrap();
        let places = CommandPlaces {
            homes: vec![root.join("home")],
            workspace: Place::of_this_call(root.join("home/.dotfiles")),
            territory: vec![root.join("once")],
            ..CommandPlaces::default()
        };
        assert_eq!(Home::look(&places, &[]).seen, [""; 0].map(PathBuf::from));
    }

    #[test]
    fn the_folder_of_each_tool_of_the_environment_is_known() {
        let mut environment = Environment::default();
        environment.set(
            "PATH",
            "/usr/bin:/h/.deno2/bin:/h/.local/share/tool/bin:/h/bin:/h/.local/x:/h/.config:/h/.a/../b",
        );
        environment.set("GOPATH", "/h/.gopath");
        let tools = tools(&environment, &["/h".into()]);
        assert_eq!(
            tools,
            [
                "/h/.deno2",
                "/h/.gopath",
                "/h/.local/share/tool",
                "/h/.local/x"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn each_part_lies_in_a_folder_that_is_split_and_each_name_stands_once() {
        for part in PARTS.split_whitespace() {
            assert!(
                SPLIT
                    .iter()
                    .any(|split| Path::new(part).starts_with(split) && part != *split),
                "{part}"
            );
        }
        let mut all: Vec<_> = SEEN
            .split_whitespace()
            .chain(PARTS.split_whitespace())
            .collect();
        assert!(
            SEEN.split_whitespace()
                .all(|name| name.starts_with('.') && !name.contains('/'))
        );
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
