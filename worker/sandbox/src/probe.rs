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

use super::{CommandPlaces, Place, Policy, TempDir, bubblewrap};
use crate::args::ProbeArgs;
use crate::shim::{self, Report, ShimJob, ShimOrder};

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
    places: CommandPlaces,
    /// Open, so that an attack that may write into the pipe need not wait for a reader.
    _pipe: File,
    folder: TempDir,
}

impl ProbeDirectory {
    fn make() -> io::Result<Self> {
        let id = format!("probe-{}", std::process::id());
        let folder = TempDir::create(&std::env::temp_dir(), &id)?;
        let root = folder.path();
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
            std::fs::create_dir(root.join(name))?;
        }
        for file in [
            "work/.team/journal",
            "apart/journal",
            "work/.git/config",
            "home/notes",
            "home/.ssh/key",
        ] {
            File::create_new(root.join(file))?.write_all(b"untouched\n")?;
        }
        let pipe = root.join("home/pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU)?;
        let places = CommandPlaces {
            workspace: Place::of_this_call(root.join("work")),
            team_dir: root.join("work/.team"),
            temp: Place::of_this_call(root.join("temp")),
            homes: vec![root.join("home")],
            secrets: vec![root.join("home/.ssh")].into(),
            ..CommandPlaces::default()
        };
        let pipe = File::options().read(true).write(true).open(pipe)?;
        Ok(Self {
            places,
            _pipe: pipe,
            folder,
        })
    }

    /// Returns what works, and why something does not.
    fn layers(&self) -> (Layers, Vec<String>) {
        let landlock = super::landlock::version();
        let all = Layers {
            namespaces: Namespaces::Own,
            landlock,
            seccomp: true,
        };
        // The usual case takes one trial.
        if ["namespaces", "landlock", "seccomp"]
            .into_iter()
            .all(is_allowed)
            && landlock > 0
            && self.works(all).is_ok()
        {
            return (all, Vec::new());
        }
        let mut layers = Layers::default();
        let mut missing = Vec::new();
        let none = Layers::default();
        for (name, namespaces) in [
            ("namespaces", Namespaces::Own),
            ("bwrap", Namespaces::Bubblewrap),
        ] {
            if self.try_alone(name, Layers { namespaces, ..none }, &mut missing) {
                layers.namespaces = namespaces;
                break;
            }
        }
        if self.try_alone("landlock", Layers { landlock, ..none }, &mut missing) {
            layers.landlock = landlock;
        }
        let seccomp = Layers {
            seccomp: true,
            ..none
        };
        layers.seccomp = self.try_alone("seccomp", seccomp, &mut missing);
        (layers, missing)
    }

    /// Tells whether a layer works, and adds why it does not.
    fn try_alone(&self, name: &str, layers: Layers, missing: &mut Vec<String>) -> bool {
        let tried = if is_allowed(name) {
            self.works(layers)
        } else {
            Err(format!("taken away by {LAYERS_VARIABLE}"))
        };
        match tried {
            Ok(()) => true,
            Err(why) => {
                missing.push(format!("{name}: {why}"));
                false
            }
        }
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
        let (report, output) = run_under_a_shim(policy, &self.places.workspace.path, command)
            .map_err(|error| format!("cannot try: {error}"))?;
        match report {
            Some(Report {
                code: Some(0),
                error: None,
                ..
            }) => Ok(output),
            Some(Report {
                error: Some(why), ..
            }) => Err(why),
            other => Err(format!("a child ended with {other:?}: {output}")),
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
        let own = quoted(&own);
        let scratch = quoted(self.folder.path());
        let pid = std::process::id();
        let mut attacks = Vec::new();
        for (gate, kind) in [(Gate::Open, ""), (Gate::Closed, "--closed")] {
            let command = format!("{own} attack {kind} {shared} --team {team} {scratch} {pid}");
            let output = self.run(layers, gate, &command).map_err(io::Error::other)?;
            let lines = output.lines();
            attacks.extend(lines.filter_map(|line| serde_json::from_str::<Attack>(line).ok()));
        }
        if attacks.is_empty() {
            return Err(io::Error::other("the attacks could not be run"));
        }
        Ok(attacks)
    }
}

/// Tells whether the environment lets a layer be used.
fn is_allowed(layer: &str) -> bool {
    match std::env::var(LAYERS_VARIABLE) {
        Ok(list) => list.split(',').any(|word| word == layer),
        Err(_) => true,
    }
}

/// Starts a shim and waits for its report, and for the output of the command.
fn run_under_a_shim(
    policy: Policy,
    workspace: &Path,
    command: &str,
) -> io::Result<(Option<Report>, String)> {
    let (mut ours, theirs) = UnixStream::pair()?;
    let order = ShimOrder {
        timeout: Some(PATIENCE),
        policy: Some(policy),
        ..ShimOrder::default()
    };
    let job = ShimJob::new(order, &environment(), workspace, command.as_ref())?;
    let mut shim = job.program(shim::SUBCOMMAND)?;
    shim.stdin(Stdio::null())
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::piped());
    let mut child = shim.spawn()?;
    // The end that is the shim's must be the shim's alone, or its end would not be seen.
    drop(shim);
    let mut output = String::new();
    let mut report = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut output)?;
    }
    ours.read_to_string(&mut report)?;
    child.wait()?;
    Ok((serde_json::from_str(&report).ok(), output))
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
