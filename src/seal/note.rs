//! Signed notes (C2SP signed-note): texts with signatures, signing keys and verifier keys.

use std::fmt;
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use super::IntegrityError;
use super::merkle::sha256;

/// Signature type of a log.
const NOTE: u8 = 1;
/// Signature type of a witness: an Ed25519 signature with a time (C2SP tlog-cosignature).
const COSIGNATURE: u8 = 4;
/// Limit for a note, in bytes: far above 16 signatures.
const NOTE_MAX: usize = 1 << 20;
const NAME_MAX: usize = 255;
const SECRET: &str = "PRIVATE+KEY+";

/// Public key of a log or of a witness: a verifier key, `NAME+ID+KEY`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteVerifier {
    name: String,
    kind: u8,
    key: [u8; 32],
}

impl NoteVerifier {
    /// Returns the name of the key.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the key is of a witness rather than of a log.
    pub fn is_witness(&self) -> bool {
        self.kind == COSIGNATURE
    }

    fn id(&self) -> u32 {
        let [a, b, c, d, ..] = sha256(&[self.name.as_bytes(), b"\n", &[self.kind], &self.key]);
        u32::from_be_bytes([a, b, c, d])
    }

    /// Checks a signature, and returns the time of a cosignature in seconds.
    fn check(&self, text: &str, signature: &[u8]) -> Option<u64> {
        let (time, signature) = match self.kind {
            COSIGNATURE => signature.split_first_chunk().map(|(time, rest)| (u64::from_be_bytes(*time), rest))?,
            _ => (0, signature),
        };
        let signed = match self.kind {
            COSIGNATURE => format!("cosignature/v1\ntime {time}\n{text}"),
            _ => text.to_owned(),
        };
        UnparsedPublicKey::new(&ED25519, &self.key).verify(signed.as_bytes(), signature).ok()?;
        Some(time)
    }
}

fn invalid(problem: &str) -> IntegrityError {
    IntegrityError::Invalid(format!("key: {problem}"))
}

/// Splits the text of a key, and checks its name and the length of its material.
fn key_parts(text: &str) -> Result<(&str, &str, u8, [u8; 32]), IntegrityError> {
    let mut parts = text.splitn(3, '+');
    let (Some(name), Some(id), Some(material)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(invalid("it has the form NAME+ID+KEY"));
    };
    check_name(name)?;
    let material = BASE64_STANDARD.decode(material).map_err(|_| invalid("its last part is not base64"))?;
    let (kind, key) = material.split_first().ok_or(invalid("it is empty"))?;
    let key = key.try_into().map_err(|_| invalid("it does not have 32 bytes"))?;
    Ok((name, id, *kind, key))
}

fn check_name(name: &str) -> Result<(), IntegrityError> {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
    match (1..=NAME_MAX).contains(&name.len()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(invalid("its name has 1 to 255 bytes, and no space and no +")),
    }
}

impl FromStr for NoteVerifier {
    type Err = IntegrityError;

    fn from_str(text: &str) -> Result<Self, IntegrityError> {
        let (name, id, kind, key) = key_parts(text.trim_ascii_end())?;
        let verifier = Self { name: name.to_owned(), kind, key };
        match kind {
            NOTE | COSIGNATURE if format!("{:08x}", verifier.id()) == id => Ok(verifier),
            NOTE | COSIGNATURE => Err(invalid("its id does not match its name and key")),
            _ => Err(invalid("it is not an Ed25519 key of a log (1) or of a witness (4)")),
        }
    }
}

impl fmt::Display for NoteVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = BASE64_STANDARD.encode([&[self.kind], &self.key[..]].concat());
        write!(f, "{}+{:08x}+{key}", self.name, self.id())
    }
}

/// Signing key of a log, in the text format of Go's package `note`: `PRIVATE+KEY+NAME+ID+SEED`.
pub struct NoteSigner {
    verifier: NoteVerifier,
    seed: [u8; 32],
    pair: Ed25519KeyPair,
}

crate::engine::debug_by!(NoteSigner, |signer| verifier: signer.verifier);

impl NoteSigner {
    /// Creates a key. Fails with [`IntegrityError::Invalid`] if the name is invalid.
    pub fn new(name: &str) -> Result<Self, IntegrityError> {
        let mut seed = [0; 32];
        SystemRandom::new().fill(&mut seed).map_err(|_| invalid("the system has no random numbers"))?;
        Self::of_seed(name, seed)
    }

