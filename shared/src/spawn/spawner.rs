//! The terms of a teammate that a lead spawns: the lead agent, or one that is connected by MCP. It
//! may do no more than that lead itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::Roster;
use crate::control::SpawnOrder;
use crate::environment::Environment;
use crate::member::{Terms, TermsPatch};
use crate::name::Name;
use crate::price::Dollars;
use crate::spawn::installed::{differ_in_version_alone, installed_server};
use crate::spawn::{
    RecordedPaths, SpawnRequest, Widening, require_key, require_price, resolve, resolve_login,
    resolve_paths, roster, state, use_installed,
};
use crate::state::StateDir;
use crate::team_dir::TeamDir;
use crate::team_file::TeamFile;
use crate::terms::{McpServer, Network, Permissions, SandboxMode, Total};
use crate::tools::{SpawnTeammate, non_blank};

/// The lead agent, as the teammates that it spawns see it: none of them may do more.
#[derive(Debug)]
pub struct Spawner {
    /// Its environment, umask and keys.
    pub environment: Arc<Environment>,
    /// Its own terms.
    pub terms: Terms,
}

impl Spawner {
    /// Makes the spawn order: what `teamctl spawn` makes of the same words.
    ///
    /// That the lead agent answers the plans of a teammate is for a person to say, in `team.toml`:
    /// no call can. Nor can a call make a teammate that may do more than the lead agent itself,
    /// since the lead agent tells that teammate what to do.
    ///
    /// # Errors
    /// A text for the model.
    pub fn order(
        &self,
        dir: &TeamDir,
        name: &Name,
        spawn: &SpawnTeammate,
    ) -> Result<SpawnOrder, String> {
        let mut flags = spawn.terms()?;
        // What a person has written for this teammate is not loosened by a call.
        let asked = AskedBounds::take(&mut flags);
        let lookup = |variable: &str| self.environment.value(variable);
        let file = TeamFile::load(&TeamFile::locate(dir.root(), lookup), &lookup);
        let file = file.map_err(|error| format!("{error} ({})", error.hint()))?;
        self.must_be_trusted(&file)?;
        self.must_have(&spawn.servers())?;
        let known = roster(Roster::load(dir))?;
        // The key in the environment is only a guess; the lead agent's own model is known.
        let default_model = self.terms.model.parse().ok();
        let request = SpawnRequest {
            name,
            flags,
            ca: None,
            resume: false,
        };
        let earlier = known.member(name);
        let environment = Environment::clone(&self.environment);
        let order = resolve(request, default_model, earlier, environment, &file);
        let mut order = order.map_err(|error| error.to_string())?;
        let variable = |name: &str| self.environment.path(name).map(PathBuf::into_os_string);
        let login = resolve_login(&mut order, None, variable);
        let login = login.map_err(|error| format!("{error} (hint: {})", error.hint()))?;
        if order.terms.host.is_none() {
            use_installed(&mut order)?;
        }
        if !login.is_token()
            && let Some(model) = &order.terms.model
        {
            let of_order = |variable: &str| order.environment.value(variable);
            require_key(model, &of_order).map_err(|error| error.to_string())?;
        }
        // A directory of a host is named in `team.toml`, or it is a checkout.
        if order.terms.host.is_none() {
            let workspace = self.workspace(
                non_blank(&spawn.workspace),
                order.terms.workspace.as_deref(),
                dir,
            )?;
            order.terms.workspace = Some(workspace);
        }
        self.bound(&mut order.terms, &asked);
        require_price(&order, None).map_err(|error| format!("{error} (hint: {})", error.hint()))?;
        let own = RecordedPaths {
            host: None,
            has_checkout: false,
            workspace: &self.terms.workspace,
            sandbox: &self.terms.sandbox,
        };
        resolve_paths(&mut order, dir, Some(own), || state(dir))?;
        Ok(order)
    }

