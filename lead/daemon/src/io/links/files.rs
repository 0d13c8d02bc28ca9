//! The files that cross on connections of hosts that dial home: each waits for the connection that
//! names it. Home has asked for all of them, and takes no other one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use teamd_shared::control::ByteStream;
use teamd_shared::name::Name;
use tokio::sync::oneshot;
use uuid::Uuid;

/// What comes of the wait for a connection: the connection, or why there will be none.
type Awaited = Result<ByteStream, String>;

/// What waits, by the host and the name of the file.
type Waiting = HashMap<(Name, Uuid), oneshot::Sender<Awaited>>;

/// The files that are waited for.
#[derive(Debug, Clone, Default)]
pub(super) struct AwaitedFiles(Arc<Mutex<Waiting>>);

impl AwaitedFiles {
    /// Waits for the connection of a host for a file, from now on.
    pub(super) fn expect(&self, host: &Name, file: Uuid) -> oneshot::Receiver<Awaited> {
        let (sender, receiver) = oneshot::channel();
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A transfer that was given up waits no more.
        files.retain(|_, waiting| !waiting.is_closed());
        files.insert((host.clone(), file), sender);
        receiver
    }

    /// Ends the wait for a file. Gives back what it is not waited for with.
    pub(super) fn arrived(&self, host: &Name, file: Uuid, with: Awaited) -> Result<(), Awaited> {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match files.remove(&(host.clone(), file)) {
            Some(waiting) => waiting.send(with),
            None => Err(with),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_taken_and_once() {
        let files = AwaitedFiles::default();
        let name = |text| Name::new(text).unwrap();
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut waits = files.expect(&name("box"), one);
        let why = || Err("gone".to_owned());
        assert!(files.arrived(&name("box"), other, why()).is_err());
        assert!(
            files.arrived(&name("den"), one, why()).is_err(),
            "of another host"
        );
        assert!(files.arrived(&name("box"), one, why()).is_ok());
        assert_eq!(waits.try_recv().unwrap().unwrap_err(), "gone");
        assert!(files.arrived(&name("box"), one, why()).is_err(), "twice");
        drop(files.expect(&name("box"), one));
        assert!(files.arrived(&name("box"), one, why()).is_err(), "given up");
    }
}
