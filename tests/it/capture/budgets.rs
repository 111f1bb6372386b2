//! Files and steps over the budget: noted with digest and size, not kept.

use foldspace::EntryPath;
use foldspace::event::{Digest, FileMode, Node};
use foldspace::tools::CaptureBudget;

use crate::rig::{Kind, Rig};

const SMALL: CaptureBudget = CaptureBudget { file_bytes: 1000, step_bytes: 3000, digest_bytes: 1 << 30 };

fn node(rig: &Rig, path: &str) -> Node {
    rig.slice().get(&EntryPath::lookup(path).unwrap()).unwrap_or_else(|| panic!("{path} is not known")).node.clone()
}

/// What a file of that many letters is.
fn letters(count: usize, incomplete: bool) -> Node {
    let bytes = vec![b'x'; count];
    let content = Digest::of(&bytes);
    Node::File { content, size: count as u64, mode: FileMode::FILE, text: true, incomplete }
}

fn write(names: &str, count: usize) -> String {
    format!("for n in '{names}'.split():\n    open(n, 'w').write('x' * {count})\n")
}

/// Whoever opens a session looks with the budget that is usual.
fn reopened_without_drift(rig: &mut Rig) {
    let head = rig.session().head().unwrap();
    rig.reopen();
    assert_eq!(rig.session().events(head + 1, 100).unwrap(), []);
    assert_eq!(rig.ok("true").drift, []);
}

fn file_over_budget_is_recorded_without_content(mut rig: Rig) {
    rig.python(&write("large", 1001));
    rig.python(&write("fits", 1000));
    assert_eq!((node(&rig, "large"), node(&rig, "fits")), (letters(1001, true), letters(1000, false)));
    assert!(rig.session().content(&Digest::of(&[b'x'; 1001])).is_err());
    assert!(rig.session().content(&Digest::of(&[b'x'; 1000])).is_ok());
    let read = rig.bare("read_file", serde_json::json!({ "file_path": "large" }));
    assert!(!read.is_ok() && read.text.contains("over the budget"), "{}", read.text);
    // Nobody has changed anything since.
    assert_eq!(rig.ok("true").drift, []);
    assert_eq!(rig.ok("touch large").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("mv large other").paths(), (vec!["other".to_owned()], vec!["large".to_owned()]));
    assert_eq!(node(&rig, "other"), letters(1001, true));
    rig.ok("chmod +x other && cp other again");
    reopened_without_drift(&mut rig);
    rig.ok("truncate -s 1000 again");
    assert_eq!(node(&rig, "again").clone(), Node::file(&[b'x'; 1000], true));
    rig.verify();
}

fn call_over_budget_is_recorded_without_contents(mut rig: Rig) {
    let program = "for n in range(8):\n    open(str(n), 'w').write(str(n) * 900)\n";
    rig.python(program);
    let incomplete =
        (0..8).filter(|n| matches!(node(&rig, &n.to_string()), Node::File { incomplete: true, size: 900, .. })).count();
    assert_eq!(incomplete, 5, "three of them fit");
    // What was over it stays so until somebody changes it.
    assert_eq!(rig.ok("true").drift, []);
    reopened_without_drift(&mut rig);
    rig.ok("echo more >> 7");
    assert!(matches!(node(&rig, "7"), Node::File { incomplete: false, size: 905, .. }));
    rig.verify();
}

macro_rules! with_a_small_budget {
    ($kind:ident, $name:ident) => {
        mod $name {
            use crate::rig::{Kind, Rig};

            #[test]
            fn file_over_budget_is_recorded_without_content() {
                let Some(rig) = Rig::with_budget(Kind::$kind, super::SMALL) else { return };
                super::file_over_budget_is_recorded_without_content(rig);
            }

            #[test]
            fn call_over_budget_is_recorded_without_contents() {
                let Some(rig) = Rig::with_budget(Kind::$kind, super::SMALL) else { return };
                super::call_over_budget_is_recorded_without_contents(rig);
            }
        }
    };
}

with_a_small_budget!(Host, on_the_host);
with_a_small_budget!(Overlay, on_an_overlay);
with_a_small_budget!(Plain, on_a_plain_directory);

#[test]
fn large_file_is_recorded_without_content() {
    let rig = Rig::new(Kind::Host).unwrap();
    rig.ok("head -c 256M /dev/zero | tr '\\0' x > huge");
    let Node::File { size, incomplete, text, content, .. } = node(&rig, "huge") else { panic!("it is a file") };
    assert_eq!((size, incomplete, text), (256 << 20, true, true));
    assert!(rig.session().content(&content).is_err());
    assert_eq!(rig.ok("true").drift, []);
    rig.ok("truncate -s 1 huge");
    assert_eq!(node(&rig, "huge"), letters(1, false));
    rig.verify();
}