    /// Takes from the terms of a teammate what the call does not want, and what the lead agent
    /// itself may not do or use.
    fn bound(&self, terms: &mut TermsPatch, asked: &AskedBounds) {
        let Terms {
            sandbox,
            bounds,
            limits,
            permissions,
            ..
        } = &self.terms;
        let of_file = terms.sandbox.mode.unwrap_or_default();
        let wanted = asked.mode.unwrap_or(of_file).min(of_file);
        terms.sandbox.mode = Some(wanted.min(sandbox.mode));
        if *permissions == Permissions::Ask {
            terms.permissions = Some(Permissions::Ask);
        }
        // What the file says of servers that the lead agent does not have is for a person to start.
        let is_hosted = terms.host.is_some();
        terms
            .servers
            .retain_mut(|server| self.has(server, is_hosted));
        terms.mcp = terms
            .servers
            .iter()
            .map(|server| server.name.to_string())
            .collect();
        terms.max_tokens = least([terms.max_tokens, asked.max_tokens, limits.max_tokens]);
        terms.max_cost = least([terms.max_cost, asked.max_cost, limits.max_cost]);
        // It is what the call gives of the lead agent's own budget, which it counts into once.
        terms.total = Total {
            tokens: asked.max_tokens,
            cost: asked.max_cost,
        };
        let network = terms.sandbox.network.take().unwrap_or(Network(None));
        terms.sandbox.network = Some(network.within(&sandbox.network()));
        terms.sandbox.hidden.extend(sandbox.hidden.iter().cloned());
        terms.memory = terms.memory.or(bounds.memory);
        terms.cpu_time = terms.cpu_time.or(bounds.cpu_time);
        terms.max_procs = terms.max_procs.or(bounds.max_procs);
        terms.max_time = terms.max_time.or(bounds.max_time);
    }

    /// Tells whether the lead agent itself has this MCP server. A person may have installed a newer
    /// version since the lead agent was spawned: it gives what it has itself. A host has its own.
    fn has(&self, server: &mut McpServer, is_hosted: bool) -> bool {
        let here = if is_hosted {
            installed_server(server, &self.environment).unwrap_or_else(|_| server.clone())
        } else {
            server.clone()
        };
        let mut own = self.terms.mcp.iter();
        let Some(own) = own.find(|own| differ_in_version_alone(own, &here)) else {
            return false;
        };
        if !is_hosted {
            *server = own.clone();
        }
        true
    }

    /// Makes sure that the lead agent itself has these MCP servers.
    fn must_have(&self, servers: &[String]) -> Result<(), String> {
        let own = &self.terms.mcp;
        let other = servers
            .iter()
            .find(|name| !own.iter().any(|server| server.name.as_str() == *name));
        let Some(other) = other else { return Ok(()) };
        let names: Vec<_> = own.iter().map(|server| server.name.as_str()).collect();
        let yours = if names.is_empty() {
            "you have none".to_owned()
        } else {
            format!("yours are {}", names.join(", "))
        };
        Err(format!(
            "the MCP server {other} is not one of yours ({yours}): leave it out, or ask the person, who can with `teamctl spawn NAME --mcp {other}`"
        ))
    }

    /// Makes sure that the user has trusted what widens: tools write the file, and the lead agent
    /// reads it for itself.
    fn must_be_trusted(&self, file: &TeamFile) -> Result<(), String> {
        let store =
            StateDir::of_environment(&self.environment).map_err(|error| error.to_string())?;
        let widening = Widening::of(file);
        let widening = widening.map_err(|error| error.to_string())?;
        let widens = widening
            .untrusted(&store)
            .map_err(|error| error.to_string())?;
        let gone = widening.gone(&store).map_err(|error| error.to_string())?;
        let (why, keys) = if !widens.is_empty() {
            let why = "widens what the team may do, and the user has not trusted it";
            (why, widens)
        } else if !gone.is_empty() {
            // No person is there to see the warning.
            ("narrows the team less than when the user trusted it", gone)
        } else {
            return Ok(());
        };
        let path = file.path.display();
        let keys = keys.join(", ");
        Err(format!(
            "{path} {why} ({keys}): a person can, with `teamd trust`"
        ))
    }

    /// Returns where a teammate works: where the call says, else where the file does, else where
    /// the lead agent does.
    ///
    /// The links of what the call names are followed here, and lead to nothing but what is the lead
    /// agent's own. Those of what the file names are followed when the order is made, but for links
    /// that a tool can have made.
    fn workspace(
        &self,
        asked: Option<&str>,
        in_file: Option<&str>,
        dir: &TeamDir,
    ) -> Result<String, String> {
        let own = Path::new(&self.terms.workspace);
        let Some(path) = asked else {
            return Ok(in_file.unwrap_or(&self.terms.workspace).to_owned());
        };
        let named = real(own, path)?;
        let in_file =
            in_file.filter(|path| real(own, path).is_ok_and(|leads_to| leads_to == named));
        if let Some(in_file) = in_file {
            return Ok(in_file.to_owned());
        }
        if Path::new(&named).starts_with(own) && !Path::new(&named).starts_with(dir.root()) {
            return Ok(named);
        }
        Err(format!(
            "the workspace {path} is not in yours, {}: leave it out, or name a directory in yours. Only a person \
             can let a teammate work elsewhere: in team.toml, or with `teamctl spawn NAME --workspace DIR`",
            self.terms.workspace
        ))
    }
}