    fn of_seed(name: &str, seed: [u8; 32]) -> Result<Self, IntegrityError> {
        check_name(name)?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| invalid("its seed is invalid"))?;
        let mut key = [0; 32];
        key.copy_from_slice(pair.public_key().as_ref());
        Ok(Self { verifier: NoteVerifier { name: name.to_owned(), kind: NOTE, key }, seed, pair })
    }

    /// Returns the public key.
    pub fn verifier(&self) -> &NoteVerifier {
        &self.verifier
    }

    /// Returns the text of the key. Keep it secret.
    pub fn secret(&self) -> String {
        let NoteVerifier { name, .. } = &self.verifier;
        let seed = BASE64_STANDARD.encode([&[NOTE], &self.seed[..]].concat());
        format!("{SECRET}{name}+{:08x}+{seed}\n", self.verifier.id())
    }

    /// Returns the text with a signature.
    pub(super) fn sign(&self, text: &str) -> String {
        let signature = self.pair.sign(text.as_bytes());
        let signature = [&self.verifier.id().to_be_bytes(), signature.as_ref()].concat();
        format!("{text}\n\u{2014} {} {}\n", self.verifier.name, BASE64_STANDARD.encode(signature))
    }
}

impl FromStr for NoteSigner {
    type Err = IntegrityError;

    fn from_str(text: &str) -> Result<Self, IntegrityError> {
        let rest = text.trim_ascii_end().strip_prefix(SECRET);
        let (name, id, kind, seed) = key_parts(rest.ok_or(invalid("it does not begin with PRIVATE+KEY+"))?)?;
        let signer = Self::of_seed(name, seed)?;
        match kind == NOTE && format!("{:08x}", signer.verifier.id()) == id {
            true => Ok(signer),
            false => Err(invalid("its id does not match its name and seed")),
        }
    }
}

/// Text with signatures that were not checked yet.
pub(super) struct SignedNote<'a> {
    text: &'a str,
    signatures: Vec<(&'a str, Vec<u8>)>,
}

