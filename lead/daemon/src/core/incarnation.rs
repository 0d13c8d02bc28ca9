//! One incarnation of a member, as events and actions name it.

use teamd_shared::member::Member;
use teamd_shared::name::Name;

/// One incarnation of a member.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Incarnation {
    pub(crate) name: Name,
    pub(crate) number: u32,
}

impl Incarnation {
    /// Returns the incarnation that a record is about.
    pub(crate) fn of(member: &Member) -> Self {
        Self {
            name: member.name.clone(),
            number: member.incarnation,
        }
    }
}
