//! The commands that wait until a line of an inbox at home is in that inbox on a host.

use teamd_shared::inbox::LinePlace;
use teamd_shared::name::Name;

use crate::core::caller::ReplyTo;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    awaited: Vec<AwaitedLine>,
}

/// One of them.
#[derive(Debug)]
struct AwaitedLine {
    client: ReplyTo,
    owner: Name,
    /// Where the line begins in home's file, in bytes.
    offset: u64,
    /// Whether the host was asked, behind that line.
    is_asked: bool,
}

impl Deliveries {
    /// Adds a command.
    pub(crate) fn add(&mut self, client: ReplyTo, owner: Name, offset: u64) {
        self.awaited.push(AwaitedLine {
            client,
            owner,
            offset,
            is_asked: false,
        });
    }

    /// Tells whether the host must be asked about an inbox, whose lines are all on their way. Once.
    pub(super) fn take_unasked(&mut self, owner: &Name) -> bool {
        let mut must_be_asked = false;
        for line in &mut self.awaited {
            if line.owner == *owner && !line.is_asked {
                line.is_asked = true;
                must_be_asked = true;
            }
        }
        must_be_asked
    }

    /// Takes out the commands whose line is there, now that the host says how far it has come.
    pub(crate) fn delivered(&mut self, owner: &Name, taken: Option<LinePlace>) -> Vec<ReplyTo> {
        let is_there = |line: &mut AwaitedLine| {
            line.owner == *owner && taken.is_some_and(|taken| taken.offset >= line.offset)
        };
        let delivered = self.awaited.extract_if(.., is_there);
        delivered.map(|line| line.client).collect()
    }

    /// Takes out the commands that wait for mail to these members, whose host cannot be reached.
    pub(crate) fn cut_off(&mut self, owners: &[Name]) -> Vec<ReplyTo> {
        let cut_off = self
            .awaited
            .extract_if(.., |line| owners.contains(&line.owner));
        cut_off.map(|line| line.client).collect()
    }

    /// Forgets the commands of a connection that is closed.
    pub(crate) fn drop_connection(&mut self, connection: u64) {
        self.awaited
            .retain(|line| line.client.connection != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(connection: u64) -> ReplyTo {
        ReplyTo {
            connection,
            tag: 1,
            agent: false,
        }
    }

    #[test]
    fn a_command_is_answered_once_its_own_line_is_there() {
        let alice = Name::new("alice").unwrap();
        let at = |offset| Some(LinePlace { offset, id: None });
        let mut deliveries = Deliveries::default();
        deliveries.add(client(1), alice.clone(), 10);
        deliveries.add(client(2), alice.clone(), 30);
        assert!(deliveries.take_unasked(&alice));
        assert!(!deliveries.take_unasked(&alice), "it is asked once");
        assert!(deliveries.delivered(&alice, None).is_empty());
        assert_eq!(deliveries.delivered(&alice, at(20)), [client(1)]);
        deliveries.drop_connection(2);
        assert!(deliveries.delivered(&alice, at(30)).is_empty());
    }

    #[test]
    fn what_waits_for_a_host_that_is_lost_is_answered_then() {
        let alice = Name::new("alice").unwrap();
        let mut deliveries = Deliveries::default();
        deliveries.add(client(1), alice.clone(), 10);
        assert!(deliveries.cut_off(&[Name::new("bob").unwrap()]).is_empty());
        assert_eq!(deliveries.cut_off(&[alice]), [client(1)]);
    }
}
