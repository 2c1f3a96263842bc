//! Runs the JOSE vectors of Wycheproof, `cargo run -p weir-jose --example wycheproof FOLDER`: the
//! folder has `json_web_*_test.json`. Prints the counts, and each test with another result.

use std::process::ExitCode;

use serde_json::Value;
use weir_jose::{KeySet, Limits, decrypt, verify};

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("usage: wycheproof FOLDER");
        return ExitCode::FAILURE;
    };
    let mut differences = 0;
    for kind in ["signature", "encryption", "key"] {
        let path = format!("{folder}/json_web_{kind}_test.json");
        match std::fs::read(&path).map(|text| serde_json::from_slice::<Value>(&text)) {
            Ok(Ok(vectors)) => differences += run(kind, &vectors),
            Ok(Err(e)) => eprintln!("{path}: {e}"),
            Err(e) => eprintln!("{path}: {e}"),
        }
    }
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(kind: &str, vectors: &Value) -> usize {
    let (mut accepted, mut rejected, mut differences) = (0, 0, 0);
    let list = |value: &Value, name: &str| value[name].as_array().cloned().unwrap_or_default();
    for group in list(vectors, "testGroups") {
        // A signature is verified with the public key, where there is one.
        let public = group.get("public").filter(|_| kind != "encryption");
        let key = public.unwrap_or(&group["private"]).to_string();
        for test in list(&group, "tests") {
            let result = check(&key, &test);
            match &result {
                Ok(()) => accepted += 1,
                Err(_) => rejected += 1,
            }
            if result.is_ok() != (test["result"] == "valid") {
                differences += 1;
                println!(
                    "{kind} {} {}: {}, expected {} {}: {}",
                    test["tcId"],
                    group["comment"],
                    test["comment"],
                    test["result"],
                    test["flags"],
                    result.err().unwrap_or("accepted".to_owned()),
                );
            }
        }
    }
    println!("{kind}: {accepted} accepted, {rejected} rejected, {differences} differ");
    differences
}

fn check(key: &str, test: &Value) -> Result<(), String> {
    let keys = KeySet::parse(key.as_bytes()).map_err(|e| e.to_string())?;
    let limits = Limits::default();
    if let Some(token) = test["jws"].as_str() {
        return verify(token.as_bytes(), &keys, limits).map(|_| ()).map_err(|e| e.to_string());
    }
    let token = test["jwe"].as_str().ok_or("not in the compact form")?;
    let made = decrypt(token.as_bytes(), &keys, limits).map_err(|e| e.to_string())?;
    let hex: String = made.plaintext.iter().map(|byte| format!("{byte:02x}")).collect();
    match test["pt"].as_str() {
        Some(pt) if pt != hex => Err("another plaintext".to_owned()),
        _ => Ok(()),
    }
}
