//! A list of which one entry is selected, by its key and not by its place: entries come, go and
//! change places. Pure.

use crate::terminal::Motion;

/// The keys of a list, in the order of the screen, and which of them is selected.
#[derive(Debug)]
pub(super) struct List<K> {
    keys: Vec<K>,
    selected: Option<K>,
    /// The first line that is on the screen.
    top: usize,
    /// How many lines were on the screen at once.
    page: usize,
}

impl<K> Default for List<K> {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            selected: None,
            top: 0,
            page: 1,
        }
    }
}

impl<K: Clone + PartialEq> List<K> {
    /// Takes the entries as they are now. If the selected one is gone, the one in its place is
    /// selected.
    pub(super) fn set(&mut self, keys: Vec<K>) {
        let before = self.at().unwrap_or(0);
        self.keys = keys;
        if self.at().is_none() {
            self.selected = self
                .keys
                .get(before.min(self.keys.len().saturating_sub(1)))
                .cloned();
        }
    }

    /// Returns the place of the selected entry.
    pub(super) fn at(&self) -> Option<usize> {
        self.keys
            .iter()
            .position(|key| Some(key) == self.selected.as_ref())
    }

    /// Returns its place, and how many entries there are.
    pub(super) fn place(&self) -> Option<(usize, usize)> {
        Some((self.at()?, self.keys.len()))
    }

    /// Returns the key of the selected entry.
    pub(super) fn selected(&self) -> Option<&K> {
        self.selected.as_ref()
    }

    /// Returns the keys.
    pub(super) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Selects an entry.
    pub(super) fn select(&mut self, key: &K) {
        self.selected = Some(key.clone());
    }

    /// Selects an entry below the selected one, or above it.
    pub(super) fn go(&mut self, by: Motion) {
        let last = self.keys.len().saturating_sub(1);
        let next = self
            .at()
            .unwrap_or(0)
            .saturating_add_signed(by.lines(self.page))
            .min(last);
        self.selected = self.keys.get(next).cloned();
    }

    /// Returns the first line to be shown of `lines`, so that line `at` is in sight in a `room` of
    /// lines.
    pub(super) fn scroll(&mut self, at: usize, lines: usize, room: usize) -> usize {
        self.page = room;
        // The heading above the first entry belongs to it.
        let from = at.saturating_sub(1);
        self.top = self
            .top
            .min(from)
            .max((at + 1).saturating_sub(room))
            .min(lines.saturating_sub(room));
        self.top
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_selection_follows_its_entry_and_stays_in_its_place_when_that_goes() {
        let mut list = List::default();
        list.set(vec![]);
        list.go(Motion::Lines(1));
        assert_eq!((list.selected(), list.at()), (None, None));
        list.set(vec!["ana", "bo", "cy"]);
        assert_eq!(list.selected(), Some(&"ana"));
        list.go(Motion::Lines(1));
        list.set(vec!["bo", "cy", "ana"]);
        assert_eq!((list.selected(), list.at()), (Some(&"bo"), Some(0)));
        list.go(Motion::Lines(isize::MAX));
        list.set(vec!["bo", "cy"]);
        assert_eq!(list.selected(), Some(&"cy"));
        list.go(Motion::Lines(-9));
        assert_eq!(list.selected(), Some(&"bo"));
    }

    #[test]
    fn the_selected_line_is_in_sight_with_as_little_movement_as_can_be() {
        let mut list: List<u8> = List::default();
        let tops = [0, 5, 9, 10, 12, 11, 4, 3, 99].map(|at| list.scroll(at, 100, 10));
        assert_eq!(tops, [0, 0, 0, 1, 3, 3, 3, 2, 90]);
        assert_eq!(list.scroll(99, 100, 200), 0);
        assert_eq!(list.scroll(0, 0, 0), 0);
    }

    #[test]
    fn a_page_is_what_was_on_the_screen() {
        let mut list = List::default();
        list.set((0..100).collect());
        list.scroll(0, 100, 20);
        list.go(Motion::Pages(1));
        assert_eq!(list.selected(), Some(&20));
        list.go(Motion::Pages(-9));
        assert_eq!(list.selected(), Some(&0));
    }
}
