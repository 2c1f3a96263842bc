//! crypt(3)'s oldest form: DES with two digits of salt. Slow by design once, weak today; files in
//! use still hold it. Written for size, bit by bit.

use super::crypt::DIGITS;

type Bits<const N: usize> = [u8; N];

const IP: Bits<64> = [
    58, 50, 42, 34, 26, 18, 10, 2, 60, 52, 44, 36, 28, 20, 12, 4, 62, 54, 46, 38, 30, 22, 14, 6,
    64, 56, 48, 40, 32, 24, 16, 8, 57, 49, 41, 33, 25, 17, 9, 1, 59, 51, 43, 35, 27, 19, 11, 3, 61,
    53, 45, 37, 29, 21, 13, 5, 63, 55, 47, 39, 31, 23, 15, 7,
];

const FP: Bits<64> = [
    40, 8, 48, 16, 56, 24, 64, 32, 39, 7, 47, 15, 55, 23, 63, 31, 38, 6, 46, 14, 54, 22, 62, 30,
    37, 5, 45, 13, 53, 21, 61, 29, 36, 4, 44, 12, 52, 20, 60, 28, 35, 3, 43, 11, 51, 19, 59, 27,
    34, 2, 42, 10, 50, 18, 58, 26, 33, 1, 41, 9, 49, 17, 57, 25,
];

const E: Bits<48> = [
    32, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 8, 9, 10, 11, 12, 13, 12, 13, 14, 15, 16, 17, 16, 17, 18,
    19, 20, 21, 20, 21, 22, 23, 24, 25, 24, 25, 26, 27, 28, 29, 28, 29, 30, 31, 32, 1,
];

const P: Bits<32> = [
    16, 7, 20, 21, 29, 12, 28, 17, 1, 15, 23, 26, 5, 18, 31, 10, 2, 8, 24, 14, 32, 27, 3, 9, 19,
    13, 30, 6, 22, 11, 4, 25,
];

const PC1: Bits<56> = [
    57, 49, 41, 33, 25, 17, 9, 1, 58, 50, 42, 34, 26, 18, 10, 2, 59, 51, 43, 35, 27, 19, 11, 3, 60,
    52, 44, 36, 63, 55, 47, 39, 31, 23, 15, 7, 62, 54, 46, 38, 30, 22, 14, 6, 61, 53, 45, 37, 29,
    21, 13, 5, 28, 20, 12, 4,
];

const PC2: Bits<48> = [
    14, 17, 11, 24, 1, 5, 3, 28, 15, 6, 21, 10, 23, 19, 12, 4, 26, 8, 16, 7, 27, 20, 13, 2, 41, 52,
    31, 37, 47, 55, 30, 40, 51, 45, 33, 48, 44, 49, 39, 56, 34, 53, 46, 42, 50, 36, 29, 32,
];

const SHIFTS: [usize; 16] = [1, 1, 2, 2, 2, 2, 2, 2, 1, 2, 2, 2, 2, 2, 2, 1];

const S: [[u8; 64]; 8] = [
    [
        14, 4, 13, 1, 2, 15, 11, 8, 3, 10, 6, 12, 5, 9, 0, 7, 0, 15, 7, 4, 14, 2, 13, 1, 10, 6, 12,
        11, 9, 5, 3, 8, 4, 1, 14, 8, 13, 6, 2, 11, 15, 12, 9, 7, 3, 10, 5, 0, 15, 12, 8, 2, 4, 9,
        1, 7, 5, 11, 3, 14, 10, 0, 6, 13,
    ],
    [
        15, 1, 8, 14, 6, 11, 3, 4, 9, 7, 2, 13, 12, 0, 5, 10, 3, 13, 4, 7, 15, 2, 8, 14, 12, 0, 1,
        10, 6, 9, 11, 5, 0, 14, 7, 11, 10, 4, 13, 1, 5, 8, 12, 6, 9, 3, 2, 15, 13, 8, 10, 1, 3, 15,
        4, 2, 11, 6, 7, 12, 0, 5, 14, 9,
    ],
    [
        10, 0, 9, 14, 6, 3, 15, 5, 1, 13, 12, 7, 11, 4, 2, 8, 13, 7, 0, 9, 3, 4, 6, 10, 2, 8, 5,
        14, 12, 11, 15, 1, 13, 6, 4, 9, 8, 15, 3, 0, 11, 1, 2, 12, 5, 10, 14, 7, 1, 10, 13, 0, 6,
        9, 8, 7, 4, 15, 14, 3, 11, 5, 2, 12,
    ],
    [
        7, 13, 14, 3, 0, 6, 9, 10, 1, 2, 8, 5, 11, 12, 4, 15, 13, 8, 11, 5, 6, 15, 0, 3, 4, 7, 2,
        12, 1, 10, 14, 9, 10, 6, 9, 0, 12, 11, 7, 13, 15, 1, 3, 14, 5, 2, 8, 4, 3, 15, 0, 6, 10, 1,
        13, 8, 9, 4, 5, 11, 12, 7, 2, 14,
    ],
    [
        2, 12, 4, 1, 7, 10, 11, 6, 8, 5, 3, 15, 13, 0, 14, 9, 14, 11, 2, 12, 4, 7, 13, 1, 5, 0, 15,
        10, 3, 9, 8, 6, 4, 2, 1, 11, 10, 13, 7, 8, 15, 9, 12, 5, 6, 3, 0, 14, 11, 8, 12, 7, 1, 14,
        2, 13, 6, 15, 0, 9, 10, 4, 5, 3,
    ],
    [
        12, 1, 10, 15, 9, 2, 6, 8, 0, 13, 3, 4, 14, 7, 5, 11, 10, 15, 4, 2, 7, 12, 9, 5, 6, 1, 13,
        14, 0, 11, 3, 8, 9, 14, 15, 5, 2, 8, 12, 3, 7, 0, 4, 10, 1, 13, 11, 6, 4, 3, 2, 12, 9, 5,
        15, 10, 11, 14, 1, 7, 6, 0, 8, 13,
    ],
    [
        4, 11, 2, 14, 15, 0, 8, 13, 3, 12, 9, 7, 5, 10, 6, 1, 13, 0, 11, 7, 4, 9, 1, 10, 14, 3, 5,
        12, 2, 15, 8, 6, 1, 4, 11, 13, 12, 3, 7, 14, 10, 15, 6, 8, 0, 5, 9, 2, 6, 11, 13, 8, 1, 4,
        10, 7, 9, 5, 0, 15, 14, 2, 3, 12,
    ],
    [
        13, 2, 8, 4, 6, 15, 11, 1, 10, 9, 3, 14, 5, 0, 12, 7, 1, 15, 13, 8, 10, 3, 7, 4, 12, 5, 6,
        11, 0, 14, 9, 2, 7, 11, 4, 1, 9, 12, 14, 2, 0, 6, 10, 13, 15, 3, 5, 8, 2, 1, 14, 7, 4, 10,
        8, 13, 15, 12, 9, 0, 3, 5, 6, 11,
    ],
];

