use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

fn wrong(text: &str) -> (String, String, String) {
    match TeamFile::parse(text).unwrap_err() {
        TeamFileError::Wrong { place, what, hint, .. } => (place.to_string(), what, hint.unwrap_or_default()),
        other => panic!("{other}"),
    }
}

/// A file in which one table holds one key.
fn file_with(table: Table, line: &str) -> String {
    match table {
        Table::Top => format!("{line}\n"),
        other => format!("{}\n{line}\n", other.as_str().replace("NAME", "x")),
    }
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
max_turns = 0x10

[lead]
prompt = "Be brief."
"#;
    let file = TeamFile::parse(text).unwrap();
    assert_eq!(file.everybody.model, Some("anthropic:m1".parse().unwrap()));
    assert_eq!((file.everybody.max_tokens, file.grace), (Some(200_000), Some(Duration::from_millis(2500))));
    assert_eq!(file.decide_within, Some(Duration::from_secs(60)));
    assert_eq!(file.service.timeout, Some(Duration::from_secs(90)));
    assert_eq!(file.service.context_window, Some(32_000));
    assert_eq!(file.everybody.sandbox.writable, ["~/.cache", "target"]);
    assert_eq!(file.roles["reviewer"].prompt.as_deref(), Some("Find what is wrong.\nSay it plainly."));
    assert_eq!(file.roles["reviewer"].approve_by, Some(ApproveBy::Lead));
    assert_eq!(file.roles["Senior engineer"].restart, Some(Restart::Never));
    let alice = &file.members[&Name::new("alice").unwrap()];
    assert_eq!((alice.max_turns, alice.sandbox.mode), (Some(16), Some(SandboxMode::ReadOnly)));
    assert_eq!(file.lead.prompt.as_deref(), Some("Be brief."));
}

#[test]
fn every_key_is_taken_where_it_may_stand_and_nowhere_else() {
    for table in Table::ALL {
        for key in KEYS {
            let text = file_with(table, &format!("{} = {}", key.name, key.example));
            match (key.tables.contains(&table), TeamFile::parse(&text)) {
                (true, read) => drop(read.unwrap_or_else(|error| panic!("{text}{error}"))),
                (false, read) => assert!(read.is_err(), "{text}"),
            }
        }
    }
}

#[test]
fn every_key_refuses_what_does_not_belong_there_and_says_what_does() {
    for key in KEYS {
        for &table in key.tables {
            for value in ["[[1]]", "1979-05-27", "''", "'  '", "-7"] {
                let text = file_with(table, &format!("{} = {value}", key.name));
                let (place, what, _) = wrong(&text);
                assert!(what.starts_with(&format!("`{}` is ", key.name)), "{text}{what}");
                assert!(what.ends_with(&format!("expected {}", key.expected)) || value == "[[1]]", "{what}");
                let line = if table == Table::Top { 1 } else { 2 };
                let column = key.name.len() + 4;
                let is_list = matches!(key.name, "writable" | "hidden" | "env");
                let inner = if value == "[[1]]" && is_list { column + 1 } else { column };
                assert_eq!(place, format!("{line}:{inner}"), "{text}{what}");
            }
        }
    }
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_what_may_be_meant() {
    let said = |text: &str| {
        let (place, what, hint) = wrong(text);
        (place, what, hint)
    };
    let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(said("\n\n  modle = 1"), own("3:3", "unknown key `modle`", "did you mean `model`?"));
    assert_eq!(said("max-turns = 1").2, "did you mean `max_turns`?");
    assert_eq!(said("[member.alice]\n").2, "did you mean `members`?");
    assert_eq!(
        said("[members.alice]\nplna = true"),
        own("2:1", "unknown key `plna` in [members.NAME]", "did you mean `plan`?")
    );
    assert_eq!(
        said("[lead]\ngrace = 1").2,
        "`grace` belongs to the top of the file, before the first [table]"
    );
    assert_eq!(said("network = false").2, "`network` belongs into [sandbox]");
    assert!(said("[service]\nzzz = 1").2.starts_with("known here: ca, timeout"));
    // The first mistake of the text, not of the alphabet.
    assert_eq!(said("zzz = 1\naaa = 1\n").0, "1:1");
}

#[test]
fn a_key_to_a_service_or_its_address_is_refused_with_the_way_that_is_right() {
    for line in ["api_key = 'sk-1'", "ANTHROPIC_API_KEY = 'sk-1'", "openai-api-key = 'sk-1'", "token = 'x'"] {
        for table in [Table::Top, Table::Service, Table::Lead] {
            let (_, what, hint) = wrong(&file_with(table, line));
            assert!(hint.contains("in the environment only"), "{line}: {hint}");
            assert!(!what.contains("sk-1") && !hint.contains("sk-1"));
        }
    }
    assert!(wrong("[service]\nbase_url = 'http://x'").2.contains("OPENAI_BASE_URL"));
}

#[test]
fn names_are_those_of_members() {
    assert_eq!(wrong("[members.Alice]").0, "1:10");
    assert!(wrong("[members.\"../x\"]").1.contains("is not a name"));
    assert_eq!(wrong("[members.lead]").2, "the lead agent has a table `[lead]`");
    assert_eq!(wrong("members.alice = 'coder'").1, "[members.alice] is a table, not 'coder'");
    assert!(TeamFile::parse("[roles.\"\"]").is_err() && TeamFile::parse("[roles.'a\\nb']").is_ok());
    assert!(TeamFile::parse("[roles.\"a\\nb\"]").is_err());
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
        assert_eq!(found.split(':').next(), place.split(':').next(), "{text:?}: {found} {what}");
        assert!(!what.is_empty());
    }
    assert!(TeamFile::parse("\u{feff}# with what some editors put in front\r\nplan = true\r\n").is_ok());
}

