//! Directives as lines of text, for `weir dump-directives` and the reference page. Contexts and
//! arguments are spelt as in `known.tsv`, so that the two can be compared.

use crate::table::{Args, Contexts, Directive};

/// A directive's facts, whatever reads it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The directive's name.
    pub name: &'static str,
    /// The blocks in which the directive may stand.
    pub contexts: Contexts,
    /// Its arguments.
    pub args: Args,
    /// The default in configuration syntax; empty when there is none.
    pub default: &'static str,
    /// Its effect, in one line.
    pub doc: &'static str,
    /// The name of the module that has the directive.
    pub module: &'static str,
}

impl Entry {
    /// The facts of a module's directive.
    pub fn new<C>(directive: &Directive<C>, module: &'static str) -> Entry {
        let Directive { name, contexts, args, default, doc, .. } = *directive;
        Entry { name, contexts, args, default, doc, module }
    }

    /// One line without its line feed: name, contexts, arguments, default, documentation and
    /// module, with tabs between.
    pub fn line(&self) -> String {
        let Entry { name, default, doc, module, .. } = self;
        let (contexts, args) = (self.places(), self.arguments());
        format!("{name}\t{contexts}\t{args}\t{default}\t{doc}\t{module}")
    }

    /// Its contexts as a line has them.
    pub fn places(&self) -> String {
        places(self.contexts)
    }

    /// Its arguments as a line has them.
    pub fn arguments(&self) -> String {
        arguments(self.args)
    }
}

/// `http server if-in-location`, or `any`.
fn places(contexts: Contexts) -> String {
    if contexts == Contexts::ANY {
        return "any".to_string();
    }
    let spelt = |name: &str| match name.split_once(" in ") {
        Some((what, engine)) if what != "if" => format!("{engine}-{what}"),
        _ => name.replace(' ', "-"),
    };
    contexts.names().map(spelt).collect::<Vec<_>>().join(" ")
}

/// `on|off`, `1,2`, `1+`; a leading `block` where a block follows.
fn arguments(args: Args) -> String {
    let counts = if args == Args::FLAG {
        "on|off".to_string()
    } else if args.allows(usize::MAX) {
        let least = (0..=2).find(|&count| args.allows(count)).unwrap_or(2);
        format!("{least}+")
    } else {
        let counts = (0..=7).filter(|&count| args.allows(count));
        counts.map(|count| count.to_string()).collect::<Vec<_>>().join(",")
    };
    if args.is_block() { format!("block {counts}") } else { counts }
}

#[cfg(test)]
mod tests {
    use super::{Entry, arguments, places};
    use crate::known;
    use crate::table::{Args, Contexts, Directive};

    #[test]
    fn a_line_has_six_fields() {
        let directive: Directive<()> = Directive {
            name: "gzip",
            contexts: Contexts::HTTP_SERVER_LOCATION_IF,
            args: Args::FLAG,
            default: "off",
            doc: "Compresses responses.",
            set: |_, _| Ok(()),
        };
        assert_eq!(
            Entry::new(&directive, "gzip").line(),
            "gzip\thttp server location if-in-location\ton|off\toff\tCompresses responses.\tgzip"
        );
    }

    #[test]
    fn counts_are_spelt_as_in_the_facts() {
        assert_eq!(arguments(Args::NONE), "0");
        assert_eq!(arguments(Args::T12), "1,2");
        assert_eq!(arguments(Args::ONE_MORE), "1+");
        assert_eq!(arguments(Args::TWO_MORE), "2+");
        assert_eq!(arguments(Args::ANY), "0+");
        assert_eq!(arguments(Args::BLOCK | Args::NONE), "block 0");
    }

    #[test]
    fn places_are_spelt_as_in_the_facts() {
        for (name, text) in [
            ("ip_hash", "upstream"),
            ("include", "any"),
            ("proxy_download_rate", "stream stream-server"),
            ("set", "server if-in-server location if-in-location"),
        ] {
            let mut wanted: Vec<_> = text.split(' ').collect();
            let spelt = places(known::find(name.as_bytes())[0].contexts);
            let mut spelt: Vec<_> = spelt.split(' ').collect();
            wanted.sort_unstable();
            spelt.sort_unstable();
            assert_eq!(spelt, wanted, "{name}");
        }
    }
}
