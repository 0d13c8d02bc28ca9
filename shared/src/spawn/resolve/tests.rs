use serde_json::json;

use super::*;
use crate::member::SandboxMode;
use crate::price::Dollars;
use crate::terms::{Limits, Network, Sandbox, SandboxPatch, Terms, Total};
use crate::testing::roster_member;

const FILE: &str = r#"
model = "openai:for-all"
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
caches = true
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
sandbox.caches = false

[members.bob]
model = "anthropic:member"

[lead]
prompt = "Be brief."
"#;

fn file() -> TeamFile {
    let mut file = TeamFile {
        path: "/home/u/work/team.toml".into(),
        ..TeamFile::parse(FILE).unwrap()
    };
    file.make_absolute(&|name| (name == "HOME").then(|| "/home/u".to_owned()))
        .unwrap();
    file
}

fn environment(variables: &[(&str, &str)]) -> Environment {
    let variables = variables
        .iter()
        .map(|(name, text)| ((*name).into(), (*text).into()))
        .collect();
    let mut environment = Environment {
        variables,
        ..Environment::default()
    };
    environment.part(&[]);
    environment
}

fn try_resolved(
    (name, flags, resume): (&str, TermsPatch, bool),
    variables: &[(&str, &str)],
    earlier: Option<&RosterMember>,
    file: &TeamFile,
) -> Result<SpawnOrder, SettingError> {
    let name = Name::of_inbox(name).unwrap();
    let environment = environment(variables);
    let default_model = model_of_key(&|name| environment.value(name));
    let request = SpawnRequest {
        name: &name,
        flags,
        ca: None,
        resume,
    };
    resolve(request, default_model, earlier, environment, file)
}

fn resolved(name: &str, flags: TermsPatch, variables: &[(&str, &str)]) -> TermsPatch {
    try_resolved((name, flags, false), variables, None, &file())
        .unwrap()
        .terms
}

fn model(terms: &TermsPatch) -> String {
    terms.model.as_ref().unwrap().to_string()
}

/// The variables that a worker gets beside those of the command.
fn added(name: &str, ca: Option<&str>, set: &[(&str, &str)]) -> Vec<(String, String)> {
    let name = Name::of_inbox(name).unwrap();
    let request = SpawnRequest {
        name: &name,
        flags: TermsPatch::default(),
        ca: ca.map(str::to_owned),
        resume: false,
    };
    let order = resolve(request, None, None, environment(set), &file()).unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let all = order
        .environment
        .variables
        .iter()
        .map(|(name, value)| (text(name), text(value)));
    let settings = all.filter(|(name, _)| name.starts_with("TEAM_"));
    settings
        .filter(|(name, value)| !set.contains(&(name.as_str(), value.as_str())))
        .collect()
}

#[test]
fn a_member_goes_before_its_role_and_its_role_before_the_top_level() {
    let alice = resolved("alice", TermsPatch::default(), &[]);
    assert_eq!(
        (alice.role.as_deref(), alice.prompt.as_deref()),
        (Some("coder"), Some("Begin."))
    );
    assert_eq!(
        (alice.instructions.as_deref(), alice.plan),
        (Some("Write little code."), Some(false))
    );
    assert_eq!(
        (model(&alice).as_str(), alice.workspace.as_deref()),
        ("openai:role", Some("/home/u/work/web"))
    );
    assert_eq!((alice.max_turns, alice.max_tokens), (Some(20), Some(1000)));
    let sandbox = alice.sandbox;
    assert_eq!(
        (sandbox.mode, sandbox.network),
        (Some(SandboxMode::WorkspaceWrite), Some(Network::NONE))
    );
    assert_eq!(sandbox.writable, ["/home/u/work/target", "/home/u/.cache"]);
    assert_eq!(sandbox.caches, Some(false));
    assert_eq!(
        sandbox.hidden,
        ["/home/u/work/.env", "/home/u/work/keys", "/home/u/private"]
    );
    let bob = resolved("bob", TermsPatch::default(), &[]);
    assert_eq!(
        (model(&bob).as_str(), bob.plan, bob.instructions),
        ("anthropic:member", Some(true), None)
    );
    assert_eq!(bob.sandbox.caches, Some(true));
    assert_eq!(
        model(&resolved("carol", TermsPatch::default(), &[])),
        "openai:for-all"
    );
}

