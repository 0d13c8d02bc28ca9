//! What slots and the wait for memory do to commands that run at once, and what they cost a command
//! that needs neither.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::Effort;
use crate::figure::{Figure, Sample, time};
use crate::support::process::{children, command_line, descendants, let_pass};
use crate::support::{Running, Team, signal};

/// The teammates that build at once.
const BUILDERS: [&str; 3] = ["alice", "bob", "carol"];

/// How many crates each builds, none of which needs another.
const CRATES: usize = 16;

/// How many compilers more than slots may run: one of each builder, and one.
const BESIDE: usize = 4;

/// What a command that takes no token may take longer.
const ADDED: Duration = Duration::from_micros(300);

/// What a command that is not held back may take longer.
const ADDED_BY_ADMISSION: Duration = Duration::from_micros(100);

/// The memory that is pretended, in MiB, and what each command takes of it.
const MEMORY: u64 = 500;
const TAKEN: u64 = MEMORY * 2 / 5;

/// How many such commands are given at once.
const COMMANDS: u32 = 200;

/// Measures with and without slots, in turns.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let mut figures = calls(effort);
    figures.extend(memory());
    figures.push(lost(effort));
    figures.push(previews());
    if std::process::Command::new("cargo")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("note: the builds need cargo");
        return figures;
    }
    let (most_without, without) = builds("slots = 'off'");
    let (most_with, with) = builds("slots = 'auto'");
    let slots = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let crates = BUILDERS.len() * CRATES;
    figures.push(Figure {
        name: format!("compilers at once, 3 builds of {CRATES} crates, {slots} slots"),
        measured: most_with.to_string(),
        limit: format!("{most_without} without slots"),
        ratio: None,
        aim: "≤ slots + 4",
        met: most_with <= slots + BESIDE,
    });
    let ratio = with.as_secs_f64() / without.as_secs_f64();
    figures.push(Figure {
        name: format!("wall time of these {crates} crates"),
        measured: time(with),
        limit: time(without),
        ratio: Some(ratio),
        aim: "≤ the same (1.05)",
        met: ratio <= 1.05,
    });
    figures
}

/// Returns how many compilers ran at once at most, and how long all builds took.
fn builds(slots: &str) -> (usize, Duration) {
    let team = team_with(slots);
    let code: String = (0..200)
        .map(|number| {
            format!("pub fn f{number}(x: u64) -> String {{\n    let all: Vec<u64> = (0..x).map(|it| it * {number}).collect();\n    format!(\"{{all:?}}\")\n}}\n")
        })
        .collect();
    for builder in BUILDERS {
        for number in 0..CRATES {
            let package = format!("{builder}/c{number}");
            std::fs::create_dir_all(team.root().join(&package).join("src")).unwrap();
            let manifest = format!(
                "[package]\nname = \"c{number}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"
            );
            team.write(&format!("{package}/Cargo.toml"), &manifest);
            team.write(&format!("{package}/src/lib.rs"), &code);
        }
        let workspace = "[workspace]\nresolver = \"2\"\nmembers = [\"c*\"]\n";
        team.write(&format!("{builder}/Cargo.toml"), workspace);
        team.spawn(builder, "");
    }
    let home = std::env::home_dir().unwrap();
    let named = |name: &str, folder: &str| {
        let path = std::env::var_os(name).map_or_else(|| home.join(folder), Into::into);
        format!("{name}={}", path.display())
    };
    let toolchain = [
        named("RUSTUP_HOME", ".rustup"),
        named("CARGO_HOME", ".cargo"),
    ]
    .join(" ");
    let began = Instant::now();
    for builder in BUILDERS {
        let order = format!(
            "/bash cd {builder} && {toolchain} cargo build --offline -q && touch ../{builder}.built"
        );
        team.teamctl(["send", builder, &order]).ok();
    }
    let mut most = 0;
    let is_built = |builder: &&str| team.made(&format!("{builder}.built"));
    while !BUILDERS.iter().all(is_built) {
        most = most.max(compilers(&team));
        let_pass(Duration::from_millis(20));
    }
    (most, began.elapsed())
}

/// Counts the compilers of crates that run for the teammates.
fn compilers(team: &Team) -> usize {
    let all = BUILDERS
        .iter()
        .flat_map(|builder| descendants(team.pid(builder)));
    let lines = all.map(command_line);
    lines
        .filter(|line| line.contains("--crate-name") && line.contains("src/lib.rs"))
        .count()
}

