//! Weir's own drivers against each other.

use crate::options::Options;
use crate::server::Kind;
use crate::{Outcome, syscalls, throughput};

const SHAPES: &[(&str, &str)] = &[
    ("1k-cache", "1 KB file, open_file_cache, 64 connections"),
    ("1k-cache-500", "the same, 500 connections"),
    ("1k-cache-1000", "the same, 1,000 connections"),
    ("close", "1 KB file, a connection each"),
    ("pipe", "1 KB file, 16 requests pipelined"),
    ("1m", "1 MB file, 64 connections"),
];

/// Runs every shape on every driver, and counts the system calls.
pub fn run(options: &Options, _name: &str) -> Outcome {
    let kinds: Vec<Kind> = [Kind::Nginx, Kind::Weir, Kind::Uring]
        .into_iter()
        .filter(|kind| kind.binary(options).exists())
        .collect();
    for (name, what) in SHAPES {
        println!("\n### {what}");
        throughput::run_on(options, name, &kinds, Kind::Weir)?;
    }
    println!("\n### system calls");
    syscalls::run_on(options, &kinds)
}