/// Bits in the order that a table names them, from 1.
fn permute<const N: usize>(from: &[u8], table: &Bits<N>) -> Bits<N> {
    table.map(|i| from[usize::from(i) - 1])
}

/// The sixteen round keys.
fn keys(key: &Bits<64>) -> [Bits<48>; 16] {
    let mut cd = permute(key, &PC1);
    SHIFTS.map(|n| {
        cd[..28].rotate_left(n);
        cd[28..].rotate_left(n);
        permute(&cd, &PC2)
    })
}

/// One encryption, with the expansion that the salt made.
fn encrypt(block: &Bits<64>, keys: &[Bits<48>; 16], expansion: &Bits<48>) -> Bits<64> {
    let block = permute(block, &IP);
    let (mut l, mut r) = ([0u8; 32], [0u8; 32]);
    l.copy_from_slice(&block[..32]);
    r.copy_from_slice(&block[32..]);
    for key in keys {
        let mut wide = permute(&r, expansion);
        wide.iter_mut().zip(key).for_each(|(w, k)| *w ^= k);
        let mut out = [0u8; 32];
        for (i, six) in wide.chunks_exact(6).enumerate() {
            let row = six[0] << 1 | six[5];
            let column = six[1] << 3 | six[2] << 2 | six[3] << 1 | six[4];
            let four = S[i][usize::from(row << 4 | column)];
            for (bit, o) in out[i * 4..i * 4 + 4].iter_mut().enumerate() {
                *o = four >> (3 - bit) & 1;
            }
        }
        let mut f = permute(&out, &P);
        f.iter_mut().zip(&l).for_each(|(f, l)| *f ^= l);
        l = r;
        r = f;
    }
    let mut out = [0u8; 64];
    out[..32].copy_from_slice(&r);
    out[32..].copy_from_slice(&l);
    permute(&out, &FP)
}

/// The hash of a password under the salt in the first two digits of `setting`; `None` where those
/// are no digits.
pub(super) fn crypt(password: &[u8], setting: &[u8]) -> Option<Vec<u8>> {
    let &[a, b, ..] = setting else { return None };
    let mut expansion = E;
    for (i, digit) in [a, b].into_iter().enumerate() {
        let value = DIGITS.iter().position(|d| *d == digit)?;
        for bit in (0..6).filter(|bit| value >> bit & 1 == 1) {
            expansion.swap(6 * i + bit, 6 * i + bit + 24);
        }
    }
    let mut key = [0u8; 64];
    for (i, byte) in password.iter().take_while(|b| **b != 0).take(8).enumerate() {
        for bit in 0..7 {
            key[i * 8 + bit] = byte >> (6 - bit) & 1;
        }
    }
    let keys = keys(&key);
    let mut block = [0u8; 64];
    for _ in 0..25 {
        block = encrypt(&block, &keys, &expansion);
    }
    let mut out = vec![a, b];
    for six in block.chunks(6) {
        let value = six.iter().fold(0, |v, bit| v << 1 | usize::from(*bit));
        out.push(DIGITS[value << (6 - six.len())]);
    }
    Some(out)
}
