//! The tables in the documentation are those of the renderer.
//!
//! `WEIR_KUBE_BLESS=1` writes them.

#![allow(clippy::unwrap_used, clippy::panic)] // that is how a test fails

#[test]
fn the_documentation_has_the_tables() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/KUBERNETES.md");
    let text = std::fs::read_to_string(path).unwrap();
    let mark = "<!-- Made by `weir-kube tables`; a test compares. -->\n";
    let (before, tables) = text.split_once(mark).unwrap();
    let wanted = format!("\n{}", weir_kube_render::docs::tables());
    if std::env::var_os("WEIR_KUBE_BLESS").is_some() {
        std::fs::write(path, format!("{before}{mark}{wanted}")).unwrap();
        return;
    }
    assert!(tables == wanted, "run with WEIR_KUBE_BLESS=1, or weir-kube tables");
}