/// Measures commands that each take two fifths of a pretended memory.
fn memory() -> Vec<Figure> {
    let (most_without, without) = takers("off");
    let (most_with, with) = takers("auto");
    vec![
        Figure {
            name: format!("memory of 3 commands that take {TAKEN} of {MEMORY} MB each, at most"),
            measured: format!("{most_with} MB"),
            limit: format!("{most_without} MB without a wait"),
            ratio: None,
            aim: "≤ all of it, each is done",
            met: most_with <= MEMORY,
        },
        Figure {
            name: "wall time of these 3 commands".to_owned(),
            measured: time(with),
            limit: time(without),
            ratio: Some(with.as_secs_f64() / without.as_secs_f64()),
            aim: "-",
            met: true,
        },
    ]
}

/// Returns how much memory the commands of three teammates had together at most, in MiB, and how
/// long all of them took. Each begins when the one before has most of its memory.
fn takers(admit: &str) -> (u64, Duration) {
    let team = Team::new();
    let machine = format!("slots = 'off'\nadmit = '{admit}'\nmemory = '{MEMORY}M'\nreserve = 40\n");
    team.write("team.toml", &format!("[machine]\n{machine}"));
    team.teamd(["start"]).ok();
    for taker in BUILDERS {
        team.spawn(taker, "");
    }
    let began = Instant::now();
    let mut most = 0;
    for taker in BUILDERS {
        let code = format!(
            "import time; taken = b'x' * ({TAKEN} - 12 << 20); open('{taker}.takes', 'w').close(); time.sleep(3)"
        );
        let order = format!("/bash python3 -c \"{code}\" && touch {taker}.done");
        team.teamctl(["send", taker, &order]).ok();
        let is_seen = || {
            let waits = team.member(taker)["activity"]
                .as_str()
                .is_some_and(|it| it.starts_with("waits"));
            waits || team.made(&format!("{taker}.takes"))
        };
        while !is_seen() {
            most = most.max(used(&team));
            let_pass(Duration::from_millis(20));
        }
    }
    let is_done = |taker: &&str| team.made(&format!("{taker}.done"));
    while !BUILDERS.iter().all(is_done) {
        most = most.max(used(&team));
        let_pass(Duration::from_millis(20));
    }
    (most, began.elapsed())
}

/// The slots of the kills, of which a command holds all.
const SLOTS: usize = 3;

/// What is killed, in turns.
#[derive(Debug, Clone, Copy)]
enum Killed {
    /// A process that has taken tokens.
    Client,
    /// The shim of the command, and so the command.
    Call,
    Worker,
    Daemon,
}

/// Kills what holds slots and a place in the memory, and counts what does not come back.
fn lost(effort: Effort) -> Figure {
    let team = Team::new();
    let session = team.home().join("session");
    std::fs::create_dir_all(&session).unwrap();
    let team = team.with("XDG_RUNTIME_DIR", session.to_str().unwrap());
    team.write("team.toml", &format!("[machine]\nslots = {SLOTS}\n"));
    team.teamd(["start"]).ok();
    team.teamctl(["spawn", "alice", "--restart", "never"]).ok();
    let held = HeldLocks::of(&session.join("teamd"));
    let opens = "auth=${CARGO_MAKEFLAGS##*--jobserver-auth=}; \
        case $auth in fifo:*) exec 8<>\"${auth#fifo:}\" ;; *) exec 8<&\"${auth%,*}\" ;; esac";
    let kills = effort.of(1000);
    let kinds = [Killed::Client, Killed::Call, Killed::Worker, Killed::Daemon];
    let mut lost = 0;
    for (number, kind) in kinds.iter().cycle().take(kills).enumerate() {
        let takes = "read -rN1 -u8 token; ".repeat(SLOTS - 1);
        let order = format!("{opens}; ({takes} touch holds{number}; exec sleep 1000); true");
        team.send("alice", &format!("/bash {order}"));
        team.until("all to be held", || {
            team.made(&format!("holds{number}")) && held.slots() == SLOTS && held.places() == 1
        });
        kill(&team, *kind);
        // What is left of it is ended, and all that it held is free.
        let began = Instant::now();
        while held.slots() + held.places() > 0 && began.elapsed() < Duration::from_secs(5) {
            let_pass(Duration::from_millis(1));
        }
        lost += held.slots() + held.places();
        if matches!(kind, Killed::Worker) {
            team.wait_for("alice", "crashed");
            team.teamctl(["spawn", "alice", "--resume"]).ok();
        }
        team.wait_for("alice", "idle");
    }
    Figure {
        name: format!(
            "slots and places lost over {kills} kill -9 of clients, calls, workers, the daemon"
        ),
        measured: lost.to_string(),
        limit: format!("{} held", kills * (SLOTS + 1)),
        ratio: None,
        aim: "0",
        met: lost == 0,
    }
}

