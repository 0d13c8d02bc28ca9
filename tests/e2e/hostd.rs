//! The host daemon, as home sees it: the test plays home at the other end of a link.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, channel};

use nix::sys::signal::Signal;
use teamd_shared::control::{Directive, PendingShutdown, ToWorker, Welcome};
use teamd_shared::id::RequestId;
use teamd_shared::inbox::{LinePlace, Via};
use teamd_shared::link::{
    FromHost, HomeHello, HomeIdentity, HostedEnd, LINK_PROTOCOL, MAGIC, MAX_LINK_FRAME, MailLine,
    OwnerAt, RosterChange, StartOrder, TeamNow, ToHost, Variable, Whose, WorkerReport,
};
use teamd_shared::member::{Doing, Gate, Member, Phase, Terms};
use teamd_shared::message::{Body, Message};
use teamd_shared::name::Name;
use teamd_shared::position::Position;
use teamd_shared::process::Identity;
use uuid::Uuid;

use crate::support::running::Running;
use crate::support::{PATIENCE, Team, is_alive, signal};

/// The id of the home that the tests play.
const HOME: &str = "5b6f7a3c-0d3b-4c53-9a55-2f1c7f3a9d10";

/// Home with its link.
struct Home {
    relay: Running,
    stdin: ChildStdin,
    said: Receiver<FromHost>,
    /// The id of each message that it has sent, and where the next line begins in its file.
    sent: Vec<Uuid>,
    end: u64,
}

impl Home {
    /// Connects, without a word.
    fn dialled(team: &Team) -> Self {
        let mut relay = team.start_teamd(["host", HOME]);
        let stdin = relay.stdin();
        let mut lines = BufReader::new(relay.stdout()).lines();
        let (frames, said) = channel();
        let magic = lines.next().unwrap().unwrap();
        assert_eq!(magic, MAGIC);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let frame = serde_json::from_str(&line).unwrap();
                if frames.send(frame).is_err() {
                    return;
                }
            }
        });
        let home = Self {
            relay,
            stdin,
            said,
            sent: Vec::new(),
            end: 0,
        };
        let hello = home.next();
        assert!(matches!(hello, FromHost::Hello(_)), "{hello:?}");
        home
    }

    /// Connects, and says who it is and what the team is.
    fn connected(team: &Team, hosted: &[u32]) -> Self {
        let mut home = Self::dialled(team);
        home.says(&hello(2));
        home.says(&team_of(hosted));
        home.says(&ToHost::Roster(RosterChange {
            begins: true,
            head: r#"{"version":1,"seq":0,"team_name":"work","daemon":null,"sandbox":null,"#
                .to_owned(),
            members: Vec::new(),
            more: false,
        }));
        home
    }

    fn says(&mut self, frame: &ToHost) {
        let line = serde_json::to_string(frame).unwrap();
        writeln!(self.stdin, "{line}").unwrap();
    }

    fn next(&self) -> FromHost {
        self.said.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits for a frame; what comes before it is dropped.
    fn until<T>(&self, mut wanted: impl FnMut(FromHost) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.next()) {
                return found;
            }
        }
    }

    fn until_started(&self) -> Result<Identity, String> {
        self.until(|frame| match frame {
            FromHost::Started { process, .. } => Some(process),
            _ => None,
        })
    }

    /// Waits until alice says that she does this.
    fn until_doing(&self, doing: Doing) -> WorkerReport {
        self.until(|frame| match frame {
            FromHost::State { state, .. } if state.state.doing == doing => Some(*state),
            _ => None,
        })
    }

    fn until_ended(&self) -> Box<HostedEnd> {
        self.until(|frame| match frame {
            FromHost::Ended { end, .. } => Some(end),
            _ => None,
        })
    }

    fn until_connected(&self) {
        self.until(|frame| matches!(frame, FromHost::Connected { .. }).then_some(()));
    }

    /// Waits for a line of the outbox to the lead.
    fn until_mail(&self, wanted: impl Fn(&Message) -> bool) -> MailLine {
        self.until(|frame| match frame {
            FromHost::Mail(mail) => {
                let message = Message::parse(mail.text.as_bytes()).unwrap();
                wanted(&message).then_some(mail)
            }
            _ => None,
        })
    }

    fn takes_all_outboxes(&mut self) {
        self.says(&ToHost::Outboxes {
            taken: Vec::new(),
            copies: Vec::new(),
        });
    }

    /// Starts alice and welcomes her with this prompt. Returns her process.
    fn starts(&mut self, incarnation: u32, prompt: &str) -> Identity {
        self.says(&start(incarnation));
        let process = self.until_started().unwrap();
        self.until(|frame| matches!(frame, FromHost::Greeted(_)).then_some(()));
        self.tells(incarnation, ToWorker::Welcome(Box::new(welcome(prompt))));
        process
    }

    fn tells(&mut self, incarnation: u32, says: ToWorker) {
        let to = alice(incarnation);
        let says = Box::new(says);
        self.says(&ToHost::Say { to, says });
    }

    /// Sends a message to alice, as a line of home's inbox of her. Returns its place.
    fn sends(&mut self, body: Body, content: &str) -> LinePlace {
        let id = Uuid::new_v4();
        let message = Message::new(id, "lead", "alice", 1.0, body).with_content(content);
        let mail = MailLine::of(name("alice"), self.end, &message);
        self.end += mail.text.len() as u64 + 1;
        self.sent.push(id);
        self.says(&ToHost::Mail(mail.clone()));
        mail.line
    }
}

