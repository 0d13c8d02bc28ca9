use super::*;
use teamd_shared::member::{Gate, Phase, Terms};
use teamd_shared::terms::{Login, Protocol};
use uuid::Uuid;

fn name() -> Name {
    Name::new("alice").unwrap()
}

fn member(incarnation: u32, conversation: u32) -> Member {
    Member {
        name: name(),
        terms: Terms::of_workspace("~/work".to_owned()),
        incarnation,
        conversation,
        begins_at: Position::START,
        phase: Phase::Spawning,
        process: None,
        cgroup: None,
        gate: Gate::Open,
        ending: None,
        ending_note: None,
        restarts: Vec::new(),
        restarted: 0,
        silent_since: None,
        exit: None,
        spawned_at: 1.0,
        updated_at: 1.0,
    }
}

fn spawned(incarnation: u32, conversation: u32, begins_at: Position) -> HostRecord {
    let mut member = member(incarnation, conversation);
    member.terms.workspace = "/home/me/work".to_owned();
    member.begins_at = begins_at;
    HostRecord::Spawned(Box::new(Spawned {
        member,
        named: "~/work".to_owned(),
        programs: NamedPrograms::default(),
        writable: Vec::new(),
        returned_up_to: None,
    }))
}

fn line(offset: u64) -> LinePlace {
    LinePlace {
        offset,
        id: Some(Uuid::nil()),
    }
}

fn exited(incarnation: u32, line: Option<LinePlace>, inbox: Position) -> HostRecord {
    let end = HostedEnd {
        code: Some(0),
        signal: None,
        inbox: line,
        unread: 0,
        mail: Vec::new(),
        more_mail: 0,
        emptied: None,
        unworkable: None,
        left: false,
    };
    let of = Whose {
        name: name(),
        incarnation,
    };
    HostRecord::Exited(Box::new(Exited { of, end, inbox }))
}

fn order(incarnation: u32, conversation: u32, begins_after: Option<LinePlace>) -> StartOrder {
    StartOrder {
        member: member(incarnation, conversation),
        begins_after,
        returned_up_to: None,
        variables: Vec::new(),
        asked: Vec::new(),
    }
}

fn fold(records: impl IntoIterator<Item = HostRecord>) -> HostState {
    let mut state = HostState::default();
    for record in records {
        let line = HostLine { at: 1.5, record };
        // As it is in the file.
        let text = serde_json::to_string(&line).unwrap();
        let again: HostLine = serde_json::from_str(&text).unwrap();
        assert_eq!(again, line, "{text}");
        state.apply(again.record);
    }
    state
}

fn incarnation(number: u32) -> Incarnation {
    Incarnation {
        name: name(),
        number,
    }
}

#[test]
fn an_order_meets_what_has_run() {
    let nothing = fold([]);
    assert_eq!(nothing.standing(&incarnation(1)), Standing::New);
    let runs = fold([spawned(2, 2, Position::START)]);
    assert!(matches!(runs.standing(&incarnation(2)), Standing::Runs(_)));
    assert_eq!(runs.standing(&incarnation(3)), Standing::AnotherRuns(2));
    assert!(runs.running(&incarnation(2)).is_some() && runs.running(&incarnation(1)).is_none());
    let begin = spawned(2, 2, Position::START);
    let ended = fold([begin, exited(2, None, Position::START)]);
    assert!(matches!(
        ended.standing(&incarnation(2)),
        Standing::Ended(_)
    ));
    assert_eq!(ended.standing(&incarnation(1)), Standing::Later(2));
    assert_eq!(ended.standing(&incarnation(3)), Standing::New);
    assert_eq!((ended.unended().count(), ended.ended().count()), (0, 1));
    let forgotten = fold([
        spawned(2, 2, Position::START),
        exited(2, None, Position::START),
        HostRecord::Forgotten { name: name() },
    ]);
    assert_eq!(forgotten.standing(&incarnation(1)), Standing::New);
}

#[test]
fn the_end_of_another_incarnation_ends_nothing() {
    let begin = spawned(2, 2, Position::START);
    let state = fold([begin, exited(1, None, Position::START)]);
    assert!(state.running(&incarnation(2)).is_some());
}

#[test]
fn a_conversation_begins_where_a_record_says_so() {
    let began = Position::after(100, b"before\n");
    let end = Position::after(300, b"at the end\n");
    let state = fold([spawned(1, 1, began), exited(1, Some(line(40)), end)]);
    let place = Some(line(40));
    assert_eq!(
        state.beginning(&order(2, 1, None)),
        Some(began),
        "it goes on"
    );
    assert_eq!(
        state.beginning(&order(2, 2, place)),
        Some(end),
        "behind the end"
    );
    assert_eq!(state.beginning(&order(2, 2, Some(line(41)))), None);
    // The end before counts until there is another one.
    let state = fold([
        spawned(1, 1, began),
        exited(1, place, end),
        spawned(2, 1, began),
    ]);
    assert_eq!(state.end_at(&name(), place), Some(end));
    assert_eq!(state.beginning(&order(3, 3, place)), Some(end));
}

