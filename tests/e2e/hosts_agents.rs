//! Agents of others and MCP servers on other machines: their programs, keys and files are those of
//! the host, and only what is named crosses. The agents and servers are stubs.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::checkouts::{REPOSITORY, add, until, user};
use crate::drivers::{ACP, CLAUDE, CODEX, KEY, Stub};
use crate::hosts::Hosts;
use crate::support::cgroup::note;
use crate::support::process::{descendants, is_agent};
use crate::support::sshd::make_program;
use crate::support::{Run, is_alive, python, signal};

/// What home has in its environment and nobody named.
const OF_HOME: [(&str, &str); 3] = [
    ("GITHUB_TOKEN", "secret-of-home"),
    ("OPENAI_ADMIN_KEY", "secret-of-home"),
    ("EDITOR", "editor-of-home"),
];

const TOKEN: &str = "sk-ant-oat01-fake-never-to-be-seen";

/// What the login of the host does not have of the test's environment.
const LOGIN: &str = "unset CUDA_HOME GITHUB_TOKEN OPENAI_ADMIN_KEY EDITOR STUB_TOKEN CLAUDE_CODE_OAUTH_TOKEN ANTHROPIC_API_KEY OPENAI_API_KEY\n";

/// A machine whose login has none of home's keys; none without Python.
fn machine(login: &str) -> Option<Hosts> {
    if !python::is_here() {
        note("skipped: the stubs need python3");
        return None;
    }
    let mut hosts = Hosts::without();
    make_program(&hosts.far.join("box.env"), &format!("{LOGIN}{login}"));
    for (name, value) in OF_HOME {
        hosts.team.set(name, value);
    }
    Some(hosts)
}

/// Puts a stub as a program into the `PATH` of the host.
fn install(hosts: &Hosts, program: &str, text: &str) {
    let stub = put(hosts, &format!("{program}-stub.py"), text);
    put(hosts, "orders.py", include_str!("../fixtures/orders.py"));
    let run = format!("#!/bin/sh\nexec python3 -S '{}' \"$@\"\n", stub.display());
    make_program(&bin(hosts).join(program), &run);
}

/// Puts a file beside the programs of the host.
fn put(hosts: &Hosts, name: &str, text: &str) -> PathBuf {
    std::fs::create_dir_all(bin(hosts)).unwrap();
    let path = bin(hosts).join(name);
    make_program(&path, text);
    path
}

fn bin(hosts: &Hosts) -> PathBuf {
    hosts.far.join("box/bin")
}

/// Starts the team with this file, and adds the host.
fn begin(hosts: &Hosts, toml: &str) {
    hosts.team.write("team.toml", toml);
    hosts.team.trust();
    hosts.team.teamd(["start"]).ok();
    hosts.add("box").ok();
}

fn spawn(hosts: &Hosts, more: &[&str]) -> Run {
    let words = ["spawn", "carol", "--host", "box", "--workspace", "~/work"];
    hosts.team.teamctl([&words[..], more].concat())
}

/// Sends a message, and returns what carol told the lead when that piece of work had ended.
fn runs(hosts: &Hosts, message: &str) -> String {
    let before = hosts.team.notices("carol").len();
    hosts.team.send("carol", message);
    hosts.team.until_finished("carol", before + 1);
    let notice = hosts.team.notices("carol").pop().unwrap();
    notice["content"].as_str().unwrap().to_owned()
}

/// A file in the workspace there.
fn text(hosts: &Hosts, file: &str) -> String {
    std::fs::read_to_string(hosts.far.join("box/work").join(file)).unwrap_or_default()
}

/// What the agents of a machine keep of their sessions.
fn sessions(hosts: &Hosts, home: &Path, stub: &Stub) -> String {
    let folder = home.join(".local/state/teamd/agents");
    let cat = format!("cat {}/*/carol/{}", folder.display(), stub.sessions);
    let found = hosts.team.command("bash", ["-c", &cat]).output().unwrap();
    String::from_utf8(found.stdout).unwrap()
}

