//! Identities: sessions, commits, contents.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::engine::error::ValueError;

/// Position in a session's history: the first event has 1, and positions have no gaps.
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
                let digit = |half: u8| b"0123456789abcdef"[usize::from(half & 15)];
                let mut text = [0; 2 * $bytes];
                for (pair, byte) in text.chunks_exact_mut(2).zip(self.0) {
                    pair.copy_from_slice(&[digit(byte >> 4), digit(byte)]);
                }
                f.write_str(std::str::from_utf8(&text).unwrap_or_default())
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
    /// Identity of a commit, chosen by the caller so that a retry is recognised.
    CommitId, 16
}
hexadecimal! {
    /// BLAKE3 digest of a content, or the id of a git blob.
    Digest, 32
}

/// Suffix of a digest that holds the id of a git blob. One BLAKE3 digest in 2^96 ends with it.
const GIT_BLOB: [u8; 12] = *b" of git blob";

impl CommitId {
    /// Returns the id of the commit of a request that a client named.
    pub fn of_request(name: &str) -> Self {
        let digest = Digest::of(&[b"foldspace call id\0", name.as_bytes()].concat());
        let mut id = [0; 16];
        id.copy_from_slice(&digest.0[..16]);
        Self(id)
    }
}

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the digest that names a git blob's content by its SHA-1 id.
    pub fn of_git_blob(id: [u8; 20]) -> Self {
        let mut digest = [0; 32];
        digest[..20].copy_from_slice(&id);
        digest[20..].copy_from_slice(&GIT_BLOB);
        Self(digest)
    }

    /// Returns the digest of `bytes` as a git blob.
    pub fn as_git_blob(bytes: &[u8]) -> Self {
        let head = format!("blob {}\0", bytes.len());
        let mut hash = sha1_smol::Sha1::from(head);
        hash.update(bytes);
        Self::of_git_blob(hash.digest().bytes())
    }

    /// Returns the id of the named git blob; `None` for a BLAKE3 digest.
    pub fn git_blob(&self) -> Option<[u8; 20]> {
        let (id, end) = self.0.split_first_chunk()?;
        (end == GIT_BLOB).then_some(*id)
    }

    /// Returns true if this is the digest of `bytes`.
    pub fn is_of(&self, bytes: &[u8]) -> bool {
        *self == if self.git_blob().is_some() { Self::as_git_blob(bytes) } else { Self::of(bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_of_git_blob_has_its_id() {
        let digest = Digest::as_git_blob(b"hello\n");
        let id = digest.git_blob().unwrap().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(id, "ce013625030ba8dba906f756967f9e9ca394464a", "as `git hash-object` prints it");
        assert!(digest.is_of(b"hello\n") && !digest.is_of(b"hello"));
        assert_eq!(Digest::of(b"hello\n").git_blob(), None);
        assert!(Digest::of(b"hello\n").is_of(b"hello\n"));
    }

    #[test]
    fn id_text_and_bytes_agree() {
        let id = SessionId::from_bytes(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("xyz".parse::<SessionId>().is_err());
        assert!("\u{e9}".repeat(16).parse::<SessionId>().is_err());
    }
}
