//! Lists of folders as pages for people: names whole, sizes rounded, sorted by the column that a
//! link in its heading names, the folders above as links. No script is needed. Sans-IO.
#![forbid(unsafe_code)]

mod plain;

use std::cmp::Ordering;
use std::io::Write as _;

use base::time::Civil;
use http_wire::uri::{Escape, escape, escape_html};

pub use plain::{name_column, rounded_size};

/// The beginning of a page, up to its title.
const HEAD: &str = include_str!("page.html");

/// A column that entries are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// The name, byte by byte without the case of ASCII.
    Name,
    /// Sorted by size.
    Size,
    /// The time of the last change.
    Time,
}

/// The columns, with their names in URLs and headings.
const COLUMNS: [(Column, &str, &str); 3] = [
    (Column::Name, "name", "Name"),
    (Column::Size, "size", "Size"),
    (Column::Time, "time", "Modified"),
];

/// The order of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    /// The column that entries are sorted by.
    pub column: Column,
    /// The largest, latest or last comes first.
    pub descending: bool,
}

impl Order {
    /// The order that the arguments `sort` and `order` of a URL name: `?sort=size&order=desc`. By
    /// name if they name none.
    pub fn new(sort: Option<&[u8]>, order: Option<&[u8]>) -> Order {
        let named = COLUMNS.iter().find(|(_, name, _)| sort == Some(name.as_bytes()));
        Order {
            column: named.map_or(Column::Name, |(column, ..)| *column),
            descending: order == Some(b"desc"),
        }
    }

    /// Compares two entries. Folders come first in each order, and equal ones are sorted by name.
    pub fn compare(self, a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
        let by_name = || {
            let folded = |entry: &Entry<'_>| entry.name.to_ascii_lowercase();
            folded(a).cmp(&folded(b)).then_with(|| a.name.cmp(b.name))
        };
        let ordering = match self.column {
            Column::Name => by_name(),
            Column::Size => a.size.cmp(&b.size),
            Column::Time => a.mtime.cmp(&b.mtime),
        };
        let ordering = if self.descending { ordering.reverse() } else { ordering };
        b.folder.cmp(&a.folder).then(ordering).then_with(by_name)
    }
}

/// An entry of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its name, in any bytes.
    pub name: &'a [u8],
    /// Whether the entry is a folder.
    pub folder: bool,
    /// Bytes of a file; 0 for others.
    pub size: u64,
    /// The last change, seconds since 1970.
    pub mtime: i64,
}

/// A text of any bytes in HTML: what is not UTF-8, and control characters, which could turn the
/// direction of the text or be invisible, become a mark.
fn text(bytes: &[u8], out: &mut Vec<u8>) {
    let turns = ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let is_control = |c: char| c.is_control() || turns.iter().any(|range| range.contains(&c));
    let text = String::from_utf8_lossy(bytes).replace(is_control, "\u{fffd}");
    escape_html(text.as_bytes(), out);
}

