//! The merge compared with a plain model on random trees, and each kind of conflict separately.

use std::collections::BTreeMap;
use std::convert::Infallible;

use proptest::prelude::*;

use super::text::MERGED_LINES_MAX;
use super::*;
use crate::engine::clock::Timestamp;
use crate::engine::event::{DeleteEntry, FileMode, Special, WriteFile};

/// A tree that is built entry by entry.
#[derive(Clone, Default)]
struct Tree {
    files: VirtualFileSystem,
    contents: BTreeMap<Digest, Bytes>,
}

impl Tree {
    fn put(mut self, path: &str, node: Node) -> Self {
        let path = EntryPath::lookup(path).unwrap();
        self.files.write(&WriteFile { path, mode: WriteMode::Create, node }, Timestamp(0));
        self
    }

    fn file(mut self, path: &str, text: &str) -> Self {
        self.contents.insert(Digest::of(text.as_bytes()), Bytes::copy_from_slice(text.as_bytes()));
        self.put(path, Node::file(text.as_bytes(), false))
    }

    fn script(mut self, path: &str, text: &str) -> Self {
        self.contents.insert(Digest::of(text.as_bytes()), Bytes::copy_from_slice(text.as_bytes()));
        self.put(path, Node::file(text.as_bytes(), true))
    }

    fn directory(self, path: &str) -> Self {
        self.put(path, Node::DIRECTORY)
    }

    fn link(self, path: &str, target: &str) -> Self {
        self.put(path, Node::Symlink { target: target.into() })
    }

    fn without(mut self, path: &str) -> Self {
        self.files.delete(&DeleteEntry { path: EntryPath::lookup(path).unwrap() });
        self
    }

    fn shown(&self) -> BTreeMap<String, Node> {
        self.files.iter().map(|(path, entry)| (path.to_string(), entry.node.clone())).collect()
    }
}

fn planned(base: &Tree, ours: &Tree, theirs: &Tree, choices: &MergeChoices) -> MergePlan {
    let read = |digest: &Digest| {
        let known = [base, ours, theirs].into_iter().find_map(|tree| tree.contents.get(digest));
        Ok::<_, Infallible>(known.cloned().unwrap())
    };
    let Ok(plan) = plan_merge(&base.files, &ours.files, &theirs.files, choices, read);
    plan
}

/// Returns the parent's files after the steps. Each step must be possible on a disk.
fn after(ours: &Tree, plan: &MergePlan) -> BTreeMap<String, Node> {
    let mut files = ours.files.clone();
    for step in &plan.steps {
        match step {
            MergeStep::Delete { path } => {
                assert!(files.get(path).is_some(), "{path} is not there to go");
                files.delete(&DeleteEntry { path: path.clone() });
            }
            MergeStep::Write { path, mode, node, merged } => {
                assert_eq!(*mode == WriteMode::Create, ours.files.get(path).is_none(), "{path}");
                if let (Some(bytes), Node::File { mode, .. }) = (merged, node) {
                    assert_eq!(*node, Node::file_with(bytes, *mode));
                }
                files.write(&WriteFile { path: path.clone(), mode: *mode, node: node.clone() }, Timestamp(1));
            }
        }
    }
    Tree { files, contents: BTreeMap::new() }.shown()
}

fn choosing(side: MergeSide) -> MergeChoices {
    let mut choices = MergeChoices::default();
    choices.choose(EntryPath::root(), side).unwrap();
    choices
}

fn conflicts(base: &Tree, ours: &Tree, theirs: &Tree) -> Vec<(String, ConflictKind)> {
    let plan = planned(base, ours, theirs, &MergeChoices::default());
    plan.conflicts.iter().map(|conflict| (conflict.path.to_string(), conflict.kind)).collect()
}

