//! Random changes in a workspace in a mount, across forks, compared with the same changes in a plain directory.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::rig::{Program, Random, rounds, skip};

const NAMES: [&str; 10] = ["a", "b", "c", "d", "d/a", "d/b", "e", "e/a", "e/d", "e/d/c"];
const CALLS: u64 = 6;
const CHANGES: u64 = 50;

/// Returns a random change as a shell command.
fn change(random: &mut Random) -> String {
    let name = |random: &mut Random| NAMES[random.below(NAMES.len() as u64) as usize];
    let (one, other) = (name(random), name(random));
    let (length, at) = (random.below(9000), random.below(12_000));
    match random.below(16) {
        0..=2 => format!("head -c {length} /dev/zero | tr '\\0' {} > {one}", random.below(10)),
        3 => format!("printf {length} >> {one}"),
        4 => format!("printf {length} | dd of={one} bs=1 seek={at} conv=notrunc"),
        5 => format!("truncate -s {length} {one}"),
        6 | 7 => format!("mv -T {one} {other}"),
        8 => format!("ln {one} {other}"),
        9 => format!("ln -s {other} {one}"),
        10 => format!("rm -rf {one}"),
        11 | 12 => format!("mkdir {one}"),
        13 => format!("chmod {} {one}", ["600", "644", "755", "700"][random.below(4) as usize]),
        // A copy of a directory into itself has what cp reads first.
        14 => format!("test -d {one} || cp -a {one} {other}"),
        _ => format!("sed -i s/1/22/ {one}"),
    }
}

struct Pair<'a> {
    program: &'a Program,
    mounted: String,
    seed: u64,
}

impl Pair<'_> {
    fn call(&self, session: &str, script: &str) -> String {
        self.program.printed(&["exec", session, "--yes", "--", "sh", "-c", script])
    }

    /// Lists what a directory has: kinds, modes, sizes, link counts of files, targets.
    fn listed(&self, directory: &Path) -> String {
        let form = r"%P %y %m %l\n";
        let all = ["-mindepth", "1", "(", "-type", "f", "-printf", r"%P f %m %s %n\n", "-o", "-printf", form, ")"];
        let output = Command::new("find").arg(directory).args(all).output().unwrap();
        let mut lines: Vec<_> = std::str::from_utf8(&output.stdout).unwrap().lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    }

    fn check(&self) {
        let place = |session: &str| PathBuf::from(self.call(session, "pwd").trim());
        let (plain, mounted) = (place("plain"), place(&self.mounted));
        let copy = self.program.path("copy");
        self.program.printed(&["materialise", &self.mounted, copy.to_str().unwrap()]);
        for other in [&mounted, &copy] {
            let same = Command::new("diff").args(["-r", "--no-dereference"]).args([&plain, other]).output().unwrap();
            let told = String::from_utf8_lossy(&same.stdout);
            assert!(same.status.success(), "FOLDSPACE_SEED={}, {}: {told}", self.seed, other.display());
            assert_eq!(self.listed(&plain), self.listed(other), "FOLDSPACE_SEED={}", self.seed);
        }
        std::fs::remove_dir_all(copy).unwrap();
    }
}

#[test]
fn random_changes_in_mount_equal_those_in_directory() {
    let fixed = std::env::var("FOLDSPACE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in fixed.map_or(0..rounds(2), |seed: u64| seed..seed + 1) {
        let (program, mut random) = (Program::new().through_owner(), Random(seed));
        let told = program.run(&["new", "mounted", "--backend", "mount"]);
        if !told.ends_with("[exit 0]") {
            return skip(&told);
        }
        program.printed(&["new", "plain", "--backend", "host"]);
        let mut pair = Pair { program: &program, mounted: "mounted".to_owned(), seed };
        for call in 0..CALLS {
            let changes: Vec<_> = (0..CHANGES).map(|_| change(&mut random)).collect();
            let script = format!("exec 2> /dev/null; {}; true", changes.join("; "));
            pair.call("plain", &script);
            pair.call(&pair.mounted, &script);
            pair.check();
            if call % 2 == 0 {
                let fork = format!("fork-{call}");
                program.printed(&["fork", &pair.mounted, "--name", &fork]);
                pair.mounted = fork;
            }
        }
        let written = program.json_lines(&["log", &pair.mounted, "--kind", "WriteFile"]).len();
        assert!(written > 10, "only {written} changes");
    }
}
