//! The example configurations: where a directive stands in them, and the part to show of it.
//!
//! An example has one directive a line; a block opens at a line's end and closes on a line alone.

use conf::table::Contexts;

/// A block with more lines is not shown whole.
const SHORT: usize = 14;

/// With more lines, no further directives of the name are shown.
const ENOUGH: usize = 24;

/// The part of an example that shows a directive.
pub struct Excerpt {
    /// Its lines.
    pub text: String,
    /// The directive has no block, or one that is shown whole.
    pub is_whole: bool,
}

/// An example configuration, its lines with the blocks that they stand in.
pub struct Example {
    /// Its file's name.
    pub name: String,
    lines: Vec<Line>,
}

struct Line {
    text: String,
    /// The first word; empty for comments, ends of blocks and empty lines.
    directive: String,
    /// The context; none where a block holds data.
    context: Option<Contexts>,
    /// The line that opens the block around it.
    parent: Option<usize>,
    /// The last line of the directive: its own, or the end of its block.
    end: usize,
}

impl Example {
    /// An example of that name and text.
    pub fn new(name: &str, text: &str) -> Example {
        let mut lines: Vec<Line> = Vec::new();
        let mut open: Vec<(usize, Option<Contexts>)> = Vec::new();
        for (at, text) in text.lines().enumerate() {
            let bare = text.trim();
            if bare == "}"
                && let Some((opened, _)) = open.pop()
            {
                lines[opened].end = at;
            }
            let directive = match bare.starts_with(['#', '}']) {
                true => "",
                false => bare.split([' ', ';']).next().unwrap_or_default(),
            };
            let around = open.last().copied();
            let context = around.map_or(Some(Contexts::MAIN), |(_, context)| context);
            let parent = around.map(|(line, _)| line);
            let (text, directive) = (text.to_owned(), directive.to_owned());
            lines.push(Line { text, directive, context, parent, end: at });
            if bare.ends_with('{') && !bare.starts_with('#') {
                open.push((at, context.and_then(|c| c.inside(&lines[at].directive))));
            }
        }
        Example { name: name.to_owned(), lines }
    }

    /// The number of its directives that have one of these names.
    pub fn count(&self, names: &[&str]) -> usize {
        self.lines.iter().filter(|line| names.contains(&line.directive.as_str())).count()
    }

    /// The part with a directive in one of these contexts: its lines within their blocks, others
    /// left out.
    pub fn excerpt(&self, directive: &str, contexts: &[&str]) -> Option<Excerpt> {
        let fits = |line: &Line| {
            let places = || contexts.iter().filter_map(|word| Contexts::of_word(word));
            line.directive == directive
                && line.context.is_some_and(|c| places().any(|place| place.intersects(c)))
        };
        let is_short = |at: usize| self.lines[at].end - at < SHORT;
        let mut all = (0..self.lines.len()).filter(|&at| fits(&self.lines[at]));
        let first = all.clone().find(|&at| is_short(at)).or_else(|| all.next())?;
        Some(Excerpt { text: self.shown(&self.kept(first)), is_whole: is_short(first) })
    }

    /// The lines to show for the directive in a line.
    fn kept(&self, first: usize) -> Vec<bool> {
        let mut kept = vec![false; self.lines.len()];
        let parent = self.lines[first].parent;
        let mut around = parent;
        while let Some(line) = around {
            kept[line] = true;
            kept[self.lines[line].end] = true;
            around = self.lines[line].parent;
        }
        if let Some(line) = parent
            && self.lines[line].end - line < SHORT
        {
            kept[line..=self.lines[line].end].fill(true);
        }
        for at in first..self.lines.len() {
            let line = &self.lines[at];
            let enough = kept.iter().filter(|kept| **kept).count() > ENOUGH;
            if line.directive == self.lines[first].directive && line.parent == parent && !enough {
                self.keep(at, &mut kept);
            }
        }
        kept
    }

    /// Keeps a directive with the comment above it, and its block if that is short.
    fn keep(&self, at: usize, kept: &mut [bool]) {
        let is_comment = |line: &usize| self.lines[*line].text.trim().starts_with('#');
        (0..at).rev().take_while(is_comment).for_each(|line| kept[line] = true);
        let end = self.lines[at].end;
        kept[at] = true;
        kept[end] = true;
        if end - at < SHORT {
            kept[at..=end].fill(true);
        }
    }

    /// The kept lines; "…" stands for others inside of a block.
    fn shown(&self, kept: &[bool]) -> String {
        let mut text = String::new();
        let mut left_out = false;
        for (at, line) in self.lines.iter().enumerate() {
            let within = line.parent.is_some_and(|parent| kept[parent]);
            if kept[at] {
                text.push_str(&line.text);
                text.push('\n');
                left_out = false;
            } else if !left_out && within && !line.text.trim().is_empty() {
                let indent = line.text.len() - line.text.trim_start().len();
                text.push_str(&" ".repeat(indent));
                text.push_str("…\n");
                left_out = true;
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# All.
user a;

events {}

http {
    map $a $b {
        root 1;
    }

    server {
        listen 80;

        # Files.
        root /a;
        index x;

        location / {
            root /b;
        }
    }
}

stream {
    server {
        listen 81;
    }
}
";

    fn part(text: &str, directive: &str, contexts: &[&str]) -> String {
        Example::new("a.conf", text)
            .excerpt(directive, contexts)
            .map_or_else(String::new, |it| it.text)
    }

    #[test]
    fn a_short_block_is_shown_whole() {
        let text = "http {\n    …\n    server {\n        location / {\n            \
                    root /b;\n        }\n    }\n}\n";
        let shown = part(TEXT, "root", &["location"]);
        assert_eq!(shown.replace("        …\n", ""), text);
        assert_eq!(part(TEXT, "listen", &["stream-server"]), TEXT.split("\n\n").last().unwrap());
    }

    #[test]
    fn a_long_block_has_its_other_lines_left_out() {
        let long = TEXT.replace("        index x;\n", &"        index x;\n".repeat(20));
        let shown = part(&long, "root", &["server"]);
        let text = "http {\n    …\n    server {\n        …\n        # Files.\n        \
                    root /a;\n        …\n    }\n}\n";
        assert_eq!(shown, text);
    }

    #[test]
    fn directives_are_found_by_context() {
        assert_eq!(part(TEXT, "user", &["main"]), "# All.\nuser a;\n");
        assert_eq!(part(TEXT, "events", &["main"]), "events {}\n");
        assert_eq!(part(TEXT, "index", &["location"]), "");
        assert!(part(TEXT, "map", &["any"]).contains("root 1;"));
        let example = Example::new("a.conf", TEXT);
        assert_eq!(example.count(&["root", "listen"]), 5);
        assert_eq!(example.name, "a.conf");
    }
}
