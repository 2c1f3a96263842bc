//! Helpers of tests: stylesheets and documents as texts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::{Bounds, Error, Parameter, Parsing, Sheet, Transformed};

/// A folder that goes with its value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A folder with files.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-xslt-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
        Folder(path)
    }

    /// The path of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A stylesheet of the folder.
    pub(crate) fn sheet(&self, name: &str) -> Result<Sheet, Error> {
        Sheet::read(&self.0.join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A stylesheet around some elements at its top; the result has no XML declaration.
pub(crate) fn stylesheet(tops: &str) -> String {
    format!(
        r#"<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output method="xml" omit-xml-declaration="yes"/>{tops}</xsl:stylesheet>"#
    )
}

/// A parameter: an expression.
pub(crate) fn parameter(name: &str, value: &str) -> Parameter {
    Parameter { name: name.into(), value: value.into(), is_text: false }
}

/// [`crate::transform`] in a thread with the stack that it needs.
pub(crate) fn transform(
    document: &[u8],
    parsing: &Parsing,
    stages: &[(&Sheet, Vec<Parameter>)],
    bounds: &Bounds,
) -> Result<Transformed, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(crate::STACK_BYTES);
        let work = || crate::transform(document, parsing, stages, bounds);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

/// Transforms a document by a stylesheet.
pub(crate) fn run(
    sheet: &Sheet,
    document: &str,
    parameters: Vec<Parameter>,
) -> Result<Transformed, Error> {
    let bytes_max = 64 << 20;
    let parsing = Parsing { entities: None, external_entities: false, bytes_max };
    let bounds = Bounds { bytes_max, is_cancelled: &AtomicBool::new(false) };
    transform(document.as_bytes(), &parsing, &[(sheet, parameters)], &bounds)
}

/// What a stylesheet of these elements makes of a document, or the error.
pub(crate) fn made(tops: &str, document: &str) -> Result<String, String> {
    let folder = Folder::with(&[("a.xsl", &stylesheet(tops))]);
    let sheet = folder.sheet("a.xsl").map_err(|e| e.message)?;
    let done = run(&sheet, document, Vec::new()).map_err(|e| e.message)?;
    Ok(String::from_utf8(done.body).unwrap().trim_end_matches('\n').to_owned())
}

/// The text that an expression gives at the document's root.
pub(crate) fn value(expression: &str, document: &str) -> Result<String, String> {
    let expression = expression.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
    let template = format!(
        r#"<xsl:template match="/"><o><xsl:value-of select="{expression}"/></o></xsl:template>"#
    );
    let made = made(&template, document)?;
    let text = made.strip_prefix("<o>").and_then(|text| text.strip_suffix("</o>"));
    Ok(text.unwrap_or_default().replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}
