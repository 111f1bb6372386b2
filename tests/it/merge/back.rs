//! What a child did comes into its parent: whole, once, and with where it comes from.

use std::sync::Arc;

use foldspace::event::{
    ChildLimits, ChildMerged, ConflictKind, DeleteEntry, DriftFound, Isolation, MergeConflicted, MergeSide, WriteFile,
};
use foldspace::reducers::{Children, MergeChoices, Merges};
use foldspace::tools::WorkspaceError;
use foldspace::tools::{MergeOutcome, MergeReport, MountSpec, hydrate, merge_child, preview_merge};
use foldspace::{Event, ForkOptions, Session, ToolRunner, Tools};

use super::{event, path, record};
use crate::rig::{Failing, Fails, Family, Texts, texts};

fn merge(
    family: &Family,
    parent: &ToolRunner,
    child: &ToolRunner,
    choices: &MergeChoices,
) -> Result<MergeReport, WorkspaceError> {
    family.runtime.block_on(merge_child(parent, child.session(), choices))
}

fn merged(family: &Family, parent: &ToolRunner, child: &ToolRunner) -> MergeReport {
    let report = merge(family, parent, child, &MergeChoices::default()).unwrap();
    assert_eq!(report.outcome, MergeOutcome::Merged, "{:?}", report.conflicts);
    report
}

fn choosing(side: MergeSide, place: &str) -> MergeChoices {
    let mut choices = MergeChoices::default();
    choices.choose(path(place), side).unwrap();
    choices
}

fn head(session: &Session) -> u64 {
    session.head().unwrap()
}

/// A parent with three files, and a child that has them, too.
fn parent_and_child(family: &Family) -> (ToolRunner, ToolRunner) {
    let parent = family.founder();
    family.create(&parent, "a.txt", "1\n2\n3\n4\n5\n");
    family.create(&parent, "d/old.txt", "old\n");
    family.create(&parent, "same.txt", "same\n");
    let child = family.child(&parent, "worker", ChildLimits::default());
    (parent, child)
}

#[test]
fn merge_combines_both_sides_with_origins() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&parent, "a.txt", "1\n", "one\n");
    family.create(&parent, "mine.txt", "mine\n");
    family.edit(&child, "a.txt", "5\n", "five\n");
    family.remove(&child, "d");
    family.create(&child, "new/deep.txt", "new\n");
    let (before, child_at) = (head(parent.session()), head(child.session()));

    let preview = preview_merge(parent.session(), child.session(), &MergeChoices::default()).unwrap();
    assert_eq!((head(parent.session()), preview.outcome), (before, MergeOutcome::Merged));
    let report = merged(&family, &parent, &child);
    assert_eq!(preview.merged, report.merged);
    let expected =
        [("a.txt", "one\n2\n3\n4\nfive\n"), ("mine.txt", "mine\n"), ("new/deep.txt", "new\n"), ("same.txt", "same\n")];
    assert_eq!(family.texts_on_host(parent.session()), texts(expected));
    assert_eq!(head(child.session()), child_at, "the child is only read");

    let tells = event::<ChildMerged>(parent.session(), report.seq.unwrap());
    assert_eq!((tells.seq, tells.event.child_at), (before + 1, child_at));
    let mut seq = tells.seq;
    for entry in &tells.event.merged {
        seq += 1;
        let own = parent.session().event(seq).unwrap();
        assert_eq!(own.time, tells.time, "one commit");
        let from = child.session().event(entry.from.unwrap()).unwrap();
        let path_of = |event: &foldspace::Recorded| match event.typed::<DeleteEntry>() {
            Some(gone) => gone.unwrap().event.path,
            None => event.typed::<WriteFile>().unwrap().unwrap().event.path,
        };
        assert_eq!((path_of(&own), path_of(&from)), (entry.path.clone(), entry.path.clone()));
        assert_eq!(own.event.kind, from.event.kind);
    }
    assert_eq!(seq, head(parent.session()));
    assert_eq!(tells.event.merged.iter().filter(|entry| entry.both).count(), 1);
    assert!(parent.session().snapshot().is_ok());
}

