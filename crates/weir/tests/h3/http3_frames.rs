//! Clients over QUIC whose datagrams hold frames in numbers that no client has use for, and answers
//! to questions that come from addresses of others.

use std::io::ErrorKind;

use testkit::certificates::KeyKind;
use testkit::h3::{Client, Dir, Options, Script};
use testkit::{Driver, Pair, Site, Weir, built_binary, each_site, wait_until};

/// The most bytes of a connection's filler: what its server takes unread.
const FILLER: usize = 60 << 10;

fn start(driver: Driver) -> Weir {
    Pair::own(KeyKind::P256, "localhost")
        .on(Site::new(built_binary(), driver), "a")
        .http(
            "ssl_certificate a.pem; ssl_certificate_key a.key;
             server { listen 127.0.0.1:%PORT0% quic; return 200 ok; }",
        )
        .start()
}

fn client(weir: &Weir, script: Script) -> Client {
    let options = Options { script: Some(script), ..Options::default() };
    Client::with(weir.port(0), &options)
}

/// The one frame as often as there is room.
fn repeated(frame: &'static [u8]) -> Script {
    Script::new(move |room| frame.repeat(room / frame.len()))
}

/// Sends packets of the script until the server has ended the connection for it.
fn is_cut_off(weir: &Weir, script: Script) {
    let mut c = client(weir, script);
    assert_eq!(c.get("/").body, b"ok");
    let quic = c.quic();
    for _ in 0..16 {
        let Some(id) = quic.inner().streams().open(Dir::Bi) else { break };
        quic.write_some(id, &Script::filler(FILLER));
        quic.turn();
    }
    assert_eq!(quic.until("it is not cut off", |quic| quic.lost_code()), 0x107);
}

#[test]
fn floods_of_small_frames_have_a_budget() {
    each_site(start, |weir| {
        // RETIRE_CONNECTION_ID, of one that was given back long ago. The client's machine knows
        // nothing of that, and would end for the new id.
        let mut c = client(&weir, repeated(&[0x19, 2]));
        assert_eq!(c.get("/").body, b"ok");
        let id = c.quic().open(Dir::Bi);
        c.quic().write_some(id, &Script::filler(FILLER));
        wait_until("the end for a flood", || {
            c.quic().ping_deaf();
            weir.log("error.log").contains("client sent too many frames")
        });
        // PATH_CHALLENGE.
        is_cut_off(&weir, repeated(&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8]));
        // STREAMS_BLOCKED.
        is_cut_off(&weir, repeated(&[0x16, 1]));
        // A byte of a stream here and there, which waits for those between.
        let mut at = 0;
        is_cut_off(
            &weir,
            Script::new(move |room| {
                let mut frames = Vec::new();
                while frames.len() + 9 <= room {
                    at += 2;
                    // On one stream after the other, none of which is too far.
                    let (id, offset) = (4 * (8 + at / 2_000 % 90), 1 + at % 2_000);
                    frames.extend([0x0e, 0x40 | (id >> 8) as u8, id as u8, 0x80, 0]);
                    frames.extend([(offset >> 8) as u8, offset as u8, 1, b'x']);
                }
                frames
            }),
        );
        // NEW_CONNECTION_ID, each of which has the one before given back: quinn-proto has a limit.
        let mut seq = 100_u64;
        let mut c = client(
            &weir,
            Script::new(move |room| {
                let mut frames = Vec::new();
                while frames.len() + 42 <= room {
                    seq += 1;
                    frames.push(0x18);
                    for number in [seq, seq - 1] {
                        frames.extend((number | 0xc000_0000_0000_0000).to_be_bytes());
                    }
                    frames.push(8);
                    frames.extend(seq.to_be_bytes());
                    frames.extend([7; 16]);
                }
                frames
            }),
        );
        assert_eq!(c.get("/").body, b"ok");
        let id = c.quic().open(Dir::Bi);
        c.quic().write_some(id, &Script::filler(FILLER));
        wait_until("the end for ids", || {
            c.quic().ping_deaf();
            weir.log("error.log").contains("QUIC connection failed: ")
        });
        let options = Options::default();
        assert_eq!(Client::with(weir.port(0), &options).get("/").body, b"ok", "others go on");
    });
}

/// An address of which a client says that it is its own gets no more than three times as much as
/// came from there.
#[test]
fn a_question_of_an_address_that_is_not_proved() {
    each_site(start, |weir| {
        let mut c = client(&weir, repeated(&[0x1a, 1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(c.get("/").body, b"ok");
        let other = testkit::udp::socket();
        // Its datagrams are small at first.
        for len in [100, 1_000] {
            let id = c.quic().open(Dir::Bi);
            c.quic().write_some(id, &Script::filler(len));
            c.quic().send_from(&other);
            // What comes later is answered later.
            assert_eq!(c.get("/").body, b"ok");
            other.set_nonblocking(len == 100).unwrap_or_else(|e| panic!("{e}"));
            let answer = other.recv(&mut [0; 1500]);
            match len {
                100 => assert_eq!(answer.map_err(|e| e.kind()), Err(ErrorKind::WouldBlock)),
                _ => assert_eq!(answer.map_err(|e| e.kind()), Ok(1200)),
            }
        }
    });
}
