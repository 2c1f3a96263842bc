//! Messages of name servers: a response that was read has the properties that a resolver relies on.

use proto::dns::{Data, Response, read, write_query};

/// A name as the parser may give it: no empty label, none too long, and not too long in all.
fn check_name(name: &[u8]) {
    assert!(name.len() <= 253);
    let ok = |label: &[u8]| (1..=63).contains(&label.len());
    assert!(name.is_empty() || name.split(|b| *b == b'.').all(ok));
}

fn check(r: &Response) {
    check_name(&r.name);
    for record in &r.answers {
        check_name(&record.name);
        match &record.data {
            Data::Cname(to) | Data::Srv { target: to, .. } => check_name(to),
            _ => {}
        }
        assert!(record.ttl <= i32::MAX as u32);
    }
    assert!(!r.truncated || r.answers.is_empty());
}

/// Reads a message of a name server.
pub fn run(data: &[u8]) {
    let Ok(response) = read(data) else { return };
    check(&response);
    // The question, asked again and sent back, is the same question.
    let mut query = Vec::new();
    if write_query(&mut query, response.id, &response.name, response.kind).is_err() {
        assert!(response.name.is_empty());
        return;
    }
    query[2] |= 0x80;
    let again = read(&query);
    let again = again.as_ref().map(|r| (r.id, &r.name, r.kind, r.answers.len()));
    assert_eq!(again, Ok((response.id, &response.name, response.kind, 0)));
}
