//! Finding out which layers work here, by using them: a shim has a child confined as it would a
//! command.
//!
//! `team-worker probe` prints what it found as one JSON object. With `--attack` that child also
//! tries to break out: that a layer is there does not prove that it holds. Nothing of this is used
//! while commands run.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use teamd_shared::environment::Environment;
use teamd_shared::member::{Gate, Sandbox};
use teamd_shared::sandbox::{Attack, Layers, NO_PLACE_FOR_PROBE, Namespaces, Probe};

use super::{Place, Places, Policy, TempDir, bubblewrap};
use crate::args::ProbeArgs;
use crate::shim::{self, Job, Order, Report};

mod attack;

pub use attack::attack_main;

/// Takes layers away, to try what is left: a list of `namespaces`, `bwrap`, `landlock`, `seccomp`.
/// For diagnosis.
const LAYERS_VARIABLE: &str = "TEAM_SANDBOX_LAYERS";

/// How long a trial may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Probes: the whole program behind the hidden subcommand.
pub fn probe_main(args: &ProbeArgs) -> ExitCode {
    match probe(args.attack) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let at = std::env::temp_dir();
            // If that fails, the exit code is left.
            drop(writeln!(
                io::stderr(),
                "{NO_PLACE_FOR_PROBE} {}: {error}",
                at.display()
            ));
            ExitCode::FAILURE
        }
    }
}

fn probe(attack: bool) -> io::Result<()> {
    let scratch = ProbeDirectory::make()?;
    let (layers, missing) = scratch.layers();
    let attacks = if attack {
        scratch.attack(layers)?
    } else {
        Vec::new()
    };
    let mut line = serde_json::to_vec(&Probe {
        layers,
        missing,
        attacks,
    })?;
    line.push(b'\n');
    rustix::io::write(io::stdout(), &line)?;
    Ok(())
}

/// Places that look like those of a team: a workspace with a team directory in it, and a home with
/// a secret.
struct ProbeDirectory {
    places: Places,
    /// Open, so that an attack that may write into the pipe need not wait for a reader.
    _pipe: File,
    folder: TempDir,
}

impl ProbeDirectory {
    fn make() -> io::Result<Self> {
        let id = format!("probe-{}", std::process::id());
        let folder = TempDir::create(&std::env::temp_dir(), &id)?;
        let at = |name: &str| folder.path().join(name);
        for name in [
            "work",
            "work/.team",
            "work/.team/run",
            "work/.git",
            "apart",
            "temp",
            "home",
            "home/.ssh",
        ] {
            std::fs::create_dir(at(name))?;
        }
        for file in [
            "work/.team/journal",
            "apart/journal",
            "work/.git/config",
            "home/notes",
            "home/.ssh/key",
        ] {
            File::create_new(at(file))?.write_all(b"untouched\n")?;
        }
        nix::unistd::mkfifo(&at("home/pipe"), nix::sys::stat::Mode::S_IRWXU)?;
        let places = Places {
            workspace: Place::of_this_call(at("work")),
            team_dir: at("work/.team"),
            temp: Place::of_this_call(at("temp")),
            homes: vec![at("home")],
            secrets: vec![at("home/.ssh")].into(),
            ..Places::default()
        };
        let pipe = File::options()
            .read(true)
            .write(true)
            .open(at("home/pipe"))?;
        Ok(Self {
            places,
            _pipe: pipe,
            folder,
        })
    }

    /// Returns what works, and why something does not.
    fn layers(&self) -> (Layers, Vec<String>) {
        let allowed = std::env::var(LAYERS_VARIABLE).ok();
        let may = |layer: &str| {
            allowed
                .as_ref()
                .is_none_or(|list| list.split(',').any(|word| word == layer))
        };
        let landlock = super::landlock::version();
        let all = Layers {
            namespaces: Namespaces::Own,
            landlock,
            seccomp: true,
        };
        // The usual case takes one trial.
        if ["namespaces", "landlock", "seccomp"].into_iter().all(may)
            && landlock > 0
            && self.works(all).is_ok()
        {
            return (all, Vec::new());
        }
        let mut found = Layers::default();
        let mut missing = Vec::new();
        let none = Layers::default();
        let mut works = |name: &str, layers: Layers| {
            let tried = if may(name) {
                self.works(layers)
            } else {
                Err(format!("taken away by {LAYERS_VARIABLE}"))
            };
            tried
                .map_err(|why| missing.push(format!("{name}: {why}")))
                .is_ok()
        };
        let makers = [
            ("namespaces", Namespaces::Own),
            ("bwrap", Namespaces::Bubblewrap),
        ];
        let maker = makers
            .into_iter()
            .find(|&(name, namespaces)| works(name, Layers { namespaces, ..none }));
        found.namespaces = maker.map_or(Namespaces::None, |(_, namespaces)| namespaces);
        if works("landlock", Layers { landlock, ..none }) {
            found.landlock = landlock;
        }
        found.seccomp = works(
            "seccomp",
            Layers {
                seccomp: true,
                ..none
            },
        );
        (found, missing)
    }

