//! The caches of toolchains, which `--caches` lets commands write: what tools download and build, never a folder of programs.
//!
//! Not listed is what a tool runs out of its own cache: `npx`, `uvx`, virtual environments, toolchains.

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::control::{Refusal, RefusalCode};
use crate::environment::Environment;

/// Each tool, where its folder is (the first place that can be named counts), and what in it is a cache: folders end in `/`,
/// and nothing means all of it. `docs/sandbox.md` has the same list.
const OF_TOOLS: [(&str, &str, &str); 14] = [
    ("cargo", "CARGO_HOME ~/.cargo", "registry/ git/ .package-cache"),
    ("npm", "npm_config_cache ~/.npm", "_cacache/ _logs/"),
    ("yarn", "YARN_CACHE_FOLDER XDG_CACHE_HOME/yarn ~/.cache/yarn", "/"),
    ("pnpm", "PNPM_HOME XDG_DATA_HOME/pnpm ~/.local/share/pnpm", "store/"),
    ("bun", "BUN_INSTALL_CACHE_DIR ~/.bun/install/cache", "/"),
    ("pip", "PIP_CACHE_DIR XDG_CACHE_HOME/pip ~/.cache/pip", "/"),
    ("poetry", "POETRY_CACHE_DIR XDG_CACHE_HOME/pypoetry ~/.cache/pypoetry", "cache/ artifacts/"),
    ("go", "GOCACHE XDG_CACHE_HOME/go-build ~/.cache/go-build", "/"),
    ("go", "GOMODCACHE GOPATH/pkg/mod ~/go/pkg/mod", "/"),
    ("mvn", "~/.m2", "repository/"),
    ("gradle", "GRADLE_USER_HOME ~/.gradle", "caches/"),
    ("composer", "COMPOSER_CACHE_DIR XDG_CACHE_HOME/composer ~/.cache/composer", "/"),
    ("ccache", "CCACHE_DIR XDG_CACHE_HOME/ccache ~/.cache/ccache", "/"),
    ("sccache", "SCCACHE_DIR XDG_CACHE_HOME/sccache ~/.cache/sccache", "/"),
];

/// Where Go keeps toolchains in its cache of modules, and how their names begin.
const TOOLCHAINS_OF_GO: (&str, &str) = ("golang.org", "toolchain@");

/// Returns the caches that are there. Of a tool on the PATH the missing folders are made first: its own first run could not,
/// from inside the sandbox.
///
/// # Errors
/// A folder that cannot be made.
pub(super) fn caches(environment: &Environment) -> Result<Vec<String>, Refusal> {
    let path = environment.path("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let mut found = Vec::new();
    for (tool, places, names) in OF_TOOLS {
        let is_used = programs.iter().any(|folder| access(folder.join(tool), Access::EXEC_OK).is_ok());
        let Some(folder) = places.split(' ').find_map(|place| named(place, environment)) else { continue };
        for name in names.split(' ') {
            let cache: PathBuf = folder.join(name.trim_matches('/')).components().collect();
            if is_used && name.ends_with('/') && !cache.exists() {
                create_dir_all(&cache).map_err(|error| cannot_make(&cache, &error))?;
            }
            let holds_programs =
                programs.iter().any(|folder| folder.starts_with(&cache)) || has_toolchain(&cache);
            if cache.exists() && !holds_programs {
                found.extend(cache.into_os_string().into_string());
            }
        }
    }
    Ok(found)
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
    let entries = cache.join(folder).read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with(begins))
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
        variables.iter().for_each(|(name, value)| environment.set(name, &value.replace('~', home)));
        let found = caches(&environment).unwrap();
        found.iter().map(|path| path.strip_prefix(home).unwrap().trim_start_matches('/').to_owned()).collect()
    }

    #[test]
    fn caches_are_those_that_are_there_and_those_of_tools_on_the_path() {
        assert_eq!(in_home(&[".cargo/bin"], &[], &[]), Vec::<String>::new());
        assert_eq!(in_home(&[".cargo/registry", ".cargo/bin"], &[], &[]), [".cargo/registry"]);
        assert_eq!(
            in_home(&[], &["cargo", "npm"], &[]),
            [".cargo/registry", ".cargo/git", ".npm/_cacache", ".npm/_logs"]
        );
    }

    #[test]
    fn variables_say_where_caches_are() {
        let folders = ["c/registry", ".cargo/registry", "x/pip", ".cache/pip", "g/pkg/mod", "h/pkg/mod"];
        let variables =
            [("CARGO_HOME", "~/c"), ("XDG_CACHE_HOME", "~/x"), ("GOPATH", "~/g:~/h"), ("GOCACHE", "off")];
        assert_eq!(in_home(&folders, &[], &variables), ["c/registry", "x/pip", "g/pkg/mod"]);
    }

    #[test]
    fn a_folder_with_programs_is_not_a_cache() {
        let folders =
            [".local/bin", "go/pkg/mod/golang.org/toolchain@v0.0.1-go1.24.0.linux-amd64", ".npm/_npx"];
        assert_eq!(
            in_home(&folders, &[], &[("PIP_CACHE_DIR", "~/.local"), ("GOCACHE", "~")]),
            Vec::<String>::new()
        );
        assert_eq!(in_home(&["go/pkg/mod/golang.org/x"], &[], &[]), ["go/pkg/mod"]);
    }
}