/// Kills it while a command holds slots, and ends the command.
fn kill(team: &Team, kind: Killed) {
    let worker = team.pid("alice");
    match kind {
        Killed::Client => {
            let client = || {
                let mut all = descendants(worker).into_iter();
                all.find(|pid| command_line(*pid).trim() == "sleep 1000")
            };
            team.until("the client", || client().is_some());
            signal(client().unwrap(), Signal::SIGKILL);
        }
        Killed::Call => {
            let shim = children(worker).into_iter().next().unwrap();
            signal(shim, Signal::SIGKILL);
        }
        Killed::Worker => signal(worker, Signal::SIGKILL),
        Killed::Daemon => {
            team.kill_daemon();
            team.teamd(["start"]).ok();
            // The worker may not have found the next daemon yet.
            team.until("it to be interrupted", || {
                team.teamctl(["interrupt", "alice"]).is_done()
            });
        }
    }
}

/// What the kernel says that is locked of the slots and of the places in the memory.
struct HeldLocks {
    slots: PathBuf,
    places: PathBuf,
}

impl HeldLocks {
    fn of(folder: &std::path::Path) -> Self {
        Self {
            slots: folder.join("slots"),
            places: folder.join("slots.admission"),
        }
    }

    fn slots(&self) -> usize {
        // Behind the bytes of the slots are those of the commands that take part.
        locked(&self.slots, 1 << 16..2 << 16)
    }

    fn places(&self) -> usize {
        locked(&self.places, 0..u64::MAX)
    }
}

/// Counts the bytes of a file that are locked.
fn locked(file: &std::path::Path, of: std::ops::Range<u64>) -> usize {
    let Ok(metadata) = file.metadata() else {
        return 0;
    };
    let inode = format!(":{}", metadata.ino());
    let all = std::fs::read_to_string("/proc/locks").unwrap();
    let lines = all.lines().filter(|line| !line.contains("->"));
    lines
        .filter_map(|line| {
            let mut words = line.split_whitespace().skip(5);
            words.next()?.ends_with(&inode).then_some(())?;
            let first: u64 = words.next()?.parse().ok()?;
            let last: u64 = words.next()?.parse().ok()?;
            let most = usize::try_from(last - first + 1).ok()?;
            of.contains(&first).then_some(most)
        })
        .sum()
}

/// The teammates that serve one port at once.
const SERVERS: usize = 10;

/// Answers on port 3000 with a name.
const SERVES: &str = "import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(('served by ' + sys.argv[1]).encode())
    def log_message(self, *_): pass
http.server.HTTPServer(('127.0.0.1', 3000), Handler).serve_forever()
";

/// Counts the teammates that serve one port, and are seen at an address of the user's machine.
fn previews() -> Figure {
    let team = Team::new();
    team.write("team.toml", "[sandbox]\nnetwork = false\n");
    team.write("serves.py", SERVES);
    team.teamd(["start"]).ok();
    team.trust();
    let names: Vec<_> = (0..SERVERS).map(|number| format!("w{number}")).collect();
    let began = Instant::now();
    let mut open = Vec::new();
    for name in &names {
        let spawned = team.teamctl(["spawn", name, "--localhost", "own"]);
        if !spawned.is_done() {
            println!("note: no localhost of its own here: {}", spawned.stderr);
            break;
        }
        let command = format!("python3 serves.py {name}");
        let order = json!({"command": command, "run_in_background": true});
        team.does(name, &format!("/bash {order}"));
        open.push(PreviewedPort::of(&team, name));
    }
    let mut seen = 0;
    let mut took = Sample::default();
    for (name, port) in names.iter().zip(&open) {
        team.until("its server", || port.get().contains("served by"));
        let asked = Instant::now();
        let answer = port.get();
        took.add(asked.elapsed());
        seen += usize::from(answer.ends_with(&format!("served by {name}")));
    }
    let all = began.elapsed();
    for port in open {
        port.running.signal(Signal::SIGINT);
        port.running.finish();
    }
    let each = if seen > 0 {
        time(took.p50())
    } else {
        String::new()
    };
    Figure {
        name: "teammates that serve :3000 at once, each previewed".to_owned(),
        measured: format!("{seen}, a page in {each}, all in {}", time(all)),
        limit: "1 on a shared localhost".to_owned(),
        ratio: None,
        aim: "10",
        met: seen == SERVERS,
    }
}

