//! Keys as a terminal sends them to its program, for clients without a terminal.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

/// A key that was pressed, by its name in browsers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PressedKey {
    name: String,
    #[serde(default)]
    shift: bool,
    #[serde(default)]
    alt: bool,
    #[serde(default)]
    ctrl: bool,
}

/// The input modes that a terminal's program has set.
#[derive(Default)]
pub(super) struct TypingModes {
    pub(super) has_application_keys: AtomicBool,
    pub(super) brackets_pastes: AtomicBool,
}

impl TypingModes {
    /// Returns the bytes that xterm sends for a key; empty for keys that send nothing.
    pub(super) fn pressed(&self, key: &PressedKey) -> Vec<u8> {
        let modifiers = 1 + u8::from(key.shift) + 2 * u8::from(key.alt) + 4 * u8::from(key.ctrl);
        if let Some(letter) = letter(&key.name) {
            let is_application = key.name.starts_with('F') || self.has_application_keys.load(Ordering::Relaxed);
            return match (modifiers, is_application) {
                (1, true) => format!("\x1bO{letter}"),
                (1, false) => format!("\x1b[{letter}"),
                _ => format!("\x1b[1;{modifiers}{letter}"),
            }
            .into_bytes();
        }
        if let Some(number) = number(&key.name) {
            let modified = if modifiers == 1 { String::new() } else { format!(";{modifiers}") };
            return format!("\x1b[{number}{modified}~").into_bytes();
        }
        let mut typed = match (key.name.as_str(), key.ctrl, key.shift) {
            ("Enter", ..) => b"\r".to_vec(),
            ("Tab", _, true) => b"\x1b[Z".to_vec(),
            ("Tab", ..) => b"\t".to_vec(),
            ("Escape", ..) => b"\x1b".to_vec(),
            ("Backspace", true, _) => b"\x08".to_vec(),
            ("Backspace", ..) => b"\x7f".to_vec(),
            (name, true, _) if name.len() == 1 => name.bytes().filter_map(control).collect(),
            (name, ..) if name.chars().count() == 1 => name.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        if key.alt && !typed.is_empty() {
            typed.insert(0, 0x1b);
        }
        typed
    }

    /// Returns the bytes of a paste, without escapes: it can't end its own brackets.
    pub(super) fn pasted(&self, text: &str) -> Vec<u8> {
        let text = text.replace("\r\n", "\r").replace('\n', "\r").replace(['\x1b', '\u{9b}'], "");
        match self.brackets_pastes.load(Ordering::Relaxed) {
            true => format!("\x1b[200~{text}\x1b[201~").into_bytes(),
            false => text.into_bytes(),
        }
    }
}

fn letter(name: &str) -> Option<char> {
    Some(match name {
        "ArrowUp" => 'A',
        "ArrowDown" => 'B',
        "ArrowRight" => 'C',
        "ArrowLeft" => 'D',
        "End" => 'F',
        "Home" => 'H',
        "F1" => 'P',
        "F2" => 'Q',
        "F3" => 'R',
        "F4" => 'S',
        _ => return None,
    })
}

fn number(name: &str) -> Option<u8> {
    Some(match name {
        "Insert" => 2,
        "Delete" => 3,
        "PageUp" => 5,
        "PageDown" => 6,
        "F5" => 15,
        "F6" => 17,
        "F7" => 18,
        "F8" => 19,
        "F9" => 20,
        "F10" => 21,
        "F11" => 23,
        "F12" => 24,
        _ => return None,
    })
}

fn control(byte: u8) -> Option<u8> {
    match byte {
        b'@'..=b'_' | b'a'..=b'z' => Some(byte & 0x1f),
        b' ' => Some(0),
        b'?' => Some(0x7f),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(modes: &TypingModes, keys: &str) -> String {
        let mut words = keys.split('+').collect::<Vec<_>>();
        let name = words.pop().unwrap_or_default().to_owned();
        let has = |word| words.contains(&word);
        let key = PressedKey { name, shift: has("Shift"), alt: has("Alt"), ctrl: has("Ctrl") };
        String::from_utf8(modes.pressed(&key)).unwrap()
    }

    #[test]
    fn keys_are_those_of_xterm() {
        let modes = TypingModes::default();
        for (keys, wanted) in [
            ("ArrowUp", "\x1b[A"),
            ("Ctrl+ArrowRight", "\x1b[1;5C"),
            ("F1", "\x1bOP"),
            ("Shift+F5", "\x1b[15;2~"),
            ("Delete", "\x1b[3~"),
            ("Shift+Tab", "\x1b[Z"),
            ("Ctrl+c", "\x03"),
            ("Ctrl+ ", "\0"),
            ("Ctrl+[", "\x1b"),
            ("Alt+x", "\x1bx"),
            ("Ctrl+Alt+x", "\x1b\x18"),
            ("Alt+Backspace", "\x1b\x7f"),
            ("é", "é"),
            ("CapsLock", ""),
            ("Ctrl+1", ""),
        ] {
            assert_eq!(sent(&modes, keys), wanted, "{keys}");
        }
        modes.has_application_keys.store(true, Ordering::Relaxed);
        assert_eq!((sent(&modes, "Home"), sent(&modes, "Shift+Home")), ("\x1bOH".to_owned(), "\x1b[1;2H".to_owned()));
    }

    #[test]
    fn pastes_stay_in_their_brackets() {
        let modes = TypingModes::default();
        assert_eq!(modes.pasted("a\r\nb\n"), b"a\rb\r");
        modes.brackets_pastes.store(true, Ordering::Relaxed);
        assert_eq!(modes.pasted("a\x1b[201~rm"), b"\x1b[200~a[201~rm\x1b[201~");
    }
}
