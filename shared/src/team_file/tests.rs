use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;
use crate::member::{ApproveBy, Restart, SandboxMode};
use crate::terms::{Terms, ToolGroup};

fn wrong(text: &str) -> (String, String, String) {
    let error = TeamFile::parse(text).unwrap_err();
    (
        error.place().unwrap().to_string(),
        error.what().to_owned(),
        error.hint().to_owned(),
    )
}

const TOP: &str = "top level";
const ALL_TABLES: [&str; 13] = [
    TOP,
    "[service]",
    "[sandbox]",
    "[tools]",
    "[work]",
    "[team]",
    "[machine]",
    "[roles.NAME]",
    "[members.NAME]",
    "[agents.NAME]",
    "[mcp.NAME]",
    "[hosts.NAME]",
    "[lead]",
];

/// A value that fits each key.
const EXAMPLES: [(&str, &str); 86] = [
    ("model", "'script'"),
    ("fallback_model", "'anthropic:x'"),
    ("plan", "true"),
    ("approve_by", "'lead'"),
    ("permissions", "'ask'"),
    ("restart", "'never'"),
    ("max_turns", "50"),
    ("max_tokens", "'200k'"),
    ("max_cost", "2.5"),
    ("memory", "'2G'"),
    ("cpu_time", "'1h'"),
    ("max_procs", "200"),
    ("max_time", "28800"),
    ("max_idle", "1800"),
    ("team", "{}"),
    ("max_members", "16"),
    ("approve_code", "true"),
    ("restart_max", "3"),
    ("restart_period", "'60s'"),
    ("watchdog", "'off'"),
    ("decide_within", "1.5"),
    ("permission_timeout", "'2m'"),
    ("shutdown_timeout", "'2m'"),
    ("grace", "'10s'"),
    ("durability", "'disk'"),
    ("cgroup", "'auto'"),
    ("poll", "false"),
    ("service", "{}"),
    ("sandbox", "{}"),
    ("tools", "{}"),
    ("groups", "['search', 'todo']"),
    ("roles", "{}"),
    ("members", "{}"),
    ("lead", "{}"),
    ("ca", "'platform'"),
    ("timeout", "'90s'"),
    ("context_window", "'200k'"),
    ("mode", "'read-only'"),
    ("network", "['github.com', '*.npmjs.org']"),
    ("writable", "['~/.cache']"),
    ("caches", "true"),
    ("hidden", "['~/private']"),
    ("visible", "['~/.private']"),
    ("env", "['GH_TOKEN']"),
    ("role", "'coder'"),
    ("prompt", "'Read the code first.'"),
    ("host", "'box'"),
    ("hosts", "{}"),
    ("ssh", "'user@box'"),
    ("max", "3"),
    ("workspace", "'web'"),
    ("count", "3"),
    ("auto_start", "true"),
    ("notify", "'bell'"),
    ("instructions", "'x'"),
    ("auto", "true"),
    ("work", "{}"),
    ("order", "[]"),
    ("check", "'cargo test'"),
    ("check_timeout", "'10m'"),
    ("check_network", "true"),
    ("check_hosts", "['box']"),
    ("final_check", "'home'"),
    ("protect", "['tests/**']"),
    ("agent", "'x'"),
    ("agents", "{}"),
    ("program", "{command = ['x'], protocol = 'run'}"),
    ("command", "['x']"),
    ("mcp", "['x']"),
    ("servers", "[]"),
    ("total", "{}"),
    ("url", "'https://x.org/mcp'"),
    ("headers", "{Authorization = 'env:TOKEN'}"),
    ("protocol", "'run'"),
    ("ports", "[5432]"),
    ("localhost", "'own'"),
    ("protect_review", "'lead'"),
    ("checkout", "true"),
    ("cache", "['target']"),
    ("checkouts", "'../clones'"),
    ("slots", "'off'"),
    ("admit", "'off'"),
    ("reserve", "20"),
    ("patience", "'2m'"),
    ("make", "true"),
    ("modle", "'script'"),
];

