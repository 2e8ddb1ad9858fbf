//! Scores as text.

/// Returns the text of C's `%.17g`: the form of a score inside a listpack and in a digest.
pub(crate) fn exact_text(score: f64) -> String {
    /// Significant digits.
    const DIGITS: i32 = 17;
    if !score.is_finite() || score == 0.0 {
        return match score {
            f64::INFINITY => "inf",
            f64::NEG_INFINITY => "-inf",
            zero if zero.is_sign_negative() => "-0",
            _ => "0",
        }
        .to_owned();
    }
    let scientific = format!("{score:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').expect("an exponent was asked for");
    let exponent: i32 = exponent.parse().expect("a decimal exponent");
    let without_zeros = |text: &str| -> String {
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text.to_owned()
        }
    };
    if (-4..DIGITS).contains(&exponent) {
        without_zeros(&format!("{score:.*}", (DIGITS - 1 - exponent) as usize))
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_those_of_printf() {
        for (score, text) in [
            (0.1, "0.10000000000000001"),
            (-0.0, "-0"),
            (1e-7, "9.9999999999999995e-08"),
            (1e-5, "1.0000000000000001e-05"),
            (0.0001, "0.0001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (-1.5e300, "-1.5000000000000001e+300"),
            (-1.5e100, "-1.4999999999999999e+100"),
            (-1.5e30, "-1.4999999999999999e+30"),
            (-1.5e20, "-1.5e+20"),
            (123456.789, "123456.789"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(exact_text(score), text);
        }
    }
}
