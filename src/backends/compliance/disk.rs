//! Checks that a workspace detects the changes of commands on its disk.

use std::collections::BTreeMap;

use super::files::{FileRig, at, file};
use super::rig::{CheckFinding, PLACE, Suite, ensure, path};
use crate::backends::{DirtyPath, Observed};
use crate::engine::event::{FileMode, Special};
use crate::engine::path::EntryPath;

/// Changes by commands, each with a description. They run one after the other, in the suite's directory.
const DEEDS: [(&str, &str); 18] = [
    ("a file is made", "mkdir -p t && echo one > t/a"),
    ("a file is changed to one of the same size", "echo two > t/a"),
    ("a file is appended to", "echo three >> t/a"),
    (
        "a file is changed and its time is restored",
        "echo owt > t/b; touch -d @1000000000 t/b; echo xxx > t/b; touch -d @1000000000 t/b",
    ),
    ("a file becomes executable", "chmod +x t/a"),
    ("a file is renamed", "mv t/a t/renamed"),
    ("a file is replaced by another", "echo new > t/n && mv t/n t/renamed"),
    ("a directory is made", "mkdir -p t/d/e/f"),
    ("files are made deep down", "echo deep > t/d/e/f/g; echo deep > t/d/e/h"),
    ("a directory is renamed", "mv t/d t/moved"),
    ("a link is made", "ln -s moved/e/h t/link; ln -s / t/out"),
    ("a link is changed", "ln -sfn /etc t/link"),
    ("a file gets a second name", "ln t/renamed t/second; echo by-second >> t/second"),
    ("a file takes a directory's place", "rm -r t/moved && echo file > t/moved"),
    ("a directory takes a file's place", "rm t/moved && mkdir t/moved && echo x > t/moved/x"),
    ("a file is removed", "rm t/second"),
    ("directories are swapped", "mkdir t/p t/q; echo p > t/p/f; echo q > t/q/f; mv t/p t/r; mv t/q t/p; mv t/r t/q"),
    ("all is removed", "rm -r t"),
];

pub(super) async fn check(suite: &mut Suite<FileRig>) {
    suite.check("observes", "entries made by a command are observed with their kinds", observes).await;
    suite.check("special-files", "special files are noticed, and never block", special).await;
    suite.check("odd-names", "files with any name are found", odd_names).await;
    suite.check("touched", "every change of a command is reported, perhaps with more", touched).await;
    suite.check("touched-again", "a reported path is reported again until it is settled", again).await;
    suite.check("settled", "a change after a scan is found by the next one, even if the scan was settled", later).await;
    suite.check("projected", "a command's change of a projected file is reported", projected).await;
}

async fn ready(rig: &FileRig) -> CheckFinding {
    rig.visible()?;
    rig.shell().map(drop)
}

async fn observes(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.sh("mkdir -p o/d && printf abc > o/f && printf '' > o/x && chmod 755 o/x && ln -s ../nowhere o/l").await?;
    let expected = [
        ("o/d", Observed::Directory { mode: FileMode::DIRECTORY }),
        ("o/f", Observed::File { size: 3, mode: FileMode::FILE, shared: None }),
        ("o/l", Observed::Symlink { target: b"../nowhere".to_vec() }),
        ("o/x", Observed::File { size: 0, mode: FileMode::EXECUTABLE, shared: None }),
    ];
    let mut below = Vec::new();
    for (name, observed) in expected {
        rig.ensure_observed(name, Some(observed.clone())).await?;
        below.push((at(name)?, observed));
    }
    let found = rig.below(at("o")?).await?;
    ensure(found == below, || format!("{PLACE}/o has {found:?}"))?;
    rig.ensure_observed("o/nothing", None).await?;
    rig.ensure_observed("o/f/below", None).await?;
    rig.ensure_file("o/f", b"abc", false).await?;
    for name in ["o/d", "o/l", "o/nothing"] {
        let read = rig.read(at(name)?).await?;
        ensure(read.is_err(), || format!("{name} was read as a file"))?;
    }
    Ok(())
}

async fn special(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.mark_clean().await?;
    rig.sh("mkdir -p s && mkfifo s/pipe").await?;
    rig.ensure_observed("s/pipe", Some(Observed::Special(Special::Fifo))).await?;
    ensure_named(&rig, "a pipe is made", &[at("s/pipe")?]).await?;
    let read = rig.read(at("s/pipe")?).await?;
    ensure(read.is_err(), || "a pipe was read as a file".to_owned())?;
    // It can still be replaced.
    rig.project(vec![file("s/pipe", "a file", false)?]).await?;
    rig.ensure_file("s/pipe", b"a file", false).await
}

