use std::io::Write;

use super::*;
use crate::terms::{Login, Protocol};

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn what_a_launcher_fetches_is_read_from_its_command_line() {
    for (line, package, program, arguments) in [
        ("npx -y opencode-ai acp", "opencode-ai", None, "acp"),
        ("/usr/bin/npx --yes @a/b@1.2 -x", "@a/b@1.2", None, "-x"),
        (
            "npx -y --package @a/b@1 tool --acp",
            "@a/b@1",
            Some("tool"),
            "--acp",
        ),
        ("npx --package=b tool -p c", "b", Some("tool"), "-p c"),
        ("uvx fast-agent acp", "fast-agent", None, "acp"),
        ("uvx a==1.2 -x", "a==1.2", None, "-x"),
        ("uvx a@1.2 -x", "a==1.2", None, "-x"),
        ("uvx a@latest -x", "a", None, "-x"),
        (
            "uvx --from a[acp]==2 a-acp -x",
            "a[acp]==2",
            Some("a-acp"),
            "-x",
        ),
    ] {
        let line = words(line);
        let fetched = fetched_by(&line).unwrap();
        let read = fetched.package.unwrap();
        assert_eq!(read.spec(), package, "{line:?}");
        assert_eq!(read.program.as_deref(), program, "{line:?}");
        assert_eq!(fetched.arguments, words(arguments), "{line:?}");
    }
    for line in ["opencode acp", "/opt/mynpx x", "sh -c npx"] {
        assert!(fetched_by(&words(line)).is_none(), "{line}");
    }
}

/// What is a path, an address or an option would have the installer fetch something else.
#[test]
fn what_is_no_package_of_a_registry_is_not_installed() {
    for (line, why) in [
        ("npx -y ./local", "not the name of a package"),
        ("npx -y github:a/b", "not the name of a package"),
        ("npx -y https://x.org/a.tgz", "not the name of a package"),
        ("npx -y a@file:/tmp/x", "not the name of a package"),
        ("npx -y @a", "not the name of a package"),
        ("npx -y @a/../b", "not the name of a package"),
        ("npx -c x", "the option -c of npx"),
        ("npx -y", "names no program"),
        ("npx -p", "names no package"),
        ("npx -p a", "names no program"),
        ("npx -p a -p b c", "two packages"),
        ("npx -p a ../../x", "not the name of a program"),
        ("uvx git+https://x.org/a", "not the name of a package"),
        ("uvx --python 3.9 a", "the option --python of uvx"),
        ("pipx run a", "pipx is not understood"),
        ("docker run a", "docker is not understood"),
    ] {
        let line = words(line);
        let refused = fetched_by(&line).unwrap().package.unwrap_err();
        assert!(refused.contains(why), "{line:?}: {refused}");
    }
}

struct Stage {
    _scratch: tempfile::TempDir,
    environment: Environment,
    root: PathBuf,
}

impl Stage {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let mut environment = Environment::default();
        environment.set("XDG_DATA_HOME", scratch.path().to_str().unwrap());
        Self {
            root: scratch.path().join("teamd/tools"),
            _scratch: scratch,
            environment,
        }
    }

    fn put(&self, folder: &str, line: &str, version: &str, at: f64) {
        let folder = self.root.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::File::create(folder.join("run")).unwrap();
        let record = InstallRecord {
            name: "x".to_owned(),
            package: fetched_by(&words(line)).unwrap().package.unwrap(),
            version: version.to_owned(),
            program: "run".into(),
            at,
        };
        let mut file = fs::File::create(folder.join(RECORD)).unwrap();
        file.write_all(&serde_json::to_vec(&record).unwrap())
            .unwrap();
    }

    fn run(&self, line: &str) -> Result<String, String> {
        let command = without_launcher(&words(line), &self.environment);
        let command = command.map_err(|error| error.to_string())?.command;
        let program = Path::new(&command[0]);
        let program = program.strip_prefix(&self.root).unwrap_or(program);
        let rest = command[1..].join(" ");
        Ok(format!("{} {rest}", program.display()))
    }
}

#[test]
fn a_launcher_is_replaced_by_what_was_installed_last() {
    let stage = Stage::new();
    assert!(
        stage
            .run("npx -y a acp")
            .unwrap_err()
            .contains("npx, which fetches")
    );
    stage.put("a-1.0.0", "npx -y a", "1.0.0", 1.0);
    stage.put("a-0.9.0", "npx -y a@^0.9", "0.9.0", 2.0);
    // What is not whole does not count.
    stage.put(".a-2.0.0", "npx -y a", "2.0.0", 3.0);
    stage.put("b-1", "npx -y b", "1", 1.0);
    fs::remove_file(stage.root.join("b-1/run")).unwrap();
    fs::File::create(stage.root.join("file")).unwrap();
    for (line, program) in [
        ("npx -y a acp", "a-0.9.0/run acp"),
        ("npx -y a@1.0.0 acp", "a-1.0.0/run acp"),
        ("npx -y a@^0.9 acp", "a-0.9.0/run acp"),
        ("npx -y a@0.9.0 x y", "a-0.9.0/run x y"),
        ("a acp", "a acp"),
    ] {
        assert_eq!(stage.run(line).as_deref(), Ok(program), "{line}");
    }
    for line in ["npx -y a@2.0.0", "npx -y b", "npx -p a other", "uvx a"] {
        assert!(stage.run(line).is_err(), "{line}");
    }
}

#[test]
fn a_record_that_cannot_be_read_hides_no_other_one() {
    let stage = Stage::new();
    stage.put("a-1", "npx -y a", "1", 1.0);
    stage.put("b-1", "npx -y b", "1", 1.0);
    fs::File::create(stage.root.join("b-1").join(RECORD)).unwrap();
    assert_eq!(stage.run("npx -y a x").as_deref(), Ok("a-1/run x"));
    assert!(stage.run("npx -y b").is_err());
}

#[test]
fn an_agent_without_a_table_runs_what_was_installed_for_it() {
    let stage = Stage::new();
    let resolved = |agent: &AgentProgram| {
        let resolved = command_of_agent("opencode", agent, &stage.environment).unwrap();
        resolved.command.join(" ")
    };
    let known = AgentProgram::known("opencode").unwrap();
    assert_eq!(resolved(&known), "opencode acp");
    stage.put("opencode-1.18.33", "npx -y opencode-ai", "1.18.33", 1.0);
    let installed = stage.root.join("opencode-1.18.33/run");
    assert_eq!(resolved(&known), format!("{} acp", installed.display()));
    let own = AgentProgram {
        command: words("/opt/opencode acp"),
        login: Login::Key,
        protocol: Protocol::Acp,
    };
    assert_eq!(resolved(&own), "/opt/opencode acp");
}
