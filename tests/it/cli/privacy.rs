//! Files and directories that the program makes: only their owner may read what has histories or secrets.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::rig::{Program, told};

/// Runs the program with a mask that closes nothing.
fn open_handed(program: &Program, arguments: &[&str]) -> String {
    let inner = program.command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(inner.get_program()).args(inner.get_args()).env_clear();
    shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let told = told(&shell.current_dir(program.path("")).output().unwrap());
    assert!(told.ends_with("[exit 0]"), "{arguments:?}: {told}");
    told
}

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap().permissions().mode() & 0o7777
}

/// Lists what others may read or enter, without what is below the closed directory of the index, and files of workspaces,
/// whose modes are a session's.
fn open_below(path: &Path) -> Vec<String> {
    let mut find = Command::new("find");
    find.arg(path).args(["(", "-name", "files", "-o", "-path", "*/index/*", ")", "-prune", "-o"]);
    find.args(["-perm", "/077", "-print"]);
    let listed = find.output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    String::from_utf8(listed.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn copy_in_a_directory_is_private() {
    let program = Program::with_story();
    let to = |name: &str| format!("file://{}", program.path(name).display());
    open_handed(&program, &["replicate", "--to", &to("copy"), "--once"]);
    assert!(program.path("copy/manifest").is_file());
    assert_eq!(open_below(&program.path("copy")), [""; 0]);
    open_handed(&program, &["restore", "--from", &to("copy"), "--data", &program.path("restored").to_string_lossy()]);
    assert_eq!(open_below(&program.path("restored")), [""; 0]);
    // One that an earlier version made is closed, and a directory of the user's stays as it is.
    let set = |name: &str, mode| {
        std::fs::set_permissions(program.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    set("copy", 0o755);
    set("copy/pieces", 0o755);
    program.printed(&["clone", "story"]);
    open_handed(&program, &["replicate", "--to", &to("copy"), "--once"]);
    assert_eq!(open_below(&program.path("copy")), [program.path("copy").to_string_lossy()]);
}

#[test]
fn exported_file_is_private_and_a_replaced_one_keeps_its_mode() {
    let program = Program::with_story();
    for (at, arguments) in [
        &["export", "story", "--force"][..],
        &["export", "story", "--force", "--atif", "--output"],
        &["export", "story", "--force", "--otlp", "--output"],
        &["materialise", "story", "--tar"],
        &["ui", "story", "--force", "--export"],
    ]
    .into_iter()
    .enumerate()
    {
        let file = program.path(&format!("exported-{at}"));
        let shown = file.to_string_lossy().into_owned();
        let arguments = [arguments, &[&shown]].concat();
        open_handed(&program, &arguments);
        assert_eq!(mode(&file), 0o600, "{arguments:?}");
        for kept in [0o640, 0o400] {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(kept)).unwrap();
            open_handed(&program, &arguments);
            assert_eq!(mode(&file), kept, "{arguments:?}");
        }
    }
}

#[test]
fn files_of_an_open_data_directory_are_private() {
    let program = Program::new();
    std::fs::create_dir(program.data()).unwrap();
    std::fs::set_permissions(program.data(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = program.file(
        "script.jsonl",
        r#"{"tool": "execute_script", "params": {"script": "stat -c %a \"$(dirname \"$0\")\"; echo >> a"}}"#,
    );
    open_handed(&program, &["run", &script, "--session", "box", "--backend", "host", "--env", "KEY=secret", "--yes"]);
    let shown = program.printed(&["show", "box", "2"]);
    assert!(shown.contains("stdout\n    700\n"), "{shown}");
    open_handed(&program, &["exec", "box", "--sh", "--", "echo >> a"]);
    open_handed(&program, &["mcp", "--sticky"]);
    assert_eq!(open_below(&program.data()), [program.data().to_string_lossy()]);
    let fresh = program.path("new/data").to_string_lossy().into_owned();
    open_handed(&program, &["mcp", "--data", &fresh]);
    assert_eq!(open_below(&program.path("new")), [""; 0]);
}
