//! Checks of applying changes to a workspace's files.

use std::os::unix::ffi::OsStrExt;

use bytes::Bytes;

use super::files::{FileRig, at, delete, directory, file, link, put};
use super::rig::{CheckFinding, PLACE, Suite, ensure, seen};
use crate::backends::{FileChange, Observed};
use crate::engine::event::{FileMode, Node, Special};
use crate::engine::path::EntryPath;

pub(super) async fn check(suite: &mut Suite<FileRig>) {
    suite.check("named", "a workspace has a name", named).await;
    suite.check("accepts", "valid changes are no error, nor is an empty list", accepts).await;
    suite.check("creates", "a file is created with its parent directories", creates).await;
    suite.check("overwrites", "a file's contents are replaced, by shorter and by longer ones", overwrites).await;
    suite.check("executable", "the executable bit is set and cleared", executable).await;
    suite.check("modes", "files and directories get the permission bits of the node", modes).await;
    suite.check("deletes", "an entry is removed, a directory with everything below it", deletes).await;
    suite.check("pipes", "a named pipe is made", pipes).await;
    suite.check("links", "a link is stored unchanged, wherever it points", links).await;
    suite.check("replaces-kinds", "an entry replaces any kind of entry at its path", replaces).await;
    suite.check("any-name", "names may have any bytes", any_name).await;
    suite.check("large", "a file of some megabytes arrives whole", large).await;
    suite.check("in-order", "changes are made in their order", in_order).await;
    suite.check("all-or-none", "if one change fails, none is made", all_or_none).await;
    suite.check("root-stays", "the root can be neither replaced nor removed", root_stays).await;
    suite.check("stays-inside", "no change follows a link out of the workspace", stays_inside).await;
    suite.check("seen-by-commands", "commands see projected files, and may change them", seen_by_commands).await;
}

async fn named(rig: FileRig) -> CheckFinding {
    ensure(!rig.workspace().backend_name().is_empty(), || "no name".to_owned())
}

async fn accepts(rig: FileRig) -> CheckFinding {
    rig.project(Vec::new()).await?;
    rig.project(vec![file("accepts/a.txt", "a", false)?, directory("accepts/d")?, link("accepts/l", b"a.txt")?])
        .await?;
    rig.project(vec![delete("accepts")?]).await?;
    // Removing a missing entry is not an error.
    rig.project(vec![delete("accepts")?]).await
}

async fn creates(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    rig.project(vec![file("creates/deep/er/a.txt", "hello\n", false)?, file("creates/empty", "", false)?]).await?;
    rig.ensure_observed("creates/deep/er", Some(Observed::Directory { mode: FileMode::DIRECTORY })).await?;
    rig.ensure_file("creates/empty", b"", false).await?;
    rig.ensure_file("creates/deep/er/a.txt", b"hello\n", false).await
}

async fn overwrites(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    for text in ["first\n", "a second, longer text\n", "short", "short, and appended to\n"] {
        rig.project(vec![file("overwrites.txt", text, false)?]).await?;
        rig.ensure_file("overwrites.txt", text.as_bytes(), false).await?;
    }
    Ok(())
}

async fn executable(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    for executable in [true, false, true] {
        rig.project(vec![file("tool", "#!/bin/sh\n", executable)?]).await?;
        rig.ensure_file("tool", b"#!/bin/sh\n", executable).await?;
    }
    Ok(())
}

async fn modes(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    for bits in [0o600, 0o640, 0o2750] {
        let mode = FileMode::of(bits);
        let changes = [file("modes/in/f", "x", false)?, put("modes/in", Node::Directory { mode }, Bytes::new())?];
        let f = put("modes/in/f", Node::file_with(b"x", mode), Bytes::from_static(b"x"))?;
        rig.project(changes.into_iter().chain([f]).collect()).await?;
        rig.ensure_observed("modes/in", Some(Observed::Directory { mode })).await?;
        rig.ensure_observed("modes/in/f", Some(Observed::File { size: 1, mode, shared: None })).await?;
    }
    Ok(())
}

