//! The accidents, as data.
//!
//! Commands run in the tree, with `$OUT` as a directory outside of it.

/// An accident: commands of an agent, each a call, and what others do before and after.
pub(super) struct Accident {
    pub(super) name: &'static str,
    /// The letters of the trees to which it happens.
    pub(super) trees: &'static str,
    pub(super) calls: &'static [&'static str],
    /// The path that an editing tool names; else the tool is a shell.
    pub(super) edits: Option<&'static str>,
    /// A person's command before the calls.
    pub(super) before: &'static str,
    /// A person's command after them. It changes no more than what an undo leaves alone.
    pub(super) after: &'static str,
    /// The paths that stay as they are, which the undo must name.
    pub(super) left: &'static [&'static str],
    /// Paths that the undo may name, although they are as they must be.
    pub(super) may_be_named: &'static [&'static str],
    /// The calls change nothing in the end, or nothing that is recorded.
    pub(super) changes_nothing: bool,
    /// It can't be made by others than the superuser.
    pub(super) needs_root: bool,
}

impl Accident {
    /// One that happens to every tree but the large one.
    const fn new(name: &'static str, calls: &'static [&'static str]) -> Self {
        Self {
            name,
            trees: "abcd",
            calls,
            edits: None,
            before: "",
            after: "",
            left: &[],
            may_be_named: &[],
            changes_nothing: false,
            needs_root: false,
        }
    }

    const fn on(self, trees: &'static str) -> Self {
        Self { trees, ..self }
    }

    const fn before(self, before: &'static str) -> Self {
        Self { before, ..self }
    }

    const fn after(self, after: &'static str) -> Self {
        Self { after, ..self }
    }

    const fn edits(self, path: &'static str) -> Self {
        Self { edits: Some(path), ..self }
    }

    const fn leaves(self, left: &'static [&'static str]) -> Self {
        Self { left, ..self }
    }

    const fn may_name(self, paths: &'static [&'static str]) -> Self {
        Self { may_be_named: paths, ..self }
    }

    const fn changing_nothing(self) -> Self {
        Self { changes_nothing: true, ..self }
    }

    const fn by_root(self) -> Self {
        Self { needs_root: true, ..self }
    }
}

