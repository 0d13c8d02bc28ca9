//! The jobserver of one command, and its part in the pool.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use teamd_shared::environment::Environment;
use teamd_shared::machine::Form;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::Slots;
use crate::decision::{Seen, Share, Step, View};
use crate::fifo::Fifo;
use crate::pool::{Member, Pool};
use crate::wakes::{FifoWatched, PoolFollowed};

/// How many steps are taken in one look: for more slots, a token that was put in wakes again.
const MOST_STEPS: u32 = 64;

/// Where `make` and `ninja` find their jobserver.
const MAKEFLAGS: &str = "MAKEFLAGS";

/// Tells the FIFOs of one process apart.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// The jobserver of one command. Dropped, it is gone, and its slots are free.
#[derive(Debug)]
pub struct Lease {
    /// Ends before the FIFO is closed.
    _watched: FifoWatched,
    fifo: Fifo,
    woken: watch::Receiver<()>,
    _followed: PoolFollowed,
    pool: Pool,
    member: Option<Member>,
    /// What is said to the command.
    auth: String,
    slots: u32,
    handed_on: Vec<OwnedFd>,
    tells_make: bool,
}

impl Lease {
    /// Makes the jobserver.
    pub(crate) fn new(slots: &Slots, temp: &Path, inside: &Path) -> io::Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("jobserver-{number}");
        let mut fifo = Fifo::make(temp, &name)?;
        let wakes = slots.wakes()?;
        let woken = wakes.follow();
        let watched = wakes.watch_fifo(&fifo)?;
        let followed = wakes.follow_pool(&slots.pool)?;
        let mut handed_on = Vec::new();
        let auth = match slots.form {
            Form::Path => format!("fifo:{}", inside.join(&name).display()),
            Form::Descriptors => {
                let [reads, writes] = fifo.ends()?;
                fifo.forget_name()?;
                let auth = format!("{},{}", reads.as_raw_fd(), writes.as_raw_fd());
                handed_on = vec![reads, writes];
                auth
            }
        };
        let mut lease = Self {
            fifo,
            _watched: watched,
            woken,
            _followed: followed,
            pool: slots.pool.clone(),
            member: None,
            auth,
            slots: slots.pool.fair_share()?,
            handed_on,
            tells_make: slots.tells_make,
        };
        lease.settle()?;
        Ok(lease)
    }

    /// Returns the variables that tell a command with this environment of its jobserver. `MAKEFLAGS`
    /// is one of them only if a person chose that: GNU make 4.4 then runs a plain `make` in parallel,
    /// and breaks what was never written for that.
    pub fn variables(&self, environment: &Environment) -> Vec<(&'static str, String)> {
        let auth = &self.auth;
        let flags = if self.handed_on.is_empty() {
            format!("-j --jobserver-auth={auth}")
        } else {
            // The second name is that of GNU make before 4.2.
            format!("-j --jobserver-fds={auth} --jobserver-auth={auth}")
        };
        let mut variables = vec![("TEAM_SLOTS", self.slots.to_string())];
        if self.tells_make {
            let mut all = environment.variables();
            let own = all.find(|(name, _)| name == MAKEFLAGS);
            let own = own.map(|(_, value)| value.to_string_lossy().into_owned());
            variables.push((MAKEFLAGS, behind(&own.unwrap_or_default(), &flags)));
        }
        variables.push(("CARGO_MAKEFLAGS", flags));
        variables
    }

    /// Returns the numbers of the descriptors that the variables name.
    pub fn descriptors(&self) -> Vec<i32> {
        self.handed_on.iter().map(AsRawFd::as_raw_fd).collect()
    }

    /// Takes out the descriptors that the variables name, for the command.
    pub fn hand_on(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.handed_on)
    }

    /// Keeps the jobserver until it is dropped.
    pub async fn serve(mut self) {
        let Err(error) = self.keep().await;
        tracing::warn!("the share of a command stays as it is: {error}");
        // Its slots stay taken until its command is over.
        pending().await
    }

    async fn keep(&mut self) -> io::Result<Infallible> {
        // Since when it looks as if nothing was built.
        let mut idle_since = None;
        let mut before = (0, 0);
        loop {
            let seen = self.settle()?;
            let patience = seen.patience();
            let tokens = (seen.taken, seen.waiting);
            if patience.is_none() || tokens != before {
                idle_since = None;
            }
            before = tokens;
            let leaves_at =
                patience.map(|patience| *idle_since.get_or_insert_with(Instant::now) + patience);
            let is_over = async {
                match leaves_at {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                changed = self.woken.changed() => changed.map_err(io::Error::other)?,
                () = is_over => {
                    self.fifo.forget_taken()?;
                    self.leave()?;
                    idle_since = None;
                }
            }
        }
    }

    /// Does what is to be done now, and returns what it sees then.
    fn settle(&mut self) -> io::Result<Seen> {
        self.woken.mark_unchanged();
        let mut none_free = false;
        let mut seen = self.look(none_free)?;
        // Where a command floods the FIFO, nothing comes to rest: the next wake-up goes on.
        for _ in 0..MOST_STEPS {
            match (seen.step(), self.member.as_mut()) {
                (Step::Join, _) => self.member = Some(self.pool.join()?),
                (Step::TakeSlot, Some(member)) => none_free = !member.take_slot()?,
                (Step::Put, _) => self.fifo.put()?,
                (Step::TakeOut, _) => drop(self.fifo.take_out()?),
                (Step::GiveBack, Some(member)) => {
                    if self.fifo.take_out()? {
                        member.free_slot()?;
                    }
                }
                (Step::Wish(wish), Some(member)) => {
                    member.set_wish(wish)?;
                    // One that was freed meanwhile woke no lease.
                    none_free = false;
                }
                (Step::Rest, _) | (_, None) => break,
            }
            seen = self.look(none_free)?;
        }
        Ok(seen)
    }

    fn look(&mut self, none_free: bool) -> io::Result<Seen> {
        let (taken, waiting) = self.fifo.count()?;
        let pool = match &mut self.member {
            Some(member) => View::Inside(Share {
                held: member.held(),
                fair: member.fair_share()?,
                wish: member.wish(),
                wish_of_others: member.wish_of_others()?,
                none_free,
            }),
            None => View::Outside {
                may_begin: self.pool.has_free_slot()? || self.pool.fair_share()? > 1,
            },
        };
        Ok(Seen {
            taken,
            waiting,
            pool,
        })
    }

    /// Gives up all slots, and all tokens but one.
    fn leave(&mut self) -> io::Result<()> {
        let (_, waiting) = self.fifo.count()?;
        for _ in 1..waiting {
            self.fifo.take_out()?;
        }
        self.member = None;
        Ok(())
    }
}

/// Puts options behind those of the user, but before what `make` takes for variables.
fn behind(own: &str, options: &str) -> String {
    let own = format!(" {own} ");
    let told = match own.split_once(" -- ") {
        Some((before, variables)) => format!("{before} {options} -- {variables}"),
        None => own + options,
    };
    told.trim().to_owned()
}

#[cfg(test)]
mod tests;
