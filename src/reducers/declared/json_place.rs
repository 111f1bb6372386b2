//! JSON pointers (RFC 6901) into JSON text, without parsing what they pass.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::value::RawValue;

use crate::engine::ValueError;

const CHARS_MAX: usize = 1000;

/// A parsed JSON pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct JsonPlace(Vec<String>);

impl JsonPlace {
    pub(super) fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Ok(Self(Vec::new()));
        }
        let is_escaped = |token: &str| token.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        match text.strip_prefix('/') {
            Some(rest) if text.len() <= CHARS_MAX && rest.split('/').all(is_escaped) => {
                Ok(Self(rest.split('/').map(|token| token.replace("~1", "/").replace("~0", "~")).collect()))
            }
            _ => {
                let shown: String = text.chars().take(80).collect();
                let what = format!("invalid JSON pointer {shown:?}; use one such as /id or /steps/0, of at most");
                Err(ValueError::new(format!("{what} {CHARS_MAX} bytes")))
            }
        }
    }

    /// Returns the text of the value at this place.
    pub(super) fn find<'a>(&self, json: &'a [u8]) -> Option<&'a str> {
        let mut reader = serde_json::Deserializer::from_slice(json);
        PlaceSeed(&self.0).deserialize(&mut reader).ok()?.map(RawValue::get)
    }

    /// Returns the value at this place as a key, if it is a string, a number or a Boolean.
    pub(super) fn text<'a>(&self, json: &'a [u8]) -> Option<Cow<'a, str>> {
        let raw = self.find(json)?;
        match raw.as_bytes().first()? {
            b'"' if !raw.contains('\\') => Some(Cow::Borrowed(&raw[1..raw.len() - 1])),
            b'"' => serde_json::from_str(raw).ok().map(Cow::Owned),
            b'{' | b'[' | b'n' => None,
            _ => Some(Cow::Borrowed(raw)),
        }
    }
}

struct PlaceSeed<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for PlaceSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        match self.0.split_first() {
            None => <&RawValue>::deserialize(reader).map(Some),
            Some(_) => reader.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for PlaceSeed<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
        let mut found = None;
        while let Some(is_meant) = map.next_key_seed(KeyIs(first))? {
            if is_meant {
                found = map.next_value_seed(PlaceSeed(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
        // RFC 6901 has no leading zeros.
        let wanted = first.parse().ok().filter(|number: &usize| number.to_string() == *first);
        let (mut found, mut number) = (None, 0_usize);
        loop {
            if Some(number) == wanted {
                let Some(item) = items.next_element_seed(PlaceSeed(rest))? else { return Ok(found) };
                found = item;
            } else if items.next_element::<IgnoredAny>()?.is_none() {
                return Ok(found);
            }
            number += 1;
        }
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

struct KeyIs<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for KeyIs<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<bool, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for KeyIs<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}