fn until_delivered(team: &Team, line: LinePlace) {
    let id = line.id.unwrap().to_string();
    team.until("the line in the inbox there", || {
        text(team, "inbox/alice.jsonl").contains(&id)
    });
}

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn alice(incarnation: u32) -> Whose {
    Whose {
        name: name("alice"),
        incarnation,
    }
}

fn hello(starts: u64) -> ToHost {
    hello_of("this-machine", starts)
}

fn hello_of(machine: &str, starts: u64) -> ToHost {
    let home = HomeIdentity {
        home: HOME.parse().unwrap(),
        machine: machine.to_owned(),
        starts,
    };
    ToHost::Hello(HomeHello {
        protocol: LINK_PROTOCOL,
        version: "0.0.0".to_owned(),
        home,
        host: name("box"),
        team_name: "work".to_owned(),
    })
}

fn team_of(hosted: &[u32]) -> ToHost {
    ToHost::Team(TeamNow {
        hosted: hosted.iter().copied().map(alice).collect(),
        owners: vec![name("alice")],
        others: vec![Name::lead(), name("bob")],
    })
}

fn terms() -> Terms {
    Terms::of_workspace("~/work".to_owned())
}

fn start(incarnation: u32) -> ToHost {
    let member = Member {
        name: name("alice"),
        terms: terms(),
        incarnation,
        conversation: 1,
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
    };
    let told = Variable {
        name: "TEAM_TOLD".to_owned(),
        value: "by home".to_owned(),
    };
    ToHost::Start(Box::new(StartOrder {
        member,
        begins_after: None,
        returned_up_to: None,
        variables: vec![told],
        asked: Vec::new(),
    }))
}

fn directive(seq: u64) -> Directive {
    Directive {
        seq,
        gate: Gate::Open,
        checking: None,
        shutdown: None,
        release: false,
        plan: None,
        verdict: None,
        permissions: terms().permissions,
        settles: 0,
    }
}

fn welcome(prompt: &str) -> Welcome {
    Welcome {
        terms: terms(),
        conversation: 1,
        begins_at: Position::START,
        prompt: Some(prompt.to_owned()),
        watch: false,
        environment: Default::default(),
        territory: Vec::new(),
        directive: directive(1),
        memory: None,
    }
}

/// A machine with the workspace of alice.
fn machine() -> Team {
    let team = Team::new();
    std::fs::create_dir_all(team.home().join("work")).unwrap();
    team
}

/// A path in the team directory of the host daemon.
fn path(team: &Team, relative: &str) -> PathBuf {
    let hosts = team.home().join(".local/share/teamd/hosts");
    hosts.join(HOME).join(".team").join(relative)
}

fn text(team: &Team, relative: &str) -> String {
    std::fs::read_to_string(path(team, relative)).unwrap_or_default()
}

fn daemon_pid(team: &Team) -> i32 {
    text(team, "run/teamd.pid").trim().parse().unwrap()
}

