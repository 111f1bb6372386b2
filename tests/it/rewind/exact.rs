//! Going back is exact: modes come back, equal files stay untouched, and no build runs code that was taken back.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

everywhere!(rewind_restores_modes, rewind_removes_what_has_no_contents, rewind_makes_pipes_again);

fn rewind_restores_modes(rig: Rig) {
    let begun = rig.ok("echo begun > begun").outcome.finished;
    rig.ok("mkdir -m 0700 .ssh && echo key > .ssh/id && chmod 600 .ssh/id && echo g > g && chmod 2660 g");
    rig.ok("mkdir -p shut/in && echo x > shut/in/x && chmod 444 shut/in/x && chmod 555 shut/in shut && echo b > b");
    let (first, then) = (rig.session().head().unwrap(), walk(&rig.root()));
    // A chmod is a change, also of a directory.
    assert_eq!(rig.ok("chmod 777 .ssh b").writes_and_deletes(), (2, 0));
    assert_eq!(rig.ok("chmod 777 .ssh b").writes_and_deletes(), (0, 0));
    rig.ok("chmod -R a+rwx . && rm -rf .ssh && echo more >> g");
    let last = rig.session().head().unwrap();
    for to in [first, last, first, begun, first] {
        rig.rewind(to, RewindOptions::default()).unwrap();
        rig.check(&format!("rewind to {to}"));
    }
    assert_eq!(differences(&then, &walk(&rig.root())), Vec::<String>::new());
    assert_eq!(rig.ok("true").drift, []);
    rig.verify();
}

fn rewind_removes_what_has_no_contents(rig: Rig) {
    let first = rig.ok("mkdir d && echo a > d/a").outcome.finished;
    rig.python("import os, socket\nos.mkfifo('d/pipe')\nsocket.socket(socket.AF_UNIX).bind('s')\nopen('d/a', 'a').write('b')\n");
    let rewound = rig.rewind(first, RewindOptions::default()).unwrap();
    assert_eq!((rewound.left.len(), rewound.lost.len()), (0, 0));
    assert_eq!(rig.ok("cat d/a; ls . d").stdout(), "a\n.:\nd\n\nd:\na");
    rig.verify();
}

fn rewind_makes_pipes_again(rig: Rig) {
    let first = rig.ok("mkdir d && mkfifo -m 666 d/pipe").outcome.finished;
    let second = rig.ok("rm -r d && echo file > d").outcome.finished;
    for (to, made) in [(first, "prw-------"), (second, "-rw-r--r--"), (first, "prw-------")] {
        let rewound = rig.rewind(to, RewindOptions::default()).unwrap();
        assert_eq!((rewound.left.len(), rewound.lost.len()), (0, 0));
        assert!(rig.ok("ls -ld d/pipe 2> /dev/null || ls -ld d").stdout().starts_with(made), "for its owner only");
    }
    assert_eq!(rig.ok("(echo through > d/pipe &) && cat d/pipe").stdout(), "through");
    rig.verify();
}

#[test]
fn rewind_leaves_times_of_equal_contents() {
    let rig = Rig::new(Kind::Host).unwrap();
    let first = rig.ok("echo same > same && echo mode > mode && echo old > other").outcome.finished;
    rig.ok("touch -d 2001-02-03 same mode && chmod 640 mode && echo new > other");
    let time = |name: &str| std::fs::metadata(rig.root().join(name)).unwrap().mtime();
    let (same, other) = (time("same"), time("other"));
    rig.rewind(first, RewindOptions::default()).unwrap();
    assert_eq!((time("same"), time("mode")), (same, same), "their contents are equal");
    assert!(time("other") >= other, "it changed now, not when it was first written");
    let mode = std::fs::metadata(rig.root().join("mode")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
}

/// Builds a version, then another, goes back, builds, and runs the product.
fn built_again(rig: &Rig, edit: &str, build: &str, run: &str) -> String {
    let first = rig.ok(build).outcome.finished;
    assert_eq!(rig.ok(run).stdout(), "v1");
    rig.ok(&format!("{edit} && {build}"));
    assert_eq!(rig.ok(run).stdout(), "v2");
    rig.rewind(first, RewindOptions::default()).unwrap();
    rig.ok(build);
    rig.ok(run).stdout().to_owned()
}

#[test]
fn rewound_source_is_built_again_by_make() {
    let rig = Rig::new(Kind::Host).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let product = outside.path().join("program");
    let product = product.display();
    rig.ok(&format!("printf '#!/bin/sh\\necho v1\\n' > source && printf '{product}: source\\n\\tinstall -m 755 source {product}\\n' > Makefile"));
    assert_eq!(built_again(&rig, "sed -i s/v1/v2/ source", "make -s", &product.to_string()), "v1");
}

#[test]
fn rewound_source_is_built_again_by_cargo() {
    let rig = Rig::new(Kind::Host).unwrap();
    let target = tempfile::tempdir().unwrap();
    let target = target.path().display();
    rig.ok("mkdir src && printf '[package]\\nname = \"p\"\\n[workspace]\\n' > Cargo.toml && printf 'fn main() { println!(\"v1\"); }\\n' > src/main.rs");
    let build = format!("{} build -q --offline --target-dir {target}", env!("CARGO"));
    assert_eq!(built_again(&rig, "sed -i s/v1/v2/ src/main.rs", &build, &format!("{target}/debug/p")), "v1");
}