/// Checks for one conflict of that kind at that path, and that both choices have their effect.
fn check_conflict(base: &Tree, ours: &Tree, theirs: &Tree, path: &str, kind: ConflictKind) {
    assert_eq!(conflicts(base, ours, theirs), [(path.to_owned(), kind)]);
    let kept = planned(base, ours, theirs, &choosing(MergeSide::Ours));
    assert_eq!(kept.open().count(), 0);
    let (kept, ours_shown) = (after(ours, &kept), ours.shown());
    assert_eq!(kept.get(path), ours_shown.get(path), "ours");
    let taken = planned(base, ours, theirs, &choosing(MergeSide::Theirs));
    assert_eq!(taken.open().count(), 0);
    assert_eq!(after(ours, &taken).get(path), theirs.shown().get(path), "theirs");
}

#[test]
fn merge_conflict_has_kind_and_both_choices() {
    use ConflictKind as Kind;
    let base =
        Tree::default().file("d/a", "1\n2\n3\n").file("d/b", "b").file("bin", "\0").link("l", "a").file("x", "x");
    let check = |ours: &Tree, theirs: &Tree, path: &str, kind| check_conflict(&base, ours, theirs, path, kind);
    let of = || base.clone();
    check(&of().file("d/a", "1\nX\n3\n"), &of().file("d/a", "1\nY\n3\n"), "d/a", Kind::Text);
    check(&of().file("bin", "\0\x01"), &of().file("bin", "\0\x02"), "bin", Kind::Binary);
    check(&of().file("new", "1"), &of().file("new", "2"), "new", Kind::Added);
    check(&of().file("new", "1"), &of().script("new", "1"), "new", Kind::Mode);
    check(&of().link("l", "b"), &of().link("l", "c"), "l", Kind::Link);
    check(&of().without("d/a"), &of().file("d/a", "new"), "d/a", Kind::DeletedByOurs);
    check(&of().file("d/a", "new"), &of().without("d/a"), "d/a", Kind::DeletedByTheirs);
    check(&of().file("d/a", "new"), &of().without("d"), "d/a", Kind::DeletedByTheirs);
    check(&of().without("d"), &of().file("d/n/m", "new"), "d/n/m", Kind::DirectoryDeletedByOurs);
    check(&of().without("d"), &of().directory("d/n"), "d/n", Kind::DirectoryDeletedByOurs);
    check(&of().file("d/n/m", "new"), &of().without("d"), "d/n/m", Kind::DirectoryDeletedByTheirs);
    check(&of().directory("d/n"), &of().without("d"), "d/n", Kind::DirectoryDeletedByTheirs);
    check(&of().file("d/n", "new"), &of().file("d", "a file"), "d", Kind::Kind);
    check(&of().file("d", "a file"), &of().file("d/n", "new"), "d", Kind::Kind);
    check(&of().file("n", "a file"), &of().file("n/m", "new"), "n", Kind::Kind);
    check(&of().file("n/m", "new"), &of().file("n", "a file"), "n", Kind::Kind);
    check(&of().without("x").file("x/y", "new"), &of().file("x", "X"), "x", Kind::Kind);
    check(&of().without("x").file("x/y", "new"), &of().without("x"), "x", Kind::Kind);
    check(&of().without("x"), &of().without("x").file("x/y", "new"), "x", Kind::Kind);
    check(&of().link("x", "l"), &of().file("x", "X"), "x", Kind::Kind);
}

#[test]
fn merge_of_separate_changes_is_clean() {
    let base = Tree::default().file("a", "1\n2\n3\n4\n").file("d/x", "x").file("d/e/y", "y").script("run", "1\n2\n3\n");
    let ours = base.clone().file("a", "one\n2\n3\n4\n").without("d/x").file("run", "1\n2\n3\n").file("ours", "new");
    let theirs =
        base.clone().file("a", "1\n2\n3\nfour\n").without("d").script("run", "1\n2\nthree\n").directory("n/m/o");
    let plan = planned(&base, &ours, &theirs, &MergeChoices::default());
    assert_eq!(plan.conflicts, []);
    let expected = Tree::default().file("a", "one\n2\n3\nfour\n").file("run", "1\n2\nthree\n").file("ours", "new");
    assert_eq!(after(&ours, &plan), expected.directory("n/m/o").shown());
    let paths: Vec<String> = plan.steps.iter().map(|step| step.path().to_string()).collect();
    assert_eq!(paths, ["d", "a", "n/m/o", "run"]);
}

