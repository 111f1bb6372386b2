//! The system calls of a container.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Tighter than the engine's own: neither user namespaces nor mounts, bpf or ptrace.
const PROFILE: &str = include_str!("seccomp.json");
/// The bits by which a program runs as its file's owner or group.
const SET_ID: u32 = 0o6000;
/// The flags with which a file is made; the mode counts with no others.
const MAKES: u32 = (libc::O_CREAT | (libc::O_TMPFILE & !libc::O_DIRECTORY)).cast_unsigned();
/// Calls that give a file a mode, and its place among their arguments.
const WITH_MODE: [(&str, u32); 6] =
    [("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("creat", 1), ("mknod", 1), ("mknodat", 2)];
const OPENING: [(&str, u32); 2] = [("open", 1), ("openat", 2)];
/// Its mode is in memory, which no filter sees. Programs go on without it.
const UNSEEN: &str = "openat2";

/// Returns the profile. What a command makes in a directory of the user's belongs to the user outside, so it may not be
/// made to run as the user there.
pub(super) fn profile(in_own_directory: bool) -> Cow<'static, str> {
    match in_own_directory {
        true => without_set_id().map_or(Cow::Borrowed(PROFILE), Cow::Owned),
        false => Cow::Borrowed(PROFILE),
    }
}

fn without_set_id() -> Option<String> {
    let mut profile: Value = serde_json::from_str(PROFILE).ok()?;
    let rules = profile.get_mut("syscalls")?.as_array_mut()?;
    let limited = WITH_MODE.iter().chain(&OPENING).map(|(name, _)| *name).chain([UNSEEN]);
    let limited: Vec<&str> = limited.collect();
    for rule in rules.iter_mut() {
        let names = rule.get_mut("names")?.as_array_mut()?;
        names.retain(|name| name.as_str().is_none_or(|name| !limited.contains(&name)));
    }
    let masked = |index: u32, mask: u32, is: u32| json!([{ "index": index, "value": mask, "valueTwo": is, "op": "SCMP_CMP_MASKED_EQ" }]);
    let allow = |name: &str, args: Value| json!({ "names": [name], "action": "SCMP_ACT_ALLOW", "args": args });
    for (name, mode) in WITH_MODE {
        rules.push(allow(name, masked(mode, SET_ID, 0)));
        for bits in [0o2000, 0o4000, SET_ID] {
            let args = masked(mode, SET_ID, bits);
            rules.push(json!({ "names": [name], "action": "SCMP_ACT_ERRNO", "errnoRet": 1, "args": args }));
        }
    }
    for (name, flags) in OPENING {
        rules.push(allow(name, masked(flags, MAKES, 0)));
        rules.push(allow(name, masked(flags + 1, SET_ID, 0)));
    }
    serde_json::to_string(&profile).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profile_of_own_directory_allows_no_mode_unseen() {
        let profile: Value = serde_json::from_str(&profile(true)).unwrap();
        let rules = profile["syscalls"].as_array().unwrap();
        let of = |name: &str| -> Vec<&Value> {
            let named = |rule: &&Value| rule["names"].as_array().unwrap().contains(&name.into());
            rules.iter().filter(named).collect()
        };
        for (name, _) in WITH_MODE.into_iter().chain(OPENING) {
            assert!(
                of(name).len() > 1 && of(name).iter().all(|rule| !rule["args"].as_array().unwrap().is_empty()),
                "{name}"
            );
        }
        assert_eq!((of(UNSEEN).len(), of("read").len()), (0, 1));
        assert_eq!(MAKES, 0o20_000_100);
    }
}
