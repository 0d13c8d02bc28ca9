//! The command line: that of `scripts/crash-test`, and what `cargo test` passes to every test
//! program.

use crate::faults::Fault;
use crate::scenarios;
use crate::stage::Victim;

const USAGE: &str =
    "usage: scripts/crash-test [--all] [--scenario NAME]… [--victim daemon|worker|teamctl|agent|shim|host|link]… [--fault NAME]…
    [--points A..B] [--every N] [--visible] [--behind FILE] [--seed N] [--runs N] [--seconds N] [--jobs N] [--stop] [--stop-at TEXT]…
    [--points-only]";

/// How many points `cargo test` tries. A number, and no time: a slow machine tries as many.
const SAMPLE: usize = 60;

/// What is run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) scenarios: Vec<String>,
    pub(crate) victims: Vec<Victim>,
    pub(crate) faults: Vec<Fault>,
    /// The first and the last point.
    pub(crate) points: Option<(u64, u64)>,
    /// Every how many points one is tried.
    pub(crate) every: u64,
    /// Deaths only where another process can see that the call was made.
    pub(crate) visible: bool,
    /// Faults only at the calls that follow directly on a sync of this file, and at all of those:
    /// what is aimed at is an event, wherever it lies among the calls.
    pub(crate) behind: Option<&'static str>,
    /// How many points a sample tries.
    pub(crate) runs: Option<usize>,
    /// How long a sample may take.
    pub(crate) seconds: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) jobs: usize,
    /// Ends at the first violation whose text contains one of these.
    pub(crate) stop: Vec<String>,
    /// Tells only how many points there are.
    pub(crate) list: bool,
}

impl Options {
    /// Reads the arguments; none if nothing is to be run.
    pub(crate) fn read(args: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            scenarios: Vec::new(),
            victims: Vec::new(),
            faults: Vec::new(),
            points: None,
            every: 1,
            visible: false,
            behind: None,
            runs: Some(SAMPLE),
            seconds: None,
            // `scripts/crash-test` chooses a fresh one.
            seed: 1,
            // A run waits half of its time.
            jobs: 4,
            stop: Vec::new(),
            list: false,
        };
        let mut args = args;
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .ok_or_else(|| format!("{arg} wants a value\n{USAGE}"))
            };
            let number = |text: String| {
                text.parse::<u64>()
                    .map_err(|error| format!("{text}: {error}\n{USAGE}"))
            };
            match arg.as_str() {
                "--scenario" => {
                    let name = value()?;
                    if !is_scenario(&name) {
                        return Err(format!("there is no scenario {name}\n{USAGE}"));
                    }
                    options.scenarios.push(name);
                }
                "--victim" => {
                    let name = value()?;
                    let victim = Victim::ALL.into_iter().find(|victim| victim.name() == name);
                    options
                        .victims
                        .push(victim.ok_or_else(|| format!("there is no victim {name}\n{USAGE}"))?);
                }
                "--fault" => {
                    let name = value()?;
                    options.faults.push(
                        Fault::of(&name)
                            .ok_or_else(|| format!("there is no fault {name}\n{USAGE}"))?,
                    );
                }
                "--points" => {
                    let text = value()?;
                    let (from, to) = text.split_once("..").unwrap_or((&text, &text));
                    options.points = Some((number(from.to_owned())?, number(to.to_owned())?));
                    options.runs = None;
                }
                "--all" => options.runs = None,
                "--every" => options.every = number(value()?)?.max(1),
                "--visible" => options.visible = true,
                "--behind" => options.behind = Some(Box::leak(value()?.into_boxed_str())),
                "--seed" => options.seed = number(value()?)?,
                "--runs" => options.runs = Some(usize::try_from(number(value()?)?).unwrap()),
                "--seconds" => {
                    options.seconds = Some(number(value()?)?);
                    options.runs = None;
                }
                "--jobs" => options.jobs = usize::try_from(number(value()?)?).unwrap_or(1).max(1),
                "--stop" => options.stop.push(String::new()),
                "--stop-at" => options.stop.push(value()?),
                "--points-only" => options.list = true,
                // What `cargo test` and its users pass to every test program.
                "--list" | "--ignored" => return Ok(None),
                "--exact" | "--nocapture" | "--no-capture" | "--quiet" | "-q"
                | "--include-ignored" | "--show-output" => {}
                "--test-threads" | "--format" | "--color" | "--skip" | "-Z" | "--logfile" => {
                    drop(value()?)
                }
                flag if flag.starts_with('-') && flag.contains('=') => {}
                flag if flag.starts_with('-') => {
                    return Err(format!("{flag} is not known\n{USAGE}"));
                }
                filter => options.scenarios.push(filter.to_owned()),
            }
        }
        // A filter may name a test of another program.
        if !options.scenarios.is_empty() && !options.scenarios.iter().any(|name| is_scenario(name))
        {
            return Ok(None);
        }
        Ok(Some(options))
    }

    /// Whether points are chosen by chance, and not each is tried.
    pub(crate) fn is_sample(&self) -> bool {
        self.runs.is_some() || self.seconds.is_some()
    }

    /// Whether a scenario is to be run.
    pub(crate) fn wants(&self, scenario: &str, victim: Victim) -> bool {
        let is_left_out =
            self.is_sample() && scenarios::is_left_out(scenario, victim, self.seconds.is_some());
        let by_name = self.scenarios.iter().any(|name| name == scenario);
        (by_name || self.scenarios.is_empty() && !is_left_out)
            && (self.victims.is_empty() || self.victims.contains(&victim))
    }
}

fn is_scenario(name: &str) -> bool {
    scenarios::ALL.iter().any(|scenario| scenario.name == name)
}