/// Accidents of whole trees.
const OF_TREES: &[Accident] = &[
    Accident::new("rm -rf of all but .git", &["find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +"])
        .on("abcde"),
    Accident::new("rm -rf *", &["rm -rf -- *"]),
    Accident::new("rm of one file after the other", &["find . -name .git -prune -o ! -type d -exec rm -f {} +"]),
    Accident::new("git clean -fd", &["git clean -qffd"]),
    Accident::new("git clean -fdx", &["git clean -qffdx"]),
    Accident::new("git reset --hard", &["git reset -q --hard"]).on("abcde"),
    Accident::new("git checkout -- .", &["rm -rf src; git checkout -q -- ."]),
    Accident::new("git stash -u && drop", &["rm -rf nested; git stash -q -u && git stash drop -q"]),
    Accident::new("git stash; git clean", &["git stash -q; git clean -qffd"]),
    Accident::new("sed -i over all", &["find . -name .git -prune -o -type f -exec sed -i 's/e/E/g' {} +"]).on("abcde"),
    Accident::new("truncate of all", &["find . -name .git -prune -o -type f -exec truncate -s 0 {} +"]),
    Accident::new("append to all", &["for f in *; do [ -f \"$f\" ] && echo more >> \"./$f\"; done; true"]),
    Accident::new(
        "mv of all into a directory",
        &["mkdir attic && find . -mindepth 1 -maxdepth 1 ! -name .git ! -name attic -exec mv -t attic -- {} +"],
    )
    .on("bcde"),
    Accident::new(
        "chmod -R 777",
        &["find . -mindepth 1 -name .git -prune -o -mindepth 1 ! -type l -exec chmod 777 {} +"],
    )
    .on("abcde"),
    Accident::new(
        "chmod -R 600",
        &["find . -mindepth 1 -name .git -prune -o -mindepth 1 ! -type l -exec chmod 600 {} +"],
    )
    .by_root(),
    Accident::new(
        "chmod -R 000",
        &["find . -mindepth 1 -name .git -prune -o -mindepth 1 ! -type l -exec chmod 000 {} +"],
    )
    .by_root(),
    Accident::new("git checkout of another branch", &["git checkout -q -f other"]).on("abcde"),
    Accident::new("a branch and back, call by call", &["git checkout -q -f other", "git checkout -q -f main"]),
    Accident::new(
        "files become directories",
        &["for f in *; do [ -f \"$f\" ] && rm -f \"./$f\" && mkdir \"./$f\" && echo x > \"./$f/x\"; done; true"],
    ),
    Accident::new(
        "directories become files",
        &["for f in *; do [ -d \"$f\" ] && rm -rf \"./$f\" && echo x > \"./$f\"; done; true"],
    ),
    Accident::new(
        "files become links",
        &["for f in *; do [ -f \"$f\" ] && mv \"./$f\" \"$OUT\" && ln -s \"nowhere/$f\" \"./$f\"; done; true"],
    ),
    Accident::new(
        "all is removed, then some is written again",
        &[
            "find . -mindepth 1 -maxdepth 1 ! -name .git -exec rm -rf {} +",
            "mkdir src docs && echo again > src/main.c && echo again > a.txt && ln -s a.txt b.txt",
        ],
    ),
    Accident::new(
        "removed, copied back and removed again",
        &[
            "cp -a src docs \"$OUT\" && rm -rf src docs",
            "cp -a \"$OUT/src\" \"$OUT/docs\" . && rm -rf \"$OUT/src\" \"$OUT/docs\"",
            "rm -rf src docs",
        ],
    ),
];