#[test]
fn the_environment_goes_before_the_file_and_a_flag_before_both() {
    let variables = [
        ("TEAM_MODEL", "openai:variable"),
        ("TEAM_MAX_TURNS", "5"),
        ("TEAM_MAX_TOKENS", "2k"),
    ];
    let alice = resolved("alice", TermsPatch::default(), &variables);
    assert_eq!(model(&alice), "openai:variable");
    assert_eq!((alice.max_turns, alice.max_tokens), (Some(5), Some(2000)));
    let flags = TermsPatch {
        role: Some("reviewer".to_owned()),
        prompt: Some("Other.".to_owned()),
        model: Some(ModelSpec::script()),
        workspace: Some("/srv".to_owned()),
        plan: Some(true),
        max_turns: Some(1),
        sandbox: SandboxPatch {
            mode: Some(SandboxMode::Off),
            writable: vec!["/data".to_owned()],
            hidden: vec!["/keys".to_owned()],
            ..SandboxPatch::default()
        },
        ..TermsPatch::default()
    };
    let alice = resolved("alice", flags, &variables);
    assert_eq!(
        (alice.role.as_deref(), alice.instructions.as_deref()),
        (Some("reviewer"), None)
    );
    assert_eq!(
        (alice.prompt.as_deref(), alice.workspace.as_deref()),
        (Some("Other."), Some("/srv"))
    );
    assert_eq!(
        (model(&alice).as_str(), alice.max_turns, alice.max_tokens),
        ("script", Some(1), Some(2000))
    );
    let sandbox = alice.sandbox;
    assert_eq!(
        (alice.plan, sandbox.mode, sandbox.network),
        (Some(true), Some(SandboxMode::Off), Some(Network::NONE))
    );
    // The role is another one: what its own role may write does not count.
    assert_eq!(sandbox.writable, ["/data", "/home/u/.cache"]);
    assert_eq!(
        sandbox.hidden,
        ["/keys", "/home/u/private", "/home/u/work/.env"]
    );
}

#[test]
fn without_a_name_the_model_is_that_whose_key_is_there_else_none_is_said() {
    let chosen = |variables: &[(&str, &str)]| {
        let order = try_resolved(
            ("alice", TermsPatch::default(), false),
            variables,
            None,
            &TeamFile::default(),
        );
        order.unwrap().terms.model.map(|model| model.to_string())
    };
    let named = |text: &str| Some(text.to_owned());
    assert_eq!(
        (chosen(&[]), chosen(&[("ANTHROPIC_API_KEY", "")])),
        (None, None)
    );
    assert_eq!(chosen(&[("ANTHROPIC_AUTH_TOKEN", "x")]), named("anthropic"));
    assert_eq!(chosen(&[("OPENAI_BASE_URL", "http://x")]), named("openai"));
    let both = [
        ("OPENAI_API_KEY", "x"),
        ("ANTHROPIC_API_KEY", "x"),
        ("MODEL_ID", "m"),
    ];
    assert_eq!(chosen(&both), named("anthropic:m"));
    assert_eq!(
        chosen(&[("TEAM_MODEL", "openai"), ("MODEL_ID", "qwen3:8b")]),
        named("openai:qwen3:8b")
    );
    assert_eq!(
        chosen(&[("TEAM_MODEL", "openai:own"), ("MODEL_ID", "m")]),
        named("openai:own")
    );
    assert_eq!(
        chosen(&[("TEAM_MODEL", "script"), ("MODEL_ID", "m")]),
        named("script")
    );
}

#[test]
fn a_model_needs_the_key_of_its_service() {
    let key = |model: &str, variables: &[(&str, &str)]| {
        let lookup = |wanted: &str| {
            variables
                .iter()
                .find(|it| it.0 == wanted)
                .map(|it| it.1.to_owned())
        };
        require_key(&model.parse().unwrap(), &lookup).is_err()
    };
    assert!(
        key("anthropic:m", &[("OPENAI_API_KEY", "x")]) && key("openai", &[("OPENAI_API_KEY", "")])
    );
    assert!(!key("anthropic", &[("ANTHROPIC_AUTH_TOKEN", "x")]) && !key("script", &[]));
    assert!(!key("openai", &[("OPENAI_BASE_URL", "http://127.0.0.1")]));
    let error = require_key(&"anthropic:m".parse().unwrap(), &|_| None)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "ANTHROPIC_API_KEY is not set: an `anthropic` model needs it, or ANTHROPIC_AUTH_TOKEN"
    );
}

