//! `vscode`: the extension of `editors/vscode` as a package that the editor installs
//! (`code --install-extension FILE`). Such a package is a ZIP archive with a manifest; no network
//! and no other program is needed.

use std::fs;
use std::path::Path;

use crate::Findings;
use crate::workspace::Workspace;

/// The extension's files, below its folder.
const FILES: &[&str] = &[
    "README.md",
    "client.js",
    "extension.js",
    "language-configuration.json",
    "package.json",
    "syntaxes/nginx.tmLanguage.json",
];

const TYPES: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
    <Types xmlns=\"http://schemas.openxmlformats.org/package/2006/content-types\">\
    <Default Extension=\".json\" ContentType=\"application/json\"/>\
    <Default Extension=\".js\" ContentType=\"application/javascript\"/>\
    <Default Extension=\".md\" ContentType=\"text/markdown\"/>\
    <Default Extension=\".txt\" ContentType=\"text/plain\"/>\
    <Default Extension=\".vsixmanifest\" ContentType=\"text/xml\"/></Types>\n";

/// `vscode [FILE]`: writes the package, by default `target/weir.vsix`.
pub fn run(ws: &Workspace, args: &[String]) -> Findings {
    let file = match args {
        [] => "target/weir.vsix",
        [file] => file,
        _ => return Err(vec!["usage: cargo xtask vscode [FILE]".to_owned()]),
    };
    let archive = package(ws.root()).map_err(|e| vec![e])?;
    fs::write(ws.root().join(file), archive).map_err(|e| vec![format!("{file}: {e}")])?;
    println!("{file}");
    Ok(())
}

fn package(root: &Path) -> Result<Vec<u8>, String> {
    let read = |path: &Path| fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let folder = root.join("editors/vscode");
    let manifest = String::from_utf8_lossy(&read(&folder.join("package.json"))?).into_owned();
    let mut entries = vec![
        ("[Content_Types].xml".to_owned(), TYPES.as_bytes().to_vec()),
        ("extension.vsixmanifest".to_owned(), vsix_manifest(&manifest)?.into_bytes()),
        ("extension/LICENSE.txt".to_owned(), read(&root.join("LICENSE-MIT"))?),
    ];
    for file in FILES {
        entries.push((format!("extension/{file}"), read(&folder.join(file))?));
    }
    Ok(zip(&entries))
}

/// The manifest of the package, by the extension's own.
fn vsix_manifest(package: &str) -> Result<String, String> {
    let field = |name: &str| {
        let mark = format!("\n  \"{name}\": \"");
        let value = package.split_once(&mark).and_then(|(_, rest)| rest.split_once('"'));
        value.map(|(value, _)| value).ok_or_else(|| format!("package.json has no \"{name}\""))
    };
    let (name, version, publisher) = (field("name")?, field("version")?, field("publisher")?);
    let (title, text) = (field("displayName")?, field("description")?);
    let engine = package.split_once("\"vscode\": \"").and_then(|(_, rest)| rest.split_once('"'));
    let engine = engine.map(|(value, _)| value).ok_or("package.json names no engine")?;
    Ok(format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
         <PackageManifest Version=\"2.0.0\" \
         xmlns=\"http://schemas.microsoft.com/developer/vsx-schema/2011\">\n\
         <Metadata><Identity Language=\"en-US\" Id=\"{name}\" Version=\"{version}\" \
         Publisher=\"{publisher}\"/><DisplayName>{title}</DisplayName>\
         <Description xml:space=\"preserve\">{text}</Description>\
         <Categories>Programming Languages,Linters,Formatters</Categories>\
         <License>extension/LICENSE.txt</License>\
         <Properties><Property Id=\"Microsoft.VisualStudio.Code.Engine\" Value=\"{engine}\"/>\
         </Properties></Metadata>\n\
         <Installation><InstallationTarget Id=\"Microsoft.VisualStudio.Code\"/></Installation>\n\
         <Dependencies/>\n<Assets>\
         <Asset Type=\"Microsoft.VisualStudio.Code.Manifest\" Path=\"extension/package.json\" \
         Addressable=\"true\"/>\
         <Asset Type=\"Microsoft.VisualStudio.Services.Content.Details\" \
         Path=\"extension/README.md\" Addressable=\"true\"/></Assets>\n</PackageManifest>\n"
    ))
}

/// A ZIP archive of files that are stored as they are (APPNOTE.TXT 4.3): the same files give the
/// same bytes, because no time is in it.
fn zip(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in entries {
        let offset = u32_of(out.len());
        // Version 2.0, no flags, stored, 1980-01-01, then CRC, both sizes and the name's length.
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend(crc32(data).to_le_bytes());
        common.extend(u32_of(data.len()).to_le_bytes());
        common.extend(u32_of(data.len()).to_le_bytes());
        common.extend(u32_of(name.len()).to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(data);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        // No comment, first disk, no attributes.
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let (start, size) = (u32_of(out.len()), u32_of(directory.len()));
    let count = u16::try_from(entries.len()).unwrap_or(u16::MAX).to_le_bytes();
    out.extend(directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend(count);
    out.extend(count);
    out.extend(size.to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// Sizes of the extension's few small files.
fn u32_of(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

/// CRC-32 of IEEE 802.3.
fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 }
        })
    };
    !data.iter().fold(u32::MAX, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extension_is_packaged_whole() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let archive = package(&root).expect("it is packaged");
        let text = String::from_utf8_lossy(&archive);
        let manifest = fs::read_to_string(root.join("editors/vscode/package.json")).unwrap();
        // Each file that the manifest names is in the package.
        for (at, _) in manifest.match_indices("\"./") {
            let path = manifest[at + 3..].split('"').next().unwrap();
            assert!(FILES.contains(&path), "{path}");
        }
        for file in FILES {
            assert_eq!(
                text.matches(&format!("extension/{file}")).count(),
                2 + usize::from(["README.md", "package.json"].contains(file))
            );
        }
        assert!(text.contains("Id=\"weir\" Version=\"0.1.0\" Publisher=\"weir\""), "{text}");
        assert!(vsix_manifest("{}").is_err());
    }
}
