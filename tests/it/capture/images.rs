//! Images in which the resident runner can't run, and the one that foldspace makes.

use foldspace::backends::{EngineKind, PodmanOptions};
use serde_json::json;

use crate::rig::{Program, Rig, engine_cli, report_skip, skip};

/// Makes an image for another architecture of what runs here, and gives its name.
fn foreign_image(rig: &Rig) -> String {
    rig.ok("for f in /bin/sh /usr/bin/env /bin/sleep /bin/cat /bin/uname; do echo $f; readlink -f $f; \
         ldd $f | grep -o '/[^ ]*'; done | sort -u > list; \
         tar -chf root.tar -C / $(sed 's,^/,,' list)");
    let name = format!("localhost/foldspace-foreign-{}", rig.name());
    let arch = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let tar = rig.root().join("root.tar");
    engine_cli(&["import", "--arch", arch, tar.to_str().unwrap(), &name]).unwrap();
    name
}

#[test]
fn image_of_another_architecture_is_refused_with_what_to_do() {
    if crate::engine::kind() == EngineKind::Docker {
        return report_skip("Docker imports images of this machine's architecture only");
    }
    let Some(maker) = Rig::container(|options| options) else { return };
    let image = foreign_image(&maker);
    let rig = Rig::container(|options| PodmanOptions { image: image.clone(), ..options }).unwrap();
    let refused = rig.bare("shell_execute", json!({ "command": "true" }));
    assert!(!refused.is_ok());
    let own = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    assert!(refused.text.contains(&format!("use an image for {own}")), "{}", refused.text);
    // The files are there all the same.
    assert!(rig.bare("write_file", json!({ "file_path": "a", "content": "a" })).is_ok());
    drop(rig);
    engine_cli(&["rmi", &image]).unwrap();
}

/// Programs that a model may expect in its workspace.
const PROGRAMS: &str = "python3 node npm git jq tree file less zip unzip curl wget rg gcc make nano";

#[test]
fn development_image_is_built_and_used_when_none_is_named() {
    let Ok(tar) = std::env::var("FOLDSPACE_BASE_TAR") else { return skip("there is no base for an image") };
    let Some(mut program) = Program::with_container() else { return };
    program.engine.retain(|(name, _)| *name != "FOLDSPACE_IMAGE");
    let base = format!("localhost/foldspace-base-{}", std::process::id());
    engine_cli(&["import", &tar, &base]).unwrap();
    let engine = crate::engine::kind().name();
    let without_base = program.run(&["image", "build", "--backend", engine, "--base", "localhost/nowhere:1"]);
    assert!(without_base.contains("failed to build the image") && without_base.ends_with("[exit 6]"), "{without_base}");
    let build = ["--json", "image", "build", "--backend", engine, "--base", &base, "--network", "host"];
    let built = program.command(&build).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&built.stdout).unwrap_or_default();
    let image = document["image"].as_str().unwrap_or_else(|| panic!("{}", crate::rig::told(&built))).to_owned();

    let params =
        json!({ "command": format!("for p in {PROGRAMS}; do command -v $p >/dev/null || echo no $p; done; echo all") });
    let script = program.file("look.jsonl", json!({ "tool": "shell_execute", "params": params }).to_string());
    let run = ["--json", "run", &script, "--session", "look", "--backend", engine, "--yes"];
    let ran = program.command(&run).output().unwrap();
    let state = program.printed(&["state", "look", "PodmanWorkspace"]);
    let build = ["--json", "image", "build", "--e2b", "--backend", engine, "--base", &image, "--network", "host"];
    let like_e2b = program.command(&build).output().unwrap();
    let document: serde_json::Value = serde_json::from_slice(&like_e2b.stdout).unwrap_or_default();
    let like_e2b = document["image"].as_str().unwrap_or_else(|| panic!("{}", crate::rig::told(&like_e2b))).to_owned();
    let new = ["new", "box", "--backend", engine, "--image", &like_e2b, "--also-at", "/home/user"];
    program.printed(&new);
    let programs = "command -v sudo python tput curl ps >/dev/null && whoami && pwd";
    let at_home = program.run(&["exec", "box", "--yes", "--sh", "--", programs]);
    program.printed(&["remove", "box", "--yes"]);
    for removed in [&like_e2b, &image, &base] {
        engine_cli(&["rmi", "--force", removed]).unwrap();
    }
    assert!(String::from_utf8_lossy(&ran.stdout).contains("\"all\\n\""), "{}", crate::rig::told(&ran));
    assert!(state.contains(&image), "{state}");
    assert_eq!(at_home, "user\n/home/user\n[exit 0]");
}