#[test]
fn merge_keeps_directory_with_contents() {
    let base = Tree::default().file("d/a", "a").file("d/b", "b").file("d/e/c", "c");
    let (ours, theirs) = (base.clone().file("d/a", "changed"), base.clone().without("d"));
    let plan = planned(&base, &ours, &theirs, &choosing(MergeSide::Ours));
    assert_eq!(after(&ours, &plan), Tree::default().file("d/a", "changed").shown());
    let plan = planned(&base, &ours, &theirs, &choosing(MergeSide::Theirs));
    assert_eq!((after(&ours, &plan).len(), plan.steps.len()), (0, 1));
}

#[test]
fn merge_swaps_directory_and_file() {
    let base = Tree::default().file("d/a", "a").file("d/e/b", "b").file("f", "f");
    let theirs = base.clone().file("d", "now a file").without("f").file("f/g", "now in a directory");
    let plan = planned(&base, &base, &theirs, &MergeChoices::default());
    assert_eq!((after(&base, &plan), plan.conflicts.len()), (theirs.shown(), 0));
    assert!(plan.steps.iter().all(|step| matches!(step, MergeStep::Write { .. })));
}

fn incomplete(content: [u8; 32], size: u64) -> Node {
    Node::File { content: Digest::from_bytes(content), size, mode: FileMode::FILE, text: false, incomplete: true }
}

#[test]
fn merge_of_unkept_file_keeps_parent() {
    let base = Tree::default().file("big", "small").put("old", incomplete([3; 32], 9));
    let theirs = base.clone().put("big", incomplete([7; 32], 1 << 30));
    assert_eq!(conflicts(&base, &base, &theirs), [("big".to_owned(), ConflictKind::Incomplete)]);
    assert_eq!(planned(&base, &base, &theirs, &choosing(MergeSide::Theirs)).open().count(), 1);
    let kept = planned(&base, &base, &theirs, &choosing(MergeSide::Ours));
    assert_eq!((kept.open().count(), kept.steps.len()), (0, 0));
    // An unchanged child's side never conflicts.
    let ours = base.clone().put("big", incomplete([7; 32], 1 << 30)).put("old", incomplete([4; 32], 8));
    assert_eq!(conflicts(&base, &ours, &base), []);
    assert_eq!(conflicts(&base, &ours, &theirs), [], "the same contents, although they are not stored");
    let unread = base.clone().put("big", incomplete([0; 32], 5));
    assert_eq!(conflicts(&base, &unread, &unread), [("big".to_owned(), ConflictKind::Incomplete)]);
}

#[test]
fn merge_leaves_special_files_out() {
    let socket = || Node::Special { special: Special::Socket };
    let base = Tree::default().file("a", "a").put("old", socket());
    let theirs = base.clone().put("new", socket()).put("a", socket()).without("old");
    let plan = planned(&base, &base, &theirs, &choosing(MergeSide::Ours));
    assert_eq!(plan.left_out, ["new", "old"].map(|name| EntryPath::lookup(name).unwrap()));
    assert_eq!(plan.conflicts.len(), 1);
    // A child without "old" may never have had it.
    assert_eq!(after(&base, &plan), base.shown());
    assert!(!planned(&base, &base, &base.clone().without("old"), &MergeChoices::default()).has_changes);
    // A pipe can be created anywhere.
    let theirs = base.clone().put("pipe", Node::Special { special: Special::Fifo });
    let plan = planned(&base, &base, &theirs, &MergeChoices::default());
    assert_eq!((plan.left_out.len(), after(&base, &plan)), (0, theirs.shown()));
}

