//! What `weir serve` serves, and its part of the configuration.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::proxy::Proxied;

use crate::error::Error;

/// The content of the site.
#[derive(Debug)]
pub(crate) enum Content {
    /// A page takes the place of the current folder, for this reason.
    Welcome(String),
    Folder {
        path: PathBuf,
        options: FolderOptions,
    },
    /// A file, and no other one.
    File {
        path: PathBuf,
    },
    /// Another server.
    Proxied(Proxied),
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct FolderOptions {
    /// Folders without index.html are not listed.
    pub(crate) no_browse: bool,
    /// Unknown paths get index.html.
    pub(crate) spa: bool,
    /// Files and folders whose names begin with a dot are served.
    pub(crate) hidden: bool,
}

/// Files that a listing would show.
fn is_empty(folder: &Path) -> io::Result<bool> {
    let names = fs::read_dir(folder)?.map(|entry| entry.map(|e| e.file_name()));
    for name in names {
        if !name?.as_bytes().starts_with(b".") {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Content {
    /// The file or folder at that path; without one, the current folder.
    ///
    /// # Errors
    /// It cannot be read, or the options do not fit.
    pub(crate) fn local(path: Option<&Path>, options: FolderOptions) -> Result<Content, Error> {
        let named = path.unwrap_or(Path::new("."));
        let full = named.canonicalize().map_err(Error::file(named))?;
        if fs::metadata(&full).map_err(Error::file(named))?.is_file() {
            fs::File::open(&full).map_err(Error::file(named))?;
            return match options == FolderOptions::default() {
                true => Ok(Content::File { path: full }),
                false => Err(Error::usage("--no-browse, --spa and --hidden are for folders")),
            };
        }
        let empty = is_empty(&full).map_err(Error::file(named))?;
        if path.is_none() && empty {
            return Ok(Content::Welcome("This folder has no files".to_owned()));
        }
        if options.spa && !full.join("index.html").is_file() {
            return Err(Error::usage(format!("--spa: {} has no index.html", full.display())));
        }
        Ok(Content::Folder { path: full, options })
    }

    /// The files that are served.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Content::Folder { path, .. } | Content::File { path } => Some(path),
            Content::Welcome(_) | Content::Proxied(_) => None,
        }
    }

    /// What it is, after "Weir", and further lines.
    pub(crate) fn explain(&self) -> (String, String) {
        match self {
            Content::Welcome(why) => {
                let more = format!("{why}. A welcome page takes its place.\n");
                ("serves its welcome page".to_owned(), more)
            }
            Content::File { path } => (format!("serves {}", path.display()), String::new()),
            Content::Folder { path, options } => {
                let more = match options {
                    FolderOptions { spa: true, .. } => "Unknown paths get index.html.",
                    FolderOptions { no_browse: true, .. } => {
                        "Folders without an index.html are refused."
                    }
                    _ => {
                        "Folders without an index.html are listed (--no-browse: they are refused)."
                    }
                };
                (format!("serves {}", path.display()), format!("{more}\n"))
            }
            Content::Proxied(to) => (format!("proxies {}", to.url()), to.explain()),
        }
    }

    /// The path of the URL that is printed, without its slash.
    pub(crate) fn url_path(&self) -> String {
        match self {
            Content::File { path } => encoded(path.file_name().unwrap_or_default().as_bytes()),
            _ => String::new(),
        }
    }

    /// The directives of `http` that its server needs.
    pub(crate) fn around(&self) -> &'static str {
        match self {
            // The values of geo are taken as they stand.
            Content::Folder { .. } | Content::File { .. } => {
                "geo $weir_dollar { default \"$\"; }\n"
            }
            Content::Proxied(to) => to.around(),
            Content::Welcome(_) => "",
        }
    }

    /// The directives of the server.
    pub(crate) fn server(&self) -> Vec<u8> {
        match self {
            Content::Welcome(_) => b"location / { welcome_page; }\n".to_vec(),
            Content::Proxied(to) => to.location().into_bytes(),
            Content::Folder { path, options } => {
                let mut out = root(path);
                if !options.hidden {
                    // Repositories and secrets (.git, .env) lie in folders that people work in.
                    out.extend_from_slice(
                        b"location ~ \"/\\.(?!well-known(?:/|$))\" { return 404; }\n",
                    );
                }
                out.extend_from_slice(match options {
                    FolderOptions { spa: true, .. } => {
                        b"location / { try_files $uri $uri/index.html /index.html; }\n"
                    }
                    FolderOptions { no_browse: true, .. } => b"",
                    _ => b"autoindex on;\nautoindex_page on;\nautoindex_localtime on;\n",
                });
                out
            }
            Content::File { path } => {
                let mut out = root(path.parent().unwrap_or(Path::new("/")));
                let name = path.file_name().unwrap_or_default().as_bytes();
                let url = encoded(name);
                out.extend_from_slice(b"location / { return 404; }\nlocation = ");
                // Names of locations have no variables.
                out.extend_from_slice(&quoted(&[b"/", name].concat(), b"$"));
                out.extend_from_slice(
                    format!(" {{ }}\nlocation = / {{ return 302 \"/{url}\"; }}\n").as_bytes(),
                );
                out
            }
        }
    }
}

fn root(folder: &Path) -> Vec<u8> {
    let folder = quoted(folder.as_os_str().as_bytes(), b"${weir_dollar}");
    [b"root ", &folder[..], b";\n"].concat()
}

/// A string in the configuration language's quotes. A `$` cannot be escaped there; where variables
/// are replaced, it becomes a variable which holds one.
fn quoted(text: &[u8], dollar: &[u8]) -> Vec<u8> {
    let mut out = vec![b'"'];
    for &b in text {
        match b {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', b]),
            b'$' => out.extend_from_slice(dollar),
            _ => out.push(b),
        }
    }
    out.push(b'"');
    out
}

/// A name as a part of a URL.
fn encoded(name: &[u8]) -> String {
    let mut out = String::new();
    for &b in name {
        match b {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(b)),
            _ if b.is_ascii_alphanumeric() => out.push(char::from(b)),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    fn text(content: &Content) -> String {
        String::from_utf8(content.server()).unwrap()
    }

    #[test]
    fn odd_names_stay_one_word() {
        let path = PathBuf::from("/a \"b\\$c;{");
        let folder = Content::Folder { path: path.clone(), options: FolderOptions::default() };
        let root = r#"root "/a \"b\\${weir_dollar}c;{";"#;
        assert!(text(&folder).contains(root), "{}", text(&folder));
        assert!(folder.around().contains("geo $weir_dollar"));
        let file = Content::File { path };
        let text = text(&file);
        assert!(text.contains(r#"location = "/a \"b\\$c;{" { }"#), "{text}");
        assert!(text.contains(r#"return 302 "/a%20%22b%5C%24c%3B%7B";"#), "{text}");
    }

    #[test]
    fn files_and_folders_are_told_apart() {
        let folder = Folder::new("content");
        let of = |name: &str, options| Content::local(Some(&folder.join(name)), options);
        let plain = FolderOptions::default();
        let spa = FolderOptions { spa: true, ..plain };
        assert!(matches!(of("", plain), Ok(Content::Folder { .. })));
        assert!(of("", spa).unwrap_err().to_string().contains("has no index.html"));
        assert!(is_empty(&folder).unwrap());
        folder.write(".hidden", "");
        assert!(is_empty(&folder).unwrap());
        folder.write("index.html", "");
        assert!(!is_empty(&folder).unwrap());
        assert!(matches!(of("", spa), Ok(Content::Folder { .. })));
        assert!(matches!(of("index.html", plain), Ok(Content::File { .. })));
        assert!(of("index.html", spa).is_err() && of("none", plain).is_err());
    }
}
