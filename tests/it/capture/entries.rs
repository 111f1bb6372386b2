//! Entries of every kind, and whatever can be done with them.

use foldspace::EntryPath;
use foldspace::event::{DeleteEntry, Node, Special, WriteFile, WriteMode};

use crate::rig::{Rig, Seen, everywhere};

everywhere!(
    rename_is_a_delete_and_a_write,
    moved_directory_is_recorded,
    executable_bit_change_is_recorded,
    symlinks_and_hard_links_are_recorded,
    entry_replaced_by_another_kind_is_recorded,
    names_of_any_bytes_are_recorded,
    empty_directory_is_recorded,
    special_files_are_recorded,
    binary_and_sparse_files_are_recorded,
    unreadable_file_is_recorded_without_content,
    deep_directories_are_recorded,
    short_lived_file_is_not_recorded,
);

fn texts(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|&path| path.to_owned()).collect()
}

fn rename_is_a_delete_and_a_write(rig: Rig) {
    rig.ok("echo hello > a && mkdir d && echo x > d/x");
    let step = rig.ok("mv a b");
    let node = Node::file(b"hello\n", false);
    let (a, b) = (EntryPath::lookup("a").unwrap(), EntryPath::lookup("b").unwrap());
    assert_eq!(step.of::<DeleteEntry>(), [DeleteEntry { path: a }]);
    assert_eq!(step.of::<WriteFile>(), [WriteFile { path: b, mode: WriteMode::Create, node }]);
    assert_eq!(rig.ok("mv b d/x").paths(), (texts(&["d/x"]), texts(&["b"])));
    assert_eq!(rig.slice().get(&EntryPath::lookup("d/x").unwrap()).unwrap().version, 2);
    rig.verify();
}

fn moved_directory_is_recorded(rig: Rig) {
    rig.ok("mkdir -p a/b/c && echo 1 > a/one && echo 2 > a/b/two && echo 3 > a/b/c/three && mkdir a/empty");
    assert_eq!(rig.ok("mv a z").paths().1, ["a"]);
    rig.python("import os\nos.rename('z/b', 'b')\nos.rename('b/c', 'z/c')\n");
    rig.python("import os, shutil\nshutil.move('z', 'b/z')\nos.mkdir('z')\nopen('z/new', 'w').write('n')\n");
    // Two that change places, and one that comes back.
    rig.ok("mv b tmp && mv z b && mv tmp z");
    rig.ok("mv z away && mv away z && touch z/two");
    // Many, so that what was before lies deeper by now.
    for n in 0..3 {
        rig.ok(&format!("mkdir -p many/{n} && for i in $(seq 40); do echo $i > many/{n}/$i; done"));
    }
    rig.python("import os\nos.rename('many/1', 'moved')\nos.rename('many', 'more')\n");
    rig.ok("mv moved/7 more/0/7 && mv more/2 moved/two && rm -r more/0");
    rig.ok("mv more moved/two/more && mv moved top && rm -rf z");
    rig.verify();
}

fn executable_bit_change_is_recorded(rig: Rig) {
    rig.ok("echo run > f");
    let executable = |rig: &Rig| {
        let path = EntryPath::lookup("f").unwrap();
        matches!(rig.known().get(&path), Some(Seen::File { mode, .. }) if mode & 0o100 != 0)
    };
    assert_eq!(rig.ok("chmod +x f").writes_and_deletes(), (1, 0));
    assert!(executable(&rig));
    assert_eq!(rig.ok("chmod +x f").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("chmod go-rwx f").writes_and_deletes(), (1, 0));
    assert_eq!(rig.ok("chmod -x f").writes_and_deletes(), (1, 0));
    assert!(!executable(&rig));
    assert_eq!(rig.ok("touch f && touch -d 2001-01-01 f").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("true").writes_and_deletes(), (0, 0));
    rig.verify();
}

fn symlinks_and_hard_links_are_recorded(rig: Rig) {
    rig.ok(
        "echo one > f && ln f hard && mkdir d && ln f d/hard && ln -s f soft && ln -s ../f d/soft && ln -s . d/here",
    );
    assert_eq!(rig.ok("echo two > hard").paths().0, ["d/hard", "f", "hard"]);
    assert_eq!(rig.ok("echo three >> soft").paths().0, ["d/hard", "f", "hard"]);
    assert_eq!(rig.ok("rm f && ln -sfn nowhere soft && ln -s /etc/passwd out").paths().1, ["f"]);
    rig.ok("chmod +x hard && mv d e");
    rig.python("import os\nos.symlink(b'\\xff\\n\\\\', 'odd')\nos.symlink('x' * 4000, 'long')\n");
    rig.verify();
}

fn entry_replaced_by_another_kind_is_recorded(rig: Rig) {
    rig.ok("echo file > x");
    rig.ok("rm x && mkdir -p x/y && echo below > x/y/z");
    let step = rig.ok("rm -r x && echo file > x");
    assert_eq!(step.paths().0, ["x"]);
    rig.ok("rm x && ln -s other x");
    rig.ok("rm x && mkdir x");
    rig.ok("rmdir x && mkfifo x");
    rig.ok("rm x && mkdir x && echo again > x/y");
    rig.ok("rm -r x && mkdir x && echo new > x/other");
    rig.ok("mkdir -p a/b && echo 1 > a/b/c && echo 2 > f && mv a/b t && mv f a/b && mv t f");
    rig.verify();
}

