//! Trust: which keys of a `team.toml` count although they widen what a team may do.
//!
//! The file may have come with a repository, or from a tool. So such keys count only when the user has trusted them: these
//! keys with these values, of this file. The store has a file `trust/HASH.json` for each `team.toml`, by its path, in
//! the state directory ([`crate::state`] says who writes it and who reads it). It holds the keys themselves and no hash of
//! them: nothing else can be made to look like them, and a person can see what was trusted.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::member::{ApproveBy, SandboxMode, TermsPatch};
use crate::state::{StateDir, StateError, name_of};
use crate::team_file::{TeamFile, is_built_in};

/// The folder of the store.
const FOLDER: &str = "trust";

/// What an entry says.
#[derive(Debug, Serialize, Deserialize)]
struct TrustEntry {
    /// Where the file is named, without links on the way to it.
    path: PathBuf,
    /// Where it lies: the two differ where it is a link itself.
    real: PathBuf,
    /// What was trusted: one line for each key, or for each value of a list.
    keys: BTreeSet<String>,
}

/// The keys of a file that need trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widening {
    /// Where the file is named, and where it lies; none where there is none.
    path: Option<(PathBuf, PathBuf)>,
    /// One line for each, `key = value`, with absolute paths.
    keys: BTreeSet<String>,
}

impl Widening {
    /// Finds them.
    ///
    /// # Errors
    /// [`StateError`] if the file is gone.
    pub fn of(file: &TeamFile) -> Result<Self, StateError> {
        let keys = widening(file);
        // A command can put a link to a trusted file in the place of this one: both paths count.
        let find = |path: &Path| path.canonicalize().map_err(StateError::io("find", path));
        let both = || {
            let above = file.path.parent().filter(|above| !above.as_os_str().is_empty());
            let named =
                find(above.unwrap_or(Path::new(".")))?.join(file.path.file_name().unwrap_or_default());
            Ok::<_, StateError>((named, find(&file.path)?))
        };
        let path = if keys.is_empty() && file.path.as_os_str().is_empty() { None } else { Some(both()?) };
        Ok(Self { path, keys })
    }

    /// Returns the file, without links; none if there is none.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_ref().map(|(named, _)| named.as_path())
    }

    /// Returns the keys, one line each.
    pub fn keys(&self) -> &BTreeSet<String> {
        &self.keys
    }

    /// Returns those that the user has not trusted.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be read: then none is.
    pub fn untrusted(&self, state: &StateDir) -> Result<Vec<String>, StateError> {
        if self.keys.is_empty() {
            return Ok(Vec::new());
        }
        let trusted = self.trusted(state)?;
        Ok(self.keys.difference(&trusted).cloned().collect())
    }

    /// Returns what the user has trusted of this file, whether it still says so or not.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be read.
    pub fn trusted(&self, state: &StateDir) -> Result<BTreeSet<String>, StateError> {
        let Some((path, real)) = &self.path else { return Ok(BTreeSet::new()) };
        let entry = state.read::<TrustEntry>(FOLDER, &name(path))?;
        let entry = entry.filter(|entry| (&entry.path, &entry.real) == (path, real));
        Ok(entry.map(|entry| entry.keys).unwrap_or_default())
    }

    /// Trusts them, and nothing else of this file.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be written.
    pub fn trust(&self, state: &StateDir) -> Result<(), StateError> {
        let Some((path, real)) = &self.path else { return Ok(()) };
        let entry = TrustEntry { path: path.clone(), real: real.clone(), keys: self.keys.clone() };
        state.put(FOLDER, &name(path), &entry)
    }

    /// Takes back what was trusted of this file; tells whether anything was.
    ///
    /// # Errors
    /// [`StateError`] if the store cannot be written.
    pub fn revoke(&self, state: &StateDir) -> Result<bool, StateError> {
        let Some((path, _)) = &self.path else { return Ok(false) };
        state.remove(FOLDER, &name(path))
    }
}

fn name(path: &Path) -> String {
    format!("{}.json", name_of(path))
}

