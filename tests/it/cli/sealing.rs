//! Checkpoints of a store, changed stores, proofs of events, witnesses.

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::rig::Program;

const LOG: &str = "example.com/agents";
const WITNESS: &str = "witness.example.com/w1";

/// A program with two sessions, `demo` and its fork `kid`, and the key of its log.
struct Sealed {
    program: Program,
    key: String,
}

impl Sealed {
    fn new() -> Self {
        let program = Program::new();
        program.printed(&["new", "demo", "--backend", "memory"]);
        let mut sealed = Self { program, key: String::new() };
        sealed.write("demo", "one");
        sealed.write("demo", "two");
        sealed.program.printed(&["fork", "demo", "--name", "kid"]);
        sealed.write("kid", "three");
        sealed.key = sealed.program.printed(&["seal", "--new-key", LOG]).trim().to_owned();
        sealed
    }

    fn write(&self, session: &str, text: &str) {
        let call = json!({ "tool": "write_file", "params": { "file_path": format!("{text}.txt"), "content": text } });
        let script = self.program.file("script.jsonl", call.to_string());
        self.program.printed(&["run", &script, "--session", session]);
    }

    fn seal(&self) -> String {
        self.program.printed(&["seal", "--out", "checkpoint"])
    }

    fn verify(&self) -> String {
        self.program.run(&["verify", "--checkpoint", "checkpoint", "--key", &self.key])
    }

    fn report(&self) -> Value {
        let output = self.program.output(&["--json", "verify", "--checkpoint", "checkpoint", "--key", &self.key]);
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn id(&self, session: &str) -> String {
        let all = self.program.json(&["sessions"]);
        let found = all.as_array().unwrap().iter().find(|entry| entry["name"] == session).unwrap();
        found["session"].as_str().unwrap().to_owned()
    }

    fn prove(&self, event: &str) -> String {
        self.program.printed(&["seal", "--prove", event, "--out", "proof"]);
        self.program.printed(&["export", event.split('@').next().unwrap(), "export.fold", "--force"]);
        std::fs::read_to_string(self.program.path("proof")).unwrap()
    }

    /// Checks a proof with the export; no store exists there.
    fn check_proof(&self, proof: &str, more: &[&str]) -> String {
        let proof = self.program.file("proof", proof);
        let words = ["--data", "/nowhere", "verify", "--proof", &proof, "--export", "export.fold", "--key", &self.key];
        self.program.run(&[&words[..], more].concat())
    }

    /// Changes the frames of commits in the journal, with the right checksums, and removes everything else that knows them.
    fn tamper(&self, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
        let data = self.program.data();
        let path = data.join("journal/00000001.seg");
        let bytes = std::fs::read(&path).unwrap();
        let (mut frames, mut at) = (Vec::new(), 64);
        while let Some(head) = bytes.get(at..at + 24).filter(|head| head[20..24] == crc(&head[..20])) {
            let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
            let next = (at + 24 + length).next_multiple_of(8);
            frames.push(bytes[at..next].to_vec());
            at = next;
        }
        assert!(frames.len() > 8, "only {} frames were found", frames.len());
        change(&mut frames);
        let mut changed = bytes[..64].to_vec();
        for mut frame in frames {
            let length = u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
            let payload = crc(&frame[24..24 + length]);
            frame[16..20].copy_from_slice(&payload);
            let head = crc(&frame[..20]);
            frame[20..24].copy_from_slice(&head);
            changed.extend(frame);
        }
        std::fs::write(&path, changed).unwrap();
        std::fs::remove_dir_all(data.join("index")).unwrap();
        drop(std::fs::remove_file(data.join("catalogue")));
    }
}

fn crc(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).to_le_bytes()
}

fn is_commit(frame: &[u8]) -> bool {
    frame[4] == 1
}

/// The key of a witness, and its signature line for a checkpoint.
fn cosigned(checkpoint: &str, time: u64) -> (String, String) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let key = [&[4], pair.public_key().as_ref()].concat();
    let id = &Sha256::digest([WITNESS.as_bytes(), b"\n", &key].concat())[..4];
    let text = &checkpoint[..=checkpoint.find("\n\n").unwrap()];
    let signature = pair.sign(format!("cosignature/v1\ntime {time}\n{text}").as_bytes());
    let line = BASE64_STANDARD.encode([id, &time.to_be_bytes(), signature.as_ref()].concat());
    let hex: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    (format!("{WITNESS}+{hex}+{}", BASE64_STANDARD.encode(key)), format!("\u{2014} {WITNESS} {line}\n"))
}

