use serde_json::json;

use super::*;

const FILE: &str = r#"
model = "openai:everybody"
plan = true
max_turns = 20
durability = "process"

[service]
ca = "certs/own.pem"
timeout = "90s"

[sandbox]
mode = "read-only"
network = false
writable = ["~/.cache"]
hidden = ["~/private", ".env"]

[roles.coder]
prompt = "Write little code."
model = "openai:role"
max_tokens = 1000
sandbox.writable = ["target"]
sandbox.hidden = [".env", "keys"]

[members.alice]
role = "coder"
prompt = "Begin."
workspace = "web"
plan = false
sandbox.mode = "workspace-write"

[members.bob]
model = "anthropic:member"

[lead]
prompt = "Be brief."
"#;

fn file() -> TeamFile {
    TeamFile { path: "/home/u/work/team.toml".into(), ..TeamFile::parse(FILE).unwrap() }
}

fn try_resolved(
    name: &str,
    flags: &Flags,
    variables: &[(&str, &str)],
    earlier: Option<&RosterMember>,
    file: &TeamFile,
) -> Result<Resolved, SettingError> {
    let name = Name::of_inbox(name).unwrap();
    let lookup =
        |wanted: &str| variables.iter().find(|(name, _)| *name == wanted).map(|(_, text)| (*text).to_owned());
    resolve(Asked { name: &name, flags, earlier }, &lookup, file)
}

fn resolved(name: &str, flags: &Flags, variables: &[(&str, &str)]) -> Resolved {
    try_resolved(name, flags, &[variables, &[("HOME", "/home/u")]].concat(), None, &file()).unwrap()
}

fn model(resolved: &Resolved) -> String {
    resolved.model.as_ref().unwrap().to_string()
}

#[test]
fn a_member_goes_before_its_role_and_its_role_before_everybody() {
    let alice = resolved("alice", &Flags::default(), &[]);
    assert_eq!(alice.role.as_deref(), Some("coder"));
    assert_eq!(alice.prompt.as_deref(), Some("Begin."));
    assert_eq!(alice.instructions.as_deref(), Some("Write little code."));
    assert_eq!((model(&alice), alice.model_from), ("openai:role".to_owned(), ModelFrom::File));
    assert_eq!(alice.workspace.as_deref(), Some("/home/u/work/web"));
    assert!(!alice.plan);
    assert_eq!(alice.limits, Some(Limits { max_turns: Some(20), max_tokens: Some(1000) }));
    let sandbox = alice.sandbox.unwrap();
    assert_eq!((sandbox.mode, sandbox.no_network), (SandboxMode::WorkspaceWrite, true));
    assert_eq!(sandbox.writable, ["/home/u/work/target", "/home/u/.cache"]);
    assert_eq!(sandbox.hidden, ["/home/u/work/.env", "/home/u/work/keys", "/home/u/private"]);
    let bob = resolved("bob", &Flags::default(), &[]);
    assert_eq!((model(&bob).as_str(), bob.plan, bob.instructions), ("anthropic:member", true, None));
    assert_eq!(model(&resolved("carol", &Flags::default(), &[])), "openai:everybody");
}

#[test]
fn the_environment_goes_before_the_file_and_a_flag_before_both() {
    let variables = [("TEAM_MODEL", "openai:variable"), ("TEAM_MAX_TURNS", "5"), ("TEAM_MAX_TOKENS", "2k")];
    let alice = resolved("alice", &Flags::default(), &variables);
    assert_eq!((model(&alice), alice.model_from), ("openai:variable".to_owned(), ModelFrom::Environment));
    assert_eq!(alice.limits, Some(Limits { max_turns: Some(5), max_tokens: Some(2000) }));
    let flags = Flags {
        role: Some("reviewer".to_owned()),
        prompt: Some("Other.".to_owned()),
        model: Some(ModelSpec::script()),
        workspace: Some("/srv".to_owned()),
        plan: true,
        sandbox: Some(SandboxMode::Off),
        writable: vec!["/data".to_owned()],
        hidden: vec!["/keys".to_owned()],
        limits: Limits { max_turns: Some(1), max_tokens: None },
        ..Flags::default()
    };
    let alice = resolved("alice", &flags, &variables);
    assert_eq!((model(&alice), alice.model_from), ("script".to_owned(), ModelFrom::Flag));
    assert_eq!((alice.role.as_deref(), alice.instructions), (Some("reviewer"), None));
    assert_eq!((alice.prompt.as_deref(), alice.workspace.as_deref()), (Some("Other."), Some("/srv")));
    assert_eq!(alice.limits, Some(Limits { max_turns: Some(1), max_tokens: Some(2000) }));
    let sandbox = alice.sandbox.unwrap();
    assert!(alice.plan && sandbox.mode == SandboxMode::Off && sandbox.no_network);
    // The role is another one: what its own role may write does not count.
    assert_eq!(sandbox.writable, ["/data", "/home/u/.cache"]);
    assert_eq!(sandbox.hidden, ["/keys", "/home/u/private", "/home/u/work/.env"]);
}

