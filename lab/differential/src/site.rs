//! The files that are asked for: the same for both servers, with times of their own.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::Outcome;

/// When every file was changed, in seconds since 1970: 1 January 2020.
pub const CHANGED: u64 = 1_577_836_800;

/// Bytes in the gzip format.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let done = encoder.write_all(bytes).and_then(|()| encoder.finish());
    done.expect("memory takes what is written to it")
}

const FILES: &[(&str, &[u8])] = &[
    ("index.html", b"<html><head></head><body>index</body></html>\n"),
    ("plain.txt", b"plain text\n"),
    ("koi.txt", b"letters \xc1\xc2\xd7\xd0 end\n"),
    ("style.css", b"body { color: red }\n"),
    (
        "data.json",
        b"{\"a\": 1, \"b\": [1, 2, 3], \"text\": \"some text to compress, some \
            text\"}\n",
    ),
    ("empty.txt", b""),
    ("dot.gif", b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff;"),
    ("noext", b"no extension\n"),
    ("spaced name.txt", b"a name with a space\n"),
    ("errors/404.html", b"<h1>not here</h1>\n"),
    ("try/here.txt", b"here\n"),
    ("try/folder/index.html", b"in a folder\n"),
    ("try/fallback.txt", b"fallback\n"),
    ("trynamed/here.txt", b"here\n"),
    ("trycode/here.txt", b"here\n"),
    ("folder/a.txt", b"a\n"),
    ("folder/b & <c>.html", b"b\n"),
    ("folder/sub/d.txt", b"d\n"),
    ("folder/very-long-name-of-a-file-that-does-not-fit-into-the-column-of-names.txt", b"e\n"),
    ("alone/only.txt", b"the only one\n"),
    ("packed/a.txt", b"not compressed\n"),
    ("packed/only.txt", b"no other form\n"),
    ("film/a.flv", b"FLV\x01\x05\0\0\0\x09\0\0\0\0 and then what is no film at all"),
    ("film/a.mp4", b"\0\0\0\x10ftypisom\0\0\0\0\0\0\0\x08mdat and no index"),
    ("passwords", b"user:{PLAIN}secret\nmd5:$apr1$x$2rMrqEEjLVTxDL/FOu1n8.\n"),
    ("ssi/plain.html", b"no commands <!-- a comment --> <b>\n"),
    (
        "ssi/vars.html",
        b"<!--# echo var=\"arg_a\" default=\"none\" -->|<!--#echo \
            var='uri'-->|\n",
    ),
    ("ssi/set.html", b"<!--# set var=\"x\" value=\"<$arg_a>\" --><!--# echo var=\"x\" -->\n"),
    (
        "ssi/raw.html",
        b"<!--# echo var=\"arg_a\" encoding=\"none\" --> <!--# echo \
            var=\"arg_a\" encoding=\"url\" -->\n",
    ),
    (
        "ssi/if.html",
        b"<!--# if expr=\"$arg_a = 1\" -->one<!--# elif expr=\"$arg_a = /^x/\" \
            -->x<!--# else -->else<!--# endif -->\n",
    ),
    (
        "ssi/include.html",
        b"[<!--# include virtual=\"/plain.txt\" -->][<!--# include \
            file=\"part.txt\" -->][<!--# include virtual=\"/nowhere\" -->]\n",
    ),
    ("ssi/part.txt", b"<!--# echo var=\"arg_a\" -->part\n"),
    (
        "ssi/block.html",
        b"<!--# block name=\"b\" -->stub<!--# endblock --><!--# include \
            virtual=\"/ret/?code=500\" stub=\"b\" -->\n",
    ),
    ("ssi/proxied.html", b"<<!--# include virtual=\"/px/echo?x=1\" wait=\"yes\" -->>\n"),
    (
        "ssi/date.html",
        b"<!--# config timefmt=\"%Y\" --><!--# config errmsg=\"oops\" \
            --><!--# nothing -->\n",
    ),
    ("ssi/broken.html", b"a <!--# echo var=\"uri -->\nb <!--# if expr=\"1\" -->unclosed\n"),
];

/// Writes them.
pub fn write(root: &Path) -> Outcome {
    let text: Vec<u8> = b"0123456789abcdef".iter().copied().cycle().take(2000).collect();
    for (name, bytes) in FILES {
        put(&root.join(name), bytes)?;
    }
    put(&root.join("long.txt"), &text)?;
    put(&root.join("packed/a.txt.gz"), &gzip(b"compressed before\n"))?;
    put(&root.join("packed/b.txt.gz"), &gzip(b"only compressed\n"))
}

fn put(path: &Path, bytes: &[u8]) -> Outcome {
    let folder = path.parent().unwrap_or(path);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(CHANGED);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, bytes))
        .and_then(|()| fs::File::options().write(true).open(path)?.set_modified(time))
        .and_then(|()| fs::File::open(folder)?.set_modified(time))
        .map_err(|e| format!("{}: {e}", path.display()))
}