#[test]
fn checkpoint_covers_what_follows_it() {
    let sealed = Sealed::new();
    assert_eq!(sealed.seal(), "2 sessions sealed; the checkpoint covers 2 log entries\n");
    let events = sealed.report()["events"].as_u64().unwrap();
    assert!(
        sealed.verify().ends_with(&format!("2 sessions, {events} events: all as sealed\n[exit 0]")),
        "{}",
        sealed.verify()
    );

    // A rewind is an event; what it took back stays in the history.
    sealed.program.printed(&["rewind", "demo", "--to", "1", "--yes"]);
    sealed.write("kid", "four");
    let report = sealed.report();
    assert_eq!((&report["extended"], &report["sessions"], &report["events"]), (&json!(2), &json!(2), &json!(events)));
    std::fs::copy(sealed.program.path("checkpoint"), sealed.program.path("first")).unwrap();
    assert_eq!(sealed.seal(), "2 sessions sealed; the checkpoint covers 4 log entries\n");
    assert_eq!(sealed.seal(), "0 sessions sealed; the checkpoint covers 4 log entries\n");

    // A removal is a difference until a seal records it.
    let id = sealed.id("demo");
    sealed.program.printed(&["remove", "demo", "--yes"]);
    let told = sealed.verify();
    assert!(told.contains(&format!("session {}, events 1 to ", &id[..12])), "{told}");
    assert!(told.contains(": the session is missing\n"), "{told}");
    assert!(told.ends_with("1 session not as sealed\n[exit 1]"), "{told}");
    let told = sealed.program.run(&["seal", "--out", "later"]);
    assert!(told.contains(&format!("session {} was sealed before and is removed: the log records that", &id[..12])));
    for checkpoint in ["first", "checkpoint", "later"] {
        sealed.program.printed(&["gc"]);
        let told = sealed.program.run(&["verify", "--checkpoint", checkpoint, "--key", &sealed.key]);
        assert!(told.contains(&format!("session {} was removed, as a seal records\n", &id[..12])), "{told}");
        assert!(told.ends_with(": all as sealed\n[exit 0]"), "{told}");
    }
    // The fork keeps the history that it shares with its removed parent.
    assert_eq!(sealed.report()["sessions"], 1);
}

#[test]
fn changed_histories_differ_from_the_checkpoint() {
    type Change = fn(&mut Vec<Vec<u8>>);
    let changes: [(&str, Change); 4] = [
        ("a byte of an event", |frames| {
            let frame = frames.iter_mut().filter(|frame| is_commit(frame)).nth(2).unwrap();
            let end = 24 + u32::from_le_bytes(frame[..4].try_into().unwrap()) as usize;
            frame[end - 1] ^= 1;
        }),
        ("the call of a commit", |frames| {
            let frame = frames.iter_mut().filter(|frame| is_commit(frame)).nth(1).unwrap();
            frame[24 + 48] ^= 2;
        }),
        ("two commits in the other order", |frames| {
            let own: Vec<usize> = (0..frames.len()).filter(|at| is_commit(&frames[*at])).collect();
            // The intents of the two calls: the session's second and fourth commit.
            let (one, other) = (own[1], own[3]);
            assert_eq!((&frames[one][24..40], frames[one][80]), (&frames[other][24..40], frames[other][80]));
            let group = |frame: &[u8]| (frame[5..16].to_vec(), frame[40..48].to_vec());
            let groups = [group(&frames[one]), group(&frames[other])];
            frames.swap(one, other);
            for (at, (group, first)) in [one, other].into_iter().zip(groups) {
                frames[at][5..16].copy_from_slice(&group);
                frames[at][40..48].copy_from_slice(&first);
            }
        }),
        ("the last commit is cut off", |frames| {
            let last = frames.iter().rposition(|frame| is_commit(frame)).unwrap();
            frames.truncate(last);
        }),
    ];
    for (what, change) in changes {
        let sealed = Sealed::new();
        sealed.seal();
        sealed.tamper(change);
        let told = sealed.verify();
        assert!(told.ends_with("not as sealed\n[exit 1]"), "{what}: {told}");
        assert!(
            told.contains(": they are not as they were sealed\n") || told.contains(": they are missing\n"),
            "{what}: {told}"
        );
        // A change is found when the session grows, and sealed only on request.
        sealed.write("demo", "more");
        sealed.write("kid", "more");
        let refused = sealed.program.run(&["seal"]);
        assert!(
            refused.contains("sessions that differ from their last seal: ") && refused.ends_with("[exit 1]"),
            "{what}: {refused}"
        );
        let accepted = sealed.program.run(&["seal", "--accept-changes", "--out", "new"]);
        assert!(accepted.contains(": the log records that") && accepted.ends_with("[exit 0]"), "{what}: {accepted}");
        let told = sealed.program.run(&["verify", "--checkpoint", "new", "--key", &sealed.key]);
        assert!(told.ends_with("all as sealed\n[exit 0]"), "{what}: {told}");
        let told = sealed.verify();
        assert!(told.contains(", as a later seal records\n") && told.ends_with("[exit 1]"), "{what}: {told}");
    }
}