#[test]
fn without_a_name_the_model_is_that_whose_key_is_there_else_the_built_in_one() {
    let chosen = |variables: &[(&str, &str)]| {
        let resolved =
            try_resolved("alice", &Flags::default(), variables, None, &TeamFile::default()).unwrap();
        (model(&resolved), resolved.model_from)
    };
    let by = |model: &str, key| (model.to_owned(), ModelFrom::Key(key));
    assert_eq!(chosen(&[]), ("script".to_owned(), ModelFrom::Default));
    assert_eq!(chosen(&[("ANTHROPIC_API_KEY", "")]).0, "script");
    assert_eq!(chosen(&[("ANTHROPIC_AUTH_TOKEN", "x")]), by("anthropic", "ANTHROPIC_AUTH_TOKEN"));
    assert_eq!(chosen(&[("OPENAI_BASE_URL", "http://x")]), by("openai", "OPENAI_BASE_URL"));
    let both = [("OPENAI_API_KEY", "x"), ("ANTHROPIC_API_KEY", "x"), ("MODEL_ID", "m")];
    assert_eq!(chosen(&both), by("anthropic:m", "ANTHROPIC_API_KEY"));
    assert_eq!(chosen(&[("TEAM_MODEL", "openai"), ("MODEL_ID", "qwen3:8b")]).0, "openai:qwen3:8b");
    assert_eq!(chosen(&[("TEAM_MODEL", "openai:own"), ("MODEL_ID", "m")]).0, "openai:own");
    assert_eq!(chosen(&[("TEAM_MODEL", "script"), ("MODEL_ID", "m")]).0, "script");
}

#[test]
fn a_missing_key_is_noticed() {
    let key = |model: &str, variables: &[(&str, &str)]| {
        let lookup = |wanted: &str| variables.iter().find(|it| it.0 == wanted).map(|it| it.1.to_owned());
        missing_key(&model.parse().unwrap(), &lookup).is_some()
    };
    assert!(key("anthropic:m", &[("OPENAI_API_KEY", "x")]) && key("openai", &[("OPENAI_API_KEY", "")]));
    assert!(!key("anthropic", &[("ANTHROPIC_AUTH_TOKEN", "x")]) && !key("script", &[]));
    assert!(!key("openai", &[("OPENAI_BASE_URL", "http://127.0.0.1")]));
}

#[test]
fn a_variable_that_makes_no_sense_is_an_error() {
    for (variable, text) in
        [("TEAM_MODEL", "gpt"), ("TEAM_MAX_TURNS", "0"), ("TEAM_MAX_TOKENS", "many"), ("MODEL_ID", "a\nb")]
    {
        let file = TeamFile::parse("model = 'openai'").unwrap();
        let error = try_resolved("alice", &Flags::default(), &[(variable, text)], None, &file).unwrap_err();
        assert_eq!((error.variable, error.value.as_str()), (variable, text));
    }
    let error = try_resolved("alice", &Flags::default(), &[], None, &file()).unwrap_err();
    assert_eq!(error.variable, "HOME");
}

