//! The caches of tools: what they download and build. `--caches` lets commands write the user's
//! caches, but never a folder of programs: a tool may run programs from its own cache (`npx`,
//! `uvx`, virtual environments, toolchains). Without `--caches` commands have caches of their own
//! (`private`).

mod private;

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

pub use private::PrivateCaches;

use crate::control::{Refusal, RefusalCode};
use crate::environment::Environment;

/// What stands for the caches of a host among the paths that a teammate there may write: that host
/// knows where they are.
pub const OF_HOST: &str = "--caches";

/// A tool, and where it keeps what it could get or make again.
struct CachingTool {
    /// Its program.
    program: &'static str,
    /// Where its folder is: the first place that can be named counts.
    places: &'static str,
    /// The parts of it that `--caches` lets commands write: folders end in `/`, and `/` alone means
    /// all of it.
    shared: &'static str,
    /// What commands that may not write there have instead.
    own: PrivateCache,
}

/// What replaces a cache that may not be written. Each variant names the variable that tells the
/// tool.
#[derive(Clone, Copy)]
enum PrivateCache {
    /// Nothing: the tool reads what is there.
    Left,
    /// The user's, to be read, if it is there.
    Read(&'static str),
    /// The user's, to be read, if it is there; else an empty one.
    ReadOrNew(&'static str),
    /// An empty one.
    New(&'static str),
    /// One that begins as a copy of the user's.
    Copied(&'static str),
}

const fn tool(
    program: &'static str,
    places: &'static str,
    shared: &'static str,
    own: PrivateCache,
) -> CachingTool {
    CachingTool {
        program,
        places,
        shared,
        own,
    }
}

/// The caches of tools. A tool that is not listed and honours `XDG_CACHE_HOME` has an empty one.
/// `docs/sandbox.md` has the same list.
const OF_TOOLS: [CachingTool; 34] = [
    tool(
        "cargo",
        "CARGO_HOME ~/.cargo",
        "registry/ git/ .package-cache",
        PrivateCache::Left,
    ),
    tool(
        "npm",
        "npm_config_cache ~/.npm",
        "_cacache/ _logs/",
        PrivateCache::Copied("npm_config_cache"),
    ),
    tool(
        "corepack",
        "COREPACK_HOME XDG_CACHE_HOME/node/corepack ~/.cache/node/corepack",
        "",
        PrivateCache::Copied("COREPACK_HOME"),
    ),
    tool(
        "yarn",
        "YARN_CACHE_FOLDER XDG_CACHE_HOME/yarn ~/.cache/yarn",
        "/",
        PrivateCache::Copied("YARN_CACHE_FOLDER"),
    ),
    tool(
        "yarn-berry",
        "YARN_GLOBAL_FOLDER ~/.yarn/berry",
        "",
        PrivateCache::Copied("YARN_GLOBAL_FOLDER"),
    ),
    tool(
        "pnpm",
        "PNPM_HOME XDG_DATA_HOME/pnpm ~/.local/share/pnpm",
        "store/",
        PrivateCache::New("PNPM_HOME"),
    ),
    tool(
        "bun",
        "BUN_INSTALL_CACHE_DIR ~/.bun/install/cache",
        "/",
        PrivateCache::Copied("BUN_INSTALL_CACHE_DIR"),
    ),
    tool(
        "deno",
        "DENO_DIR XDG_CACHE_HOME/deno ~/.cache/deno",
        "",
        PrivateCache::Copied("DENO_DIR"),
    ),
    tool(
        "playwright",
        "PLAYWRIGHT_BROWSERS_PATH XDG_CACHE_HOME/ms-playwright ~/.cache/ms-playwright",
        "",
        PrivateCache::Read("PLAYWRIGHT_BROWSERS_PATH"),
    ),
    tool(
        "puppeteer",
        "PUPPETEER_CACHE_DIR ~/.cache/puppeteer",
        "",
        PrivateCache::Read("PUPPETEER_CACHE_DIR"),
    ),
    tool(
        "cypress",
        "CYPRESS_CACHE_FOLDER XDG_CACHE_HOME/Cypress ~/.cache/Cypress",
        "",
        PrivateCache::Read("CYPRESS_CACHE_FOLDER"),
    ),
    tool(
        "pip",
        "PIP_CACHE_DIR XDG_CACHE_HOME/pip ~/.cache/pip",
        "/",
        PrivateCache::Copied("PIP_CACHE_DIR"),
    ),
    tool(
        "uv",
        "UV_CACHE_DIR XDG_CACHE_HOME/uv ~/.cache/uv",
        "",
        PrivateCache::Copied("UV_CACHE_DIR"),
    ),
    tool(
        "poetry",
        "POETRY_CACHE_DIR XDG_CACHE_HOME/pypoetry ~/.cache/pypoetry",
        "cache/ artifacts/",
        PrivateCache::New("POETRY_CACHE_DIR"),
    ),
    tool(
        "pipenv",
        "PIPENV_CACHE_DIR XDG_CACHE_HOME/pipenv ~/.cache/pipenv",
        "",
        PrivateCache::New("PIPENV_CACHE_DIR"),
    ),
    tool(
        "pdm",
        "PDM_CACHE_DIR XDG_CACHE_HOME/pdm ~/.cache/pdm",
        "",
        PrivateCache::Copied("PDM_CACHE_DIR"),
    ),
    tool(
        "pre-commit",
        "PRE_COMMIT_HOME XDG_CACHE_HOME/pre-commit ~/.cache/pre-commit",
        "",
        PrivateCache::Copied("PRE_COMMIT_HOME"),
    ),
    tool(
        "matplotlib",
        "MPLCONFIGDIR XDG_CONFIG_HOME/matplotlib ~/.config/matplotlib",
        "",
        PrivateCache::New("MPLCONFIGDIR"),
    ),
    tool(
        "huggingface",
        "HF_HOME XDG_CACHE_HOME/huggingface ~/.cache/huggingface",
        "",
        PrivateCache::Read("HF_HOME"),
    ),
    tool(
        "torch",
        "TORCH_HOME XDG_CACHE_HOME/torch ~/.cache/torch",
        "",
        PrivateCache::Read("TORCH_HOME"),
    ),
    tool(
        "go",
        "GOCACHE XDG_CACHE_HOME/go-build ~/.cache/go-build",
        "/",
        PrivateCache::New("GOCACHE"),
    ),
    tool(
        "go",
        "GOMODCACHE GOPATH/pkg/mod ~/go/pkg/mod",
        "/",
        PrivateCache::ReadOrNew("GOMODCACHE"),
    ),
    tool("mvn", "~/.m2", "repository/", PrivateCache::Left),
    tool(
        "gradle",
        "GRADLE_USER_HOME ~/.gradle",
        "caches/",
        PrivateCache::New("GRADLE_USER_HOME"),
    ),
    tool(
        "gradle",
        "GRADLE_RO_DEP_CACHE ~/.gradle/caches",
        "",
        PrivateCache::Read("GRADLE_RO_DEP_CACHE"),
    ),
    tool(
        "nuget",
        "NUGET_PACKAGES ~/.nuget/packages",
        "",
        PrivateCache::New("NUGET_PACKAGES"),
    ),
    tool(
        "nuget",
        "NUGET_FALLBACK_PACKAGES ~/.nuget/packages",
        "",
        PrivateCache::Read("NUGET_FALLBACK_PACKAGES"),
    ),
    tool(
        "dotnet",
        "DOTNET_CLI_HOME ~/.dotnet",
        "",
        PrivateCache::New("DOTNET_CLI_HOME"),
    ),
    tool(
        "composer",
        "COMPOSER_CACHE_DIR XDG_CACHE_HOME/composer ~/.cache/composer",
        "/",
        PrivateCache::Copied("COMPOSER_CACHE_DIR"),
    ),
    tool(
        "bundle",
        "BUNDLE_USER_CACHE ~/.bundle/cache",
        "",
        PrivateCache::Copied("BUNDLE_USER_CACHE"),
    ),
    tool(
        "dart",
        "PUB_CACHE ~/.pub-cache",
        "",
        PrivateCache::ReadOrNew("PUB_CACHE"),
    ),
    tool(
        "bazelisk",
        "BAZELISK_HOME XDG_CACHE_HOME/bazelisk ~/.cache/bazelisk",
        "",
        PrivateCache::Read("BAZELISK_HOME"),
    ),
    tool(
        "ccache",
        "CCACHE_DIR XDG_CACHE_HOME/ccache ~/.cache/ccache",
        "/",
        PrivateCache::New("CCACHE_DIR"),
    ),
    tool(
        "sccache",
        "SCCACHE_DIR XDG_CACHE_HOME/sccache ~/.cache/sccache",
        "/",
        PrivateCache::New("SCCACHE_DIR"),
    ),
];

/// Where Go keeps toolchains in its cache of modules, and how their names begin.
const TOOLCHAINS_OF_GO: (&str, &str) = ("golang.org", "toolchain@");

/// Returns the caches that exist. Missing folders of a tool on the PATH are made first, because its
/// own first run could not make them from inside the sandbox.
///
/// # Errors
/// A folder that cannot be made.
pub fn caches(environment: &Environment) -> Result<Vec<String>, Refusal> {
    let path = environment.path("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .collect();
    let mut writable = Vec::new();
    for CachingTool {
        program,
        places,
        shared,
        ..
    } in OF_TOOLS
    {
        let is_used = programs
            .iter()
            .any(|folder| access(folder.join(program), Access::EXEC_OK).is_ok());
        let Some(folder) = named_first(places, environment) else {
            continue;
        };
        for name in shared.split(' ').filter(|name| !name.is_empty()) {
            let cache: PathBuf = folder.join(name.trim_matches('/')).components().collect();
            if is_used && name.ends_with('/') && !cache.exists() {
                create_dir_all(&cache).map_err(|error| cannot_make(&cache, &error))?;
            }
            let holds_programs =
                programs.iter().any(|folder| folder.starts_with(&cache)) || has_toolchain(&cache);
            if cache.exists() && !holds_programs {
                writable.extend(cache.into_os_string().into_string());
            }
        }
    }
    Ok(writable)
}

/// Returns the first folder of several places that can be named.
fn named_first(places: &str, environment: &Environment) -> Option<PathBuf> {
    places
        .split(' ')
        .find_map(|place| named(place, environment))
}

/// Returns the folder that is named: below the home directory (`~`), or below what a variable says.
fn named(place: &str, environment: &Environment) -> Option<PathBuf> {
    let (variable, below) = place.split_once('/').unwrap_or((place, ""));
    let above = environment.path(if variable == "~" { "HOME" } else { variable })?;
    let first = std::env::split_paths(&above).next()?;
    first.is_absolute().then(|| first.join(below))
}

fn has_toolchain(cache: &Path) -> bool {
    let (folder, begins) = TOOLCHAINS_OF_GO;
    let entries = cache
        .join(folder)
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().starts_with(begins))
}

fn cannot_make(cache: &Path, error: &std::io::Error) -> Refusal {
    let why = format!("cannot make the cache {}: {error}", cache.display());
    Refusal::new(RefusalCode::Failed, why)
        .hint("name what may be written with --writable, and leave out --caches")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A home with some folders, and the caches in it by their paths from there.
    fn in_home(folders: &[&str], tools: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path().to_str().unwrap();
        for folder in folders {
            create_dir_all(scratch.path().join(folder)).unwrap();
        }
        create_dir_all(scratch.path().join("bin")).unwrap();
        for tool in tools {
            let program = scratch.path().join("bin").join(tool);
            fs::File::create(&program).unwrap();
            fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
        }
        let mut environment = Environment::default();
        environment.set("HOME", home);
        environment.set("PATH", &format!("bin:{home}/bin:{home}/.local/bin"));
        for (name, value) in variables.iter() {
            environment.set(name, &value.replace('~', home));
        }
        let found = caches(&environment).unwrap();
        found
            .iter()
            .map(|path| {
                path.strip_prefix(home)
                    .unwrap()
                    .trim_start_matches('/')
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn caches_are_those_that_are_there_and_those_of_tools_on_the_path() {
        assert_eq!(in_home(&[".cargo/bin"], &[], &[]), Vec::<String>::new());
        assert_eq!(
            in_home(&[".cargo/registry", ".cargo/bin"], &[], &[]),
            [".cargo/registry"]
        );
        assert_eq!(
            in_home(&[], &["cargo", "npm"], &[]),
            [
                ".cargo/registry",
                ".cargo/git",
                ".npm/_cacache",
                ".npm/_logs"
            ]
        );
    }

    #[test]
    fn variables_say_where_caches_are() {
        let folders = [
            "c/registry",
            ".cargo/registry",
            "x/pip",
            ".cache/pip",
            "g/pkg/mod",
            "h/pkg/mod",
        ];
        let variables = [
            ("CARGO_HOME", "~/c"),
            ("XDG_CACHE_HOME", "~/x"),
            ("GOPATH", "~/g:~/h"),
            ("GOCACHE", "off"),
        ];
        assert_eq!(
            in_home(&folders, &[], &variables),
            ["c/registry", "x/pip", "g/pkg/mod"]
        );
    }

    #[test]
    fn a_folder_with_programs_is_not_a_cache() {
        let folders = [
            ".local/bin",
            "go/pkg/mod/golang.org/toolchain@v0.0.1-go1.24.0.linux-amd64",
            ".npm/_npx",
        ];
        assert_eq!(
            in_home(
                &folders,
                &[],
                &[("PIP_CACHE_DIR", "~/.local"), ("GOCACHE", "~")]
            ),
            Vec::<String>::new()
        );
        assert_eq!(
            in_home(&["go/pkg/mod/golang.org/x"], &[], &[]),
            ["go/pkg/mod"]
        );
    }
}
