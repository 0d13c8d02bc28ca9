//! Secrets are hidden by every path: where links of the user lead, where variables say, and nothing
//! runs where a secret could not be parted from what is written.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::json;

use super::{Case, With, attack, cases, cases_of_root, teams, works};
use crate::support::Team;

/// A home directory whose `~/.ssh` and `~/.config` are links to what is kept with the other
/// settings of the user.
fn furnish(team: &Team) -> PathBuf {
    let home = team.root().parent().unwrap().join("home");
    for folder in ["dotfiles/config/gh", "dotfiles/keys", "cargo"] {
        team.make_dir(&format!("../home/{folder}"));
    }
    for secret in [
        "dotfiles/config/gh/hosts.yml",
        "dotfiles/keys/id",
        "cargo/credentials.toml",
    ] {
        team.write(&format!("../home/{secret}"), "hush");
    }
    symlink("dotfiles/keys", home.join(".ssh")).unwrap();
    symlink(home.join("dotfiles/config"), home.join(".config")).unwrap();
    home
}

#[test]
fn a_secret_behind_a_link_is_hidden_even_in_the_workspace_that_holds_it() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&["--sandbox", "read-only"]) else {
            continue;
        };
        let home = furnish(&team);
        let dotfiles = home.join("dotfiles");
        team.teamctl(["spawn", "bob", "--workspace", dotfiles.to_str().unwrap()])
            .ok();
        let tried = [
            "grep -rq hush ~/.ssh/ ~/.config/ config keys && echo BROKEN",
            "mv config c; mv keys k; grep -rq hush c k && echo BROKEN",
            "mv keys/id . && echo BROKEN; ln keys/id . && echo BROKEN",
        ];
        let calls: Vec<_> = tried
            .iter()
            .map(|command| format!("/bash {}", json!({ "command": command })))
            .collect();
        let results = team.does("bob", &calls.join("\n"));
        assert!(
            results.len() == 3 && !format!("{results:?}").contains("BROKEN"),
            "{with:?} {results:?}"
        );
        assert!(dotfiles.join("config/gh/hosts.yml").exists() && dotfiles.join("keys/id").exists());
        // Settings that are no secret are read by the same link.
        team.write("../home/dotfiles/config/editor", "tabs");
        assert_eq!(
            team.does("bob", "/bash cat ~/.config/editor")[0]["content"],
            "tabs",
            "{with:?}"
        );
    }
}

#[test]
fn a_variable_says_where_a_secret_is() {
    for with in [With::All, With::Bubblewrap, With::Bare] {
        let Some(team) = with.team(&[]) else { continue };
        let home = furnish(&team);
        let spawn = ["spawn", "bob", "--sandbox", "read-only"];
        let spawned = team
            .command(env!("CARGO_BIN_EXE_teamctl"), spawn)
            .env("CARGO_HOME", home.join("cargo"))
            .status();
        assert!(spawned.unwrap().success());
        let said = team.does(
            "bob",
            "/bash ls $CARGO_HOME; grep -q hush $CARGO_HOME/credentials.toml && echo BROKEN",
        );
        assert!(
            !said[0]["content"].as_str().unwrap().contains("BROKEN"),
            "{with:?} {said:?}"
        );
    }
}

#[test]
fn a_link_that_a_command_makes_takes_nothing_from_the_others() {
    for with in [With::All, With::Bubblewrap] {
        let Some(team) = with.team(&["--workspace", "../home"]) else {
            continue;
        };
        works(
            &team,
            &["ln -s /usr ~/.vault-token; ln -s . ~/.pgpass; ln -s / ~/.my.cnf"],
        );
        assert_eq!(works(&team, &["echo on"]), ["on"], "{with:?}");
        team.teamctl(["spawn", "bob", "--workspace", "../home"])
            .ok();
        // Nor from a teammate that works elsewhere.
        team.teamctl(["spawn", "carol"]).ok();
        for name in ["bob", "carol"] {
            assert_eq!(
                team.does(name, "/bash echo on")[0]["content"],
                "on",
                "{name} {with:?}"
            );
        }
    }
}

