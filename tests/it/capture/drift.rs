//! What somebody changes without the library, between calls and between processes.

use foldspace::Recorded;
use foldspace::event::{DeleteEntry, DriftFound, WriteFile};
use serde_json::json;

use crate::rig::{Kind, Rig, everywhere, walk};

everywhere!(
    drift_is_recorded_before_the_next_call,
    drift_is_found_after_process_ended,
    session_reopened_finds_no_drift,
    populate_restores_lost_files,
    populate_drops_files_never_kept,
);

/// What was written and deleted from outside, by nobody and in no call.
fn paths(events: &[Recorded]) -> (Vec<String>, Vec<String>) {
    let written = events.iter().filter_map(Recorded::typed::<WriteFile>).map(|e| e.unwrap().event.path.to_string());
    let deleted = events.iter().filter_map(Recorded::typed::<DeleteEntry>).map(|e| e.unwrap().event.path.to_string());
    (written.collect(), deleted.collect())
}

/// Changes the files as somebody who does not know of the library.
fn meddle(rig: &Rig) {
    let root = rig.root();
    std::fs::write(root.join("changed"), "by somebody").unwrap();
    std::fs::write(root.join("d/created"), "by somebody").unwrap();
    std::fs::remove_file(root.join("removed")).unwrap();
    std::fs::remove_dir_all(root.join("gone")).unwrap();
}

fn prepared(rig: &Rig) {
    rig.ok("mkdir -p d gone/deep && for f in changed removed kept d/kept gone/deep/f; do echo $f > $f; done");
}

fn drift_is_recorded_before_the_next_call(rig: Rig) {
    prepared(&rig);
    meddle(&rig);
    let step = rig.ok("cat changed && echo more >> kept");
    assert_eq!(step.stdout(), "by somebody");
    let (written, mut deleted) = paths(&step.drift);
    deleted.sort();
    assert_eq!((written.join(" "), deleted.join(" ")), ("changed d/created".to_owned(), "gone removed".to_owned()));
    assert_eq!(step.paths(), (vec!["kept".to_owned()], Vec::new()));
    assert_eq!(rig.ok("true").drift, []);
    // A tool that only looks finds it as well.
    std::fs::write(rig.root().join("kept"), "again").unwrap();
    let step = rig.call("read_file", json!({ "file_path": "kept" }));
    assert!(step.outcome.text.contains("again"), "{}", step.outcome.text);
    assert_eq!(paths(&step.drift).0, ["kept"]);
    rig.verify();
}

fn drift_is_found_after_process_ended(mut rig: Rig) {
    prepared(&rig);
    meddle(&rig);
    let before = rig.session().head().unwrap();
    rig.reopen();
    let found = rig.session().events(before + 1, 100).unwrap();
    let drift: Vec<_> = found.iter().filter(|event| crate::rig::kind(event) != "ContainerStopped").cloned().collect();
    assert!(drift.iter().all(|event| event.call.is_none() && event.agent.is_empty()), "{drift:?}");
    assert_eq!(drift[0].typed::<DriftFound>().unwrap().unwrap().event.entries, 4, "{drift:?}");
    assert_eq!(paths(&drift).0, ["changed", "d/created"]);
    assert_eq!(rig.ok("cat changed").drift, []);
    rig.verify();
}

fn session_reopened_finds_no_drift(mut rig: Rig) {
    prepared(&rig);
    rig.ok("chmod +x kept && ln -s kept link && mkdir empty && mkfifo pipe");
    let (known, head) = (rig.known(), rig.session().head().unwrap());
    rig.reopen();
    assert_eq!(rig.session().events(head + 1, 100).unwrap(), [], "nothing had changed");
    assert_eq!(rig.known(), known);
    let step = rig.ok("cat kept && mv d e");
    assert_eq!((step.drift.len(), step.stdout()), (0, "kept"));
    rig.reopen();
    rig.ok("rm -r e gone && mv kept e");
    rig.verify();
}

fn populate_restores_lost_files(mut rig: Rig) {
    prepared(&rig);
    rig.ok("chmod +x kept && ln -s kept link && mkdir empty && mkfifo pipe && printf '\\0\\377' > bytes");
    let (known, root, head) = (rig.known(), rig.root(), rig.session().head().unwrap());
    let at = if rig.kind() == Kind::Host { root } else { rig.cache() };
    rig.close();
    std::fs::remove_dir_all(at).unwrap();
    rig.reopen();
    assert_eq!(rig.session().events(head + 1, 100).unwrap(), [], "they are the same");
    rig.ok("true");
    assert_eq!((rig.known(), walk(&rig.root())), (known.clone(), known));
    rig.ok("./kept; cat link && rm -r gone");
    rig.verify();
}

/// What can't be made again is missed after a loss, and that is recorded as drift once.
fn populate_drops_files_never_kept(mut rig: Rig) {
    rig.ok("echo kept > kept");
    rig.python("import socket\nsocket.socket(socket.AF_UNIX).bind('socket')\n");
    let (root, head) = (rig.root(), rig.session().head().unwrap());
    let at = if rig.kind() == Kind::Host { root } else { rig.cache() };
    rig.close();
    std::fs::remove_dir_all(at).unwrap();
    rig.reopen();
    let found = rig.session().events(head + 1, 100).unwrap();
    let kinds: Vec<_> = found.iter().map(crate::rig::kind).collect();
    assert_eq!((kinds, paths(&found).1), (vec!["DriftFound", "DeleteEntry"], vec!["socket".to_owned()]), "{found:?}");
    assert_eq!(found[0].typed::<DriftFound>().unwrap().unwrap().event.entries, 1);
    assert!(found.iter().all(|event| event.call.is_none() && event.agent.is_empty()), "{found:?}");
    let head = rig.session().head().unwrap();
    rig.reopen();
    assert_eq!(rig.session().events(head + 1, 100).unwrap(), [], "once is enough");
    let step = rig.ok("ls");
    assert_eq!((step.stdout(), step.drift.len()), ("kept", 0));
    rig.verify();
}