    fn works(&self, layers: Layers) -> Result<(), String> {
        if layers.namespaces == Namespaces::Bubblewrap && bubblewrap::program().is_none() {
            return Err("it is not installed".to_owned());
        }
        if layers == Layers::default() {
            return Err("the kernel has none".to_owned());
        }
        self.run(layers, Gate::Closed, "true").map(drop)
    }

    /// Runs a command under a shim, as a worker does; returns its output.
    fn run(&self, layers: Layers, gate: Gate, command: &str) -> Result<String, String> {
        // What these layers do not keep is found out here.
        let weak = true;
        let policy = self
            .places
            .policy(&Sandbox::default(), gate, (layers, weak))?;
        let policy = policy.ok_or("there is no policy")?;
        let (report, said) = run_under_a_shim(policy, &self.places.workspace.path, command)
            .map_err(|error| format!("cannot try: {error}"))?;
        match report {
            Some(Report {
                code: Some(0),
                error: None,
                ..
            }) => Ok(said),
            Some(Report {
                error: Some(why), ..
            }) => Err(why),
            other => Err(format!("a child ended with {other:?}: {said}")),
        }
    }

    fn attack(&self, layers: Layers) -> io::Result<Vec<Attack>> {
        let own = std::env::current_exe()?;
        // Where namespaces do not part the two, a team directory is made outside the workspace.
        let team = if layers.namespaces == Namespaces::None {
            "apart"
        } else {
            "work/.team"
        };
        // A machine without any keeps nothing there.
        let memory = TempDir::create(
            Path::new("/dev/shm"),
            &format!("probe-{}", std::process::id()),
        )
        .ok();
        let file = memory.as_ref().map(|folder| folder.path().join("file"));
        if let Some(file) = &file {
            drop(File::create_new(file)?);
        }
        let shared = file
            .map(|file| format!("--shared {}", quoted(&file)))
            .unwrap_or_default();
        let command = |kind: &str| {
            let own = quoted(&own);
            let scratch = quoted(self.folder.path());
            format!(
                "{own} attack {kind} {shared} --team {team} {scratch} {}",
                std::process::id()
            )
        };
        let mut attacks = Vec::new();
        for (gate, kind) in [(Gate::Open, ""), (Gate::Closed, "--closed")] {
            let said = self
                .run(layers, gate, &command(kind))
                .map_err(io::Error::other)?;
            attacks.extend(
                said.lines()
                    .filter_map(|line| serde_json::from_str::<Attack>(line).ok()),
            );
        }
        if attacks.is_empty() {
            return Err(io::Error::other("the attacks could not be run"));
        }
        Ok(attacks)
    }
}

/// Starts a shim and waits for its report, and for the output of the command.
fn run_under_a_shim(
    policy: Policy,
    workspace: &Path,
    command: &str,
) -> io::Result<(Option<Report>, String)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let order = Order {
        timeout: Some(PATIENCE),
        policy: Some(policy),
        ..Order::default()
    };
    let job = Job::new(order, &environment(), workspace, command.as_ref())?;
    let mut shim = job.program(shim::SUBCOMMAND)?;
    shim.stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::piped());
    let mut child = shim.spawn()?;
    // The end that is the shim's must be the shim's alone, or its end would not be seen.
    drop(shim);
    let mut said = String::new();
    let mut report = String::new();
    if let Some(mut output) = child.stderr.take() {
        output.read_to_string(&mut said)?;
    }
    ours.read_to_string(&mut report)?;
    child.wait()?;
    Ok((serde_json::from_str(&report).ok(), said))
}

/// The environment of a command: as a worker's, without the keys that it held.
fn environment() -> Environment {
    let mut environment = Environment::of_self();
    for name in attack::PLANTED {
        environment.set(name, attack::CANARY);
    }
    environment.part(&[]);
    environment
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}