#[test]
fn replaced_histories_and_logs_differ_from_the_checkpoint() {
    let sealed = Sealed::new();
    let data = sealed.program.data();
    sealed.program.printed(&["export", "demo", "demo.fold"]);
    sealed.write("demo", "sealed");
    sealed.seal();

    // The same session, from an older export, with other later events.
    sealed.program.printed(&["remove", "demo", "--yes"]);
    sealed.program.printed(&["remove", "kid", "--yes"]);
    sealed.program.printed(&["gc"]);
    sealed.program.printed(&["import", "demo.fold"]);
    sealed.write("demo", "other");
    let told = sealed.verify();
    assert!(told.contains(", events 1 to ") && told.contains(": the session is missing\n"), "{told}");
    assert!(told.ends_with("2 sessions not as sealed\n[exit 1]"), "{told}");

    // A log that was changed, cut or removed.
    let leaves = data.join("seals/leaves");
    let text = std::fs::read_to_string(&leaves).unwrap();
    let changed = text.replacen("session ", "changed ", 1);
    let cut = text.split_inclusive('\n').next().unwrap();
    for (other, expected) in
        [(&*changed, "seals/leaves lacks the 2 leaves"), (cut, "seals/leaves lacks the 2 leaves"), ("x\n", "malformed")]
    {
        std::fs::write(&leaves, other).unwrap();
        for words in [&["verify", "--checkpoint", "checkpoint", "--key", &sealed.key][..], &["seal"]] {
            let told = sealed.program.run(words);
            assert!(told.contains(expected) && !told.ends_with("[exit 0]"), "{words:?}: {told}");
        }
    }
    // A line that a crash left incomplete is no leaf.
    std::fs::write(&leaves, format!("{text}session 12")).unwrap();
    assert!(sealed.verify().ends_with("[exit 1]"));
    sealed.program.printed(&["seal", "--accept-changes", "--out", "new"]);
    assert!(std::fs::read_to_string(&leaves).unwrap().starts_with(&text));
    std::fs::remove_file(&leaves).unwrap();
    assert!(sealed.verify().ends_with("[exit 3]"), "{}", sealed.verify());
}

#[test]
fn event_is_proven_from_an_export_alone() {
    let sealed = Sealed::new();
    sealed.seal();
    let proof = sealed.prove("demo@4");
    // The session continues: the proof of the earlier events still holds with a later export.
    sealed.write("demo", "later");
    sealed.program.printed(&["export", "demo", "export.fold", "--force"]);
    let told = sealed.check_proof(&proof, &[]);
    let head = format!("event 4 of session {}: ", &sealed.id("demo")[..12]);
    assert!(told.starts_with(&head) && told.contains(" covers the events 1 to "), "{told}");
    assert!(told.ends_with(" of the export: they are as they were sealed\n[exit 0]"), "{told}");

    // An import has the same chain.
    sealed.program.printed(&["--data", "other", "import", "export.fold"]);
    sealed.program.printed(&["--data", "other", "export", "demo", "export.fold", "--force"]);
    assert!(sealed.check_proof(&proof, &[]).ends_with("[exit 0]"));

    for (changed, exit) in [
        (proof.replacen("index 0", "index 1", 1), 1),
        (proof.replacen("index 0", "index 9", 1), 1),
        (proof.replacen(LOG, "example.com/other", 1), 1),
        (proof.replacen("\n2\n", "\n3\n", 1), 1),
        (proof.replacen("extra ", "extra AAAA", 1), 5),
        (proof.replacen("index 0", "index 00", 1), 5),
        (String::new(), 5),
    ] {
        let told = sealed.check_proof(&changed, &[]);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{changed}: {told}");
    }
    let other = sealed.prove("kid@6");
    assert!(sealed.check_proof(&other, &[]).contains(" covers the events 2 to "), "a fork has its own first event");
    assert!(sealed.check_proof(&proof, &[]).contains("the export is of another session"));
    sealed.program.file("export.fold", "no export");
    assert!(sealed.check_proof(&proof, &[]).ends_with("[exit 5]"));
    for (event, exit) in [("kid@1", 3), ("demo@0", 3), ("demo@999", 3), ("nobody@1", 3), ("demo", 2), ("demo@x", 2)] {
        let told = sealed.program.run(&["seal", "--prove", event]);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{event}: {told}");
    }
}

#[test]
fn changed_export_does_not_hold() {
    let sealed = Sealed::new();
    sealed.seal();
    let proof = sealed.prove("demo@4");
    // Another history of the same session: the same length, another text.
    sealed.tamper(|frames| {
        let frame = frames.iter_mut().filter(|frame| is_commit(frame)).nth(2).unwrap();
        frame[24 + 24] ^= 1;
    });
    sealed.program.printed(&["export", "demo", "export.fold", "--force"]);
    let told = sealed.check_proof(&proof, &[]);
    assert!(told.contains("the export does not have the events 1 to ") && told.ends_with("[exit 1]"), "{told}");
}

