//! The notices of an end: every teammate that runs is told, a few at a time.
//!
//! One end among a thousand is a thousand lines, and when all end at once it would be a million. No event waits for them: the
//! lead and the command hear first. So they are told in small notices between other events; what one member is to be told
//! meanwhile is written with one append. A teammate that has ended before its turn is told nevertheless: the journal says so,
//! and it may be resumed. The journal holds them all: what was not told when the daemon dies is told at its next start, under
//! the same ids.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use teamd_shared::inbox::{self, AppendError, Appender};
use teamd_shared::journal::{Line, Notice};
use teamd_shared::message::Message;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;

use crate::daemon::core::notices::message;
use crate::daemon::io::inboxes::EffectError;

/// The notices that are not written yet, by receiver.
#[derive(Debug, Default)]
pub(crate) struct FanOut {
    waiting: BTreeMap<Name, Vec<PendingNotice>>,
    /// The receivers whose inbox could not be written.
    stuck: BTreeMap<Name, Vec<PendingNotice>>,
    /// The receiver that was told last: the others have their turn first.
    last: Option<Name>,
    /// The message that was added last, and its line.
    newest: Option<(u64, Arc<Message>)>,
    /// How many are still to be told of each line of the journal.
    open: BTreeMap<u64, usize>,
}

#[derive(Debug)]
struct PendingNotice {
    seq: u64,
    /// Shared by all receivers of this line; `to` is filled in at the append. A thousand ends are a million notices.
    message: Arc<Message>,
    /// An earlier daemon may have told it.
    again: bool,
}

impl FanOut {
    /// Takes in what one member is to be told of a line of the journal.
    pub(crate) fn add(&mut self, line: &Line, tell: &Notice, again: bool) {
        let shared = self.newest.take().filter(|(seq, it)| *seq == line.seq && it.id == Some(tell.id));
        let Some(shared) = shared.or_else(|| Some((line.seq, Arc::new(message(line, tell)?)))) else {
            return;
        };
        self.push(line.seq, tell.to.clone(), Arc::clone(&shared.1), again);
        self.newest = Some(shared);
    }

    fn push(&mut self, seq: u64, to: Name, message: Arc<Message>, again: bool) {
        let whose = if self.stuck.contains_key(&to) { &mut self.stuck } else { &mut self.waiting };
        let notices = whose.entry(to).or_default();
        // They come in the order of their lines, but for those that are tried again.
        if notices.last().is_none_or(|last| last.seq < seq) || notices.iter().all(|notice| notice.seq != seq)
        {
            notices.push(PendingNotice { seq, message, again });
            *self.open.entry(seq).or_default() += 1;
        }
    }

    /// Returns the first line of the journal of which a member is not told yet.
    pub(crate) fn first(&self) -> Option<u64> {
        self.open.first_key_value().map(|(seq, _)| *seq)
    }

    /// Tells at most so many members. `grown` gets the inboxes that have grown.
    ///
    /// # Errors
    /// [`EffectError::Append`] for the first member that cannot be told: it is told after [`FanOut::try_again`].
    pub(crate) fn tell(
        &mut self,
        dir: &TeamDir,
        most: usize,
        grown: &mut BTreeSet<Name>,
    ) -> Result<(), EffectError> {
        let mut failed = None;
        for _ in 0..most {
            let Some((to, notices)) = self.next() else { break };
            if let Err(why) = append(dir, &to, &notices) {
                self.stuck.insert(to.clone(), notices);
                failed.get_or_insert(EffectError::Append { to, why });
                continue;
            }
            grown.insert(to);
            notices.iter().for_each(|notice| self.told(notice.seq));
        }
        failed.map_or(Ok(()), Err)
    }

    /// Tells whether there is a member to be told that can be.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets the receivers be tried again that could not be told. They may have been told in part.
    pub(crate) fn try_again(&mut self) {
        for (to, mut notices) in std::mem::take(&mut self.stuck) {
            notices.iter_mut().for_each(|notice| notice.again = true);
            self.waiting.insert(to, notices);
        }
    }

    fn next(&mut self) -> Option<(Name, Vec<PendingNotice>)> {
        let after = self.last.take().and_then(|last| {
            let mut rest = self.waiting.range((Bound::Excluded(last), Bound::Unbounded));
            rest.next().map(|(name, _)| name.clone())
        });
        let name = after.or_else(|| self.waiting.first_key_value().map(|(name, _)| name.clone()))?;
        self.last = Some(name.clone());
        self.waiting.remove_entry(&name)
    }

    fn told(&mut self, seq: u64) {
        if let Some(open) = self.open.get_mut(&seq) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&seq);
            }
        }
    }
}