#[test]
fn merge_again_brings_only_later_work() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&child, "a.txt", "2\n", "two\n");
    merged(&family, &parent, &child);
    let before = head(parent.session());
    let again = merge(&family, &parent, &child, &MergeChoices::default()).unwrap();
    assert_eq!((again.outcome, again.seq, head(parent.session())), (MergeOutcome::Nothing, None, before));

    // The parent goes on with what it got; the child's next change is merged by what it was then.
    family.edit(&parent, "a.txt", "two\n", "zwei\n");
    family.edit(&child, "a.txt", "5\n", "five\n");
    let report = merged(&family, &parent, &child);
    assert_eq!(report.base, again.child_at);
    assert_eq!(family.texts_on_host(parent.session())["a.txt"], "1\nzwei\n3\n4\nfive\n");
}

#[test]
fn merge_of_equal_changes_writes_no_file() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    for side in [&parent, &child] {
        family.edit(side, "same.txt", "same", "new");
    }
    let report = merged(&family, &parent, &child);
    assert_eq!(report.merged, []);
    // Without that note this would look like a conflict.
    family.edit(&parent, "same.txt", "new", "newer");
    assert_eq!(merge(&family, &parent, &child, &MergeChoices::default()).unwrap().outcome, MergeOutcome::Nothing);
}

#[test]
fn merge_conflict_is_recorded_once_and_resolvable() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&parent, "a.txt", "3\n", "ours\n");
    family.edit(&child, "a.txt", "3\n", "theirs\n");
    family.create(&child, "new.txt", "new\n");
    let (before, shown) = (head(parent.session()), family.texts_on_host(parent.session()));
    let report = merge(&family, &parent, &child, &MergeChoices::default()).unwrap();
    assert_eq!((report.outcome, report.seq), (MergeOutcome::Conflicted, Some(before + 1)));
    assert_eq!(family.texts_on_host(parent.session()), shown, "no file is changed");
    let tells = event::<MergeConflicted>(parent.session(), before + 1).event;
    let [conflict] = &tells.conflicts[..] else { panic!("{tells:?}") };
    assert_eq!((conflict.kind, &conflict.path, conflict.resolved), (ConflictKind::Text, &path("a.txt"), None));
    for (node, text) in [(&conflict.ours, "1\n2\nours\n4\n5\n"), (&conflict.theirs, "1\n2\ntheirs\n4\n5\n")] {
        let Some(foldspace::event::Node::File { content, .. }) = node else { panic!("{node:?}") };
        assert_eq!(parent.session().content(content).unwrap(), text);
    }
    // Nothing is new about it the second time.
    let again = merge(&family, &parent, &child, &choosing(MergeSide::Ours, "same.txt")).unwrap();
    assert_eq!((again.seq, head(parent.session())), (None, before + 1));
    assert_eq!(again.unused, [path("same.txt")]);

    let report = merge(&family, &parent, &child, &choosing(MergeSide::Theirs, "a.txt")).unwrap();
    assert_eq!((report.outcome, report.conflicts[0].resolved), (MergeOutcome::Merged, Some(MergeSide::Theirs)));
    assert_eq!(family.texts_on_host(parent.session())["a.txt"], "1\n2\ntheirs\n4\n5\n");
    let state = parent.session().state().unwrap();
    assert_eq!(state.slice::<Merges>().unwrap().conflicted(child.session().id()), None);
}

#[test]
fn merge_of_two_tested_children_has_no_conflict() {
    let family = Family::on_host();
    let parent = family.founder();
    let children = ["a", "b"].map(|name| {
        family.create(&parent, &format!("{name}.py"), "x = 1\n");
        name
    });
    let children = children.map(|name| (name, family.child(&parent, name, ChildLimits::default())));
    for (name, child) in &children {
        family.edit(child, &format!("{name}.py"), "1", "2");
        for made in ["__pycache__/a.cpython-311.pyc", "__pycache__/b.cpython-311.pyc", ".pytest_cache/v/nodeids"] {
            family.create(child, made, &format!("made by {name}"));
        }
    }
    merged(&family, &parent, &children[0].1);
    let report = merged(&family, &parent, &children[1].1);
    let cached = [".pytest_cache/v/nodeids", "__pycache__/a.cpython-311.pyc", "__pycache__/b.cpython-311.pyc"];
    assert_eq!((report.generated, report.conflicts), (cached.map(path).to_vec(), vec![]));
    let files = family.texts_on_host(parent.session());
    assert_eq!((files["a.py"].as_str(), files["b.py"].as_str()), ("x = 2\n", "x = 2\n"));
    assert_eq!(files["__pycache__/b.cpython-311.pyc"], "made by a", "the parent's stays");
}

