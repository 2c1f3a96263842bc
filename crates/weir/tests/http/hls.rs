//! `hls`: MP4 files as HTTP live streams.

use std::io::Write as _;
use std::process::{Command, Stdio};

use mp4::atom::{copy, write};
use testkit::{Driver, Site, Weir, built_binary, each_site};

const HTTP: &str = "
    server {
        listen 127.0.0.1:%PORT0%;
        root html;
        default_type video/mp4;
        location / { hls; hls_fragment 1s; }
        location /args/ { alias html/; hls; hls_fragment 3s; hls_forward_args on; }
        location /pieces/ { alias html/; hls; hls_buffers 1000 100; }
        location /small/ { alias html/; hls; hls_buffers 2 1k; }
        location /index/ { alias html/; hls; hls_mp4_buffer_size 64;
            hls_mp4_max_buffer_size 100; }
        location /off/ { alias html/; hls; aio off; }
    }";

const FRAMES: u32 = 100;

fn numbers(out: &mut Vec<u8>, name: &[u8; 4], numbers: &[u32]) {
    write(out, name, |out| numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes())));
}

fn fill(out: &mut Vec<u8>, numbers: &[u32], len: usize) {
    let end = out.len() + len;
    numbers.iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
    out.resize(end, 0);
}

/// A frame: a NAL unit with its number.
fn frame(n: u32) -> Vec<u8> {
    vec![0, 0, 0, 6, 0x65, n as u8, b'n', b'a', b'l', n as u8]
}

