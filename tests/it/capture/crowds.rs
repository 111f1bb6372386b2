//! Very many files at once.

use foldspace::event::CommandResult;

use crate::rig::{Rig, everywhere};

everywhere!(capture_of_thousands_of_files_is_one_commit);

const MAKE: &str = "import os
for d in range(30):
    os.makedirs(f'many/{d}')
    for n in range(100):
        open(f'many/{d}/{n}', 'w').write(f'{d} {n}\\n')
";

const HALVE: &str = "import os
for d in range(30):
    for n in range(0, 100, 2):
        os.remove(f'many/{d}/{n}')
";

fn capture_of_thousands_of_files_is_one_commit(rig: Rig) {
    let step = rig.python(MAKE);
    assert_eq!(step.writes_and_deletes(), (3_000, 0));
    assert_eq!(step.of::<CommandResult>().len(), 1);
    let step = rig.python(HALVE);
    assert_eq!(step.writes_and_deletes(), (0, 1_500));
    assert_eq!(rig.ok("true").writes_and_deletes(), (0, 0));
    assert_eq!(rig.ok("mv many more").writes_and_deletes(), (1_500, 1));
    assert_eq!(rig.ok("rm -rf more").writes_and_deletes(), (0, 1));
    assert!(rig.slice().is_empty());
    rig.verify();
}