/// A file in which one table holds one key.
fn file_with(table: &str, line: &str) -> String {
    let others = [
        ("command", "command = ['x']\n"),
        ("protocol", "protocol = 'run'\n"),
        ("url", "url = 'http://x'\n"),
    ];
    let wanted: &[&str] = match table {
        // An agent has both keys.
        "[agents.NAME]" => &["command", "protocol"],
        // A server has one of them.
        "[mcp.NAME]" if line.starts_with("headers") => &["url"],
        "[mcp.NAME]" if line.starts_with("url") => &[],
        "[mcp.NAME]" => &["command"],
        _ => &[],
    };
    let others = others
        .into_iter()
        .filter(|(key, _)| wanted.contains(key) && !line.starts_with(key));
    let others: String = others.map(|(_, other)| other).collect();
    let table = if table == TOP {
        String::new()
    } else {
        format!("{}\n", table.replace("NAME", "x"))
    };
    format!("{table}{line}\n{others}")
}

#[test]
fn a_whole_file_is_read() {
    let text = r#"
model = "anthropic:m1"
max_tokens = "200k"
grace = 2.5
decide_within = "1m"

[service]
ca = "platform"
timeout = 90
context_window = 32_000

[sandbox]
network = false
writable = ["~/.cache", "target"]

[roles.reviewer]
prompt = """
Find what is wrong.
Say it plainly."""
plan = true
approve_by = "lead"

[roles."Senior engineer"]
restart = "never"

[members.alice]
role = "reviewer"
workspace = "web"
sandbox.mode = "read-only"
max_turns = 16

[lead]
prompt = "Be brief."
"#;
    let file = TeamFile::parse(text).unwrap();
    let settings = &file.settings;
    assert_eq!(file.team.model, Some("anthropic:m1".parse().unwrap()));
    assert_eq!(
        (file.team.max_tokens, settings.grace),
        (Some(200_000), Duration::from_millis(2500))
    );
    assert_eq!(settings.decide_within, Duration::from_secs(60));
    assert_eq!(file.service.timeout, Some(Duration::from_secs(90)));
    assert_eq!(file.service.context_window, Some(32_000));
    assert_eq!(file.team.sandbox.writable, ["~/.cache", "target"]);
    assert_eq!(
        file.roles["reviewer"].prompt.as_deref(),
        Some("Find what is wrong.\nSay it plainly.")
    );
    assert_eq!(file.roles["reviewer"].approve_by, Some(ApproveBy::Lead));
    assert_eq!(file.roles["Senior engineer"].restart, Some(Restart::Never));
    let alice = &file.members[&Name::new("alice").unwrap()];
    assert_eq!(
        (alice.max_turns, alice.sandbox.mode),
        (Some(16), Some(SandboxMode::ReadOnly))
    );
    assert_eq!(file.lead.prompt.as_deref(), Some("Be brief."));
}

