//! Tables and ratios.

use crate::options::Options;
use crate::{deploy, proc};

/// Prints the machine of the measurement.
pub fn machine(options: &Options) {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let of_system = |path: &str| std::fs::read_to_string(format!("/proc/sys/{path}"));
    let kernel = of_system("kernel/osrelease").unwrap_or_default();
    // What a large answer costs depends on it: bbr paces what it sends, cubic does not.
    let congestion = of_system("net/ipv4/tcp_congestion_control").unwrap_or_default();
    println!(
        "{cpus} CPUs, kernel {}, TCP with {}, {} rounds of {} s, up to {} descriptors",
        kernel.trim(),
        congestion.trim(),
        options.rounds,
        options.seconds,
        proc::descriptor_limit()
    );
    if let Some((name, _)) = deploy::names() {
        println!("workers run as {name}, files belong to root");
    }
    if cpus < 2 {
        println!("one CPU alone: server and load disturb one another");
    }
}

/// The middle value; of an even count, the mean of the two in the middle.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The longest waits of rounds, given in microseconds: median and maximum in milliseconds, such as
/// `1.2 / 40.1`; `-` if none was measured.
pub fn longest(of: &[f64]) -> String {
    let max = of.iter().copied().fold(0.0, f64::max);
    match max > 0.0 {
        true => format!("{:.1} / {:.1}", median(of) / 1e3, max / 1e3),
        false => "-".to_string(),
    }
}

/// Ratios taken round by round: `0.62 (0.60 to 0.65)`.
pub fn ratios(of: &[f64], to: &[f64]) -> String {
    let each: Vec<f64> = of.iter().zip(to).map(|(a, b)| a / b).collect();
    let smallest = each.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    format!("{:.2} ({smallest:.2} to {largest:.2})", median(&each))
}

/// Prints rows with their columns as wide as needed, the first to the left, the others right.
pub fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let lens = rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count());
        lens.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(i, (c, w))| if i == 0 { format!("{c:<w$}") } else { format!("{c:>w$}") })
            .collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

/// A row of texts.
pub fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(ToString::to_string).collect()
}

/// Bytes as megabytes with one decimal.
pub fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / (1024.0 * 1024.0))
}

#[cfg(test)]
mod tests {
    use super::{longest, median, ratios};

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn longest_waits_are_milliseconds() {
        assert_eq!(longest(&[1_200.0, 900.0, 40_100.0]), "1.2 / 40.1");
        assert_eq!(longest(&[0.0, 0.0]), "-");
        assert_eq!(longest(&[]), "-");
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        assert_eq!(ratios(&[1.0, 4.0, 3.0], &[2.0, 4.0, 4.0]), "0.75 (0.50 to 1.00)");
    }
}
