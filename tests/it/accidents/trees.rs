//! The trees to which the accidents happen, each with what has been lost there by tools that put files back.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::attached::Repository;

/// A tree: its letter in the table, its name, and what makes it so.
pub(super) struct Ground {
    pub(super) letter: char,
    pub(super) name: &'static str,
    /// Adds to a repository before its first branch is left.
    committed: fn(&Repository),
    /// Adds what is in no commit.
    uncommitted: fn(&Repository),
    /// Paths at which an undo need not bring back what stood there, but then must say so.
    pub(super) hard: &'static [&'static str],
}

pub(super) const SUBMODULE: Ground =
    Ground { letter: 'a', name: "submodule", committed: submodule, uncommitted: nested, hard: &[] };
pub(super) const FILTERS: Ground =
    Ground { letter: 'b', name: "filters", committed: filters, uncommitted: |_| {}, hard: &[] };
pub(super) const LINKS: Ground =
    Ground { letter: 'c', name: "links", committed: links, uncommitted: odd_entries, hard: &["pipe", "attic/pipe"] };
pub(super) const WORK: Ground = Ground {
    letter: 'd',
    name: "work",
    committed: stashed,
    uncommitted: in_progress,
    hard: &[".env", "made.fifo", "made.socket"],
};
pub(super) const LARGE: Ground =
    Ground { letter: 'e', name: "large", committed: many_files, uncommitted: |_| {}, hard: &[] };

impl Ground {
    /// Makes the repository, with a second branch and work in progress, and attaches it.
    pub(super) fn attached(&self) -> Repository {
        let numbered: String = (1..=20).map(|line| format!("line {line}\n")).collect();
        let repository = Repository::unattached(&[
            ("a.txt", &numbered),
            ("b.txt", "one\ntwo\nthree\n"),
            (".gitignore", "/build/\n*.local\n.env\n"),
            ("docs/one.md", "# One\n"),
            ("docs/two.md", "# Two\n"),
            ("src/main.c", "int main(void) { return 0; }\n"),
            ("src/deep/x.c", "int x = 1;\n"),
            ("fixed.txt", "this one is read only\n"),
            ("tool.sh", "#!/bin/sh\necho done\n"),
        ]);
        // What git does later in the background would change `.git` beside the laboratory.
        for (name, value) in
            [("gc.auto", "0"), ("maintenance.auto", "false"), ("user.name", "a"), ("user.email", "a@b.c")]
        {
            repository.git(&["config", name, value]);
        }
        chmod(&repository, "tool.sh", 0o755);
        (self.committed)(&repository);
        repository.commit("second");
        repository.git(&["checkout", "-q", "-b", "other"]);
        (0..30).for_each(|number| repository.write(&format!("other/{number}.txt"), &format!("other {number}\n")));
        repository.write("a.txt", "line 1 of other\n");
        repository.remove("docs/two.md");
        repository.commit("on the other branch");
        repository.git(&["checkout", "-q", "main"]);
        repository.write("b.txt", "one\ntwo, not committed\nthree\n");
        repository.write("docs/one.md", "# One, staged\n");
        repository.git(&["add", "docs/one.md"]);
        repository.write("notes/mine.txt", "untracked\n");
        repository.write("notes/private.txt", "for its owner only\n");
        chmod(&repository, "notes/private.txt", 0o600);
        chmod(&repository, "fixed.txt", 0o444);
        fs::create_dir_all(repository.root().join("empty/within")).unwrap();
        (self.uncommitted)(&repository);
        repository.attach();
        repository
    }
}

fn chmod(repository: &Repository, path: &str, mode: u32) {
    fs::set_permissions(repository.root().join(path), fs::Permissions::from_mode(mode)).unwrap();
}

/// A submodule that ignores a file that it tracks, and the same at the top.
fn submodule(repository: &Repository) {
    let origin = repository.program.path("origin");
    let origin = origin.to_str().unwrap();
    repository.program.file("origin/.gitignore", "*.cmake\n/out/\n");
    repository.program.file("origin/FindX.cmake", "set(X 1)\n");
    repository.program.file("origin/cmake/FindY.cmake", "set(Y 1)\n");
    repository.program.file("origin/src/lib.c", "int lib;\n");
    repository.git(&["init", "-q", "-b", "main", origin]);
    repository.git(&["-C", origin, "add", "-f", "."]);
    repository.git(&["-C", origin, "commit", "-q", "-m", "origin"]);
    repository.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", origin, "third_party/sub"]);
    repository.write("vendor/.gitignore", "*.gen\n");
    repository.write("vendor/forced.gen", "tracked although it is ignored\n");
    repository.write("build/kept.o", "tracked although it is ignored\n");
    repository.git(&["add", "-f", "vendor/forced.gen", "build/kept.o"]);
}

/// A repository in the tree that has no commit.
fn nested(repository: &Repository) {
    repository.git(&["init", "-q", "nested"]);
    repository.write("nested/draft.txt", "in a repository without a commit\n");
}