#[test]
fn a_wrong_value_is_told_with_its_place_and_what_is_expected() {
    for (text, place, what) in [
        (
            "plan = 7",
            "1:8",
            "invalid type: integer `7`, expected a boolean",
        ),
        (
            "max_turns = 0",
            "1:13",
            "invalid value: integer `0`, expected a whole number above 0",
        ),
        (
            "max_turns = []",
            "1:13",
            "invalid type: sequence, expected a whole number above 0",
        ),
        (
            "[members.x]\nmemory = '1M'",
            "2:10",
            "expected a size such as 2G or 512M, 64M or more",
        ),
        ("[lead]\nmodel = 'gpt'", "2:9", "models are `script`"),
        ("grace = 'soon'", "1:9", "expected a time such as"),
        (
            "[service]\ncontext_window = 3999",
            "2:18",
            "expected a number of tokens of 4000 or more",
        ),
        (
            "members.alice = 'coder'",
            "1:17",
            "expected struct TermsPatch",
        ),
        ("[members.\"../x\"]", "1:10", "is not a name"),
        ("[members.lead]", "1:10", "it has a table `[lead]`"),
        (
            "sandbox = { writable = ['ö', 7] }",
            "1:30",
            "invalid type: integer `7`",
        ),
        (
            "sandbox = { env = ['GH_TOKEN', 'OPENAI_API_KEY'] }",
            "1:19",
            "is a model's key",
        ),
    ] {
        let (found, told, _) = wrong(text);
        assert_eq!(
            (found.as_str(), told.contains(what)),
            (place, true),
            "{text}: {told}"
        );
    }
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_what_may_be_meant() {
    let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(
        wrong("\n\n  modle = 1"),
        own("3:3", "unknown key `modle`", "did you mean `model`?")
    );
    assert_eq!(wrong("max-turns = 1").2, "did you mean `max_turns`?");
    assert_eq!(wrong("[member.alice]\n").2, "did you mean `members`?");
    assert_eq!(wrong("[members.alice]\nplna = true").0, "2:1");
    for key in ["hosts = ['a.org']", "ports = [1]"] {
        let (_, what, hint) = wrong(&format!(
            "[agents.x]\ncommand = ['x']\nprotocol = 'run'\n{key}"
        ));
        assert!(
            what.starts_with("unknown key `") && hint.contains("`network = "),
            "{what}: {hint}"
        );
    }
    assert_eq!(wrong("plan = true\n\"ümläut\" = 1").0, "2:1");
    assert_eq!(
        wrong("sandbox = { writable = ['ö'], \"größe\" = 1 }").0,
        "1:31"
    );
    assert_eq!(wrong("'a\u{1b}b' = 1").0, "1:3");
    assert!(!wrong("\"a\\u001bb\" = 1").1.contains('\u{1b}'));
}

#[test]
fn a_key_to_a_service_or_its_address_is_refused_and_not_repeated() {
    for line in [
        "api_key = 'sk-1'",
        "ANTHROPIC_API_KEY = 'sk-1'",
        "base_url = 'sk-1'",
    ] {
        for table in [TOP, "[service]", "[lead]"] {
            let (_, what, hint) = wrong(&file_with(table, line));
            assert!(hint.contains("in the environment only"), "{line}: {hint}");
            assert!(!what.contains("sk-1") && !hint.contains("sk-1"));
        }
    }
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    for (text, place) in [
        ("model = ", "1:9"),
        ("a = 1\nmodel = 'script'\nmodel = 'script'", "3:1"),
        ("[sandbox]\n[sandbox]\n", "2:1"),
        ("# ü\nmodel = \"öffne", "2:15"),
        ("\u{feff}[", "1:2"),
        ("plan = true\r\nplan = maybe\r\n", "2:8"),
    ] {
        let (found, what, _) = wrong(text);
        assert_eq!(
            found.split(':').next(),
            place.split(':').next(),
            "{text:?}: {found} {what}"
        );
        assert!(!what.is_empty());
    }
    assert!(
        TeamFile::parse("\u{feff}# with what some editors put in front\r\nplan = true\r\n").is_ok()
    );
}

#[test]
fn the_table_of_work_says_how_work_is_checked() {
    let text = "[work]\ncheck = 'cargo test'\ncheck_timeout = '2m'\nprotect = ['tests/**']\n";
    let work = TeamFile::parse(text).unwrap().settings.work;
    assert_eq!(
        (work.check.as_deref(), work.check_timeout),
        (Some("cargo test"), Some(120))
    );
    assert_eq!(
        (work.protect, work.check_network),
        (vec!["tests/**".to_owned()], false)
    );
    for (line, place, told) in [
        (
            "protect = ['a[']",
            "2:11",
            "the pattern \"a[\" cannot be used",
        ),
        ("check_timeout = 'soon'", "2:17", "soon"),
        ("checks = 'x'", "2:1", "unknown key `checks`"),
    ] {
        let (found, what, _) = wrong(&format!("[work]\n{line}"));
        assert!(
            found.starts_with(place) && what.contains(told),
            "{line}: {found} {what}"
        );
    }
}

fn load(path: &Path) -> Result<TeamFile, TeamFileError> {
    TeamFile::load(path, &|name| (name == "HOME").then(|| "/home/u".to_owned()))
}

#[test]
fn paths_count_from_the_directory_of_the_file() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("team.toml");
    let text = "sandbox.writable = ['~/.cache', './a/./b']\n[service]\nca = 'own.pem'\n[members.x]\nworkspace = '../y'\n";
    File::create(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes()))
        .unwrap();
    let file = load(&path).unwrap();
    let at = |path: &str| scratch.path().join(path).to_str().unwrap().to_owned();
    assert_eq!(
        file.team.sandbox.writable,
        ["/home/u/.cache".to_owned(), at("a/b")]
    );
    assert_eq!(file.service.ca, Some(at("own.pem")));
    assert_eq!(
        file.members[&Name::new("x").unwrap()].workspace,
        Some(at("../y"))
    );
    assert_eq!(
        TeamFile::load(&path, &|_| None).unwrap_err().hint(),
        "set HOME, or write the path without `~`"
    );
}

