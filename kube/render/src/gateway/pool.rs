//! Addresses of Gateways, and the pool of those that they get.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use super::types::{Gateway, GatewayAddress};
use crate::cx::Cx;
use crate::objects::Key;

/// Addresses of the pod that are given out, one to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    ranges: Vec<(IpAddr, RangeInclusive<u128>)>,
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

/// The address with a number, of the version that `like` has.
fn address(like: IpAddr, number: u128) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::from(number as u32).into(),
        IpAddr::V6(_) => Ipv6Addr::from(number).into(),
    }
}

impl Pool {
    /// Reads addresses, networks (`192.0.2.0/28`) and ranges (`192.0.2.10-192.0.2.19`), separated
    /// by commas.
    ///
    /// # Errors
    /// The item that is none of these.
    ///
    /// ```
    /// let pool = weir_kube_render::gateway::Pool::parse("192.0.2.8/29,2001:db8::1").unwrap();
    /// assert!(pool.contains("192.0.2.15".parse().unwrap()));
    /// assert!(!pool.contains("192.0.2.16".parse().unwrap()));
    /// ```
    pub fn parse(text: &str) -> Result<Pool, String> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let range = |item: &str| range(item).ok_or_else(|| format!("\"{item}\" is no address"));
        Ok(Pool { ranges: items.map(range).collect::<Result<_, _>>()? })
    }

    /// Whether no address is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether it has an address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let of = |(like, range): &(IpAddr, RangeInclusive<u128>)| {
            like.is_ipv4() == ip.is_ipv4() && range.contains(&number(ip))
        };
        self.ranges.iter().any(of)
    }

    /// The first address that is not taken.
    fn free(&self, taken: &BTreeMap<IpAddr, &Key>) -> Option<IpAddr> {
        let all = self.ranges.iter();
        all.flat_map(|(like, range)| range.clone().map(|n| address(*like, n)))
            .find(|ip| !taken.contains_key(ip))
    }
}

fn range(item: &str) -> Option<(IpAddr, RangeInclusive<u128>)> {
    if let Some((first, last)) = item.split_once('-') {
        let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
        let fits = first.is_ipv4() == last.is_ipv4() && first <= last;
        return fits.then(|| (first, number(first)..=number(last)));
    }
    let (ip, bits) = item.split_once('/').unwrap_or((item, ""));
    let ip: IpAddr = ip.parse().ok()?;
    let width = if ip.is_ipv4() { 32 } else { 128 };
    let bits: u32 = if bits.is_empty() { width } else { bits.parse().ok()? };
    if bits > width || bits == 0 {
        return None;
    }
    let hosts = (1u128 << (width - bits)) - 1;
    let first = number(ip) & !hosts;
    Some((ip, first..=first | hosts))
}

/// The addresses of a Gateway.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Addresses {
    /// All that the pod has, shared with other Gateways and with Ingresses.
    Shared,
    /// Its own.
    Own(Vec<IpAddr>),
    /// None: a reason and a message.
    Missing(&'static str, String),
}

