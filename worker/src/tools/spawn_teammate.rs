//! `spawn_teammate`: starts a teammate that may do no more than the lead agent itself.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use teamd_shared::control::{Await, Command, Done, SpawnOrder};
use teamd_shared::environment::Environment;
use teamd_shared::member::{ApproveBy, Bounds, Sandbox};
use teamd_shared::model_spec::{ModelSpec, UnknownModel};
use teamd_shared::name::Name;
use teamd_shared::state::StateDir;
use teamd_shared::team_dir::TeamDir;
use teamd_shared::team_file::TeamFile;
use teamd_shared::team_file::resolve::{Asked, Flags, ModelFrom, resolve};
use teamd_shared::trust::Widening;

use super::input::{Input, not_blank};
use super::orders::unexpected;
use super::{Action, TeamAction, Tools, team};
use crate::agent::session::Session;

/// Starts a teammate: an agent of its own, in a process of its own, that works on `prompt` at once. It sees nothing
/// of this conversation: the prompt must hold all that it needs. With `plan` it can change nothing before a plan of
/// it is approved. Returns when it is ready; you hear by itself when it submits a plan, writes, or has finished: do
/// not wait or poll.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpawnTeammate {
    /// Its name: 1 to 32 of a-z, 0-9, _ and -.
    #[serde(deserialize_with = "not_blank")]
    pub(crate) name: String,
    /// What it is for, in a directive or two, such as `coder` or `reviewer`.
    pub(crate) role: String,
    /// What it shall do, with all that it must know to do it.
    #[serde(deserialize_with = "not_blank")]
    pub(crate) prompt: String,
    /// True: it must submit a plan, and can change nothing before the plan is approved.
    #[serde(default)]
    pub(crate) plan: bool,
    /// Only if the person asks for one: PROVIDER or PROVIDER:MODEL.
    pub(crate) model: Option<String>,
    /// Only if it shall not be yours: a directory in your workspace.
    pub(crate) workspace: Option<String>,
}

impl Input for SpawnTeammate {
    const NAME: &'static str = "spawn_teammate";
    const SUBJECT: &'static str = "name";

    fn action(self) -> Action {
        let is_said = |text: &String| !text.trim().is_empty();
        let (model, workspace) = (self.model.filter(is_said), self.workspace.filter(is_said));
        Action::Team(TeamAction::Spawn(Self { model, workspace, ..self }))
    }
}

/// Of what the lead agent makes a teammate.
#[derive(Debug)]
pub(crate) struct Spawner {
    /// Environment, umask and keys: its own.
    pub(crate) environment: Environment,
    /// The model where neither the call nor `TEAM_MODEL` nor `team.toml` names one: its own.
    pub(crate) model: String,
    /// The directory that it works in itself: no teammate that it starts works outside, unless `team.toml` says so.
    pub(crate) workspace: String,
    /// How its own commands are confined: no teammate that it starts is confined less.
    pub(crate) sandbox: Sandbox,
    /// What one incarnation of the lead agent may use.
    pub(crate) bounds: Bounds,
}

impl Spawner {
    /// Makes the order: what `teamctl spawn` makes of the same words.
    ///
    /// That the lead agent answers the plans of a teammate is for a person to say, in `team.toml`: no call can. Nor
    /// can a call make a teammate that may do more than the lead agent itself: an agent that tells another what to do may
    /// do what that one may.
    ///
    /// # Errors
    /// A text for the model.
    pub(crate) fn order(&self, dir: &TeamDir, spawn: &SpawnTeammate) -> Result<SpawnOrder, String> {
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
        let roster = team::roster(dir)?;
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

impl<T: Tools> Session<T> {
    /// Orders a teammate, and waits until it is ready.
    pub(super) async fn spawn(&mut self, spawn: &SpawnTeammate) -> Result<String, String> {
        let order = self.spawner.order(self.outbox.dir(), spawn)?;
        let (name, plan, approve_by) = (order.name.clone(), order.plan, order.approve_by.unwrap_or_default());
        let (incarnation, skipped) = match self.order(Command::Spawn(Box::new(order))).await? {
            Done::Spawning { incarnation, skipped } => (incarnation, skipped),
            other => return Err(unexpected(&other)),
        };
        let what = Await::Ready;
        match self.order(Command::Await { name: name.clone(), incarnation, what }).await? {
            Done::Ready { .. } => {}
            other => return Err(unexpected(&other)),
        }
        let mut told = format!("{name} has started (incarnation {incarnation}) and works on your prompt");
        if plan {
            let who = if approve_by == ApproveBy::Lead { "you answer" } else { "a person answers" };
            told.push_str(&format!("; it submits a plan first, which {who}"));
        }
        if skipped > 0 {
            told.push_str(&format!("; messages of its earlier incarnation that it will not read: {skipped}"));
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use teamd_shared::fs::replace;
    use teamd_shared::member::SandboxMode;
    use teamd_shared::team_dir::TeamPath;

    use super::*;

    fn scene() -> (tempfile::TempDir, TeamDir, Spawner) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let roster = json!({"version": 1, "members": []});
        replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
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

    fn alice() -> SpawnTeammate {
        SpawnTeammate {
            name: "alice".into(),
            role: "coder".into(),
            prompt: "mend it".into(),
            plan: false,
            model: None,
            workspace: None,
        }
    }

    #[test]
    fn a_teammate_is_what_the_file_says_and_has_the_model_of_the_lead_agent() {
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
        let named = SpawnTeammate { model: Some("anthropic:m".into()), ..alice() };
        assert_eq!(spawner.order(&dir, &named).unwrap().model.as_deref(), Some("anthropic:m"));
        team_file(&scratch, "modle = \"script\"\n");
        assert!(spawner.order(&dir, &alice()).unwrap_err().contains("team.toml"));
    }

    #[test]
    fn what_cannot_be_used_is_told_before_anything_is_asked() {
        let (_scratch, dir, spawner) = scene();
        for (spawn, told) in [
            (SpawnTeammate { name: "lead".into(), ..alice() }, "reserved"),
            (SpawnTeammate { name: "../x".into(), ..alice() }, "not a name"),
            (SpawnTeammate { model: Some("gpt".into()), ..alice() }, "\"gpt\""),
            (
                SpawnTeammate { workspace: Some("nowhere".into()), ..alice() },
                "the workspace nowhere cannot be used",
            ),
        ] {
            let error = spawner.order(&dir, &spawn).unwrap_err();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn no_teammate_may_do_more_than_the_lead_agent_that_starts_it() {
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
            spawner.order(&dir, &SpawnTeammate { workspace: path.map(str::to_owned), ..alice() })
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
}