#[test]
fn witness_has_to_sign_this_checkpoint() {
    let sealed = Sealed::new();
    sealed.seal();
    let checkpoint = std::fs::read_to_string(sealed.program.path("checkpoint")).unwrap();
    let (witness, line) = cosigned(&checkpoint, 1_700_000_000);
    let verify = |text: &str, witness: &str| {
        let file = sealed.program.file("cosigned", text);
        sealed.program.run(&["verify", "--checkpoint", &file, "--key", &sealed.key, "--witness", witness])
    };
    let told = verify(&format!("{checkpoint}{line}"), &witness);
    assert!(told.starts_with(&format!("cosigned by {WITNESS} at 2023-11-14 22:13:20\n")), "{told}");
    assert!(told.ends_with("all as sealed\n[exit 0]"), "{told}");
    let told = verify(&checkpoint, &witness);
    assert!(told.contains(&format!("no signature of {WITNESS} with this key")) && told.ends_with("[exit 1]"), "{told}");
    let (_, other) = cosigned(&checkpoint.replacen("\n2\n", "\n3\n", 1), 1_700_000_000);
    let told = verify(&format!("{checkpoint}{other}"), &witness);
    assert!(told.contains(&format!("the signature of {WITNESS} is wrong")) && told.ends_with("[exit 1]"), "{told}");
    assert!(verify(&checkpoint, &sealed.key).ends_with("[exit 2]"), "a log is no witness");
    let proof = sealed.prove("demo@4") + &line;
    assert!(sealed.check_proof(&proof, &["--witness", &witness]).starts_with("event 4 "));
    let cosigned = sealed.check_proof(&proof, &["--witness", &witness, "--json"]);
    assert!(cosigned.contains("\"witness\": \"witness.example.com/w1\""), "{cosigned}");

    // The request to the witness proves that the log only grew.
    assert_eq!(sealed.program.printed(&["seal", "--witness-request", "0"]), format!("old 0\n\n{checkpoint}"));
    sealed.write("demo", "more");
    sealed.seal();
    let request = sealed.program.printed(&["seal", "--witness-request", "2"]);
    let lines: Vec<&str> = request.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3], lines[4]), ("old 2", "", LOG, "3"), "{request}");
    assert!(sealed.program.run(&["seal", "--witness-request", "4"]).ends_with("[exit 2]"));
}

#[test]
fn wrong_input_is_told() {
    let program = Program::new();
    assert!(program.run(&["seal"]).ends_with("[exit 3]"), "there is no store");
    let sealed = Sealed::new();
    let key = &*sealed.key;
    std::fs::remove_dir_all(sealed.program.data().join("seals")).unwrap();
    let told = sealed.program.run(&["seal"]);
    assert!(told.contains("`foldspace seal --new-key NAME` creates one") && told.ends_with("[exit 3]"), "{told}");
    sealed.program.printed(&["seal", "--new-key", LOG]);
    let other = std::fs::read_to_string(sealed.program.data().join("seals/key")).unwrap();
    sealed.seal();
    for (words, exit) in [
        (&["seal", "--new-key", LOG][..], 2),
        (&["seal", "--new-key", "a b", "--key", "fresh"], 2),
        (&["seal", "--key", "checkpoint"], 2),
        (&["seal", "--new-key", "n", "--prove", "demo@1"], 2),
        (&["verify", "--checkpoint", "checkpoint"], 2),
        (&["verify", "--checkpoint", "checkpoint", "--key", "no key"], 2),
        (&["verify", "--checkpoint", "checkpoint", "--key", &other], 2),
        (&["verify", "--checkpoint", "missing", "--key", key], 3),
        (&["verify", "--checkpoint", "script.jsonl", "--key", key], 5),
        (&["verify", "--checkpoint", "checkpoint", "--key", key], 1),
        (&["verify", "--checkpoint", "checkpoint", "--key", key, "demo"], 2),
        (&["verify", "--proof", "checkpoint", "--key", key], 2),
        (&["verify", "--key", key], 2),
        (&["seal", "--witness-request", "x"], 2),
    ] {
        let told = sealed.program.run(words);
        assert!(told.ends_with(&format!("[exit {exit}]")), "{words:?}: {told}");
        assert!(!told.contains("panicked"), "{words:?}: {told}");
    }
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions()) & 0o777;
    let seals = sealed.program.data().join("seals");
    let modes = [&seals, &seals.join("key"), &seals.join("leaves"), &seals.join("checkpoint")].map(|path| mode(path));
    assert_eq!(modes, [0o700, 0o600, 0o600, 0o600]);
}
