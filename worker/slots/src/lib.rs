//! Slots: how many processes the builds of all teams of a user run at once on this machine.
//!
//! Each command has a GNU jobserver of its own, a FIFO with a token for each process that it may
//! run beside its first one. A [`Lease`] keeps it: it puts a token in for each *slot* that it holds,
//! and takes tokens out again that others need. Slots are bytes of one file of the user that are
//! locked in the kernel, so they outlive no process.
//!
//! ```text
//! pool (bytes of a file, locked) ◀── lease ──▶ FIFO ◀──▶ cargo, rustc
//!                                     │
//!                                  decision (pure)
//! ```
//!
//! **Who writes**: the FIFO is written by its lease and by the programs of its command, the pool by
//! no process (its bytes are locked, and its time is set to wake others). **Who reads**: as who
//! writes. **When a program dies** with a token, the token is missing until its command is over, and
//! its slot with it. **When a worker dies**, its commands end and the kernel frees its slots. The
//! daemon has no part in this.

mod admission;
mod decision;
mod fifo;
mod lease;
mod locks;
mod pool;
mod wakes;

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub use admission::{AdmissionKind, AdmissionTicket, Admissions};
pub use lease::Lease;
use pool::Pool;
use teamd_shared::machine::Form;
use wakes::Wakes;

/// What the leases of one worker share.
#[derive(Debug)]
pub struct Slots {
    pool: Pool,
    form: Form,
    /// Whether `make` and `ninja` are told, too.
    tells_make: bool,
    /// One inotify instance, as long as a command runs and a little longer: the system grants a user
    /// few.
    wakes: Mutex<Weak<Wakes>>,
}

impl Slots {
    /// Opens the pool at this path with so many slots, for commands with this `PATH`.
    ///
    /// # Errors
    /// The system's error.
    pub fn open(pool: &Path, slots: u32, path: Option<&OsStr>) -> io::Result<Self> {
        Ok(Self {
            pool: Pool::at(pool, slots)?,
            form: Form::for_path(path),
            tells_make: false,
            wakes: Mutex::default(),
        })
    }

    /// Returns the same slots, of which `make` and `ninja` are told, too, where no make is there that
    /// would fail.
    #[must_use]
    pub fn telling_make(self) -> Self {
        let tells_make = self.form == Form::Path;
        Self { tells_make, ..self }
    }

    fn wakes(&self) -> io::Result<Arc<Wakes>> {
        let mut known = self.wakes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wakes) = known.upgrade() {
            return Ok(wakes);
        }
        let wakes = Arc::new(Wakes::new()?);
        *known = Arc::downgrade(&wakes);
        Ok(wakes)
    }

    /// Returns how commands are told of their jobserver.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Makes the jobserver of a command. Must be called within the runtime. `temp`: the temporary directory, which its commands may
    /// write; `inside`: its path for the command.
    ///
    /// # Errors
    /// The system's error.
    pub fn lease(&self, temp: &Path, inside: &Path) -> io::Result<Lease> {
        Lease::new(self, temp, inside)
    }
}
