//! The processes of the workers: starting them, seeing them end, signalling them.
//!
//! A worker is watched through a pidfd whether this daemon started it or found it alive: one thread
//! waits for all of them. An incarnation is over when its process has ended *and* its liveness lock
//! is free: tool processes live under shims that hold the lock until all they started is gone. If
//! it has a cgroup, that must be empty too.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::process::Signal;
use teamd_shared::control::ToWorker;
use teamd_shared::environment::Environment;
use teamd_shared::inbox;
use teamd_shared::logging;
use teamd_shared::member::{Bounds, Cgroup, Member};
use teamd_shared::name::Name;
use teamd_shared::process::{How, Identity, ProcessHandle};
use teamd_shared::sandbox::Namespaces;
use teamd_shared::team_dir::{TeamDir, TeamPath};
use teamd_shared::user_dirs::config_dir;
use tokio::sync::mpsc;

use crate::confinement::TeamConfinement;
use crate::core::incarnation::Incarnation;
use crate::io::cgroup::{CgroupHandle, Cgroups};
use crate::io::hooks::HookPids;
use crate::io::input::ConnectedWorker;
use crate::io::orphans::{OrphanReport, Orphans};
use teamd_client::programs::{self, Program};

/// How long the daemon that ends waits for what is left of a job.
const JOB_ENDS: Duration = Duration::from_secs(2);

/// The live processes, by incarnation.
#[derive(Debug)]
pub(crate) struct Supervisor {
    dir: Arc<TeamDir>,
    worker: Program,
    confinement: TeamConfinement,
    processes: HashMap<Incarnation, ProcessHandle>,
    /// The cgroups of incarnations that have one.
    groups: HashMap<Incarnation, CgroupHandle>,
    /// Those that run although their liveness lock is free.
    unlocked: HashSet<Incarnation>,
    cgroups: Cgroups,
    orphans: Orphans,
    /// The children that run hooks.
    pub(crate) hooks: HookPids,
    /// Where one thread waits for the ends of all processes.
    epoll: Arc<OwnedFd>,
    /// The incarnations that it waits for, by their number there; none: a job.
    watched: BTreeMap<u64, Option<Incarnation>>,
    /// The jobs, by their number.
    jobs: BTreeMap<u64, RunningJob>,
    /// How the processes of jobs ended whose cgroups have been emptied since, or will be.
    ended_jobs: BTreeMap<u64, How>,
    /// The last number that was given.
    last: u64,
    /// Takes the numbers of what has ended.
    exited: mpsc::UnboundedSender<u64>,
}

/// The process of a job, and the cgroup of its commands if they have one.
#[derive(Debug)]
struct RunningJob {
    process: ProcessHandle,
    group: Option<CgroupHandle>,
}

/// What has ended.
pub(crate) enum Reaped {
    /// The process of an incarnation.
    Worker(Incarnation, How),
    /// The job with this number.
    Job(u64, How),
}

/// A started worker.
pub(crate) struct StartedWorker {
    pub(crate) identity: Identity,
    pub(crate) cgroup: Option<Cgroup>,
}