async fn odd_names(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.mark_clean().await?;
    let text = "mkdir -p odd && cd odd && echo x > \"$(printf 'not \\377 text')\" && echo x > \"$(printf 'new\\nline')\" \
                && echo x > -dash && echo x > \"$(printf '%0200d' 7)\"";
    rig.sh(text).await?;
    let directory = at("odd")?;
    let names =
        [b"-dash".to_vec(), format!("{:0200}", 7).into_bytes(), b"new\nline".to_vec(), b"not \xff text".to_vec()];
    let paths = names.iter().filter_map(|name| directory.join(name).ok()).collect::<Vec<_>>();
    ensure_named(&rig, "files with odd names are made", &paths).await?;
    let found: Vec<EntryPath> = rig.below(directory).await?.into_iter().map(|(path, _)| path).collect();
    ensure(found == paths, || format!("{found:?} instead of {paths:?}"))?;
    for path in paths {
        let read = rig.read(path.clone()).await?;
        ensure(read.as_deref() == Ok(b"x\n"), || format!("{path} holds {read:?}"))?;
    }
    Ok(())
}

type DiskWorld = BTreeMap<EntryPath, (Observed, Vec<u8>)>;

async fn world(rig: &FileRig) -> CheckFinding<DiskWorld> {
    let mut world = DiskWorld::new();
    for (path, observed) in rig.below(path(PLACE)?).await? {
        let bytes = match observed {
            Observed::File { .. } => rig.read(path.clone()).await?.unwrap_or_default(),
            _ => Vec::new(),
        };
        world.insert(path, (observed, bytes));
    }
    Ok(world)
}

/// Returns true if a reported place covers a path. The entry of a directory does not cover the current contents.
fn covers(touched: &[DirtyPath], path: &EntryPath, now: &DiskWorld) -> bool {
    let is_directory = |path: &EntryPath| now.get(path).is_some_and(|(observed, _)| observed.is_directory());
    touched.iter().any(|touched| match touched {
        DirtyPath::Entry(named) => named == path || path.is_below(named) && !is_directory(named),
        DirtyPath::Subtree(named) => named == path || path.is_below(named),
    })
}

async fn touched(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    for (what, text) in DEEDS {
        rig.mark_clean().await?;
        let before = world(&rig).await?;
        rig.sh(text).await?;
        let touched = rig.dirty().await?;
        let after = world(&rig).await?;
        ensure(before != after, || format!("after {what:?}, nothing is different"))?;
        let missed = before
            .keys()
            .chain(after.keys())
            .find(|path| before.get(*path) != after.get(*path) && !covers(&touched, path, &after));
        ensure(missed.is_none(), || format!("after {what:?}, {missed:?} is not reported, only {touched:?}"))?;
    }
    Ok(())
}

async fn ensure_named(rig: &FileRig, what: &str, paths: &[EntryPath]) -> CheckFinding {
    let touched = rig.dirty().await?;
    let now = world(rig).await?;
    let missed = paths.iter().find(|path| !covers(&touched, path, &now));
    ensure(missed.is_none(), || format!("after {what:?}, {missed:?} is not reported, only {touched:?}"))
}

async fn again(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.mark_clean().await?;
    rig.sh("echo again > again").await?;
    for what in ["a file is made", "the disk is scanned again", "it is scanned once more"] {
        ensure_named(&rig, what, &[at("again")?]).await?;
    }
    Ok(())
}

async fn later(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.sh("mkdir -p later && echo 1 > later/a").await?;
    rig.dirty().await?;
    rig.sh("echo 2 > later/a; echo 2 > later/b").await?;
    // Settles the last scan without a new one.
    rig.settle_only().await?;
    ensure_named(&rig, "files are written between scan and settling", &[at("later/a")?, at("later/b")?]).await
}

async fn projected(rig: FileRig) -> CheckFinding {
    ready(&rig).await?;
    rig.project(vec![file("projected/a", "1\n", false)?, file("projected/b", "1\n", false)?]).await?;
    rig.mark_clean().await?;
    rig.project(vec![file("projected/a", "2\n", false)?]).await?;
    rig.sh("echo 3 > projected/a; rm projected/b").await?;
    ensure_named(&rig, "projected files are changed", &[at("projected/a")?, at("projected/b")?]).await?;
    rig.ensure_file("projected/a", b"3\n", false).await
}
