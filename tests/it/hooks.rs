//! Samples of what coding agents give to their hooks.

use std::path::Path;

use serde_json::Value;

#[test]
fn hook_samples_hold_no_path_of_a_machine() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/hooks");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let samples = std::fs::read_to_string(&path).unwrap();
        for (number, line) in samples.lines().enumerate() {
            let sample: Value = serde_json::from_str(line).unwrap();
            assert!(sample["payload"].is_object(), "{}:{} has no payload", path.display(), number + 1);
            for place in ["/home/", "/root/", "/Users/", "\"/tmp/", " /tmp/"] {
                assert!(!line.contains(place), "{}:{} names {place}", path.display(), number + 1);
            }
        }
    }
}