#[test]
fn merge_rule_that_fits_nothing_is_an_error() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&child, "a.txt", "3\n", "theirs\n");
    let (before, shown) = (head(parent.session()), family.texts_on_host(parent.session()));
    for rule in ["a.tx", "*.rs", "d/*.md", "b/**"] {
        for (ours, theirs) in [(&[rule][..], &[][..]), (&["a.txt"], &[rule])] {
            let choices = MergeChoices::of_texts(ours, theirs).unwrap();
            let error = merge(&family, &parent, &child, &choices).unwrap_err();
            assert!(matches!(&error, WorkspaceError::UnfitRule(_)), "{error}");
            assert!(error.to_string().contains(&format!("`{rule}`")), "{error}");
            assert!(preview_merge(parent.session(), child.session(), &choices).is_err());
        }
    }
    assert_eq!((head(parent.session()), family.texts_on_host(parent.session())), (before, shown));
    // What fits an entry need not decide a conflict.
    let choices = MergeChoices::of_texts(&["/", "*.txt", "d"], &["d/*.txt"]).unwrap();
    let report = merge(&family, &parent, &child, &choices).unwrap();
    assert_eq!((report.outcome, report.unused.len()), (MergeOutcome::Merged, 4));
}

#[test]
fn merge_resolution_for_parent_stays() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&parent, "a.txt", "3\n", "ours\n");
    family.edit(&child, "a.txt", "3\n", "theirs\n");
    let report = merge(&family, &parent, &child, &choosing(MergeSide::Ours, "/")).unwrap();
    assert_eq!((report.outcome, report.merged.len()), (MergeOutcome::Merged, 0));
    family.edit(&child, "a.txt", "5\n", "five\n");
    merged(&family, &parent, &child);
    assert_eq!(family.texts_on_host(parent.session())["a.txt"], "1\n2\nours\n4\nfive\n");
}

#[test]
fn merge_on_full_disk_changes_nothing() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.create(&child, "new.txt", "new\n");
    let session = parent.session().clone();
    drop(parent);
    let disk = Failing::new(family.workspace(&session));
    let parent = ToolRunner::new(session.clone(), Tools::standard(), Arc::clone(&disk) as Arc<_>).unwrap();
    let (before, shown) = (head(&session), family.texts_on_host(&session));
    disk.set(Fails::AtOnce);
    let error = merge(&family, &parent, &child, &MergeChoices::default()).unwrap_err();
    assert!(matches!(error, WorkspaceError::Backend(_)), "{error}");
    assert_eq!((head(&session), family.texts_on_host(&session)), (before, shown));
    disk.set(None);
    merged(&family, &parent, &child);
    assert_eq!(family.texts_on_host(&session)["new.txt"], "new\n");
}

#[test]
fn merge_of_dying_process_leaves_recorded_state() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&child, "a.txt", "1\n", "one\n");
    family.edit(&child, "same.txt", "same", "new");
    let session = parent.session().clone();
    drop(parent);
    let disk = Failing::new(family.workspace(&session));
    let parent = ToolRunner::new(session.clone(), Tools::standard(), Arc::clone(&disk) as Arc<_>).unwrap();
    let before = head(&session);
    disk.set(Fails::DyingHalfway);
    assert!(merge(&family, &parent, &child, &MergeChoices::default()).is_err());
    drop((parent, disk));
    // Half a merge lies on the disk; it is nobody's change.
    let parent = family.open(&session);
    assert_eq!((head(&session), family.texts_on_host(&session)["a.txt"].as_str()), (before, "1\n2\n3\n4\n5\n"));
    merged(&family, &parent, &child);
    assert_eq!(family.texts_on_host(&session)["a.txt"], "one\n2\n3\n4\n5\n");
}

