//! The team as home says it: inboxes are made, the roster is written, and what home does not have
//! any more is ended and put into the archive.
//!
//! A team can have a thousand members, and changes a thousand times while they begin: what is done
//! at a change costs what has changed, and what is written or synced is so once for many changes.

use std::collections::BTreeSet;
use std::time::Instant;

use teamd_shared::clock;
use teamd_shared::inbox::{self, owner_of};
use teamd_shared::link::{RosterChange, TeamNow, Whose};
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
        let before = std::mem::replace(&mut self.team, now);
        let known = names_of(&before);
        let names = names_of(&self.team);
        let is_first = self
            .links
            .present
            .as_ref()
            .is_some_and(|link| !link.knows_team);
        for name in &names {
            if is_first || !known.contains(name) {
                self.unsynced_inboxes |= self.make_inbox(name);
            }
        }
        let has_lost = known.iter().any(|name| !names.contains(name));
        self.end_unhosted();
        if let Some(link) = &mut self.links.present {
            link.knows_team = true;
            if let Some(outboxes) = &mut link.outboxes {
                outboxes.keep(&self.team.others);
            }
        }
        if is_first || has_lost {
            self.archive_unknown();
        }
    }

    /// Takes over what has changed in the roster.
    pub(super) fn roster_has(&mut self, change: RosterChange) {
        self.roster.apply(change);
    }

    /// Writes the roster for the workers, where it is due.
    pub(super) fn show_team(&mut self) {
        if self.roster.due().is_some_and(|due| due <= Instant::now()) {
            self.write_roster();
        }
    }

    /// Does what a worker needs before it gets mail, which may be about a member that has just come.
    pub(super) fn prepare_for_mail(&mut self) {
        self.sync_inboxes();
        if self.roster.has_newcomer() {
            self.write_roster();
        }
    }

    fn write_roster(&mut self) {
        self.sync_inboxes();
        let written = self.roster.write(&self.dir, &names_of(&self.team));
        if let Err(error) = written {
            self.warn(format!("the roster cannot be written: {error}"));
        }
    }

    /// Syncs the inboxes that were made: before a worker learns of their owners, by the roster or by
    /// mail, since what it sends to them must not be lost.
    fn sync_inboxes(&mut self) {
        if !self.unsynced_inboxes {
            return;
        }
        match inbox::sync_folder(&self.dir) {
            Ok(()) => self.unsynced_inboxes = false,
            Err(error) => self.warn(format!(
                "the folder of the inboxes cannot be synced (tried again): {error}"
            )),
        }
    }

    /// Makes an inbox, which is synced later with others. Returns whether there was none.
    fn make_inbox(&self, name: &Name) -> bool {
        let make = || {
            if self.dir.identity(&TeamPath::inbox(name))?.is_some() {
                return Ok(false);
            }
            inbox::create_unsynced(&self.dir, name).map(|()| true)
        };
        make().unwrap_or_else(|error: DirError| {
            self.warn(format!("there is no inbox for {name}: {error}"));
            false
        })
    }

    /// Ends what runs here and has ended for home.
    fn end_unhosted(&mut self) {
        let hosted: BTreeSet<&Whose> = self.team.hosted.iter().collect();
        let live = self.workers.live.keys();
        let unhosted = live.filter(|incarnation| !hosted.contains(&whose(incarnation)));
        let unhosted: Vec<Incarnation> = unhosted.cloned().collect();
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

/// Returns the names of all members of the team.
fn names_of(team: &TeamNow) -> BTreeSet<&Name> {
    team.owners.iter().chain(&team.others).collect()
}