const NAMES: &str = "import os
names = ['\\u00e4\\u00f6', '\\u65e5\\u672c', '\\U0001f600', 'a b', ' ', '-rf', '*', '?', '\"', \"'\", 'back\\\\slash',
         'new\\nline', 'tab\\t', '\\\\x41', 'x' * 255, '...', 'a:b', '~', '$HOME', '\\x7f', 'e\\u0301']
for name in [name.encode() for name in names] + [b'\\xff', b'\\xfe\\xff', b'\\xc3', b'ok\\xed\\xa0\\x80', b'\\x01']:
    for directory in [b'.', b'd']:
        os.makedirs(directory, exist_ok=True)
        open(os.path.join(directory, name), 'wb').write(name)
    os.makedirs(b'under/' + name + b'/' + name)
";

fn names_of_any_bytes_are_recorded(rig: Rig) {
    rig.python(NAMES);
    rig.python("import os, shutil\nshutil.copytree(b'd', b'e')\nos.rename(b'd', b'\\xf0\\x28')\n");
    rig.ok("rm -r under e");
    rig.verify();
}

fn empty_directory_is_recorded(rig: Rig) {
    rig.ok("mkdir -p a/b/c d");
    assert_eq!(rig.ok("rmdir a/b/c").paths(), (Vec::new(), texts(&["a/b/c"])));
    rig.ok("touch d/f");
    assert_eq!(rig.ok("rm d/f").paths(), (Vec::new(), texts(&["d/f"])));
    rig.ok("mkdir a/b/c && mv a/b/c d/c");
    rig.ok("rm -rf d/c && mkdir d/c");
    rig.verify();
}

fn special_files_are_recorded(rig: Rig) {
    rig.ok("mkfifo pipe && echo file > file");
    rig.python("import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('socket')\n");
    let node = |name: &str| rig.slice().get(&EntryPath::lookup(name).unwrap()).unwrap().node.clone();
    assert_eq!(node("pipe"), Node::Special { special: Special::Fifo });
    assert_eq!(node("socket"), Node::Special { special: Special::Socket });
    let read = rig.bare("read_file", serde_json::json!({ "file_path": "pipe" }));
    assert!(!read.is_ok() && read.text.contains("fifo"), "{}", read.text);
    rig.ok("rm pipe && echo now > pipe && rm file && mkfifo file && mv socket elsewhere");
    rig.verify();
}

const BYTES: &str = "
open('all', 'wb').write(bytes(range(256)) * 300)
with open('sparse', 'wb') as f:
    f.seek(20 << 20); f.write(b'end')
open('empty', 'wb')
open('crlf', 'wb').write(b'a\\r\\nb')
open('nul', 'wb').write(b'a\\0b')
";

fn binary_and_sparse_files_are_recorded(rig: Rig) {
    rig.python(BYTES);
    let text = |name: &str| match &rig.slice().get(&EntryPath::lookup(name).unwrap()).unwrap().node {
        Node::File { text, .. } => *text,
        other => panic!("{name} is {other:?}"),
    };
    assert_eq!(["all", "sparse", "empty", "crlf", "nul"].map(text), [false, false, true, true, false]);
    rig.python("f = open('sparse', 'r+b')\nf.seek(1 << 20)\nf.write(b'x')\n");
    rig.ok("truncate -s 5M sparse && truncate -s 10 all");
    // In place, to the same length, at the same modification time.
    rig.python("import os\nt = os.stat('crlf')\nopen('crlf', 'r+b').write(b'X')\nos.utime('crlf', ns=(t.st_atime_ns, t.st_mtime_ns))\n");
    rig.verify();
}

fn unreadable_file_is_recorded_without_content(rig: Rig) {
    rig.ok("echo secret > f && mkdir -p d/e && echo below > d/e/f");
    rig.ok("chmod 000 f && chmod 000 d/e && chmod 000 d");
    rig.ok("chmod 700 d && echo more > d/more && chmod 000 d");
    rig.ok("echo new > g && chmod 000 g");
    rig.ok("chmod 200 f && echo written >> f && chmod 000 f");
    let read = rig.bare("read_file", serde_json::json!({ "file_path": "g" }));
    assert!(read.is_ok() && read.text.contains("new"), "{}", read.text);
    rig.ok("chmod -R 755 . && rm -rf d");
    rig.verify();
}

const DEEP: &str = "import os
for n in range(300):
    os.mkdir('d'); os.chdir('d')
open('bottom', 'w').write('x')
";

fn deep_directories_are_recorded(rig: Rig) {
    rig.python(DEEP);
    assert_eq!(rig.slice().len(), 301);
    rig.ok("mkdir -p other && mv d/d/d other/moved");
    rig.ok("rm -rf other");
    rig.verify();
}

fn short_lived_file_is_not_recorded(rig: Rig) {
    assert_eq!(rig.ok("echo x > t && rm t && mkdir -p a/b && rm -r a").writes_and_deletes(), (0, 0));
    rig.ok("echo 1 > f");
    assert_eq!(rig.ok("echo 2 > f && echo 1 > f").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("mv f g && mv g f").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("rm f && echo 1 > f").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("mkdir d && echo 1 > d/f && mv d/f f && rmdir d").writes_and_deletes(), (0, 0));
    rig.verify();
}
