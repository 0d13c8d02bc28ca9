use teamd_shared::host::{Host, HostTerms, HostWay};

use super::*;

fn status(name: &str, link: LinkState, available: Option<u64>) -> HostStatus {
    HostStatus {
        host: Host {
            name: Name::new(name).unwrap(),
            way: HostWay::Ssh(name.to_owned()),
            allow_weak_sandbox: false,
            terms: HostTerms::default(),
        },
        link,
        since: 1.0,
        version: None,
        teammates: 0,
        weakness: None,
        vitals: available.map(|memory_available| HostVitals {
            load: 0.5,
            processors: 4,
            memory: 1 << 40,
            memory_available,
            memory_stalled: None,
            ends_at_logout: None,
            checkouts: Vec::new(),
        }),
    }
}

fn cut() -> LinkState {
    LinkState::Unreachable {
        why: "ssh ended".to_owned(),
    }
}

#[test]
fn the_host_with_the_most_memory_among_those_that_are_reached_is_taken() {
    let hosts = [
        status("cut", cut(), None),
        status("large", LinkState::Up, Some(9000)),
        status("small", LinkState::Up, Some(1000)),
        status("silent", LinkState::Up, None),
    ];
    assert_eq!(best(&hosts).unwrap().as_str(), "large");
}

#[test]
fn if_no_host_can_take_a_teammate_each_says_why() {
    let none = best(&[]).unwrap_err();
    assert_eq!(none.code, RefusalCode::NotFound);
    let hosts = [
        status("cut", cut(), None),
        status("silent", LinkState::Up, None),
    ];
    let message = best(&hosts).unwrap_err().message;
    assert!(
        message.contains("cut: it cannot be reached: ssh ended"),
        "{message}"
    );
    assert!(message.contains("silent: it does not say"), "{message}");
}
