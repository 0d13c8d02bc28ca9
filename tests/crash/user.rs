//! What the user does in several scenarios, and how long it waits for.

use serde_json::Value;
use teamd_shared::name::Name;
use teamd_shared::transcript::Entry;

use crate::ledger::Sent;
use crate::stage::{Checked, Stage, Violation, hold};
use crate::support::is_alive;

impl Stage {
    /// Runs a command that must succeed: nothing has happened yet.
    pub(crate) fn ctl_done(&mut self, args: &[&str]) -> Checked {
        let said = self.ctl(args)?;
        if said.is_done() {
            Ok(())
        } else {
            Err(Violation(format!("{args:?}: {said:?}")))
        }
    }

    /// Sends a message with a command that is never the victim.
    pub(crate) fn send_plain(&mut self, to: &str, text: &str, options: &[&str]) -> Checked {
        let said = self.ctl(&[&["send", to, text][..], options].concat())?;
        let told = said.is_done();
        self.ledger.sent.push(Sent {
            to: to.to_owned(),
            text: text.to_owned(),
            told,
        });
        Ok(())
    }

    /// Sends a message to all. The command says whom it has reached: all that run, if it ends well.
    pub(crate) fn broadcast(&mut self, text: &str) -> Checked {
        self.achieve(
            "tell all",
            |stage, number| {
                stage.revive()?;
                let text = format!("{text}.{number}");
                let at = stage.ledger.sent.len();
                for to in ["alice", "bob"] {
                    stage.ledger.sent.push(Sent {
                        to: to.to_owned(),
                        text: text.clone(),
                        told: false,
                    });
                }
                let before = stage.running();
                let said = stage.main(&["broadcast", &text])?;
                let words: Vec<&str> = said.stdout.split([' ', ',']).collect();
                for sent in &mut stage.ledger.sent[at..] {
                    sent.told = words.contains(&&*sent.to);
                }
                let passed_over = stage.running().into_iter().find(|incarnation| {
                    said.is_done()
                        && before.contains(incarnation)
                        && !words.contains(&&*incarnation.0)
                });
                hold(passed_over.is_none(), || {
                    format!("a broadcast passed {passed_over:?} over: {said:?}")
                })?;
                Ok(said)
            },
            |_| false,
        )
        .map(drop)
    }

    /// The incarnations that the roster shows as running, and that do: an end may be unnoticed so
    /// far.
    fn running(&self) -> Vec<(String, i64)> {
        let names = ["alice", "bob"].into_iter().filter(|name| {
            let pid = self.member(name)["pid"]
                .as_i64()
                .and_then(|pid| i32::try_from(pid).ok());
            self.is_running(name) && pid.is_some_and(is_alive)
        });
        names
            .map(|name| (name.to_owned(), self.incarnation(name)))
            .collect()
    }

    /// Waits until a teammate has read what it was sent, and is idle.
    pub(crate) fn until_read(&mut self, name: &str) -> Checked {
        let sent: Vec<String> = self
            .ledger
            .sent
            .iter()
            .filter(|sent| sent.to == name && sent.told)
            .map(|sent| sent.text.clone())
            .collect();
        self.until(
            &format!("{name} to have read its mail and to be idle"),
            |stage| {
                if stage.status(name) != "idle" || !stage.caught_up(name) {
                    return false;
                }
                let taken = stage.taken_since_the_beginning(name);
                sent.iter().all(|text| {
                    (text == "of the first incarnation")
                        || taken
                            .iter()
                            .any(|message| message["content"] == text.as_str())
                })
            },
        )
    }

    /// Whether a teammate has consumed all of its inbox, and nothing follows from the last of it.
    pub(crate) fn caught_up(&self, name: &str) -> bool {
        let Some(last) = self.transcript(name).pop() else {
            return false;
        };
        let Ok(entry) = serde_json::from_value::<Entry>(last) else {
            return false;
        };
        // A torn tail is no message yet.
        let inbox = self.text_where_it_lives(name, &format!("inbox/{name}.jsonl"));
        let length = inbox.rfind('\n').map_or(0, |at| at as u64 + 1);
        entry.inbox.offset == length && Name::new(name).is_ok_and(|name| entry.event.is_rest(&name))
    }

    /// All that a teammate has consumed, in all its incarnations.
    pub(crate) fn taken_since_the_beginning(&self, name: &str) -> Vec<Value> {
        let entries = self.transcript(name);
        entries
            .into_iter()
            .filter(|entry| entry["entry"] == "messages")
            .flat_map(|entry| entry["messages"].as_array().cloned().unwrap_or_default())
            .collect()
    }
}
