//! `teamctl agents install`: what a launcher would fetch is installed once, by a person, and each
//! spawn runs that.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::schemas::valid;
use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::python;

/// Prints what it is given, and with which arguments it was started.
const ECHO: &str = "#!/bin/sh\nread -r line\necho \"$line of VERSION with $*\"\n";

/// A team whose user has package managers that know one package.
struct Published {
    team: Team,
    packages: PathBuf,
}

impl Published {
    fn new() -> Self {
        Self::of(Team::new())
    }

    /// As [`Published::new`], with the variables of a team that was begun.
    fn of(team: Team) -> Self {
        let packages = team.home().parent().unwrap().join("packages");
        for folder in ["bin", "content"] {
            std::fs::create_dir_all(packages.join(folder)).unwrap();
        }
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", packages.join("bin").display());
        let team = team
            .with("PATH", &path)
            .with("PACKAGES", packages.to_str().unwrap());
        let published = Self { team, packages };
        let manager = include_str!("../fixtures/package-manager.sh");
        published.put("bin/npm", manager);
        published.put("bin/uv", manager);
        published.put("programs", r#"{"agent": "./agent"}"#);
        published.version("1.2.0");
        published
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.packages.join(name);
        self.team.write(path.to_str().unwrap(), text);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Publishes a version.
    fn version(&self, version: &str) {
        self.put("version", version);
        self.put("content/agent", &ECHO.replace("VERSION", version));
    }

    /// Defines the agent `mine`, which the user trusts.
    fn defines(&self, command: &str) {
        self.team.write(
            "team.toml",
            &format!("[agents.mine]\ncommand = {command}\nprotocol = 'run'\n"),
        );
        self.team.trust();
    }

    fn install(&self, words: &[&str]) -> Value {
        self.team.json([&["agents", "install"], words].concat())
    }

    /// How often a package manager was called.
    fn calls(&self) -> Vec<String> {
        let calls = std::fs::read_to_string(self.packages.join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }

    /// The names in the folder of all installed programs.
    fn installed(&self) -> Vec<String> {
        let folder = self.team.home().join(".local/share/teamd/tools");
        let entries = std::fs::read_dir(folder).into_iter().flatten();
        let mut names: Vec<_> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != ".lock")
            .collect();
        names.sort();
        names
    }

    /// What `teamctl agents` says of an agent.
    fn listed(&self, name: &str) -> Value {
        let agents = self.team.json(["agents"]);
        let mut agents = agents.as_array().unwrap().iter();
        agents.find(|agent| agent["name"] == name).unwrap().clone()
    }

    /// What a fresh teammate answers.
    fn answer(&self, name: &str) -> String {
        self.team
            .teamctl(["spawn", name, "--agent", "mine", "--prompt", "hello"])
            .ok();
        self.team.until_finished(name, 1);
        let notice = self.team.notices(name).pop().unwrap();
        notice["content"].as_str().unwrap().to_owned()
    }
}

#[test]
fn what_is_installed_is_what_a_spawn_runs() {
    for (command, program, manager) in [
        (
            "['npx', '-y', '@own/tool-agent', 'acp', '-v']",
            "node_modules/.bin/agent",
            "npm",
        ),
        (
            "['uvx', 'tool-agent', 'acp', '-v']",
            "venv/bin/tool-agent",
            "uv",
        ),
    ] {
        let published = Published::new();
        published.defines(command);
        let team = &published.team;
        team.teamd(["start"]).ok();
        let refused = team.teamctl(["spawn", "carol", "--agent", "mine"]);
        let refused = refused.exits(1).stderr;
        assert!(
            refused.contains("fetches a program each time")
                && refused.contains("`teamctl agents install mine` installs it once"),
            "{refused}"
        );
        let before = published.listed("mine");
        assert_eq!(before["state"], "not installed", "{before}");
        assert_eq!(before["install"], "teamctl agents install mine");
        let report = published.install(&["mine"]);
        let keys = ["name", "package", "version", "program", "new", "command"];
        valid(team, "agents-install", &report, &keys);
        assert_eq!(
            (&report["new"], &report["version"]),
            (&true.into(), &"1.2.0".into())
        );
        let path = report["program"].as_str().unwrap();
        assert!(path.ends_with(&format!("mine-1.2.0/{program}")), "{path}");
        let after = published.listed("mine");
        assert_eq!(after["state"], "ready", "{after}");
        assert_eq!(
            (&after["version"], &after["program"]),
            (&"1.2.0".into(), &path.into())
        );
        assert_eq!(after["install"], Value::Null);
        assert_eq!(published.answer("carol"), "hello of 1.2.0 with acp -v");
        let config = team.file("config.json");
        assert!(config.contains(path), "it is recorded: {config}");
        for call in published.calls() {
            // A settings file of the workspace can be a teammate's.
            assert!(
                call.starts_with(manager) && call.contains("/tools/.unfinished-"),
                "{call}"
            );
        }
        assert_eq!(published.installed(), ["mine-1.2.0"]);
    }
}

/// An agent that needs no table in `team.toml` is the installed one, and speaks ACP as before.
#[test]
fn an_agent_without_a_table_is_installed_by_its_name() {
    let key = "sk-0123456789";
    let published = Published::of(Team::new().with("OPENAI_API_KEY", key));
    let team = &published.team;
    if !python::is_here() {
        note("skipped: the stub of an agent needs python3");
        return;
    }
    published.put("programs", r#"{"opencode": "./agent"}"#);
    published.put("content/stub.py", include_str!("../fixtures/acp-stub.py"));
    published.put("content/orders.py", include_str!("../fixtures/orders.py"));
    published.put(
        "content/agent",
        "#!/bin/sh\nexec python3 -SB \"$(dirname \"$(realpath \"$0\")\")/stub.py\" \"$@\"\n",
    );
    published.put("version", "1.18.33");
    assert_eq!(published.listed("opencode")["state"], "missing");
    let report = published.install(&["opencode@1.18.33"]);
    assert_eq!(report["package"], "opencode-ai@1.18.33");
    assert_eq!(published.listed("opencode")["state"], "ready");
    team.teamd(["start"]).ok();
    team.teamctl([
        "spawn",
        "carol",
        "--agent",
        "opencode",
        "--prompt",
        "say hello",
    ])
    .ok();
    team.until_finished("carol", 1);
    assert_eq!(team.notices("carol")[0]["content"], "hello");
    let environment = std::fs::read_to_string(published.packages.join("environment")).unwrap();
    assert!(!environment.contains(key), "no script pays for models");
}

/// The installed Claude Code is the user's own: a resumed one keeps the token, also after an update.
#[test]
fn an_installed_agent_logs_in_with_a_token_also_when_it_is_resumed() {
    let token = "sk-ant-oat01-0123456789";
    let published = Published::of(Team::new().with("CLAUDE_CODE_OAUTH_TOKEN", token));
    let team = &published.team;
    if !python::is_here() {
        note("skipped: the stub of an agent needs python3");
        return;
    }
    let folder = team.home().join(".config/teamd");
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join("config.toml");
    let login = "[agents.claude]\nlogin = 'token'\n";
    team.write(config.to_str().unwrap(), login);
    published.put("programs", r#"{"claude": "./agent"}"#);
    published.put(
        "content/stub.py",
        include_str!("../fixtures/claude-stub.py"),
    );
    published.put("content/orders.py", include_str!("../fixtures/orders.py"));
    published.put(
        "content/agent",
        "#!/bin/sh\nexec python3 -SB \"$(dirname \"$(realpath \"$0\")\")/stub.py\" \"$@\"\n",
    );
    published.put("version", "2.1.330");
    published.install(&["claude@2.1.330"]);
    team.teamd(["start"]).ok();
    let look = "$ echo ${CLAUDE_CODE_OAUTH_TOKEN#sk-ant-}";
    team.teamctl(["spawn", "carol", "--agent", "claude", "--prompt", look])
        .ok();
    team.until_finished("carol", 1);
    team.shutdown("carol", &[], 0);
    published.put("version", "2.1.331");
    published.install(&["claude@2.1.331"]);
    team.teamctl(["spawn", "carol", "--resume"]).ok();
    team.send("carol", look);
    team.until_finished("carol", 2);
    for notice in team.notices("carol") {
        assert_eq!(notice["content"], "oat01-0123456789", "{notice}");
    }
}

/// A person installs again without harm, and gets a newer version by asking for it.
#[test]
fn a_second_installation_changes_nothing_and_a_newer_version_is_asked_for() {
    let published = Published::new();
    published.defines("['npx', '-y', 'tool-agent', 'acp']");
    published.team.teamd(["start"]).ok();
    assert_eq!(published.install(&["mine"])["new"], true);
    let calls = published.calls().len();
    published.version("1.3.0");
    assert_eq!(published.install(&["mine"])["new"], false);
    assert_eq!(published.calls().len(), calls, "nothing is fetched");
    assert_eq!(published.answer("carol"), "hello of 1.2.0 with acp");
    assert_eq!(
        published.install(&["mine", "--upgrade"])["version"],
        "1.3.0"
    );
    assert_eq!(published.answer("dan"), "hello of 1.3.0 with acp");
    let again = published.install(&["--upgrade", "mine"]);
    assert_eq!(
        (&again["new"], &again["version"]),
        (&false.into(), &"1.3.0".into())
    );
    assert_eq!(published.installed(), ["mine-1.2.0", "mine-1.3.0"]);
    // A teammate keeps what it was spawned with.
    published.team.shutdown("carol", &[], 0);
    published.team.teamctl(["spawn", "carol", "--resume"]).ok();
    published.team.send("carol", "again");
    published.team.until_finished("carol", 2);
    let notice = published.team.notices("carol").pop().unwrap();
    assert_eq!(notice["content"], "again of 1.2.0 with acp");
}

#[test]
fn an_installation_that_is_killed_counts_as_none() {
    for command in ["['npx', '-y', 'tool-agent']", "['uvx', 'tool-agent']"] {
        let published = Published::new();
        published.defines(command);
        published.put("hang", "");
        let running = published.team.start_teamctl(["agents", "install", "mine"]);
        let hangs = published.packages.join("hangs");
        published
            .team
            .until("the package manager", || hangs.exists());
        running.signal(Signal::SIGKILL);
        assert_eq!(published.listed("mine")["state"], "not installed");
        assert!(published.installed()[0].starts_with(".unfinished-"));
        // While the package manager of the killed one still writes, another one waits.
        let second = published.team.start_teamctl(["agents", "install", "mine"]);
        std::fs::remove_file(published.packages.join("hang")).unwrap();
        drop(running.finish());
        let second = second.finish().ok();
        assert!(
            second.stdout.contains("mine 1.2.0 is installed"),
            "{second:?}"
        );
        assert_eq!(published.installed(), ["mine-1.2.0"]);
        assert_eq!(published.listed("mine")["state"], "ready");
    }
}

#[test]
fn an_installation_that_fails_says_why_and_leaves_nothing() {
    let published = Published::new();
    published.defines("['npx', '-y', 'tool-agent']");
    let install = || published.team.teamctl(["agents", "install", "mine"]);
    published.put("fails", "");
    let failed = install().exits(1).stderr;
    assert!(
        failed.contains("npm error 404") && failed.contains("nothing was installed"),
        "{failed}"
    );
    std::fs::remove_file(published.packages.join("fails")).unwrap();
    published.put("programs", r#"{"agent": "./agent", "other": "./agent"}"#);
    let failed = install().exits(1).stderr;
    assert!(
        failed.contains("no program tool-agent") && failed.contains("agent, other"),
        "{failed}"
    );
    published.defines("['npx', '-y', '--package', 'tool-agent', 'agent', 'acp']");
    std::fs::set_permissions(
        published.packages.join("content/agent"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    let failed = install().exits(1).stderr;
    assert!(
        failed.contains("no program") && failed.contains("--scripts"),
        "{failed}"
    );
    assert_eq!(published.installed(), [""; 0]);
    published.version("1.2.0");
    let done = install().ok();
    assert!(
        done.stderr
            .contains("install scripts of below were not run"),
        "{done:?}"
    );
    let built = published
        .team
        .home()
        .join(".local/share/teamd/tools/mine-1.2.0/built");
    assert_eq!(std::fs::read_to_string(built).unwrap(), "tool-agent\n");
}

#[test]
fn without_a_package_manager_the_next_step_is_named() {
    for (command, manager) in [("npx", "nodejs.org"), ("uvx", "astral.sh/uv")] {
        let team = Team::new().with("PATH", "/nowhere");
        team.write(
            "team.toml",
            &format!("[agents.mine]\ncommand = ['{command}', 'tool-agent']\nprotocol = 'run'\n"),
        );
        team.trust();
        let refused = team.teamctl(["agents", "install", "mine"]).exits(1).stderr;
        assert!(refused.contains(manager), "{refused}");
    }
}

/// What `team.toml` names runs as the user: it is trusted first.
#[test]
fn what_is_not_trusted_is_not_installed() {
    let published = Published::new();
    published.team.write(
        "team.toml",
        "[agents.mine]\ncommand = ['npx', '-y', 'tool-agent']\nprotocol = 'run'\n[agents.own]\ncommand = ['docker', 'run', 'x']\nprotocol = 'run'\n",
    );
    let install = |name: &str| published.team.teamctl(["agents", "install", name]);
    let refused = install("mine").exits(3).stderr;
    assert!(refused.contains("teamd trust"), "{refused}");
    published.team.trust();
    install("mine").ok();
    let refused = install("own").exits(2).stderr;
    assert!(refused.contains("docker is not understood"), "{refused}");
    let refused = install("nobody").exits(4).stderr;
    assert!(
        refused.contains("claude, codex, opencode or gemini"),
        "{refused}"
    );
    assert_eq!(published.installed(), ["mine-1.2.0"]);
}

#[test]
fn an_agent_of_the_registry_is_installed_from_its_file() {
    let published = Published::new();
    published.team.write(
        "registry.json",
        r#"{"version": "1.0.0", "agents": [
            {"id": "kim", "name": "Kim", "version": "1.2.0", "distribution": {
                "npx": {"package": "@own/kim@1.2.0", "cmd": "agent", "args": ["--acp"], "env": {"KIM": "1"}}}},
            {"id": "pym", "name": "Pym", "version": "1.2.0", "distribution": {"uvx": {"package": "tool-agent==1.2.0"}}},
            {"id": "bin", "name": "Bin", "version": "1.2.0", "distribution": {
                "binary": {"linux-x86_64": {"archive": "https://example.org/bin.tgz", "cmd": "./bin", "args": ["acp"]},
                           "linux-aarch64": {"archive": "https://example.org/bin.tgz", "cmd": "./bin", "args": ["acp"]}}}}]}"#,
    );
    let install = |id: &str| {
        let words = ["agents", "install", "registry.json", id];
        published.team.teamctl(words)
    };
    let done = install("kim").ok();
    let command = r#"command = ["npx", "-y", "--package", "@own/kim@1.2.0", "agent", "--acp"]"#;
    assert!(
        done.stderr.contains("[agents.\"kim\"]") && done.stderr.contains(command),
        "{done:?}"
    );
    assert!(done.stderr.contains("KIM=1"), "{done:?}");
    let table = format!("[agents.\"kim\"]\n{command}\nprotocol = \"acp\"\n");
    published.team.write("team.toml", &table);
    published.team.trust();
    assert_eq!(published.listed("kim")["state"], "ready");
    let again = install("kim").ok();
    assert!(
        !again.stderr.contains("[agents."),
        "it is defined: {again:?}"
    );
    install("pym").ok();
    assert_eq!(published.installed(), ["kim-1.2.0", "pym-1.2.0"]);
    let refused = install("bin").exits(1).stderr;
    assert!(refused.contains("https://example.org/bin.tgz"), "{refused}");
    let refused = install("who").exits(4).stderr;
    assert!(refused.contains("kim, pym, bin"), "{refused}");
}

/// The lead agent spawns what a person has installed, and nothing else.
#[test]
fn the_lead_agent_starts_no_launcher_either() {
    let published = Published::new();
    published.defines("['npx', '-y', 'tool-agent', 'acp']");
    let team = &published.team;
    team.teamd(["start"]).ok();
    team.start_lead();
    let spawn =
        r#"/spawn_teammate {"name": "bob", "role": "coder", "prompt": "hello", "agent": "mine"}"#;
    let results = team.lead_does(spawn);
    let refused = results[0]["content"].to_string();
    assert!(refused.contains("teamctl agents install mine"), "{refused}");
    published.install(&["mine"]);
    team.lead_does(spawn);
    team.until_finished("bob", 1);
    assert_eq!(team.notices("bob")[0]["content"], "hello of 1.2.0 with acp");
}

/// Servers are installed as agents are; and the lead agent gives those that it has, in the version
/// in which it has them.
#[test]
fn an_mcp_server_is_installed_once_and_given_on() {
    let published = Published::new();
    let team = &published.team;
    if !python::is_here() {
        note("skipped: the stub of an MCP server needs python3");
        return;
    }
    published.put("content/stub.py", include_str!("../fixtures/mcp-stub.py"));
    published.put(
        "content/agent",
        "#!/bin/sh\nexec python3 -SB \"$(dirname \"$(realpath \"$0\")\")/stub.py\"\n",
    );
    team.write(
        "team.toml",
        "[mcp.stub]\ncommand = ['npx', '-y', 'tool-agent']\n[mcp.web]\nurl = 'http://127.0.0.1:9/mcp'\n[lead]\nmcp = ['stub']\n",
    );
    let install = ["mcp", "install", "stub"];
    let refused = team.teamctl(install).exits(3).stderr;
    assert!(refused.contains("teamd trust"), "{refused}");
    team.trust();
    team.teamd(["start"]).ok();
    let refused = team.teamctl(["spawn", "alice", "--mcp", "stub"]).exits(1);
    assert!(
        refused.stderr.contains("teamctl mcp install stub"),
        "{refused:?}"
    );
    let listed = team.json(["mcp", "list"]).to_string();
    assert!(listed.contains("teamctl mcp install stub"), "{listed}");
    team.teamctl(["mcp", "install", "web"]).exits(2);
    team.teamctl(["mcp", "install", "none"]).exits(4);
    let report = team.json(install);
    assert_eq!(published.installed(), ["stub-1.2.0"], "{report}");
    let call =
        "/mcp_call {\"name\": \"mcp__stub__variable\", \"arguments\": {\"variable\": \"HOME\"}}";
    team.teamctl(["spawn", "alice", "--mcp", "stub"]).ok();
    let results = team.does("alice", call);
    let said = results[0]["content"].as_str().unwrap();
    assert_eq!(said, team.home().to_str().unwrap());
    team.teamctl_with(["chat", "--timeout", "30s"], "/bash true")
        .ok();
    published.put("version", "1.3.0");
    team.teamctl(install.iter().chain(["--upgrade"].iter()))
        .ok();
    let spawn = r#"{"name": "bob", "role": "coder", "prompt": "hello", "mcp": ["stub"]}"#;
    team.lead_does(&format!("/spawn_teammate {spawn}"));
    team.until_finished("bob", 1);
    let results = team.does("bob", call);
    assert_eq!(results[0]["is_error"], false, "{results:?}");
    let servers = |name: &str| {
        let journal = team.journal();
        let mut lines = journal.iter().rev();
        let line = lines.find(|line| line["name"] == name && line["mcp"].is_array());
        line.unwrap()["mcp"].to_string()
    };
    assert!(servers("bob").contains("stub-1.2.0"), "{}", servers("bob"));
    team.teamctl(["spawn", "carol", "--mcp", "stub"]).ok();
    assert!(
        servers("carol").contains("stub-1.3.0"),
        "{}",
        servers("carol")
    );
}