#[test]
fn merge_of_large_text_is_not_by_lines() {
    let long = |first: &str| format!("{first}\n{}", "line\n".repeat(MERGED_LINES_MAX));
    let base = Tree::default().file("a", &long("1"));
    let (ours, theirs) =
        (Tree::default().file("a", &long("2")), Tree::default().file("a", &format!("{}end\n", long("1"))));
    assert_eq!(conflicts(&base, &ours, &theirs), [("a".to_owned(), ConflictKind::Large)]);
}

fn with_files(tree: &Tree, paths: &[&str], text: &str) -> Tree {
    paths.iter().fold(tree.clone(), |tree, path| tree.file(path, text))
}

fn generated(plan: &MergePlan) -> Vec<String> {
    plan.generated.iter().map(ToString::to_string).collect()
}

#[test]
fn merge_of_generated_files_keeps_parent() {
    let rules = Tree::default().file(".gitignore", "*.log\n/out/\n!keep.log\n").file("web/.gitignore", "dist\n");
    let base = rules.file(".git/info/exclude", "/notes\n").file("src/a.py", "1");
    let made = [
        ".coverage",
        ".pytest_cache/v/lastfailed",
        "out/deep/y",
        "notes",
        "reports/r.html",
        "src/__pycache__/a.cpython-311.pyc",
        "src/old.pyc",
        "web/dist/z",
        "x.log",
    ];
    let other = ["dist/z", "keep.log", "log", "src/b.py"];
    let choices = MergeChoices::default().with_generated(&["reports/**"]).unwrap();
    let ours = with_files(&base, &made, "parent's");
    let theirs = with_files(&base, &made, "child's").file("only/c.pyc", "new").file("src/a.py", "2");
    let plan = planned(&base, &ours, &theirs, &choices);
    let (mut expected, taken) = (made.to_vec(), ours.clone().file("only/c.pyc", "new").file("src/a.py", "2"));
    expected.sort_unstable();
    assert_eq!(
        (plan.conflicts.clone(), generated(&plan)),
        (vec![], expected.iter().map(ToString::to_string).collect())
    );
    assert_eq!(after(&ours, &plan), taken.shown());
    let (ours, theirs) = (with_files(&base, &other, "parent's"), with_files(&base, &other, "child's"));
    let plan = planned(&base, &ours, &theirs, &choices);
    assert_eq!((plan.conflicts.len(), generated(&plan)), (other.len(), vec![]));
    let as_others = planned(
        &base,
        &with_files(&base, &made, "a"),
        &with_files(&base, &made, "b"),
        &MergeChoices::without_generated(),
    );
    assert_eq!((as_others.conflicts.len(), generated(&as_others)), (made.len(), vec![]));
}

#[test]
fn merge_of_generated_files_follows_choice() {
    let (path, base) = ("__pycache__/a.pyc", Tree::default());
    let (ours, theirs) = (base.clone().file(path, "parent's"), base.clone().file(path, "child's"));
    for rule in ["*.pyc", "__pycache__", "/", path] {
        let choices = MergeChoices::of_texts(&[], &[rule]).unwrap();
        let plan = planned(&base, &ours, &theirs, &choices);
        assert_eq!((plan.open().count(), generated(&plan), after(&ours, &plan)), (0, vec![], theirs.shown()), "{rule}");
    }
}

#[test]
fn merge_of_generated_files_in_changed_places_keeps_parent() {
    let base = Tree::default().file("d/a.py", "a").file("d/__pycache__/a.pyc", "1").file("e", "e");
    let tested = base.clone().file("d/__pycache__/a.pyc", "2").file("d/__pycache__/b.pyc", "2");
    for ours in [base.clone().without("d"), base.clone().without("d").file("d", "a file")] {
        let plan = planned(&base, &ours, &tested, &MergeChoices::default());
        assert_eq!((plan.conflicts.as_slice(), after(&ours, &plan)), (&[][..], ours.shown()));
    }
    let plan = planned(&base, &tested, &base.clone().without("d"), &MergeChoices::default());
    assert_eq!((plan.conflicts.as_slice(), after(&tested, &plan)), (&[][..], tested.clone().without("d/a.py").shown()));
}

