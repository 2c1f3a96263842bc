use super::*;

/// Signs with the message itself.
struct Plain;

impl Signer for Plain {
    fn algorithm(&self) -> &'static str {
        "none"
    }

    fn jwk(&self) -> String {
        r#"{"kty":"test"}"#.to_owned()
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, SignFailed> {
        Ok(message.to_vec())
    }
}

/// The example of RFC 7638 section 3.1.
struct Rsa;

impl Signer for Rsa {
    fn algorithm(&self) -> &'static str {
        "RS256"
    }

    fn jwk(&self) -> String {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1\
                 L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4Q\
                 yQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpb\
                 ISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur\
                 -kEgU8awapJzKnqDKgw";
        format!(r#"{{"e":"AQAB","kty":"RSA","n":"{n}"}}"#)
    }

    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, SignFailed> {
        Err(SignFailed)
    }
}

const DIRECTORY: &[u8] = br#"{"newNonce":"https://a.test/nonce","newAccount":"https://a.test/acc",
    "newOrder":"https://a.test/order","keyChange":"https://a.test/key","meta":{
    "termsOfService":"https://a.test/tos","externalAccountRequired":true,
    "profiles":{"short":"x","long":"y"}},"renewalInfo":"https://a.test/ari"}"#;

#[test]
fn thumbprints_are_the_standard_s() {
    assert_eq!(thumbprint(&Rsa), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    let text = key_authorization("token", &Rsa);
    assert_eq!(text, "token.NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
}

#[test]
fn directories() {
    let directory = Directory::parse(DIRECTORY).unwrap();
    assert_eq!(directory.new_order, "https://a.test/order");
    assert_eq!(directory.renewal_info.as_deref(), Some("https://a.test/ari"));
    assert_eq!(directory.terms_of_service.as_deref(), Some("https://a.test/tos"));
    assert!(directory.needs_external_account);
    assert_eq!(directory.profiles, ["long", "short"]);
    for bad in ["", "[]", "{}", "{\"newNonce\":1}", "<html>"] {
        assert!(Directory::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let deep = "[".repeat(100_000);
    assert!(Directory::parse(deep.as_bytes()).is_err());
}

fn decoded(body: &[u8]) -> (String, String, String) {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap();
    let part = |name: &str| {
        let mut out = Vec::new();
        assert!(base::base64::decode_url(value[name].as_str().unwrap().as_bytes(), &mut out));
        String::from_utf8(out).unwrap()
    };
    (part("protected"), part("payload"), part("signature"))
}

fn answer(status: u16, nonce: &str, body: &str) -> Answer {
    Answer {
        status,
        nonce: Some(nonce.to_owned()),
        body: body.as_bytes().to_vec(),
        ..Answer::default()
    }
}

#[test]
fn a_call_gets_a_nonce_and_repeats_when_it_is_refused() {
    let directory = Directory::parse(DIRECTORY).unwrap();
    let mut nonces = Nonces::default();
    let mut call = Call::of_account(&Plain, "https://a.test/1", "https://a.test/x", Some("{}"));
    let ask = call.ask(&directory, &mut nonces).unwrap();
    assert_eq!((ask.method, &*ask.url), (Method::Head, "https://a.test/nonce"));
    assert!(call.take(Method::Head, answer(200, "n1", ""), &mut nonces, 0).is_none());
    let ask = call.ask(&directory, &mut nonces).unwrap();
    assert_eq!((ask.method, &*ask.url), (Method::Post, "https://a.test/x"));
    let (header, payload, signature) = decoded(ask.body.as_deref().unwrap());
    let want = r#"{"alg":"none","kid":"https://a.test/1","nonce":"n1","url":"https://a.test/x"}"#;
    assert_eq!((&*header, &*payload), (want, "{}"));
    assert!(signature.contains('.'));
    let refused = r#"{"type":"urn:ietf:params:acme:error:badNonce","detail":"x"}"#;
    assert!(call.take(Method::Post, answer(400, "n2", refused), &mut nonces, 0).is_none());
    let ask = call.ask(&directory, &mut nonces).unwrap();
    assert!(decoded(&ask.body.unwrap()).0.contains("\"n2\""));
    let mut good = answer(201, "n3", "{}");
    good.location = Some("/order/1".to_owned());
    good.links = vec!["<alt>;rel=\"alternate\"".to_owned(), "</p/2>;rel=\"next\"".to_owned()];
    good.retry_after = Some(b"3".to_vec());
    let reply = call.take(Method::Post, good, &mut nonces, 0).unwrap().unwrap();
    assert_eq!(reply.location.as_deref(), Some("https://a.test/order/1"));
    assert_eq!(reply.next.as_deref(), Some("https://a.test/p/2"));
    assert_eq!((reply.alternates, reply.retry_after), (vec!["https://a.test/alt".into()], Some(3)));
}

#[test]
fn a_server_that_refuses_all_nonces_or_has_none_does_not_keep_us_busy() {
    let directory = Directory::parse(DIRECTORY).unwrap();
    let refused = r#"{"type":"urn:ietf:params:acme:error:badNonce"}"#;
    let mut nonces = Nonces::default();
    nonces.learn(Some("first"));
    let mut call = Call::of_key(&Plain, "https://a.test/x", "{}");
    let mut sent = 0;
    let failure = loop {
        let ask = call.ask(&directory, &mut nonces).unwrap();
        assert!(decoded(&ask.body.unwrap()).0.ends_with(r#","jwk":{"kty":"test"}}"#));
        sent += 1;
        if let Some(result) = call.take(Method::Post, answer(400, "n", refused), &mut nonces, 0) {
            break result.unwrap_err();
        }
    };
    assert!(failure.problem.is_bad_nonce() && sent == 5);

    let mut call = Call::of_key(&Plain, "https://a.test/x", "{}");
    let mut nonces = Nonces::default();
    call.ask(&directory, &mut nonces).unwrap();
    let without = Answer { status: 200, ..Answer::default() };
    assert!(call.take(Method::Head, without, &mut nonces, 0).is_none());
    assert!(call.ask(&directory, &mut nonces).is_err());
    // A text that is no nonce would end a header's line or fill memory.
    for bad in ["", "a b", "a\r\nb", &"x".repeat(300)] {
        nonces.learn(Some(bad));
    }
    assert!(nonces.take().is_none());
    for n in 0..20 {
        nonces.learn(Some(&n.to_string()));
    }
    assert_eq!(nonces.take().as_deref(), Some("19"));
}

#[test]
fn problems() {
    let body = r#"{"type":"urn:ietf:params:acme:error:rejectedIdentifier","detail":"a\u0000b",
        "status":403,"subproblems":[{"identifier":{"type":"dns","value":"a.test"},
        "detail":"policy"},{"detail":"no name"}]}"#;
    let problem = Problem::parse(403, body.as_bytes());
    assert!(problem.is_permanent() && !problem.is_rate_limited());
    let text = "rejectedIdentifier (status 403): a b; a.test: policy";
    assert_eq!(problem.to_string(), text);
    assert_eq!(Problem::parse(500, b"<html>").to_string(), "error (status 500)");
    assert!(Problem::parse(429, b"").is_rate_limited());
    let body = r#"{"type":"urn:ietf:params:acme:error:alreadyReplaced"}"#;
    assert!(Problem::parse(400, body.as_bytes()).is_bad_replaces());
}

#[test]
fn orders_and_their_steps() {
    let of = |status: &str, more: &str| {
        let text = format!(
            r#"{{"status":"{status}","authorizations":["https://a.test/z"],
            "identifiers":[{{"type":"dns","value":"a.test"}}],
            "finalize":"https://a.test/f"{more}}}"#
        );
        Order::parse(text.as_bytes())
    };
    let step = |status, more| of(status, more).unwrap().step();
    assert_eq!(step("pending", ""), Ok(OrderStep::Authorize(vec!["https://a.test/z".into()])));
    assert_eq!(step("ready", ""), Ok(OrderStep::Finalize("https://a.test/f".into())));
    assert_eq!(step("processing", ""), Ok(OrderStep::Wait));
    let valid = step("valid", r#","certificate":"https://a.test/c""#);
    assert_eq!(valid, Ok(OrderStep::Fetch("https://a.test/c".into())));
    assert!(step("valid", "").is_err());
    let Ok(OrderStep::Failed(Some(problem))) = step("invalid", r#","error":{"detail":"no"}"#)
    else {
        panic!("an error")
    };
    assert_eq!(problem.to_string(), "error: no");
    assert!(of("unknown", "").is_err());
    assert_eq!(of("ready", "").unwrap().names, ["a.test"]);
}

#[test]
fn authorizations_and_challenges() {
    let body = br#"{"status":"pending","identifier":{"type":"dns","value":"a.test"},
        "wildcard":true,"challenges":[
        {"type":"http-01","url":"https://a.test/h","token":"abc_-1","status":"pending"},
        {"type":"tls-alpn-01","url":"https://a.test/t","token":"../x","status":"pending"},
        {"type":"new-01","url":"https://a.test/n","status":"invalid","error":{"detail":"no"}}]}"#;
    let authorization = Authorization::parse(body).unwrap();
    assert_eq!(authorization.status, AuthorizationStatus::Pending);
    assert!(authorization.is_wildcard);
    assert_eq!(authorization.challenge("http-01").unwrap().token, "abc_-1");
    assert!(authorization.challenge("tls-alpn-01").is_none(), "a token that leaves its folder");
    let failed = authorization.challenge("new-01").unwrap();
    assert_eq!(failed.status, ChallengeStatus::Invalid);
    assert_eq!(failed.error.as_ref().unwrap().detail, "no");
    for status in ["deactivated", "expired", "revoked"] {
        let body = format!(r#"{{"status":"{status}","identifier":{{"value":"a"}}}}"#);
        let authorization = Authorization::parse(body.as_bytes()).unwrap();
        assert_eq!(authorization.status, AuthorizationStatus::Invalid);
    }
    assert!(Authorization::parse(br#"{"status":"pending"}"#).is_err());
}

#[test]
fn payloads() {
    assert_eq!(new_account(&[], false, None), "{}");
    let contacts = ["mailto:a\"b@c".to_owned(), "mailto:d@e".to_owned()];
    assert_eq!(
        new_account(&contacts, true, Some("{\"x\":1}")),
        r#"{"termsOfServiceAgreed":true,"contact":["mailto:a\"b@c","mailto:d@e"],"externalAccountBinding":{"x":1}}"#
    );
    let names = [Identifier::Dns("a.test".into()), Identifier::Ip([192, 0, 2, 1].into())];
    assert_eq!(
        new_order(&names, Some("short"), Some("id")),
        r#"{"identifiers":[{"type":"dns","value":"a.test"},{"type":"ip","value":"192.0.2.1"}],"profile":"short","replaces":"id"}"#
    );
    assert_eq!(finalize(b"\xff\xff"), r#"{"csr":"__8"}"#);
    let mac = |message: &[u8]| message.to_vec();
    let binding = external_account("kid-1", mac, &Plain, "https://a.test/acc");
    let (header, payload, _) = decoded(binding.as_bytes());
    assert_eq!(header, r#"{"alg":"HS256","kid":"kid-1","url":"https://a.test/acc"}"#);
    assert_eq!(payload, r#"{"kty":"test"}"#);
    let change = key_change("https://a.test/1", &Rsa, &Plain, "https://a.test/key").unwrap();
    let (header, payload, _) = decoded(change.as_bytes());
    assert!(header.contains("\"jwk\":{\"kty\":\"test\"}") && !header.contains("nonce"));
    assert!(payload.starts_with(r#"{"account":"https://a.test/1","oldKey":{"e":"AQAB""#));
}
