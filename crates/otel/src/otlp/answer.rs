//! Parses the collector's response.

use super::wire::{Field, Fields};

/// A partial success: some spans were rejected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partial {
    /// The number of rejected spans; 0 if the collector only sent a message.
    pub rejected: u64,
    /// The collector's message.
    pub message: String,
}

/// The `partial_success` of a response (`ExportTraceServiceResponse`); `None` if it is absent or
/// empty. A malformed response counts as success, because the status already says that the spans
/// were accepted.
pub fn partial_success(message: &[u8]) -> Option<Partial> {
    let mut partial = Partial { rejected: 0, message: String::new() };
    for field in Fields(message).flatten() {
        let (1, Field::Bytes(inner)) = field else { continue };
        for field in Fields(inner).flatten() {
            match field {
                // A negative number counts as 0.
                (1, Field::Number(n)) => partial.rejected = n.cast_signed().max(0).cast_unsigned(),
                (2, Field::Bytes(text)) => {
                    partial.message = String::from_utf8_lossy(text).into_owned();
                }
                _ => {}
            }
        }
    }
    (partial.rejected > 0 || !partial.message.is_empty()).then_some(partial)
}

/// The delay before a retry that a response requests, in milliseconds; `None` if it requests none.
/// It is in `google.rpc.RetryInfo` among the details of a `google.rpc.Status`, which is the trailer
/// `grpc-status-details-bin` or the body of an HTTP error.
pub fn retry_delay_ms(status: &[u8]) -> Option<u64> {
    let details = Fields(status).flatten().filter_map(|field| match field {
        (3, Field::Bytes(any)) => Some(any),
        _ => None,
    });
    details.filter_map(retry_info).next()
}

fn retry_info(any: &[u8]) -> Option<u64> {
    let bytes = |of: &'_ [u8], wanted: u64| {
        Fields(of).flatten().find_map(|field| match field {
            (number, Field::Bytes(bytes)) if number == wanted => Some(bytes.to_vec()),
            _ => None,
        })
    };
    if !bytes(any, 1)?.ends_with(b"/google.rpc.RetryInfo") {
        return None;
    }
    // An absent delay means 0: retry at once.
    let delay = bytes(any, 2).and_then(|info| bytes(&info, 1)).unwrap_or_default();
    let (mut secs, mut nanos) = (0, 0);
    for field in Fields(&delay).flatten() {
        match field {
            (1, Field::Number(n)) => secs = n.cast_signed().max(0).cast_unsigned(),
            (2, Field::Number(n)) => nanos = n.cast_signed().max(0).cast_unsigned(),
            _ => {}
        }
    }
    Some(secs.saturating_mul(1000).saturating_add(nanos / 1_000_000))
}

#[cfg(test)]
mod tests {
    use super::super::wire::{write_bytes, write_number};
    use super::*;

    fn message(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out);
        out
    }

    #[test]
    fn partial_successes() {
        assert_eq!(partial_success(b""), None);
        assert_eq!(partial_success(b"\x0a\x00"), None);
        let partial = Partial { rejected: 3, message: "too old".to_owned() };
        assert_eq!(partial_success(b"\x0a\x0b\x08\x03\x12\x07too old"), Some(partial));
        let warning = Partial { rejected: 0, message: "hm".to_owned() };
        assert_eq!(partial_success(b"\x0a\x04\x12\x02hm"), Some(warning));
        // Malformed bytes after it do not matter.
        assert_eq!(partial_success(b"\x0a\x02\x08\x03\x0b").map(|p| p.rejected), Some(3));
        assert_eq!(partial_success(b"\x0a\x09\x08\x03"), None);
        assert_eq!(partial_success(b"\xff\xff"), None);
    }

    fn status(kind: &str, delay: &[u8]) -> Vec<u8> {
        let info = message(|out| write_bytes(out, 1, delay));
        let any = message(|out| {
            write_bytes(out, 1, format!("type.googleapis.com/google.rpc.{kind}").as_bytes());
            write_bytes(out, 2, &info);
        });
        message(|out| {
            write_number(out, 1, 8);
            write_bytes(out, 2, b"exhausted");
            write_bytes(out, 3, &any);
        })
    }

    #[test]
    fn delays_of_retries() {
        let delay = message(|out| {
            write_number(out, 1, 2);
            write_number(out, 2, 500_000_000);
        });
        assert_eq!(retry_delay_ms(&status("RetryInfo", &delay)), Some(2500));
        assert_eq!(retry_delay_ms(&status("RetryInfo", b"")), Some(0));
        assert_eq!(retry_delay_ms(&status("ErrorInfo", &delay)), None);
        assert_eq!(retry_delay_ms(b""), None);
        assert_eq!(retry_delay_ms(b"\x1a\xff"), None);
        let huge = message(|out| write_number(out, 1, u64::MAX >> 1));
        assert_eq!(retry_delay_ms(&status("RetryInfo", &huge)), Some(u64::MAX));
    }
}