#[test]
fn a_file_is_read_from_its_place_and_nothing_else_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("team.toml");
    assert_eq!(load(&path), Ok(TeamFile::default()));
    let write = |bytes: &[u8]| {
        let mut file = File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
    };
    write(b"plan = true\n");
    let file = load(&path).unwrap();
    assert_eq!((file.team.plan, &file.path), (Some(true), &path));
    write(b"plan = 7\n");
    let error = load(&path).unwrap_err();
    let shown = format!(
        "{}:1:8: invalid type: integer `7`, expected a boolean",
        path.display()
    );
    assert_eq!(
        (error.to_string(), error.place()),
        (shown, Some(LineColumn { line: 1, column: 8 }))
    );
    write(b"plan = true\n# \xff\n");
    assert!(
        load(&path)
            .unwrap_err()
            .to_string()
            .ends_with(":2:3: this byte is not UTF-8")
    );
    let size = usize::try_from(MAX_SIZE).unwrap();
    write(&vec![b'\n'; size]);
    assert!(load(&path).is_ok());
    write(&vec![b'\n'; size + 1]);
    assert!(
        load(&path)
            .unwrap_err()
            .to_string()
            .ends_with("is larger than 1048576 bytes")
    );
    let fifo = scratch.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(
        load(&fifo)
            .unwrap_err()
            .to_string()
            .ends_with("fifo is not a regular file")
    );
    let folder = scratch.path().to_owned();
    assert!(
        load(&folder)
            .unwrap_err()
            .to_string()
            .ends_with("is not a regular file")
    );
}

#[test]
fn the_file_is_beside_the_team_directory_as_the_user_names_it() {
    let scratch = tempfile::tempdir().unwrap();
    let state = scratch.path().join("state/team");
    let work = scratch.path().join("work");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    symlink(&state, work.join(".team")).unwrap();
    let none = |_: &str| None;
    assert_eq!(
        TeamFile::locate(&work.join(".team"), none),
        work.join("team.toml")
    );
    assert_eq!(
        TeamFile::locate(&state.join(".."), none),
        scratch.path().join("team.toml")
    );
    let named = |name: &str| (name == "TEAM_FILE").then(|| "/etc/team.toml".to_owned());
    assert_eq!(
        TeamFile::locate(&work.join(".team"), named),
        PathBuf::from("/etc/team.toml")
    );
}

/// Reads the table of keys in the document: the tables where each key may stand.
fn documented() -> Vec<(&'static str, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/team-toml.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells.len(), 6, "{line}");
        let places = match cells[1] {
            "all" => "top, roles, members, lead",
            "teammates" => "top, roles, members",
            places => places,
        };
        for place in places.split(", ") {
            let table = ALL_TABLES
                .into_iter()
                .find(|table| table.contains(place) || (*table, place) == (TOP, "top"));
            rows.push((table.expect(line), cells[0].trim_matches('`').to_owned()));
        }
    }
    rows
}