#[test]
fn without_namespaces_nothing_runs_where_a_secret_could_be_written() {
    let Some(team) = With::Bare.team(&[]) else {
        return;
    };
    let home = furnish(&team);
    std::fs::create_dir(home.join(".cargo")).unwrap();
    team.write("../home/.cargo/credentials.toml", "hush");
    let cargo = home.join(".cargo");
    team.teamctl(["spawn", "bob", "--writable", cargo.to_str().unwrap()])
        .ok();
    let refused = &team.does("bob", "/bash cat ~/.cargo/credentials.toml")[0]["content"];
    let refused = refused.as_str().unwrap();
    assert!(
        refused.starts_with("not run:")
            && refused.contains(".cargo/credentials.toml is hidden from commands"),
        "{refused}"
    );
    // A teammate that writes neither, reads neither.
    team.teamctl(["spawn", "carol"]).ok();
    let said = team.does(
        "carol",
        "/bash cat ~/.cargo/credentials.toml ~/.ssh/id && echo BROKEN",
    );
    assert_eq!(said[0]["is_error"], true, "{said:?}");
    attack(&team, &["cat ~/.cargo/credentials.toml && echo BROKEN"]);
}

/// Some of each kind that stands in the list.
const IN_A_HOME: &str = ".ssh/id_ed25519 .pki/nssdb/key4.db .step/secrets/root .local/share/kwalletd/wallet .config/sops/age/keys.txt \
    .authinfo .msmtprc .mylogin.cnf .erlang.cookie .subversion/auth/svn.simple/1 .config/tea/config.yml .gitcookies \
    .config/pypoetry/auth.toml .local/share/uv/credentials/1 .local/share/gem/credentials .m2/settings-security.xml \
    .ivy2/.credentials .config/composer/auth.json .cache/huggingface/stored_tokens .kaggle/kaggle.json \
    .docker/contexts/tls/key.pem .config/argocd/config .minikube/ca.key .pulumi/credentials.json .oci/config .s3cfg .boto \
    .config/doctl/config.yaml .config/hcloud/cli.toml .config/stripe/config.toml .config/.wrangler/config/default.toml \
    .fly/config.yml .cloudflared/cert.pem .databrickscfg .sentryclirc .snowsql/config .gemini/oauth_creds.json \
    .qwen/oauth_creds.json .cursor/auth.json .continue/config.json .config/goose/secrets.yaml \
    .local/share/opencode/auth.json .mozilla/firefox/logins.json .config/google-chrome/Default/Cookies \
    .config/BraveSoftware/Cookies .thunderbird/key4.db .config/Slack/Cookies .bash_history .zsh_history \
    .local/share/fish/fish_history";

/// What lies beside them, and is needed.
const BESIDE: &str = ".m2/repository/a.jar .cache/huggingface/hub/model .cargo/registry/index .local/share/gem/ruby/gem.rb \
    .gradle/caches/a.jar .local/bin/tool .config/git/ignore .local/share/pnpm/store/x .npm/_cacache/x .nvm/versions/x .pyenv/shims/x .rustup/toolchains/x \
    .gitconfig .bashrc";

/// What is seen beside them where the home is the workspace.
const BESIDE_IN_THE_HOME: &str = ".docker/cli-plugins/compose .config/editor .fly/bin/flyctl";

/// Some of what no list knows.
const UNLISTED: &str = ".local/share/mkcert/rootCA-key.pem .android/adbkey .android/avd/x .cursor-server/data/token .amp/key .local/share/amp/secrets.json .factory/auth.json \
    .config/configstore/firebase-tools.json .databricks/token-cache.json .dbt/profiles.yml .snowflake2/connections.toml .config/turso/settings.json .local/share/atuin/key \
    .config/Code/User/globalStorage/state.vscdb .vscode-server/data/User/globalStorage/state.vscdb .config/JetBrains/c.kdbx .config/configstore/update.json .config/op2/config \
    .config/neonctl/credentials.json .config/planetscale/access-token .config/linode-cli .config/exercism/user.json .config/gcloud2/x .config/sentry .config/fly/config.yml \
    .config/nushell/history.txt .config/sops2/x .config/ghorg/conf.yaml .config/hcp/creds .config/doppler .doppler/.doppler.yaml .config/lego/key .acme.sh/account.key .certbot/key \
    .kube2/config .k9s/config .helm/repository.yaml .config/helm/registry/config.json .docker/daemon.json .lastpass/key .config/bitwarden-cli/data.json .ngrok2/ngrok.yml \
    .local/share/TelegramDesktop2/x .local/state/tailscale/x .local/share/pulumi .config/mc/config.json .mc/config.json .rhn .passwd-s3fs .wgetrc .curlrc .Renviron .Xauthority \
    .cache/some-agent/token .local/share/direnv/allow/x .snow";