#[test]
fn what_a_worker_needs_of_the_file_is_in_its_environment() {
    let expected = [
        ("TEAM_MODEL_TIMEOUT", "90"),
        ("TEAM_DURABILITY", "process"),
        ("TEAM_CA", "/home/u/work/certs/own.pem"),
    ];
    let variables = |resolved: Resolved| resolved.variables;
    let of = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        pairs.iter().map(|(name, text)| (*name, (*text).to_owned())).collect()
    };
    assert_eq!(variables(resolved("alice", &Flags::default(), &[])), of(&expected));
    let set = [("TEAM_MODEL_TIMEOUT", "5"), ("TEAM_DURABILITY", "disk"), ("TEAM_CA", "platform")];
    assert_eq!(variables(resolved("alice", &Flags::default(), &set)), []);
    let flags = Flags { ca: Some("embedded".to_owned()), ..Flags::default() };
    assert_eq!(variables(resolved("alice", &flags, &set)), of(&[("TEAM_CA", "embedded")]));
    // The lead spawns others, and reads the file for that.
    let lead = resolved("lead", &Flags::default(), &[]);
    assert!(lead.variables.contains(&("TEAM_FILE", "/home/u/work/team.toml".to_owned())));
    assert_eq!((lead.instructions.as_deref(), lead.prompt, lead.plan), (Some("Be brief."), None, false));
    assert_eq!(lead.model.unwrap().to_string(), "openai:everybody");
}

#[test]
fn of_a_resumed_life_only_flags_change_anything() {
    let earlier: RosterMember = serde_json::from_value(json!({
        "name": "alice", "status": "shutdown", "gate": "open", "role": "coder", "model": "openai:old",
        "sandbox": {"mode": "read-only", "writable": ["/old"], "hidden": ["/keys"]}, "limits": {"max_turns": 9, "max_tokens": 90}
    }))
    .unwrap();
    let variables = [("HOME", "/home/u"), ("TEAM_MODEL", "script"), ("TEAM_MAX_TURNS", "1")];
    let resumed = |flags: Flags| {
        let flags = Flags { resume: true, ..flags };
        try_resolved("alice", &flags, &variables, Some(&earlier), &file()).unwrap()
    };
    let alice = resumed(Flags::default());
    assert_eq!((alice.role, alice.prompt, alice.instructions, alice.workspace), (None, None, None, None));
    assert_eq!((alice.model, alice.model_from), (None, ModelFrom::Record));
    assert_eq!((alice.plan, alice.sandbox, alice.limits), (false, None, None));
    let flags = Flags {
        no_network: true,
        writable: vec!["/new".to_owned()],
        limits: Limits { max_turns: None, max_tokens: Some(5) },
        ..Flags::default()
    };
    let alice = resumed(flags);
    let sandbox = alice.sandbox.unwrap();
    assert_eq!((sandbox.mode, sandbox.no_network), (SandboxMode::ReadOnly, true));
    assert_eq!(sandbox.writable, ["/old", "/new"]);
    assert_eq!(alice.limits, Some(Limits { max_turns: Some(9), max_tokens: Some(5) }));
    let alice = resumed(Flags { hidden: vec!["/keys".to_owned(), "/more".to_owned()], ..Flags::default() });
    assert_eq!(alice.sandbox.unwrap().hidden, ["/keys", "/more"]);
    let alice = resumed(Flags { role: Some("coder".to_owned()), ..Flags::default() });
    assert_eq!(alice.instructions.as_deref(), Some("Write little code."));
}

#[test]
fn a_fresh_life_without_a_role_keeps_that_of_the_one_before() {
    let earlier: RosterMember = serde_json::from_value(
        json!({"name": "dora", "status": "shutdown", "gate": "open", "role": "coder"}),
    )
    .unwrap();
    let dora = try_resolved("dora", &Flags::default(), &[("HOME", "/")], Some(&earlier), &file()).unwrap();
    assert_eq!((dora.role.as_deref(), model(&dora).as_str()), (None, "openai:role"));
    assert_eq!(dora.instructions.as_deref(), Some("Write little code."));
}

#[test]
fn an_order_says_what_holds_and_adds_to_the_environment() {
    let environment = Environment {
        variables: vec![(b"PATH".to_vec(), b"/bin".to_vec()), (b"TEAM_FILE".to_vec(), b"/x".to_vec())],
        secrets: vec![(b"OPENAI_API_KEY".to_vec(), b"k".to_vec())],
        umask: 0o22,
    };
    let order = resolved("alice", &Flags::default(), &[]).order(Name::new("alice").unwrap(), environment);
    assert_eq!(order.model.as_deref(), Some("openai:role"));
    assert_eq!(order.environment.value("TEAM_MODEL_TIMEOUT").as_deref(), Some("90"));
    assert_eq!(order.environment.value("TEAM_FILE"), None, "a teammate spawns nobody");
    assert_eq!(order.environment.value("PATH").as_deref(), Some("/bin"));
    assert_eq!((order.environment.secrets.len(), order.environment.umask), (1, 0o22));
}