#[test]
fn merge_of_full_child_counts_its_first_files() {
    let family = Family::on_host();
    let parent = family.founder();
    let child = family.start(&parent, ForkOptions::new(Isolation::Full));
    let session = child.session().clone();
    drop(child);
    std::fs::write(family.files_of(&session).join("early.txt"), "early").unwrap();
    let child = family.open(&session);
    family.create(&child, "late.txt", "late");
    assert_eq!(merged(&family, &parent, &child).merged.len(), 2);
    assert_eq!(family.texts_on_host(parent.session()), texts([("early.txt", "early"), ("late.txt", "late")]));
}

#[test]
fn merge_side_choice_keeps_clean_lines() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&parent, "a.txt", "1\n2\n3\n", "one\n2\nours\n");
    family.edit(&child, "a.txt", "3\n4\n5\n", "theirs\n4\nfive\n");
    let report = merge(&family, &parent, &child, &choosing(MergeSide::Theirs, "a.txt")).unwrap();
    assert_eq!((report.outcome, report.conflicts[0].resolved), (MergeOutcome::Merged, Some(MergeSide::Theirs)));
    assert_eq!(family.texts_on_host(parent.session())["a.txt"], "one\n2\ntheirs\n4\nfive\n");
}

#[test]
fn merge_goes_to_grandparent_when_parent_is_gone() {
    let family = Family::on_host();
    let (top, middle) = parent_and_child(&family);
    let low = family.child(&middle, "low", ChildLimits::default());
    // Its past ends before the one that was removed began.
    let early = family.start(&middle, ForkOptions { at: Some(5), ..ForkOptions::new(Isolation::Fork) });
    family.create(&low, "low.txt", "low\n");
    family.create(&early, "early.txt", "early\n");
    let id = middle.session().id();
    drop(middle);
    family.sessions.remove(id).unwrap();
    assert_eq!(merged(&family, &top, &low).base, 10);
    assert_eq!(merged(&family, &top, &early).base, 5);
    let other = family.sessions.create(foldspace::NewSession::named("other")).unwrap();
    let stranger = preview_merge(&other, low.session(), &MergeChoices::default());
    assert!(matches!(stranger, Err(WorkspaceError::NotAChild { .. })), "{stranger:?}");
}

#[test]
fn merge_again_after_rewind() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.create(&child, "new.txt", "new\n");
    let before = head(parent.session());
    merged(&family, &parent, &child);
    family.runtime.block_on(parent.rewind(before, foldspace::tools::RewindOptions::default())).unwrap();
    assert_eq!(family.texts_on_host(parent.session()).len(), 3);
    merged(&family, &parent, &child);
    assert_eq!(family.texts_on_host(parent.session()).len(), 4);
}

#[test]
fn merge_counts_drift_of_parent() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&child, "same.txt", "same", "the child's");
    std::fs::write(family.files_of(parent.session()).join("same.txt"), "by hand\n").unwrap();
    let before = head(parent.session());
    let report = merge(&family, &parent, &child, &MergeChoices::default()).unwrap();
    assert_eq!(report.outcome, MergeOutcome::Conflicted);
    assert_eq!(event::<DriftFound>(parent.session(), before + 1).event.entries, 1);
    assert_eq!(family.texts_on_host(parent.session())["same.txt"], "by hand\n");
}

#[test]
fn merge_of_other_session_is_refused() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    let merge = |parent: &ToolRunner, child: &ToolRunner| merge(&family, parent, child, &MergeChoices::default());
    assert!(matches!(merge(&child, &parent), Err(WorkspaceError::NotAChild { .. })));
    assert!(matches!(merge(&parent, &parent), Err(WorkspaceError::Itself(_))));
    let other = family.child(&parent, "other", ChildLimits::default());
    assert!(matches!(merge(&other, &child), Err(WorkspaceError::NotAChild { .. })));
}

