//! Programs as agents use them.

use crate::rig::{Kind, Rig, everywhere, skip};

everywhere!(
    tar_round_trip_is_recorded,
    virtual_environment_is_recorded,
    sed_in_place_is_recorded,
    git_work_is_recorded,
    make_build_is_recorded
);

fn tar_round_trip_is_recorded(rig: Rig) {
    rig.ok("mkdir -p tree/a/b tree/empty && echo one > tree/a/one && echo two > tree/a/b/two && ln -s one tree/a/link");
    rig.ok("chmod +x tree/a/one && ln tree/a/one tree/hard && mkfifo tree/pipe");
    rig.ok("tar -cf packed.tar tree");
    rig.ok("rm -rf tree");
    rig.ok("tar -xf packed.tar");
    rig.ok("mkdir other && tar -xf packed.tar -C other --strip-components=1");
    // Over what is there already.
    rig.ok("tar -xf packed.tar && rm packed.tar");
    rig.verify();
}

fn virtual_environment_is_recorded(rig: Rig) {
    rig.ok("python3 -m venv --without-pip --copies env");
    rig.ok("env/bin/python -c 'import sys; open(\"where\", \"w\").write(sys.prefix)'");
    rig.ok("rm -rf env && python3 -m venv --without-pip env");
    rig.verify();
}

fn sed_in_place_is_recorded(rig: Rig) {
    rig.ok("for n in 1 2 3 4 5; do echo \"line $n\" > $n.txt; done; chmod +x 3.txt");
    let step = rig.ok("sed -i s/line/row/ 2.txt 3.txt");
    assert_eq!(step.paths(), (vec!["2.txt".to_owned(), "3.txt".to_owned()], Vec::new()));
    // It writes them again, with the same contents.
    assert_eq!(rig.ok("sed -i s/nothing/else/ *.txt").writes_and_deletes(), (0, 0));
    let step = rig.ok("sed -i.bak s/row/line/ 2.txt");
    assert_eq!(step.paths(), (vec!["2.txt".to_owned(), "2.txt.bak".to_owned()], Vec::new()));
    rig.verify();
}

fn git_work_is_recorded(rig: Rig) {
    if !rig.has("git") {
        assert_ne!(rig.kind(), Kind::Host, "git is needed");
        return skip("no git in the image");
    }
    rig.ok("git init -q -b main . && git config user.email a@b.c && git config user.name A && git config gc.auto 0");
    rig.ok("mkdir src && echo 'fn main() {}' > src/main.rs && echo target > .gitignore");
    rig.ok("git add . && git commit -q -m first");
    rig.ok("git checkout -q -b side && git mv src/main.rs src/lib.rs && git commit -q -m moved");
    rig.ok("echo more >> src/lib.rs && mkdir docs && echo text > docs/a.md && git add . && git commit -q -m more");
    rig.ok("git checkout -q main");
    rig.ok("git checkout -q side");
    rig.ok("git rm -q docs/a.md && git commit -q -m removed");
    rig.ok("git gc -q --prune=now");
    rig.ok("git checkout -q main && git merge -q --no-ff -m merged side && git branch -d side");
    rig.ok("echo changed > src/lib.rs && git stash -q && git stash pop -q && git reset -q --hard");
    assert_eq!(rig.ok("git status --porcelain").stdout(), "");
    rig.verify();
}

const MAKEFILE: &str = "all: program\\nprogram: main.o part.o\\n\\tgcc -o program main.o part.o\\n\
    %%.o: %%.c part.h\\n\\tgcc -c -o $@ $<\\nclean:\\n\\trm -f program *.o\\n";

fn make_build_is_recorded(rig: Rig) {
    if !(rig.has("gcc") && rig.has("make")) {
        assert_ne!(rig.kind(), Kind::Host, "gcc and make are needed");
        return skip("no gcc or make in the image");
    }
    rig.ok(
        "echo 'int part(void);' > part.h && printf '#include \"part.h\"\\nint part(void) { return 3; }\\n' > part.c",
    );
    rig.ok("printf '#include \"part.h\"\\nint main(void) { return part() - 3; }\\n' > main.c");
    rig.ok(&format!("printf '{MAKEFILE}' > Makefile"));
    rig.ok("make -s");
    assert_eq!(rig.ok("make -s && ./program").writes_and_deletes(), (0, 0), "nothing was left to make");
    rig.ok("sed -i s/3/4/ part.c main.c && make -s && ./program");
    let step = rig.ok("make -s clean");
    assert_eq!(step.paths().1, ["main.o", "part.o", "program"]);
    rig.verify();
}
