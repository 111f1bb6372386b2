//! Images in which the resident runner can't run.

use foldspace::backends::{EngineKind, PodmanOptions};
use serde_json::json;

use crate::rig::{Rig, engine_cli, report_skip};

/// Makes an image for another architecture of what runs here, and gives its name.
fn foreign_image(rig: &Rig) -> String {
    rig.ok("for f in /bin/sh /usr/bin/env /bin/sleep /bin/cat /bin/uname; do echo $f; readlink -f $f; \
         ldd $f | grep -o '/[^ ]*'; done | sort -u > list; \
         tar -chf root.tar -C / $(sed 's,^/,,' list)");
    let name = format!("localhost/foldspace-foreign-{}", rig.name());
    let arch = if cfg!(target_arch = "x86_64") { "arm64" } else { "amd64" };
    let tar = rig.root().join("root.tar");
    engine_cli(&["import", "--arch", arch, tar.to_str().unwrap(), &name]).unwrap();
    name
}

#[test]
fn image_of_another_architecture_is_refused_with_what_to_do() {
    if crate::engine::kind() == EngineKind::Docker {
        return report_skip("Docker imports images of this machine's architecture only");
    }
    let Some(maker) = Rig::container(|options| options) else { return };
    let image = foreign_image(&maker);
    let rig = Rig::container(|options| PodmanOptions { image: image.clone(), ..options }).unwrap();
    let refused = rig.bare("shell_execute", json!({ "command": "true" }));
    assert!(!refused.is_ok());
    let own = if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" };
    assert!(refused.text.contains(&format!("use an image for {own}")), "{}", refused.text);
    // The files are there all the same.
    assert!(rig.bare("write_file", json!({ "file_path": "a", "content": "a" })).is_ok());
    drop(rig);
    engine_cli(&["rmi", &image]).unwrap();
}
