//! What the tools of the lead agent read, order and tell: the team as the files show it, and exact words. It asks nobody:
//! what the daemon must do goes over the worker's connection.

use std::fmt::Write as _;
use std::fs::TryLockError;
use std::path::Path;

use rustix::fs::OFlags;
use teamd_shared::config::{Roster, RosterMember};
use teamd_shared::control::SpawnOrder;
use teamd_shared::environment::Environment;
use teamd_shared::id::RequestId;
use teamd_shared::journal::{Team, read_lines};
use teamd_shared::member::{ApproveBy, Bounds, Gate, Sandbox};
use teamd_shared::message::summary_of;
use teamd_shared::model_spec::{ModelSpec, UnknownModel};
use teamd_shared::name::Name;
use teamd_shared::request::{Kind, Payload, Request, Status};
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::team_file::TeamFile;
use teamd_shared::team_file::resolve::{Asked, Flags, ModelFrom, resolve};
use teamd_shared::trust::Widening;

use super::{Outcome, Spawn};

/// Of what the lead agent makes a teammate.
#[derive(Debug)]
pub(crate) struct Spawner {
    /// Environment, umask and keys: its own.
    pub(crate) environment: Environment,
    /// The model where neither the call nor `TEAM_MODEL` nor `team.toml` names one: its own.
    pub(crate) model: String,
    /// The directory that it works in itself: nobody whom it starts works outside, unless `team.toml` says so.
    pub(crate) workspace: String,
    /// How its own commands are confined: nobody whom it starts is confined less.
    pub(crate) sandbox: Sandbox,
    /// What one life of the lead agent may use.
    pub(crate) bounds: Bounds,
}

impl Spawner {
    /// Makes the order: what `teamctl spawn` makes of the same words.
    ///
    /// That the lead agent answers the plans of a teammate is for a person to say, in `team.toml`: no call can. Nor
    /// can a call make a teammate that may do more than the lead agent itself: whoever tells another what to do may
    /// do what that one may.
    ///
    /// # Errors
    /// A text for the model.
    pub(crate) fn order(&self, dir: &TeamDir, spawn: &Spawn) -> Result<SpawnOrder, String> {
        let name = Name::new(&spawn.name).map_err(|error| error.to_string())?;
        let flags = Flags {
            role: Some(spawn.role.clone()).filter(|role| !role.trim().is_empty()),
            prompt: Some(spawn.prompt.clone()),
            model: spawn.model.as_deref().map(model).transpose()?,
            plan: spawn.plan,
            ..Flags::default()
        };
        let lookup = |variable: &str| self.environment.value(variable);
        let file = TeamFile::locate(dir.root(), lookup);
        let file = TeamFile::load(&file).map_err(|error| format!("{error} ({})", error.hint()))?;
        self.must_be_trusted(&file)?;
        let roster = roster(dir)?;
        let asked = Asked { name: &name, flags: &flags, earlier: roster.member(&name) };
        let mut resolved = resolve(asked, &lookup, &file).map_err(|error| error.to_string())?;
        resolved.workspace =
            Some(self.workspace(spawn.workspace.as_deref(), resolved.workspace.as_deref(), dir)?);
        resolved.sandbox = Some(resolved.sandbox.unwrap_or_default().within(&self.sandbox));
        // It may not set free what it is bound by itself.
        resolved.bounds = Some(resolved.bounds.unwrap_or_default().or(self.bounds));
        let is_guess = matches!(resolved.model_from, ModelFrom::Key(_) | ModelFrom::Default);
        let mut order = resolved.order(name, self.environment.clone());
        if is_guess {
            order.model = Some(self.model.clone());
        }
        Ok(order)
    }

    /// Makes sure that the user has trusted what widens: tools write the file, and the lead agent reads it for itself.
    fn must_be_trusted(&self, file: &TeamFile) -> Result<(), String> {
        let state = StateDir::of_environment(&self.environment).map_err(|error| error.to_string())?;
        let widening = Widening::of(file, &|name| self.environment.value(name));
        let keys =
            widening.and_then(|it| it.untrusted(&state)).map_err(|error| error.to_string())?.join(", ");
        let why = "widens what the team may do, and the user has not trusted it";
        let told = || format!("{} {why} ({keys}): a person can, with `teamd trust`", file.path.display());
        if keys.is_empty() { Ok(()) } else { Err(told()) }
    }

