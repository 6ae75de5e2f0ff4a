//! Pearson's correlation.

/// Correlation of two lists of equal length, -1 to 1; 0 if one of them is constant.
pub fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len().min(b.len());
    let mean = |list: &[f64]| list[..count].iter().sum::<f64>() / count.max(1) as f64;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let (mut both, mut only_a, mut only_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - mean_a, b - mean_b);
        both += a * b;
        only_a += a * a;
        only_b += b * b;
    }
    let spread = (only_a * only_b).sqrt();
    if spread > 0.0 { both / spread } else { 0.0 }
}
