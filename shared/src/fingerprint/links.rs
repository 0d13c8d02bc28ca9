//! Patterns that begin with a symbolic link: what it leads to decides as much as the link.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::{literal_start, open_beneath};

/// How many links are followed for one pattern, as the kernel does: more lead in a circle.
const MOST_LINKS: usize = 40;

/// Returns patterns, and after them those that they become because a link is on the path with which
/// one begins: `tests/**` is also `spec/**` where `tests` leads to `spec`. `target` returns where a
/// link leads. What is outside the tree has no pattern.
///
/// # Errors
/// That of `target`.
pub fn followed(
    of: &[String],
    mut target: impl FnMut(&Path) -> io::Result<Option<PathBuf>>,
) -> io::Result<Vec<String>> {
    let mut all = of.to_vec();
    for pattern in of {
        let mut pattern = pattern.clone();
        for _ in 0..MOST_LINKS {
            let Some(next) = through(&pattern, &mut target)? else {
                break;
            };
            pattern.clone_from(&next);
            if !all.contains(&next) {
                all.push(next);
            }
        }
    }
    Ok(all)
}

/// Returns the paths at which a link would lead elsewhere.
pub fn on_the_way(of: &[String]) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for pattern in of {
        let start = literal_start(pattern);
        all.extend(
            start
                .ancestors()
                .filter(|at| !at.as_os_str().is_empty())
                .map(Path::to_owned),
        );
    }
    all
}

/// Returns what a pattern is behind the first link on the path with which it begins.
fn through(
    pattern: &str,
    target: &mut impl FnMut(&Path) -> io::Result<Option<PathBuf>>,
) -> io::Result<Option<String>> {
    let mut at = PathBuf::new();
    for (number, part) in literal_start(pattern).iter().enumerate() {
        at.push(part);
        let Some(target) = target(&at)? else { continue };
        let Some(base) = led(at.parent().unwrap_or(Path::new("")), &target) else {
            return Ok(None);
        };
        let parts = pattern.split('/').filter(|part| !matches!(*part, "" | "."));
        let rest = parts.skip(number + 1).map(str::to_owned);
        let base = base
            .iter()
            .filter_map(|part| part.to_str())
            .map(globset::escape);
        return Ok(Some(base.chain(rest).collect::<Vec<_>>().join("/")));
    }
    Ok(None)
}

/// Returns where a link in a folder leads; none: outside of the tree.
fn led(folder: &Path, target: &Path) -> Option<PathBuf> {
    let mut at = folder.to_owned();
    for part in target.components() {
        match part {
            Component::Normal(name) => at.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !at.pop() {
                    return None;
                }
            }
            _ => return None,
        }
    }
    at.to_str()?;
    Some(at)
}

/// Returns the target of a link below a directory; an absolute one relative to the directory.
pub(super) fn target_beneath(
    root: BorrowedFd<'_>,
    root_path: &Path,
    at: &Path,
) -> io::Result<Option<PathBuf>> {
    let link = match open_beneath(root, at, OFlags::PATH) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        opened => opened?,
    };
    let target = match rustix::fs::readlinkat(&link, c"", Vec::new()) {
        // It is no link.
        Err(Errno::NOENT | Errno::INVAL) => return Ok(None),
        target => target?,
    };
    let Ok(target) = target.into_string().map(PathBuf::from) else {
        return Ok(None);
    };
    let Ok(inside) = target.strip_prefix(root_path) else {
        return Ok(Some(target));
    };
    let up: PathBuf = at.iter().skip(1).map(|_| "..").collect();
    Ok(Some(up.join(inside)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_begins_with_a_link_is_also_one_of_what_the_link_leads_to() {
        let links = [
            ("tests", "spec"),
            ("link.sh", "./lib/real.sh"),
            ("a/deep", "../b"),
            ("b/more", "../c[1]"),
            ("out", "../outside"),
            ("circle", "circle/x"),
            ("one", "two"),
            ("two", "one"),
        ];
        let of = |pattern: &str| {
            followed(&[pattern.to_owned()], |at| {
                let found = links.iter().find(|(link, _)| Path::new(link) == at);
                Ok(found.map(|(_, target)| PathBuf::from(target)))
            })
            .unwrap()[1..]
                .to_vec()
        };
        assert_eq!(of("tests/**"), ["spec/**"]);
        assert_eq!(of("./tests//*.sh"), ["spec/*.sh"]);
        assert_eq!(of("link.sh"), ["lib/real.sh"]);
        assert_eq!(of("a/deep/more/**"), ["b/more/**", "c[[]1[]]/**"]);
        assert_eq!(of("one/x"), ["two/x", "one/x"][..1]);
        for alone in ["out/**", "**/*.sh", "spec/**"] {
            assert!(of(alone).is_empty(), "{alone}");
        }
        assert_eq!(of("circle/y").len(), MOST_LINKS);
    }
}
