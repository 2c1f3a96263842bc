//! Accepted connections by client: which client has which connection, and how many each has.
//!
//! Counting starts with the first question, and ends with [`Clients::forget_counts`], because only
//! a loop that is short of room asks: from the first refused connection to the end of the overload.
//! Until then a connection costs the hash of its address.

use std::hash::BuildHasher;
use std::net::IpAddr;

use base::hash::{Fast, Table};

/// The place of a connection's client among all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// No client has more than its share.
    Even,
    /// Another client has more than its share, this one has not.
    Light,
    /// This client has more than its share: its number of connections.
    Heavy(usize),
}

/// The connections of each client, and the one that has the most as far as is known.
#[derive(Default)]
struct Counted {
    by_client: Table<u32, u32>,
    most: (u32, u32),
    /// The one with the most has lost some: another may have more now.
    is_stale: bool,
}

impl Counted {
    fn add(&mut self, client: u32) {
        let count = self.by_client.entry(client).or_default();
        *count += 1;
        if *count > self.most.1 {
            self.most = (client, *count);
        }
    }

    fn sub(&mut self, client: u32) {
        let Some(count) = self.by_client.get_mut(&client) else { return };
        *count -= 1;
        if *count == 0 {
            self.by_client.remove(&client);
        }
        if self.most.0 == client {
            self.most.1 -= 1;
            self.is_stale = true;
        }
    }

    fn of(&self, client: u32) -> u32 {
        self.by_client.get(&client).copied().unwrap_or(0)
    }

    /// Whether a client has more than `share`.
    fn has_heavy(&mut self, share: u32) -> bool {
        if self.most.1 <= share && std::mem::take(&mut self.is_stale) {
            let all = self.by_client.iter().map(|(&client, &count)| (client, count));
            self.most = all.max_by_key(|(_, count)| *count).unwrap_or_default();
        }
        self.most.1 > share
    }
}

/// The clients of sockets.
pub(crate) struct Clients {
    /// A hash of the client's address for each place; 0 if the place is free.
    of: Vec<u32>,
    hash: Fast,
    counted: Option<Box<Counted>>,
}

impl Clients {
    pub(crate) fn new() -> Clients {
        Clients { of: Vec::new(), hash: Fast::default(), counted: None }
    }

    /// There is one more place.
    pub(crate) fn add_place(&mut self) {
        self.of.push(0);
    }

    /// The client of the socket at `index`, as a hash; 0 without one.
    #[inline]
    pub(crate) fn at(&self, index: u32) -> u32 {
        self.of.get(index as usize).copied().unwrap_or(0)
    }

    /// The socket at `index` has a client, or another one.
    pub(crate) fn set(&mut self, index: u32, block: IpAddr) {
        let client = (self.hash.hash_one(block) as u32).max(1);
        self.replace(index, client);
    }

    /// The socket at `index` has no client.
    #[inline]
    pub(crate) fn clear(&mut self, index: u32) {
        self.replace(index, 0);
    }

    #[inline]
    fn replace(&mut self, index: u32, client: u32) {
        let Some(place) = self.of.get_mut(index as usize) else { return };
        let before = std::mem::replace(place, client);
        if let Some(counted) = &mut self.counted {
            if before != 0 {
                counted.sub(before);
            }
            if client != 0 {
                counted.add(client);
            }
        }
    }

    /// Ends the counting.
    pub(crate) fn forget_counts(&mut self) {
        self.counted = None;
    }

    fn counted(&mut self) -> &mut Counted {
        self.counted.get_or_insert_with(|| {
            let mut counted = Box::<Counted>::default();
            self.of.iter().filter(|&&client| client != 0).for_each(|&client| counted.add(client));
            counted
        })
    }

    /// The place of the client at `index`, if a share is `share` connections.
    pub(crate) fn standing(&mut self, index: u32, share: u32) -> Standing {
        let client = self.at(index);
        let counted = self.counted();
        match counted.of(client) {
            own if own > share => Standing::Heavy(own as usize),
            _ if counted.has_heavy(share) => Standing::Light,
            _ => Standing::Even,
        }
    }

    /// Whether the client of the socket at `index` has more than `share` connections.
    pub(crate) fn is_heavy(&mut self, index: u32, share: u32) -> bool {
        let client = self.at(index);
        client != 0 && self.counted().of(client) > share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, n])
    }

    /// Places with these clients; 0 is none.
    fn with_clients(all: &[u8]) -> Clients {
        let mut clients = Clients::new();
        for (index, &n) in all.iter().enumerate() {
            clients.add_place();
            if n > 0 {
                clients.set(index as u32, ip(n));
            }
        }
        clients
    }

    #[test]
    fn who_has_more_than_a_share() {
        let mut clients = with_clients(&[1, 1, 1, 2, 0, 0, 0, 0]);
        let standings =
            |clients: &mut Clients, share| [0, 3, 4].map(|at| clients.standing(at, share));
        assert_eq!(standings(&mut clients, 3), [Standing::Even; 3]);
        let heavy = [Standing::Heavy(3), Standing::Light, Standing::Light];
        assert_eq!(standings(&mut clients, 2), heavy);
        assert!(clients.is_heavy(0, 2) && !clients.is_heavy(3, 2) && !clients.is_heavy(4, 0));
    }

    #[test]
    fn the_numbers_follow_connections() {
        let mut clients = with_clients(&[1, 1, 1, 2, 2, 0]);
        assert_eq!(clients.standing(0, 2), Standing::Heavy(3));
        // One closes, and a balancer names another client.
        clients.clear(0);
        assert_eq!(clients.standing(1, 2), Standing::Even);
        clients.set(1, ip(2));
        assert_eq!(clients.standing(1, 2), Standing::Heavy(3));
        assert_eq!(clients.standing(2, 2), Standing::Light);
        // The one with the most loses some, and the next one is found.
        clients.set(5, ip(1));
        clients.set(0, ip(1));
        clients.clear(3);
        clients.clear(4);
        assert_eq!((clients.standing(1, 2), clients.standing(0, 2)), {
            (Standing::Light, Standing::Heavy(3))
        });
        // Counted anew, it is the same.
        clients.counted = None;
        assert_eq!(clients.standing(0, 2), Standing::Heavy(3));
    }
}
