//! Permission bits of entries.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const BITS: u16 = 0o7777;
const OWNER_EXECUTES: u16 = 0o100;
const SET_ID: u16 = 0o6000;

/// The 12 permission bits of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMode(u16);

impl FileMode {
    /// The usual bits of a file, 0644.
    pub const FILE: Self = Self(0o644);
    /// The usual bits of an executable file, 0755.
    pub const EXECUTABLE: Self = Self(0o755);
    /// The usual bits of a directory, 0755.
    pub const DIRECTORY: Self = Self(0o755);

    /// Creates a mode from these bits, without the file type bits.
    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves 12 bits")]
    pub const fn of(bits: u32) -> Self {
        Self(bits as u16 & BITS)
    }

    /// Returns the usual mode of a file.
    pub const fn usual(executable: bool) -> Self {
        if executable { Self::EXECUTABLE } else { Self::FILE }
    }

    /// Returns the bits.
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn to_le_bytes(self) -> [u8; 2] {
        self.0.to_le_bytes()
    }

    /// Returns the mode without its set-user-ID and set-group-ID bits.
    #[doc(hidden)]
    pub const fn without_set_id(self) -> Self {
        Self(self.0 & !SET_ID)
    }

    /// Returns true if the mode has a set-user-ID or set-group-ID bit that another lacks.
    #[doc(hidden)]
    pub const fn adds_set_id(self, before: Self) -> bool {
        self.0 & !before.0 & SET_ID != 0
    }

    /// Returns true if the owner may execute the file.
    pub const fn is_executable(self) -> bool {
        self.0 & OWNER_EXECUTES != 0
    }

    /// Returns the mode with the execute bits cleared, or set for all who may read.
    pub fn with_executable(self, executable: bool) -> Self {
        Self(match (executable, self.is_executable()) {
            (true, true) => self.0,
            (true, false) => self.0 | OWNER_EXECUTES | (self.0 & 0o444) >> 2,
            (false, _) => self.0 & !0o111,
        })
    }

    /// Merges two changes of a mode, bit by bit. A bit that either side changed is changed.
    #[cfg(feature = "tools")]
    pub(crate) fn merged(base: Self, ours: Self, theirs: Self) -> Self {
        Self(base.0 ^ ((base.0 ^ ours.0) | (base.0 ^ theirs.0)))
    }
}

impl Display for FileMode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.bits())
    }
}

/// JSON form of a mode: four octal digits.
pub(super) mod octal {
    use super::{Deserialize, Deserializer, FileMode, Serializer};

    pub(in crate::engine::event) fn serialize<S: Serializer>(
        mode: &FileMode,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(mode)
    }

    pub(in crate::engine::event) fn deserialize<'de, D: Deserializer<'de>>(de: D) -> Result<FileMode, D::Error> {
        let text = String::deserialize(de)?;
        u32::from_str_radix(&text, 8)
            .ok()
            .filter(|bits| *bits <= 0o7777)
            .map(FileMode::of)
            .ok_or_else(|| serde::de::Error::custom("a mode has four octal digits"))
    }
}

/// JSON fields of a file's mode; the name `mode` is taken by the write. `executable` follows from the bits.
#[derive(Serialize, Deserialize)]
struct ModeFields {
    #[serde(skip_deserializing)]
    executable: bool,
    #[serde(with = "octal")]
    permissions: FileMode,
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ModeFields { executable: self.is_executable(), permissions: *self }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(ModeFields::deserialize(deserializer)?.permissions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_in_json_comes_back() {
        for mode in [FileMode::of(0o600), FileMode::of(0o6755), FileMode::FILE] {
            let text = serde_json::to_string(&mode).unwrap();
            assert_eq!(serde_json::from_str::<FileMode>(&text).unwrap(), mode, "{text}");
        }
        assert_eq!(
            serde_json::to_string(&FileMode::of(0o100_600)).unwrap(),
            r#"{"executable":false,"permissions":"0600"}"#
        );
        assert!(serde_json::from_str::<FileMode>(r#"{"executable":false,"permissions":"888"}"#).is_err());
    }

    #[test]
    fn mode_executable_is_set_for_readers_only() {
        assert_eq!(FileMode::of(0o640).with_executable(true), FileMode::of(0o750));
        assert_eq!(FileMode::of(0o755).with_executable(false), FileMode::of(0o644));
    }
}
