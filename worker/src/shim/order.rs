//! What a shim is asked to do: on its way from the worker to the shim and the sandbox init, in a file in memory. A command
//! line is visible to other users, and one argument holds 128 KiB at most.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::FdFlags;
use serde::{Deserialize, Serialize};
use teamd_shared::member::Bounds;

use crate::sandbox::Policy;
use crate::variables::Variables;

/// What a shim is asked to do, workspace and command apart: those people see in the list of processes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// How long the command may take.
    pub(crate) timeout: Option<Duration>,
    /// Whether the output goes to a log, which shall tell how the command ended.
    pub(crate) log: bool,
    /// What its processes may use.
    pub(crate) bounds: Bounds,
    /// What the command may do; none: all that the user may.
    pub(crate) policy: Option<Policy>,
}

/// An order in a file in memory: one line of JSON, and the variables of the command behind it.
#[derive(Debug)]
pub(crate) struct OrderFile(File);

impl OrderFile {
    /// Writes an order.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn write(order: &Order, variables: &Variables) -> io::Result<Self> {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC)?);
        let mut line = serde_json::to_vec(order)?;
        line.push(b'\n');
        file.write_all(&[&line, variables.as_bytes()].concat())?;
        Ok(Self(file))
    }

    /// Opens the order that this process has inherited as this descriptor.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn inherited(descriptor: &OsStr) -> io::Result<Self> {
        let descriptor: Option<u32> = descriptor.to_str().and_then(|number| number.parse().ok());
        let descriptor = descriptor.ok_or_else(|| io::Error::other("the order is no descriptor"))?;
        File::open(format!("/proc/self/fd/{descriptor}")).map(Self)
    }

    /// Reads the order.
    ///
    /// # Errors
    /// The system's error, or that it is no order.
    pub(crate) fn read(&self) -> io::Result<(Order, Variables)> {
        let mut bytes = Vec::new();
        (&self.0).read_to_end(&mut bytes)?;
        let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
        let order = serde_json::from_slice(&bytes[..end])?;
        Ok((order, Variables::from_bytes(bytes.get(end + 1..).unwrap_or_default())))
    }

    /// Returns its descriptor.
    pub(crate) fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Lets the programs that are started next inherit it; returns the descriptor by which they open it.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn hand_on(&self) -> io::Result<String> {
        rustix::io::fcntl_setfd(&self.0, FdFlags::empty())?;
        Ok(self.descriptor().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_as_it_was_written() {
        let order = Order { timeout: Some(Duration::from_millis(250)), log: true, ..Order::default() };
        let variables = Variables::of([("A".into(), "x\ny".into())].into_iter());
        let file = OrderFile::write(&order, &variables).unwrap();
        for _ in 0..2 {
            let taken = OrderFile::inherited(file.hand_on().unwrap().as_ref()).unwrap();
            assert_eq!(taken.read().unwrap(), (order.clone(), variables.clone()));
        }
        assert!(OrderFile::inherited("soon".as_ref()).is_err());
    }

    #[test]
    fn what_is_no_order_is_an_error() {
        let mut file = File::from(memfd_create("order", MemfdFlags::CLOEXEC).unwrap());
        file.write_all(b"{}\n").unwrap();
        let file = OrderFile(file);
        let taken = OrderFile::inherited(file.hand_on().unwrap().as_ref()).unwrap();
        assert_eq!(taken.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