    /// Returns where a teammate works: where the call says, else where the file does, else where the lead agent does.
    ///
    /// The links of what a person names are for the daemon to follow, which knows the ones that a tool can have made;
    /// those of what the call names are followed here, and lead to nothing but what is the lead agent's own.
    fn workspace(&self, asked: Option<&str>, in_file: Option<&str>, dir: &TeamDir) -> Result<String, String> {
        // Without links as it was recorded: one that stands there now is none of its own.
        let own = Path::new(&self.workspace);
        let file_leads_to = in_file.map(|path| directory(own, path)).transpose()?;
        let Some(path) = asked else { return Ok(in_file.unwrap_or(&self.workspace).to_owned()) };
        let named = directory(own, path)?;
        if let (Some(in_file), true) = (in_file, file_leads_to.as_deref() == Some(named.as_str())) {
            return Ok(in_file.to_owned());
        }
        if Path::new(&named).starts_with(own) && !Path::new(&named).starts_with(dir.root()) {
            return Ok(named);
        }
        Err(format!(
            "the workspace {path} is not in yours, {}: leave it out, or name a directory in yours. Only a person \
             can let a teammate work elsewhere: in team.toml, or with `teamctl spawn NAME --workspace DIR`",
            self.workspace
        ))
    }
}

/// Returns a directory that exists as an absolute path without links.
fn directory(base: &Path, path: &str) -> Result<String, String> {
    let bad = |why: &str| format!("the workspace {path} {why}: name a directory that exists");
    let absolute = base.join(path).canonicalize();
    let absolute = absolute.map_err(|error| bad(&format!("cannot be used: {error}")))?;
    if !absolute.is_dir() {
        return Err(bad("is not a directory"));
    }
    absolute.into_os_string().into_string().map_err(|_| bad("has a path that is not UTF-8"))
}

fn model(text: &str) -> Result<ModelSpec, String> {
    text.parse().map_err(|error: UnknownModel| format!("{error} ({})", error.hint()))
}

