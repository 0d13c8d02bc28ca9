//! What teammates serve on a localhost of their own. A view does not wait for the answer: it is
//! shown once it is there.

use std::collections::BTreeMap;
use std::future::pending;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use teamd_client::read::localhost;
use teamd_shared::config::RosterMember;
use teamd_shared::name::Name;
use teamd_shared::team_dir::TeamDir;
use tokio::time::{Instant, sleep_until};

/// How long an answer is good for, while it is shown.
const GOOD: Duration = Duration::from_secs(2);

/// The questions that are asked, and what was answered.
pub(crate) struct ServedPorts<'d> {
    dir: &'d TeamDir,
    known: BTreeMap<Name, KnownPorts>,
    asked: FuturesUnordered<BoxFuture<'d, PortsAnswer>>,
}

/// What is known of one member.
struct KnownPorts {
    member: RosterMember,
    ports: Vec<u16>,
    is_shown: bool,
    /// When it is asked again; none while it is asked.
    next: Option<Instant>,
}

struct PortsAnswer {
    name: Name,
    ports: Vec<u16>,
}

impl<'d> ServedPorts<'d> {
    pub(super) fn new(dir: &'d TeamDir) -> Self {
        Self {
            dir,
            known: BTreeMap::new(),
            asked: FuturesUnordered::new(),
        }
    }

    /// Returns what a member is known to serve, which is shown from now on. It is asked in the
    /// background, if that is due.
    pub(crate) fn of(&mut self, member: &RosterMember) -> Vec<u16> {
        let known = self.known.get(&member.name);
        if known.is_some_and(|it| it.member.incarnation != member.incarnation)
            || !localhost::has_own(member)
        {
            self.known.remove(&member.name);
        }
        if !localhost::has_own(member) {
            return Vec::new();
        }
        let known = self.known.entry(member.name.clone());
        let known = known.or_insert_with(|| KnownPorts {
            member: member.clone(),
            ports: Vec::new(),
            is_shown: true,
            next: Some(Instant::now()),
        });
        known.is_shown = true;
        let ports = known.ports.clone();
        self.ask();
        ports
    }

    /// Says that nothing is shown any more, or that it is drawn anew.
    pub(crate) fn forget_shown(&mut self) {
        for known in self.known.values_mut() {
            known.is_shown = false;
        }
    }

    /// Returns when a member that is shown serves something else. Dropping the future loses
    /// nothing.
    pub(super) async fn changed(&mut self) {
        loop {
            let shown = self.known.values().filter(|it| it.is_shown);
            let due = shown.filter_map(|it| it.next).min();
            let is_due = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                Some(answer) = self.asked.next() => {
                    if self.take(answer) {
                        return;
                    }
                }
                () = is_due => self.ask(),
            }
        }
    }

    /// Asks what is due.
    fn ask(&mut self) {
        let now = Instant::now();
        let all = self.known.values_mut().filter(|it| it.is_shown);
        for known in all.filter(|it| it.next.is_some_and(|at| at <= now)) {
            known.next = None;
            let dir = self.dir;
            let member = known.member.clone();
            self.asked.push(Box::pin(async move {
                let ports = localhost::served_soon(dir, &member).await;
                let name = member.name;
                PortsAnswer { name, ports }
            }));
        }
    }

    /// Takes an answer; tells whether something else is to be shown.
    fn take(&mut self, answer: PortsAnswer) -> bool {
        let Some(known) = self.known.get_mut(&answer.name) else {
            return false;
        };
        known.next = Some(Instant::now() + GOOD);
        let is_new = known.ports != answer.ports;
        known.ports = answer.ports;
        is_new && known.is_shown
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use serde_json::{Value, json};
    use teamd_shared::localhost::{answer_ports, listen, read_question};
    use teamd_shared::testing::roster_member;
    use tokio::time::timeout;

    use super::*;

    fn member(more: &Value) -> RosterMember {
        let mut member = roster_member(&json!({"name": "alice", "status": "idle"}));
        member["sandbox"]["localhost"] = json!("own");
        for (key, value) in more.as_object().unwrap() {
            member[key] = value.clone();
        }
        serde_json::from_value(member).unwrap()
    }

    struct World {
        _scratch: tempfile::TempDir,
        dir: TeamDir,
        keeper: UnixListener,
    }

    impl World {
        fn new() -> Self {
            let scratch = tempfile::tempdir().unwrap();
            let dir = TeamDir::create(&scratch.path().join(".team")).unwrap();
            let keeper = listen(&dir, &Name::new("alice").unwrap()).unwrap();
            Self {
                _scratch: scratch,
                dir,
                keeper,
            }
        }

        fn answers(&self, ports: &[u16]) {
            let (mut asked, _) = self.keeper.accept().unwrap();
            read_question(&mut asked).unwrap().unwrap();
            answer_ports(&asked, ports).unwrap();
        }
    }

    /// Lets what can go on go on, and tells whether something else is to be shown.
    async fn is_changed(served: &mut ServedPorts<'_>, within: Duration) -> bool {
        timeout(within, served.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_view_shows_ports_once_they_are_known_and_waits_for_none() {
        let world = World::new();
        let mut served = ServedPorts::new(&world.dir);
        let alice = member(&json!({}));
        // No answer yet, and none that is waited for.
        assert_eq!(served.of(&alice), [0_u16; 0]);
        assert!(!is_changed(&mut served, Duration::from_millis(20)).await);
        assert_eq!(served.of(&alice), [0_u16; 0]);
        world.answers(&[8080, 3000]);
        assert!(is_changed(&mut served, Duration::from_secs(10)).await);
        assert_eq!(served.of(&alice), [3000, 8080]);
        // What is still the same is no change, and what is not shown is not asked.
        served.forget_shown();
        assert!(!is_changed(&mut served, Duration::from_millis(20)).await);
        // Its next incarnation serves nothing so far.
        let next = member(&json!({"incarnation": 2}));
        assert_eq!(served.of(&next), [0_u16; 0]);
        // One that has ended, or has none of its own, is not asked.
        let ended = member(&json!({"status": "crashed", "incarnation": 2}));
        assert_eq!(served.of(&ended), [0_u16; 0]);
        assert!(served.known.is_empty());
    }

    #[tokio::test]
    async fn what_is_shown_is_asked_again() {
        let world = World::new();
        let mut served = ServedPorts::new(&world.dir);
        let alice = member(&json!({}));
        served.of(&alice);
        let moment = Duration::from_millis(5);
        assert!(!is_changed(&mut served, moment).await);
        world.answers(&[]);
        while served.known[&alice.name].next.is_none() {
            assert!(!is_changed(&mut served, moment).await, "it serves nothing");
        }
        // The answer is as old as it may be.
        let again = |served: &mut ServedPorts<'_>| {
            served.known.get_mut(&alice.name).unwrap().next = Some(Instant::now());
        };
        served.forget_shown();
        again(&mut served);
        assert!(!is_changed(&mut served, moment).await);
        assert!(served.asked.is_empty(), "what is not shown is not asked");
        served.of(&alice);
        assert!(!is_changed(&mut served, moment).await);
        world.answers(&[3000]);
        assert!(is_changed(&mut served, Duration::from_secs(10)).await);
        again(&mut served);
        assert!(!is_changed(&mut served, moment).await);
        world.answers(&[3000, 3001]);
        assert!(is_changed(&mut served, Duration::from_secs(10)).await);
        assert_eq!(served.of(&alice), [3000, 3001]);
    }
}