/// A change of a tree.
#[derive(Debug, Clone)]
enum Edit {
    File(&'static str, u8, bool),
    Text(&'static str, u8, u8),
    Link(&'static str, u8),
    Directory(&'static str),
    Remove(&'static str),
}

const PATHS: [&str; 12] = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "d/e/b", "f", "f/a", "f/g/h", "a/x"];
const LINES: u8 = 9;

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let path = || proptest::sample::select(&PATHS[..]);
    let edit = prop_oneof![
        (path(), 0..3_u8, any::<bool>()).prop_map(|(path, content, executable)| Edit::File(path, content, executable)),
        (path(), 0..LINES, 0..3_u8).prop_map(|(path, line, word)| Edit::Text(path, line, word)),
        (path(), 0..2_u8).prop_map(|(path, target)| Edit::Link(path, target)),
        path().prop_map(Edit::Directory),
        path().prop_map(Edit::Remove),
    ];
    proptest::collection::vec(edit, 0..10)
}

fn edited(mut tree: Tree, edits: &[Edit]) -> Tree {
    for edit in edits {
        tree = match edit {
            Edit::File(path, content, true) => tree.script(path, &format!("\0{content}")),
            Edit::File(path, content, false) => tree.file(path, &format!("\0{content}")),
            Edit::Text(path, line, word) => {
                let known = match tree.files.get(&EntryPath::lookup(path).unwrap()).map(|entry| &entry.node) {
                    Some(Node::File { content, text: true, .. }) => tree.contents.get(content).cloned(),
                    _ => None,
                };
                let known = known.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
                let known = known.unwrap_or_else(|| (0..LINES).map(|line| format!("line {line}\n")).collect());
                let lines = known.lines().enumerate();
                let changed = |(at, old): (usize, &str)| match at == usize::from(*line) {
                    true => format!("line {line} says {word}\n"),
                    false => format!("{old}\n"),
                };
                let text: String = lines.map(changed).collect();
                tree.file(path, &text)
            }
            Edit::Link(path, target) => tree.link(path, &format!("to-{target}")),
            Edit::Directory(path) => tree.directory(path),
            Edit::Remove(path) => tree.without(path),
        };
    }
    tree
}

/// Applies the plain rule to one path: the side that changed it decides; `None` if both changed it differently.
fn simple(base: Option<&Node>, ours: Option<&Node>, theirs: Option<&Node>) -> Option<Option<Node>> {
    let chosen = match (ours == base, theirs == base) {
        (true, _) => theirs,
        (_, true) => ours,
        _ if ours == theirs => ours,
        _ => return None,
    };
    Some(chosen.cloned())
}

fn is_file(node: Option<&Node>) -> bool {
    matches!(node, Some(Node::File { .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn merge_equals_plain_rule(common in edits(), own in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let (ours, theirs) = (edited(base.clone(), &own), edited(base.clone(), &childs));
        let plan = planned(&base, &ours, &theirs, &MergeChoices::default());
        let places: Vec<EntryPath> = plan.conflicts.iter().map(|conflict| conflict.path.clone()).collect();
        let is_near = |path: &EntryPath| places.iter().any(|place| place == path || path.is_below(place) || place.is_below(path));
        let result = after(&ours, &plan);
        let (base_nodes, our_nodes, their_nodes) = (base.shown(), ours.shown(), theirs.shown());
        let all = base_nodes.keys().chain(our_nodes.keys()).chain(their_nodes.keys());
        for text in all {
            if is_near(&EntryPath::lookup(text).unwrap()) {
                continue;
            }
            let (base, ours, theirs) = (base_nodes.get(text), our_nodes.get(text), their_nodes.get(text));
            match simple(base, ours, theirs) {
                Some(expected) => prop_assert_eq!(result.get(text), expected.as_ref(), "{}", text),
                None => {
                    prop_assert!([base, ours, theirs].into_iter().all(is_file), "{} is no conflict", text);
                    prop_assert!(is_file(result.get(text)));
                }
            }
        }
    }

    #[test]
    fn merge_choice_of_one_side_for_all(common in edits(), own in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let (ours, theirs) = (edited(base.clone(), &own), edited(base.clone(), &childs));
        for side in [MergeSide::Ours, MergeSide::Theirs] {
            let plan = planned(&base, &ours, &theirs, &choosing(side));
            prop_assert_eq!(plan.open().count(), 0);
            let result = after(&ours, &plan);
            let chosen = if side == MergeSide::Ours { ours.shown() } else { theirs.shown() };
            // In a text, only lines are chosen.
            for conflict in plan.conflicts.iter().filter(|conflict| conflict.kind != ConflictKind::Text) {
                let path = conflict.path.to_string();
                prop_assert_eq!(result.get(&path), chosen.get(&path), "{} by {:?}", path, side);
            }
        }
    }

    #[test]
    fn merge_conflicts_only_where_both_changed(common in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let theirs = edited(base.clone(), &childs);
        let one_sided = planned(&base, &base, &theirs, &MergeChoices::default());
        prop_assert_eq!(&one_sided.conflicts, &[]);
        prop_assert_eq!(after(&base, &one_sided), theirs.shown());
        let nothing_new = planned(&base, &theirs, &base, &MergeChoices::default());
        prop_assert_eq!(nothing_new, MergePlan::default());
        let both_alike = planned(&base, &theirs, &theirs, &MergeChoices::default());
        prop_assert!(both_alike.conflicts.is_empty() && both_alike.steps.is_empty());
    }

    #[test]
    fn merge_of_generated_files_never_conflicts(common in edits(), own in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let (ours, theirs) = (edited(base.clone(), &own), edited(base.clone(), &childs));
        let choices = MergeChoices::default().with_generated(&["d", "f/*"]).unwrap();
        let plan = planned(&base, &ours, &theirs, &choices);
        let is_generated = |path: &EntryPath| path.segments().next() == Some(b"d") || path.as_bytes().starts_with(b"f/");
        prop_assert!(!plan.conflicts.iter().any(|conflict| is_generated(&conflict.path)), "{:?}", plan.conflicts);
        prop_assert!(plan.generated.iter().all(is_generated));
        let (result, shown) = (after(&ours, &plan), ours.shown());
        let is_open = |path: &EntryPath| plan.conflicts.iter().any(|conflict| path.is_below(&conflict.path));
        let kept = plan.generated.iter().filter(|path| !is_open(path)).map(ToString::to_string);
        for path in kept.filter(|path| shown.contains_key(path)) {
            prop_assert_eq!(result.get(&path), shown.get(&path), "{}", path);
        }
    }

    #[test]
    fn merge_again_is_empty(common in edits(), own in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let (ours, theirs) = (edited(base.clone(), &own), edited(base.clone(), &childs));
        let plan = planned(&base, &ours, &theirs, &choosing(MergeSide::Theirs));
        let again = planned(&theirs, &ours, &theirs, &MergeChoices::default());
        prop_assert_eq!(again, MergePlan::default());
        // Whatever was chosen, the child's later changes count from here.
        prop_assert_eq!(plan.has_changes, base.shown() != theirs.shown());
    }

    #[test]
    fn merge_of_swapped_sides_has_same_conflicts(common in edits(), own in edits(), childs in edits()) {
        let base = edited(Tree::default(), &common);
        let (ours, theirs) = (edited(base.clone(), &own), edited(base.clone(), &childs));
        let paths = |ours: &Tree, theirs: &Tree| {
            let plan = planned(&base, ours, theirs, &MergeChoices::default());
            plan.conflicts.into_iter().map(|conflict| conflict.path).collect::<Vec<_>>()
        };
        prop_assert_eq!(paths(&ours, &theirs), paths(&theirs, &ours));
    }
}
