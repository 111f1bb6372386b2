//! Identities: sessions, commits, contents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::error::ValueError;

/// Position in a session's history: the first event has 1, and there are no gaps.
pub type Seq = u64;

macro_rules! hexadecimal {
    ($(#[$doc:meta])* $name:ident, $bytes:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// Wraps raw bytes.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Returns the raw bytes.
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }

            /// Returns the first twelve digits, for display.
            pub fn short(&self) -> String {
                self.to_string()[..12].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl FromStr for $name {
            type Err = ValueError;

            fn from_str(text: &str) -> Result<Self, ValueError> {
                let wrong = || {
                    let shown: String = text.chars().take(80).collect();
                    ValueError::new(format!("{shown:?} is not {} hexadecimal digits", $bytes * 2))
                };
                if text.len() != $bytes * 2 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
                    return Err(wrong());
                }
                let mut bytes = [0; $bytes];
                for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
                    *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
                }
                Ok(Self(bytes))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

hexadecimal! {
    /// Identity of a session: 128 random bits.
    SessionId, 16
}
hexadecimal! {
    /// Identity that a caller gives a commit, so that a retry is recognised.
    CommitId, 16
}
hexadecimal! {
    /// BLAKE3 digest of a content.
    Digest, 32
}

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_text_and_bytes_agree() {
        let id = SessionId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("xyz".parse::<SessionId>().is_err());
        assert!("\u{e9}".repeat(16).parse::<SessionId>().is_err());
    }
}