#[test]
fn a_column_counts_characters() {
    assert_eq!(wrong("\"ümläut\" = 1").0, "1:1");
    assert_eq!(wrong("sandbox = { writable = ['ö', 7] }").0, "1:30");
    assert_eq!(wrong("sandbox = { env = ['GH_TOKEN', 'OPENAI_API_KEY'] }").0, "1:32");
    assert_eq!(wrong("sandbox = { writable = ['ö'], \"größe\" = 1 }").0, "1:31");
}

#[test]
fn a_file_is_read_from_its_place_and_nothing_else_is() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("team.toml");
    assert_eq!(TeamFile::load(&path), Ok(TeamFile::default()));
    let write = |bytes: &[u8]| {
        let mut file = File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, bytes).unwrap();
    };
    write(b"plan = true\n");
    let file = TeamFile::load(&path).unwrap();
    assert_eq!((file.everybody.plan, &file.path), (Some(true), &path));
    write(b"plan = 7\n");
    let error = TeamFile::load(&path).unwrap_err();
    let shown = format!("{}:1:8: `plan` is 7, expected true or false", path.display());
    assert_eq!((error.to_string(), error.place()), (shown, Some(Place { line: 1, column: 8 })));
    write(b"plan = true\n# \xff\n");
    assert!(TeamFile::load(&path).unwrap_err().to_string().ends_with(":2:3: this byte is not UTF-8"));
    let size = usize::try_from(MAX_SIZE).unwrap();
    write(&vec![b'\n'; size]);
    assert!(TeamFile::load(&path).is_ok());
    write(&vec![b'\n'; size + 1]);
    assert_eq!(TeamFile::load(&path), Err(TeamFileError::TooLarge(path.clone())));
    let fifo = scratch.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(TeamFile::load(&fifo), Err(TeamFileError::NotAFile(fifo)));
    let folder = scratch.path().to_owned();
    assert_eq!(TeamFile::load(&folder), Err(TeamFileError::NotAFile(folder)));
}

#[test]
fn the_file_is_beside_the_team_directory_as_the_user_names_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (state, work) = (scratch.path().join("state/team"), scratch.path().join("work"));
    std::fs::create_dir_all(&state).unwrap();
    std::fs::create_dir_all(&work).unwrap();
    symlink(&state, work.join(".team")).unwrap();
    let none = |_: &str| None;
    assert_eq!(TeamFile::locate(&work.join(".team"), none), work.join("team.toml"));
    assert_eq!(TeamFile::locate(&state.join(".."), none), scratch.path().join("team.toml"));
    let named = |name: &str| (name == "TEAM_FILE").then(|| "/etc/team.toml".to_owned());
    assert_eq!(TeamFile::locate(&work.join(".team"), named), PathBuf::from("/etc/team.toml"));
}

/// Reads the table of keys in the document: where each may stand, and its variable.
fn documented() -> Vec<(Table, String, Option<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/team-toml.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mut rows = Vec::new();
    for line in text.lines() {
        let Some(row) = line.strip_prefix("| `") else { continue };
        let cells: Vec<&str> = row.split(" | ").collect();
        assert_eq!(cells.len(), 6, "{line}");
        let variable = (cells[4] != "–").then(|| cells[4].trim_matches('`').to_owned());
        let places = match cells[1] {
            "all" => "top, roles, members, lead",
            "teammates" => "top, roles, members",
            places => places,
        };
        for place in places.split(", ") {
            let table = Table::ALL.into_iter().find(|table| table.as_str().contains(place));
            rows.push((table.expect(line), cells[0].trim_matches('`').to_owned(), variable.clone()));
        }
    }
    rows.sort();
    rows
}

#[test]
fn the_document_names_every_key_and_no_other() {
    let mut known: Vec<_> = KEYS
        .iter()
        .flat_map(|key| key.tables.iter().map(move |table| (*table, key)))
        .map(|(table, key)| (table, key.name.to_owned(), key.variable.map(str::to_owned)))
        .collect();
    known.sort();
    assert_eq!(documented(), known);
}

#[test]
fn the_example_of_the_document_is_a_file() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/team-toml.md");
    let text = std::fs::read_to_string(path).unwrap();
    let examples: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
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
        at in 0..KEYS.len(),
        blank in 0..5_usize,
        value in "[-+]?[0-9_.ekM]{1,8}|\"\\PC{0,8}\"|'[a-z/~ ]{0,9}'|\\[('[a-z]{0,3}',?){0,3}\\]|true|false|\\{[a-z]{0,3}\\}",
    ) {
        let key = &KEYS[at];
        // What begins a text of several lines is at fault where the file ends.
        prop_assume!(!value.contains("\"\"\"") && !value.contains("'''"));
        for &table in key.tables {
            let text = format!("{}{}", "\n".repeat(blank), file_with(table, &format!("{} = {value}", key.name)));
            if let Err(error) = TeamFile::parse(&text) {
                let line = blank + if table == Table::Top { 1 } else { 2 };
                prop_assert_eq!(error.place().unwrap().line, line, "{}{}", text, error);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_file_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("team.toml");
        std::io::Write::write_all(&mut File::create(&path).unwrap(), &bytes).unwrap();
        if let Err(error) = TeamFile::load(&path) {
            prop_assert!(error.to_string().contains("team.toml:"), "{}", error);
        }
    }
}

#[test]
fn what_is_nested_without_end_is_refused() {
    for text in ["model = ".to_owned() + &"[".repeat(200_000), "a.".repeat(200_000) + "b = 1"] {
        assert!(TeamFile::parse(&text).is_err());
    }
}
