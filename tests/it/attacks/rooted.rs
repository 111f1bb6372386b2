//! Containers whose root file system can be written, with commands that are root in them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use foldspace::WorkspaceSpec;
use foldspace::backends::{EngineKind, OverlayUse, PodmanOptions, WarmContainers};
use foldspace::event::{ContainerStarted, DriftFound, WriteFile};

use super::container::until_stopped;
use crate::rig::{Family, Rig, WAIT_LIMIT, process_of, report_skip};

/// The options of such a container; none where there is no Podman.
fn rooted() -> Option<PodmanOptions> {
    let options = crate::engine::options()?;
    if options.engine == EngineKind::Docker {
        report_skip("a writable root takes Podman");
        return None;
    }
    Some(PodmanOptions { writable_root: true, also_at: Some("/srv/app".to_owned()), ..options })
}

fn rig(change: impl FnOnce(PodmanOptions) -> PodmanOptions) -> Option<Rig> {
    let options = change(rooted()?);
    Rig::container(|_| options)
}

#[test]
fn rooted_command_writes_its_root_and_no_more() {
    for overlay in [OverlayUse::Auto, OverlayUse::Never] {
        let Some(rig) = rig(|options| PodmanOptions { overlay, ..options }) else { return };
        assert_eq!(rig.printed("id -u; id -g; echo $HOME").split_whitespace().collect::<Vec<_>>(), ["0", "0", "/root"]);
        rig.ok("mkdir /logs && echo x > /usr/bin/x && chown 42 /usr/bin/x && chmod 600 /etc/passwd");
        let refused = ["echo x > /run/foldspace/x", "echo x > /proc/sys/kernel/hostname", "mount -t tmpfs x /mnt"];
        for command in refused.iter().chain(&["umount /workspace", "mknod /d b 8 0", "mount -o remount,rw /sys"]) {
            assert_ne!(rig.sh(command).exit_code(), 0, "{command}");
        }
        let socket = "import socket as s; s.socket(s.AF_NETLINK, s.SOCK_RAW, 9)";
        assert!(
            rig.sh(&format!("python3 -c '{socket}' 2>&1")).stdout().contains("[Errno 22]"),
            "no audit: useradd goes on"
        );
        let process = process_of(&rig.name()).unwrap();
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        assert!(user.split_whitespace().all(|id| id.parse::<u32>().unwrap() >= 0x7000_0000), "{user}");
        rig.verify();
    }
}

#[test]
fn rooted_command_is_recorded_in_the_workspace_only() {
    let Some(options) = rooted() else { return };
    let family = Family::new(WorkspaceSpec::Podman(options));
    let parent = family.founder();
    let made = "cd /srv/app && echo one > a && touch b && chown 1000:1000 b && mkdir -m 700 c && echo two > c/d";
    family.sh(&parent, &format!("{made} && echo gone > /usr/bin/gone"));
    let events = parent.session().events(1, 1000).unwrap();
    let written: Vec<_> =
        events.iter().filter_map(|event| Some(event.typed::<WriteFile>()?.unwrap().event.path)).collect();
    assert_eq!(written.iter().map(|path| path.rooted()).collect::<Vec<_>>(), ["/a", "/b", "/c", "/c/d"]);
    assert!(events.iter().all(|event| event.typed::<DriftFound>().is_none()));
    let child = family.fork(&parent);
    let seen = family.sh(&child, "cd /srv/app && cat a c/d && stat -c %u b && ls /usr/bin/gone || echo none");
    assert_eq!(seen, "one\ntwo\n1000\nnone\n");
    family.sh(&child, "echo more >> /srv/app/c/d && rm /workspace/a && git init -q . && git status");
    assert_eq!(family.sh(&parent, "cat a c/d"), "one\ntwo\n");
    family.verify();
}

#[test]
fn rooted_container_keeps_its_root_while_it_is_idle() {
    let Some(rig) = rig(|options| PodmanOptions { idle_seconds: 1, ..options }) else { return };
    let warm = WarmContainers::keep(&rooted().unwrap(), 1).unwrap();
    warm.wait(WAIT_LIMIT).unwrap();
    let made = rig.unchecked("echo kept > /usr/kept").of::<ContainerStarted>();
    until_stopped(&rig);
    let step = rig.unchecked("cat /usr/kept");
    assert_eq!((step.stdout(), &step.of::<ContainerStarted>()[0].id), ("kept", &made[0].id));
}

#[test]
fn rooted_command_in_own_directory_makes_files_of_its_owner() {
    let Some(options) = rooted() else { return };
    let mine = tempfile::tempdir().unwrap();
    chown(mine.path(), Some(1000), Some(1000)).unwrap();
    let directory = Some(mine.path().to_owned());
    let family = Family::new(WorkspaceSpec::Podman(PodmanOptions { directory, also_at: None, ..options }));
    let session = family.founder();
    assert_eq!(family.sh(&session, "echo x > made && stat -c %u . made"), "0\n0\n");
    let made = std::fs::metadata(mine.path().join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (1000, 1000));
}

#[test]
fn command_in_own_directory_leaves_no_set_user_id_program() {
    for options in [rooted(), crate::engine::options()] {
        let Some(options) = options else { continue };
        let mine = tempfile::tempdir().unwrap();
        let theirs = mine.path().join("theirs");
        std::fs::write(&theirs, "kept").unwrap();
        std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o4755)).unwrap();
        let directory = Some(mine.path().to_owned());
        let family = Family::new(WorkspaceSpec::Podman(PodmanOptions { directory, also_at: None, ..options }));
        let session = family.founder();
        let set = "cp /bin/sh new && chmod 6755 new && echo x > plain && chmod 755 plain && chmod u+s plain && stat -c %a new";
        assert_eq!(family.sh(&session, set), "6755\n");
        let mode = |name: &str| std::fs::metadata(mine.path().join(name)).unwrap().mode() & 0o7777;
        assert_eq!([mode("new"), mode("plain"), mode("theirs")], [0o755, 0o755, 0o4755]);
        assert_eq!(family.sh(&session, "stat -c %a new plain"), "755\n755\n");
        family.verify();
    }
}