/// An address at which `teamctl port` shows what a teammate serves.
struct PreviewedPort {
    running: Running,
    host: String,
    cookie: String,
}

impl PreviewedPort {
    fn of(team: &Team, name: &str) -> Self {
        let mut running = team.start_teamctl(["port", name, "3000"]);
        let mut url = String::new();
        BufReader::new(running.stdout())
            .read_line(&mut url)
            .unwrap();
        let (host, key) = url.trim().split_once("/?").unwrap();
        let host = host.strip_prefix("http://").unwrap().to_owned();
        let mut port = Self {
            running,
            host,
            cookie: String::new(),
        };
        let begun = port.ask(&format!("/?{key}"));
        let (_, cookie) = begun.split_once("set-cookie: ").unwrap();
        port.cookie = cookie.split(';').next().unwrap().to_owned();
        port
    }

    fn get(&self) -> String {
        self.ask("/")
    }

    fn ask(&self, path: &str) -> String {
        let Self { host, cookie, .. } = self;
        let (_, port) = host.rsplit_once(':').unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
        let head = format!("Host: {host}\r\nCookie: {cookie}\r\nConnection: close\r\n");
        write!(stream, "GET {path} HTTP/1.1\r\n{head}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

/// Returns how much memory the commands of the teammates have, in MiB.
fn used(team: &Team) -> u64 {
    let all = BUILDERS.iter().flat_map(|it| descendants(team.pid(it)));
    let pages: u64 = all.filter_map(resident).sum();
    (pages * rustix::param::page_size() as u64) >> 20
}

/// Returns how many pages of memory a process has; none if it has ended.
fn resident(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    text.split(' ').nth(1)?.parse().ok()
}

fn calls(effort: Effort) -> Vec<Figure> {
    let slots = added(effort, ["slots = 'off'", "slots = 'auto'"], false);
    let alone = added(effort, ["admit = 'off'", "admit = 'auto'"], false);
    let beside = added(effort, ["admit = 'off'", "admit = 'auto'"], true);
    let figure = |name: &str, (added, without): (Duration, Duration), most: Duration, aim| Figure {
        name: name.to_owned(),
        measured: format!("{} added to {}", time(added), time(without)),
        limit: String::new(),
        ratio: None,
        aim,
        met: added <= most,
    };
    let aim = "≤ 0.1 ms added";
    vec![
        figure(
            "a command that takes no token",
            slots,
            ADDED,
            "≤ 0.3 ms added",
        ),
        figure(
            "a command that does not wait for memory",
            alone,
            ADDED_BY_ADMISSION,
            aim,
        ),
        figure(
            "the same, while another one runs",
            beside,
            ADDED_BY_ADMISSION,
            aim,
        ),
    ]
}

/// Returns what the second setting adds to each of many commands, and how long these take with the
/// first; `beside`: while a command of another teammate runs.
fn added(effort: Effort, settings: [&str; 2], beside: bool) -> (Duration, Duration) {
    let mut without = Sample::default();
    let mut with = Sample::default();
    let teams = settings.map(team_with);
    for team in &teams {
        team.spawn("alice", "");
        if beside {
            team.spawn("bob", "");
            team.send("bob", "/bash touch runs; sleep 1000");
            team.until("the other command", || team.made("runs"));
        }
    }
    let order = vec!["/bash true"; usize::try_from(COMMANDS).unwrap()].join("\n");
    for _ in 0..effort.of(30) {
        for (team, sample) in teams.iter().zip([&mut without, &mut with]) {
            let began = Instant::now();
            team.does("alice", &order);
            sample.add(began.elapsed() / COMMANDS);
        }
    }
    (with.p50().saturating_sub(without.p50()), without.p50())
}

fn team_with(machine: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", &format!("[machine]\n{machine}\n"));
    team.teamd(["start"]).ok();
    team
}