async fn deletes(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let changes = [file("deletes/a", "a", false), file("deletes/d/e/b", "b", false), link("deletes/d/l", b"/")];
    rig.project(changes.into_iter().collect::<CheckFinding<_>>()?).await?;
    rig.project(vec![delete("deletes/d")?]).await?;
    rig.ensure_observed("deletes/d", None).await?;
    rig.ensure_file("deletes/a", b"a", false).await?;
    rig.project(vec![delete("deletes/a")?]).await?;
    rig.ensure_observed("deletes/a", None).await
}

async fn links(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    for target in [&b"nowhere/at all"[..], b"../../..", b"/etc/passwd", b"\xff\n", b"links"] {
        rig.project(vec![link("links", target)?]).await?;
        rig.ensure_observed("links", Some(Observed::Symlink { target: target.to_vec() })).await?;
    }
    Ok(())
}

async fn replaces(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    rig.project(vec![file("replaces/in/a", "a", false)?]).await?;
    rig.project(vec![file("replaces", "a file", false)?]).await?;
    rig.ensure_file("replaces", b"a file", false).await?;
    rig.project(vec![link("replaces", b"elsewhere")?]).await?;
    rig.ensure_observed("replaces", Some(Observed::Symlink { target: b"elsewhere".to_vec() })).await?;
    rig.project(vec![directory("replaces")?, file("replaces/b", "b", true)?]).await?;
    rig.ensure_file("replaces/b", b"b", true).await?;
    // An existing directory is left unchanged.
    rig.project(vec![directory("replaces")?]).await?;
    rig.ensure_file("replaces/b", b"b", true).await
}

async fn any_name(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let names = [&b"two words"[..], b"-rf", b"*", b"new\nline", b"\xff\xfe", b"\xc3\xa4", b".hidden", &[b'x'; 255]];
    let parent = at("names")?;
    for name in names {
        let Ok(path) = parent.join(name) else { return seen("a name is invalid") };
        let change = FileChange::Write {
            path: path.clone(),
            node: Node::file(name, false),
            bytes: name.to_vec().into(),
            modified: None,
        };
        rig.project(vec![change]).await?;
        let read = rig.read(path.clone()).await?;
        ensure(read.as_deref() == Ok(name), || format!("{path} has {read:?}"))?;
    }
    let found = rig.below(parent).await?.len();
    ensure(found == names.len(), || format!("{found} entries instead of {}", names.len()))
}

async fn large(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let bytes: Vec<u8> = (0..u32::MAX).flat_map(u32::to_le_bytes).take(3 << 20).collect();
    rig.project(vec![file("large", bytes.clone(), false)?]).await?;
    rig.ensure_file("large", &bytes, false).await
}

async fn in_order(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let first =
        [file("order/a", "1", false), delete("order"), file("order/b", "2", false), file("order/b", "3", false)];
    let then = [file("order/c", "4", false), delete("order/c"), directory("order/c"), file("order/c/d", "5", false)];
    rig.project(first.into_iter().chain(then).collect::<CheckFinding<_>>()?).await?;
    rig.ensure_observed("order/a", None).await?;
    rig.ensure_file("order/b", b"3", false).await?;
    rig.ensure_file("order/c/d", b"5", false).await
}

fn special(path: &str, special: Special) -> CheckFinding<FileChange> {
    Ok(FileChange::Write { path: at(path)?, node: Node::Special { special }, bytes: Bytes::new(), modified: None })
}

async fn pipes(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    rig.project(vec![file("pipes/a", "a", false)?]).await?;
    rig.project(vec![special("pipes/a", Special::Fifo)?, special("pipes/b", Special::Fifo)?]).await?;
    for path in ["pipes/a", "pipes/b"] {
        rig.ensure_observed(path, Some(Observed::Special(Special::Fifo))).await?;
    }
    rig.project(vec![file("pipes/a", "a", false)?, delete("pipes/b")?]).await?;
    rig.ensure_observed("pipes/b", None).await?;
    rig.ensure_file("pipes/a", b"a", false).await
}

