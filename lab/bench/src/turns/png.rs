//! A PNG made without a compressor.

/// A square picture of one grey, stored without compression.
pub fn grey(side: u32) -> Vec<u8> {
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    // Eight bits of grey.
    let header = [&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    chunk(&mut out, b"IHDR", &header);
    let rows = [&[0][..], &vec![0x55; side as usize]].concat().repeat(side as usize);
    let mut data = vec![0x78, 0x01];
    let mut blocks = rows.chunks(0xffff).peekable();
    while let Some(block) = blocks.next() {
        let len = block.len() as u16;
        data.push(u8::from(blocks.peek().is_none()));
        data.extend_from_slice(&len.to_le_bytes());
        data.extend_from_slice(&(!len).to_le_bytes());
        data.extend_from_slice(block);
    }
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &rows {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    data.extend_from_slice(&(b << 16 | a).to_be_bytes());
    chunk(&mut out, b"IDAT", &data);
    chunk(&mut out, b"IEND", b"");
    out
}

fn chunk(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    out.extend_from_slice(&(data.len() as u32).to_be_bytes());
    let start = out.len();
    out.extend_from_slice(name);
    out.extend_from_slice(data);
    let crc = !out[start..].iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
        })
    });
    out.extend_from_slice(&crc.to_be_bytes());
}
