//! The ring of `hash … consistent`: as nginx and Cache::Memcached::Fast lay it out, so that keys
//! stay where they are when one takes the other's place.

use base::crc::Crc32;
use bytes::Bytes;

/// Points of a server on the ring, for each unit of its weight.
const POINTS: usize = 160;

/// Hashes in order, each with the server it leads to.
#[derive(Default)]
pub(super) struct Ring {
    /// A hash in the upper half and the index of a server in the lower: thousands of servers have
    /// a million points.
    points: Vec<u64>,
    servers: Box<[Bytes]>,
}

/// A server on a ring.
pub(super) struct Member {
    /// Its name, as the configuration has it.
    pub name: Bytes,
    pub weight: i64,
}

impl Member {
    fn points(&self) -> usize {
        usize::try_from(self.weight).unwrap_or(0).saturating_mul(POINTS)
    }
}

fn hash(point: u64) -> u32 {
    (point >> 32) as u32
}

/// Host and port of a server's name, which are hashed one after the other.
fn parts(server: &[u8]) -> (&[u8], &[u8]) {
    if server.len() >= 5 && server[..5].eq_ignore_ascii_case(b"unix:") {
        return (&server[5..], b"");
    }
    let digits = server.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    match server.len().checked_sub(digits + 1) {
        Some(colon) if server[colon] == b':' => (&server[..colon], &server[colon + 1..]),
        _ => (server, b""),
    }
}

impl Ring {
    /// How many points the ring of these servers has; making it takes 40 ns for each.
    pub(crate) fn points_of(members: &[Member]) -> usize {
        members.iter().map(Member::points).fold(0, usize::saturating_add)
    }

    /// The ring of these servers.
    pub fn new(members: Vec<Member>) -> Ring {
        let mut points = Vec::with_capacity(Ring::points_of(&members));
        for (i, member) in members.iter().enumerate() {
            let (host, port) = parts(&member.name);
            let mut start = Crc32::new();
            start.update(host);
            start.update(&[0]);
            start.update(port);
            let mut previous = 0u32;
            for _ in 0..member.points() {
                let mut crc = start;
                crc.update(&previous.to_le_bytes());
                previous = crc.finish();
                points.push(u64::from(previous) << 32 | i as u64);
            }
        }
        points.sort_unstable();
        points.dedup_by_key(|point| hash(*point));
        points.shrink_to_fit();
        Ring { points, servers: members.into_iter().map(|member| member.name).collect() }
    }

    /// Whether it leads to no server.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// The number of the first point at or behind a hash.
    pub fn find(&self, wanted: u32) -> u32 {
        self.points.partition_point(|point| hash(*point) < wanted) as u32
    }

    /// The server at the point of that number, counted round and round.
    pub fn server(&self, number: u32) -> Option<&Bytes> {
        let i = (number as usize).checked_rem(self.points.len())?;
        self.servers.get(self.points[i] as u32 as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        for (server, host, port) in [
            ("127.0.0.1:80", "127.0.0.1", "80"),
            ("backend", "backend", ""),
            ("backend:", "backend", ""),
            ("[::1]:8080", "[::1]", "8080"),
            ("[::1]", "[::1]", ""),
            ("UNIX:/tmp/a:1", "/tmp/a:1", ""),
            ("8080", "8080", ""),
        ] {
            assert_eq!(parts(server.as_bytes()), (host.as_bytes(), port.as_bytes()), "{server}");
        }
    }

    #[test]
    fn points_are_those_of_cache_memcached_fast() {
        let ring = Ring::new(vec![Member { name: "127.0.0.1:11211".into(), weight: 2 }]);
        assert_eq!(ring.points.len(), 320);
        let mut crc = Crc32::new();
        crc.update(b"127.0.0.1\x0011211\0\0\0\0");
        let first = crc.finish();
        assert!(ring.points.iter().any(|point| hash(*point) == first));
        assert!(ring.points.is_sorted_by_key(|point| hash(*point)));
        let at = ring.find(first);
        assert_eq!(hash(ring.points[at as usize]), first);
        assert_eq!(ring.find(first.wrapping_add(1)), at + 1);
        // Behind the last point comes the first.
        assert!(ring.server(320).is_some());
        assert_eq!(Ring::default().server(0), None);
    }
}
