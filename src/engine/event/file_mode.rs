//! Permission bits of entries.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const BITS: u16 = 0o7777;
const OWNER_EXECUTES: u16 = 0o100;
const SET_ID: u16 = 0o6000;
/// Flag for bits that an old event did not record.
const UNKNOWN: u16 = 1 << 15;

/// The 12 permission bits of an entry. Old events recorded the owner's execute bit only.
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

    /// Creates a mode with a known execute bit only.
    pub const fn unknown(executable: bool) -> Self {
        Self(Self::usual(executable).0 | UNKNOWN)
    }

    /// Returns true if only the execute bit is known.
    pub const fn is_unknown(self) -> bool {
        self.0 & UNKNOWN != 0
    }

    /// Returns the bits, or the usual ones if they are unknown.
    pub const fn bits(self) -> u32 {
        (self.0 & BITS) as u32
    }

    pub(crate) const fn to_le_bytes(self) -> [u8; 2] {
        (self.0 & BITS).to_le_bytes()
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
        let bits = self.0 & !UNKNOWN;
        let wanted = match (executable, self.is_executable()) {
            (true, true) => bits,
            (true, false) => bits | OWNER_EXECUTES | (bits & 0o444) >> 2,
            (false, _) => bits & !0o111,
        };
        Self(wanted | self.0 & UNKNOWN)
    }

    /// Merges two changes of a mode, bit by bit. A bit that either side changed is changed.
    #[cfg(feature = "tools")]
    pub(crate) fn merged(base: Self, ours: Self, theirs: Self) -> Self {
        if base.is_unknown() || ours.is_unknown() || theirs.is_unknown() {
            let by_ours = ours.is_executable() != base.is_executable();
            let executable = if by_ours { ours.is_executable() } else { theirs.is_executable() };
            return if ours.is_unknown() { theirs } else { ours }.with_executable(executable);
        }
        Self(base.0 ^ ((base.0 ^ ours.0) | (base.0 ^ theirs.0)))
    }

    /// Returns true if no difference of the modes is known.
    #[doc(hidden)]
    pub const fn is_like(self, other: Self) -> bool {
        match self.is_unknown() || other.is_unknown() {
            true => self.is_executable() == other.is_executable(),
            false => self.0 == other.0,
        }
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

    /// Returns the mode for absent digits. For a file, `executable` refines it.
    pub(in crate::engine::event) fn unknown() -> FileMode {
        FileMode::unknown(true)
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(in crate::engine::event) fn is_unknown(mode: &FileMode) -> bool {
        mode.is_unknown()
    }

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

/// JSON fields of a file's mode. `executable` is older; the name `mode` is taken by the write.
#[derive(Serialize, Deserialize)]
struct ModeFields {
    executable: bool,
    #[serde(default = "octal::unknown", skip_serializing_if = "octal::is_unknown", with = "octal")]
    permissions: FileMode,
}

impl Serialize for FileMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ModeFields { executable: self.is_executable(), permissions: *self }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for FileMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let ModeFields { executable, permissions } = ModeFields::deserialize(deserializer)?;
        Ok(if permissions.is_unknown() { Self::unknown(executable) } else { permissions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_in_json_comes_back() {
        for mode in [FileMode::of(0o600), FileMode::of(0o6755), FileMode::FILE, FileMode::unknown(true)] {
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
        assert!(FileMode::unknown(true).is_like(FileMode::of(0o700)) && !FileMode::FILE.is_like(FileMode::of(0o600)));
    }
}