/// A film of 100 frames of 40 ms, key frames each 20, behind one another; its codec is `entry`.
fn film(entry: &[u8; 4]) -> Vec<u8> {
    let mut file = Vec::new();
    copy(&mut file, b"ftyp", Some(b"isom\0\0\0\0"));
    let at = file.len() as u32 + 8;
    let data: Vec<u8> = (0..FRAMES).flat_map(frame).collect();
    copy(&mut file, b"mdat", Some(&data));
    write(&mut file, b"moov", |out| {
        write(out, b"mvhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 100));
        write(out, b"trak", |out| {
            write(out, b"mdia", |out| {
                write(out, b"mdhd", |out| fill(out, &[0, 0, 0, 1000, 4000], 24));
                numbers(out, b"hdlr", &[0, 0, u32::from_be_bytes(*b"vide"), 0, 0, 0]);
                write(out, b"minf", |out| write(out, b"stbl", |out| tables(out, entry, at)));
            });
        });
    });
    file
}

fn tables(out: &mut Vec<u8>, entry: &[u8; 4], at: u32) {
    write(out, b"stsd", |out| {
        fill(out, &[0, 1], 8);
        write(out, entry, |out| {
            fill(out, &[], 78);
            copy(out, b"avcC", Some(&[1, 66, 0, 30, 255, 0xe1, 0, 2, 0x67, 66, 1, 0, 1, 0x68]));
        });
    });
    numbers(out, b"stts", &[0, 1, FRAMES, 40]);
    numbers(out, b"stss", &[0, 5, 1, 21, 41, 61, 81]);
    numbers(out, b"stsc", &[0, 1, 1, FRAMES, 1]);
    numbers(out, b"stsz", &[0, 10, FRAMES]);
    numbers(out, b"stco", &[0, 1, at]);
}

fn site(driver: Driver) -> Weir {
    let film = self::film(b"avc1");
    Site::new(built_binary(), driver)
        .file("html/cut.mp4", &film[..film.len() - 30])
        .file("html/film.mp4", film)
        .file("html/other.mp4", self::film(b"hev1"))
        .file("html/text.mp4", "this is no film at all")
        .http(HTTP)
        .start()
}

/// The numbers of the frames in a fragment.
fn frames(fragment: &[u8]) -> Vec<u8> {
    assert!(fragment.chunks(188).all(|packet| packet.len() == 188 && packet[0] == 0x47));
    let start = [0, 0, 0, 1, 0x65];
    let units = fragment.windows(10).filter(|bytes| bytes.starts_with(&start));
    units.filter(|bytes| bytes[6..9] == *b"nal" && bytes[9] == bytes[5]).map(|b| b[5]).collect()
}

#[test]
fn playlists_name_fragments_that_have_all_frames() {
    each_site(site, |weir| {
        let r = weir.get("/film.mp4.m3u8");
        assert_eq!(r.header("Content-Type"), Some("application/vnd.apple.mpegurl"));
        let want = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n\
                    #EXT-X-PLAYLIST-TYPE:VOD\n\n\
                    #EXTINF:1.600,\nfilm.mp4.ts?start=0.000&end=1.600\n\
                    #EXTINF:1.600,\nfilm.mp4.ts?start=1.600&end=3.200\n\
                    #EXTINF:0.800,\nfilm.mp4.ts?start=3.200&end=4.000\n\n#EXT-X-ENDLIST\n";
        assert_eq!((r.status, r.text().as_str()), (200, want));
        for folder in ["/", "/pieces/", "/off/"] {
            let mut all = Vec::new();
            for uri in r.text().lines().filter(|line| line.starts_with("film")) {
                let fragment = weir.get(&format!("{folder}{uri}"));
                assert_eq!(
                    (fragment.status, fragment.header("Content-Type")),
                    (200, Some("video/mp2t"))
                );
                all.extend(frames(&fragment.body));
            }
            assert_eq!(all, (0..100).collect::<Vec<u8>>(), "{folder}");
        }
        assert!(weir.get("/film.mp4").body == film(b"avc1"));
    });
}

#[test]
fn arguments_choose_a_part() {
    each_site(site, |weir| {
        for (path, want) in [
            ("/film.mp4.m3u8?len=3", "?start=0.000&end=3.200\n"),
            ("/film.mp4.m3u8?len=0", "?start=1.600&end=3.200\n"),
            ("/film.mp4.m3u8?len=x&start=y", "?start=1.600&end=3.200\n"),
            (
                "/film.mp4.m3u8?start=1&end=1.5",
                "#EXTINF:0.700,\nfilm.mp4.ts?start=0.800&end=1.500\n",
            ),
            ("/film.mp4.m3u8?offset=1.5", "\n#EXT-X-START:TIME-OFFSET=1.500\n"),
            ("/film.mp4.m3u8?offset=-1", "\n#EXT-X-START:TIME-OFFSET=-1.000\n"),
            ("/args/film.mp4.m3u8?a=1&len=1&b=2", "?start=1.600&end=3.200&a=1&b=2\n"),
        ] {
            let r = weir.get(path);
            assert!(r.status == 200 && r.text().contains(want), "{path}: {}", r.text());
        }
        let middle = weir.get("/film.mp4.ts?start=1.000&end=1.2");
        assert_eq!(frames(&middle.body), (20..30).collect::<Vec<u8>>());
        let part = weir.request("GET", "/film.mp4.ts", "Range: bytes=188-188\r\n");
        assert_eq!((part.status, part.body.as_slice()), (206, &b"\x47"[..]));
        let head = weir.request("HEAD", "/film.mp4.ts?start=1&end=1.2", "");
        let len = middle.body.len().to_string();
        assert_eq!(head.header("Content-Length"), Some(len.as_str()));
        assert_eq!(weir.request("POST", "/film.mp4.ts", "").status, 405);
    });
}

#[test]
fn refusals_say_why() {
    each_site(site, |weir| {
        for (path, status, message) in [
            ("/film.mp4.ts?start=4", 404, "has nothing between the arguments start and end"),
            ("/film.mp4.m3u8?start=9", 404, "has nothing between the arguments start and end"),
            ("/film.mp4.m3u8?start=2&end=2", 404, "has nothing between the arguments"),
            ("/missing.mp4.ts", 404, "failed (2: No such file or directory)"),
            ("/text.mp4.ts", 500, "mp4 atom too large:1952999795"),
            ("/cut.mp4.m3u8", 500, "mp4 atom too large:"),
            ("/other.mp4.m3u8", 500, "has the codec hev1, which hls does not support"),
            ("/small/film.mp4.ts", 500, "you may want to increase hls_buffers"),
            ("/index/film.mp4.ts", 500, "you may want to increase hls_mp4_max_buffer_size"),
        ] {
            assert_eq!(weir.get(path).status, status, "{path}");
            let log = weir.wait_for_log("error.log", &format!("GET {path} "));
            let line = log.lines().find(|line| line.contains(&format!("GET {path} ")));
            assert!(line.is_some_and(|line| line.contains(message)), "{log}");
        }
    });
}

#[test]
fn ffprobe_reads_fragments() {
    if Command::new("ffprobe").arg("-version").output().is_err() {
        eprintln!("skipped: there is no ffprobe");
        return;
    }
    each_site(site, |weir| {
        let args = ["-v", "quiet", "-show_entries", "packet=codec_type,pts_time", "-of", "csv=p=0"];
        let mut child = Command::new("ffprobe")
            .args(args)
            .args(["-i", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let fragment = weir.get("/film.mp4.ts?end=1.6").body;
        child.stdin.take().unwrap().write_all(&fragment).unwrap();
        let shown = child.wait_with_output().unwrap();
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let packets: Vec<&str> = shown
            .lines()
            .map(|line| line.trim_end_matches(','))
            .filter(|line| !line.is_empty())
            .collect();
        assert_eq!(packets.len(), 40, "{shown}");
        assert_eq!((packets[0], packets[1]), ("video,1.400000", "video,1.440000"), "{shown}");
    });
}