/// Returns the keys that widen, or run a command.
fn widening(file: &TeamFile) -> BTreeSet<String> {
    let mut keys = BTreeSet::new();
    let top = [&file.team];
    // A member can have any role: what one of them forbids is forbidden.
    let above_members: Vec<&TermsPatch> = top.into_iter().chain(file.roles.values()).collect();
    add_table(&mut keys, "", (&file.team, &[]), &file.path);
    add_table(&mut keys, "lead.", (&file.lead, &top), &file.path);
    for (name, role) in &file.roles {
        add_table(&mut keys, &format!("roles.{name:?}."), (role, &top), &file.path);
    }
    for (name, member) in &file.members {
        add_table(&mut keys, &format!("members.{name}."), (member, &above_members), &file.path);
    }
    // What decides whether work is done is not for a teammate to choose.
    let work = &file.settings.work;
    keys.extend(work.check.iter().map(|command| format!("work.check = {command:?}")));
    if work.check_network {
        keys.insert("work.check_network = true".to_owned());
    }
    let settings = &file.settings;
    keys.extend(settings.checkout.setup.iter().map(|command| format!("checkout.setup = {command:?}")));
    let checkouts = settings.checkouts.as_deref().and_then(|at| outside(&file.path, Path::new(at)));
    keys.extend(checkouts.map(|at| format!("checkouts = {at:?}")));
    keys.extend(file.agents.iter().map(|(name, agent)| agent.trust_key(name)));
    // It decides which servers are believed to be a model's service, and what such a server says, a model says.
    if let Some(ca) = file.service.ca.as_deref().filter(|ca| !is_built_in(ca)) {
        keys.insert(format!("service.ca = {ca:?}"));
    }
    keys
}

/// Adds the keys of a table that let more be done than the tables `above` it, or take the person out.
fn add_table(
    keys: &mut BTreeSet<String>,
    table: &str,
    (terms, above): (&TermsPatch, &[&TermsPatch]),
    file: &Path,
) {
    let sandbox = &terms.sandbox;
    let mut add = |key: &str, value: &dyn Debug| keys.extend([format!("{table}{key} = {value:?}")]);
    let modes = above.iter().filter_map(|above| above.sandbox.mode);
    let strictest = modes.fold(SandboxMode::default(), SandboxMode::min);
    if let Some(mode) = sandbox.mode.filter(|mode| *mode > strictest) {
        add("sandbox.mode", &mode.as_str());
    }
    let is_limited = |above: &&TermsPatch| above.sandbox.network.as_ref().is_some_and(|it| it.0.is_some());
    match sandbox.network.as_ref().map(|network| &network.0) {
        Some(None) if above.iter().any(is_limited) => add("sandbox.network", &true),
        // One that is named may belong to the network of this machine.
        Some(Some(hosts)) => hosts.iter().for_each(|host| add("sandbox.network", host)),
        _ => {}
    }
    sandbox.ports.iter().flatten().for_each(|port| add("sandbox.ports", port));
    sandbox.writable.iter().for_each(|path| add("sandbox.writable", path));
    sandbox.env.iter().for_each(|name| add("sandbox.env", name));
    if sandbox.caches == Some(true) {
        add("sandbox.caches", &true);
    }
    if terms.approve_by == Some(ApproveBy::Lead) {
        add("approve_by", &"lead");
    }
    if let Some(real) = terms.workspace.as_deref().and_then(|path| outside(file, Path::new(path))) {
        add("workspace", &real);
    }
}

/// Returns where a path leads, unless that is below the directory of the file.
fn outside(file: &Path, path: &Path) -> Option<PathBuf> {
    let (above, path) = (real(file.parent().unwrap_or(Path::new("/"))), real(path));
    let is_beneath = path.starts_with(above) && path.components().all(|part| part != Component::ParentDir);
    (!is_beneath).then_some(path)
}

