//! What slots do to builds that run at once, and what they cost a command that builds nothing.

use std::time::{Duration, Instant};

use crate::Effort;
use crate::figure::{Figure, Sample, time};
use crate::support::Team;
use crate::support::process::{command_line, descendants, let_pass};

/// The teammates that build at once.
const BUILDERS: [&str; 3] = ["alice", "bob", "carol"];

/// How many crates each builds, none of which needs another.
const CRATES: usize = 16;

/// How many compilers more than slots may run: one of each builder, and one.
const BESIDE: usize = 4;

/// What a command that takes no token may take longer.
const ADDED: Duration = Duration::from_micros(300);

/// How many such commands are given at once.
const COMMANDS: u32 = 200;

/// Measures with and without slots, in turns.
pub(crate) fn measure(effort: Effort) -> Vec<Figure> {
    let mut figures = calls(effort);
    if std::process::Command::new("cargo")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("note: the builds need cargo");
        return figures;
    }
    let (most_without, without) = builds("'off'");
    let (most_with, with) = builds("'auto'");
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

fn calls(effort: Effort) -> Vec<Figure> {
    let mut without = Sample::default();
    let mut with = Sample::default();
    let teams = [team_with("'off'"), team_with("'auto'")];
    for team in &teams {
        team.spawn("alice", "");
    }
    let order = vec!["/bash true"; usize::try_from(COMMANDS).unwrap()].join("\n");
    for _ in 0..effort.of(30) {
        for (team, sample) in teams.iter().zip([&mut without, &mut with]) {
            let began = Instant::now();
            team.does("alice", &order);
            sample.add(began.elapsed() / COMMANDS);
        }
    }
    let added = with.p50().saturating_sub(without.p50());
    vec![Figure {
        name: "a command that takes no token".to_owned(),
        measured: format!("{} added to {}", time(added), time(without.p50())),
        limit: String::new(),
        ratio: None,
        aim: "≤ 0.3 ms added",
        met: added <= ADDED,
    }]
}

fn team_with(slots: &str) -> Team {
    let team = Team::new();
    team.write("team.toml", &format!("[machine]\nslots = {slots}\n"));
    team.teamd(["start"]).ok();
    team
}
