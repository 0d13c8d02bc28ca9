//! The jobs that home has this host do, for the checkouts here: what is this host's in each of them,
//! and what home hears of it.

use std::io;
use std::path::PathBuf;

use teamd_shared::environment::Environment;
use teamd_shared::job::{GitOrder, GitStep, JobReport, MakeOrder};
use teamd_shared::link::{FromHost, MAX_LINK_FRAME};
use teamd_shared::name::Name;
use teamd_shared::place::follow;
use teamd_shared::process::How;

use super::daemon::HostDaemon;
use super::hidden::hidden_here;
use super::places::Writes;
use super::state::{Conversation, HostRecord, NamedPrograms};

impl HostDaemon {
    /// Does a job for home.
    pub(super) fn begin_job(&mut self, number: u64, order: GitOrder) {
        if let Some(why) = self.is_used(&order) {
            return self.say_job_ended(number, Err(why));
        }
        if let GitStep::CanMake(make) = &order.step {
            let can_make = self.can_make(&order.name, make);
            return self.say_job_ended(number, can_make.map(|()| JobReport::CanMake));
        }
        match self.completed(order) {
            Ok(order) => {
                self.jobs.add(number, order);
                self.start_jobs();
            }
            Err(why) => self.say_job_ended(number, Err(why)),
        }
    }

    /// Returns why a checkout cannot be removed now: a worker that home has taken for lost is still
    /// being ended in it.
    fn is_used(&self, order: &GitOrder) -> Option<String> {
        let mut live = self.workers.live.keys();
        let removes = matches!(order.step, GitStep::Remove { .. });
        let is_used = removes && live.any(|incarnation| incarnation.name == order.name);
        is_used.then(|| format!("the worker of {} is still being ended there", order.name))
    }

    /// Reports a job whose process has ended.
    pub(super) fn job_process_ended(&mut self, process: u64, how: How) {
        if let Some((number, ended)) = self.jobs.process_ended(process, how) {
            self.say_job_ended(number, ended);
        }
        self.start_jobs();
    }

    fn start_jobs(&mut self) {
        for (number, why) in self.jobs.start_next(&mut self.workers.supervisor) {
            self.say_job_ended(number, Err(why));
        }
    }

    fn say_job_ended(&self, number: u64, ended: Result<JobReport, String>) {
        let ended = if is_too_long(&ended) {
            Err("its report is too long for a link".to_owned())
        } else {
            ended
        };
        let ended = Box::new(ended);
        self.links.say(&FromHost::JobEnded { number, ended });
    }

    /// Fills in what is this host's.
    fn completed(&mut self, order: GitOrder) -> Result<GitOrder, String> {
        let text = |path: &PathBuf| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| format!("{} is not UTF-8", path.display()))
        };
        let step = match order.step {
            GitStep::Make(mut make) => {
                let checkouts = text(&self.jobs.checkouts)?;
                make.sandbox.writable = self.let_setup_write(&order.name, &make)?;
                make.sandbox.hidden = hidden_here(&make.sandbox.hidden);
                GitStep::Make(Box::new(MakeOrder {
                    at: Some(checkouts.clone()),
                    otherwise: checkouts,
                    ..*make
                }))
            }
            GitStep::CheckMerged(mut merged) => {
                let check = &mut merged.prepare.check;
                check.environment = Environment::of_self();
                check.territory = self.territory();
                GitStep::CheckMerged(merged)
            }
            step => step,
        };
        Ok(GitOrder {
            home: text(&self.jobs.git)?,
            environment: Environment::of_self(),
            territory: self.territory(),
            step,
            ..order
        })
    }

    /// Makes sure that a teammate with such a checkout could start here, as far as that is known
    /// before it is made.
    fn can_make(&self, name: &Name, make: &MakeOrder) -> Result<(), String> {
        let checkout = self.checkout_of(name)?;
        self.written_by_setup(name, make, &checkout)?;
        let named = NamedPrograms::of(make.program.as_ref(), &make.mcp);
        let number = make.conversation;
        let of = Conversation { name, number };
        let known = self.log.state.programs(&of, &named);
        self.look_for_programs(make, known, &Environment::of_self())
    }

    /// Returns what the setup of a checkout may write beside it. What it can make links in is
    /// recorded before it runs: the start looks the same paths up again, perhaps in another host
    /// daemon, and follows none of those.
    fn let_setup_write(&mut self, name: &Name, make: &MakeOrder) -> Result<Vec<String>, String> {
        let checkout = self.checkout_of(name)?;
        let real = self.written_by_setup(name, make, &checkout)?;
        let mut paths = real.clone();
        paths.push(checkout);
        let territory = self.log.state.territory();
        paths.retain(|path| !territory.contains(path));
        let name = name.clone();
        if !paths.is_empty() && !self.record(HostRecord::Writes { name, paths }) {
            return Err("what the setup may write cannot be recorded".to_owned());
        }
        Ok(real)
    }

    /// Looks up what the setup of a checkout may write beside it.
    fn written_by_setup(
        &self,
        name: &Name,
        make: &MakeOrder,
        checkout: &str,
    ) -> Result<Vec<String>, String> {
        let number = make.conversation;
        let writes = Writes {
            of: Conversation { name, number },
            named: &make.sandbox.writable,
            workspace: checkout,
        };
        let places = self.places()?;
        let mut writable = places.writable(&writes, &Environment::of_self());
        if let Some(why) = writable.take_refusal(number.is_none(), &make.asked) {
            return Err(why);
        }
        // Of the rest the start warns.
        Ok(writable.real())
    }

    /// Returns the real path of a checkout that is there, or is to be made.
    fn checkout_of(&self, name: &Name) -> Result<String, String> {
        let checkout = self.jobs.checkouts.join(name.as_str());
        let checkout = follow::<io::Error>(&checkout, |_| Ok(()));
        let checkout = checkout.map_err(|error| format!("the checkout of {name}: {error}"))?;
        let checkout = checkout.into_os_string().into_string();
        checkout.map_err(|path| format!("{} is not UTF-8", path.display()))
    }

    /// Returns where commands for members may or once could write, for a frame.
    pub(super) fn territory(&self) -> Vec<String> {
        self.log.state.territory().iter().cloned().collect()
    }
}

/// Tells whether a report does not fit into a frame.
fn is_too_long(ended: &Result<JobReport, String>) -> bool {
    /// What the frame has beside the report.
    const AROUND: usize = 256;
    let text = serde_json::to_string(ended);
    text.is_ok_and(|text| text.len() + AROUND > MAX_LINK_FRAME)
}