impl Addresses {
    /// Those that it asks for, or the one that it was given from the pool.
    pub fn of(cx: &Cx, key: &Key, gateway: &Gateway, assigned: &Assigned) -> Addresses {
        let pool = &cx.options.gateway_addresses;
        let wanted: Vec<_> =
            gateway.spec.addresses.iter().filter(|a| !a.value.is_empty()).collect();
        if wanted.is_empty() {
            return match assigned.given.get(key) {
                Some(ip) => Addresses::Own(vec![*ip]),
                None if pool.is_empty() => Addresses::Shared,
                None => {
                    let m = "--gateway-addresses has no free address".to_owned();
                    Addresses::Missing("AddressNotAssigned", m)
                }
            };
        }
        let ips: Vec<IpAddr> = wanted.iter().filter_map(|a| asked(a)).collect();
        if ips.len() < wanted.len() {
            return Addresses::Missing(UNSUPPORTED, "only IP addresses can be used".to_owned());
        }
        if pool.is_empty() {
            // What leads to all listeners may be asked for. A listener at another address would
            // take the connections of all others there, or could not listen at all.
            let is_ours = |ip: &IpAddr| cx.options.addresses.iter().any(|a| a.parse() == Ok(*ip));
            return match ips.iter().find(|ip| !is_ours(ip)) {
                None => Addresses::Shared,
                Some(ip) => {
                    let m = format!("{ip}: addresses of their own need --gateway-addresses");
                    Addresses::Missing("AddressNotUsable", m)
                }
            };
        }
        let outside = ips.iter().find(|ip| !pool.contains(**ip));
        match (outside, assigned.refused.get(key)) {
            (Some(ip), _) => {
                let m = format!("{ip} is not among --gateway-addresses");
                Addresses::Missing("AddressNotUsable", m)
            }
            (None, Some((ip, holder))) => {
                let m = format!("{ip} is the address of Gateway {holder}");
                Addresses::Missing("AddressNotUsable", m)
            }
            (None, None) => Addresses::Own(ips),
        }
    }

    /// Whether two listeners of one port are in each other's way.
    pub fn overlap(&self, other: &Addresses) -> bool {
        match (self, other) {
            (Addresses::Own(a), Addresses::Own(b)) => a.iter().any(|ip| b.contains(ip)),
            (Addresses::Missing(..), _) | (_, Addresses::Missing(..)) => self == other,
            _ => true,
        }
    }
}

/// The reason of a Gateway whose addresses are no IP addresses.
pub(crate) const UNSUPPORTED: &str = "UnsupportedAddress";

/// The address that an entry of a Gateway's `addresses` asks for, if it asks for one.
pub(crate) fn asked(address: &GatewayAddress) -> Option<IpAddr> {
    let is_ip = address.kind.as_deref().unwrap_or("IPAddress") == "IPAddress";
    if is_ip { address.value.parse().ok() } else { None }
}

/// The addresses of Gateways, as far as the pool decides about them.
#[derive(Debug, Default)]
pub(crate) struct Assigned<'a> {
    /// Those that were given to Gateways that ask for none.
    pub given: BTreeMap<&'a Key, IpAddr>,
    /// Gateways that ask for an address of another one, which is named.
    pub refused: BTreeMap<&'a Key, (IpAddr, &'a Key)>,
}