/// Files that git holds otherwise than the directory does: pointers, other line endings, another encoding, keywords.
fn filters(repository: &Repository) {
    // The pointer is the id of a blob that no commit has, as with large files.
    repository.git(&["config", "filter.pointer.clean", "git hash-object -w --stdin"]);
    repository.git(&["config", "filter.pointer.smudge", "read id && git cat-file blob $id"]);
    repository.git(&["config", "filter.pointer.required", "true"]);
    let rules =
        "*.big filter=pointer -text\n*.dos text eol=crlf\n*.wide text working-tree-encoding=UTF-16\n*.id ident\n";
    repository.write(".gitattributes", rules);
    repository.write("model.big", &"weights ".repeat(400));
    repository.write("assets/image.big", "pixels\0pixels\n");
    repository.write("setup.dos", "one\r\ntwo\r\n");
    let wide: Vec<u8> = "\u{feff}wide\nlines\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    repository.program.file("repo/text.wide", wide);
    repository.write("version.id", "$Id$\nversion\n");
    repository.commit("converted");
    for path in ["model.big", "assets/image.big", "setup.dos", "text.wide", "version.id"] {
        repository.remove(path);
    }
    repository.git(&["checkout", "-q", "--", "."]);
    assert_eq!(repository.git(&["status", "--porcelain"]), "", "git has them as they are");
    assert!(repository.read("version.id").starts_with("$Id: "));
    let held = repository.git(&["cat-file", "blob", "HEAD:model.big"]);
    assert_eq!(held.trim().len(), 40, "git has a pointer: {held}");
}

/// Links of all kinds, names of all bytes, and modes of all kinds.
fn links(repository: &Repository) {
    let root = repository.root();
    fs::create_dir(root.join("links")).unwrap();
    for (name, target) in [
        ("relative", "../src/main.c"),
        ("directory", "../docs"),
        ("absolute", "/usr/bin/env"),
        ("dangling", "no/such/file"),
        ("loop", "pool"),
        ("pool", "loop"),
        ("self", "self"),
    ] {
        symlink(target, root.join("links").join(name)).unwrap();
    }
    symlink(OsStr::from_bytes(b"to \xff\xfe bytes"), root.join("links/bytes")).unwrap();
    let long = "n".repeat(255);
    let names: [&[u8]; 9] = [
        b"new\nline",
        b"no \xff\xfe text",
        b"-rf",
        b"tab\tand \x1b[31m",
        "e\u{301} and \u{e9}".as_bytes(),
        b" spaces ",
        b"back\\slash",
        b"quote\"'",
        long.as_bytes(),
    ];
    fs::create_dir(root.join("names")).unwrap();
    for name in names {
        fs::write(root.join("names").join(OsStr::from_bytes(name)), name).unwrap();
    }
    let deep = (0..40).fold("deep".to_owned(), |path, level| format!("{path}/{level}"));
    repository.write(&format!("{deep}/end.txt"), "at the end\n");
    repository.write("nul.bin", "a\0b\0c\n");
    repository.program.file("repo/latin.txt", b"caf\xe9 one\nline two\nline three\n");
}

fn odd_entries(repository: &Repository) {
    let root = repository.root();
    // Others than the superuser can't read these themselves.
    let is_root = rustix::process::geteuid().is_root();
    let mode = |mode: u32| if is_root { mode } else { mode | 0o700 };
    for (directory, bits) in [("closed", 0o700), ("group", 0o2775), ("sticky", 0o1777), ("readonly", 0o555)] {
        fs::create_dir(root.join(directory)).unwrap();
        repository.write(&format!("{directory}/held.txt"), directory);
        chmod(repository, directory, mode(bits));
    }
    for (file, bits) in [("modes/run", 0o4755), ("modes/none", 0o000), ("modes/write", 0o222), ("modes/all", 0o666)] {
        repository.write(file, file);
        chmod(repository, file, mode(bits));
    }
    fs::create_dir_all(root.join("hollow/1/2/3")).unwrap();
    let fifo = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, root.join("pipe"), fifo, rustix::fs::Mode::RUSR, 0).unwrap();
}

fn stashed(repository: &Repository) {
    repository.commit("before the stash");
    repository.write("src/main.c", "int main(void) { return 7; }\n");
    repository.write("stashed.txt", "only in the stash\n");
    repository.git(&["stash", "-q", "-u"]);
}

/// Staged, half staged, dirty, untracked and ignored files.
fn in_progress(repository: &Repository) {
    repository.write("staged.txt", "staged, never committed\n");
    repository.git(&["add", "staged.txt"]);
    repository.write("src/deep/x.c", "int x = 2;\n");
    repository.git(&["add", "src/deep/x.c"]);
    repository.write("src/deep/x.c", "int x = 3;\n");
    repository.write("docs/draft/new.md", "untracked\n");
    repository.write("settings.local", "ignored, and small\n");
    repository.write(".env", "PASSWORD=1\n");
}

fn many_files(repository: &Repository) {
    for number in 0..20_000 {
        repository.write(&format!("many/{}/{number}.txt", number % 200), &format!("file {number}\n"));
    }
}
