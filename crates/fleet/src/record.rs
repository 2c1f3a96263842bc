//! The records of tables as the engine returns them. Nothing in them is trusted: another program
//! may have written them.

use crate::call::Answer;

/// A record of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PulledRecord {
    /// The key.
    pub key: Vec<u8>,
    /// The value; `None` for a tombstone.
    pub value: Option<Vec<u8>>,
    /// The lifetime left, in milliseconds; `None` for ever. 0: it is over.
    pub left_ms: Option<u64>,
}

/// The answer to a pull.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pull {
    /// Changes when the engine has lost everything; empty before the first write.
    pub epoch: Vec<u8>,
    /// The latest version.
    pub latest: u64,
    /// The version of the last record here; `None` if there is no record.
    pub reached: Option<u64>,
    /// The records that make sense.
    pub records: Vec<PulledRecord>,
    /// The number of records that make none.
    pub malformed: u64,
}

/// The outcome of one write.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pushed {
    /// It is stored.
    Stored,
    /// Another one is newer.
    Lost(PulledRecord),
    /// The answer makes no sense.
    Malformed,
}

/// Reads a record. `now_ms` is the engine's time.
fn record(key: &[u8], bytes: &[u8], now_ms: i64) -> Option<PulledRecord> {
    let end = bytes.iter().position(|b| *b == b'\n')?;
    let header = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let mut words = header.split(' ');
    if words.next()? != "1" {
        return None;
    }
    let _stamp: i64 = words.next()?.parse().ok()?;
    let _node = words.next()?;
    let expires: i64 = words.next()?.parse().ok()?;
    let value = match words.next()? {
        "s" => Some(bytes.get(end + 1..)?.to_vec()),
        "t" => None,
        _ => return None,
    };
    let left = expires.saturating_sub(now_ms).max(0);
    let left_ms = (expires != 0).then_some(u64::try_from(left).unwrap_or(0));
    words.next().is_none().then(|| PulledRecord { key: key.to_vec(), value, left_ms })
}

/// Reads the answer to a pull; `None` if it is none.
pub fn pull(answer: &Answer) -> Option<Pull> {
    let list = answer.list()?;
    let (fixed, rest) = list.split_at_checked(3)?;
    let epoch = fixed[0].bytes()?.to_vec();
    let latest = u64::try_from(fixed[1].int()?).ok()?;
    let now_ms = fixed[2].int()?;
    let mut pull = Pull { epoch, latest, reached: None, records: Vec::new(), malformed: 0 };
    for three in rest.chunks(3) {
        let [key, version, record_] = three else { return None };
        let version = u64::try_from(version.int()?).ok()?;
        pull.reached = Some(version);
        match record(key.bytes()?, record_.bytes().unwrap_or(b""), now_ms) {
            Some(record) => pull.records.push(record),
            None => pull.malformed += 1,
        }
    }
    Some(pull)
}

/// Reads the answer to a push of pairs with these keys, in their order; `None` if it is none.
pub fn pushed<'k>(
    answer: &Answer,
    keys: impl ExactSizeIterator<Item = &'k [u8]>,
) -> Option<Vec<Pushed>> {
    let (now, list) = answer.list()?.split_first()?;
    let now_ms = now.int().filter(|_| list.len() == keys.len())?;
    let one = |(answer, key): (&Answer, &[u8])| match answer {
        Answer::Int(1) => Pushed::Stored,
        Answer::Bytes(bytes) => record(key, bytes, now_ms).map_or(Pushed::Malformed, Pushed::Lost),
        _ => Pushed::Malformed,
    };
    Some(list.iter().zip(keys).map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Answer {
        Answer::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn records_are_read() {
        let answer = Answer::List(vec![
            bytes("e"),
            bytes("7"),
            Answer::Int(1000),
            bytes("a"),
            bytes("5"),
            bytes("1 900 n1 1500 s\nva\nlue"),
            bytes("b"),
            bytes("6"),
            bytes("1 900 n1 2000 t\n"),
            bytes("c"),
            bytes("7"),
            bytes("something else"),
        ]);
        let pull = pull(&answer).unwrap();
        assert_eq!((pull.latest, pull.reached, pull.malformed), (7, Some(7), 1));
        let a = PulledRecord {
            key: b"a".to_vec(),
            value: Some(b"va\nlue".to_vec()),
            left_ms: Some(500),
        };
        let b = PulledRecord { key: b"b".to_vec(), value: None, left_ms: Some(1000) };
        assert_eq!(pull.records, [a, b]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in ["", "1", "1 2 3\n", "2 1 n 0 s\n", "1 x n 0 s\n", "1 1 n 0 x\n", "1 1 n 0 s"] {
            assert_eq!(record(b"k", text.as_bytes(), 0), None, "{text}");
        }
        assert_eq!(pull(&Answer::Nil), None);
        assert_eq!(pull(&Answer::List(vec![bytes("e")])), None);
        let keys = || [&b"k"[..]].into_iter();
        assert_eq!(pushed(&Answer::Int(1), keys()), None);
        assert_eq!(pushed(&Answer::List(vec![Answer::Int(9)]), keys()), None);
        let odd = Answer::List(vec![Answer::Int(9), Answer::Nil]);
        assert_eq!(pushed(&odd, keys()), Some(vec![Pushed::Malformed]));
    }
}