/// Writes the page up to the first entry. `uri` is the folder's path, decoded, with slashes at
/// both ends.
pub fn begin(uri: &[u8], order: Order, out: &mut Vec<u8>) {
    out.extend_from_slice(HEAD.as_bytes());
    out.extend_from_slice(b"<title>");
    text(uri, out);
    out.extend_from_slice(b"</title>\n</head>\n<body>\n<main>\n<h1>");
    breadcrumbs(uri, out);
    out.extend_from_slice(b"</h1>\n<table>\n<thead><tr>");
    for (column, name, heading) in COLUMNS {
        let is_sorted = order.column == column;
        let (next, mark, sort) = match (is_sorted, order.descending) {
            (true, false) => ("desc", " \u{2191}", " aria-sort=\"ascending\""),
            (true, true) => ("asc", " \u{2193}", " aria-sort=\"descending\""),
            // The largest and the latest are looked for more often.
            (false, _) if column == Column::Name => ("asc", "", ""),
            (false, _) => ("desc", "", ""),
        };
        // Writing to a Vec cannot fail.
        let _ = write!(
            out,
            "<th scope=\"col\"{sort}><a href=\"?sort={name}&amp;order={next}\">\
             {heading}{mark}</a></th>"
        );
    }
    out.extend_from_slice(b"</tr></thead>\n<tbody>\n");
    if uri.len() > 1 {
        out.extend_from_slice(b"<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
}

/// The folders above as links, relative ones, so that they are right behind a proxy, too.
fn breadcrumbs(uri: &[u8], out: &mut Vec<u8>) {
    let parts: Vec<&[u8]> = uri.split(|&b| b == b'/').filter(|part| !part.is_empty()).collect();
    let link = |up: usize, name: &[u8], out: &mut Vec<u8>| {
        if up == 0 {
            text(name, out);
            return;
        }
        out.extend_from_slice(b"<a href=\"");
        (0..up).for_each(|_| out.extend_from_slice(b"../"));
        out.extend_from_slice(b"\">");
        text(name, out);
        out.extend_from_slice(b"</a>");
    };
    link(parts.len(), b"/", out);
    for (i, part) in parts.iter().enumerate() {
        out.push(b' ');
        link(parts.len() - 1 - i, part, out);
        out.extend_from_slice(b" /");
    }
}

/// Writes an entry. Times are shown with this offset to UTC, in seconds.
pub fn entry(entry: &Entry<'_>, zone: i64, out: &mut Vec<u8>) {
    let slash = if entry.folder { "/" } else { "" };
    // A name with a colon would be read as a scheme.
    out.extend_from_slice(b"<tr><td><a href=\"./");
    escape(entry.name, Escape::UriComponent, out);
    out.extend_from_slice(slash.as_bytes());
    out.extend_from_slice(b"\">");
    text(entry.name, out);
    out.extend_from_slice(slash.as_bytes());
    out.extend_from_slice(b"</a></td><td>");
    if !entry.folder {
        size(entry.size, out);
    }
    let t = Civil::from_unix(entry.mtime + zone);
    // Writing to a Vec cannot fail.
    let _ = writeln!(
        out,
        "</td><td>{:04}-{:02}-{:02} {:02}:{:02}</td></tr>",
        t.year, t.month, t.day, t.hour, t.min
    );
}

/// Writes the end of the page.
pub fn end(out: &mut Vec<u8>) {
    out.extend_from_slice(b"</tbody>\n</table>\n</main>\n</body>\n</html>\n");
}

/// A size in the unit that leaves at most three digits before the point: `812 B`, `1.5 KB`.
fn size(bytes: u64, out: &mut Vec<u8>) {
    const UNITS: [&str; 6] = ["KB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        let _ = write!(out, "{bytes} B");
        return;
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, UNITS[0]);
    for larger in &UNITS[1..] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1024.0, larger);
    }
    let digits = usize::from(value < 9.95);
    let _ = write!(out, "{value:.digits$} {unit}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(uri: &str, order: Order, entries: &[Entry<'_>]) -> String {
        let mut out = Vec::new();
        begin(uri.as_bytes(), order, &mut out);
        entries.iter().for_each(|e| entry(e, 0, &mut out));
        end(&mut out);
        String::from_utf8(out).expect("whatever the names are, the page is UTF-8")
    }

    fn file(name: &str, size: u64, mtime: i64) -> Entry<'_> {
        Entry { name: name.as_bytes(), folder: false, size, mtime }
    }

    #[test]
    fn names_break_nothing() {
        let names: [&[u8]; 5] =
            [b"<b>&\"'", b"a\nb", b"\xff\xfe", "\u{202e}txt.exe".as_bytes(), b"javascript:x"];
        let entries = names.map(|name| Entry { name, folder: false, size: 0, mtime: 0 });
        let page = page("/<i>/", Order::new(None, None), &entries);
        for part in ["<b>", "<i>", "a\nb", "\u{202e}", "href=\"javascript"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
        for part in [
            ">&lt;b&gt;&amp;&quot;'</a>",
            "href=\"./a%0Ab\">a\u{fffd}b<",
            "href=\"./%FF%FE\">\u{fffd}\u{fffd}<",
            "href=\"./javascript",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("<tr>").count(), 7);
    }

    #[test]
    fn long_names_stay_whole() {
        let name = "\u{444}".repeat(120);
        let page = page("/", Order::new(None, None), &[file(&name, 0, 0)]);
        assert!(page.contains(&format!(">{name}</a>")));
        assert!(!page.contains("../"), "nothing is above the root");
    }

    #[test]
    fn folders_above_are_links() {
        let order = Order { column: Column::Size, descending: true };
        let page = page("/a/b c/", order, &[]);
        let crumbs = "<h1><a href=\"../../\">/</a> <a href=\"../\">a</a> / b c /</h1>";
        assert!(page.contains(crumbs), "{page}");
        assert!(
            page.contains("aria-sort=\"descending\"><a href=\"?sort=size&amp;order=asc\">Size")
        );
        assert!(page.contains("<th scope=\"col\"><a href=\"?sort=name&amp;order=asc\">Name<"));
    }

    #[test]
    fn orders() {
        let folder = Entry { name: b"z", folder: true, size: 0, mtime: 9 };
        let all = [file("b", 1, 5), file("A", 7, 3), file("c", 1, 4), folder];
        let sorted = |sort: &str, order: &str| {
            let order = Order::new(Some(sort.as_bytes()), Some(order.as_bytes()));
            let mut all = all;
            all.sort_by(|a, b| order.compare(a, b));
            String::from_utf8(all.iter().flat_map(|e| e.name).copied().collect()).unwrap()
        };
        assert_eq!(sorted("name", "asc"), "zAbc");
        assert_eq!(sorted("name", "desc"), "zcbA");
        assert_eq!(sorted("size", "desc"), "zAbc");
        assert_eq!(sorted("size", "asc"), "zbcA");
        assert_eq!(sorted("time", "desc"), "zbcA");
        assert_eq!(sorted("nonsense", "x"), "zAbc");
    }

    #[test]
    fn sizes_for_people() {
        for (bytes, want) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 KB"),
            (1536, "1.5 KB"),
            (10_240, "10 KB"),
            (1 << 20, "1.0 MB"),
            ((1 << 20) - 1, "1.0 MB"),
            (u64::MAX, "16 EB"),
        ] {
            let mut out = Vec::new();
            size(bytes, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{bytes}");
        }
    }
}
