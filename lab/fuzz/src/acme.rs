//! Answers of certificate authorities (ACME): JSON documents, fields and references.

use bytes::Bytes;
use proto::acme::{
    Account, Answer, Authorization, Call, Challenge, Directory, Identifier, Method, Nonces, Order,
    OrderStep, Problem, RenewalInfo, SignFailed, Signer, moment, new_order, parse_rfc3339, resolve,
    retry_after, window_of,
};

struct Key;

impl Signer for Key {
    fn algorithm(&self) -> &'static str {
        "none"
    }

    fn jwk(&self) -> String {
        "{}".to_owned()
    }

    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, SignFailed> {
        Ok(Vec::new())
    }
}

/// Documents are read or refused; texts of the server's are one line in messages, tokens are fit
/// for paths, windows end behind their beginning, and a request that is signed holds no more than
/// one line of what the server said.
pub fn run(data: &[u8]) {
    let (&first, rest) = data.split_first().unwrap_or((&0, &[]));
    let lines: Vec<&[u8]> = rest.splitn(4, |b| *b == b'\n').collect();
    let line = |i: usize| String::from_utf8_lossy(lines.get(i).copied().unwrap_or_default());
    documents(rest);
    let url = "https://a.test/x/y";
    let answer = Answer {
        status: u16::from(first) * 3,
        nonce: Some(line(0).into_owned()),
        location: Some(line(1).into_owned()),
        retry_after: Some(line(0).as_bytes().to_vec()),
        links: vec![line(2).into_owned()],
        body: lines.get(3).copied().unwrap_or_default().to_vec(),
    };
    let directory = Directory {
        new_nonce: "https://a.test/n".to_owned(),
        new_account: String::new(),
        new_order: String::new(),
        key_change: None,
        renewal_info: None,
        terms_of_service: None,
        needs_external_account: false,
        profiles: Vec::new(),
    };
    let mut nonces = Nonces::default();
    let mut call = Call::of_account(&Key, "https://a.test/1", url, None);
    for _ in 0..16 {
        let Ok(ask) = call.ask(&directory, &mut nonces) else { break };
        assert!(ask.body.as_deref().unwrap_or_default().iter().all(u8::is_ascii_graphic));
        match call.take(ask.method, answer.clone(), &mut nonces, 0) {
            // Whatever is no success may ask for another nonce.
            None => {
                assert!(ask.method == Method::Head || !(200..300).contains(&answer.status));
            }
            Some(Err(failure)) => return one_line(&failure.problem),
            Some(Ok(reply)) => {
                for url in reply.location.iter().chain(&reply.alternates).chain(&reply.next) {
                    assert!(url.starts_with("http") && url.bytes().all(|b| b.is_ascii_graphic()));
                }
                return;
            }
        }
    }
}

fn documents(data: &[u8]) {
    let _ = (Directory::parse(data), Account::parse(data), Account::parse_orders(data));
    if let Ok(order) = Order::parse(data) {
        match order.step() {
            Ok(OrderStep::Failed(Some(problem))) => one_line(&problem),
            Ok(OrderStep::Finalize(url) | OrderStep::Fetch(url)) => address(&url),
            _ => {}
        }
    }
    let authorization = Authorization::parse(data);
    let challenges = authorization.iter().flat_map(|a| a.challenges.clone());
    for challenge in challenges.chain(Challenge::parse(data)) {
        let of_token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        assert!(challenge.token.bytes().all(of_token));
    }
    one_line(&Problem::parse(400, data));
    if let Ok(info) = RenewalInfo::parse(data) {
        assert!(info.window.0 < info.window.1);
        let at = moment(info.window, data.len() as u64);
        assert!((info.window.0..=info.window.1).contains(&at));
    }
    let text = String::from_utf8_lossy(data);
    if let Some(at) = parse_rfc3339(&text) {
        let window = window_of(at, at.saturating_add(1000));
        assert!(window.0 <= window.1);
    }
    let _ = retry_after(data, 0);
    if let Some(url) = resolve("https://a.test", &text) {
        assert!(url.starts_with("http"));
        address(&url);
    }
    if let Ok(names) = Identifier::parse(data) {
        for name in &names {
            assert_eq!(Identifier::parse(name.value().as_bytes()), Ok(vec![name.clone()]));
        }
        assert!(new_order(&names, None, None).is_ascii());
    }
}

/// A request to a URL of the server's: its last part is the target, what stands before is Host.
fn address(url: &str) {
    let Some((_, rest)) = url.split_once("://") else { return };
    if rest.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("unix:")) {
        return;
    }
    let rest = Bytes::copy_from_slice(rest.as_bytes());
    if let Ok(parsed) = upstream::url::parse(&rest, 443, true) {
        assert!(rest.ends_with(&parsed.uri), "{url}");
    }
}

fn one_line(problem: &Problem) {
    assert!(!problem.to_string().contains(|c: char| c.is_control()));
}