/// Accidents of some files in the middle of work.
const OF_FILES: &[Accident] = &[
    Accident::new("mv of a directory", &["mv src lib"]).on("d"),
    Accident::new("names change their case", &["mv a.txt A.TXT && mv src SRC"]).on("d"),
    Accident::new("a directory becomes a link to itself", &["mv src real && ln -s real src"]).on("d"),
    Accident::new("two files change places", &["mv a.txt t && mv b.txt a.txt && mv t b.txt"]).on("d"),
    Accident::new("two directories change places", &["mv src t && mv docs src && mv t docs"]).on("d"),
    Accident::new("overwritten by >", &[": > a.txt; echo short > src/main.c; echo x > staged.txt"]).on("d"),
    Accident::new("removed, written in the next call", &["rm a.txt", "echo new > a.txt"]).on("d"),
    Accident::new("a dirty file removed, written in the next call", &["rm b.txt", "echo new > b.txt"]).on("d"),
    Accident::new(
        "an untracked file removed, written in the next call",
        &["rm notes/private.txt", "echo new > notes/private.txt"],
    )
    .on("d"),
    Accident::new("moved away, and another under its name", &["mv b.txt old.txt", "echo new > b.txt"]).on("d"),
    Accident::new("rm -rf src, then src/x.c", &["rm -rf src", "mkdir src && echo 'int x;' > src/x.c"]).on("d"),
    Accident::new("git rm, then another file", &["git rm -qf a.txt docs/one.md", "echo new > a.txt"]).on("d"),
    Accident::new(
        "a generator clears its directory first",
        &[
            "rm -rf docs && mkdir docs",
            "for n in one 2 3 4 5; do echo $n > docs/$n.md; done",
            "rm -rf docs && mkdir docs && echo one > docs/one.md",
        ],
    )
    .on("d"),
    Accident::new("the same text again, in the next call", &["mv a.txt \"$OUT/kept\"", "cp \"$OUT/kept\" a.txt"])
        .on("d")
        .changing_nothing(),
    Accident::new(
        "rewritten five times",
        &[
            "echo 1 > a.txt",
            "rm a.txt",
            "mkdir a.txt && echo 3 > a.txt/3",
            "rm -rf a.txt && ln -s b.txt a.txt",
            "rm a.txt && echo 5 > a.txt",
        ],
    )
    .on("d"),
    Accident::new(
        "same size and time",
        &["touch -r a.txt \"$OUT/time\" && sed -i 's/line 7/line 8/' a.txt && touch -r \"$OUT/time\" a.txt"],
    )
    .on("d"),
    Accident::new("chmod of a key and of a read-only file", &["chmod 644 notes/private.txt && chmod 666 fixed.txt"])
        .on("d"),
    Accident::new("chmod of a directory only", &["chmod 700 src && chmod 1777 docs"]).on("d"),
    Accident::new("chmod +x", &["chmod +x a.txt src/main.c && chmod -x tool.sh"]).on("d"),
    Accident::new("git add and commit", &["echo x >> a.txt && git add -A && git commit -q -m all"]).on("d"),
    Accident::new("git stash pop", &["git checkout -q -f . && git stash pop -q; true"]).on("d"),
    Accident::new(
        "reset, and all that git could find is pruned",
        &["git reset -q --hard && git stash clear && git reflog expire --expire=now --all && git gc -q --prune=now"],
    )
    .on("d"),
    Accident::new("files of another branch", &["git checkout -q other -- ."]).on("d"),
    Accident::new(
        "a failed merge",
        &["git stash -q; git merge -q other; git merge --abort; git stash pop -q; rm -rf src"],
    )
    .on("d"),
    Accident::new("two hundred new files", &["mkdir -p out && for n in $(seq 200); do echo $n > out/$n; done"]).on("d"),
    Accident::new("rm with a .env", &["rm -f .env a.txt settings.local && echo 'PASSWORD=2' > src/new.c"]).on("d"),
    Accident::new(
        "a new FIFO and a new socket",
        &["echo x >> a.txt; mkfifo made.fifo; mv \"$OUT/socket\" made.socket"],
    )
    .on("d"),
    Accident::new("names of one file", &["rm hard.txt && echo x > a.txt"]).on("d").before("ln a.txt hard.txt"),
    Accident::new("a file with several names is written", &["echo x >> docs/hard.txt"])
        .on("d")
        .before("ln a.txt docs/hard.txt"),
    Accident::new(
        "the submodule is cleaned and reset",
        &["rm -rf third_party/sub/cmake; cd third_party/sub && git clean -qffdx && git reset -q --hard"],
    )
    .on("a")
    .before("echo dirty >> third_party/sub/FindX.cmake; echo mine > third_party/sub/mine.c"),
    Accident::new("git submodule deinit", &["git submodule --quiet deinit -f --all"]).on("a"),
    Accident::new("the submodule becomes a file", &["rm -rf third_party/sub && echo x > third_party/sub"]).on("a"),
    Accident::new(
        "tracked files that are ignored",
        &["rm -f third_party/sub/FindX.cmake build/kept.o && echo x >> vendor/forced.gen"],
    )
    .on("a"),
    Accident::new(
        "files that git converts are written as git has them",
        &["for f in model.big setup.dos text.wide version.id; do git cat-file blob HEAD:$f > $f; done"],
    )
    .on("b"),
    Accident::new(
        "converted files are removed and checked out",
        &[
            "rm -rf assets *.big *.dos *.wide *.id",
            "git checkout -q -- assets model.big setup.dos text.wide version.id && echo x >> setup.dos",
            "rm -f setup.dos version.id",
        ],
    )
    .on("b"),
    Accident::new("links point elsewhere", &["find links -type l -exec ln -sfn elsewhere {} \\;"]).on("c"),
    Accident::new("links become files", &["for l in links/*; do rm \"$l\" && echo x > \"$l\"; done"]).on("c"),
    Accident::new("names of any bytes are moved", &["mkdir moved && mv -- names/* moved/ && mv moved/-rf names/"])
        .on("c"),
    Accident::new(
        "empty directories are removed",
        &["find . -depth -type d -empty ! -path '*/.git/*' -exec rmdir {} \\;"],
    )
    .on("c"),
    Accident::new("a deep directory is moved", &["mv deep/0/1 up && rm -rf deep"]).on("c"),
    Accident::new("a FIFO is removed", &["rm pipe && echo x > modes/run"]).on("c"),
];