fn conversation(name: &Name, number: u32) -> Conversation<'_> {
    let number = Some(number);
    Conversation { name, number }
}

#[test]
fn a_workspace_is_looked_up_once_for_a_conversation() {
    let state = fold([spawned(1, 1, Position::START)]);
    let name = name();
    let known = |number, named| state.workspace(&conversation(&name, number), named);
    assert_eq!(known(1, "~/work"), Some("/home/me/work"));
    assert_eq!(known(1, "~/other"), None);
    assert_eq!(known(2, "~/work"), None, "it is another conversation");
    let begins = Conversation {
        name: &name,
        number: None,
    };
    assert_eq!(state.workspace(&begins, "~/work"), None);
}

/// What was made where a tool once could write stays there.
#[test]
fn the_territory_only_grows() {
    let at = |incarnation, workspace: &str, writable: &str| {
        let mut member = member(incarnation, incarnation);
        member.terms.workspace = workspace.to_owned();
        member.terms.sandbox.writable = vec![writable.to_owned()];
        HostRecord::Spawned(Box::new(Spawned {
            member,
            named: "~/work".to_owned(),
            programs: NamedPrograms::default(),
            writable: Vec::new(),
            returned_up_to: None,
        }))
    };
    let prepared = HostRecord::Writes {
        name: name(),
        paths: vec!["/prepared".to_owned()],
    };
    let records = [
        prepared,
        at(1, "/first", "/data"),
        exited(1, None, Position::START),
        at(2, "/second", "/more"),
        exited(2, None, Position::START),
        HostRecord::Forgotten { name: name() },
    ];
    let state = fold(records);
    let territory: Vec<&str> = state.territory().iter().map(String::as_str).collect();
    let all = ["/data", "/first", "/more", "/prepared", "/second"];
    assert_eq!(territory, all);
}

#[test]
fn the_last_home_is_obeyed() {
    let obeyed = |starts| Obeyed {
        home: HomeIdentity {
            home: Uuid::nil(),
            machine: "m".to_owned(),
            starts,
        },
        host: Name::new("box").unwrap(),
    };
    let state = fold([1, 2].map(|starts| HostRecord::Obeys(obeyed(starts))));
    assert_eq!(state.obeys, Some(obeyed(2)));
}

#[test]
fn a_conversation_keeps_the_versions_of_its_programs() {
    let mut asked = member(1, 1);
    asked.terms.program = Some(agent("codex"));
    let named = NamedPrograms::of(asked.terms.program.as_ref(), &asked.terms.mcp);
    let mut here = asked;
    here.terms.program = Some(agent("/home/me/tools/codex-1/codex"));
    let state = fold([HostRecord::Spawned(Box::new(Spawned {
        member: here,
        named: "~/work".to_owned(),
        programs: named.clone(),
        writable: vec![NamedPath {
            named: "~/cache".to_owned(),
            real: "/data/cache".to_owned(),
        }],
        returned_up_to: None,
    }))]);
    let name = name();
    let known = |number, named| state.programs(&conversation(&name, number), named);
    let program = known(1, &named).and_then(|terms| terms.program.clone());
    assert_eq!(program, Some(agent("/home/me/tools/codex-1/codex")));
    assert_eq!(known(2, &named), None, "it is another conversation");
    let other = NamedPrograms::default();
    assert_eq!(known(1, &other), None, "it is another program");
    let writable = |number, named| state.writable(&conversation(&name, number), named).count();
    assert_eq!((writable(1, "~/cache"), writable(1, "~/other")), (1, 0));
    assert_eq!(writable(2, "~/cache"), 0, "it is another conversation");
}

fn agent(program: &str) -> Agent {
    Agent {
        name: "codex".to_owned(),
        command: vec![program.to_owned()],
        protocol: Protocol::Codex,
        login: Login::Key,
    }
}

/// What an earlier version has written says nothing of programs and paths.
#[test]
fn a_record_without_programs_is_read() {
    let line = HostLine {
        at: 1.5,
        record: spawned(1, 1, Position::START),
    };
    let mut json = serde_json::to_value(&line).unwrap();
    let fields = json.as_object_mut().unwrap();
    fields.remove("programs").unwrap();
    fields.remove("writable").unwrap();
    assert_eq!(serde_json::from_value::<HostLine>(json).unwrap(), line);
}
