use super::*;
use uuid::Uuid;

fn hello(home: Uuid, machine: &str, starts: u64) -> HomeHello {
    HomeHello {
        protocol: LINK_PROTOCOL,
        version: "0".to_owned(),
        home: HomeIdentity {
            home,
            machine: machine.to_owned(),
            starts,
        },
        host: Name::new("box").unwrap(),
        team_name: "t".to_owned(),
    }
}

#[test]
fn a_host_obeys_one_home_and_no_copy_of_it() {
    let home = Uuid::from_u128(1);
    let known = hello(home, "m", 4).home;
    let asks = |known, hello: HomeHello| obeys(home, known, &hello);
    assert_eq!(asks(None, hello(home, "m", 1)), Ok(()));
    for starts in [4, 5] {
        assert_eq!(asks(Some(&known), hello(home, "m", starts)), Ok(()));
    }
    let refused = |hello| asks(Some(&known), hello).unwrap_err();
    assert!(refused(hello(home, "m", 3)).why.contains("start 4"));
    let elsewhere = refused(hello(home, "other", 9));
    assert!(elsewhere.why.contains("another machine"), "{elsewhere:?}");
    assert!(
        elsewhere.hint.contains("`teamctl host take box`"),
        "{elsewhere:?}"
    );
    let another = refused(hello(Uuid::from_u128(2), "m", 9));
    assert!(another.why.contains("serves the home"), "{another:?}");
    let newer = HomeHello {
        protocol: LINK_PROTOCOL + 1,
        ..hello(home, "m", 9)
    };
    assert!(refused(newer).hint.contains("same version"));
}
