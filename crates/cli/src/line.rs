//! Declarations for clap: the arguments that several commands share.
//! nginx's switches come from their table ([`FLAGS`]), because the server itself reads them
//! without clap (see [`crate::switches`]).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, ValueHint};
use server::layout::layout;
use server::typed::Typed;

use crate::error::Error;
use crate::flags::{Ask, FLAGS, Flag, Value};
use crate::switches;

/// Columns of help.
pub(crate) const WIDTH: usize = 80;

/// The colours of help, for terminals.
pub(crate) const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// What all commands have in common.
pub(crate) fn common(command: clap::Command) -> clap::Command {
    command
        .version(server::VERSION)
        .disable_version_flag(true)
        .disable_help_flag(true)
        .args_override_self(true)
        .term_width(WIDTH)
        .styles(STYLES)
}

/// The arguments `-h` and `--help` of a command.
pub(crate) fn help() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("Print help (-h: in short)")
        .display_order(1000)
}

/// An option without a value: `--json`.
pub(crate) fn option(name: &'static str, help: &'static str) -> Arg {
    named(name).action(ArgAction::SetTrue).help(help)
}

/// An option with a value: `--interval TIME`. A name of one letter has one dash.
pub(crate) fn valued(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    let hint = match value {
        "FILE" => ValueHint::FilePath,
        "DIR" => ValueHint::DirPath,
        "URL" => ValueHint::Url,
        _ => ValueHint::Other,
    };
    named(name).value_name(value).value_hint(hint).help(help)
}

fn named(name: &'static str) -> Arg {
    let mut letters = name.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) => Arg::new(name).short(letter),
        _ => Arg::new(name).long(name),
    }
}

/// The pid file of the running server.
pub(crate) fn pid() -> Arg {
    valued("pid", "FILE", "The pid file of the running server [default: that of the configuration]")
}

/// A configuration file as the command's word.
pub(crate) fn file(help: &'static str) -> Arg {
    Arg::new("FILE")
        .value_parser(ValueParser::path_buf())
        .value_hint(ValueHint::FilePath)
        .help(help)
}

/// The switches with these letters.
pub(crate) fn switches(letters: &str) -> impl Iterator<Item = Arg> {
    FLAGS.iter().filter(move |flag| letters.contains(flag.letters)).map(switch)
}

/// The letter by which clap knows a switch: `h` of `?h`.
fn letter(flag: &Flag) -> &'static str {
    let at = flag.letters.find(|c: char| c.is_ascii_alphabetic()).unwrap_or_default();
    flag.letters.get(at..=at).unwrap_or_default()
}

/// A switch for clap.
pub(crate) fn switch(flag: &Flag) -> Arg {
    let id = letter(flag);
    let arg = Arg::new(id).visible_short_aliases(flag.letters.chars().filter(|c| !id.contains(*c)));
    let mut arg = id.chars().fold(arg, Arg::short);
    arg = match flag.ask {
        Ask::Help => arg.long("help").action(ArgAction::SetTrue),
        Ask::Version => arg.long("version").action(ArgAction::SetTrue),
        _ => arg,
    };
    let mut doc = capital(flag.doc);
    let default = match flag.ask {
        Ask::Prefix => layout().prefix,
        Ask::ConfFile => layout().conf_path,
        _ => flag.default,
    };
    if !default.is_empty() {
        doc.push_str(&format!(" [default: {default}]"));
    }
    if !flag.more.is_empty() {
        arg = arg.long_help(format!("{doc}. {}", flag.more));
    }
    let arg = arg.help(doc);
    let Some(value) = flag.arg else { return arg.action(ArgAction::SetTrue) };
    let arg = arg.value_name(value.name).allow_hyphen_values(true);
    match value.value {
        Value::Dir => arg.value_parser(ValueParser::os_string()).value_hint(ValueHint::DirPath),
        Value::File => arg.value_parser(ValueParser::os_string()).value_hint(ValueHint::FilePath),
        Value::Text => arg.value_parser(ValueParser::os_string()).value_hint(ValueHint::Other),
        Value::OneOf(words) => arg.value_parser(PossibleValuesParser::new(words)),
    }
}

/// The switches among the arguments of a command.
///
/// # Errors
/// A switch has a wrong value.
pub(crate) fn typed(matches: &ArgMatches) -> Result<Typed, Error> {
    let mut typed = Typed::default();
    for flag in FLAGS {
        let id = letter(flag);
        if flag.arg.is_none() {
            if matches!(matches.try_get_one::<bool>(id), Ok(Some(true))) {
                switches::switch(&mut typed, flag.ask);
            }
        } else if let Ok(Some(value)) = matches.try_get_one::<OsString>(id) {
            switches::set_value(&mut typed, flag, value.clone().into_vec())?;
        }
    }
    Ok(typed)
}

/// The text with a capital letter first.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|c| c.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A text in lines of at most `width` columns, each behind `indent` spaces. Lines of the text that
/// begin with a space keep their breaks.
pub(crate) fn wrapped(text: &str, indent: usize, width: usize) -> String {
    let mut out = String::new();
    for paragraph in text.split("\n") {
        let mut column = 0;
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            if column > 0 && indent + column + 1 + word.chars().count() > width {
                out.push('\n');
                column = 0;
            }
            out.push_str(&" ".repeat(if column == 0 { indent } else { 1 }));
            column += word.chars().count() + usize::from(column > 0);
            out.push_str(word);
        }
        out.push('\n');
    }
    out
}