/// Variables that no toolchain needs.
const VARIABLES: [&str; 20] = [
    "AWS_ACCESS_KEY_ID",
    "STRIPE_SK",
    "TWILIO_SID",
    "DATABASE_URL",
    "REDIS_URL",
    "MONGODB_URI",
    "SENTRY",
    "PGUSER",
    "LDAP_BIND",
    "FOO",
    "GITHUB_TOKEN",
    "VAULT_ADDR",
    "BUNDLE_GITHUB__COM",
    "NIX_CONFIG",
    "NIX_CONF_X",
    "SNOWFLAKE_ACCOUNT",
    "SHODAN",
    "HEROKU",
    "LINEAR",
    "DO_AT",
];

#[test]
fn secrets_of_tools_browsers_shells_and_root_are_hidden_and_nothing_beside() {
    for case in cases_of_root(&With::EACH) {
        let Some(team) = case.team(&["--sandbox", "read-only"]) else {
            continue;
        };
        files_of_root_are_not_read(case, &team);
        let beside_in_the_home = BESIDE_IN_THE_HOME.split_whitespace();
        for file in IN_A_HOME
            .split_whitespace()
            .chain(BESIDE.split_whitespace())
            .chain(beside_in_the_home)
        {
            let file = format!("../home/{file}");
            team.make_dir(file.rsplit_once('/').unwrap().0);
            team.write(
                &file,
                if file.ends_with(".gitconfig") {
                    "# hush"
                } else {
                    "hush"
                },
            );
        }
        let tried = format!(
            "cd ~; for f in {IN_A_HOME}; do grep -qs hush $f && echo BROKEN $f; done; true"
        );
        attack(&team, &[&tried]);
        let beside = format!(
            "cd ~; for f in {BESIDE}; do grep -qs hush $f || echo missing $f; done; echo on"
        );
        assert_eq!(works(&team, &[&beside]), ["on"], "{case:?}");
        // Nor does a file tool read it, or a command that may write around it.
        team.teamctl(["spawn", "bob", "--workspace", "../home"])
            .ok();
        let read = |files: &str| {
            let calls: Vec<_> = files
                .split_whitespace()
                .map(|file| format!("/read_file {{\"path\": \"{file}\"}}"))
                .collect();
            team.does("bob", &calls.join("\n"))
        };
        let hidden = read(IN_A_HOME);
        assert!(
            hidden.iter().all(|said| said["is_error"] == true),
            "{case:?} {hidden:?}"
        );
        let shown = read(&format!("{BESIDE} {BESIDE_IN_THE_HOME}"));
        assert!(
            shown
                .iter()
                .all(|said| said["content"].as_str().unwrap().ends_with("hush")),
            "{case:?} {shown:?}"
        );
        let said = &team.does("bob", &format!("/bash {}", json!({ "command": tried })))[0];
        assert!(
            !said["content"].as_str().unwrap().contains("BROKEN"),
            "{case:?} {said}"
        );
        assert_eq!(said["is_error"], !case.with.has_mounts(), "{case:?} {said}");
    }
}