fn append(dir: &TeamDir, to: &Name, notices: &[PendingNotice]) -> Result<(), AppendError> {
    let is_new = |notice: &&PendingNotice| {
        let known = |id| inbox::holds(dir, to, id).unwrap_or(false);
        !(notice.again && notice.message.id.is_some_and(known))
    };
    let to_them =
        |notice: &PendingNotice| Message { to: Some(to.to_string()), ..Message::clone(&notice.message) };
    let new: Vec<Message> = notices.iter().filter(is_new).map(to_them).collect();
    match Appender::new(to).append_all(dir, &new) {
        // Its owner was forgotten.
        Err(AppendError::NoInbox(_)) => Ok(()),
        // A line that never fits must not be tried for ever.
        Err(AppendError::TooLarge(why)) => {
            tracing::error!("{to} is not told of an end: {why}");
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use teamd_shared::message::Body;
    use uuid::Uuid;

    use super::*;

    fn name(number: usize) -> Name {
        Name::new(&format!("w{number:03}")).unwrap()
    }

    /// A message that is addressed to another member.
    fn told(seq: u64) -> Arc<Message> {
        Arc::new(Message::new(Uuid::from_u128(seq.into()), "teamd", "another", 1.0, Body::Message))
    }

    struct FanOutScene {
        _scratch: tempfile::TempDir,
        dir: TeamDir,
        names: Vec<Name>,
        fan_out: FanOut,
        grown: BTreeSet<Name>,
    }

    impl FanOutScene {
        fn of(size: usize) -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
            let names: Vec<Name> = (0..size).map(name).collect();
            names.iter().for_each(|name| inbox::create(&dir, name).unwrap());
            Self { _scratch: scratch, dir, names, fan_out: FanOut::default(), grown: BTreeSet::new() }
        }

        fn add(&mut self, seq: u64, again: bool) {
            for name in &self.names {
                self.fan_out.push(seq, name.clone(), told(seq), again);
            }
        }

        fn tell(&mut self, most: usize) -> Result<(), EffectError> {
            self.fan_out.tell(&self.dir, most, &mut self.grown)
        }

        fn read(&self, number: usize) -> Vec<u8> {
            let inbox = self.dir.read(&teamd_shared::team_dir::TeamPath::inbox(&name(number))).unwrap();
            let lines = inbox.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
            let ids = lines.map(|line| {
                let message: serde_json::Value = serde_json::from_slice(line).unwrap();
                assert_eq!(message["to"], name(number).as_str());
                message["id"].as_str().unwrap().as_bytes()[35] - b'0'
            });
            ids.collect()
        }
    }

    #[test]
    fn what_comes_together_is_written_together_and_each_has_its_turn() {
        let mut scene = FanOutScene::of(6);
        scene.add(1, false);
        scene.tell(4).unwrap();
        assert_eq!((scene.read(3), scene.read(4), scene.fan_out.first()), (vec![1], vec![], Some(1)));
        scene.add(2, false);
        scene.add(3, false);
        // Those have their turn first that have waited longest, and get all at once.
        scene.tell(2).unwrap();
        assert_eq!((scene.read(0), scene.read(4), scene.read(5)), (vec![1], vec![1, 2, 3], vec![1, 2, 3]));
        assert_eq!(scene.fan_out.first(), Some(2), "the first line is told to all");
        scene.tell(100).unwrap();
        assert_eq!(
            (scene.read(0), scene.fan_out.first(), scene.fan_out.is_waiting()),
            (vec![1, 2, 3], None, false)
        );
        assert_eq!(scene.grown.len(), 6);
    }

    #[test]
    fn what_an_earlier_daemon_has_told_is_not_told_twice() {
        let mut scene = FanOutScene::of(2);
        scene.add(1, false);
        scene.tell(1).unwrap();
        scene.fan_out = FanOut::default();
        scene.add(1, true);
        scene.tell(2).unwrap();
        assert_eq!((scene.read(0), scene.read(1)), (vec![1], vec![1]));
    }

    #[test]
    fn an_inbox_that_cannot_be_written_delays_no_other() {
        let mut scene = FanOutScene::of(3);
        let at = scene.dir.path(&teamd_shared::team_dir::TeamPath::inbox(&name(0)));
        std::fs::rename(&at, at.with_extension("away")).unwrap();
        std::fs::create_dir(&at).unwrap();
        scene.add(1, false);
        assert!(scene.tell(3).is_err());
        assert_eq!(
            (scene.read(2), scene.fan_out.first(), scene.fan_out.is_waiting()),
            (vec![1], Some(1), false)
        );
        std::fs::remove_dir(&at).unwrap();
        std::fs::rename(at.with_extension("away"), &at).unwrap();
        scene.fan_out.try_again();
        scene.tell(3).unwrap();
        assert_eq!((scene.read(0), scene.read(1), scene.fan_out.first()), (vec![1], vec![1], None));
    }

    #[test]
    fn a_forgotten_member_is_told_nothing() {
        let mut scene = FanOutScene::of(3);
        scene.add(1, false);
        let at = teamd_shared::team_dir::TeamPath::inbox(&name(1));
        scene.dir.remove(&at).unwrap();
        scene.tell(3).unwrap();
        assert_eq!((scene.read(0), scene.read(2), scene.fan_out.first()), (vec![1], vec![1], None));
        assert!(scene.dir.identity(&at).unwrap().is_none(), "no inbox is made for it");
    }
}