fn events(team: &Team, event: &str) -> usize {
    let wanted = format!("\"event\":\"{event}\"");
    let log = text(team, "host.jsonl");
    log.lines().filter(|line| line.contains(&wanted)).count()
}

fn pid(process: &Identity) -> i32 {
    i32::try_from(process.pid).unwrap()
}

#[test]
fn a_teammate_works_on_another_machine_until_home_releases_it() {
    let team = machine();
    let mut home = Home::connected(&team, &[1]);
    home.takes_all_outboxes();
    let first = home.sends(Body::Message, "/bash echo $TEAM_TOLD > told");
    until_delivered(&team, first);
    let process = home.starts(1, "/send_message lead hello");
    // What a worker sends comes with its place in the outbox; what home sends is put into the inbox.
    let hello = home.until_mail(|message| message.content == "hello");
    assert_eq!(hello.owner, Name::lead());
    assert!(text(&team, "inbox/lead.jsonl").contains(&hello.text));
    let second = home.sends(Body::Message, "/send_message lead again");
    home.until_mail(|message| message.content == "again");
    let mut report = home.until_doing(Doing::Idle);
    while report.read != Some(second) {
        report = home.until_doing(Doing::Idle);
    }
    assert!(!report.state.needs_waking);
    let told = std::fs::read_to_string(team.home().join("work/told"));
    assert_eq!(told.unwrap(), "by home\n");
    let inbox = text(&team, "inbox/alice.jsonl");
    let vias: Vec<Via> = inbox
        .lines()
        .map(|line| Via::of(&Message::parse(line.as_bytes()).unwrap()).unwrap())
        .collect();
    assert!(vias.iter().all(|via| via.host == "home"));
    assert_eq!(
        vias.iter().map(|via| via.line).collect::<Vec<_>>(),
        [first, second]
    );
    // It answers a request for its shutdown: the line first, then what names it.
    let request_id = RequestId::from_bits(7);
    let asked = PendingShutdown {
        request_id: request_id.clone(),
        reason: "done".to_owned(),
        decide_within: 20.0,
    };
    let body = Body::ShutdownRequest {
        request_id: request_id.clone(),
        incarnation: Some(1),
        reason: "done".to_owned(),
        decide_within: Some(20.0),
    };
    let third = home.sends(body, "");
    until_delivered(&team, third);
    let asks = Directive {
        shutdown: Some(asked),
        ..directive(2)
    };
    home.tells(1, ToWorker::Directive(asks));
    let answer = home.until_mail(|message| {
        matches!(&message.body, Body::ShutdownResponse { request_id: id, approve: true, .. } if *id == request_id)
    });
    let submitted = home.until(|frame| match frame {
        FromHost::Submitted {
            line,
            request_id: id,
            ..
        } if id == request_id => Some(line),
        _ => None,
    });
    assert_eq!(submitted, Some(answer.line));
    let releases = Directive {
        release: true,
        ..directive(3)
    };
    home.tells(1, ToWorker::Directive(releases));
    let end = home.until_ended();
    assert_eq!((end.code, end.unread), (Some(0), 0));
    assert_eq!(end.inbox, Some(third));
    assert!(!is_alive(pid(&process)));
    assert_eq!((events(&team, "spawned"), events(&team, "exited")), (1, 1));
    // A new link hears of the end, and a start that is said again is answered with it.
    drop(home);
    let mut home = Home::connected(&team, &[]);
    let present = home.next();
    let FromHost::Present(now) = present else {
        panic!("{present:?}");
    };
    assert!(now.running.is_empty());
    let at = OwnerAt {
        owner: name("alice"),
        line: Some(third),
    };
    assert_eq!(now.inboxes, [at]);
    home.takes_all_outboxes();
    assert_eq!(home.until_ended(), end);
    home.says(&start(1));
    assert_eq!(home.until_ended(), end);
    assert_eq!(events(&team, "spawned"), 1);
}