#[test]
fn what_no_list_knows_is_hidden_and_no_variable_passes_that_no_toolchain_needs() {
    for case @ Case { with, user } in cases(&With::EACH) {
        let team = Team::of(user);
        let paths: Vec<_> = UNLISTED.split_whitespace().collect();
        for file in paths.iter().chain(&[".config/app/notes"]) {
            let file = format!("../home/{file}");
            team.make_dir(file.rsplit_once('/').unwrap().0);
            team.write(&file, "hush");
        }
        team.write(
            "team.toml",
            "[members.carol.sandbox]\nvisible = ['~/.dbt', '~/.snow', '~/.config/app']\nenv = ['FOO']\n",
        );
        team.trust();
        let Some(team) = with.confine(team, &[]) else {
            continue;
        };
        let hidden = |names: &str| {
            format!(
                "cd ~; for f in {names}; do grep -qs hush $f && echo BROKEN $f; done; grep -rls hush ~ 2> /dev/null | grep -v -e /app/ && echo BROKEN; true"
            )
        };
        let tried = [hidden(UNLISTED)];
        assert!(paths.len() >= 50, "{}", paths.len());
        attack(&team, &tried.each_ref().map(String::as_str));
        // What is made later is hidden from the next command.
        team.write("../home/.made-later", "hush");
        attack(&team, &["grep -qs hush ~/.made-later && echo BROKEN"]);
        for (name, flags) in [
            ("bob", &["--workspace", "../home/.config/app"][..]),
            ("carol", &[]),
        ] {
            let mut spawn = team.command(
                env!("CARGO_BIN_EXE_teamctl"),
                ["spawn", name].iter().chain(flags),
            );
            spawn.envs(VARIABLES.iter().map(|variable| (variable, "hush")));
            let spawned = spawn.output().unwrap();
            assert!(spawned.status.success(), "{case:?} {spawned:?}");
        }
        let said = |name: &str, command: &str| {
            team.does(name, &format!("/bash {}", json!({ "command": command })))[0]["content"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(
            said("bob", "env | grep hush; cat notes; echo x > new && cat new"),
            "hushx",
            "{case:?}"
        );
        assert!(
            !said("bob", &hidden(UNLISTED)).contains("BROKEN"),
            "{case:?}"
        );
        assert_eq!(
            said(
                "carol",
                "env | grep =hush; cat ~/.dbt/profiles.yml ~/.snow ~/.config/app/notes"
            ),
            "FOO=hush\nhushhushhush",
            "{case:?}"
        );
        assert!(
            said("carol", "cat ~/.config/turso/settings.json").contains("settings.json"),
            "{case:?}"
        );
    }
}

/// A command of root cannot read files that are not world-readable.
fn files_of_root_are_not_read(case: Case, team: &Team) {
    // Found by another program than ours.
    let kept =
        "find /etc /var/backups /var/cache/debconf -type f ! -perm -o=r -size +0 2> /dev/null";
    let found = std::process::Command::new("bash")
        .args(["-c", kept])
        .output()
        .unwrap()
        .stdout;
    let found = String::from_utf8(found).unwrap();
    assert!(found.contains("/etc/shadow"), "{found}");
    let tries = found
        .lines()
        .map(|path| format!("[ -n \"$(head -c 1 '{path}')\" ] && echo BROKEN '{path}'"));
    attack(team, &[&tries.collect::<Vec<_>>().join("\n")]);
    // What all read, is read.
    assert_eq!(
        works(team, &["head -c 1 /etc/passwd | wc -c"]),
        ["1"],
        "{case:?}"
    );
}

#[test]
fn no_variable_that_holds_a_key_reaches_a_command() {
    const KEYS: [&str; 12] = [
        "COMPOSER_AUTH",
        "BW_SESSION",
        "OP_SESSION_me",
        "API_KEYS",
        "DEPLOY_SECRETS",
        "DB_CREDS",
        "DB_DSN",
        "KEY",
        "COOKIE",
        "GCP_CREDENTIALS_JSON",
        "PRIVATE_KEY_PEM",
        "VAULT_PASSWORD_1",
    ];
    const NEEDED: [&str; 4] = [
        "XDG_SESSION_ID",
        "DESKTOP_SESSION",
        "SSH_AUTH_SOCK",
        "TOKENIZERS_PARALLELISM",
    ];
    for (case, team) in teams(&With::EACH, &[]) {
        let mut spawn = team.command(env!("CARGO_BIN_EXE_teamctl"), ["spawn", "bob"]);
        spawn.envs(KEYS.iter().chain(&NEEDED).map(|name| (name, "hush")));
        assert!(spawn.output().unwrap().status.success());
        let said = team.does("bob", "/bash env | grep =hush | cut -d = -f 1 | sort");
        let mut needed = NEEDED;
        needed.sort_unstable();
        assert_eq!(said[0]["content"], needed.join("\n"), "{case:?}");
    }
}
