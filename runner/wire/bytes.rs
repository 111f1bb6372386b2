//! Numbers, byte strings and lists in frames.

use super::Malformed;

pub(super) fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
}

pub(super) fn put_optional(out: &mut Vec<u8>, number: Option<u32>) {
    out.push(u8::from(number.is_some()));
    if let Some(number) = number {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_length(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_list(out: &mut Vec<u8>, list: &[&[u8]]) {
    put_length(out, list.len());
    for item in list {
        put_bytes(out, item);
    }
}

pub(super) struct Rest<'a>(pub(super) &'a [u8]);

impl<'a> Rest<'a> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed("the frame is too short"))?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Malformed("the frame is too short"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub(super) fn optional(&mut self) -> Result<Option<u32>, Malformed> {
        if self.flag()? { self.u32().map(Some) } else { Ok(None) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.u32()? as usize;
        self.take(length)
    }

    pub(super) fn list(&mut self, limit: usize) -> Result<Vec<&'a [u8]>, Malformed> {
        let count = self.u32()? as usize;
        if count > limit {
            return Err(Malformed("a list is too long"));
        }
        (0..count).map(|_| self.bytes()).collect()
    }

    pub(super) fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed("the frame is too long for its kind")) }
    }
}
