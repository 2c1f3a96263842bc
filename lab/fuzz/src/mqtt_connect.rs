//! The first message of an MQTT client.

use proto::mqtt::{Changes, Connect, Parsed, connect};

/// Every beginning of a message needs more bytes, or gives the result of the whole; a message is
/// written with the same names, and with other names it has these.
pub fn run(data: &[u8]) {
    let whole = connect(data);
    for len in 0..data.len().min(300) {
        match connect(&data[..len]) {
            Parsed::Incomplete(needed) => assert!(needed > len),
            part => assert_eq!(part, whole, "at {len}"),
        }
    }
    let Parsed::Connect(message) = whole else { return };
    let same = message.with(&Changes::default()).expect("no field is longer than it was");
    let again = read(&same);
    assert_eq!((again.client_id, again.username), (message.client_id, message.username));
    assert_eq!(again.password, message.password);
    let half = data.len() / 2;
    let changes = Changes {
        client_id: Some(data[..half.min(900)].iter().map(|byte| byte % 64 + 32).collect()),
        username: Some(b"user".to_vec()),
        password: Some(data[half..].iter().copied().take(1_000).chain([1]).collect()),
    };
    let changed = message.with(&changes).expect("these fit");
    let changed = read(&changed);
    assert_eq!(Some(changed.client_id), changes.client_id.as_deref());
    assert_eq!(changed.username, changes.username.as_deref());
    assert_eq!(changed.password, changes.password.as_deref());
}

fn read(bytes: &[u8]) -> Connect<'_> {
    match connect(bytes) {
        Parsed::Connect(message) => message,
        other => panic!("{other:?}"),
    }
}