fn agent_of(hosts: &Hosts) -> i32 {
    let mut found = descendants(hosts.host_pid("carol")).into_iter();
    found.find(|pid| is_agent(*pid)).unwrap()
}

/// An agent works on the host for many turns, over a plan, a kill of it and of its worker; what it
/// keeps is there, and goes with it.
fn an_agent_works_there(stub: &Stub) {
    let Some(mut hosts) = machine("") else { return };
    hosts.team.set(stub.key, KEY);
    install(&hosts, stub.agent, stub.program);
    begin(&hosts, "");
    let flags = ["--agent", stub.agent, "--plan"];
    let ready = spawn(&hosts, &flags).ok();
    assert!(ready.stdout.contains("carol is"), "{ready:?}");
    let member = hosts.team.member("carol");
    assert_eq!(member["agent"]["name"], stub.agent, "{member}");
    // Home has looked for nothing, and the record names what the user has named.
    assert_eq!(member["agent"]["command"][0], stub.agent, "{member}");
    let plan = r#"@plan_approval {"plan": "make a file"}"#;
    hosts.send(
        "carol",
        &format!("$ echo early > made.txt\n{plan}\n$ pwd > made.txt"),
    );
    hosts.team.until("the plan", || {
        hosts.team.status("carol") == "awaiting_approval"
    });
    assert_eq!(text(&hosts, "made.txt"), "");
    let id = hosts.team.last_request("plan_approval");
    hosts.team.teamctl(["approve", &id]).ok();
    hosts.team.until_finished("carol", 1);
    let shown = runs(&hosts, "$ pwd > made.txt; echo $HOME\n@task_list");
    let there = hosts.far.join("box");
    assert!(shown.contains(there.to_str().unwrap()), "{shown}");
    assert_eq!(
        text(&hosts, "made.txt").trim(),
        there.join("work").to_str().unwrap()
    );
    let before = sessions(&hosts, &there, stub);
    assert!(before.contains("made.txt"), "{before}");
    assert_eq!(sessions(&hosts, &hosts.team.home(), stub), "");
    // The session goes on with another process.
    let agent = agent_of(&hosts);
    signal(agent, Signal::SIGKILL);
    hosts
        .team
        .until("the end of the agent", || !is_alive(agent));
    assert!(runs(&hosts, "say again").contains("again"));
    let worker = hosts.host_pid("carol");
    signal(worker, Signal::SIGKILL);
    hosts.team.until("another incarnation", || {
        hosts.team.incarnation("carol") == 2 && hosts.team.status("carol") == "idle"
    });
    assert!(runs(&hosts, "say once more").contains("once more"));
    let after = sessions(&hosts, &there, stub);
    assert!(after.starts_with(&before), "it is the same session");
    hosts.team.teamctl(["shutdown", "carol"]).ok();
    hosts.team.teamctl(["forget", "carol"]).ok();
    hosts.team.until("its session to be gone", || {
        sessions(&hosts, &there, stub).is_empty()
    });
}

#[test]
fn claude_works_on_a_host() {
    an_agent_works_there(&CLAUDE);
}

#[test]
fn codex_works_on_a_host() {
    an_agent_works_there(&CODEX);
}

#[test]
fn an_agent_by_acp_works_on_a_host() {
    an_agent_works_there(&ACP);
}

#[test]
fn a_question_of_an_agent_there_is_answered_at_home() {
    let Some(mut hosts) = machine("") else { return };
    hosts.team.set(CLAUDE.key, KEY);
    install(&hosts, "claude", CLAUDE.program);
    begin(&hosts, "");
    let flags = ["--agent", "claude", "--permissions", "ask"];
    spawn(&hosts, &flags).ok();
    hosts.send("carol", "$ echo yes > first");
    hosts.team.until("the question", || {
        hosts.team.status("carol") == "awaiting_approval"
    });
    assert_eq!(text(&hosts, "first"), "");
    // The answer waits for the link.
    hosts.cut("box");
    let id = hosts.team.last_request("permission");
    hosts.team.teamctl(["approve", &id]).ok();
    hosts.mend("box");
    hosts.team.until_finished("carol", 1);
    assert_eq!(text(&hosts, "first"), "yes\n");
}