#[test]
fn a_teammate_outlives_the_link_and_the_host_daemon() {
    let team = machine();
    let mut home = Home::connected(&team, &[1]);
    let process = home.starts(1, "/send_message lead one");
    home.until_doing(Doing::Idle);
    // Said again, it starts nothing.
    home.says(&start(1));
    assert_eq!(home.until_started(), Ok(process.clone()));
    // The link is cut: the next one hears of the same process, and gets what was not taken.
    home.relay.signal(Signal::SIGKILL);
    drop(home);
    let mut home = Home::connected(&team, &[1]);
    let present = home.until(|frame| match frame {
        FromHost::Present(now) => Some(now.running),
        _ => None,
    });
    assert_eq!(present.len(), 1);
    assert_eq!(present[0].process, process);
    home.until_connected();
    home.takes_all_outboxes();
    home.until_mail(|message| message.content == "one");
    // The host daemon is killed: the next one adopts.
    let daemon = daemon_pid(&team);
    signal(daemon, Signal::SIGKILL);
    let (_, ended) = home.relay.ended_within(PATIENCE);
    assert!(ended, "a relay without its host daemon");
    assert!(is_alive(pid(&process)));
    let mut home = Home::connected(&team, &[1]);
    assert_ne!(daemon_pid(&team), daemon);
    let state = home.until(|frame| match frame {
        FromHost::Connected { state, .. } => Some(state),
        _ => None,
    });
    assert_eq!(state.state.doing, Doing::Idle);
    let place = home.sends(Body::Message, "/send_message lead two");
    until_delivered(&team, place);
    home.takes_all_outboxes();
    home.until_mail(|message| message.content == "two");
    // A host daemon that is told to end leaves it running. It is killed while none runs: the next
    // one tells how it ended, as far as it knows.
    signal(daemon_pid(&team), Signal::SIGTERM);
    let (_, ended) = home.relay.ended_within(PATIENCE);
    assert!(ended && is_alive(pid(&process)));
    team.until("the host daemon has ended", || {
        !path(&team, "run/teamd.sock").exists()
    });
    signal(pid(&process), Signal::SIGKILL);
    let mut home = Home::connected(&team, &[1]);
    home.takes_all_outboxes();
    let end = home.until_ended();
    assert_eq!((end.code, end.unread), (None, 0));
    assert_eq!((events(&team, "spawned"), events(&team, "exited")), (1, 1));
}

#[test]
fn what_home_does_not_have_any_more_is_ended_and_archived() {
    let team = machine();
    let mut home = Home::connected(&team, &[1]);
    let process = home.starts(1, "/bash sleep 100");
    home.until_doing(Doing::Working);
    home.takes_all_outboxes();
    home.says(&team_of(&[]));
    let end = home.until_ended();
    assert!(end.left, "{end:?}");
    assert!(!is_alive(pid(&process)));
    assert!(path(&team, "transcript/alice.jsonl").exists());
    home.says(&ToHost::Team(TeamNow {
        hosted: Vec::new(),
        owners: Vec::new(),
        others: vec![Name::lead()],
    }));
    team.until("its files are in the archive", || {
        events(&team, "forgotten") == 1
    });
    assert!(!path(&team, "transcript/alice.jsonl").exists());
    assert!(!path(&team, "inbox/bob.jsonl").exists());
    let kept = std::fs::read_dir(path(&team, "archive")).unwrap();
    let kept: Vec<String> = kept
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        kept.iter()
            .any(|it| it.ends_with(".transcript.alice.jsonl")),
        "{kept:?}"
    );
    // The name begins again.
    home.says(&team_of(&[1]));
    home.starts(1, "Done.");
}

#[test]
fn a_workspace_that_is_not_there_is_named() {
    let team = Team::new();
    let mut home = Home::connected(&team, &[1]);
    home.says(&start(1));
    let why = home.until_started().unwrap_err();
    let at = team.home().join("work");
    assert!(why.contains(at.to_str().unwrap()), "{why}");
    assert_eq!(events(&team, "spawned"), 0);
}

