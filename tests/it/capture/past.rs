//! The files of the past on a disk, and the past of a session under commands.

use foldspace::tools::materialise;

use crate::rig::{Disk, Rig, differences, everywhere, walk};

everywhere!(materialise_gives_every_moment, materialise_on_full_disk_leaves_nothing);

fn materialise_gives_every_moment(rig: Rig) {
    let moments = rig.moments();
    let copies = tempfile::tempdir().unwrap();
    for (seq, then) in moments.iter().rev() {
        let copy = copies.path().join(seq.to_string());
        let state = rig.session().state_at(*seq).unwrap();
        let written = materialise(rig.session(), &state, &copy).unwrap();
        assert_eq!(written.left, []);
        assert_eq!(differences(then, &walk(&copy)), Vec::<String>::new(), "at {seq}");
        assert_eq!(rig.slice_at(*seq).len(), then.len());
    }
    rig.verify();
}

fn materialise_on_full_disk_leaves_nothing(rig: Rig) {
    rig.ok("mkdir -p a/b && echo small > a/b/first && head -c 3000000 /dev/zero > z && echo last > zz");
    let Some(small) = Disk::new(1) else { return };
    let state = rig.session().state().unwrap();
    let copy = small.root().join("copy");
    let error = materialise(rig.session(), &state, &copy).unwrap_err().to_string();
    assert!(error.contains("cannot write /z"), "{error}");
    assert_eq!(std::fs::read_dir(&copy).unwrap().count(), 0);
}
