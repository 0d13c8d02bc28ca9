//! The team as home says it: inboxes are made, the roster is written, and what home does not have
//! any more is ended and put into the archive.

use std::collections::BTreeSet;

use teamd_shared::clock;
use teamd_shared::config::roster_text;
use teamd_shared::fs::replace;
use teamd_shared::inbox::{self, owner_of};
use teamd_shared::link::{RosterChange, RosterLine, TeamNow};
use teamd_shared::name::Name;
use teamd_shared::team_dir::{DirError, MEMBER_FOLDERS, TeamPath};

use super::daemon::HostDaemon;
use super::frames::whose;
use super::state::HostRecord;
use crate::core::incarnation::Incarnation;
use crate::io::effects::{archive, forget_agent};

impl HostDaemon {
    /// Takes over what the team is now.
    pub(super) fn team_is(&mut self, now: TeamNow) {
        for name in now.owners.iter().chain(&now.others) {
            if let Err(error) = self.make_inbox(name) {
                self.warn(format!("there is no inbox for {name}: {error}"));
            }
        }
        self.team = now;
        self.end_unhosted();
        if let Some(link) = &mut self.links.present {
            link.knows_team = true;
            if let Some(outboxes) = &mut link.outboxes {
                outboxes.keep(&self.team.others);
            }
        }
        self.archive_unknown();
    }

    /// Takes over what has changed in the roster, and writes it for the workers.
    pub(super) fn roster_has(&mut self, change: RosterChange) {
        if change.begins {
            self.roster.clear();
        }
        for RosterLine { name, text } in change.members {
            self.roster.insert(name, text);
        }
        if change.more {
            return;
        }
        let TeamNow { owners, others, .. } = &self.team;
        let known: BTreeSet<&Name> = owners.iter().chain(others).collect();
        self.roster.retain(|name, _| known.contains(name));
        let text = roster_text(&change.head, self.roster.values().map(String::as_str));
        if let Err(error) = replace(&self.dir, &TeamPath::config(), text.as_bytes()) {
            self.warn(format!("the roster cannot be written: {error}"));
        }
    }

    fn make_inbox(&self, name: &Name) -> Result<(), DirError> {
        // One that is there costs no sync.
        if self.dir.identity(&TeamPath::inbox(name))?.is_none() {
            inbox::create(&self.dir, name)?;
        }
        Ok(())
    }

    /// Ends what runs here and has ended for home.
    fn end_unhosted(&mut self) {
        let live = self.workers.live.keys().cloned();
        let unhosted: Vec<Incarnation> = live
            .filter(|it| !self.team.hosted.contains(&whose(it)))
            .collect();
        for incarnation in unhosted {
            self.workers.end(&incarnation, self.grace);
        }
    }

    /// Puts the files of names into the archive that home does not know any more, and of which
    /// nothing runs.
    pub(super) fn archive_unknown(&mut self) {
        let is_said = self
            .links
            .present
            .as_ref()
            .is_some_and(|link| link.knows_team);
        if !is_said {
            return;
        }
        if let Err(error) = self.try_archive_unknown() {
            self.warn(format!(
                "files cannot be put into the archive (tried again): {error}"
            ));
        }
    }

    fn try_archive_unknown(&mut self) -> Result<(), DirError> {
        let found = self.dir.list(Some("inbox"))?;
        let mut names: BTreeSet<Name> = found
            .iter()
            .filter_map(|it| owner_of(it.at.file_name()))
            .collect();
        names.extend(self.log.state.members.keys().cloned());
        for name in self.team.owners.iter().chain(&self.team.others) {
            names.remove(name);
        }
        names.remove(&Name::lead());
        names.retain(|name| !self.workers.live.keys().any(|it| it.name == *name));
        if names.is_empty() {
            return Ok(());
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds since 1970"
        )]
        let number = clock::wall() as u64;
        for name in &names {
            tracing::info!("home does not know {name} any more: its files go into the archive");
            forget_agent(&self.dir, name);
            archive(&self.dir, name, number)?;
            self.mail.forget(name);
            let link = self.links.present.as_mut();
            if let Some(copies) = link.and_then(|link| link.copies.as_mut()) {
                copies.forget(name);
            }
        }
        for folder in std::iter::once("archive").chain(MEMBER_FOLDERS) {
            self.dir.sync_folder(Some(folder))?;
        }
        for name in names {
            if self.log.state.members.contains_key(&name) {
                self.record(HostRecord::Forgotten { name });
            }
        }
        Ok(())
    }
}