#[test]
fn a_copy_of_a_home_is_not_obeyed_and_breaks_no_link() {
    let team = machine();
    let mut home = Home::connected(&team, &[]);
    home.until(|frame| matches!(frame, FromHost::Present(_)).then_some(()));
    let older = hello(1);
    let elsewhere = hello_of("another-machine", 9);
    for (copy, reason) in [(older, "start 2"), (elsewhere, "another machine")] {
        let mut other = Home::dialled(&team);
        other.says(&copy);
        let refused = other.next();
        let FromHost::Refused { why, hint } = refused else {
            panic!("{refused:?}");
        };
        assert!(why.contains(reason), "{why}");
        assert!(hint.is_some());
        let (run, ended) = other.relay.ended_within(PATIENCE);
        assert!(ended && run.is_done(), "{run:?}");
    }
    let place = home.sends(Body::Message, "still here");
    until_delivered(&team, place);
    // A later start of the same home takes the place of the link.
    let mut later = Home::dialled(&team);
    later.says(&hello(3));
    later.until(|frame| matches!(frame, FromHost::Present(_)).then_some(()));
    let (run, ended) = home.relay.ended_within(PATIENCE);
    assert!(ended && run.is_done(), "{run:?}");
    // A person decides otherwise.
    let ToHost::Hello(elsewhere) = hello_of("another-machine", 1) else {
        unreachable!("it is the first frame");
    };
    let mut taken = Home::dialled(&team);
    taken.says(&ToHost::Take(elsewhere));
    taken.until(|frame| matches!(frame, FromHost::Present(_)).then_some(()));
    let mut before = Home::dialled(&team);
    before.says(&hello(9));
    let refused = before.next();
    assert!(matches!(refused, FromHost::Refused { .. }), "{refused:?}");
}

#[test]
fn a_host_says_how_far_mail_is_taken_and_what_its_log_says_when_it_is_asked() {
    let team = machine();
    let mut home = Home::connected(&team, &[1]);
    home.takes_all_outboxes();
    home.starts(1, "");
    let taken = |home: &mut Home| {
        let owner = name("alice");
        home.says(&ToHost::SayTaken { owner });
        home.until(|frame| match frame {
            FromHost::Taken(taken) => Some(taken.line),
            _ => None,
        })
    };
    assert_eq!(taken(&mut home), None);
    let place = home.sends(Body::Message, "hello");
    assert_eq!(
        taken(&mut home),
        Some(place),
        "the answer comes behind the line"
    );
    home.says(&ToHost::SayVitals);
    let vitals = home.until(|frame| match frame {
        FromHost::Vitals(vitals) => Some(vitals),
        _ => None,
    });
    assert!(vitals.memory >= vitals.memory_available, "{vitals:?}");
    for (owner, is_there) in [("alice", true), ("stranger", false)] {
        home.says(&ToHost::SayLog {
            number: 7,
            owner: name(owner),
            from: None,
        });
        let piece = home.until(|frame| match frame {
            FromHost::Log { number: 7, piece } => Some(piece),
            _ => None,
        });
        assert_eq!(piece.is_ok(), is_there, "{piece:?}");
    }
}

#[test]
fn a_line_that_is_too_long_ends_the_relay_with_the_reason() {
    let team = machine();
    let mut home = Home::dialled(&team);
    let line = vec![b'x'; MAX_LINK_FRAME + 1];
    // The relay may end before all of it is written.
    drop(home.stdin.write_all(&line));
    let run = home.relay.finish().run_failed();
    assert!(run.stderr.contains("a line of more than"), "{run:?}");
}

#[test]
fn a_host_daemon_takes_no_commands_and_no_mail_for_others() {
    let team = machine();
    let mut home = Home::connected(&team, &[]);
    home.until(|frame| matches!(frame, FromHost::Present(_)).then_some(()));
    let frame = ToHost::Say {
        to: alice(1),
        says: Box::new(ToWorker::Wake),
    };
    home.says(&frame);
    let not_here = Message::new(Uuid::new_v4(), "lead", "bob", 1.0, Body::Message);
    home.says(&ToHost::Mail(MailLine::of(name("bob"), 0, &not_here)));
    let warned = home.until(|frame| match frame {
        FromHost::Warning { text } => Some(text),
        _ => None,
    });
    assert!(warned.contains("bob, who does not live here"), "{warned}");
    assert_eq!(text(&team, "inbox/bob.jsonl"), "");
    let dir = path(&team, "");
    let refused = team.teamctl(["--team-dir", dir.to_str().unwrap(), "shutdown", "alice"]);
    assert!(refused.run_failed().stderr.contains("host daemon"));
}