#[test]
fn merge_respects_parent_limits() {
    let family = Family::on_host();
    let top = family.founder();
    let parent = family.child(&top, "middle", ChildLimits { bytes_written: Some(10), ..ChildLimits::default() });
    family.create(&parent, "own.txt", "123456");
    let child = family.child(&parent, "worker", ChildLimits::default());
    family.create(&child, "new.txt", "12");
    family.create(&parent, "more.txt", "123");
    let before = head(parent.session());
    let error = merge(&family, &parent, &child, &MergeChoices::default()).unwrap_err().to_string();
    assert!(error.contains("may write 1 more byte"), "{error}");
    assert_eq!((head(parent.session()), family.texts_on_host(parent.session()).len()), (before, 2));
    family.edit(&child, "new.txt", "12", "1");
    assert_eq!(merged(&family, &parent, &child).merged.len(), 1);
}

#[test]
fn merge_of_memory_child_writes_workspace() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    record(child.session(), "deep/er/x", b"\0\xff");
    let report = merged(&family, &parent, &child);
    let [change] = &report.merged[..] else { panic!("{report:?}") };
    assert_eq!((change.change.as_ref(), &change.entry.path), ("added", &path("deep/er/x")));
    assert_eq!(std::fs::read(family.files_of(parent.session()).join("deep/er/x")).unwrap(), b"\0\xff");
    let kinds = parent.session().events(report.seq.unwrap(), 9).unwrap();
    let kinds: Vec<_> = kinds.iter().map(|event| event.event.kind.to_string()).collect();
    assert_eq!(kinds, [ChildMerged::KIND, WriteFile::KIND]);
}

#[test]
fn merge_of_full_child_uses_mounts_as_base() {
    let family = Family::on_host();
    let parent = family.founder();
    let source = family.path().join("source");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("a.txt"), "1\n2\n3\n").unwrap();
    let mounts = [MountSpec { host_path: source, ..MountSpec::default() }];
    let roots = family.forker().roots;
    family.runtime.block_on(hydrate(parent.session(), parent.workspace().as_ref(), &mounts, &roots)).unwrap();
    family.edit(&parent, "a.txt", "1\n", "one\n");
    let limits = ChildLimits { bytes_written: Some(20), ..ChildLimits::default() };
    let child = family.start(&parent, ForkOptions { limits, ..ForkOptions::new(Isolation::Full) });
    assert_eq!(family.texts_on_host(child.session()), texts([("a.txt", "1\n2\n3\n")]));
    family.edit(&child, "a.txt", "3\n", "three\n");
    family.create(&child, "b", "0123456789");
    merged(&family, &parent, &child);
    assert_eq!(family.texts_on_host(parent.session()), texts([("a.txt", "one\n2\nthree\n"), ("b", "0123456789")]));
}

#[test]
fn merge_of_grandchild_into_either_ancestor() {
    let family = Family::on_host();
    let (top, middle) = parent_and_child(&family);
    family.edit(&middle, "same.txt", "same", "of the middle");
    let low = family.child(&middle, "low", ChildLimits::default());
    family.create(&low, "low.txt", "low\n");
    // The top has nothing of the middle's own work but what the grandchild brings.
    let report = merged(&family, &top, &low);
    assert_eq!(report.base, 10, "what all three have of the past");
    assert_eq!(
        family.texts_on_host(top.session()).into_iter().skip(2).collect::<Texts>(),
        texts([("low.txt", "low\n"), ("same.txt", "of the middle\n")])
    );
    merged(&family, &middle, &low);
    assert_eq!(merged(&family, &top, &middle).merged, [], "it has all of it already");
}

#[test]
fn merge_base_of_fork_includes_earlier_merges() {
    let family = Family::on_host();
    let (parent, child) = parent_and_child(&family);
    family.edit(&child, "a.txt", "3\n", "three\n");
    merged(&family, &parent, &child);
    let other = family.child(&parent, "other", ChildLimits::default());
    let state = other.session().state().unwrap();
    let merges = state.slice::<Merges>().unwrap();
    assert!(merges.last_merge(child.session().id()).is_some());
    assert_eq!(state.slice::<Children>().unwrap().iter().count(), 0);
}
