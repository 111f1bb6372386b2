//! A recorded journal, cut off at every frame boundary and inside frames.

use foldspace::store::Expected;
use tempfile::TempDir;

use super::journal::{Frame, frames, frames_of, recorded, segments};
use super::loss::lost;
use super::{History, Random, assert_same, copied, history, note, open, record, rounds};

/// How the end of a segment is lost.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Truncated,
    Zeroed,
    Garbage,
}

impl Loss {
    fn of(self, original: &[u8], cut: usize) -> Vec<u8> {
        let mut bytes = original[..cut].to_vec();
        match self {
            Self::Truncated => {}
            Self::Zeroed => bytes.resize(original.len() + 4096, 0),
            Self::Garbage => {
                let length = original.len() - cut + 100;
                bytes.extend(Random(cut as u64).bytes(length).iter().map(|byte| byte | 1));
            }
        }
        bytes
    }
}

fn check(directory: TempDir, expected: &History, torn: bool, context: &str) {
    let opened = open(directory.path());
    assert_same(&history(&opened), expected, context);
    let mut notes = opened.notes().to_vec();
    notes.retain(|note| !note.contains("index"));
    assert_eq!(notes.len(), usize::from(torn), "{context}: {notes:?}");
    assert!(notes.iter().all(|note| note.contains("torn end")), "{context}: {notes:?}");
    for (session, events) in expected {
        let next = note(*session, b"after the cut").expecting(Expected::Exactly(events.len() as u64));
        assert_eq!(record(&opened, next).first, events.len() as u64 + 1, "{context}");
    }
    drop(opened);
    let again = open(directory.path());
    assert_eq!(again.notes(), &[] as &[String], "{context}");
    let after = history(&again);
    assert_eq!(after.len(), expected.len());
    for (session, events) in &after {
        let (added, before) = events.split_last().unwrap();
        assert_eq!((before, &added.event.bytes[..]), (&expected[session][..], &b"after the cut"[..]), "{context}");
    }
}

#[test]
fn journal_cut_anywhere_keeps_whole_commits() {
    let directory = tempfile::tempdir().unwrap();
    let (store, recording) = recorded(directory.path(), 2, 5);
    drop(store);
    let mut paths = segments(directory.path());
    let last = paths.pop().unwrap();
    let before: Vec<Frame> = paths.iter().flat_map(|path| frames_of(path)).collect();
    let original = std::fs::read(&last).unwrap();
    let all = frames(&original);
    assert!(all.len() > 20 && all.last().unwrap().next == original.len(), "{} frames", all.len());
    let whole = recording.of(&[&before[..], &all[..]].concat());
    // Within the head too.
    let mut cuts = vec![0, 5, 30, 63, original.len()];
    for frame in &all {
        let middle = (frame.at + frame.end) / 2;
        cuts.extend([frame.at, frame.at + 20, middle, frame.end - 1]);
    }
    cuts.sort_unstable();
    cuts.dedup();
    for (number, cut) in cuts.into_iter().enumerate() {
        // In a short run every third cut; most are made in one of the three ways, in turn, some in all.
        if rounds(1) == 1 && number % 3 != 0 {
            continue;
        }
        let losses = [Loss::Truncated, Loss::Zeroed, Loss::Garbage];
        let chosen = losses.into_iter().enumerate().filter(|(way, _)| number / 9 % 3 == *way || number % 30 == 0);
        for (_, loss) in chosen {
            if cut < 64 && matches!(loss, Loss::Garbage) {
                continue;
            }
            let bytes = loss.of(&original, cut);
            let kept = all.iter().take_while(|f| bytes.get(f.at..f.end) == Some(&original[f.at..f.end])).count();
            let expected = recording.of(&[&before[..], &all[..kept]].concat());
            let end = all.get(kept.wrapping_sub(1)).map_or(64, |frame| frame.next);
            let torn = bytes.get(end..).is_some_and(|rest| rest.iter().any(|byte| *byte != 0));
            let context = format!("{loss:?} from byte {cut}, frame {kept} of {}", all.len());
            // One of three still has its index, which knows of more than there is.
            let copy = copied(directory.path(), number / 3 % 3 == 2);
            let target = copy.path().join("journal").join(last.file_name().unwrap());
            std::fs::write(target, &bytes).unwrap();
            let is_proven = number / 3 % 3 == 2 && kept < all.len();
            // The segment before says that this one had a head.
            if is_proven || cut < 64 {
                lost(copy.path(), &expected, if is_proven { &whole } else { &expected }, &context);
            } else {
                check(copy, &expected, torn, &context);
            }
        }
    }
}