#[test]
fn a_role_is_one_visible_line() {
    for (role, is_one) in [
        ("reviewer", true),
        ("re\u{1b}[2Jviewer", false),
        ("a\nb", false),
        (" tester\n", true),
    ] {
        let order = try_resolved(
            (
                "dora",
                TermsPatch {
                    role: Some(role.to_owned()),
                    ..TermsPatch::default()
                },
                false,
            ),
            &[],
            None,
            &file(),
        );
        assert_eq!(order.is_ok(), is_one, "{role:?}");
    }
}

#[test]
fn a_variable_with_a_wrong_value_is_an_error() {
    for (variable, text) in [
        ("TEAM_MODEL", "gpt"),
        ("TEAM_MAX_TURNS", "0"),
        ("TEAM_MAX_TOKENS", "many"),
        ("MODEL_ID", "a\nb"),
    ] {
        let file = TeamFile::parse("model = 'openai'").unwrap();
        let asked = ("alice", TermsPatch::default(), false);
        let error = try_resolved(asked, &[(variable, text)], None, &file).unwrap_err();
        assert_eq!((error.variable, error.value.as_str()), (variable, text));
    }
}

#[test]
fn what_a_worker_needs_of_the_file_is_in_its_environment() {
    let of = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
            .collect()
    };
    let expected = of(&[
        ("TEAM_DURABILITY", "process"),
        ("TEAM_MODEL_TIMEOUT", "90"),
        ("TEAM_CA", "/home/u/work/certs/own.pem"),
    ]);
    // A teammate spawns nothing, and is not told of the file.
    assert_eq!(
        added("alice", None, &[("TEAM_FILE", "/x"), ("PATH", "/bin")]),
        expected
    );
    let set = [
        ("TEAM_MODEL_TIMEOUT", "5"),
        ("TEAM_DURABILITY", "disk"),
        ("TEAM_CA", "platform"),
    ];
    assert_eq!(added("alice", None, &set), []);
    assert_eq!(
        added("alice", Some("embedded"), &set),
        of(&[("TEAM_CA", "embedded")])
    );
    assert!(added("lead", None, &set).contains(&of(&[("TEAM_FILE", "/home/u/work/team.toml")])[0]));
}

#[test]
fn the_lead_agent_has_no_plans_and_its_prompt_is_what_it_is_told() {
    let lead = resolved("lead", TermsPatch::default(), &[]);
    assert_eq!(
        (
            lead.instructions.as_deref(),
            lead.prompt.as_deref(),
            lead.plan
        ),
        (Some("Be brief."), None, None)
    );
    assert_eq!(model(&lead), "openai:for-all");
}

#[test]
fn of_a_resumed_teammate_only_flags_change_anything() {
    let earlier: RosterMember = serde_json::from_value(roster_member(&json!({
        "name": "alice", "status": "shutdown", "role": "coder", "model": "openai:old"
    })))
    .unwrap();
    let variables = [
        ("HOME", "/home/u"),
        ("TEAM_MODEL", "script"),
        ("TEAM_MAX_TURNS", "1"),
    ];
    let resumed = |flags: TermsPatch| {
        try_resolved(("alice", flags, true), &variables, Some(&earlier), &file())
            .unwrap()
            .terms
    };
    assert_eq!(resumed(TermsPatch::default()), TermsPatch::default());
    let flags = TermsPatch {
        max_tokens: Some(5),
        ..TermsPatch::default()
    };
    assert_eq!(resumed(flags.clone()), flags);
    let coder = resumed(TermsPatch {
        role: Some("coder".to_owned()),
        ..TermsPatch::default()
    });
    assert_eq!(coder.instructions.as_deref(), Some("Write little code."));
}

