//! Repair of single flipped bits, located by the checksum.

use super::frame::{FrameBody, FrameKind, HEADER, Header};
use crate::engine::store::content;

/// Longest repairable payload without a digest. In a longer one, a wrong bit could match the checksum by chance.
const PAYLOAD_MAX: usize = 16 << 10;

/// Returns the original frame, if a single flipped bit explains these bytes.
pub(crate) fn mended(bytes: &[u8]) -> Option<(Header, Vec<u8>)> {
    let head = bytes.first_chunk::<HEADER>()?;
    let flips = (0..HEADER * 8).filter_map(|bit| {
        let mut head = *head;
        head[bit / 8] ^= 1 << (bit % 8);
        Header::parse(&head)
    });
    let header = Header::parse(head).or_else(|| { flips }.next())?;
    if bytes.get(header.frame_len()..)?.iter().any(|byte| *byte != 0) {
        return None;
    }
    let mut payload = bytes.get(HEADER..HEADER + header.length)?.to_vec();
    if !header.fits(&payload) {
        let is_content = header.kind == FrameKind::Content;
        if payload.len() > PAYLOAD_MAX && !is_content || Header::parse(head).is_none() {
            return None;
        }
        let (at, bit) = flipped_bit(header.error_of(&payload), payload.len())?;
        payload[at] ^= bit;
        if is_content && content::piece_bytes(&payload).is_none() {
            return None;
        }
    }
    FrameBody::of(header.kind, &payload).is_ok().then_some((header, payload))
}

/// Finds the bit that, flipped, makes this difference to a CRC-32C. Returns its byte and its value.
fn flipped_bit(difference: u32, length: usize) -> Option<(usize, u8)> {
    let step = |register: u32| (0..8).fold(register, |r, _| (r >> 1) ^ if r & 1 == 1 { 0x82f6_3b78 } else { 0 });
    let mut registers: [u32; 8] = std::array::from_fn(|bit| step(1 << bit));
    for at in (0..length).rev() {
        if let Some(bit) = registers.iter().position(|register| *register == difference) {
            return Some((at, 1 << bit));
        }
        registers = registers.map(step);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use super::*;

    #[test]
    fn frame_with_flipped_bit_is_mended() {
        let mut bytes = Vec::new();
        let payload = [3; 16];
        frame::put(&mut bytes, FrameKind::Removal, true, 7, &payload, crc32c::crc32c(&payload));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let (header, found) = mended(&flipped).unwrap_or_else(|| panic!("bit {bit}"));
            assert_eq!((header.kind, header.group, &found[..]), (FrameKind::Removal, 7, &payload[..]), "bit {bit}");
            flipped[20] ^= 1;
            flipped[30] ^= 1;
            assert!(mended(&flipped).is_none_or(|(_, found)| found == payload), "bit {bit} and two more");
        }
    }
}
