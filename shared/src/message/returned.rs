//! Which messages come back to their senders, and under which id. Pure.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use super::{Body, Message, RUNTIME, USER};
use crate::name::Name;

impl Message {
    /// Tells whether the message comes back to its sender if this reader ends before it has read
    /// it. Only mail does that a person, the lead or a teammate has written to one receiver:
    /// nothing that the daemon sends (so nothing comes back twice), no broadcast, no answer and no
    /// request. A line without an id cannot be named, and stays in the inbox.
    pub fn can_come_back(&self, reader: &Name) -> bool {
        let is_mail = self.body == Body::Message && self.id.is_some();
        let is_known = self.from == USER || Name::of_inbox(&self.from).is_ok();
        let is_own = [reader.as_str(), RUNTIME].contains(&self.from.as_str());
        is_mail && is_known && !is_own
    }
}

/// Returns the id under which a message comes back from a receiver: always the same, so that it
/// comes back once.
pub fn returned_id(message_id: Uuid, receiver: &Name) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"returned\0");
    hash.update(receiver.as_str());
    hash.update(b"\0");
    hash.update(message_id.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    Builder::from_custom_bytes(id).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes_back(line: &str) -> bool {
        let message = Message::parse(line.as_bytes()).unwrap();
        message.can_come_back(&Name::new("alice").unwrap())
    }

    #[test]
    fn only_mail_with_an_id_from_a_known_sender_comes_back() {
        let id = r#""id":"01939b1e-0000-7000-8000-000000000001","content":"x""#;
        for from in ["user", "lead", "bob"] {
            assert!(comes_back(&format!(
                r#"{{"type":"message","from":"{from}",{id}}}"#
            )));
        }
        for (kind, from) in [
            ("message", "teamd"),
            ("message", "runtime"),
            ("message", "alice"),
            ("message", "Some One"),
            ("broadcast", "user"),
            ("plan_request", "lead"),
            ("poem", "bob"),
        ] {
            let line = format!(r#"{{"type":"{kind}","from":"{from}",{id}}}"#);
            assert!(!comes_back(&line), "{line}");
        }
        assert!(!comes_back(
            r#"{"type":"message","from":"user","content":"x"}"#
        ));
        let returned = format!(r#"{{"type":"returned","from":"bob","name":"carol",{id}}}"#);
        assert!(!comes_back(&returned), "it would come back for ever");
    }

    #[test]
    fn its_id_follows_from_the_message_and_the_receiver() {
        let message = Uuid::from_u128(7);
        let alice = Name::new("alice").unwrap();
        let bob = Name::new("bob").unwrap();
        let id = returned_id(message, &alice);
        assert_eq!(id, returned_id(message, &alice));
        assert_ne!(id, returned_id(message, &bob));
        assert_ne!(id, returned_id(Uuid::from_u128(8), &alice));
        assert_eq!(Uuid::try_parse(&id.to_string()), Ok(id));
    }
}