#[test]
fn every_key_is_taken_where_the_document_names_it_and_nowhere_else() {
    let documented = documented();
    for table in ALL_TABLES {
        for (key, example) in EXAMPLES {
            let text = file_with(table, &format!("{key} = {example}"));
            let is_named = documented.contains(&(table, key.to_owned()));
            assert_eq!(TeamFile::parse(&text).map(drop).is_ok(), is_named, "{text}");
        }
    }
    let without: Vec<_> = documented
        .iter()
        .filter(|(_, key)| !EXAMPLES.iter().any(|(known, _)| known == key))
        .collect();
    assert_eq!(
        without,
        Vec::<&(&str, String)>::new(),
        "documented keys without an example"
    );
}

#[test]
fn a_group_of_tools_is_named_where_terms_are_and_an_unknown_one_is_told_the_others() {
    let text = "[tools]\ngroups = ['todo']\n[roles.r]\ntools.groups = ['skills', 'search']\n[members.m]\ntools.groups = []\n[lead]\ntools.groups = ['delegate']\n";
    let file = TeamFile::parse(text).unwrap();
    let groups = |terms: &TermsPatch| terms.tools.groups.clone().unwrap();
    assert_eq!(groups(&file.team), [ToolGroup::Todo]);
    assert_eq!(
        groups(&file.roles["r"]),
        [ToolGroup::Skills, ToolGroup::Search]
    );
    assert_eq!(groups(&file.lead), [ToolGroup::Delegate]);
    // A list replaces the one above it.
    let member = file.members[&Name::new("m").unwrap()].clone();
    let merged = member.merge(file.team.clone());
    assert_eq!(groups(&merged), []);
    let terms = Terms::default().with(&file.roles["r"]);
    assert_eq!(terms.groups, [ToolGroup::Skills]);
    let (place, what, hint) = wrong("[tools]\ngroups = ['todo', 'skill']\n");
    assert_eq!(place, "2:19");
    assert!(
        ["search", "todo", "skills", "delegate", "memory"]
            .iter()
            .all(|group| what.contains(group)),
        "{what}"
    );
    assert_eq!(hint, "did you mean `skills`?");
}

#[test]
fn a_member_with_a_count_stands_for_that_many_teammates() {
    let text =
        "[members.coder]\nrole = 'a'\ncount = 3\n[members.coder-2]\nrole = 'b'\n[members.solo]\n";
    let file = TeamFile::parse(text).unwrap();
    let name = |name: &str| Name::new(name).unwrap();
    let role = |of: &str| file.member(&name(of)).and_then(|terms| terms.role.clone());
    assert_eq!(
        file.teammates(&name("coder")),
        ["coder-1", "coder-2", "coder-3"].map(name)
    );
    assert_eq!(file.teammates(&name("solo")), [name("solo")]);
    assert_eq!(role("coder-1").as_deref(), Some("a"));
    assert_eq!(
        role("coder-2").as_deref(),
        Some("b"),
        "its own table counts first"
    );
    assert!(file.member(&name("solo")).is_some());
    assert!(
        ["coder-0", "coder-4", "coder-01", "solo-1"]
            .iter()
            .all(|of| file.member(&name(of)).is_none())
    );
    for bad in ["0", "-1", "1001", "'3'", "true"] {
        let (place, what, _) = wrong(&format!("[members.x]\ncount = {bad}\n"));
        assert_eq!(place, "2:9", "{what}");
    }
    let (place, what, _) = wrong(&format!("[members.{}]\ncount = 10\n", "x".repeat(30)));
    assert_eq!(place, "2:1", "{what}");
}

