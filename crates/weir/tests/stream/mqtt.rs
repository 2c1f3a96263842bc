//! MQTT: the names in a client's first message, and others in their place. Mosquitto is the broker
//! and its tools are the clients.

use std::process::{Command, Stdio};

use testkit::{Conn, Folder, Peer, Weir, each_driver};

use crate::stream_site::start;

/// A broker that takes one user.
fn broker() -> Peer {
    let conf = "listener %PORT% 127.0.0.1\nallow_anonymous false\npassword_file %DIR%/users\n\
                log_dest stdout\n";
    let folder = Folder::new("users");
    let users = folder.join("users");
    let made = Command::new("mosquitto_passwd")
        .args(["-b", "-c"])
        .arg(&users)
        .args(["gate", "secret"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(made.is_ok_and(|status| status.success()), "./x test installs mosquitto");
    let users = std::fs::read_to_string(&users).unwrap();
    let files = [("mosquitto.conf", conf), ("users", &users)];
    let arguments = ["-c", "%DIR%/mosquitto.conf"];
    Peer::start("mosquitto", "mosquitto", &files, &arguments)
}

/// A tool of Mosquitto, connected to a port of the site.
fn client(tool: &str, port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(tool);
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", "topic"]).args(arguments);
    command
}

fn is_published(port: u16, arguments: &[&str]) -> bool {
    let told = client("mosquitto_pub", port, arguments).args(["-m", "hello"]).output();
    told.expect("./x test installs mosquitto-clients").status.success()
}

#[test]
fn a_broker_gets_other_names() {
    each_driver(|driver| {
        let broker = broker();
        let to = broker.port();
        let weir = start(
            driver,
            &format!(
                "server {{ listen 127.0.0.1:%PORT0%; proxy_pass 127.0.0.1:{to}; mqtt on;
                     mqtt_preread on;
                     mqtt_set_connect clientid \"$mqtt_preread_clientid-by-weir\";
                     mqtt_set_connect username gate; mqtt_set_connect password secret; }}
                 server {{ listen 127.0.0.1:%PORT1%; proxy_pass 127.0.0.1:{to}; mqtt on;
                     mqtt_set_connect username ''; mqtt_set_connect password ''; }}
                 server {{ listen 127.0.0.1:%PORT2%; proxy_pass 127.0.0.1:{to}; mqtt on; }}"
            ),
        );
        for version in ["mqttv31", "mqttv311", "mqttv5"] {
            let (id, has) = (format!("sub-{version}"), ["-V", version]);
            let mut subscribed = client("mosquitto_sub", weir.port(0), &["-i", &id, "-C", "1"]);
            let listening = subscribed.args(has).stdout(Stdio::piped()).spawn().unwrap();
            testkit::wait_until("the subscription", || {
                is_published(weir.port(0), &has)
                    && broker.output().contains(&format!("{id}-by-weir"))
            });
            // The first of these may have come before the subscription.
            let mut listening = listening;
            testkit::wait_until("the message", || {
                is_published(weir.port(0), &has) && listening.try_wait().unwrap().is_some()
            });
            let told = listening.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&told.stdout), "hello\n", "{version}");
            // With a name and a password of its own a client is somebody else.
            let own = [&has[..], &["-u", "gate", "-P", "secret"]].concat();
            assert!(!is_published(weir.port(1), &own), "{version}");
            assert!(is_published(weir.port(2), &own), "{version}");
            assert!(!is_published(weir.port(2), &has), "{version}");
        }
    });
}

const CONNECT: &str = "\x10\x14\0\x04MQTT\x04\u{2}\0\x3c\0\x08some one";

/// What a server answers to the bytes of a client.
fn said(weir: &Weir, n: usize, bytes: &str) -> String {
    let mut c = Conn::tcp(weir.port(n));
    c.send(bytes);
    String::from_utf8(c.read_to_end()).unwrap()
}

#[test]
fn names_are_known_before_a_server_is_chosen() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "server { listen 127.0.0.1:%PORT0%; mqtt_preread on;
                 return '$mqtt_preread_clientid|$mqtt_preread_username'; }",
        );
        assert_eq!(said(&weir, 0, CONNECT), "some one|");
        assert_eq!(said(&weir, 0, "GET / HTTP/1.1\r\n\r\n"), "|");
        let mut c = Conn::tcp(weir.port(0));
        for byte in CONNECT.chars() {
            c.send(byte.to_string());
        }
        assert_eq!(c.read_to_end(), b"some one|");
    });
}

#[test]
fn sessions_without_a_valid_message_end() {
    each_driver(|driver| {
        let weir = start(
            driver,
            "error_log logs/error.log info;
             server { listen 127.0.0.1:%PORT0%; mqtt on; mqtt_buffers 2 40; return 'served'; }
             server { listen 127.0.0.1:%PORT1%; mqtt on; mqtt_buffers 1 30;
                 mqtt_set_connect username 'a name that has no room'; return 'served'; }
             server { listen 127.0.0.1:%PORT2%; mqtt on; preread_buffer_size 16;
                 return 'served'; }",
        );
        assert_eq!(said(&weir, 0, CONNECT), "served");
        assert_eq!(said(&weir, 0, "GET / HTTP/1.1\r\n\r\n"), "");
        weir.wait_for_log("error.log", "invalid MQTT CONNECT: the first message is not CONNECT");
        assert_eq!(said(&weir, 0, "\x10\x50\0\x04MQTT"), "");
        weir.wait_for_log("error.log", "invalid MQTT CONNECT: it is longer than \"mqtt_buffers\"");
        assert_eq!(said(&weir, 1, CONNECT), "");
        weir.wait_for_log("error.log", "MQTT CONNECT with its new values is too long");
        // The message may be longer than what is read before it is known to be one.
        assert_eq!(said(&weir, 2, CONNECT), "served");
    });
}
