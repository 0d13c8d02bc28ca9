//! The caches of commands that may not write the user's: each tool gets its own variable, all
//! others get `XDG_CACHE_HOME`. The user's caches are never written: some are read where they are,
//! and some are copied first.

use std::path::{Path, PathBuf};

use super::{CachingTool, OF_TOOLS, PrivateCache, named, named_first};
use crate::environment::Environment;

/// The variable that most tools without one of their own honour, and its default place.
const GENERAL: (&str, &str) = ("XDG_CACHE_HOME", "XDG_CACHE_HOME ~/.cache");

/// How tools find caches that they may write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrivateCaches {
    /// The variables that are set for them, and their values.
    pub variables: Vec<(&'static str, PathBuf)>,
    /// The caches of the user that are copied first, and where to.
    pub copies: Vec<(PathBuf, PathBuf)>,
}

impl PrivateCaches {
    /// Plans the caches of commands below a directory, which may also write these paths.
    pub fn plan(environment: &Environment, writable: &[String], at: &Path) -> Self {
        let is_writable = |path: &Path| writable.iter().any(|it| path.starts_with(it));
        let mut caches = Self::default();
        if !named_first(GENERAL.1, environment).is_some_and(|general| is_writable(&general)) {
            caches.variables.push((GENERAL.0, at.to_owned()));
        }
        for tool in &OF_TOOLS {
            caches.add(tool, environment, is_writable, at);
        }
        caches
    }

    fn add(
        &mut self,
        tool: &CachingTool,
        environment: &Environment,
        is_writable: impl Fn(&Path) -> bool,
        at: &Path,
    ) {
        let (PrivateCache::Read(variable)
        | PrivateCache::ReadOrNew(variable)
        | PrivateCache::New(variable)
        | PrivateCache::Copied(variable)) = tool.own
        else {
            return;
        };
        let users = named_first(tool.places, environment);
        let there = users.clone().filter(|users| users.is_dir());
        let is_shared = |users: &PathBuf| {
            let mut shared = tool
                .shared
                .split(' ')
                .map(|name| users.join(name.trim_matches('/')));
            shared.any(|cache| is_writable(&cache))
        };
        if let Some(shared) = there.clone().filter(is_shared) {
            self.variables.push((variable, shared));
            return;
        }
        let own = tool.own_folder(at);
        match (tool.own, there) {
            (PrivateCache::Read(_) | PrivateCache::ReadOrNew(_), Some(users)) => {
                self.variables.push((variable, users))
            }
            (PrivateCache::Read(_) | PrivateCache::Left, _) => {}
            (PrivateCache::ReadOrNew(_) | PrivateCache::New(_), _)
            | (PrivateCache::Copied(_), None) => {
                self.variables.push((variable, own));
            }
            (PrivateCache::Copied(_), Some(users)) => {
                self.copies.push((users, own.clone()));
                self.variables.push((variable, own));
            }
        }
    }
}

impl CachingTool {
    /// Returns where its own cache lies: where it would look for it by itself below
    /// `XDG_CACHE_HOME`.
    fn own_folder(&self, at: &Path) -> PathBuf {
        let mut general = Environment::default();
        general.set(GENERAL.0, &at.to_string_lossy());
        let below = self
            .places
            .split(' ')
            .find(|place| place.starts_with(GENERAL.0))
            .and_then(|place| named(place, &general));
        below.unwrap_or_else(|| at.join(self.program))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(home: &Path, variables: &[(&str, &str)], writable: &[&str]) -> PrivateCaches {
        let mut environment = Environment::default();
        environment.set("HOME", home.to_str().unwrap());
        let in_home = |path: &str| path.replace('~', home.to_str().unwrap());
        for (name, value) in variables.iter() {
            environment.set(name, &in_home(value));
        }
        let writable: Vec<String> = writable.iter().map(|path| in_home(path)).collect();
        PrivateCaches::plan(&environment, &writable, Path::new("/s/cache"))
    }

    fn said(caches: &PrivateCaches, name: &str) -> Option<PathBuf> {
        let mut found = caches.variables.iter().filter(|(known, _)| *known == name);
        let value = found.next().map(|(_, value)| value.clone());
        assert!(found.next().is_none(), "{name} is said twice");
        value
    }

    #[test]
    fn each_tool_finds_a_cache_that_it_may_write_and_the_users_are_read_or_copied() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path();
        for folder in [".cache/uv", ".cache/ms-playwright", "go/pkg/mod", "mine"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        let caches = plan(home, &[("PRE_COMMIT_HOME", "~/mine")], &[]);
        for (name, value) in [
            ("XDG_CACHE_HOME", "/s/cache"),
            ("UV_CACHE_DIR", "/s/cache/uv"),
            ("PRE_COMMIT_HOME", "/s/cache/pre-commit"),
            ("npm_config_cache", "/s/cache/npm"),
            ("GOCACHE", "/s/cache/go-build"),
            ("COREPACK_HOME", "/s/cache/node/corepack"),
        ] {
            assert_eq!(said(&caches, name), Some(PathBuf::from(value)), "{name}");
        }
        assert_eq!(
            said(&caches, "PLAYWRIGHT_BROWSERS_PATH"),
            Some(home.join(".cache/ms-playwright"))
        );
        assert_eq!(said(&caches, "GOMODCACHE"), Some(home.join("go/pkg/mod")));
        assert_eq!(
            (said(&caches, "HF_HOME"), said(&caches, "CARGO_HOME")),
            (None, None)
        );
        let copy = |from: &str, to: &str| (home.join(from), PathBuf::from(to));
        assert_eq!(
            caches.copies,
            [
                copy(".cache/uv", "/s/cache/uv"),
                copy("mine", "/s/cache/pre-commit")
            ]
        );
    }

    #[test]
    fn a_cache_of_the_user_that_may_be_written_is_used() {
        let scratch = tempfile::tempdir().unwrap();
        let home = scratch.path();
        for folder in [".cache/pip", ".npm/_cacache", ".cache/uv"] {
            std::fs::create_dir_all(home.join(folder)).unwrap();
        }
        let caches = plan(home, &[], &["~/.cache/pip", "~/.npm/_cacache"]);
        assert_eq!(
            said(&caches, "PIP_CACHE_DIR"),
            Some(home.join(".cache/pip"))
        );
        assert_eq!(said(&caches, "npm_config_cache"), Some(home.join(".npm")));
        assert_eq!(
            said(&caches, "UV_CACHE_DIR"),
            Some(PathBuf::from("/s/cache/uv"))
        );
        let all = plan(home, &[], &["~"]);
        assert_eq!(
            (said(&all, "XDG_CACHE_HOME"), said(&all, "UV_CACHE_DIR")),
            (None, Some(home.join(".cache/uv")))
        );
        assert!(all.copies.is_empty());
    }
}
