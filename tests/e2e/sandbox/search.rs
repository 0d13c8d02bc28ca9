//! `glob` and `grep` reach what a command behind a closed gate reaches.

use std::os::unix::fs::symlink;

use super::hidden::said;
use super::{With, teams};

#[test]
fn a_search_finds_nothing_that_is_hidden_by_no_path_and_no_link() {
    for (case, team) in teams(&With::EACH, &["--hidden", "sub/.env"]) {
        team.make_dir("sub");
        team.write("sub/.env", "hush");
        team.write("open", "hush");
        let root = team.root();
        symlink(root.join("sub/.env"), root.join("link")).unwrap();
        symlink("/", root.join("everything")).unwrap();
        let env = root.join("sub/.env");
        let env = env.display();
        let orders = [
            "/grep {\"pattern\": \"hush\"}".to_owned(),
            "/grep {\"pattern\": \"hush\", \"path\": \"link\"}".to_owned(),
            "/grep {\"pattern\": \"hush\", \"path\": \"sub/.env\"}".to_owned(),
            format!("/grep {{\"pattern\": \"hush\", \"path\": \"everything{env}\"}}"),
            "/grep {\"pattern\": \"work|alice\", \"path\": \".team\"}".to_owned(),
            "/grep {\"pattern\": \"work|alice\", \"path\": \".team/config.json\"}".to_owned(),
            "/glob {\"pattern\": \"{.team,everything}/**\"}".to_owned(),
        ];
        let results = said(&team, "alice", &orders);
        assert_eq!(results.len(), orders.len(), "{case:?} {results:?}");
        for (number, result) in results.iter().enumerate() {
            let content = result["content"].as_str().unwrap();
            let found = content.contains(":hush") || content.contains("alice");
            if number == 0 {
                assert!(content.starts_with("open:1:hush"), "{case:?} {content}");
                assert!(!content.contains("sub/"), "{case:?} {content}");
                continue;
            }
            assert!(!found && !content.contains("bin/"), "{case:?} {content}");
        }
    }
}
