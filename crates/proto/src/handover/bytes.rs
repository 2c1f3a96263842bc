//! Fields as bytes, and back.

/// The bytes that are still to be read.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }
}

/// A field of a message.
pub(super) trait Field<'a>: Sized {
    /// Appends the field.
    fn put(&self, out: &mut Vec<u8>);

    /// Reads it; `None` if the bytes are none.
    fn get(reader: &mut Reader<'a>) -> Option<Self>;
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Field<'_> for $number {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            fn get(reader: &mut Reader<'_>) -> Option<$number> {
                let bytes = reader.take(size_of::<$number>())?;
                bytes.try_into().ok().map(<$number>::from_be_bytes)
            }
        }
    )*};
}

number!(u8, u16, u32, u64, i32);

impl Field<'_> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(reader: &mut Reader<'_>) -> Option<bool> {
        match u8::get(reader)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl<'a> Field<'a> for &'a [u8] {
    fn put(&self, out: &mut Vec<u8>) {
        // Longer bytes make a message that is not sent: its length is checked at its end.
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        out.extend_from_slice(self);
    }

    fn get(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
        let len = u32::get(reader)?;
        reader.take(len as usize)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn get(reader: &mut Reader<'a>) -> Option<Option<T>> {
        match bool::get(reader)? {
            false => Some(None),
            true => T::get(reader).map(Some),
        }
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.len()).unwrap_or(u32::MAX).put(out);
        self.iter().for_each(|element| element.put(out));
    }

    fn get(reader: &mut Reader<'a>) -> Option<Vec<T>> {
        // The count is not believed: each element takes at least a byte.
        let count = u32::get(reader)? as usize;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(T::get(reader)?);
        }
        Some(all)
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(reader: &mut Reader<'a>) -> Option<(A, B)> {
        Some((A::get(reader)?, B::get(reader)?))
    }
}

impl<'a, A: Field<'a>, B: Field<'a>, C: Field<'a>> Field<'a> for (A, B, C) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }

    fn get(reader: &mut Reader<'a>) -> Option<(A, B, C)> {
        Some((A::get(reader)?, B::get(reader)?, C::get(reader)?))
    }
}

/// Defines a structure whose fields are written and read in their order.
macro_rules! record {
    ($(#[$doc:meta])* pub struct $name:ident<'a> {
        $($(#[$field_doc:meta])* pub $field:ident: $type:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Debug)]
        pub struct $name<'a> {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl<'a> Field<'a> for $name<'a> {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(reader: &mut Reader<'a>) -> Option<$name<'a>> {
                Some($name { $($field: Field::get(reader)?,)* })
            }
        }
    };
}

pub(super) use record;