impl Supervisor {
    /// Makes a supervisor; `exited` gets a number of each process that ends, for
    /// [`Supervisor::reap`].
    pub(crate) fn new(
        dir: Arc<TeamDir>,
        worker: Program,
        (confinement, cgroups): (&TeamConfinement, Cgroups),
        exited: mpsc::UnboundedSender<u64>,
    ) -> io::Result<Self> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let waiting = Arc::clone(&epoll);
        let thread = std::thread::Builder::new().name("reaper".to_owned());
        let ended = exited.clone();
        thread.spawn(move || wait_for_ends(&waiting, &ended))?;
        Ok(Self {
            dir,
            worker,
            confinement: confinement.clone(),
            processes: HashMap::new(),
            groups: HashMap::new(),
            unlocked: HashSet::new(),
            cgroups,
            orphans: Orphans::begin()?,
            hooks: HookPids::default(),
            epoll,
            watched: BTreeMap::new(),
            jobs: BTreeMap::new(),
            ended_jobs: BTreeMap::new(),
            last: 0,
            exited,
        })
    }

    /// Tells whether commands have mounts of their own.
    pub(crate) fn has_mounts(&self) -> bool {
        self.confinement.layers.namespaces != Namespaces::None
    }

    /// Starts the process of an incarnation. The worker waits on the connection that it inherits to
    /// be welcomed.
    pub(crate) fn start(
        &mut self,
        member: &Member,
        environment: &Environment,
        connection: OwnedFd,
    ) -> Result<StartedWorker, String> {
        let incarnation = Incarnation::of(member);
        if !self.dir.is_at_its_path() {
            return Err(
                "the team directory was moved: `teamd stop` here, and `teamd start` there"
                    .to_owned(),
            );
        }
        inbox::create(&self.dir, &member.name).map_err(|e| e.to_string())?;
        let log = self.log(&member.name)?;
        let stderr = log
            .try_clone()
            .map_err(|e| format!("cannot use its log: {e}"))?;
        let group = self.cgroups.make(&incarnation, &member.terms.bounds);
        let number = member.incarnation.to_string();
        let mut command = self.command(&[
            "run",
            "--name",
            member.name.as_str(),
            "--incarnation",
            &number,
        ]);
        command
            .args(
                group
                    .iter()
                    .flat_map(|group| ["--cgroup", group.record().path.as_str()]),
            )
            .env_clear()
            .envs(environment.settings())
            .stdin(connection)
            .stdout(log)
            .stderr(stderr);
        let started = self.run(incarnation.clone(), &mut command);
        match started {
            Ok(identity) => {
                let cgroup = group.as_ref().map(|group| group.record().clone());
                self.orphans.record_cgroup(group.is_some());
                self.groups.extend(group.map(|group| (incarnation, group)));
                Ok(StartedWorker { identity, cgroup })
            }
            Err(why) => {
                if let Some(group) = &group {
                    group.remove();
                }
                Err(why)
            }
        }
    }

    /// Makes a command of the worker's program, with what it needs to confine what it runs.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.worker.command();
        command
            .args(words)
            .arg("--team-dir")
            .arg(self.dir.root())
            .args(["--sandbox-layers", &self.confinement.layers.to_string()])
            .args(
                self.confinement
                    .weakness
                    .as_ref()
                    .map(|_| "--allow-weak-sandbox"),
            )
            .args(
                programs::files()
                    .into_iter()
                    .flat_map(|file| [OsString::from("--program"), file.into()]),
            )
            .args(
                config_dir(|name| std::env::var_os(name))
                    .ok()
                    .into_iter()
                    .flat_map(|dir| [OsString::from("--config"), dir.into()]),
            )
            .current_dir("/");
        command
    }

    /// Starts the process of a job, which with `bounds` gets a cgroup for the commands of the team
    /// that it runs. Returns its number.
    pub(crate) fn start_job(
        &mut self,
        input: OwnedFd,
        output: OwnedFd,
        bounds: Option<&Bounds>,
    ) -> Result<u64, String> {
        let cannot = |error: io::Error| format!("cannot start a job: {error}");
        let log =
            logging::open(&self.dir, &TeamPath::log("teamd")).map_err(|error| error.to_string())?;
        let group = bounds.and_then(|bounds| self.cgroups.make_for_check(bounds));
        let mut command = self.command(&["job"]);
        command.args(
            group
                .iter()
                .flat_map(|group| ["--cgroup", group.record().path.as_str()]),
        );
        let started = command.stdin(input).stdout(output).stderr(log).spawn();
        let held = started.and_then(|mut child| {
            self.hold_job(&child, group.clone()).or_else(|error| {
                child.kill().and_then(|()| child.wait())?;
                Err(error)
            })
        });
        held.map_err(|error| {
            if let Some(group) = &group {
                group.remove();
            }
            cannot(error)
        })
    }

    fn hold_job(&mut self, child: &Child, group: Option<CgroupHandle>) -> io::Result<u64> {
        let process = ProcessHandle::open_child(child.id())?;
        let number = self.watch(None, &process)?;
        self.jobs.insert(number, RunningJob { process, group });
        Ok(number)
    }

    /// Kills what is left of the jobs that have cgroups. Waits a moment for their end.
    pub(crate) async fn end_jobs(&self) {
        for group in self.jobs.values().filter_map(|job| job.group.as_ref()) {
            drop(tokio::time::timeout(JOB_ENDS, group.empty("a check")).await);
        }
    }

    /// Runs a worker and watches it.
    fn run(&mut self, incarnation: Incarnation, command: &mut Command) -> Result<Identity, String> {
        let mut child = command
            .spawn()
            .map_err(|e| format!("cannot run {}: {e}", self.worker.path().display()))?;
        self.hold(incarnation, &child).map_err(|error| {
            // It waits for a welcome that will not come, so it is killed and reaped.
            match child.kill().and_then(|()| child.wait()) {
                Ok(status) => format!("cannot watch it: {error} ({status})"),
                Err(unended) => format!("cannot watch it: {error}; cannot end it: {unended}"),
            }
        })
    }

    /// Watches a child through its pidfd, as it watches an adopted process.
    fn hold(&mut self, incarnation: Incarnation, child: &Child) -> io::Result<Identity> {
        // It may have ended already; then its end is seen as any other.
        let handle = ProcessHandle::open_child(child.id())?;
        let identity = handle.identity().clone();
        self.watch_worker(incarnation, handle)?;
        Ok(identity)
    }

    fn log(&self, name: &Name) -> Result<File, String> {
        logging::open(&self.dir, &TeamPath::log(name.as_str())).map_err(|e| e.to_string())
    }

    /// Takes over a live process that an earlier daemon started.
    pub(crate) fn adopt(&mut self, incarnation: Incarnation, identity: Identity) -> io::Result<()> {
        self.watch_worker(incarnation, ProcessHandle::open(identity)?)
    }

    /// Remembers that the liveness lock of an incarnation says nothing about it.
    pub(crate) fn is_unlocked(&mut self, incarnation: Incarnation) {
        self.unlocked.insert(incarnation);
    }

    /// Tells, once, whether the liveness lock of an incarnation says when nothing of it is left.
    pub(crate) fn lock_tells(&mut self, incarnation: &Incarnation) -> bool {
        !self.unlocked.remove(incarnation)
    }

    /// Takes over the cgroup that an earlier daemon has made for an incarnation.
    pub(crate) fn recall(&mut self, incarnation: &Incarnation, member: &Member) {
        let group = member
            .cgroup
            .as_ref()
            .and_then(|recorded| self.cgroups.find(incarnation, recorded));
        self.orphans.record_cgroup(group.is_some());
        self.groups
            .extend(group.map(|group| (incarnation.clone(), group)));
    }

    /// Hands over the cgroup of an incarnation whose process has ended, if it has one.
    pub(crate) fn leave(&mut self, incarnation: &Incarnation) -> Option<CgroupHandle> {
        self.groups.remove(incarnation)
    }

    /// Returns the cgroups of the team.
    pub(crate) fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    fn watch_worker(&mut self, incarnation: Incarnation, process: ProcessHandle) -> io::Result<()> {
        self.watch(Some(incarnation.clone()), &process)?;
        self.processes.insert(incarnation, process);
        Ok(())
    }

    fn watch(
        &mut self,
        incarnation: Option<Incarnation>,
        process: &ProcessHandle,
    ) -> io::Result<u64> {
        self.last += 1;
        let number = self.last;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::add(
            &*self.epoll,
            process,
            epoll::EventData::new_u64(number),
            flags,
        )?;
        self.watched.insert(number, incarnation);
        Ok(number)
    }

    /// Asks a process to end. A stopped one is continued, or it would never see the signal.
    pub(crate) fn terminate(&self, incarnation: &Incarnation) {
        self.signal(incarnation, Signal::TERM);
        self.signal(incarnation, Signal::CONT);
    }

    /// Ends a process; its shims end what it had started.
    pub(crate) fn kill(&self, incarnation: &Incarnation) {
        self.signal(incarnation, Signal::KILL);
    }

    fn signal(&self, incarnation: &Incarnation, signal: Signal) {
        let Some(process) = self.processes.get(incarnation) else {
            return;
        };
        if let Err(error) = process.signal(signal) {
            tracing::error!(
                "cannot signal {} (pid {}): {error}",
                incarnation.name,
                process.identity().pid
            );
        }
    }

    /// Ends what incarnations have left to this process ([`Orphans::end`]).
    ///
    /// # Errors
    /// The system's error if its children cannot be seen.
    pub(crate) fn end_orphans(&mut self, since: Instant) -> io::Result<OrphanReport> {
        let children = self.known_children();
        self.orphans.end(&children, &self.cgroups, since)
    }

    /// Reaps the ended children that no incarnation has left.
    pub(crate) fn reap_others(&mut self) {
        let children = self.known_children();
        self.orphans.reap_others(&children, &self.cgroups);
    }

    /// Returns the workers, the jobs, and the processes of hooks: each is reaped by its own owner.
    fn known_children(&self) -> HashSet<u32> {
        let hooks = self.hooks.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = self.jobs.values().map(|job| &job.process);
        let own = self
            .processes
            .values()
            .chain(jobs)
            .map(|it| it.identity().pid);
        own.chain(hooks.iter().copied()).collect()
    }

    /// Returns the children of this process that no incarnation has left.
    pub(crate) fn orphans(&self) -> &Orphans {
        &self.orphans
    }

    /// Returns the process of an incarnation.
    pub(crate) fn identity(&self, incarnation: &Incarnation) -> Option<&Identity> {
        self.processes.get(incarnation).map(ProcessHandle::identity)
    }

    /// Tells whether a worker that has connected is the process that was started for its incarnation.
    /// Another one hears that `known_by` knows no such incarnation.
    pub(crate) fn recognizes(&self, worker: &ConnectedWorker, known_by: &str) -> bool {
        if self.identity(&worker.incarnation) == Some(&worker.process) {
            return true;
        }
        let Incarnation { name, number } = &worker.incarnation;
        tracing::warn!("a stranger says that it is {name} (incarnation {number})");
        let why = format!("{known_by} knows no such incarnation of {name}");
        worker.outbound.say(ToWorker::Stranger { why });
        false
    }

    /// Reaps the process with this number, which has ended. Returns what it was, and how it ended
    /// as far as that can be seen. A job that has a cgroup ends when that is empty: then its number
    /// is reported again.
    pub(crate) fn reap(&mut self, number: u64) -> Option<Reaped> {
        if let Some(how) = self.ended_jobs.remove(&number) {
            return Some(Reaped::Job(number, how));
        }
        if let Some(incarnation) = self.watched.remove(&number)? {
            let process = self.processes.remove(&incarnation)?;
            return Some(Reaped::Worker(incarnation, reap(process)));
        }
        let RunningJob { process, group } = self.jobs.remove(&number)?;
        let how = reap(process);
        let Some(group) = group else {
            return Some(Reaped::Job(number, how));
        };
        self.ended_jobs.insert(number, how);
        let exited = self.exited.clone();
        tokio::spawn(async move {
            group.empty("a check").await;
            // The daemon may end meanwhile.
            exited.send(number).ok();
        });
        None
    }
}

fn reap(process: ProcessHandle) -> How {
    process.reap().unwrap_or_else(|error| {
        tracing::warn!("cannot reap a process: {error}");
        How::default()
    })
}

/// Reports each process that ends, by its number. (tokio's `AsyncFd` takes foreign descriptors by
/// `unsafe` only.)
fn wait_for_ends(epoll: &OwnedFd, exited: &mpsc::UnboundedSender<u64>) {
    let mut events = Vec::with_capacity(64);
    loop {
        events.clear();
        match epoll::wait(epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                tracing::error!("cannot wait for processes: {errno}");
                return;
            }
        }
        if events
            .iter()
            .any(|event: &epoll::Event| exited.send(event.data.u64()).is_err())
        {
            return;
        }
    }
}