/// Gives each Gateway that asks for none its address: the one that its status says, or the first
/// that is free. Those that ask for an address get it, unless it was given to another Gateway
/// before, or another namespace has it. The oldest Gateways come first in `gateways`.
pub(crate) fn assign<'a>(pool: &Pool, gateways: &[(&'a Key, &'a Gateway)]) -> Assigned<'a> {
    let mut out = Assigned::default();
    if pool.is_empty() {
        return out;
    }
    let asks = |g: &Gateway| g.spec.addresses.iter().any(|a| !a.value.is_empty());
    let mut taken: BTreeMap<IpAddr, &'a Key> = BTreeMap::new();
    for (key, gateway) in gateways.iter().filter(|(_, g)| !asks(g)) {
        let kept = gateway.status.addresses.iter().find_map(asked);
        if let Some(ip) = kept.filter(|ip| pool.contains(*ip) && !taken.contains_key(ip)) {
            taken.insert(ip, key);
            out.given.insert(key, ip);
        }
    }
    for (key, gateway) in gateways.iter().filter(|(_, g)| asks(g)) {
        for ip in gateway.spec.addresses.iter().filter_map(asked) {
            let holder = *taken.entry(ip).or_insert(key);
            if out.given.contains_key(holder) || holder.namespace != key.namespace {
                out.refused.insert(key, (ip, holder));
            }
        }
    }
    for (key, _) in gateways.iter().filter(|(_, g)| !asks(g)) {
        if out.given.contains_key(key) {
            continue;
        }
        if let Some(ip) = pool.free(&taken) {
            taken.insert(ip, key);
            out.given.insert(key, ip);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn forms_of_items() {
        let pool = Pool::parse("10.0.0.1, 10.0.1.6/30,10.0.2.1-10.0.2.3,fd00::/126").unwrap();
        for (text, has) in [
            ("10.0.0.1", true),
            ("10.0.0.2", false),
            ("10.0.1.4", true),
            ("10.0.1.7", true),
            ("10.0.1.8", false),
            ("10.0.2.3", true),
            ("10.0.2.4", false),
            ("fd00::3", true),
            ("fd00::4", false),
            ("::a00:1", false),
        ] {
            assert_eq!(pool.contains(ip(text)), has, "{text}");
        }
        assert!(Pool::parse("").unwrap().is_empty());
        for bad in ["a", "10.0.0.1/33", "10.0.0.1/0", "10.0.0.2-10.0.0.1", "10.0.0.1-::2", "::/x"] {
            assert!(Pool::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn gateways_keep_their_addresses() {
        let gateway = |spec: &[&str], status: &[&str]| -> Gateway {
            let all =
                |list: &[&str]| list.iter().map(|v| json!({ "value": v })).collect::<Vec<_>>();
            serde_json::from_value(json!({
                "spec": { "addresses": all(spec) }, "status": { "addresses": all(status) } }))
            .unwrap()
        };
        let pool = Pool::parse("10.0.0.1-10.0.0.4").unwrap();
        let keys: Vec<Key> = ["a", "b", "c", "d", "e", "f"].map(|n| Key::new("x", n)).into();
        let all = [
            gateway(&[], &[]),
            gateway(&[], &["10.0.0.1"]),
            gateway(&["10.0.0.2"], &[]),
            gateway(&[], &["10.0.0.1"]),
            gateway(&[""], &["10.9.9.9"]),
            gateway(&[], &[]),
        ];
        let gateways: Vec<(&Key, &Gateway)> = keys.iter().zip(&all).collect();
        let got = assign(&pool, &gateways);
        let of = |n: usize| got.given.get(&keys[n]).map(|ip| ip.to_string());
        // "b" keeps its own; of those without, the oldest is first; the pool is too small for all.
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(of(0), some("10.0.0.3"));
        assert_eq!(of(1), some("10.0.0.1"));
        assert_eq!((of(2), of(3), of(4), of(5)), (None, some("10.0.0.4"), None, None));
        assert!(got.refused.is_empty());
        assert!(assign(&Pool::default(), &gateways).given.is_empty());
    }
    #[test]
    fn nobody_takes_the_address_of_another() {
        let gateway = |spec: &str, status: &str| -> Gateway {
            let all = |ip: &str| match ip {
                "" => json!([]),
                ip => json!([{ "value": ip }]),
            };
            serde_json::from_value(json!({
                "spec": { "addresses": all(spec) }, "status": { "addresses": all(status) } }))
            .unwrap()
        };
        let pool = Pool::parse("10.0.0.1-10.0.0.9").unwrap();
        let keys =
            [("a", "keeps"), ("b", "wants"), ("a", "first"), ("a", "beside"), ("b", "other")]
                .map(|(namespace, name)| Key::new(namespace, name));
        let all = [
            gateway("", "10.0.0.5"),
            gateway("10.0.0.5", ""),
            gateway("10.0.0.6", ""),
            gateway("10.0.0.6", ""),
            gateway("10.0.0.6", ""),
        ];
        let gateways: Vec<(&Key, &Gateway)> = keys.iter().zip(&all).collect();
        let got = assign(&pool, &gateways);
        assert_eq!(got.given.get(&keys[0]), Some(&ip("10.0.0.5")));
        let refused: Vec<&str> = got.refused.keys().map(|key| key.name.as_str()).collect();
        assert_eq!(refused, ["other", "wants"]);
    }
}
