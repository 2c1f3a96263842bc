//! As much of DER (X.690) as keys and the outer form of certificates need.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;

/// Reads one element after the other.
#[derive(Clone)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the next element has this tag.
    pub(super) fn is_next(&self, tag: u8) -> bool {
        self.0.first() == Some(&tag)
    }

    /// The content of the next element, which has this tag.
    pub(super) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (head, len) = self.head(tag)?;
        let content = self.0.get(head..head.checked_add(len)?)?;
        self.0 = self.0.get(head + len..)?;
        Some(content)
    }

    /// The next element with its head.
    pub(super) fn whole(&mut self, tag: u8) -> Option<&'a [u8]> {
        let (head, len) = self.head(tag)?;
        let (whole, rest) = self.0.split_at_checked(head.checked_add(len)?)?;
        self.0 = rest;
        Some(whole)
    }

    /// The elements of the next element.
    pub(super) fn sequence(&mut self) -> Option<Reader<'a>> {
        self.take(SEQUENCE).map(Reader)
    }

    /// A number that is not negative and fits.
    pub(super) fn number(&mut self) -> Option<u64> {
        let content = self.take(INTEGER)?;
        if content.len() > 9 || content.first()? & 0x80 != 0 {
            return None;
        }
        content.iter().try_fold(0u64, |sum, byte| Some(sum.checked_mul(256)? + u64::from(*byte)))
    }

    /// The lengths of the next element's head and content. The indefinite length is no DER.
    fn head(&self, tag: u8) -> Option<(usize, usize)> {
        let (first, rest) = self.0.split_first()?;
        let (len, rest) = rest.split_first()?;
        if *first != tag {
            return None;
        }
        if *len < 0x80 {
            return Some((2, usize::from(*len)));
        }
        let count = usize::from(*len & 0x7f);
        if count == 0 || count > 4 {
            return None;
        }
        let bytes = rest.get(..count)?;
        let len = bytes.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte));
        Some((2 + count, len))
    }
}