impl<'a> SignedNote<'a> {
    pub(super) fn parse(note: &'a str) -> Result<Self, IntegrityError> {
        let wrong = |problem: &str| IntegrityError::Malformed(format!("checkpoint: {problem}"));
        if note.len() > NOTE_MAX || note.chars().any(|c| c < ' ' && c != '\n') {
            return Err(wrong("it is no signed note: it is too long, or has control characters"));
        }
        let (text, lines) = note.rsplit_once("\n\n").ok_or_else(|| wrong("it has no signature"))?;
        let lines = lines.strip_suffix('\n').ok_or_else(|| wrong("its last line has no end"))?;
        let signature = |line: &'a str| {
            let (name, signature) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
            Some((name, BASE64_STANDARD.decode(signature).ok().filter(|bytes| bytes.len() > 4)?))
        };
        let signatures: Option<Vec<_>> = lines.split('\n').map(signature).collect();
        let signatures = signatures.ok_or_else(|| wrong("a line after the text is no signature"))?;
        // The text ends with a newline.
        Ok(Self { text: &note[..text.len() + 1], signatures })
    }

    /// Returns the text if the key signed it, with the time of a cosignature in seconds. Fails with
    /// [`IntegrityError::Unsigned`] and [`IntegrityError::Differs`].
    pub(super) fn signed_by(&self, key: &NoteVerifier) -> Result<(&'a str, u64), IntegrityError> {
        let id = key.id().to_be_bytes();
        let mut signed = None;
        for (name, signature) in &self.signatures {
            if *name == key.name
                && let Some(signature) = signature.strip_prefix(&id)
            {
                let bad = || {
                    IntegrityError::Differs(format!(
                        "the signature of {name} is wrong: the text was changed, or the key"
                    ))
                };
                signed = Some((self.text, key.check(self.text, signature).ok_or_else(bad)?));
            }
        }
        signed.ok_or_else(|| IntegrityError::Unsigned(key.name.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The examples of Go's package note, and of C2SP.
    const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const PETERS_SECRET: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const PETERS_TEXT: &str = "If you think cryptography is the answer to your problem,\n\
                               then you don't know what your problem is.\n";
    const PETERS_NOTE: &str = "If you think cryptography is the answer to your problem,\n\
        then you don't know what your problem is.\n\n\
        \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
    const FOO: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    const FOOS_NOTE: &str = "This is an example message.\n\n\
        \u{2014} example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
    // Made with Python's package cryptography, by the text of tlog-cosignature and the seed 00 01 .. 1f.
    const WITNESS: &str = "witness.example.com/w1+a0059f11+BAOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
    const COSIGNED: &str = "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n\
        \u{2014} example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=\n\
        \u{2014} witness.example.com/w1 oAWfEQAAAABkGFDLBuRDazBLVac2NE+Y+IjbjQOcXLfF9CSDZVUIoS83rE1nFZsVE8YiWV6Ngr7lV8H6bdoBQGP/l73euDMQ9k+bBQ==\n";

    fn key(text: &str) -> NoteVerifier {
        text.parse().unwrap()
    }

    #[test]
    fn published_notes_verify() {
        let peter = SignedNote::parse(PETERS_NOTE).unwrap();
        assert_eq!(peter.signed_by(&key(PETER)).unwrap(), (PETERS_TEXT, 0));
        assert!(matches!(peter.signed_by(&key(FOO)), Err(IntegrityError::Unsigned(name)) if name == "example.com/foo"));
        assert!(SignedNote::parse(FOOS_NOTE).unwrap().signed_by(&key(FOO)).is_ok());
        let changed = PETERS_NOTE.replace("answer", "anszer");
        let changed = SignedNote::parse(&changed).unwrap().signed_by(&key(PETER));
        assert!(matches!(changed, Err(IntegrityError::Differs(text)) if text.contains("PeterNeumann is wrong")));
    }

    #[test]
    fn published_secret_signs_the_published_note() {
        let signer: NoteSigner = PETERS_SECRET.parse().unwrap();
        assert_eq!((signer.verifier().to_string(), signer.secret()), (PETER.to_owned(), format!("{PETERS_SECRET}\n")));
        assert_eq!(signer.sign(PETERS_TEXT), PETERS_NOTE);
        assert!(!format!("{signer:?}").contains("seed"));
    }

    #[test]
    fn cosignature_verifies_with_its_time() {
        let note = SignedNote::parse(COSIGNED).unwrap();
        assert_eq!(note.signed_by(&key(WITNESS)).unwrap().1, 1_679_315_147);
        let late = COSIGNED.replace("oAWfEQAAAABkGFDL", "oAWfEQAAAABkGFDM");
        assert!(SignedNote::parse(&late).unwrap().signed_by(&key(WITNESS)).is_err(), "the time is signed, too");
        let known = key("remora.n621.de+da77ade7+BOvN63jn/bLvkieywe8R6UYAtVtNbZpXh34x7onlmtw2");
        assert!(known.is_witness() && !key(PETER).is_witness());
    }

    #[test]
    fn mangled_keys_are_refused() {
        for text in [PETER, PETERS_SECRET] {
            let is_key = |text: &str| text.parse::<NoteVerifier>().is_ok() || text.parse::<NoteSigner>().is_ok();
            assert!(is_key(text));
            for from in 0..text.len() {
                for until in from..text.len() {
                    assert!(!is_key(&text[from..until]), "{}", &text[from..until]);
                }
                let mut bytes = text.as_bytes().to_vec();
                bytes[from] += 1;
                assert!(!is_key(std::str::from_utf8(&bytes).unwrap()), "byte {from}");
            }
        }
        let wrong = ["PeterNeumann+cc469956+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TWBADKEY==", "", "++", "a+b+c"];
        wrong.iter().for_each(|text| assert!(text.parse::<NoteVerifier>().is_err(), "{text}"));
        assert!(NoteSigner::new("a b").is_err() && NoteSigner::new("").is_err() && NoteSigner::new("a+b").is_err());
    }

    #[test]
    fn malformed_notes_are_refused() {
        for note in [
            "",
            "text\n",
            "text\n\n",
            "text\n\n\n",
            "text\n\nname AAAAAAAA\n",
            "text\n\n\u{2014} name\n",
            "text\n\n\u{2014} name AAAA\n",
            "text\n\n\u{2014} name AAAAAAAA",
            "te\rxt\n\n\u{2014} name AAAAAAAA\n",
        ] {
            assert!(SignedNote::parse(note).is_err(), "{note:?}");
        }
        let two = "a\n\nb\n\n\u{2014} name AAAAAAAA\n";
        assert_eq!(SignedNote::parse(two).unwrap().text, "a\n\nb\n");
    }
}
