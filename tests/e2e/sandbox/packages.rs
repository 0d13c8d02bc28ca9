//! Packages are built and installed as usual, from what lies on this machine: no test asks a
//! registry.

use std::path::PathBuf;
use std::process::Command;

use super::{has, typical_teams, works};
use crate::support::Team;
use crate::support::cgroup::note;
use crate::support::user::is_open;

/// Where `cargo` and `rustc` lie that the user of a team can run; none, and the reason printed,
/// without them. What only the user of the test can enter, another user has by second names.
fn toolchain(team: &Team) -> Option<PathBuf> {
    let asked = Command::new("rustc")
        .args(["--print", "sysroot"])
        .output()
        .ok()
        .filter(|it| it.status.success());
    let Some(asked) = asked else {
        note("skipped: there is no rustc here");
        return None;
    };
    let sysroot = PathBuf::from(String::from_utf8(asked.stdout).unwrap().trim_end());
    let programs = sysroot.join("bin");
    if !team.is_of_another() || is_open(&programs.join("cargo")) {
        return Some(programs);
    }
    let here = team.root().parent().unwrap().join("toolchain");
    let mut folders = vec![PathBuf::from("bin"), "lib".into()];
    while let Some(folder) = folders.pop() {
        std::fs::create_dir_all(here.join(&folder)).unwrap();
        for entry in std::fs::read_dir(sysroot.join(&folder))
            .unwrap()
            .map(Result::unwrap)
        {
            let path = folder.join(entry.file_name());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if let Err(error) = std::fs::hard_link(entry.path(), here.join(&path)) {
                note(&format!(
                    "skipped: another user cannot reach the toolchain in {}: {error}",
                    sysroot.display()
                ));
                return None;
            }
        }
    }
    Some(here.join("bin"))
}

#[test]
fn a_package_with_a_vendored_crate_is_built_and_tested() {
    for (case, team) in typical_teams() {
        let Some(programs) = toolchain(&team) else {
            continue;
        };
        for folder in ["src", ".cargo", "vendor/adder/src"] {
            team.make_dir(folder);
        }
        for (file, text) in [
            (
                "Cargo.toml",
                "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[dependencies]\nadder = \"1\"\n\
                 [profile.dev]\ndebug = false\n[workspace]\n",
            ),
            (
                "src/main.rs",
                "fn main() { println!(\"{}\", adder::add(40, 2)); }\n#[test]\nfn adds() { assert_eq!(adder::add(1, 1), 2); }\n",
            ),
            (
                ".cargo/config.toml",
                "[source.crates-io]\nreplace-with = \"vendored\"\n[source.vendored]\ndirectory = \"vendor\"\n",
            ),
            (
                "vendor/adder/Cargo.toml",
                "[package]\nname = \"adder\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
            ),
            (
                "vendor/adder/src/lib.rs",
                "pub fn add(a: u32, b: u32) -> u32 { a + b }\n",
            ),
            (
                "vendor/adder/.cargo-checksum.json",
                "{\"files\":{},\"package\":null}\n",
            ),
        ] {
            team.write(file, text);
        }
        let cargo = format!(
            "PATH={}:$PATH CARGO_HOME=$TMPDIR/cargo cargo",
            programs.display()
        );
        let said = works(
            &team,
            &[
                &format!("{cargo} build --offline 2>&1 && target/debug/tiny"),
                &format!("{cargo} test --offline 2>&1"),
                &format!("{cargo} clean --offline 2>&1; ls"),
            ],
        );
        assert!(
            said[0].ends_with("\n42") && said[1].contains("1 passed"),
            "{case:?} {said:?}"
        );
        assert!(!said[2].contains("target"), "{case:?} {said:?}");
    }
}

#[test]
fn npm_ci_installs_what_the_lock_file_says() {
    for (case, team) in typical_teams() {
        if !has(&team, "node") || !has(&team, "npm") {
            return;
        }
        team.make_dir("package");
        team.write(
            "package/package.json",
            "{\"name\": \"adder\", \"version\": \"1.0.0\", \"bin\": \"adder.js\"}\n",
        );
        team.write(
            "package/adder.js",
            "#!/usr/bin/env node\nconsole.log(40 + 2);\n",
        );
        team.run_program("tar", ["-czf", "adder-1.0.0.tgz", "package"])
            .ok();
        team.write(
            "package.json",
            "{\"name\": \"tiny\", \"version\": \"1.0.0\", \"dependencies\": {\"adder\": \"file:adder-1.0.0.tgz\"},\n\
             \"scripts\": {\"postinstall\": \"echo done > installed\", \"add\": \"adder\"}}\n",
        );
        team.write(
            "package-lock.json",
            "{\"name\": \"tiny\", \"version\": \"1.0.0\", \"lockfileVersion\": 3, \"requires\": true, \"packages\": {\n\
             \"\": {\"name\": \"tiny\", \"version\": \"1.0.0\", \"hasInstallScript\": true,\n\
             \"dependencies\": {\"adder\": \"file:adder-1.0.0.tgz\"}},\n\
             \"node_modules/adder\": {\"version\": \"1.0.0\", \"resolved\": \"file:adder-1.0.0.tgz\",\n\
             \"bin\": {\"adder\": \"adder.js\"}}}}\n",
        );
        let said = works(
            &team,
            &[
                "export npm_config_cache=$TMPDIR/npm; npm ci --offline --no-audit --no-fund 2>&1 && cat installed && \
               npm run --silent add",
            ],
        );
        assert!(said[0].ends_with("done\n42"), "{case:?} {said:?}");
    }
}

/// Makes a wheel: a ZIP archive with a list of its files in it (PEP 427).
const WHEEL: &str = r#"
import base64, hashlib, zipfile
files = {
    "adder.py": "def add(a, b):\n    return a + b\ndef main():\n    print(add(40, 2))\n",
    "adder-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: adder\nVersion: 1.0\n",
    "adder-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "adder-1.0.dist-info/entry_points.txt": "[console_scripts]\nadder = adder:main\n",
}
record = "adder-1.0.dist-info/RECORD"
digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
lines = [f"{name},sha256={digest(text)},{len(text)}" for name, text in files.items()]
files[record] = "\n".join(lines + [f"{record},,"]) + "\n"
with zipfile.ZipFile("adder-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in files.items():
        wheel.writestr(name, text)
"#;

#[test]
fn pip_installs_a_wheel_into_a_virtual_environment() {
    for (case, team) in typical_teams() {
        if !team
            .run_program("python3", ["-c", "import pip, venv"])
            .is_done()
        {
            note("skipped: there is no python3 with venv and pip here");
            return;
        }
        team.write("wheel.py", WHEEL);
        let said = works(
            &team,
            &[
                // With the machine's pip: to install another one takes longer than all the rest.
                "python3 wheel.py && python3 -m venv --without-pip --system-site-packages .venv && . .venv/bin/activate && \
                 python -m pip install --no-index --disable-pip-version-check --find-links . adder 2>&1",
                ".venv/bin/adder",
            ],
        );
        assert!(
            said[0].contains("Successfully installed adder-1.0"),
            "{case:?} {said:?}"
        );
        assert_eq!(said[1], "42", "{case:?}");
    }
}