#[test]
fn terms_change_by_what_a_patch_says_and_lists_grow() {
    let sandbox = SandboxPatch {
        network: Some(Network(Some(vec!["a.org".to_owned()]))),
        ports: Some(vec![1]),
        writable: vec!["/old".to_owned(), "/new".to_owned()],
        ..SandboxPatch::default()
    };
    let before = Terms {
        role: "coder".to_owned(),
        sandbox: Sandbox {
            mode: SandboxMode::ReadOnly,
            writable: vec!["/old".to_owned()],
            ..Sandbox::default()
        },
        limits: Limits {
            max_turns: Some(9),
            max_tokens: Some(90),
            ..Limits::default()
        },
        ..Terms::of_workspace("/w".to_owned())
    };
    let after = before.clone().with(&TermsPatch {
        max_tokens: Some(5),
        sandbox,
        ..TermsPatch::default()
    });
    assert_eq!(
        after.limits,
        Limits {
            max_turns: Some(9),
            max_tokens: Some(5),
            ..Limits::default()
        }
    );
    // A person who names a limit is not bound by what a lead has given of it, a restart changes
    // nothing.
    let total = Total {
        tokens: Some(5),
        cost: Dollars::try_from(1.0).ok(),
    };
    let given = before.clone().with(&TermsPatch {
        max_tokens: total.tokens,
        max_cost: total.cost,
        total,
        ..TermsPatch::default()
    });
    assert_eq!(given.limits.total, total);
    let resumed = given.clone().with(&TermsPatch::default());
    assert_eq!(resumed.limits.total, total);
    let raised = given.with(&TermsPatch {
        max_cost: Dollars::try_from(9.0).ok(),
        ..TermsPatch::default()
    });
    let left = Total {
        cost: None,
        ..total
    };
    assert_eq!(raised.limits.total, left);
    assert_eq!(
        (after.sandbox.mode, after.sandbox.no_network),
        (SandboxMode::ReadOnly, false)
    );
    assert_eq!(
        (after.sandbox.writable.as_slice(), after.role.as_str()),
        (["/old".into(), "/new".into()].as_slice(), "coder")
    );
    assert_eq!(
        (
            after.sandbox.hosts.as_slice(),
            after.sandbox.ports.as_slice()
        ),
        (&["a.org".to_owned()][..], &[1][..])
    );
    assert_eq!(before.clone().with(&TermsPatch::default()), before);
    for (network, no_network) in [(Network::NONE, true), (Network(None), false)] {
        let sandbox = SandboxPatch {
            network: Some(network.clone()),
            ..SandboxPatch::default()
        };
        let sandbox = after
            .clone()
            .with(&TermsPatch {
                sandbox,
                ..TermsPatch::default()
            })
            .sandbox;
        assert_eq!(
            (sandbox.no_network, sandbox.hosts.len(), sandbox.network()),
            (no_network, 0, network)
        );
    }
}

#[test]
fn a_fresh_incarnation_without_a_role_keeps_that_of_the_one_before() {
    let earlier: RosterMember = serde_json::from_value(roster_member(
        &json!({"name": "dora", "status": "shutdown", "role": "coder"}),
    ))
    .unwrap();
    let dora = try_resolved(
        ("dora", TermsPatch::default(), false),
        &[],
        Some(&earlier),
        &file(),
    )
    .unwrap()
    .terms;
    assert_eq!(
        (dora.role.as_deref(), model(&dora).as_str()),
        (None, "openai:role")
    );
    assert_eq!(dora.instructions.as_deref(), Some("Write little code."));
}

#[test]
fn a_patch_is_in_a_frame_what_it_was() {
    let mut terms = resolved(
        "alice",
        TermsPatch {
            memory: Some(1 << 30),
            ..TermsPatch::default()
        },
        &[],
    );
    // They are resolved before.
    terms.sandbox.named_writable.clear();
    terms.sandbox.named_hidden.clear();
    let config = bincode::config::standard();
    let bytes = bincode::serde::encode_to_vec(&terms, config).unwrap();
    let (read, _): (TermsPatch, usize) = bincode::serde::decode_from_slice(&bytes, config).unwrap();
    assert_eq!(read, terms);
}

#[test]
fn an_agent_has_a_model_of_its_own_service() {
    let keys = [
        ("ANTHROPIC_API_KEY", "k"),
        ("OPENAI_API_KEY", "k"),
        ("MODEL_ID", "m"),
    ];
    let with = |agent: &str, named: Option<&str>| {
        let agent = Some(agent.to_owned());
        let model = named.map(|model| model.parse().unwrap());
        let flags = TermsPatch {
            agent,
            model,
            ..TermsPatch::default()
        };
        try_resolved(("zoe", flags, false), &keys, None, &TeamFile::default())
    };
    assert_eq!(model(&with("codex", None).unwrap().terms), "openai:m");
    assert_eq!(model(&with("claude", None).unwrap().terms), "anthropic:m");
    let refused = with("codex", Some("anthropic:x")).unwrap_err();
    assert_eq!(
        (refused.variable, refused.value.as_str()),
        ("model", "anthropic:x")
    );
}