async fn all_or_none(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let before = [file("none/kept", "old", true), file("none/gone/deep/a", "a", false), link("none/link", b"kept")];
    rig.project(before.into_iter().collect::<CheckFinding<_>>()?).await?;
    let below = rig.below(at("none")?).await?;
    let good = || -> CheckFinding<Vec<FileChange>> {
        let changes = [
            file("none/new/file", "new", false),
            file("none/kept", "changed", false),
            delete("none/gone"),
            file("none/link", "no link", false),
            directory("none/directory"),
        ];
        changes.into_iter().collect()
    };
    let socket = special("none/socket", Special::Socket)?;
    let bad = [("an entry below a file", file("none/kept/below", "x", false)?), ("a socket", socket)];
    for (what, bad) in bad {
        let mut changes = good()?;
        changes.push(bad);
        rig.refuse(what, changes).await?;
        let now = rig.below(at("none")?).await?;
        ensure(now == below, || format!("after {what} was refused: {now:?} instead of {below:?}"))?;
        rig.ensure_file("none/kept", b"old", true).await?;
        rig.ensure_file("none/gone/deep/a", b"a", false).await?;
    }
    Ok(())
}

async fn root_stays(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    rig.project(vec![file("root/a", "a", false)?]).await?;
    let path = EntryPath::root();
    rig.refuse("removing the root", vec![FileChange::Delete { path: path.clone() }]).await?;
    let write =
        FileChange::Write { path, node: Node::file(b"x", false), bytes: Bytes::from_static(b"x"), modified: None };
    rig.refuse("a file in the root's place", vec![write]).await?;
    rig.ensure_file("root/a", b"a", false).await
}

async fn stays_inside(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    let Ok(outside) = tempfile::Builder::new().prefix("foldspace-outside-").tempdir() else {
        return seen("failed to create a directory outside of the workspace");
    };
    let Ok(secret) = tempfile::Builder::new().prefix("secret-").tempfile_in(outside.path()) else {
        return seen("failed to create a file outside of the workspace");
    };
    let name = secret.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    rig.project(vec![link("out", outside.path().as_os_str().as_bytes())?, directory("in")?, link("in/up", b"..")?])
        .await?;
    for through in [format!("out/{name}"), format!("in/up/out/{name}"), "in/up/in".to_owned()] {
        rig.refuse(&format!("writing {through}"), vec![file(&through, "x", false)?]).await?;
        rig.ensure_observed(&through, None).await?;
        let read = rig.read(at(&through)?).await?;
        ensure(read.is_err(), || format!("{through} was read"))?;
        // In the workspace nothing exists there, so either result is right.
        drop(rig.project(vec![delete(&through)?]).await);
        ensure(secret.path().exists(), || format!("{through} was removed"))?;
    }
    let listed = rig.below(at("out")?).await?;
    ensure(listed.is_empty(), || format!("below the link are {listed:?}"))?;
    rig.project(vec![delete("out")?]).await?;
    ensure(secret.path().exists(), || "removing a link has removed its target".to_owned())
}

async fn seen_by_commands(rig: FileRig) -> CheckFinding {
    rig.visible()?;
    rig.shell()?;
    let tool = "#!/bin/sh\necho tool in $(cat seen/a.txt)\n";
    rig.project(vec![file("seen/a.txt", "one", false)?, file("seen/tool", tool, true)?, link("seen/l", b"a.txt")?])
        .await?;
    let printed = rig.sh("./seen/tool; cat seen/l; readlink seen/l; test ! -x seen/a.txt").await?;
    ensure(printed == "tool in one\nonea.txt\n", || format!("commands see {printed:?}"))?;
    rig.project(vec![file("seen/a.txt", "two", false)?, delete("seen/l")?]).await?;
    let printed = rig.sh("cat seen/a.txt; test ! -e seen/l").await?;
    ensure(printed == "two", || format!("after a change commands see {printed:?}"))?;
    // And the other way round, also with entries that belong to another user because a command made them.
    rig.sh("printf more >> seen/a.txt; chmod -x seen/tool; mkdir -p seen/made/deep; echo b > seen/made/deep/b").await?;
    rig.ensure_file("seen/a.txt", b"twomore", false).await?;
    rig.ensure_file("seen/tool", tool.as_bytes(), false).await?;
    rig.project(vec![file("seen/made/deep/b", "c\n", false)?, file("seen/made/new", "", false)?]).await?;
    let printed = rig.sh("cat seen/made/deep/b; rm -r seen; ls").await?;
    ensure(printed.starts_with("c\n") && !printed.contains("seen"), || format!("{PLACE} has {printed:?}"))
}