#[test]
fn the_example_of_the_document_is_a_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/team-toml.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> = text
        .split("```toml\n")
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert!(!examples.is_empty());
    for example in examples {
        let read = TeamFile::parse(example);
        assert!(read.is_ok(), "{example}\n{read:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_or_refused_at_a_place_that_is_there(text in "\\PC{0,60}([\\n\\[\\]=.\"'{},a-z0-9_ ]{0,20}\\PC{0,6}){0,12}") {
        if let Err(error) = TeamFile::parse(&text) {
            let place = error.place().unwrap();
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert!((1..=lines.len()).contains(&place.line), "{error}");
            prop_assert!(place.column <= lines[place.line - 1].chars().count() + 1, "{error}");
        }
    }

    #[test]
    fn any_value_of_any_key_is_read_or_refused_where_it_stands(
        at in 0..EXAMPLES.len(),
        blank in 0..5_usize,
        value in "[-+]?[0-9_.ekM]{1,8}|\"\\PC{0,8}\"|'[a-z/~ ]{0,9}'|\\[('[a-z]{0,3}',?){0,3}\\]|true|false|\\{[a-z]{0,3}\\}",
    ) {
        let key = EXAMPLES[at].0;
        // What begins a text of several lines is at fault where the file ends.
        prop_assume!(!value.contains("\"\"\"") && !value.contains("'''"));
        for table in ALL_TABLES {
            let text = format!("{}{}", "\n".repeat(blank), file_with(table, &format!("{key} = {value}")));
            if let Err(error) = TeamFile::parse(&text) {
                let line = blank + if table == TOP { 1 } else { 2 };
                let told = error.place().unwrap().line;
                // What a server is made of is judged as a whole.
                let is_whole = table == "[mcp.NAME]" && told < line;
                prop_assert!(told == line || is_whole, "{}{}", text, error);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_file_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("team.toml");
        std::io::Write::write_all(&mut File::create(&path).unwrap(), &bytes).unwrap();
        if let Err(error) = load(&path) {
            prop_assert!(error.to_string().contains("team.toml:"), "{}", error);
        }
    }
}

#[test]
fn what_is_nested_without_end_is_refused() {
    for text in [
        "model = ".to_owned() + &"[".repeat(200_000),
        "a.".repeat(200_000) + "b = 1",
    ] {
        assert!(TeamFile::parse(&text).is_err());
    }
}

#[test]
fn every_key_says_whether_it_widens_narrows_or_does_neither() {
    let mut count = 0;
    let of_checkout = [
        ("always", "true"),
        ("copy", "['x']"),
        ("setup", "'x'"),
        ("inputs", "['x']"),
    ];
    for table in ALL_TABLES.into_iter().chain(["[checkout]"]) {
        let examples = if table == "[checkout]" {
            &of_checkout[..]
        } else {
            &EXAMPLES
        };
        for (key, value) in examples {
            let Ok(file) = TeamFile::parse(&file_with(table, &format!("{key} = {value}"))) else {
                continue;
            };
            let name = match table {
                "[service]" | "[sandbox]" | "[tools]" | "[work]" | "[team]" | "[machine]"
                | "[checkout]" => {
                    format!("{}.{key}", table.trim_matches(['[', ']']))
                }
                _ => (*key).to_owned(),
            };
            assert!(
                file.effects().said.contains(name.as_str()),
                "{name} does not say what it does"
            );
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}

/// A repository that was cloned hands out no token of the user's.
#[test]
fn how_an_agent_logs_in_is_for_the_users_own_file() {
    for (line, name) in [
        ("login = 'token'", "login"),
        ("login = 'key'", "login"),
        ("plan_with_token = true", "plan_with_token"),
    ] {
        let (place, what, hint) = wrong(&file_with("[agents.NAME]", line));
        assert_eq!(place, "2:1");
        let begin = format!("`{name}` does not belong into team.toml");
        assert!(what.starts_with(&begin), "{what}");
        assert!(hint.contains("~/.config/teamd/config.toml"), "{hint}");
        // Without a command it is no agent, and no other mistake hides this one.
        let (_, what, _) = wrong(&format!("[agents.claude]\n{line}\n"));
        assert!(what.starts_with(&begin), "{what}");
    }
}