#[test]
fn a_program_that_is_missing_there_is_named_with_its_host_and_the_next_step() {
    let Some(mut hosts) = machine("") else { return };
    hosts.team.set(CODEX.key, KEY);
    // Home has it, and that counts for nothing.
    let only_here = hosts.team.temp().join("only-at-home");
    std::fs::create_dir_all(&only_here).unwrap();
    make_program(
        &only_here.join("codex"),
        "#!/bin/sh\ntouch \"$HOME/ran-at-home\"\n",
    );
    let path = format!(
        "{}/near:{}",
        hosts.far.display(),
        std::env::var("PATH").unwrap()
    );
    hosts
        .team
        .set("PATH", &format!("{}:{path}", only_here.display()));
    begin(
        &hosts,
        "[agents.mine]\ncommand = ['npx', '-y', 'some-agent']\nprotocol = 'acp'\n\
         [agents.own]\ncommand = ['no-such-program-here']\nprotocol = 'run'\n\
         [mcp.files]\ncommand = ['no-such-server-here']\n[mcp.fetched]\ncommand = ['uvx', 'some-server']\n",
    );
    let refused = |flags: &[&str], parts: &[&str]| {
        let said = spawn(&hosts, flags).run_failed().stderr;
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    let install_codex = "on box; there: `teamctl agents install codex` installs it";
    refused(
        &["--agent", "codex"],
        &[
            "the agent codex cannot be started: there is no program codex",
            install_codex,
        ],
    );
    refused(
        &["--agent", "mine"],
        &[
            "its command begins with npx",
            "on box; there: `teamctl agents install mine`",
        ],
    );
    refused(
        &["--agent", "own", "--model", "script"],
        &[
            "there is no program no-such-program-here on box",
            "correct `command` in `[agents.own]`",
        ],
    );
    refused(
        &["--model", "script", "--mcp", "files"],
        &["there is no program no-such-server-here on box"],
    );
    refused(
        &["--model", "script", "--mcp", "fetched"],
        &[
            "its command begins with uvx",
            "on box; there: `teamctl mcp install fetched`",
        ],
    );
    install(&hosts, "codex", CODEX.program);
    spawn(&hosts, &["--agent", "codex"]).ok();
    assert!(runs(&hosts, "say hello").contains("hello"));
    assert!(!hosts.team.home().join("ran-at-home").exists());
}

#[test]
fn a_program_of_the_user_does_one_piece_of_work_there() {
    let Some(hosts) = machine("") else { return };
    put(
        &hosts,
        "fixer",
        "#!/bin/sh\ncat > got.txt; echo fixed in $PWD\n",
    );
    begin(
        &hosts,
        "[agents.fixer]\ncommand = ['fixer']\nprotocol = 'run'\n",
    );
    spawn(&hosts, &["--agent", "fixer"]).ok();
    let said = runs(&hosts, "mend it");
    assert!(said.contains("far/box/work"), "{said}");
    assert!(text(&hosts, "got.txt").contains("mend it"));
}

/// Has the user's own configuration say that claude logs in with a token.
fn log_in_with_a_token(hosts: &Hosts) {
    let folder = hosts.team.home().join(".config/teamd");
    std::fs::create_dir_all(&folder).unwrap();
    make_program(
        &folder.join("config.toml"),
        "[agents.claude]\nlogin = 'token'\n",
    );
}

#[test]
fn the_token_of_a_person_stays_at_home_until_it_is_named_for_the_host() {
    let Some(mut hosts) = machine("") else { return };
    hosts.team.set("CLAUDE_CODE_OAUTH_TOKEN", TOKEN);
    std::fs::File::create(hosts.far.join("listens")).unwrap();
    log_in_with_a_token(&hosts);
    install(&hosts, "claude", CLAUDE.program);
    begin(&hosts, "");
    let spawn_claude = || spawn(&hosts, &["--agent", "claude"]);
    let refused = spawn_claude().run_failed().stderr;
    assert!(
        refused.contains("box has no CLAUDE_CODE_OAUTH_TOKEN"),
        "{refused}"
    );
    assert!(refused.contains("`[hosts.box]`"), "{refused}");
    hosts.said_without(&[TOKEN]);
    hosts.team.write(
        "team.toml",
        "[hosts.box]\nenv = ['CLAUDE_CODE_OAUTH_TOKEN']\n",
    );
    hosts.team.trust();
    // No teammate gets it that does not log in with it.
    let other = ["spawn", "dave", "--host", "box", "--workspace", "~/work"];
    hosts
        .team
        .teamctl([&other[..], &["--model", "script"]].concat())
        .ok();
    hosts.said_without(&[TOKEN]);
    let spawned = spawn_claude().ok();
    assert!(
        spawned.stderr.contains("carol has your token"),
        "{spawned:?}"
    );
    let look = r#"$ echo "token=${CLAUDE_CODE_OAUTH_TOKEN#sk-ant-}""#;
    let seen = runs(&hosts, look);
    assert!(seen.contains("token=oat01-fake-never-to-be-seen"), "{seen}");
}

#[test]
fn a_token_of_the_login_there_needs_none_of_home() {
    let Some(hosts) = machine(&format!("export CLAUDE_CODE_OAUTH_TOKEN={TOKEN}\n")) else {
        return;
    };
    log_in_with_a_token(&hosts);
    install(&hosts, "claude", CLAUDE.program);
    begin(&hosts, "");
    spawn(&hosts, &["--agent", "claude"]).ok();
    let look = r#"$ echo "token=${CLAUDE_CODE_OAUTH_TOKEN#sk-ant-}""#;
    let seen = runs(&hosts, look);
    assert!(seen.contains("token=oat01-fake-never-to-be-seen"), "{seen}");
}

/// The definition of the stub of a server, as the host has it.
fn server(hosts: &Hosts, more: &str) -> String {
    let path = put(
        hosts,
        "mcp-stub.py",
        include_str!("../fixtures/mcp-stub.py"),
    );
    let (python, path) = (python::STUB, path.display());
    format!("[mcp.stub]\ncommand = [{python}, '{path}']\n{more}\n")
}

fn call(tool: &str, arguments: &Value) -> String {
    let input = json!({"name": format!("mcp__stub__{tool}"), "arguments": arguments});
    format!("/mcp_call {input}")
}

/// Carries out orders, and returns the results as they come to the copy at home.
fn does(hosts: &Hosts, orders: &[String]) -> Vec<Value> {
    let before = hosts.team.results("carol").len();
    hosts.team.send("carol", &orders.join("\n"));
    let wanted = before + orders.len();
    hosts.team.until("the results", || {
        hosts.team.results("carol").len() >= wanted
    });
    hosts.team.results("carol").split_off(before)
}

#[test]
fn a_server_runs_on_the_host_with_the_variables_that_are_named() {
    let Some(mut hosts) = machine("export ELSEWHERE=of-the-host\n") else {
        return;
    };
    hosts.team.set("STUB_TOKEN", "tok-3c1f");
    let more = "env = ['STUB_TOKEN', 'PATH', 'HOME', 'ELSEWHERE']";
    let toml = server(&hosts, more);
    begin(&hosts, &toml);
    spawn(&hosts, &["--model", "script", "--mcp", "stub"]).ok();
    let variable = |name: &str| call("variable", &json!({"variable": name}));
    let orders = [
        call("write", &json!({"path": "made", "content": "by a tool"})),
        // What is given is replaced in what a server says: its length tells.
        call(
            "run",
            &json!({"command": "printf %s \"$STUB_TOKEN\" | wc -c"}),
        ),
        variable("HOME"),
        call("run", &json!({"command": "echo ${ELSEWHERE#of-}"})),
        variable("GITHUB_TOKEN"),
        "/bash echo ${STUB_TOKEN-none}".to_owned(),
    ];
    let results = does(&hosts, &orders);
    let content = |number: usize| results[number]["content"].as_str().unwrap();
    assert_eq!(text(&hosts, "made"), "by a tool");
    assert_eq!(content(1).trim(), "8", "{results:?}");
    assert!(content(2).ends_with("/far/box"), "{results:?}");
    assert_eq!(content(3).trim(), "the-host");
    assert_eq!(content(4), "(not set)");
    assert!(content(5).contains("none"), "{results:?}");
    // Its worker says so, also on a link that is newer than it is.
    let is_told = || {
        let listed = hosts.team.json(["mcp", "list"]);
        let state = &listed[0]["states"][0];
        state["teammate"] == "carol" && state["state"] == "connected"
    };
    hosts.team.until("the state of the server", is_told);
    hosts.team.kill_daemon();
    hosts.team.teamd(["start"]).ok();
    hosts.until_link("box", "up");
    hosts.team.until("the state of the server again", is_told);
    // What it was given is known again, for the next incarnation.
    signal(hosts.host_pid("carol"), Signal::SIGKILL);
    hosts.team.until("another incarnation", || {
        hosts.team.incarnation("carol") == 2 && hosts.team.status("carol") == "idle"
    });
    let results = does(&hosts, &orders[1..2]);
    assert_eq!(results[0]["content"].as_str().unwrap().trim(), "8");
}

#[test]
fn a_closed_gate_holds_a_server_there() {
    let Some(hosts) = machine("") else { return };
    begin(&hosts, &server(&hosts, ""));
    spawn(&hosts, &["--model", "script", "--mcp", "stub", "--plan"]).ok();
    let write = call("write", &json!({"path": "made", "content": "x"}));
    let lie = call("lie", &json!({"path": "made"}));
    let results = does(&hosts, &[write, lie]);
    for result in &results {
        assert_eq!(result["is_error"], true, "{results:?}");
    }
    assert_eq!(text(&hosts, "made"), "");
}

#[test]
fn a_variable_that_neither_side_has_is_named() {
    let Some(mut hosts) = machine("") else { return };
    // Each command at home has the place of `CUDA_HOME`: it says something about home.
    hosts.team.set("CUDA_HOME", "/opt/cuda-of-home");
    for name in ["STUB_TOKEN", "CUDA_HOME"] {
        let toml = server(&hosts, &format!("env = ['{name}']"));
        hosts.team.write("team.toml", &toml);
        hosts.team.trust();
        hosts.team.teamd(["start"]);
        hosts.add("box").ok();
        let refused = spawn(&hosts, &["--model", "script", "--mcp", "stub"]);
        let said = refused.run_failed().stderr;
        let part = format!("needs {name}, which is not set on box: set it in the login there");
        assert!(said.contains(&part), "{said}");
    }
}

#[test]
fn no_secret_of_home_crosses_for_an_agent_or_a_server() {
    let Some(mut hosts) = machine("") else { return };
    std::fs::File::create(hosts.far.join("listens")).unwrap();
    hosts.team.set(CLAUDE.key, KEY);
    hosts.team.set("CLAUDE_CODE_OAUTH_TOKEN", TOKEN);
    hosts.team.set("STUB_TOKEN", "tok-3c1f");
    hosts.team.set("CLAUDE_CONFIG_DIR", "/config-of-home");
    hosts.team.set("CODEX_HOME", "/config-of-home");
    install(&hosts, "claude", CLAUDE.program);
    let more = "env = ['STUB_TOKEN', 'PATH']";
    let toml = server(&hosts, more);
    begin(&hosts, &toml);
    spawn(&hosts, &["--agent", "claude", "--mcp", "stub"]).ok();
    let said = runs(&hosts, "$ env");
    let home = hosts.team.home().display().to_string();
    for text in [
        "secret-of-home",
        "editor-of-home",
        TOKEN,
        "config-of-home",
        KEY,
        &home,
    ] {
        assert!(!said.contains(text), "{text}: {said}");
    }
    let of_home = ["secret-of-home", "editor-of-home", TOKEN, "config-of-home"];
    // No person is there, whatever the login has set.
    assert!(said.contains("no editor here"), "{said}");
    let said = hosts.said_without(&of_home);
    assert!(said.contains("STUB_TOKEN") && said.contains("tok-3c1f"));
}

#[test]
fn an_agent_with_a_checkout_there_works_on_tasks() {
    let Some(mut hosts) = machine("") else { return };
    hosts.team.set(CODEX.key, KEY);
    std::fs::create_dir_all(hosts.far.join("box/shared")).unwrap();
    user(&hosts.team, REPOSITORY);
    let toml = "[work]\ncheck = 'test -e one'\n[checkout]\nsetup = '[ ! -d ~/shared ] || touch ~/shared/by-setup'\n";
    begin(&hosts, toml);
    let words = ["spawn", "carol", "--host", "box", "--checkout"];
    let flags = ["--agent", "codex", "--writable", "~/shared"];
    let spawn = |more: &[&str]| hosts.team.teamctl([&words[..], &flags, more].concat());
    // What is missing is said before anything is cloned, sent or set up.
    let refused = |run: Run, part: &str| {
        let said = run.run_failed().stderr;
        assert!(said.contains(part), "{part}: {said}");
        let repositories = hosts.far.join("box/.local/state/teamd/repositories");
        assert!(!repositories.exists(), "the repository is there");
    };
    refused(spawn(&[]), "there is no program codex on box");
    install(&hosts, "codex", CODEX.program);
    refused(
        spawn(&["--writable", "~/missing"]),
        "cannot write ~/missing on box",
    );
    spawn(&[]).ok();
    assert!(hosts.far.join("box/shared/by-setup").exists());
    add(&hosts.team, &["one"]);
    let said = runs(
        &hosts,
        "@claim_task {\"task_id\": 1}\n$ echo one > one; git add one; git commit -qm one\n\
         @task_update {\"task_id\": 1, \"status\": \"completed\"}\n$ touch ~/shared/by-agent",
    );
    let done = until(&hosts.team, 1, "completed");
    assert_eq!(done["result"]["verified"], "checked", "{done} {said}");
    assert_eq!(done["submission"]["by"], "carol", "{done}");
    assert!(hosts.far.join("box/shared/by-agent").exists());
}

/// Whether the commands of carol can write there.
fn can_write(hosts: &Hosts, path: &str) -> bool {
    let order = format!("/bash touch {path}/probe && rm {path}/probe");
    does(hosts, &[order])[0]["is_error"] != true
}

#[test]
fn what_a_teammate_may_not_read_is_named_as_it_is_there() {
    let Some(hosts) = machine("") else { return };
    let there = hosts.far.join("box");
    for folder in ["keys", "open"] {
        std::fs::create_dir_all(there.join(folder)).unwrap();
        make_program(&there.join(folder).join("file"), "#!/bin/sh\n");
    }
    begin(&hosts, "");
    let flags = ["--model", "script", "--hidden"];
    let refused = spawn(&hosts, &[&flags[..], &["keys"]].concat()).run_failed();
    assert!(
        refused
            .stderr
            .contains("may not read on box is not said by the path keys"),
        "{}",
        refused.stderr
    );
    spawn(&hosts, &[&flags[..], &["~/keys"]].concat()).ok();
    let read = |folder: &str| {
        let order = format!("/bash cat ~/{folder}/file");
        does(&hosts, &[order])[0]["is_error"] != true
    };
    assert!(read("open"));
    assert!(!read("keys"), "it is hidden there");
}

#[test]
fn what_a_teammate_may_write_beside_its_workspace_is_named_as_it_is_there() {
    let Some(hosts) = machine("") else { return };
    let there = hosts.far.join("box");
    for folder in [
        "shared",
        "of-file",
        "work",
        "repo/.git/hooks",
        ".cargo/registry",
    ] {
        std::fs::create_dir_all(there.join(folder)).unwrap();
    }
    std::fs::create_dir_all(hosts.team.home().join("shared")).unwrap();
    begin(&hosts, "[roles.coder.sandbox]\nwritable = ['~/of-file']\n");
    let flags = ["--model", "script", "--role", "coder"];
    let refused = |more: &[&str], part: &str| {
        let run = spawn(&hosts, &[&flags[..], more].concat());
        let said = run.run_failed().stderr;
        assert!(said.contains(part), "{said}");
    };
    refused(&["--writable", "shared"], "is not said by the path shared");
    refused(
        &["--writable", "~/repo/.git/hooks"],
        "cannot write ~/repo/.git/hooks on box: it belongs to the repository",
    );
    let of_team = hosts.inbox_there("box", "carol").display().to_string();
    refused(&["--writable", &of_team], "it lies in the team directory");
    refused(
        &["--writable", "~/missing"],
        "carol cannot write ~/missing on box: ",
    );
    spawn(
        &hosts,
        &[&flags[..], &["--writable", "~/shared", "--caches"]].concat(),
    )
    .ok();
    let member = hosts.team.member("carol");
    let wanted = json!(["~/shared", "~/of-file", "--caches"]);
    assert_eq!(member["sandbox"]["writable"], wanted, "{member}");
    for (path, writable) in [
        ("~/shared", true),
        ("~/of-file", true),
        ("~/.cargo/registry", true),
        ("~/.cargo", false),
        ("~", false),
    ] {
        assert_eq!(can_write(&hosts, path), writable, "{path}");
    }
    // A link that a tool has made is not followed: the order that names it is refused, and the
    // conversation goes on without.
    does(
        &hosts,
        &["/bash mkdir ~/shared/in; ln -s ~/repo ~/work/link; rm -r ~/shared/in".to_owned()],
    );
    hosts.team.teamctl(["shutdown", "carol"]).ok();
    let why = "carol cannot write ~/work/link on box: ";
    let resume = ["spawn", "carol", "--resume", "--writable", "~/work/link"];
    let refused = hosts.team.teamctl(resume).run_failed().stderr;
    assert!(refused.contains(why), "{refused}");
    hosts.team.teamctl(["spawn", "carol", "--resume"]).ok();
    assert!(!can_write(&hosts, "~/repo"));
    assert!(can_write(&hosts, "~/shared"));
    let log = hosts.team.teamctl(["logs", "teamd"]).ok().stdout;
    assert!(log.contains(&format!("box: {why}")), "{log}");
}

/// The setup of a checkout runs before its teammate is started, and what it leaves decides nothing.
#[test]
fn a_link_that_the_setup_of_a_checkout_makes_is_not_followed() {
    let Some(hosts) = machine("") else { return };
    let there = hosts.far.join("box");
    for folder in ["d", "keys", "work"] {
        std::fs::create_dir_all(there.join(folder)).unwrap();
    }
    user(&hosts.team, REPOSITORY);
    let setup = "ln -s ~/keys ~/d/x; [ -e ~/d/goes-on ]";
    begin(&hosts, &format!("[checkout]\nsetup = '{setup}'\n"));
    let carol = || {
        let words = ["spawn", "carol", "--host", "box", "--checkout"];
        let flags = ["--model", "script", "--writable", "~/d"];
        hosts.team.teamctl([&words[..], &flags].concat())
    };
    let is_refused = |run: Run, part: &str| {
        let said = run.run_failed().stderr;
        assert!(said.contains(part), "{part}: {said}");
    };
    let of_tool = "is a link that a tool can have made";
    is_refused(carol(), "the setup of carol failed");
    let made = std::fs::read_link(there.join("d/x")).unwrap();
    assert_eq!(made, there.join("keys"), "the setup has run");
    let dave = ["spawn", "dave", "--host", "box", "--model", "script"];
    for more in [
        ["--workspace", "~/work", "--writable", "~/d/x"],
        ["--workspace", "~/d/x", "--writable", "~/work"],
    ] {
        is_refused(hosts.team.teamctl([&dave[..], &more].concat()), of_tool);
    }
    std::fs::File::create(there.join("d/goes-on")).unwrap();
    carol().ok();
}