/// Reads the name of a teammate that a call is about.
///
/// # Errors
/// A text for the model.
pub(crate) fn teammate(name: &str) -> Result<Name, String> {
    match Name::new(name) {
        Ok(name) => Ok(name),
        Err(_) if name == Name::lead().as_str() => Err("that is you: name a teammate".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Shows the team: who there is, what each does, and what waits for an answer.
pub(crate) fn list(dir: &TeamDir) -> Outcome {
    let shown = roster(dir).and_then(|roster| Ok(listed(&roster, &team(dir)?)));
    shown.into()
}

fn listed(roster: &Roster, team: &Team) -> String {
    let mates: Vec<&RosterMember> =
        roster.members.iter().filter(|member| member.name != Name::lead()).collect();
    if mates.is_empty() {
        return "there are no teammates: spawn_teammate starts one".to_owned();
    }
    let mut lines: Vec<String> = mates.into_iter().map(line).collect();
    let mut pending: Vec<&Request> = team.requests.values().filter(|request| request.is_pending()).collect();
    pending.sort_by(|a, b| a.created_at.total_cmp(&b.created_at));
    lines.extend(pending.into_iter().map(|request| waits(team, request)));
    lines.join("\n")
}

fn line(member: &RosterMember) -> String {
    let mut line = member.name.to_string();
    let mut add = |text: std::fmt::Arguments<'_>| {
        // Writing to a string cannot fail.
        let _infallible = line.write_fmt(text);
    };
    if !member.role.is_empty() {
        add(format_args!(" ({})", member.role));
    }
    add(format_args!(": {}", member.status.as_str()));
    if member.status.is_ended() {
        return line;
    }
    if !member.activity.is_empty() {
        add(format_args!(", {}", member.activity));
    }
    if member.gate == Gate::Closed {
        add(format_args!(", gate closed"));
    }
    line
}

fn waits(team: &Team, request: &Request) -> String {
    let (id, member) = (&request.request_id, request.member());
    match &request.payload {
        Payload::Plan { plan } => {
            let author = team.members.iter().find(|(name, _)| name.as_str() == member);
            let by = match author.map(|(_, state)| state.record.approve_by).unwrap_or_default() {
                ApproveBy::Person => "a person",
                ApproveBy::Lead => "you",
            };
            format!("plan {id} of {member} waits for {by}: {}", summary_of(plan))
        }
        Payload::Shutdown { .. } => format!("shutdown {id} of {member} is pending"),
    }
}

/// Shows where a request stands.
pub(crate) fn status(dir: &TeamDir, request_id: &RequestId) -> Outcome {
    let found = team(dir).and_then(|team| {
        let request =
            team.requests.get(request_id).ok_or_else(|| format!("no such request: {request_id}"))?;
        Ok(stands(&team, request))
    });
    found.into()
}

fn stands(team: &Team, request: &Request) -> String {
    let (member, status) = (request.member(), request.status.as_str());
    let what = match request.kind {
        Kind::Shutdown => "shutdown",
        Kind::PlanApproval => "plan",
    };
    let mut text = format!("{what} {} of {member}: {status}", request.request_id);
    if let Some(reason) = request.reason.as_deref().filter(|reason| !reason.trim().is_empty()) {
        text.push_str(&format!(" ({reason})"));
    }
    if request.kind == Kind::Shutdown && request.status == Status::Approved {
        let life =
            team.members.iter().find(|(name, _)| name.as_str() == member).map(|(_, state)| &state.record);
        let leaves = life.is_some_and(|it| it.incarnation == request.incarnation && !it.phase.is_ended());
        text.push_str(if leaves { "; it is about to leave" } else { "; its process is gone" });
    }
    text
}

/// Tells whether the lead agent has asked for this, and not a person alone. If that cannot be seen it has: it had better
/// be told once too often.
pub(crate) fn has_asked(dir: &TeamDir, request_id: &RequestId) -> bool {
    match team(dir) {
        Ok(team) => team.requests.get(request_id).is_some_and(|request| request.agent),
        Err(why) => {
            tracing::warn!("cannot see who has asked for {request_id}: {why}");
            true
        }
    }
}

/// Tells whether a person sits at a terminal with `teamctl chat`: whoever does holds a shared lock.
pub(crate) fn somebody_chats(dir: &TeamDir) -> bool {
    match dir.open_file(&TeamPath::chat(), OFlags::RDONLY) {
        // Let go with the descriptor.
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(error) if error.is_not_found() => false,
        Err(error) => {
            tracing::warn!("cannot see whether somebody chats: {error}");
            false
        }
    }
}

fn roster(dir: &TeamDir) -> Result<Roster, String> {
    let roster = Roster::load(dir).map_err(|error| format!("cannot look up who runs: {error}"))?;
    roster.ok_or_else(|| "cannot look up who runs: there is no roster".to_owned())
}

/// Folds the journal, as whoever reads it does.
fn team(dir: &TeamDir) -> Result<Team, String> {
    let unread = |why: String| format!("cannot read the journal: {why}");
    let bytes = dir.read(&TeamPath::journal()).map_err(|error| unread(error.to_string()))?;
    let mut team = Team::default();
    for line in read_lines(&bytes) {
        let (number, line) = line.map_err(|it| unread(format!("line {}: {}", it.number, it.why)))?;
        team.apply(&line).map_err(|error| unread(format!("line {number}: {error}")))?;
    }
    Ok(team)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use teamd_shared::member::SandboxMode;

    use super::*;

    fn scene() -> (tempfile::TempDir, TeamDir, Spawner) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let roster = json!({"version": 1, "members": []});
        teamd_shared::fs::replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        let mut environment = Environment::default();
        environment.set("XDG_STATE_HOME", scratch.path().join("state").to_str().unwrap());
        let spawner = Spawner {
            environment,
            model: "openai:own".to_owned(),
            workspace: scratch.path().to_str().unwrap().to_owned(),
            sandbox: Sandbox::default(),
            bounds: Bounds { max_procs: Some(50), ..Bounds::default() },
        };
        (scratch, dir, spawner)
    }

    fn team_file(scratch: &tempfile::TempDir, text: &str) {
        use std::io::Write;
        let mut file = std::fs::File::create(scratch.path().join("team.toml")).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Writes a file that the user trusts.
    fn trusted_file(scratch: &tempfile::TempDir, text: &str) {
        team_file(scratch, text);
        let state = scratch.path().join("state").into_os_string();
        let state = StateDir::of(|name| (name == "XDG_STATE_HOME").then(|| state.clone())).unwrap();
        let file = TeamFile::load(&scratch.path().join("team.toml")).unwrap();
        Widening::of(&file, &|_| None).unwrap().trust(&state).unwrap();
    }

    #[test]
    fn nothing_is_spawned_by_a_file_that_widens_and_that_the_user_has_not_trusted() {
        let (scratch, dir, spawner) = scene();
        let text = "[members.alice]\nsandbox.mode = \"off\"\n";
        team_file(&scratch, text);
        let refused = spawner.order(&dir, &alice()).unwrap_err();
        assert!(
            refused.contains("members.alice.sandbox.mode") && refused.contains("`teamd trust`"),
            "{refused}"
        );
        trusted_file(&scratch, text);
        assert!(spawner.order(&dir, &alice()).is_ok());
    }

    fn alice() -> Spawn {
        Spawn { name: "alice".into(), role: "coder".into(), prompt: "mend it".into(), ..Spawn::default() }
    }

    #[test]
    fn a_teammate_is_what_the_file_says_and_has_the_model_of_the_lead_agent_where_nobody_names_one() {
        let (scratch, dir, mut spawner) = scene();
        let order = spawner.order(&dir, &alice()).unwrap();
        assert_eq!((order.model.as_deref(), order.plan), (Some("openai:own"), false));
        assert_eq!((order.role.as_deref(), order.prompt.as_deref()), (Some("coder"), Some("mend it")));
        assert_eq!((order.approve_by, order.resume), (None, false));
        // A key is a guess, what it has itself is none.
        spawner.environment.secrets.push((b"ANTHROPIC_API_KEY".to_vec(), b"k".to_vec()));
        let order = spawner.order(&dir, &alice()).unwrap();
        assert_eq!((order.model.as_deref(), order.environment.secrets.len()), (Some("openai:own"), 1));
        let toml = "model = \"script\"\n[members.alice]\nplan = true\n";
        team_file(&scratch, toml);
        let order = spawner.order(&dir, &alice()).unwrap();
        assert_eq!((order.model.as_deref(), order.plan), (Some("script"), true));
        let named = Spawn { model: Some("anthropic:m".into()), ..alice() };
        assert_eq!(spawner.order(&dir, &named).unwrap().model.as_deref(), Some("anthropic:m"));
        team_file(&scratch, "modle = \"script\"\n");
        assert!(spawner.order(&dir, &alice()).unwrap_err().contains("team.toml"));
    }

    #[test]
    fn what_cannot_be_used_is_told_before_anything_is_asked() {
        let (_scratch, dir, spawner) = scene();
        for (spawn, told) in [
            (Spawn { name: "lead".into(), ..alice() }, "reserved"),
            (Spawn { name: "../x".into(), ..alice() }, "not a name"),
            (Spawn { model: Some("gpt".into()), ..alice() }, "\"gpt\""),
            (Spawn { workspace: Some("nowhere".into()), ..alice() }, "the workspace nowhere cannot be used"),
        ] {
            let error = spawner.order(&dir, &spawn).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
        assert_eq!(teammate("lead"), Err("that is you: name a teammate".to_owned()));
    }

    #[test]
    fn nobody_whom_it_starts_may_do_more_than_itself() {
        let (scratch, dir, mut spawner) = scene();
        let root = scratch.path().canonicalize().unwrap();
        let at = |path: &str| root.join(path).to_str().unwrap().to_owned();
        for path in ["own/inside", "apart", "owner"] {
            std::fs::create_dir_all(root.join(path)).unwrap();
        }
        std::os::unix::fs::symlink("/", root.join("own/link")).unwrap();
        std::os::unix::fs::symlink(dir.root(), root.join("own/team")).unwrap();
        spawner.workspace = at("own");
        let ordered = |spawner: &Spawner, path: Option<&str>| {
            spawner.order(&dir, &Spawn { workspace: path.map(str::to_owned), ..alice() })
        };
        let workspace =
            |spawner: &Spawner, path| ordered(spawner, path).map(|order| order.workspace.unwrap());
        for (path, taken) in [(None, "own"), (Some("."), "own"), (Some("inside"), "own/inside")] {
            assert_eq!(workspace(&spawner, path), Ok(at(taken)));
        }
        for path in ["/", "..", "../owner", "link", "inside/../../apart", "team"] {
            let error = workspace(&spawner, Some(path)).unwrap_err();
            assert!(error.starts_with(&format!("the workspace {path} is not in yours")), "{error}");
        }
        let around = Spawner { workspace: at(""), ..scene().2 };
        assert!(workspace(&around, Some(".team")).unwrap_err().contains("is not in yours"));
        trusted_file(&scratch, "sandbox.mode = \"off\"\n[members.alice]\nworkspace = \"apart\"\n");
        assert_eq!(workspace(&spawner, None), Ok(at("apart")));
        assert_eq!(workspace(&spawner, Some("../apart")), Ok(at("apart")));
        assert!(workspace(&spawner, Some("..")).is_err());
        // What a link of the file stands for is for the daemon to find out; what is its own is not found anew.
        trusted_file(&scratch, "[members.alice]\nworkspace = \"own/link\"\n");
        assert!(workspace(&spawner, None).unwrap().ends_with("/own/link"));
        assert!(workspace(&spawner, Some("link")).unwrap().ends_with("/own/link"));
        trusted_file(&scratch, "sandbox.mode = \"off\"\n");
        std::fs::rename(root.join("own"), root.join("gone")).unwrap();
        std::os::unix::fs::symlink("apart", root.join("own")).unwrap();
        assert_eq!(workspace(&spawner, None), Ok(at("own")));
        assert!(workspace(&spawner, Some(".")).unwrap_err().contains("is not in yours"));
        let sandbox = |spawner: &Spawner| ordered(spawner, None).unwrap().sandbox.unwrap();
        assert_eq!(
            (sandbox(&spawner).mode, sandbox(&spawner).no_network),
            (SandboxMode::WorkspaceWrite, false)
        );
        spawner.sandbox.no_network = true;
        assert!(sandbox(&spawner).no_network);
        for mode in [SandboxMode::ReadOnly, SandboxMode::Off] {
            spawner.sandbox.mode = mode;
            assert_eq!(sandbox(&spawner).mode, mode);
        }
    }

    #[test]
    fn somebody_chats_as_long_as_a_shared_lock_is_held() {
        let (_scratch, dir, _) = scene();
        assert!(!somebody_chats(&dir));
        let chat = dir.open_file(&TeamPath::chat(), OFlags::RDWR | OFlags::CREATE).unwrap();
        assert!(!somebody_chats(&dir));
        chat.lock_shared().unwrap();
        assert!(somebody_chats(&dir) && somebody_chats(&dir));
        // What another test starts has all descriptors of this process for a moment: to close it is not enough.
        chat.unlock().unwrap();
        assert!(!somebody_chats(&dir));
    }

    #[test]
    fn the_team_is_shown_in_a_line_each() {
        let roster = json!({"version": 1, "members": [
            {"name": "alice", "role": "coder", "status": "working", "gate": "closed", "activity": "bash: make"},
            {"name": "bob", "role": "", "status": "shutdown", "gate": "open"},
            {"name": "lead", "role": "lead", "status": "working", "gate": "open"}]});
        let mut roster: Roster = serde_json::from_value(roster).unwrap();
        let shown = listed(&roster, &Team::default());
        assert_eq!(shown, "alice (coder): working, bash: make, gate closed\nbob: shutdown");
        roster.members.truncate(0);
        assert_eq!(listed(&roster, &Team::default()), "there are no teammates: spawn_teammate starts one");
    }
}