/// The bounds that a call names: they only narrow what the file says.
struct AskedBounds {
    mode: Option<SandboxMode>,
    max_tokens: Option<u64>,
    max_cost: Option<Dollars>,
}

impl AskedBounds {
    fn take(terms: &mut TermsPatch) -> Self {
        Self {
            mode: terms.sandbox.mode.take(),
            max_tokens: terms.max_tokens.take(),
            max_cost: terms.max_cost.take(),
        }
    }
}

/// Returns the least of the limits that are set.
fn least<T: Ord + Copy>(limits: [Option<T>; 3]) -> Option<T> {
    limits.into_iter().flatten().min()
}

/// Returns a path that exists as an absolute one without links.
fn real(base: &Path, path: &str) -> Result<String, String> {
    let real = base.join(path).canonicalize();
    let real = real.map_err(|error| {
        format!("the workspace {path} cannot be used: {error}: name a directory that exists")
    })?;
    real.into_os_string()
        .into_string()
        .map_err(|_| format!("the path of the workspace {path} is not UTF-8"))
}

#[cfg(test)]
pub(super) mod tests {
    use crate::member::Bounds;
    use crate::team_dir::TeamPath;
    use serde_json::json;

    use super::*;

    pub(in crate::spawn) fn scene() -> (tempfile::TempDir, TeamDir, Spawner) {
        let scratch = tempfile::tempdir().unwrap();
        let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
        let roster = json!({"version": 1, "seq": 1, "team_name": "t", "members": []});
        crate::fs::replace(&dir, &TeamPath::config(), roster.to_string().as_bytes()).unwrap();
        crate::fs::replace(&dir, &TeamPath::journal(), b"").unwrap();
        let mut environment = Environment::default();
        environment.set(
            "XDG_STATE_HOME",
            scratch.path().join("state").to_str().unwrap(),
        );
        environment.set("OPENAI_BASE_URL", "http://localhost:1");
        let spawner = Spawner {
            environment: Arc::new(environment),
            terms: Terms {
                model: "openai:own".to_owned(),
                bounds: Bounds {
                    max_procs: Some(50),
                    ..Bounds::default()
                },
                ..Terms::of_workspace(
                    scratch
                        .path()
                        .canonicalize()
                        .unwrap()
                        .to_str()
                        .unwrap()
                        .to_owned(),
                )
            },
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
        let file = TeamFile::load(&scratch.path().join("team.toml"), &|_| None).unwrap();
        Widening::of(&file).unwrap().trust(&state).unwrap();
    }

    #[test]
    fn a_teammate_on_a_host_has_servers_of_the_lead_agent_and_no_path_of_home() {
        let (scratch, dir, mut spawner) = scene();
        let text = "[mcp.files]\ncommand = ['files']\n[mcp.secrets]\ncommand = ['secrets']\n\
                    [members.alice]\nhost = 'box'\nmcp = ['files', 'secrets']\nsandbox.writable = ['/data']\n";
        trusted_file(&scratch, text);
        let file = TeamFile::parse(text).unwrap();
        let (name, definition) = file.mcp.first_key_value().unwrap();
        let own = definition.named(name);
        spawner.terms.mcp = vec![own.clone()];
        let terms = order_of(&spawner, &dir, &alice()).unwrap().terms;
        assert_eq!(terms.servers, [own]);
        assert_eq!(terms.sandbox.writable, ["/data"]);
        assert_eq!(terms.workspace, None, "the host has one of its own");
    }

    #[test]
    fn nothing_is_spawned_by_a_file_that_widens_and_that_the_user_has_not_trusted() {
        let (scratch, dir, spawner) = scene();
        let text = "[members.alice]\nsandbox.mode = \"off\"\n";
        team_file(&scratch, text);
        let refused = order_of(&spawner, &dir, &alice()).unwrap_err();
        assert!(
            refused.contains("members.alice.sandbox.mode") && refused.contains("`teamd trust`"),
            "{refused}"
        );
        trusted_file(&scratch, text);
        assert!(order_of(&spawner, &dir, &alice()).is_ok());
    }

    #[test]
    fn a_teammate_has_no_mcp_server_that_the_lead_agent_has_not() {
        let (scratch, dir, mut spawner) = scene();
        trusted_file(
            &scratch,
            "[mcp.files]\ncommand = ['files']\n[mcp.secrets]\ncommand = ['secrets']\n[roles.coder]\nmcp = ['files', 'secrets']\n",
        );
        let servers = |order: SpawnOrder| {
            let servers = order.terms.servers.iter();
            let names: Vec<_> = servers.map(|server| server.name.to_string()).collect();
            assert_eq!(order.terms.mcp, names);
            names
        };
        let order = order_of(&spawner, &dir, &alice()).unwrap();
        assert_eq!(servers(order), [""; 0]);
        let asks = SpawnTeammate {
            mcp: Some("files".to_owned()),
            ..alice()
        };
        let refused = order_of(&spawner, &dir, &asks).unwrap_err();
        assert!(refused.contains("you have none"), "{refused}");
        let file = TeamFile::load(&scratch.path().join("team.toml"), &|_| None).unwrap();
        let (name, definition) = file.mcp.first_key_value().unwrap();
        spawner.terms.mcp = vec![definition.named(name)];
        let order = order_of(&spawner, &dir, &alice()).unwrap();
        assert_eq!(servers(order), ["files"]);
        let asks = SpawnTeammate {
            role: "writer".into(),
            ..asks
        };
        assert_eq!(servers(order_of(&spawner, &dir, &asks).unwrap()), ["files"]);
        let asks = SpawnTeammate {
            mcp: Some("files secrets".to_owned()),
            ..alice()
        };
        let refused = order_of(&spawner, &dir, &asks).unwrap_err();
        assert!(
            refused.contains("secrets") && refused.contains("yours are files"),
            "{refused}"
        );
    }

    #[test]
    fn a_model_without_its_key_is_refused_as_at_spawn() {
        let (_scratch, dir, mut spawner) = scene();
        Arc::make_mut(&mut spawner.environment).set("OPENAI_BASE_URL", "");
        assert!(
            order_of(&spawner, &dir, &alice())
                .unwrap_err()
                .contains("OPENAI_API_KEY")
        );
    }

    fn order_of(
        spawner: &Spawner,
        dir: &TeamDir,
        spawn: &SpawnTeammate,
    ) -> Result<SpawnOrder, String> {
        let names = spawn.names()?;
        spawner.order(dir, &names[0], spawn)
    }

    fn model_of(order: &SpawnOrder) -> Option<String> {
        order.terms.model.as_ref().map(ToString::to_string)
    }

    pub(in crate::spawn) fn alice() -> SpawnTeammate {
        SpawnTeammate {
            name: "alice".into(),
            role: "coder".into(),
            prompt: "mend it".into(),
            ..SpawnTeammate::default()
        }
    }

    #[test]
    fn a_teammate_is_what_the_file_says_and_has_the_model_of_the_lead_agent() {
        let (scratch, dir, mut spawner) = scene();
        let order = order_of(&spawner, &dir, &alice()).unwrap();
        assert_eq!(
            (model_of(&order).as_deref(), order.terms.plan),
            (Some("openai:own"), None)
        );
        assert_eq!(
            (order.terms.role.as_deref(), order.terms.prompt.as_deref()),
            (Some("coder"), Some("mend it"))
        );
        assert_eq!((order.terms.approve_by, order.resume), (None, false));
        // A key is a guess, what it has itself is none.
        Arc::make_mut(&mut spawner.environment)
            .secrets
            .push((b"ANTHROPIC_API_KEY".to_vec(), b"k".to_vec()));
        let order = order_of(&spawner, &dir, &alice()).unwrap();
        assert_eq!(
            (model_of(&order).as_deref(), order.environment.secrets.len()),
            (Some("openai:own"), 1)
        );
        let toml = "model = \"script\"\n[members.alice]\nplan = true\n";
        team_file(&scratch, toml);
        let order = order_of(&spawner, &dir, &alice()).unwrap();
        assert_eq!(
            (model_of(&order).as_deref(), order.terms.plan),
            (Some("script"), Some(true))
        );
        let named = SpawnTeammate {
            model: Some("anthropic:m".into()),
            ..alice()
        };
        assert_eq!(
            model_of(&order_of(&spawner, &dir, &named).unwrap()).as_deref(),
            Some("anthropic:m")
        );
        team_file(&scratch, "modle = \"script\"\n");
        assert!(
            order_of(&spawner, &dir, &alice())
                .unwrap_err()
                .contains("team.toml")
        );
    }

    #[test]
    fn a_call_narrows_what_the_file_and_the_lead_agents_own_terms_allow_and_never_widens_it() {
        let (scratch, dir, mut spawner) = scene();
        let dollars = |amount| Dollars::try_from(amount).ok();
        let prices = scratch.path().join("teamd");
        std::fs::create_dir(&prices).unwrap();
        let prices = std::fs::File::create(prices.join("prices.toml")).unwrap();
        let text = "[\"openai:own\"]\ninput = 1\noutput = 1\ncache_write = 1\ncache_read = 1\n";
        std::io::Write::write_all(&mut &prices, text.as_bytes()).unwrap();
        Arc::make_mut(&mut spawner.environment)
            .set("XDG_CONFIG_HOME", scratch.path().to_str().unwrap());
        let bounds = |spawner: &Spawner, asked: &SpawnTeammate| {
            let terms = order_of(spawner, &dir, asked).unwrap().terms;
            (terms.sandbox.mode, terms.max_cost, terms.max_tokens)
        };
        let asked = SpawnTeammate {
            sandbox: Some(SandboxMode::WorkspaceWrite),
            max_cost: dollars(3.0),
            max_tokens: Some(300),
            ..alice()
        };
        let wanted = (asked.sandbox, asked.max_cost, asked.max_tokens);
        assert_eq!(bounds(&spawner, &asked), wanted);
        let file = "[members.alice]\nsandbox.mode = 'read-only'\nmax_cost = 2\nmax_tokens = 200\n";
        trusted_file(&scratch, file);
        let of_file = (Some(SandboxMode::ReadOnly), dollars(2.0), Some(200));
        assert_eq!(bounds(&spawner, &asked), of_file);
        assert_eq!(bounds(&spawner, &alice()), of_file);
        spawner.terms.limits.max_cost = dollars(1.0);
        spawner.terms.limits.max_tokens = Some(100);
        let of_lead = (Some(SandboxMode::ReadOnly), dollars(1.0), Some(100));
        assert_eq!(bounds(&spawner, &asked), of_lead);
        // What the call gives is given whole, and only what it gives.
        let total = |asked: &SpawnTeammate| order_of(&spawner, &dir, asked).unwrap().terms.total;
        let given = Total {
            tokens: Some(300),
            cost: dollars(3.0),
        };
        assert_eq!(total(&asked), given);
        assert_eq!(total(&alice()), Total::default());
    }

    #[test]
    fn the_agents_of_a_lead_agent_that_asks_ask_too() {
        let (_scratch, dir, mut spawner) = scene();
        let permissions =
            |spawner: &Spawner| order_of(spawner, &dir, &alice()).unwrap().terms.permissions;
        assert_eq!(permissions(&spawner), None);
        spawner.terms.permissions = Permissions::Ask;
        assert_eq!(permissions(&spawner), Some(Permissions::Ask));
    }

    #[test]
    fn an_agent_is_one_that_is_known_or_of_the_file_and_has_the_model_of_its_service() {
        let (scratch, dir, mut spawner) = scene();
        let with_agent = |agent: &str| SpawnTeammate {
            agent: Some(agent.to_owned()),
            checkout: true,
            auto: true,
            ..alice()
        };
        let error = order_of(&spawner, &dir, &with_agent("mine")).unwrap_err();
        assert!(error.contains("[agents.NAME]"), "{error}");
        let terms = order_of(&spawner, &dir, &with_agent("codex"))
            .unwrap()
            .terms;
        assert_eq!(terms.agent.as_deref(), Some("codex"));
        assert_eq!((terms.checkout, terms.auto), (Some(true), Some(true)));
        let error = order_of(&spawner, &dir, &with_agent("claude")).unwrap_err();
        assert!(error.contains("ANTHROPIC_API_KEY"), "{error}");
        Arc::make_mut(&mut spawner.environment)
            .secrets
            .push((b"ANTHROPIC_API_KEY".to_vec(), b"k".to_vec()));
        assert!(order_of(&spawner, &dir, &with_agent("claude")).is_ok());
        trusted_file(
            &scratch,
            "[agents.mine]\ncommand = ['x']\nprotocol = 'run'\n",
        );
        let terms = order_of(&spawner, &dir, &with_agent("mine")).unwrap().terms;
        assert_eq!(terms.program.unwrap().command, ["x"]);
    }

    #[test]
    fn what_cannot_be_used_is_told_before_anything_is_asked() {
        let (_scratch, dir, spawner) = scene();
        for (spawn, told) in [
            (
                SpawnTeammate {
                    name: "lead".into(),
                    ..alice()
                },
                "reserved",
            ),
            (
                SpawnTeammate {
                    name: "../x".into(),
                    ..alice()
                },
                "not a name",
            ),
            (
                SpawnTeammate {
                    model: Some("gpt".into()),
                    ..alice()
                },
                "\"gpt\"",
            ),
            (
                SpawnTeammate {
                    workspace: Some("nowhere".into()),
                    ..alice()
                },
                "the workspace nowhere cannot be used",
            ),
        ] {
            let error = order_of(&spawner, &dir, &spawn).unwrap_err();
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
        std::os::unix::fs::symlink("/var", root.join("own/link")).unwrap();
        std::os::unix::fs::symlink(dir.root(), root.join("own/team")).unwrap();
        spawner.terms.workspace = at("own");
        let ordered = |spawner: &Spawner, path: Option<&str>| {
            order_of(
                spawner,
                &dir,
                &SpawnTeammate {
                    workspace: path.map(str::to_owned),
                    ..alice()
                },
            )
        };
        let workspace = |spawner: &Spawner, path| {
            ordered(spawner, path).map(|order| order.terms.workspace.unwrap())
        };
        for (path, taken) in [
            (None, "own"),
            (Some("."), "own"),
            (Some("inside"), "own/inside"),
        ] {
            assert_eq!(workspace(&spawner, path), Ok(at(taken)));
        }
        for path in ["/", "..", "../owner", "link", "inside/../../apart", "team"] {
            let error = workspace(&spawner, Some(path)).unwrap_err();
            assert!(
                error.starts_with(&format!("the workspace {path} is not in yours")),
                "{error}"
            );
        }
        let mut around = scene().2;
        around.terms.workspace = at("");
        assert!(
            workspace(&around, Some(".team"))
                .unwrap_err()
                .contains("is not in yours")
        );
        trusted_file(
            &scratch,
            "sandbox.mode = \"off\"\n[members.alice]\nworkspace = \"apart\"\n",
        );
        assert_eq!(workspace(&spawner, None), Ok(at("apart")));
        assert_eq!(workspace(&spawner, Some("../apart")), Ok(at("apart")));
        assert!(workspace(&spawner, Some("..")).is_err());
        // A link that a person names is followed; the call may name it, too.
        trusted_file(&scratch, "[members.alice]\nworkspace = \"own/link\"\n");
        assert_eq!(workspace(&spawner, None).as_deref(), Ok("/var"));
        assert_eq!(workspace(&spawner, Some("link")).as_deref(), Ok("/var"));
        trusted_file(&scratch, "sandbox.mode = \"off\"\n");
        std::fs::rename(root.join("own"), root.join("gone")).unwrap();
        std::os::unix::fs::symlink("apart", root.join("own")).unwrap();
        assert!(
            workspace(&spawner, None)
                .unwrap_err()
                .contains("on the way")
        );
        assert!(
            workspace(&spawner, Some("."))
                .unwrap_err()
                .contains("is not in yours")
        );
        spawner.terms.workspace = at("apart");
        let sandbox = |spawner: &Spawner| ordered(spawner, None).unwrap().terms.sandbox;
        assert_eq!(
            (sandbox(&spawner).mode, sandbox(&spawner).network),
            (Some(SandboxMode::WorkspaceWrite), Some(Network(None)))
        );
        let only = Network(Some(vec!["a.org".to_owned()]));
        spawner.terms.sandbox.hosts = vec!["a.org".to_owned()];
        assert_eq!(sandbox(&spawner).network, Some(only));
        spawner.terms.sandbox.hosts = Vec::new();
        spawner.terms.sandbox.no_network = true;
        assert_eq!(sandbox(&spawner).network, Some(Network::NONE));
        for mode in [SandboxMode::ReadOnly, SandboxMode::Off] {
            spawner.terms.sandbox.mode = mode;
            assert_eq!(sandbox(&spawner).mode, Some(mode));
        }
    }
}