/// Accidents while others change files, too.
const WITH_OTHERS: &[Accident] = &[
    Accident::new("a person's edit elsewhere in the file", &["sed -i 's/^line 2$/agent/' a.txt"])
        .on("d")
        .after("sed -i 's/^line 18$/mine/' a.txt"),
    Accident::new("a person's edit in a file of bytes", &["sed -i 's/^line two$/agent/' latin.txt"])
        .on("c")
        .after("echo mine >> latin.txt"),
    Accident::new("a person's edit at the same place", &["sed -i 's/^line 5$/agent/' a.txt && rm -rf src"])
        .on("d")
        .after("sed -i 's/^agent$/mine/' a.txt")
        .leaves(&["a.txt"]),
    Accident::new("a person's file under a removed name", &["rm a.txt && echo x > b.txt"])
        .on("d")
        .after("[ -e a.txt ] || echo mine > a.txt")
        .leaves(&["a.txt"]),
    Accident::new("a person's file in a directory that goes", &["mkdir -p gen && echo 1 > gen/1 && echo x >> a.txt"])
        .on("d")
        .after("mkdir -p gen && echo mine > gen/mine")
        .may_name(&["gen"]),
    Accident::new("a person's file in a directory that comes back", &["rm -rf src"])
        .on("d")
        .after("mkdir -p src && echo mine > src/mine.c"),
    Accident::new("a person's deletion, and a checkout", &["git checkout -q -- docs/two.md a.txt"])
        .on("d")
        .before("rm docs/two.md && sed -i 's/^line 3$/mine/' a.txt"),
    Accident::new("a person's deletion of what an agent wrote", &["echo 1 > made.txt && echo 2 >> a.txt"])
        .on("d")
        .after("rm -f made.txt"),
    Accident::new("a person's edits of other files", &["rm -rf docs && echo x > src/main.c"])
        .on("d")
        .after("echo mine >> staged.txt; rm -f fixed.txt; chmod 600 tool.sh; mkdir -p mine; echo mine > mine/new.txt"),
    Accident::new("a formatter after the edit", &["sed -i 's/^line 5$/agent( )/' a.txt"])
        .on("d")
        .edits("a.txt")
        .after("sed -i 's/^agent( )$/agent()/' a.txt"),
    Accident::new(
        "a process that writes later",
        &["mkfifo \"$OUT/go\" \"$OUT/gone\"; rm -rf docs; \
         (read -r _ < \"$OUT/go\"; echo late > late.txt; echo > \"$OUT/gone\") > /dev/null 2>&1 &"],
    )
    .on("d")
    .after(
        "if [ -p \"$OUT/go\" ]; then echo > \"$OUT/go\"; read -r _ < \"$OUT/gone\"; rm \"$OUT/go\" \"$OUT/gone\"; \
         else echo late > late.txt; fi",
    ),
];

/// Accidents that might disturb later ones, so they come last.
const LAST: &[Accident] = &[Accident::new("rm -rf of all with .git", &["rm -rf -- * .[!.]*"])];

/// Lists the accidents of a tree.
pub(super) fn accidents(tree: char) -> impl Iterator<Item = (usize, &'static Accident)> {
    let all = OF_TREES.iter().chain(OF_FILES).chain(WITH_OTHERS).chain(LAST).enumerate();
    all.filter(move |(_, accident)| accident.trees.contains(tree))
}