/// Returns where a path leads, which is the same before and after something is made there: what is not there yet lies below what is.
fn real(path: &Path) -> PathBuf {
    let real = |above: &Path| Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?));
    path.ancestors().find_map(real).unwrap_or_else(|| path.to_owned()).components().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(scratch: &Path, text: &str) -> TeamFile {
        let path = scratch.join("team.toml");
        std::io::Write::write_all(&mut std::fs::File::create(&path).unwrap(), text.as_bytes()).unwrap();
        TeamFile::load(&path, &|name| (name == "HOME").then(|| "/home/u".to_owned())).unwrap()
    }

    fn of(file: &TeamFile) -> Widening {
        Widening::of(file).unwrap()
    }

    #[test]
    fn keys_widen_that_let_more_be_done_than_the_level_above_or_take_the_person_out() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("web")).unwrap();
        std::os::unix::fs::symlink("/usr", root.join("link")).unwrap();
        let narrow = "model = 'script'\nplan = true\nsandbox.caches = false\nsandbox.mode = 'read-only'\nsandbox.network = false\n\
            [service]\nca = 'platform'\n[members.alice]\nworkspace = 'web'\napprove_by = 'person'\n\
            [members.bob]\nworkspace = 'later/web'\n";
        assert!(of(&file(&root, narrow)).keys.is_empty());
        let wide = "approve_by = 'lead'\n[service]\nca = 'mine.pem'\n[sandbox]\nmode = 'off'\nnetwork = true\n\
            writable = ['~/.cargo', 'cache']\nenv = ['GH_TOKEN']\ncaches = true\n\
            ['roles']\n'a b'.sandbox = {mode = 'off', network = ['x.org']}\n\
            [members.alice]\nworkspace = 'link'\nsandbox.network = true\nsandbox.ports = [22]\n[members.bob]\nworkspace = 'x/../../y'\n\
            [lead]\nsandbox.mode = 'workspace-write'\n";
        let file = file(&root, wide);
        let keys: Vec<String> = of(&file).keys.into_iter().collect();
        let at = |path: &str| root.join(path).display().to_string();
        let expected = [
            "approve_by = \"lead\"".to_owned(),
            "members.alice.sandbox.network = true".to_owned(),
            "members.alice.sandbox.ports = 22".to_owned(),
            "members.alice.workspace = \"/usr\"".to_owned(),
            format!("members.bob.workspace = {:?}", at("x/../../y")),
            "roles.\"a b\".sandbox.mode = \"off\"".to_owned(),
            "roles.\"a b\".sandbox.network = \"x.org\"".to_owned(),
            "sandbox.caches = true".to_owned(),
            "sandbox.env = \"GH_TOKEN\"".to_owned(),
            "sandbox.mode = \"off\"".to_owned(),
            "sandbox.writable = \"/home/u/.cargo\"".to_owned(),
            format!("sandbox.writable = {:?}", at("cache")),
            format!("service.ca = {:?}", at("mine.pem")),
        ];
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_level_that_is_wider_than_a_stricter_one_above_widens() {
        let scratch = tempfile::tempdir().unwrap();
        let text = "sandbox.mode = 'read-only'\n[roles.coder]\nsandbox.mode = 'workspace-write'\n";
        let keys = of(&file(scratch.path(), text)).keys;
        assert_eq!(
            keys.into_iter().collect::<Vec<_>>(),
            ["roles.\"coder\".sandbox.mode = \"workspace-write\""]
        );
    }

    #[test]
    fn what_was_trusted_is_trusted_until_it_says_more_or_is_taken_back() {
        let scratch = tempfile::tempdir().unwrap();
        let root = scratch.path().canonicalize().unwrap();
        let state = StateDir::of_home(&root);
        let one = of(&file(&root, "sandbox.writable = ['/a', '/b']"));
        assert_eq!(one.untrusted(&state).unwrap().len(), 2);
        one.trust(&state).unwrap();
        assert_eq!(one.untrusted(&state).unwrap(), [""; 0]);
        let less = of(&file(&root, "# a comment\nmodel = 'script'\nsandbox.writable = ['/b']"));
        assert_eq!(less.untrusted(&state).unwrap(), [""; 0], "less needs no new trust");
        let more = of(&file(&root, "sandbox.writable = ['/b', '/c']"));
        assert_eq!(more.untrusted(&state).unwrap(), ["sandbox.writable = \"/c\""]);
        // It means the same when it has been made.
        let later = || of(&file(&root.join("sub/a"), "checkouts = '../clones'"));
        std::fs::create_dir_all(root.join("sub/a")).unwrap();
        later().trust(&state).unwrap();
        std::fs::create_dir(root.join("sub/clones")).unwrap();
        assert_eq!(later().untrusted(&state).unwrap(), [""; 0]);
        std::fs::remove_dir(root.join("sub/clones")).unwrap();
        std::os::unix::fs::symlink("/", root.join("sub/clones")).unwrap();
        assert_eq!(later().untrusted(&state).unwrap(), ["checkouts = \"/\""], "it leads elsewhere");
        // The same words elsewhere, and by a link.
        let elsewhere = of(&file(&root.join("sub"), "sandbox.writable = ['/a']"));
        assert_eq!(elsewhere.untrusted(&state).unwrap().len(), 1);
        assert!(one.revoke(&state).unwrap() && !one.revoke(&state).unwrap());
        assert_eq!(one.untrusted(&state).unwrap().len(), 2);
    }
}
